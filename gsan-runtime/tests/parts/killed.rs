//! Processes that die while they find races: nothing that was in the ring is lost.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gsan_report::model::Report;
use gsan_runtime::drain::Drainer;
use gsan_runtime::part::PartReader;
use gsan_runtime::run::Run;
use rand::Rng;

use super::device::{findings, part, race, site};

const DIRECTORY: &str = "GSAN_TEST_DIRECTORY";
const KIND: &str = "GSAN_TEST_DEATH";
/// Sites of either side, so that there are 100 * 100 distinct races.
const SITES: u16 = 100;

/// Not a test, but the program that dies.
#[test]
fn program() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let death = std::env::var(KIND).unwrap();
    let part = Arc::new(part(Some(Path::new(&directory)), &[0]));
    for number in 1..=2 * SITES {
        site(&part, 0, number.into(), "kernel.py", number.into());
    }
    let drainer = Drainer::start(
        Arc::clone(&part),
        Arc::new(findings()),
        Box::new(|| None),
        None,
    )
    .unwrap();
    let mut number = 0u64;
    let mut out = std::io::stdout();
    loop {
        let pair = (number % 10_000) as u16;
        if part
            .ring()
            .append(&race(1 + pair / SITES, 1 + SITES + pair % SITES))
        {
            number += 1;
        }
        if number == 5000 {
            // The parent may kill from here on.
            writeln!(out, "five thousand").unwrap();
            out.flush().unwrap();
            match death.as_str() {
                "abort" => std::process::abort(),
                // SAFETY: nothing is needed any more.
                "_exit" => unsafe { libc::_exit(7) },
                "fault" => {
                    let nowhere = std::ptr::without_provenance_mut::<u8>(64);
                    // SAFETY: it is not safe, which is the point.
                    unsafe { nowhere.write_volatile(1) }
                }
                _ => {}
            }
        }
        if number > 5000 && number.is_multiple_of(10) {
            // Others need the processor, too.
            std::thread::sleep(Duration::from_micros(20));
        }
        if number.is_multiple_of(1000) {
            drainer.drain();
        }
    }
}

fn start(directory: &Path, death: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::program", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(KIND, death)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_until_half(child: &mut Child) {
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(
        out.lines()
            .map_while(Result::ok)
            .any(|line| line.contains("five thousand"))
    );
}

/// The report of the processes that died in `directory`, and how many races they had told.
fn report(directory: &Path) -> (Report, u64) {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| PartReader::open(&entry.unwrap().path()).unwrap().entries())
        .sum();
    let mut run = Run::new(directory, 100_000, &[]);
    run.settle();
    // Looking again changes nothing.
    run.settle();
    (run.finish("test"), entries)
}

/// Everything that was in the ring is there, and no more; an entry that was being written may be
/// lost, which is said.
fn assert_complete(directory: &Path) {
    let (report, entries) = report(directory);
    let told: u64 = report.races.iter().map(|race| race.times).sum();
    let lost = report.unchecked.len() as u64;
    assert_eq!(told + lost, entries, "{:?}", report.unchecked);
    assert!(report.races.len() >= 5000 - lost as usize);
    for race in &report.races {
        for side in [&race.earlier, &race.later] {
            assert_eq!(side.who.kernel.as_deref(), Some("splitk"));
            assert_eq!(side.place.as_ref().unwrap().file, "kernel.py");
        }
        assert_eq!(race.range.allocation.as_ref().unwrap().offset, 4096);
    }
}

#[test]
fn nothing_is_lost_however_a_process_ends() {
    for death in ["abort", "_exit", "fault"] {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(directory.path(), death);
        wait_until_half(&mut child);
        let status = child.wait().unwrap();
        assert!(!status.success(), "{death}");
        assert_complete(directory.path());
    }
}

#[test]
fn nothing_is_lost_at_whatever_instruction_a_process_is_killed() {
    let times = if std::env::var_os("GSAN_LONG").is_some() {
        300
    } else {
        10
    };
    for _ in 0..times {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(directory.path(), "kill");
        wait_until_half(&mut child);
        std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_complete(directory.path());
    }
}

#[test]
fn nothing_is_lost_of_eight_processes_that_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..8).map(|_| start(directory.path(), "kill")).collect();
    // As `gsan run` does meanwhile.
    let mut run = Run::new(directory.path(), 100_000, &[]);
    for child in &mut children {
        wait_until_half(child);
        run.poll();
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
        run.poll();
    }
    run.settle();
    let (report, entries) = report(directory.path());
    let sum = |report: &Report| report.races.iter().map(|race| race.times).sum::<u64>();
    let followed = run.finish("test");
    assert_eq!(sum(&followed), sum(&report));
    assert_eq!(followed.races.len(), report.races.len());
    assert_eq!(report.summary.processes, 8);
    let lost = report.unchecked.len() as u64;
    assert_eq!(sum(&report) + lost, entries);
}
