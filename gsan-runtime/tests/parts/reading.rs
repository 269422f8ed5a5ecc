//! What is told of a race, by the process itself and by `gsan run`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use expect_test::expect;
use gsan_core::layout::{RaceEntry, race_codes};
use gsan_core::loss::Loss;
use gsan_report::human::{self, Look};
use gsan_report::source::Sources;
use gsan_runtime::drain::Drainer;
use gsan_runtime::findings::Findings;
use gsan_runtime::part::{Checked, Part};
use gsan_runtime::run::Run;
use gsan_runtime::telling::News;

use super::device::{findings, launch, part, race, read, site, write};

pub(crate) fn drainer(part: Part) -> Drainer {
    let checked = Checked {
        launches: 2,
        accesses: 1000,
        covered_bytes: 131_072,
        seed: 7,
        ..Checked::default()
    };
    let ask = Box::new(move || Some(checked));
    Drainer::start(Arc::new(part), Arc::new(findings()), ask, None).unwrap()
}

fn text(report: &gsan_report::model::Report) -> String {
    let mut sources = Sources::new("/nonexistent");
    sources.insert("splitk.py", "import a\npart = 1\nacc += part\n");
    human::report(report, &mut sources, &Look::default())
}

#[test]
fn a_race_is_told_with_both_sides_and_all_names() {
    let part = part(None, &[0]);
    site(&part, 0, 1, "splitk.py", 2);
    site(&part, 0, 2, "splitk.py", 3);
    assert!(part.ring().append(&race(1, 2)));
    assert!(part.ring().append(&RaceEntry {
        repeats: 6,
        ..race(1, 2)
    }));
    let report = drainer(part).report();
    expect![[r#"
        error[read-after-write]: data race on 4 bytes at 0x820000001000
         --> splitk.py:3
          |
        1 | import a
        2 | part = 1
        3 | acc += part
          | ^^^ read by CTA (3, 1, 0) of `splitk`, launch 12, GPU 0, stream 0x77
          |
         ::: splitk.py:2
          |
        2 | part = 1
          | --- earlier write by CTA (1, 0, 0) of `splitk`, launch 12, GPU 0
          |
          = memory: byte 4096 of a 131072-byte allocation
          = seen: 8 times between these two lines

        gsan: 1 race
         |
         = checked: 1000 accesses in 2 launches
         = memory: 128 KiB covered
         = seed: 7

    "#]]
    .assert_eq(&text(&report));
}

#[test]
fn a_process_that_says_nothing_more_is_read_by_others() {
    let directory = tempfile::tempdir().unwrap();
    let part = part(Some(directory.path()), &[0]);
    site(&part, 0, 1, "splitk.py", 2);
    site(&part, 0, 2, "splitk.py", 3);
    let drainer = drainer(part);
    drainer.part().ring().append(&race(1, 2));
    drainer.finish();
    drainer.part().ring().append(&race(1, 2));
    drainer.drain();
    let mut run = Run::new(directory.path(), 10, &[]);
    let news = run.poll();
    assert!(matches!(news[..], [News::Race(_)]), "{news:?}");
    run.settle();
    // It runs, which is nothing to complain of once it has finished.
    let own = drainer.report();
    let report = run.finish("test");
    assert_eq!(report.races, own.races);
    assert_eq!(report.races[0].times, 2);
    assert_eq!(report.summary, own.summary);
}

/// Programs close descriptors that are not theirs, as daemons do, and open files of their own in their place.
#[test]
fn races_are_told_without_a_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let part = part(Some(directory.path()), &[0]);
    site(&part, 0, 1, "splitk.py", 2);
    site(&part, 0, 2, "splitk.py", 3);
    let drainer = drainer(part);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let kept: Vec<_> = open
        .filter(|file| file.starts_with(directory.path()))
        .collect();
    assert_eq!(kept, Vec::<std::path::PathBuf>::new());
    drainer.part().ring().append(&race(1, 2));
    assert_eq!(drainer.report().races.len(), 1);
    let mut run = Run::new(directory.path(), 10, &[]);
    run.settle();
    assert_eq!(run.finish("test").races, drainer.report().races);
}

#[test]
fn races_with_opaque_launches_are_possible_ones() {
    let part = part(None, &[0]);
    let mut entry = race(1, 2);
    entry.flags = race_codes::POSSIBLE as u16;
    entry.earlier.launch = 13;
    part.ring().append(&entry);
    let report = drainer(part).report();
    assert_eq!(report.races, []);
    let [possible] = &report.possible_races[..] else {
        panic!("{report:?}")
    };
    assert_eq!(
        possible.reason,
        "launch 13 of `barrier` contains `fence.acq_rel`"
    );
}

#[test]
fn what_is_forgotten_is_said_to_be_unknown() {
    let part = part(None, &[0]);
    let mut entry = race(1, 2);
    entry.earlier.flags = race_codes::FORGOTTEN as u8;
    entry.later.launch = 99;
    entry.address = 0x10;
    part.ring().append(&entry);
    let report = drainer(part).report();
    expect![[r#"
        error[read-after-write]: data race on 4 bytes at 0x10
         |
         = later: read by CTA (7, 0, 0), launch 99, GPU 0, in a line that is not known
         = earlier: write by a forgotten CTA, GPU 0, in a line that is not known

        gsan: 1 race
         |
         = checked: 1000 accesses in 2 launches
         = memory: 128 KiB covered
         = seed: 7

    "#]]
    .assert_eq(&text(&report));
}

#[test]
fn wrong_uses_of_write_once_memory_are_faults() {
    let part = part(None, &[0]);
    site(&part, 0, 1, "splitk.py", 2);
    let codes = [
        race_codes::WRITTEN_TWICE,
        race_codes::READ_UNWRITTEN,
        race_codes::WRITE_ONCE_ATOMIC,
    ];
    for code in codes {
        let mut entry = race(1, 2);
        entry.kind = code as u8;
        part.ring().append(&entry);
    }
    let report = drainer(part).report();
    let messages: Vec<&str> = report.faults.iter().map(|f| f.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Write-once memory written more than once",
            "Read of write-once memory before its first write",
            "Atomic operations on write-once memory are not supported",
        ]
    );
    assert_eq!(
        report.faults[0].notes,
        ["first written by CTA (1, 0, 0) of `splitk`, launch 12 at splitk.py:2"]
    );
}

#[test]
fn the_side_of_another_process_gets_its_names_from_there() {
    let directory = tempfile::tempdir().unwrap();
    let ours = part(Some(directory.path()), &[0]);
    let theirs = part(Some(directory.path()), &[1]);
    site(&ours, 0, 2, "splitk.py", 3);
    site(&theirs, 0, 1, "their.py", 5);
    theirs.name_kernel(3, "sender", None);
    launch(&theirs, 0, 40, 3);
    let mut entry = race(1, 2);
    entry.earlier.device = 1;
    entry.earlier.launch = 40;
    ours.ring().append(&entry);
    let (ours, theirs) = (drainer(ours), drainer(theirs));
    ours.finish();
    theirs.finish();
    let mut run = Run::new(directory.path(), 10, &[]);
    run.settle();
    let report = run.finish("test");
    let earlier = &report.races[0].earlier;
    assert_eq!(earlier.who.kernel.as_deref(), Some("sender"));
    assert_eq!(earlier.who.device, Some(1));
    assert_eq!(earlier.place.as_ref().unwrap().file, "their.py");
    // This test is one process, with two parts.
    assert_eq!(report.summary.processes, 1);

    // One that came later did not take part.
    let _other = part(Some(directory.path()), &[1]);
    let mut run = Run::new(directory.path(), 10, &[]);
    run.settle();
    assert!(run.finish("test").races[0].earlier.place.is_some());
}

#[test]
fn of_two_processes_with_one_rank_neither_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let ours = part(Some(directory.path()), &[0]);
    for file in ["one.py", "other.py"] {
        let theirs = part(Some(directory.path()), &[1]);
        site(&theirs, 0, 1, file, 5);
    }
    let mut entry = race(1, 2);
    entry.earlier.device = 1;
    ours.ring().append(&entry);
    let ours = drainer(ours);
    ours.drain();
    let mut run = Run::new(directory.path(), 10, &[]);
    run.settle();
    let earlier = &run.finish("test").races[0].earlier;
    assert_eq!((&earlier.who.kernel, &earlier.place), (&None, &None));
    assert_eq!(earlier.who.launch, Some(12));
}

/// A part with three lines, and who takes in what is found in it.
fn watched() -> (Arc<Findings>, Arc<Part>, Drainer) {
    let (findings, part) = (Arc::new(findings()), Arc::new(part(None, &[0])));
    for line in 1..=3 {
        site(&part, 0, line, "a.py", line);
    }
    let ask = Box::new(|| None);
    let drainer = Drainer::start(Arc::clone(&part), Arc::clone(&findings), ask, None).unwrap();
    (findings, part, drainer)
}

#[test]
fn new_findings_are_told_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (findings, part, drainer) = watched();
    let within = Arc::clone(&findings);
    let seen = Arc::clone(&told);
    findings.on_new(Some(Arc::new(move |news: &News| {
        // Findings can be asked for from within.
        seen.lock().unwrap().push((news.clone(), within.count()));
    })));
    for later in [2, 2, 3, 2, 3] {
        part.ring().append(&race(1, later));
        drainer.drain();
    }
    drainer.report();
    assert_eq!(told.lock().unwrap().len(), 2);
    assert_eq!(findings.count(), (2, 0));
    drainer.forget_races();
    assert_eq!(findings.count(), (0, 0));
    // Known to the part, and yet new after that.
    part.ring().append(&race(1, 3));
    drainer.drain();
    assert_eq!((told.lock().unwrap().len(), findings.count()), (3, (1, 0)));
}

#[test]
fn a_finding_that_can_be_seen_is_told_even_if_the_callback_goes_then() {
    let (findings, part, drainer) = watched();
    for round in 0..500 {
        let told = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&told);
        findings.on_new(Some(Arc::new(move |_: &News| {
            seen.fetch_add(1, Relaxed);
        })));
        part.ring().append(&race(1, 2));
        while findings.count() == (0, 0) {
            std::thread::yield_now();
        }
        findings.on_new(None);
        assert_eq!(told.load(Relaxed), 1, "round {round}");
        drainer.forget_races();
    }
}

#[test]
fn a_callback_may_take_itself_away() {
    let (findings, part, drainer) = watched();
    let within = Arc::clone(&findings);
    let (says, hears) = std::sync::mpsc::channel();
    findings.on_new(Some(Arc::new(move |_: &News| {
        let start = Instant::now();
        within.on_new(None);
        says.send(start.elapsed()).unwrap();
    })));
    part.ring().append(&race(1, 2));
    let took = hears.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(
        took < Duration::from_millis(500),
        "it waits for itself: {took:?}"
    );
    drop(drainer);
}

/// The sides of the only race of a report, as text, and how often it was seen.
fn only(report: &gsan_report::model::Report) -> (String, u64) {
    let [race] = &report.races[..] else {
        panic!("{report:?}")
    };
    let side = |side: &gsan_report::model::Side| {
        let who = &side.who;
        let [x, y, z] = who.cta.unwrap();
        format!("CTA ({x}, {y}, {z}) of launch {}", who.launch.unwrap())
    };
    let (earlier, later) = (side(&race.earlier), side(&race.later));
    let address = race.range.address.0;
    (format!("{earlier}, {later} at {address:#x}"), race.times)
}

#[test]
fn a_race_that_was_forgotten_is_as_new() {
    let directory = tempfile::tempdir().unwrap();
    let part = part(Some(directory.path()), &[0]);
    site(&part, 0, 1, "a.py", 1);
    site(&part, 0, 2, "a.py", 2);
    let drainer = drainer(part);
    let ring = drainer.part().ring();
    ring.append(&race(1, 2));
    drainer.drain();
    // Seen and not asked for.
    ring.append(&race(1, 2));
    drainer.forget_races();
    assert_eq!(drainer.report().races, []);
    let mut again = race(1, 2);
    again.address += 64;
    (again.earlier.cta, again.later.cta) = (2, 3);
    for (launch, times) in [(14, 1), (15, 2), (16, 3)] {
        self::launch(drainer.part(), 0, launch, 1);
        (again.earlier.launch, again.later.launch) = (launch, launch);
        for _ in 0..times {
            ring.append(&again);
        }
        let expected = format!(
            "CTA (2, 0, 0) of launch {launch}, CTA (3, 0, 0) of launch {launch} at 0x820000001040"
        );
        assert_eq!(only(&drainer.report()), (expected, times));
        drainer.forget_races();
        assert_eq!(drainer.report().races, []);
    }
    drainer.finish();
    // A run forgets none: there it is one race.
    let mut run = Run::new(directory.path(), 10, &[]);
    run.settle();
    let first = "CTA (1, 0, 0) of launch 12, CTA (3, 1, 0) of launch 12 at 0x820000001000";
    assert_eq!(only(&run.finish("test")), (first.to_owned(), 2 + 1 + 2 + 3));
}

/// A program may forget as often as it likes.
#[test]
fn races_are_found_again_when_there_is_no_room_to_write_them_down_anew() {
    let part = part(None, &[0]);
    site(&part, 0, 1, "a.py", 1);
    site(&part, 0, 2, "a.py", 2);
    let drainer = drainer(part);
    // There is room for 262,144.
    for _ in 0..300_000 {
        drainer.part().ring().append(&race(1, 2));
        drainer.forget_races();
    }
    site(drainer.part(), 0, 3, "a.py", 3);
    for later in [2, 3] {
        drainer.part().ring().append(&race(1, later));
    }
    let report = drainer.report();
    assert_eq!((report.races.len(), report.summary.not_kept), (2, 0));
}

#[test]
fn names_that_are_numbered_anew_do_not_mix() {
    let part = part(None, &[0]);
    site(&part, 0, 1, "old.py", 1);
    let drainer = drainer(part);
    drainer.part().ring().append(&race(1, 1));
    drainer.forget_sites();
    site(drainer.part(), 0, 1, "new.py", 1);
    drainer.part().ring().append(&race(1, 1));
    let report = drainer.report();
    let files: Vec<&str> = report
        .races
        .iter()
        .map(|race| race.later.place.as_ref().unwrap().file.as_str())
        .collect();
    assert_eq!(files, ["old.py", "new.py"]);
}

#[test]
fn a_race_whose_line_becomes_known_later_stays_one() {
    let directory = tempfile::tempdir().unwrap();
    let part = part(Some(directory.path()), &[0]);
    site(&part, 0, 1, "a.py", 1);
    let drainer = drainer(part);
    drainer.part().ring().append(&race(1, 2));
    drainer.drain();
    let mut run = Run::new(directory.path(), 10, &[]);
    assert_eq!(run.poll().len(), 1);
    site(drainer.part(), 0, 2, "a.py", 2);
    drainer.part().ring().append(&race(1, 2));
    drainer.drain();
    run.settle();
    for report in [drainer.report(), run.finish("test")] {
        let times: Vec<u64> = report.races.iter().map(|race| race.times).collect();
        assert_eq!(times, [2]);
    }
}

#[test]
fn a_line_that_is_about_to_be_known_is_waited_for() {
    let part = part(None, &[0]);
    site(&part, 0, 1, "a.py", 1);
    let drainer = drainer(part);
    let part = Arc::clone(drainer.part());
    let copy = std::thread::spawn(move || {
        part.ring().append(&race(1, 2));
        std::thread::sleep(std::time::Duration::from_micros(500));
        site(&part, 0, 2, "a.py", 2);
    });
    drainer.drain();
    copy.join().unwrap();
    let report = drainer.report();
    assert_eq!(report.races[0].later.place.as_ref().unwrap().line, 2);
}

#[test]
fn a_session_that_ended_is_counted_once() {
    let part = Arc::new(part(None, &[0]));
    let findings = Arc::new(findings());
    let checked = Checked {
        launches: 5,
        ..Checked::default()
    };
    let start = || {
        let ask = Box::new(move || Some(checked));
        Drainer::start(Arc::clone(&part), Arc::clone(&findings), ask, None).unwrap()
    };
    let first = start();
    part.ring().append(&race(1, 2));
    first.close();
    first.close();
    assert_eq!(first.report().summary.launches, 5);
    let report = findings.report();
    assert_eq!((report.summary.launches, report.races.len()), (5, 1));
}

#[test]
fn races_that_found_the_ring_full_are_a_loss() {
    let part = part(None, &[0]);
    let capacity = part.ring().capacity();
    for _ in 0..capacity + 3 {
        part.ring().append(&race(1, 2));
    }
    let report = drainer(part).report();
    assert_eq!(report.races[0].times, capacity);
    let [loss] = &report.losses[..] else {
        panic!("{:?}", report.losses)
    };
    assert_eq!((loss.loss.0, loss.times), (Loss::RaceRingFull, 3));
}

#[test]
fn memory_that_was_freed_is_known_until_there_is_newer() {
    let part = part(None, &[0]);
    (1..4).for_each(|number| site(&part, 0, number, "a.py", number));
    part.freed(super::device::MEMORY);
    part.ring().append(&race(1, 2));
    part.allocated(0x10_0000, 64);
    let mut inside = race(1, 3);
    inside.address = 0x10_0008;
    part.ring().append(&inside);
    let report = drainer(part).report();
    let found: Vec<(u64, u64)> = report
        .races
        .iter()
        .map(|race| race.range.allocation.as_ref().unwrap())
        .map(|allocation| (allocation.bytes, allocation.offset))
        .collect();
    assert_eq!(found, [(131_072, 4096), (64, 8)]);
}

#[test]
fn atomics_say_their_scope() {
    let part = part(None, &[0]);
    let mut entry = race(1, 2);
    entry.earlier = gsan_core::layout::RaceSide {
        action: 3,
        scope: 1,
        ..write(1, 0)
    };
    entry.later = gsan_core::layout::RaceSide {
        scope: 2,
        ..read(2, 5)
    };
    part.ring().append(&entry);
    let report = drainer(part).report();
    let text = text(&report);
    assert!(text.contains("atomic read (relaxed, gpu scope)"), "{text}");
    assert!(
        text.contains("atomic read-modify-write (relaxed, cta scope)"),
        "{text}"
    );
}
