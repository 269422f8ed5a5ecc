//! Long runs: memory stays flat, also over restarts.

use gsan_sync::{Idle, Settings, StreamKey, StreamKind};

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

#[test]
fn memory_stays_flat_over_calls_without_launches() {
    type Call = fn(&Gpu, [StreamKey; 3], u64);
    let calls: [(&str, Call); 5] = [
        (
            "memory that is handed out again",
            |gpu, [a, b, _], round| {
                let address = 0x1000 * (1 + round % 7);
                let ordering = &gpu.ordering;
                ordering.memory_handed_out(address, 64, Some(a)).unwrap();
                ordering.memory_used(address, 64, b).unwrap();
                ordering.memory_freed(address).unwrap();
            },
        ),
        ("events", |gpu, [a, b, _], round| {
            gpu.ordering.record_event(round % 5, a).unwrap();
            gpu.ordering.wait_event(b, round % 5).unwrap();
            gpu.ordering.wait_event(a, (round + 1) % 5).unwrap();
        }),
        ("streams that wait", |gpu, [a, b, _], _| {
            gpu.ordering.wait_stream(a, b).unwrap();
            gpu.ordering.wait_stream(b, a).unwrap();
        }),
        ("the legacy default stream", |gpu, [_, b, default], _| {
            gpu.ordering.record_event(1, default).unwrap();
            gpu.ordering.wait_event(b, 1).unwrap();
            gpu.ordering.record_event(2, b).unwrap();
            gpu.ordering.wait_event(default, 2).unwrap();
        }),
        ("the host", |gpu, [a, b, _], _| {
            gpu.ordering.synchronize_stream(a).unwrap();
            gpu.ordering.wait_stream(b, a).unwrap();
            gpu.ordering.synchronize_device(GPU).unwrap();
        }),
    ];
    for (name, call) in calls {
        let gpu = Gpu::new();
        let default = gpu.open_as(GPU, 0, StreamKind::Legacy);
        let (a, b) = (gpu.open(1), gpu.open_as(GPU, 2, StreamKind::Blocking));
        for stream in [a, b, default] {
            gpu.launch(stream, &[Read(0)]);
        }
        let rounds = 200_000;
        let mut early = 0;
        for round in 0..rounds {
            call(&gpu, [a, b, default], round);
            if round == rounds / 5 {
                early = resident();
            }
        }
        let late = resident();
        assert!(
            late < early + 512,
            "{name}: {early} KiB after a fifth, {late} KiB at the end"
        );
        // The edges are there.
        gpu.launch(a, &[Write(1)]);
        gpu.ordering.wait_stream(b, a).unwrap();
        for round in 0..20 {
            call(&gpu, [a, b, default], round);
        }
        gpu.launch(b, &[Read(1)]);
        assert!(gpu.races().is_empty(), "{name}");
    }
}
