//! How findings become a report.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use gsan_config::pattern::{Pattern, Suppression as Rule};
use gsan_core::event::{Action, Space};
use gsan_core::ids::{CtaIndex, DeviceRank, LaunchId, SiteId, Thread};
use gsan_core::loss::{Loss, Losses};
use gsan_core::race::{Race, RaceKind, Side, Who};
use gsan_core::scope::Order;
use gsan_report::builder::{Added, Builder, Merged};
use gsan_report::human::{self, Look};
use gsan_report::model::{self, Fault, FaultKind, Place};
use gsan_report::names::{Launch, Names};
use gsan_report::source::Sources;
use gsan_report::{json, sarif};

/// Sites `n` of line `n` of `k.py`; launches 0 of `one`, 1 and 2 of `two`, 3 of the opaque `three`.
fn names() -> Names {
    let mut names = Names::default();
    for line in 1..2000 {
        names.add_site(
            SiteId(line),
            Place {
                file: "src/k.py".to_owned(),
                line,
                column: None,
                ptx: None,
            },
        );
    }
    for (id, kernel) in ["one", "two", "two", "three"].into_iter().enumerate() {
        names.add_launch(
            LaunchId(id as u32),
            Launch {
                kernel: kernel.to_owned(),
                number: id as u64,
                device: DeviceRank(0),
                stream: 0,
                grid: [4, 4, 1],
                block: [32, 2, 1],
                opaque: (kernel == "three").then(|| "contains fences".to_owned()),
            },
        );
    }
    names
}

fn side(launch: u32, line: u32, action: Action) -> Side {
    Side {
        who: Who::Thread(Thread::new(LaunchId(launch), 5, 33)),
        action,
        order: Order::Weak,
        scope: None,
        asynchronous: false,
        site: SiteId(line),
    }
}

/// A write of launch `earlier.0` in line `earlier.1`, and a later one.
fn writes(earlier: (u32, u32), later: (u32, u32)) -> Race {
    Race {
        kind: RaceKind::WriteAfterWrite,
        space: Space::Global,
        address: 0x1000,
        bytes: 4,
        earlier: side(earlier.0, earlier.1, Action::Write),
        later: side(later.0, later.1, Action::Write),
    }
}

#[test]
fn numbers_get_their_names() {
    let (race, reason) = names().race(&writes((0, 1), (1, 2)));
    assert_eq!(reason, None);
    assert_eq!(race.later.who.cta, Some([1, 1, 0]));
    assert_eq!(race.later.who.thread, Some([1, 1, 0]));
    assert_eq!(race.later.who.kernel.as_deref(), Some("two"));
    assert_eq!(race.later.who.launch, Some(1));
    assert_eq!(race.earlier.place.unwrap().line, 1);
}

#[test]
fn the_same_lines_of_the_same_kernels_are_one_race() {
    let names = names();
    let mut builder = Builder::new(100, &[]);
    let mut add = |race: &Race| builder.race(race, &names, None);
    assert_eq!(add(&writes((0, 1), (1, 2))), Added::New);
    // Another launch of the same kernel, and the same pair the other way round.
    assert_eq!(add(&writes((0, 1), (2, 2))), Added::Again);
    assert_eq!(add(&writes((1, 2), (0, 1))), Added::Again);
    // Another line, another kernel, another kind, other memory.
    assert_eq!(add(&writes((0, 1), (1, 3))), Added::New);
    assert_eq!(add(&writes((1, 1), (1, 2))), Added::New);
    let mut other = writes((0, 1), (1, 2));
    other.kind = RaceKind::ReadAfterWrite;
    assert_eq!(add(&other), Added::New);
    let mut other = writes((0, 1), (1, 2));
    other.space = Space::Shared(gsan_core::ids::Cta {
        launch: LaunchId(0),
        index: CtaIndex(0),
    });
    assert_eq!(add(&other), Added::New);
    let times: Vec<u64> = builder
        .finish()
        .races
        .iter()
        .map(|race| race.times)
        .collect();
    assert_eq!(times, [3, 1, 1, 1, 1]);
}

#[test]
fn a_race_across_an_opaque_launch_is_only_possible() {
    let names = names();
    let mut builder = Builder::new(100, &[]);
    for race in [writes((0, 1), (3, 2)), writes((3, 2), (0, 1))] {
        builder.race(&race, &names, None);
    }
    let report = builder.finish();
    assert!(report.races.is_empty());
    assert_eq!(report.possible_races.len(), 1);
    assert_eq!(report.possible_races[0].race.times, 2);
    assert_eq!(
        report.possible_races[0].reason,
        "launch 3 of `three` contains fences"
    );
}

#[test]
fn what_is_over_the_limit_is_counted() {
    let names = names();
    let mut builder = Builder::new(2, &[]);
    for line in 1..=5 {
        builder.race(&writes((0, line), (0, line)), &names, None);
    }
    assert_eq!(
        builder.race(&writes((0, 1), (0, 1)), &names, None),
        Added::Again
    );
    assert_eq!(
        builder.race(&writes((0, 9), (0, 9)), &names, None),
        Added::NotKept
    );
    let report = builder.finish();
    assert_eq!(report.races.len(), 2);
    assert_eq!(report.summary.not_kept, 4);
}

fn rule(kind: Option<&str>, file: Option<&str>, kernel: Option<&str>) -> Rule {
    let pattern = |text: Option<&str>| text.map(|text| Pattern::new(text).unwrap());
    Rule {
        kind: pattern(kind),
        file: pattern(file),
        kernel: pattern(kernel),
        reason: "known".to_owned(),
    }
}

#[test]
fn a_suppression_hides_what_matches_all_its_patterns_on_either_side() {
    let names = names();
    let hidden = |rule: Rule| {
        let mut builder = Builder::new(100, &[rule]);
        builder.race(&writes((0, 1), (1, 2)), &names, None) == Added::Suppressed
    };
    assert!(hidden(rule(Some("write-after-write"), None, None)));
    assert!(hidden(rule(Some("*"), Some("src/*.py"), Some("two"))));
    assert!(hidden(rule(None, None, Some("one"))));
    assert!(!hidden(rule(Some("read-*"), None, None)));
    assert!(!hidden(rule(Some("write-*"), Some("lib/*"), None)));
    assert!(!hidden(rule(None, Some("src/*"), Some("three"))));
}

#[test]
fn what_a_suppression_hides_is_counted_and_over_no_limit() {
    let names = names();
    let rules = [
        rule(None, None, Some("two")),
        rule(None, None, Some("two")),
        rule(None, None, Some("never")),
    ];
    let mut builder = Builder::new(1, &rules);
    for _ in 0..3 {
        builder.race(&writes((1, 1), (1, 2)), &names, None);
    }
    let report = builder.finish();
    let times: Vec<u64> = report.suppressions.iter().map(|rule| rule.times).collect();
    assert_eq!(times, [3, 0], "equal rules are one");
    assert_eq!(report.summary.not_kept, 0);
    assert!(!report.has_findings(true));
}

#[test]
fn what_would_be_hidden_is_what_is_suppressed() {
    let names = names();
    for rules in [vec![], vec![rule(Some("write-*"), None, Some("one"))]] {
        let mut builder = Builder::new(100, &rules);
        for (earlier, later) in [(0, 0), (0, 1), (1, 1), (3, 3)] {
            let (race, reason) = names.race(&writes((earlier, 1), (later, 2)));
            let hidden = builder.hides_race(&race);
            let added = builder.named_race(race, reason);
            assert_eq!(hidden, added == Added::Suppressed);
        }
        let trap = model::Fault::new(FaultKind::Trap, "trap");
        assert!(!builder.hides_fault(&trap));
    }
    let builder = Builder::new(100, &[rule(Some("trap"), None, None)]);
    assert!(builder.hides_fault(&model::Fault::new(FaultKind::Trap, "trap")));
    assert!(!builder.hides_fault(&model::Fault::new(FaultKind::Deadlock, "deadlock")));
}

#[test]
fn a_fault_is_one_by_its_kind_line_and_kernel() {
    let names = names();
    let fault = |kind, line| Fault {
        who: Some(names.who(Who::Thread(Thread::new(LaunchId(0), 0, 0)))),
        place: names.place(SiteId(line)).cloned(),
        ..Fault::new(kind, "4-byte write")
    };
    let mut builder = Builder::new(100, &[rule(Some("trap"), None, None)]);
    assert_eq!(builder.fault(fault(FaultKind::OutOfBounds, 1)), Added::New);
    assert_eq!(
        builder.fault(fault(FaultKind::OutOfBounds, 1)),
        Added::Again
    );
    assert_eq!(builder.fault(fault(FaultKind::OutOfBounds, 2)), Added::New);
    assert_eq!(builder.fault(fault(FaultKind::Misaligned, 1)), Added::New);
    assert_eq!(builder.fault(fault(FaultKind::Trap, 1)), Added::Suppressed);
    assert_eq!(builder.finish().faults.len(), 3);
}

#[test]
fn parts_of_several_processes_become_one_report() {
    let names = names();
    let part = |lines: &[u32], accesses: u64, seed: u64| {
        let mut builder = Builder::new(100, &[rule(None, None, Some("three"))]);
        for &line in lines {
            builder.race(&writes((0, line), (0, line)), &names, None);
        }
        builder.race(&writes((3, 1), (3, 1)), &names, None);
        let mut losses = Losses::default();
        losses.add(Loss::NoSlot, 2);
        builder.losses(&losses);
        let summary = builder.summary();
        summary.processes = 1;
        summary.accesses = accesses;
        summary.seeds.insert(seed);
        builder.finish()
    };
    let mut builder = Builder::new(100, &[]);
    assert_eq!(builder.merge(part(&[1, 2], 10, 7)), Ok(Merged::Added));
    assert_eq!(builder.merge(part(&[2, 3], u64::MAX, 7)), Ok(Merged::Added));
    let report = builder.finish();
    let lines: Vec<(u32, u64)> = report
        .races
        .iter()
        .map(|race| (race.later.place.as_ref().unwrap().line, race.times))
        .collect();
    assert_eq!(lines, [(1, 1), (2, 2), (3, 1)]);
    assert_eq!(report.summary.processes, 2);
    assert_eq!(report.summary.accesses, u64::MAX, "counts saturate");
    assert_eq!(report.summary.seeds, [7].into());
    assert_eq!(report.losses.len(), 1);
    assert_eq!(report.losses[0].times, 4);
    assert_eq!(report.suppressions.len(), 1);
    assert_eq!(report.suppressions[0].times, 2);
}

#[test]
fn kinds_of_suppressions_are_the_kinds_of_findings() {
    let kinds: Vec<&str> = (model::RaceKind::ALL.iter().map(|kind| kind.name()))
        .chain(FaultKind::ALL.iter().map(|kind| kind.name()))
        .collect();
    assert_eq!(kinds, gsan_config::pattern::KINDS);
}

/// 100,000 raw races on 1,000 pairs of lines, from four processes.
#[test]
fn a_hundred_thousand_races_are_merged_and_shown_in_under_two_seconds() {
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("src")).unwrap();
    let text = "    acc += tl.load(part + (t * SPLIT + j) * B + i)\n".repeat(2000);
    std::fs::write(directory.path().join("src/k.py"), text).unwrap();
    let names = names();
    let merge_and_show = || {
        let mut merged = Builder::new(1000, &[]);
        for process in 0..4 {
            let mut builder = Builder::new(1000, &[]);
            builder.start_run();
            for number in 0..25_000 {
                let line = 1 + number % 1000;
                let race = writes((process % 3, line), (process % 3, line + 1));
                builder.race(&race, &names, None);
            }
            let part = json::read(json::write(&builder.finish()).as_bytes()).unwrap();
            assert_eq!(merged.merge(part), Ok(Merged::Added));
        }
        let report = merged.finish();
        let mut sources = Sources::new(directory.path());
        let text = human::report(&report, &mut sources, &Look::default());
        let sarif = sarif::write(&report, Path::new("/"));
        (report, text, sarif)
    };
    // Other tests run at the same time: the fastest of a few counts.
    let mut taken = Duration::MAX;
    let mut result = merge_and_show();
    for _ in 0..5 {
        let start = Instant::now();
        result = merge_and_show();
        taken = taken.min(start.elapsed());
        if taken.as_secs_f64() < 2.0 {
            break;
        }
    }
    let (report, text, sarif) = result;

    println!("{taken:?}");
    assert_eq!(report.races.len(), 1000);
    let times: u64 = report.races.iter().map(|race| race.times).sum();
    assert_eq!(times + report.summary.not_kept, 100_000);
    assert_eq!(text.matches("error[write-after-write]").count(), 1000);
    assert_eq!(sarif.matches("\"level\": \"error\"").count(), 1000);
    assert!(taken.as_secs_f64() < 2.0, "{taken:?}");
}
