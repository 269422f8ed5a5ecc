//! How fast races are taken out of the ring, and what it costs when there are none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gsan_core::launch_log::LaunchRecord;
use gsan_runtime::drain::Drainer;
use rustix::time::ClockId;

use super::device::{findings, part, race};

/// Processor time, of this process with all its threads or of this thread: others may use the machine.
fn spent(of: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_million_entries_a_second_are_drained() {
    const TOTAL: u32 = 1_000_000;
    let part = Arc::new(part(None, &[0]));
    for number in 1..40 {
        super::device::site(&part, 0, number, "kernel.py", number);
    }
    let drainer = Drainer::start(
        Arc::clone(&part),
        Arc::new(findings()),
        Box::new(|| None),
        None,
    )
    .unwrap();
    // Launches of many kernels, as a long run has them.
    for number in 0..1 << 16 {
        part.launches(0).unwrap().enter(&LaunchRecord {
            number,
            kernel: 1 + number % 64,
            ..LaunchRecord::default()
        });
    }
    let mut draining = Duration::ZERO;
    let mut entries = 0;
    let mut made = 0;
    while made < TOTAL {
        for _ in 0..part.ring().capacity() / 2 {
            let mut entry = race((made % 40) as u16, (made / 40 % 10) as u16);
            entry.earlier.launch = made.wrapping_mul(7919) % (1 << 16);
            entry.later.launch = entry.earlier.launch / 64 * 64 + 5;
            assert!(part.ring().append(&entry));
            made += 1;
        }
        let before = spent(ClockId::ThreadCPUTime);
        // The thread may be at it already; then this waits for it.
        entries += drainer.drain().entries;
        draining += spent(ClockId::ThreadCPUTime) - before;
    }
    let rate = entries as f64 / draining.as_secs_f64();
    let report = drainer.report();
    let races: u64 = report.races.iter().map(|race| race.times).sum();
    println!("{rate:.0} entries a second of processor time ({entries} of {made})");
    assert_eq!(races, u64::from(made));
    // A debug build on a busy machine; a release build is to be looked at by itself.
    assert!(rate > 200_000.0, "{rate}");
}

#[test]
fn an_idle_ring_costs_next_to_nothing() {
    let seconds = if std::env::var_os("GSAN_LONG").is_some() {
        10
    } else {
        2
    };
    let part = Arc::new(part(None, &[0]));
    let drainer = Drainer::start(part, Arc::new(findings()), Box::new(|| None), None).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), spent(ClockId::ProcessCPUTime));
    std::thread::sleep(Duration::from_secs(seconds));
    let spent = spent(ClockId::ProcessCPUTime) - before;
    let share = spent.as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:.4} % of a core", 100.0 * share);
    assert!(share < 0.005, "{share}");
    drop(drainer);
}
