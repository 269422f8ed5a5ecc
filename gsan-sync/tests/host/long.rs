//! Long runs: memory stays flat, also over restarts.

use gsan_sync::{Idle, Settings};

use crate::gpu::Do::{Read, Write};
use crate::gpu::{GPU, Gpu, settings};

/// Memory of this process in KiB.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    4 * pages
}

#[test]
fn memory_stays_flat_over_launches_events_and_restarts() {
    let long = std::env::var_os("GSAN_LONG").is_some();
    let launches = if long { 10_000_000u64 } else { 100_000 };
    let gpu = Gpu::with(Settings {
        launches_between_looks: launches / 20,
        ..settings()
    });
    let streams = [gpu.open(1), gpu.open(2)];
    let mut early = 0;
    let mut restarts = 0;
    for round in 0..launches / 2 {
        for (at, &stream) in streams.iter().enumerate() {
            gpu.launch(stream, &[Write(at as u32), Read(2)]);
            gpu.ordering
                .record_event(round % 50 * 2 + at as u64, stream)
                .unwrap();
        }
        if round % 16 == 0 {
            let event = round % 50 * 2;
            gpu.ordering.wait_event(streams[1], event).unwrap();
            gpu.launch(streams[1], &[Read(0)]);
            gpu.ordering.wait_stream(streams[0], streams[1]).unwrap();
        }
        if round % (launches / 20) == 0 {
            gpu.wear(9_000_000);
        }
        if round % 1000 == 0 && gpu.ordering.device_is_idle(GPU) == Ok(Idle::Restarted) {
            restarts += 1;
        }
        if round == launches / 10 {
            early = resident();
        }
    }
    let late = resident();
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().unchecked, 0);
    assert!(restarts >= 8, "{restarts} restarts");
    assert!(
        late < early + 4096,
        "{early} KiB after a fifth, {late} KiB at the end"
    );
}
