//! Streams and events: each edge, and its opposite.

use gsan_sync::{Edge, Error, LaunchInfo, StreamKind};
use gsan_vmm::backend::host::Stepped;

use crate::gpu::Do::{Add, Read, Wait, Write};
use crate::gpu::{GPU, Gpu, key, unfinished};

/// Two non-blocking streams.
fn two_streams() -> (Gpu, gsan_sync::StreamKey, gsan_sync::StreamKey) {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    (gpu, a, b)
}

fn info() -> LaunchInfo {
    LaunchInfo {
        grid: [1, 1, 1],
        ..LaunchInfo::default()
    }
}

#[test]
fn launches_on_one_stream_are_ordered() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    for _ in 0..100 {
        gpu.launch(a, &[Write(0), Read(1), Write(2)]);
        gpu.launch(a, &[Read(0), Write(1), Read(2)]);
    }
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().joins, 0);
}

#[test]
fn launches_on_two_streams_are_not() {
    let (gpu, a, b) = two_streams();
    let first = gpu.launch(a, &[Write(0)]);
    let second = gpu.launch(b, &[Read(0)]);
    let races: Vec<_> = gpu.races().into_iter().collect();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].earlier, races[0].later), (first, second));
}

#[test]
fn a_wait_for_an_event_orders_what_was_recorded_and_nothing_later() {
    for early in [true, false] {
        let (gpu, a, b) = two_streams();
        gpu.launch(a, &[Write(0)]);
        if early {
            gpu.ordering.record_event(7, a).unwrap();
        }
        gpu.launch(a, &[Write(1)]);
        if !early {
            gpu.ordering.record_event(7, a).unwrap();
        }
        assert_eq!(gpu.ordering.wait_event(b, 7), Ok(Edge::Added));
        gpu.launch(b, &[Read(0), Read(1)]);
        let races = gpu.races();
        assert_eq!(races.len(), usize::from(early), "{early}");
        assert!(races.iter().all(|race| race.granule == 1));
    }
}

#[test]
fn recording_again_does_not_change_what_an_earlier_waiter_saw() {
    let (gpu, a, b) = two_streams();
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.record_event(7, a).unwrap();
    gpu.ordering.wait_event(b, 7).unwrap();
    gpu.launch(a, &[Write(1)]);
    gpu.ordering.record_event(7, a).unwrap();
    gpu.launch(b, &[Read(0), Read(1)]);
    assert_eq!(gpu.races().len(), 1);
    gpu.ordering.wait_event(b, 7).unwrap();
    gpu.launch(b, &[Write(0), Write(1)]);
    assert_eq!(gpu.races().len(), 0);
}

#[test]
fn an_event_carries_on_what_its_stream_waited_for() {
    let (gpu, a, b) = two_streams();
    let c = gpu.open(3);
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.record_event(1, a).unwrap();
    gpu.ordering.wait_event(b, 1).unwrap();
    // Nothing is launched on `b` in between.
    gpu.ordering.record_event(2, b).unwrap();
    gpu.ordering.wait_event(c, 2).unwrap();
    gpu.launch(c, &[Read(0)]);
    assert!(gpu.races().is_empty());
    gpu.launch(b, &[Write(0)]);
    assert_eq!(gpu.races().len(), 1, "b is not ordered after c");
}

#[test]
fn rows_that_an_event_remembers_do_not_grow_with_later_launches() {
    let (gpu, a, b) = two_streams();
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.record_event(1, a).unwrap();
    for granule in 1..40 {
        gpu.launch(a, &[Write(granule)]);
    }
    gpu.ordering.wait_event(b, 1).unwrap();
    let all: Vec<_> = (0..40).map(Read).collect();
    gpu.launch(b, &all);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, (1..40).collect::<Vec<_>>());
}

#[test]
fn waiting_for_a_stream_is_recording_and_waiting() {
    let (gpu, a, b) = two_streams();
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.wait_stream(b, a).unwrap();
    gpu.launch(a, &[Write(1)]);
    gpu.launch(b, &[Read(0), Read(1)]);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, [1]);
}

#[test]
fn what_the_host_waited_for_is_before_every_later_launch() {
    type Sync = fn(&Gpu, gsan_sync::StreamKey);
    let waits: [(&str, Sync); 5] = [
        ("device", |gpu, _| {
            gpu.ordering.synchronize_device(GPU).unwrap();
        }),
        ("stream", |gpu, a| {
            gpu.ordering.synchronize_stream(a).unwrap();
        }),
        ("stream query", |gpu, a| {
            gpu.ordering.stream_is_done(a).unwrap();
        }),
        ("event", |gpu, a| {
            gpu.ordering.record_event(1, a).unwrap();
            assert_eq!(gpu.ordering.synchronize_event(1), Edge::Added);
        }),
        ("event query", |gpu, a| {
            gpu.ordering.record_event(1, a).unwrap();
            assert_eq!(gpu.ordering.event_is_done(1), Edge::Added);
        }),
    ];
    for (name, wait) in waits {
        let (gpu, a, b) = two_streams();
        gpu.launch(a, &[Write(0)]);
        wait(&gpu, a);
        gpu.launch(a, &[Write(1)]);
        gpu.launch(b, &[Read(0), Read(1)]);
        let c = gpu.open(3);
        gpu.launch(c, &[Read(0)]);
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        assert_eq!(granules, [1], "{name}");
    }
}

#[test]
fn what_others_gave_a_stream_since_the_host_waited_is_not_joined_too_early() {
    // Two streams that share a bank: one row of it cannot be named, and is joined.
    for shared_bank in [false, true] {
        let gpu = Gpu::with(gsan_sync::Settings {
            most_banks: if shared_bank { 1 } else { 12 },
            ..crate::gpu::settings()
        });
        let (x, a, b) = (gpu.open(1), gpu.open(2), gpu.open(3));
        gpu.launch(x, &[Write(0), Add(9)]);
        gpu.backend.hold(true);
        // Between the program's wait and the call that tells of it another thread launches.
        gpu.launch(a, &[Write(1), Add(9)]);
        gpu.ordering.synchronize_stream(a).unwrap();
        gpu.launch(b, &[Read(20)]);
        for stream in [3, 2, 3] {
            let queue = crate::gpu::queue(stream);
            while gpu.backend.step(GPU, queue).unwrap() == Stepped::Ran {}
        }
        gpu.backend.hold(false);
        // Now the host waits for that launch, too.
        gpu.ordering.synchronize_stream(a).unwrap();
        gpu.launch(b, &[Read(0), Read(1)]);
        let c = gpu.open(4);
        gpu.launch(c, &[Read(0), Read(1)]);
        assert!(gpu.races().is_empty(), "shared bank: {shared_bank}");
    }
}

#[test]
fn a_wait_for_another_device_orders_nothing_of_this_one() {
    let (gpu, a, b) = two_streams();
    gpu.launch(a, &[Write(0)]);
    let c = gpu.open(3);
    gpu.ordering.synchronize_stream(c).unwrap();
    gpu.launch(b, &[Read(0)]);
    assert_eq!(gpu.races().len(), 1);
}

#[test]
fn with_one_stream_in_use_host_waits_join_nothing() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    for _ in 0..100 {
        gpu.launch(a, &[Write(0)]);
        gpu.ordering.synchronize_device(GPU).unwrap();
        gpu.ordering.record_event(1, a).unwrap();
    }
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().joins, 0);
}

#[test]
fn the_legacy_default_stream_and_blocking_streams_wait_for_each_other() {
    for kind in [StreamKind::Blocking, StreamKind::NonBlocking] {
        let gpu = Gpu::new();
        let default = gpu.open_as(GPU, 0, StreamKind::Legacy);
        let a = gpu.open_as(GPU, 1, kind);
        let b = gpu.open_as(GPU, 2, kind);
        gpu.launch(a, &[Write(0)]);
        gpu.launch(b, &[Write(1)]);
        gpu.launch(default, &[Read(0), Read(1), Write(2)]);
        gpu.launch(a, &[Read(1), Read(2), Write(3)]);
        gpu.launch(b, &[Read(2), Read(3)]);
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        let expected: &[u32] = match kind {
            StreamKind::Blocking => &[3],
            _ => &[0, 1, 1, 2, 2, 3],
        };
        assert_eq!(granules.len(), expected.len(), "{kind:?}: {granules:?}");
        let mut sorted = granules;
        sorted.sort_unstable();
        assert_eq!(sorted, expected, "{kind:?}");
    }
}

#[test]
fn events_and_waits_of_the_legacy_default_stream_have_its_implicit_edges() {
    let gpu = Gpu::new();
    let default = gpu.open_as(GPU, 0, StreamKind::Legacy);
    let a = gpu.open_as(GPU, 1, StreamKind::Blocking);
    let apart = gpu.open(3);
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.record_event(1, default).unwrap();
    gpu.ordering.wait_event(apart, 1).unwrap();
    gpu.launch(apart, &[Read(0), Write(1)]);
    gpu.ordering.record_event(2, apart).unwrap();
    // The default stream waits, and so does everything that waits for it.
    gpu.ordering.wait_event(default, 2).unwrap();
    gpu.launch(a, &[Read(1)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn a_launch_that_failed_leaves_no_edge_and_takes_none_away() {
    for empty in [false, true] {
        let (gpu, a, b) = two_streams();
        gpu.launch(a, &[Write(0)]);
        gpu.ordering.record_event(1, a).unwrap();
        gpu.launch(b, &[Write(1)]);
        gpu.ordering.wait_event(b, 1).unwrap();
        let grid = if empty { [1, 0, 1] } else { [1, 1, 1] };
        let failed = LaunchInfo { grid, ..info() };
        let mut launch = gpu.ordering.begin_launch(b, &failed).unwrap();
        launch.finish(empty).unwrap();
        gpu.ordering.record_event(2, b).unwrap();
        drop(gpu.ordering.begin_launch(b, &info()).unwrap());
        gpu.launch(b, &[Read(0), Read(1)]);
        let c = gpu.open(3);
        gpu.ordering.wait_event(c, 2).unwrap();
        gpu.launch(c, &[Read(0), Read(1)]);
        assert!(gpu.races().is_empty());
        assert_eq!(gpu.ordering.counts().taken_back, 2);
    }
}

#[test]
fn bad_input_is_answered() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    assert_eq!(
        gpu.ordering.begin_launch(key(9), &info()).err(),
        Some(Error::UnknownStream(key(9)))
    );
    assert_eq!(
        gpu.ordering.record_event(1, key(9)),
        Err(Error::UnknownStream(key(9)))
    );
    assert_eq!(gpu.ordering.wait_event(a, 5), Ok(Edge::NeverRecorded));
    assert_eq!(gpu.ordering.synchronize_event(5), Edge::NeverRecorded);
    let queue = crate::gpu::queue(1);
    assert_eq!(
        gpu.ordering.open_stream(a, queue, StreamKind::Blocking),
        Err(Error::StreamDiffers(a))
    );
    let nowhere = gsan_vmm::backend::Device(4);
    let unknown = gpu.ordering.synchronize_device(nowhere).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "device 4 has no device rank: 1 devices of this process have one"
    );
    let mut launch = gpu.ordering.begin_launch(a, &info()).unwrap();
    assert_eq!(gpu.ordering.record_event(1, a), Err(unfinished(a)));
    launch.finish(false).unwrap();
    assert_eq!(
        launch.finish(false),
        Err(Error::LaunchFinished {
            number: launch.number()
        })
    );
}

#[test]
fn a_race_over_streams_is_found_after_a_thousand_kernels_on_both() {
    let (gpu, a, b) = two_streams();
    for _ in 0..1000 {
        gpu.launch(a, &[Write(0)]);
        gpu.launch(b, &[Write(1)]);
    }
    assert!(gpu.races().is_empty());
    let first = gpu.launch(a, &[Write(2)]);
    let second = gpu.launch(b, &[Write(2)]);
    let races: Vec<_> = gpu.races().into_iter().collect();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].earlier, races[0].later), (first, second));
}

#[test]
fn streams_that_share_a_bank_lose_no_edge() {
    let gpu = Gpu::with(gsan_sync::Settings {
        most_banks: 2,
        ..crate::gpu::settings()
    });
    let streams: Vec<_> = (1..7).map(|handle| gpu.open(handle)).collect();
    assert_eq!(gpu.ordering.counts().shared_banks, 4);
    for round in 0..20 {
        for (at, &stream) in streams.iter().enumerate() {
            let before = streams[(at + streams.len() - 1) % streams.len()];
            if (round, at) != (0, 0) {
                gpu.ordering.record_event(before.handle, before).unwrap();
                gpu.ordering.wait_event(stream, before.handle).unwrap();
            }
            gpu.launch(stream, &[Write(0)]);
        }
    }
    assert!(gpu.races().is_empty());
}

#[test]
fn dependent_launches_know_what_they_waited_for() {
    for waits in [false, true] {
        let gpu = Gpu::new();
        let a = gpu.open(1);
        gpu.launch(a, &[Write(0)]);
        gpu.backend.hold(true);
        let mut first = gpu.ordering.begin_launch(a, &info()).unwrap();
        let launch = (first.table(), first.index());
        first.finish(true).unwrap();
        let dependent = LaunchInfo {
            programmatic: true,
            ..info()
        };
        let mut second = gpu.ordering.begin_launch(a, &dependent).unwrap();
        let overtaking = (second.table(), second.index());
        second.finish(true).unwrap();
        // Both run at once, as on a GPU.
        let first = gpu.resident(launch, 0, 0);
        let second = gpu.resident(overtaking, 1, 0);
        first.does(Write(1));
        second.does(Read(0));
        first.exit();
        if waits {
            second.does(Wait);
        }
        second.does(Read(1));
        second.exit();
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        assert_eq!(granules.is_empty(), waits, "{granules:?}");
        gpu.backend.hold(false);
        gpu.launch(a, &[Write(0), Write(1)]);
        assert!(gpu.races().is_empty());
    }
}

#[test]
fn what_a_kernel_acquired_from_another_stream_is_passed_on() {
    let (gpu, a, b) = two_streams();
    let c = gpu.open(3);
    gpu.launch(a, &[Write(0), Add(9)]);
    // No edge of the host: the atomic orders the two.
    gpu.launch(b, &[Add(9), Read(0)]);
    assert!(gpu.races().is_empty());
    // It is part of the completion, over later launches and over an event.
    gpu.launch(b, &[Read(0)]);
    gpu.ordering.record_event(1, b).unwrap();
    gpu.ordering.wait_event(c, 1).unwrap();
    gpu.launch(c, &[Read(0)]);
    assert!(gpu.races().is_empty());
    let d = gpu.open(4);
    gpu.launch(d, &[Read(0)]);
    assert_eq!(gpu.races().len(), 1);
}
