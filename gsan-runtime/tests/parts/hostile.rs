//! Parts that were cut off, overwritten, or written by somebody who means harm.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gsan_report::human::{self, Look};
use gsan_report::source::Sources;
use gsan_runtime::run::Run;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::device::{part, race, site};
use super::reading::drainer;

/// Values that make offsets, counts and texts nasty.
const NASTY: [u64; 12] = [
    0,
    1,
    7,
    255,
    4096,
    1 << 16,
    (1 << 20) + 1,
    1 << 31,
    u32::MAX as u64,
    1 << 40,
    1 << 63,
    u64::MAX,
];

/// Where the number of the process is in a part.
const PID: u64 = 24;

/// The parts of a process that finished and of one that is gone, with something of everything.
fn samples(directory: &Path) -> Vec<PathBuf> {
    for finished in [true, false] {
        let part = part(Some(directory), &[0, 3]);
        for number in 1..20 {
            site(&part, 0, number, "a/kernel.py", number);
            site(&part, 1, number, "b/kernel.py", number);
        }
        let path = part.path().unwrap().to_path_buf();
        let entry = |number: u16| {
            let mut entry = race(1 + number % 19, 1 + number % 7);
            entry.flags = number & 1;
            entry.kind = (number % 7) as u8;
            entry.later.device = (number % 5) as u8;
            entry
        };
        let drainer = drainer(part);
        for number in 0..60 {
            drainer.part().ring().append(&entry(number));
        }
        if finished {
            drainer.finish();
            continue;
        }
        let part = Arc::clone(drainer.part());
        drainer.drain();
        drop(drainer);
        for number in 0..60 {
            part.ring().append(&entry(number));
        }
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let nobody = u64::from(i32::MAX.unsigned_abs());
        file.write_all_at(&nobody.to_le_bytes(), PID).unwrap();
    }
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

/// Does with a directory all that `gsan run` does.
fn look(directory: &Path) {
    let mut run = Run::new(directory, 50, &[]);
    run.poll();
    run.status();
    run.settle();
    run.poll();
    run.endings();
    run.settle();
    let report = run.finish("test");
    let look = Look::default();
    human::report(&report, &mut Sources::new("/nonexistent"), &look);
    gsan_report::json::read(gsan_report::json::write(&report).as_bytes()).unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "damaged") {
            std::fs::rename(&path, path.with_extension("part")).unwrap();
        }
    }
}

/// Where a file is not zero, by words.
fn written(file: &File) -> Vec<u64> {
    let mut words = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    for start in (0..file.metadata().unwrap().len()).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, start).unwrap();
        let some = buffer.chunks_exact(8).enumerate();
        let some = some.filter(|(_, word)| word.iter().any(|&byte| byte != 0));
        words.extend(some.map(|(at, _)| start + 8 * at as u64));
    }
    words
}

#[test]
fn overwritten_parts_never_panic() {
    let seconds = std::env::var("GSAN_FUZZ_SECONDS").map_or(2, |text| text.parse().unwrap());
    let seed = if seconds == 2 { 1 } else { rand::random() };
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<(File, Vec<u64>)> = samples(directory.path())
        .iter()
        .map(|path| {
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.unwrap();
            let words = written(&file);
            (file, words)
        })
        .collect();
    look(directory.path());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tried = 0;
    while Instant::now() < end {
        let mut undo = Vec::new();
        for _ in 0..rng.random_range(1..8) {
            let (file, words) = files.choose(&mut rng).unwrap();
            let at = if rng.random() {
                8 * rng.random_range(0..200)
            } else {
                *words.choose(&mut rng).unwrap()
            };
            let mut before = [0; 8];
            file.read_exact_at(&mut before, at).unwrap();
            let word = u64::from_le_bytes(before);
            let new = match rng.random_range(0..4) {
                0 => *NASTY.choose(&mut rng).unwrap(),
                1 => word ^ 1 << rng.random_range(0..64),
                2 => word.wrapping_add(rng.random_range(0..64)).wrapping_sub(32),
                _ => NASTY.choose(&mut rng).unwrap() << 32 | word & u64::from(u32::MAX),
            };
            file.write_all_at(&new.to_le_bytes(), at).unwrap();
            undo.push((file, at, before));
        }
        look(directory.path());
        tried += 1;
        for (file, at, before) in undo.into_iter().rev() {
            file.write_all_at(&before, at).unwrap();
        }
    }
    println!("{tried} tried");
}

#[test]
fn parts_that_were_cut_off_are_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = part(Some(directory.path()), &[0])
        .path()
        .unwrap()
        .to_path_buf();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut bytes = file.metadata().unwrap().len();
    while bytes > 0 {
        bytes = bytes * 3 / 4;
        file.set_len(bytes).unwrap();
        let mut run = Run::new(directory.path(), 50, &[]);
        run.settle();
        let report = run.finish("test");
        assert_eq!(report.unchecked.len(), 1, "{bytes}");
        let reason = &report.unchecked[0].reason;
        let named = reason.contains("cut off") || reason.contains("no file of a process");
        assert!(named, "{reason}");
        std::fs::rename(path.with_extension("damaged"), &path).unwrap();
    }
}

#[test]
fn a_part_that_is_cut_off_while_it_is_read_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let [finished, gone] = &samples(directory.path())[..] else {
        panic!("two files")
    };
    let mut run = Run::new(directory.path(), 50, &[]);
    run.poll();
    for path in [finished, gone] {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(1 << 12).unwrap();
    }
    run.settle();
    let report = run.finish("test");
    let lost = |unchecked: &&gsan_report::model::Unchecked| unchecked.reason.contains("cut off");
    assert_eq!(report.unchecked.iter().filter(lost).count(), 2);
}

#[test]
fn other_files_are_no_parts() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    std::fs::write(inside("1-a.part"), "no part").unwrap();
    std::fs::write(inside("2-b.part"), [b'x'; 10_000]).unwrap();
    std::fs::write(inside("3-c.new"), "not yet").unwrap();
    std::os::unix::fs::symlink("/dev/zero", inside("4-d.part")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        inside("5-e.part"),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    let mut run = Run::new(directory.path(), 50, &[]);
    run.poll();
    run.settle();
    let report = run.finish("test");
    let names: Vec<&str> = report.unchecked.iter().map(|u| u.file.as_str()).collect();
    assert_eq!(names, ["process 1", "process 2"]);
}
