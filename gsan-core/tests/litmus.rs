//! The litmus tests, each in all interleavings.

use std::collections::BTreeSet;

use gsan_core::exact::{Exact, Unit};
use gsan_core::testing::{litmus, races};

#[test]
fn the_exact_detector_gives_every_litmus_verdict() {
    let mut wrong = Vec::new();
    for test in litmus::table() {
        let found = test.races(&mut |events| races(&mut Exact::new(Unit::Thread), events));
        if found != test.races {
            wrong.push(format!(
                "{}: found {found:?}, but {} says {:?}",
                test.name, test.section, test.races
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_table_is_large_and_its_names_differ() {
    let table = litmus::table();
    let names: BTreeSet<_> = table.iter().map(|test| &test.name).collect();
    assert_eq!(names.len(), table.len());
    assert!(table.len() >= 90);
}
