//! What a person reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use gsan_core::loss::Loss;
use gsan_report::human::{self, Look};
use gsan_report::loss::LossName;
use gsan_report::model::*;
use gsan_report::source::Sources;

const SPLITK: &str = "\
import triton
import triton.language as tl


@triton.jit
def splitk(part, out, flag, SPLIT: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0)
    s = tl.program_id(1)
    i = tl.arange(0, B)
    v = i * s
    tl.store(part + (t * SPLIT + s) * B + i, v)
    c = tl.atomic_add(flag + t, 1, sem=\"relaxed\")
    acc = tl.zeros([B], tl.int32)
    if c == SPLIT - 1:
        for j in range(SPLIT):
            acc += tl.load(part + (t * SPLIT + j) * B + i)
        tl.store(out + t * B + i, acc)
";

fn sources() -> Sources {
    let mut sources = Sources::new("/nonexistent");
    sources.insert("kernels/splitk.py", SPLITK);
    sources
}

fn place(line: u32) -> Option<Place> {
    Some(Place {
        file: "kernels/splitk.py".to_owned(),
        line,
        column: None,
        ptx: None,
    })
}

fn cta(cta: Position) -> Who {
    Who {
        thread: None,
        cta: Some(cta),
        kernel: Some("splitk".to_owned()),
        launch: Some(12),
        device: Some(0),
        stream: Some(Hex(0)),
    }
}

fn side(who: Who, action: Action, place: Option<Place>) -> Side {
    Side {
        who,
        action,
        order: Order::Weak,
        scope: None,
        asynchronous: false,
        place,
    }
}

/// The race of the split-K kernel: the last CTA reads a partial sum that nothing orders.
fn splitk() -> Race {
    Race {
        kind: RaceKind::ReadAfterWrite,
        range: Range {
            space: Space::Global,
            address: Hex(0x8200_0000_1000),
            bytes: 4,
            allocation: Some(Allocation {
                name: None,
                bytes: 131_072,
                offset: 4096,
            }),
        },
        earlier: side(cta([3, 1, 0]), Action::Write, place(11)),
        later: side(cta([3, 7, 0]), Action::Read, place(16)),
        times: 512,
        replay: None,
    }
}

fn thread(cta: Position, thread: Position) -> Who {
    Who {
        thread: Some(thread),
        ..self::cta(cta)
    }
}

fn atomic(side: Side, order: Order, scope: Scope) -> Side {
    Side {
        order,
        scope: Some(scope),
        ..side
    }
}

fn text(race: &Race) -> String {
    human::race(race, &mut sources(), &Look::default())
}

/// The text of the split-K race in a file of other text, the later side at `line` and `column`.
fn text_in(file_text: &str, line: u32, column: Option<u32>, look: &Look) -> String {
    let mut race = splitk();
    let file = "kernels/other.py".to_owned();
    let mut sources = Sources::new("/nonexistent");
    sources.insert(&*file, file_text);
    race.later.place = Some(Place {
        file: file.clone(),
        line,
        column,
        ptx: None,
    });
    race.earlier.place = Some(Place {
        file,
        line: 1,
        column: None,
        ptx: None,
    });
    human::race(&race, &mut sources, look)
}

#[test]
fn a_race_shows_both_sides_with_their_lines() {
    insta::assert_snapshot!(text(&splitk()));
}

#[test]
fn a_race_of_gpu_threads_names_them() {
    let mut race = splitk();
    race.kind = RaceKind::WriteAfterRead;
    race.earlier = side(thread([3, 7, 0], [0, 0, 0]), Action::Read, place(16));
    race.later = side(thread([3, 7, 0], [65, 0, 0]), Action::Write, place(11));
    race.times = 1;
    insta::assert_snapshot!(text(&race));
}

#[test]
fn a_race_in_shared_memory_names_its_owner() {
    let mut race = splitk();
    race.kind = RaceKind::WriteAfterWrite;
    race.range = Range {
        space: Space::Shared { cta: [3, 7, 0] },
        address: Hex(0x40),
        bytes: 1,
        allocation: None,
    };
    race.earlier = side(thread([3, 7, 0], [0, 0, 0]), Action::Write, place(11));
    race.later = side(thread([3, 7, 0], [32, 0, 0]), Action::Write, place(17));
    insta::assert_snapshot!(text(&race));
}

#[test]
fn both_sides_on_one_line_share_it() {
    let mut race = splitk();
    race.kind = RaceKind::WriteAfterWrite;
    race.earlier = side(cta([0, 0, 0]), Action::Write, place(11));
    race.later = side(cta([1, 0, 0]), Action::Write, place(11));
    insta::assert_snapshot!(text(&race));
}

#[test]
fn sides_of_different_launches_say_both_streams() {
    let mut race = splitk();
    race.earlier.who = Who {
        kernel: Some("prologue".to_owned()),
        launch: Some(11),
        stream: Some(Hex(0x7f00_1000)),
        ..cta([3, 1, 0])
    };
    insta::assert_snapshot!(text(&race));
}

#[test]
fn atomics_say_which_scope_fell_short() {
    let add = side(cta([3, 1, 0]), Action::ReadModifyWrite, place(12));
    let load = side(cta([3, 7, 0]), Action::Read, place(16));
    let between = |earlier: Side, later: Side| Race {
        earlier,
        later,
        ..splitk()
    };
    let one = between(
        atomic(add.clone(), Order::AcqRel, Scope::Cta),
        atomic(load.clone(), Order::Acquire, Scope::Gpu),
    );
    let both = between(
        atomic(
            Side {
                action: Action::Reduction,
                ..add.clone()
            },
            Order::Relaxed,
            Scope::Cta,
        ),
        atomic(
            side(cta([3, 7, 0]), Action::ReadModifyWrite, place(12)),
            Order::Relaxed,
            Scope::Cta,
        ),
    );
    let mut devices = between(
        atomic(add.clone(), Order::Release, Scope::Sys),
        atomic(
            Side {
                action: Action::FailedCompareAndSwap,
                ..load.clone()
            },
            Order::Acquire,
            Scope::Gpu,
        ),
    );
    devices.earlier.who.device = Some(1);
    devices.earlier.who.launch = Some(3);
    let sizes = between(
        atomic(add.clone(), Order::Relaxed, Scope::Gpu),
        atomic(load.clone(), Order::Relaxed, Scope::Gpu),
    );
    let plain = between(atomic(add, Order::Relaxed, Scope::Gpu), load);
    let texts = [one, both, devices, sizes, plain].map(|race| text(&race));
    insta::assert_snapshot!(texts.concat());
}

#[test]
fn an_asynchronous_copy_is_said_to_be_one() {
    let mut race = splitk();
    race.earlier.asynchronous = true;
    insta::assert_snapshot!(text(&race));
}

#[test]
fn a_possible_race_says_why_it_is_not_certain() {
    let possible = PossibleRace {
        reason: "launch 12 of `splitk` contains ordering instructions that nobody reports \
                 (inline assembly)"
            .to_owned(),
        race: splitk(),
    };
    let text = human::possible_race(&possible, &mut sources(), &Look::default());
    insta::assert_snapshot!(text);
}

#[test]
fn a_race_found_by_a_schedule_says_how_to_see_it_again() {
    let mut race = splitk();
    race.range.allocation.as_mut().unwrap().name = Some("part".to_owned());
    race.replay = Some(Replay {
        seed: 17,
        command: "gsan check splitk.ptx --args splitk.toml --seed 17 --schedules 1".to_owned(),
    });
    for (side, line) in [(&mut race.later, 120), (&mut race.earlier, 98)] {
        let place = side.place.as_mut().unwrap();
        place.column = Some(19);
        place.ptx = Some(PtxLine {
            file: "splitk.ptx".to_owned(),
            line,
        });
    }
    insta::assert_snapshot!(text(&race));
}

#[test]
fn a_side_that_is_not_known_is_said_to_be_unknown() {
    let mut race = splitk();
    race.earlier.who = Who {
        device: Some(1),
        ..Who::default()
    };
    race.earlier.place = None;
    let one = text(&race);
    race.later.place = None;
    race.later.who = Who::default();
    insta::assert_snapshot!(one + &text(&race));
}

#[test]
fn a_source_file_that_is_missing_or_has_changed_is_said() {
    let race = splitk();
    let look = Look::default();
    let missing = human::race(&race, &mut Sources::new("/nonexistent"), &look);
    let mut changed = sources();
    changed.insert("kernels/splitk.py", "import triton\n");
    let changed = human::race(&race, &mut changed, &look);
    let mut one_missing = race;
    one_missing.earlier.place.as_mut().unwrap().file = "kernels/gone.py".to_owned();
    let one_missing = text(&one_missing);
    insta::assert_snapshot!([missing, changed, one_missing].concat());
}

#[test]
fn a_very_long_line_is_cut_around_its_column() {
    let x = "x".repeat(100_000);
    let y = "y".repeat(100_000);
    let long = format!("first = 1\n{x}\n{x} here = {x}; {y}\n");
    let look = Look {
        width: 100,
        ..Look::default()
    };
    let column = Some(100_002);
    insta::assert_snapshot!(text_in(&long, 3, column, &look));
}

#[test]
fn tabs_and_wide_characters_keep_marks_under_their_columns() {
    let file = "first\n\tif größe:\n\t\t値 = 漢字(ü); part[i] = 0 \u{202e}\n";
    let column = file.lines().nth(2).unwrap().chars().position(|c| c == 'p');
    let column = column.map(|column| column as u32 + 1);
    insta::assert_snapshot!(text_in(file, 3, column, &Look::default()));
}

#[test]
fn carriage_returns_change_nothing() {
    let unix = text_in(SPLITK, 16, None, &Look::default());
    let dos = text_in(&SPLITK.replace('\n', "\r\n"), 16, None, &Look::default());
    assert_eq!(unix, dos);
}

#[test]
fn an_empty_line_and_a_column_past_the_end_are_shown() {
    let text = [
        text_in("first\n\n", 2, None, &Look::default()),
        text_in("first\nab\n", 2, Some(1000), &Look::default()),
        text_in("first\nab\n", 2, Some(0), &Look::default()),
    ];
    insta::assert_snapshot!(text.concat());
}

#[test]
fn names_of_strangers_do_not_reach_the_terminal_as_commands() {
    let mut race = splitk();
    race.later.who.kernel = Some("\u{1b}[2J\u{9b}31m\u{202e}evil\n".to_owned());
    race.later.place.as_mut().unwrap().file = "a\u{1b}]0;title\u{7}\nb.py".to_owned();
    race.range.allocation.as_mut().unwrap().name = Some("\u{8}".repeat(3));
    insta::assert_snapshot!(text(&race));
}

#[test]
fn colours_change_nothing_else() {
    let look = Look {
        color: true,
        ..Look::default()
    };
    let colored = human::race(&splitk(), &mut sources(), &look);
    assert!(colored.contains("\u{1b}["));
    let mut plain = String::new();
    let mut rest = colored.as_str();
    while let Some(start) = rest.find('\u{1b}') {
        plain.push_str(&rest[..start]);
        let end = start + rest[start..].find('m').unwrap() + 1;
        rest = &rest[end..];
    }
    plain.push_str(rest);
    assert_eq!(plain, text(&splitk()));
}

fn fault(kind: FaultKind, message: &str) -> Fault {
    Fault {
        who: Some(thread([3, 7, 0], [5, 0, 0])),
        place: place(16),
        replay: Some(Replay {
            seed: 3,
            command: "gsan check splitk.ptx --seed 3".to_owned(),
        }),
        ..Fault::new(kind, message)
    }
}

#[test]
fn an_access_out_of_bounds_says_which_bytes_of_what() {
    let mut fault = fault(FaultKind::OutOfBounds, "read past the end of a buffer");
    fault.range = Some(Range {
        space: Space::Global,
        address: Hex(0x2_0000),
        bytes: 4,
        allocation: Some(Allocation {
            name: Some("part".to_owned()),
            bytes: 131_072,
            offset: 131_072,
        }),
    });
    fault.times = 32;
    insta::assert_snapshot!(human::fault(&fault, &mut sources(), &Look::default()));
}

#[test]
fn a_deadlock_says_who_waits_where_for_what() {
    let waiting = |threads, line, what: &str| Waiting {
        threads,
        who: thread([0, 0, 0], [1, 0, 0]),
        place: place(line),
        what: what.to_owned(),
    };
    let mut deadlock = fault(FaultKind::Deadlock, "no thread can run");
    deadlock.who = None;
    deadlock.place = None;
    deadlock.waiting = vec![
        waiting(64, 12, "barrier 0 (64 of 128 threads arrived)"),
        waiting(1, 16, "a change of 4 bytes at 0x1000"),
    ];
    deadlock.notes = vec!["63 threads have returned".to_owned()];
    let mut many = deadlock.clone();
    many.waiting = (0..20)
        .map(|line| Waiting {
            place: None,
            ..waiting(1, line, "barrier 1")
        })
        .collect();
    let text = [deadlock, many]
        .map(|fault| human::fault(&fault, &mut sources(), &Look::default()))
        .concat();
    insta::assert_snapshot!(text);
}

#[test]
fn every_kind_of_fault_has_its_name() {
    let text: String = FaultKind::ALL
        .iter()
        .map(|&kind| {
            let mut fault = fault(kind, kind.sentence());
            fault.replay = None;
            human::fault(&fault, &mut sources(), &Look::default())
        })
        .collect();
    insta::assert_snapshot!(text);
}

fn losses(names: impl IntoIterator<Item = Loss>) -> Vec<LossCount> {
    names
        .into_iter()
        .enumerate()
        .map(|(index, loss)| LossCount {
            loss: LossName(loss),
            times: index as u64 + 1,
        })
        .collect()
}

#[test]
fn every_loss_of_coverage_has_its_cure() {
    let report = Report {
        losses: losses(Loss::ALL),
        ..Report::default()
    };
    insta::assert_snapshot!(human::rest(&report, &Look::default()));
}

#[test]
fn keys_that_cures_name_exist() {
    let report = Report {
        losses: losses(Loss::ALL),
        ..Report::default()
    };
    let text = human::rest(&report, &Look::default());
    let sections: Vec<&str> = gsan_config::keys::SECTIONS
        .iter()
        .map(|section| section.name)
        .collect();
    let mut named = 0;
    for quoted in text.split('`').skip(1).step_by(2) {
        let key = quoted.split(' ').next().unwrap();
        let is_key = key
            .split_once('.')
            .is_some_and(|(section, _)| sections.contains(&section));
        if is_key {
            named += 1;
            let known = gsan_config::keys::KEYS
                .iter()
                .any(|known| known.path() == key);
            assert!(known, "there is no key {key}");
        }
    }
    assert!(named >= 10, "{text}");
}

#[test]
fn a_whole_report_ends_with_what_was_checked() {
    let rule = |times, kernel: &str| Suppression {
        kind: Some("write-after-write".to_owned()),
        file: None,
        kernel: Some(kernel.to_owned()),
        reason: "benign: idempotent writes".to_owned(),
        times,
    };
    let report = Report {
        summary: Summary {
            processes: 2,
            launches: 12,
            schedules: 0,
            accesses: 1_048_576,
            covered_bytes: 131_072,
            uncovered_bytes: 2 << 20,
            not_kept: 7,
            seeds: [42, 7].into(),
        },
        races: vec![splitk()],
        possible_races: vec![PossibleRace {
            reason: "launch 12 of `splitk` contains fences".to_owned(),
            race: splitk(),
        }],
        faults: vec![fault(FaultKind::Trap, "the kernel executed a trap")],
        losses: losses([Loss::NoSlot]),
        suppressions: vec![rule(3, "histogram_*"), rule(0, "old_*")],
        ..Report::default()
    };
    let text = human::report(&report, &mut sources(), &Look::default());
    insta::assert_snapshot!(text);
}

#[test]
fn a_clean_report_says_that_nothing_was_found() {
    let report = Report {
        summary: Summary {
            processes: 1,
            launches: 1,
            schedules: 20,
            accesses: 1,
            covered_bytes: 1000,
            ..Summary::default()
        },
        ..Report::default()
    };
    let text = human::report(&report, &mut sources(), &Look::default());
    insta::assert_snapshot!(text);
}

/// What the last message, the summary, is headed.
fn headline(report: &Report) -> String {
    let text = human::report(report, &mut sources(), &Look::default());
    let line = text.lines().rfind(|line| line.starts_with("gsan: "));
    line.unwrap().to_owned()
}

#[test]
fn no_races_are_claimed_only_of_what_was_checked() {
    let unchecked = |file: &str| Unchecked {
        file: file.to_owned(),
        reason: "`wgmma` is not supported yet".to_owned(),
        place: None,
        help: None,
    };
    let report = |accesses, files: &[&str]| Report {
        summary: Summary {
            accesses,
            ..Summary::default()
        },
        unchecked: files.iter().map(|file| unchecked(file)).collect(),
        ..Report::default()
    };
    assert_eq!(headline(&report(1, &[])), "gsan: no races");
    assert_eq!(headline(&report(0, &[])), "gsan: nothing was checked");
    assert_eq!(
        headline(&report(0, &["a"])),
        "gsan: nothing was checked, 1 input not checked"
    );
    assert_eq!(
        headline(&report(1, &["a", "b"])),
        "gsan: no races in what was checked, 2 inputs not checked"
    );
    let mut found = report(1, &["a"]);
    found.races.push(splitk());
    assert_eq!(headline(&found), "gsan: 1 race, 1 input not checked");
    let mut over_limit = report(1, &[]);
    over_limit.summary.not_kept = 1;
    assert_eq!(headline(&over_limit), "gsan: no finding was kept");
}

#[test]
fn what_was_not_checked_is_said_with_its_place() {
    let at = |file: &str, line| {
        Some(Place {
            file: file.to_owned(),
            line,
            column: Some(3),
            ptx: None,
        })
    };
    let unchecked = |place| Unchecked {
        file: "kernels/new.ptx".to_owned(),
        reason: "`wgmma` is not supported yet".to_owned(),
        place,
        help: Some("use mma".to_owned()),
    };
    let report = Report {
        unchecked: vec![
            unchecked(at("kernels/new.ptx", 7)),
            unchecked(at("kernels/new.toml", 2)),
            unchecked(None),
        ],
        ..Report::default()
    };
    let text = human::report(&report, &mut sources(), &Look::default());
    insta::assert_snapshot!(text);
}

#[test]
fn a_suppression_without_a_reason_says_none() {
    let report = Report {
        suppressions: vec![Suppression {
            kind: None,
            file: None,
            kernel: Some("old_*".to_owned()),
            reason: String::new(),
            times: 1,
        }],
        ..Report::default()
    };
    let text = human::rest(&report, &Look::default());
    assert!(
        text.contains("= suppressed: 1 by kernel \"old_*\"\n"),
        "{text}"
    );
}

#[test]
fn thousands_of_races_are_all_shown() {
    let mut race = splitk();
    let report = Report {
        races: (0..3000)
            .map(|number| {
                race.range.address = Hex(number);
                race.clone()
            })
            .collect(),
        ..Report::default()
    };
    let text = human::report(&report, &mut sources(), &Look::default());
    assert_eq!(text.matches("error[read-after-write]").count(), 3000);
    assert!(
        text.contains("\ngsan: 3000 races\n"),
        "{}",
        &text[text.len() - 500..]
    );
}
