//! The litmus tests: small programs with the verdict that the chapter "Memory Consistency Model"
//! of the PTX ISA gives, worked out by hand.
//!
//! The tables are the TOML files in `tests/litmus`. `races` lists the pairs of instructions
//! (`THREAD.INSTRUCTION`, both counted from 0) that race in at least one interleaving; every other
//! pair races in none.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::execution::{Grain, interleavings};
use super::program::Program;
use super::text;
use crate::event::Event;
use crate::race::Race;

/// One test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Litmus {
    /// What the program does.
    pub name: String,
    /// The section of the PTX ISA that decides, by its title.
    pub section: String,
    /// What the host does; see [`text`]. Empty: it launches the only kernel.
    #[serde(default)]
    pub host: String,
    /// CTAs in a cluster.
    #[serde(default = "one")]
    pub cluster: u32,
    /// A line for each thread; see [`text`].
    pub threads: Vec<String>,
    /// The pairs of instructions that race, `A-B`, the smaller first.
    pub races: BTreeSet<String>,
    /// The pairs that race by the letter of the section, and that the exact detector leaves out on
    /// purpose (see the module [`exact`](crate::exact)).
    #[serde(default)]
    pub departs: BTreeSet<String>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    test: Vec<Litmus>,
}

const TABLES: [(&str, &str); 7] = [
    ("patterns", include_str!("../../tests/litmus/patterns.toml")),
    ("shapes", include_str!("../../tests/litmus/shapes.toml")),
    ("scopes", include_str!("../../tests/litmus/scopes.toml")),
    ("fences", include_str!("../../tests/litmus/fences.toml")),
    (
        "observation",
        include_str!("../../tests/litmus/observation.toml"),
    ),
    ("barriers", include_str!("../../tests/litmus/barriers.toml")),
    ("host", include_str!("../../tests/litmus/host.toml")),
];

/// All tests.
///
/// # Panics
/// If a table is not what [`Litmus`] says.
pub fn table() -> Vec<Litmus> {
    let tests = TABLES.iter().flat_map(|(name, text)| {
        let table: Result<Table, _> = toml::from_str(text);
        match table {
            Ok(table) => table.test,
            Err(error) => panic!("{name}.toml: {error}"),
        }
    });
    tests.collect()
}

impl Litmus {
    /// More interleavings than any test has.
    pub const LIMIT: usize = 100_000;

    /// The program.
    ///
    /// # Panics
    /// If its text is wrong.
    pub fn program(&self) -> Program {
        match text::program(&self.host, self.cluster, &self.threads) {
            Ok(program) => program,
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// The pairs that race in any interleaving, as `detect` sees each of them.
    ///
    /// # Panics
    /// If every interleaving gets stuck: a verdict about half a program means nothing.
    pub fn races(&self, detect: &mut dyn FnMut(&[Event]) -> Vec<Race>) -> BTreeSet<String> {
        let program = self.program();
        let (mut found, mut finished) = (BTreeSet::new(), false);
        interleavings(&program, Grain::Operation, Self::LIMIT, &mut |execution| {
            finished |= execution.is_finished();
            for race in detect(execution.events()) {
                let sites = [race.earlier.site, race.later.site];
                let (a, b) = (sites[0].min(sites[1]), sites[0].max(sites[1]));
                found.insert(format!("{}-{}", text::site_name(a), text::site_name(b)));
            }
        });
        assert!(finished, "{}: no interleaving comes to an end", self.name);
        found
    }
}
