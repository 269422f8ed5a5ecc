//! `cargo xtask test`.

use anyhow::Result;

use crate::cargo::{cargo, cargo_with};

/// Run every test that needs no GPU
#[derive(clap::Args, Default)]
pub(crate) struct Test {
    /// Run the long variants too: more random programs, more schedules
    #[arg(long)]
    long: bool,
    /// Arguments for `cargo nextest run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Test {
    pub(crate) fn run(self) -> Result<()> {
        let environment: &[_] = if self.long {
            &[("GSAN_LONG", "1")]
        } else {
            &[]
        };
        let arguments = self.arguments.iter().map(String::as_str);
        cargo_with(
            environment,
            ["nextest", "run", "--workspace"]
                .into_iter()
                .chain(arguments),
        )?;
        cargo(["test", "--doc", "--workspace", "--quiet"])
    }
}
