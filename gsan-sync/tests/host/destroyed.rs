//! Streams that are destroyed: their edges stay, and what they had goes to new ones.

use gsan_sync::{Edge, Error, Idle, Settings, StreamKind};
use gsan_vmm::backend::Backend;

use crate::capture::Capture;
use crate::gpu::Do::{Read, Write};
use crate::gpu::{GPU, Gpu, key, queue, settings, unfinished};

/// A machine on which two streams have banks of their own.
fn two_banks() -> Gpu {
    Gpu::with(Settings {
        most_banks: 2,
        ..settings()
    })
}

#[test]
fn a_stream_that_is_gone_is_not_known_until_it_is_opened_anew() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.forget_stream(a).unwrap();
    assert!(!gpu.ordering.knows_stream(a));
    let launch = gpu.ordering.begin_launch(a, &crate::graphs::INFO);
    assert_eq!(launch.err(), Some(Error::UnknownStream(a)));
    // There is nothing to do.
    gpu.ordering.forget_stream(a).unwrap();
    gpu.ordering.forget_stream(key(77)).unwrap();
    // As another kind of stream.
    gpu.open_as(GPU, 1, StreamKind::Blocking);
}

#[test]
fn a_new_stream_with_an_old_handle_is_not_ordered_after_it() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.forget_stream(a).unwrap();
    gpu.open(1);
    gpu.launch(a, &[Read(0)]);
    assert_eq!(gpu.races().len(), 1);
}

#[test]
fn edges_from_a_stream_that_is_gone_stay() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.record_event(7, a).unwrap();
    gpu.launch(a, &[Write(1)]);
    gpu.ordering.forget_stream(a).unwrap();
    gpu.launch(gpu.open(1), &[Write(2)]);
    assert_eq!(gpu.ordering.wait_event(b, 7), Ok(Edge::Added));
    gpu.launch(b, &[Read(0)]);
    assert!(gpu.races().is_empty());
    gpu.launch(b, &[Read(1), Read(2)]);
    assert_eq!(
        gpu.races().len(),
        2,
        "what came after the record is not known"
    );
}

#[test]
fn a_wait_for_the_device_knows_streams_that_are_gone() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.forget_stream(a).unwrap();
    gpu.ordering.synchronize_device(GPU).unwrap();
    gpu.launch(b, &[Read(0)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn the_default_stream_waits_for_blocking_streams_that_are_gone() {
    for first in [true, false] {
        for kind in [StreamKind::Blocking, StreamKind::NonBlocking] {
            let gpu = Gpu::new();
            let legacy = || gpu.open_as(GPU, 0, StreamKind::Legacy);
            if first {
                legacy();
            }
            let a = gpu.open_as(GPU, 1, kind);
            let others = [3, 4].map(|handle| gpu.open_as(GPU, handle, StreamKind::Blocking));
            gpu.launch(a, &[Write(0)]);
            gpu.launch(others[1], &[Write(1)]);
            gpu.ordering.forget_stream(a).unwrap();
            gpu.ordering.forget_stream(others[0]).unwrap();
            gpu.launch(legacy(), &[Read(0), Read(1)]);
            let ordered = kind == StreamKind::Blocking;
            assert_eq!(gpu.races().is_empty(), ordered, "{kind:?} {first}");
        }
    }
}

#[test]
fn memory_of_a_stream_that_is_gone_is_handed_out_after_its_work() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.memory_used(gpu.memory(), 64, a).unwrap();
    gpu.ordering.forget_stream(a).unwrap();
    gpu.open(1);
    gpu.ordering.memory_freed(gpu.memory()).unwrap();
    gpu.ordering
        .memory_handed_out(gpu.memory(), 64, Some(b))
        .unwrap();
    gpu.launch(b, &[Read(0)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn a_bank_goes_to_a_new_stream_when_the_old_ones_work_is_done_and_known() {
    let gpu = two_banks();
    let keep = gpu.open(9);
    gpu.launch(keep, &[]);
    for round in 0..200u32 {
        let handle = 10 + u64::from(round % 3);
        let stream = gpu.open(handle);
        gpu.launch(stream, &[Write(round)]);
        gpu.ordering.synchronize_stream(stream).unwrap();
        gpu.ordering.forget_stream(stream).unwrap();
    }
    let counts = gpu.ordering.counts();
    assert_eq!((counts.shared_banks, counts.unchecked), (0, 0));
    // Many streams, without a wait: when banks have run out, new ones follow old ones.
    for _ in 0..200 {
        let stream = gpu.open(30);
        gpu.launch(stream, &[Write(0)]);
        gpu.ordering.forget_stream(stream).unwrap();
    }
    let counts = gpu.ordering.counts();
    assert_eq!((counts.shared_banks, counts.unchecked), (0, 0));
    gpu.launch(keep, &[Read(0)]);
    assert!(!gpu.races().is_empty());
}

#[test]
fn a_stream_with_work_keeps_its_bank_though_it_is_gone() {
    let gpu = two_banks();
    gpu.backend.hold(true);
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.launch(a, &[Write(0)]);
    gpu.launch(b, &[Write(1)]);
    gpu.ordering.forget_stream(a).unwrap();
    assert_eq!(gpu.ordering.restart(), Ok(Idle::NotYet));
    gpu.open(3);
    assert_eq!(gpu.ordering.counts().shared_banks, 1);
    gpu.backend.run_all();
    gpu.open(4);
    assert_eq!(gpu.ordering.counts().shared_banks, 1);
    assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
}

#[test]
fn a_restart_forgets_streams_that_are_gone() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    for _ in 0..3 {
        gpu.launch(a, &[Write(0)]);
        gpu.ordering.record_event(1, a).unwrap();
        gpu.ordering.forget_stream(a).unwrap();
        assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
        // Those with what the last round did.
        gpu.races();
        gpu.launch(b, &[Write(0)]);
        assert!(gpu.races().is_empty());
        gpu.open(1);
        gpu.launch(a, &[Read(0)]);
        assert_eq!(gpu.races().len(), 1);
    }
}

#[test]
fn the_end_of_a_stream_is_refused_while_it_launches_or_is_captured() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let launch = gpu.ordering.begin_launch(a, &crate::graphs::INFO).unwrap();
    let unfinished = Err(unfinished(a));
    assert_eq!(gpu.ordering.forget_stream(a), unfinished);
    drop(launch);
    let capture = Capture::begin(&gpu, 1);
    let refused = Error::Captured {
        key: a,
        what: "its end",
    };
    assert_eq!(gpu.ordering.forget_stream(a), Err(refused));
    capture.end();
    gpu.ordering.forget_stream(a).unwrap();
    gpu.backend.fence(GPU, queue(1)).unwrap();
}

#[test]
fn threads_open_and_destroy_streams_beside_the_default_stream() {
    let gpu = Gpu::new();
    let legacy = gpu.open_as(GPU, 0, StreamKind::Legacy);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let gpu = &gpu;
            scope.spawn(move || {
                for round in 0..200 {
                    let handle = 10 + thread;
                    let kind = match round % 2 {
                        0 => StreamKind::Blocking,
                        _ => StreamKind::NonBlocking,
                    };
                    let stream = gpu.open_as(GPU, handle, kind);
                    gpu.launch(stream, &[Write(thread as u32)]);
                    gpu.ordering.synchronize_stream(stream).unwrap();
                    gpu.ordering.forget_stream(stream).unwrap();
                    if round % 10 == 0 {
                        gpu.launch(legacy, &[]);
                    }
                }
            });
        }
    });
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().unchecked, 0);
}
