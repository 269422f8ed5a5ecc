//! What a program does wrong is refused, with the reason, and changes nothing.

use std::sync::mpsc;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_core::scope::{Order, Scope};
use gsan_runtime::host::AtomicOperation as Op;
use gsan_runtime::session::KernelLaunch;
use gsan_runtime::{Error, Kind};
use gsan_sync::NodeId;
use gsan_vmm::backend::Device;

use crate::machine::{FILE, GPU, launch, session, session_with, write};

/// The kind of a refusal, and whether its text has a word.
#[track_caller]
fn refused<T>(result: Result<T, Error>, kind: Kind, word: &str) {
    let Err(error) = result else {
        panic!("it was not refused");
    };
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(text.contains(word), "no {word:?} in: {text}");
}

#[test]
fn devices_that_are_not_there() {
    let session = session();
    for number in [-1, 1, 99, i32::MAX, i32::MIN] {
        refused(
            session.device(number),
            Kind::InvalidArgument,
            "this process sees 1",
        );
    }
    let nowhere = Device(7);
    refused(
        session.allocate(8, nowhere, 0),
        Kind::InvalidArgument,
        "device 7",
    );
    refused(
        session.begin_launch(nowhere, 0, &launch("k", 1)),
        Kind::InvalidArgument,
        "device 7",
    );
    refused(
        session.device_rank(nowhere),
        Kind::InvalidArgument,
        "device 7",
    );
    refused(
        session.device_synchronized(nowhere),
        Kind::InvalidArgument,
        "device 7",
    );
    refused(
        session.create_host_stream(nowhere, true),
        Kind::InvalidArgument,
        "device 7",
    );
}

#[test]
fn streams_that_are_not_there() {
    let session = session();
    let gone = session.create_host_stream(GPU, true).unwrap();
    session.event_recorded(1, GPU, gone).unwrap();
    session.destroy_host_stream(GPU, gone).unwrap();
    for stream in [3, 0xdead_beef, u64::MAX >> 1, gone] {
        let word = "gsan_host_stream_create";
        refused(
            session.begin_launch(GPU, stream, &launch("k", 1)),
            Kind::NotFound,
            word,
        );
        refused(session.event_recorded(1, GPU, stream), Kind::NotFound, word);
        refused(session.event_waited(1, GPU, stream), Kind::NotFound, word);
        refused(session.stream_waited(GPU, stream, 0), Kind::NotFound, word);
        refused(session.stream_waited(GPU, 0, stream), Kind::NotFound, word);
        refused(
            session.stream_synchronized(GPU, stream),
            Kind::NotFound,
            word,
        );
        refused(session.memory_used(8, 8, GPU, stream), Kind::NotFound, word);
        refused(
            session.memory_handed_out(8, 8, GPU, stream),
            Kind::NotFound,
            word,
        );
        refused(
            session.destroy_host_stream(GPU, stream),
            Kind::NotFound,
            word,
        );
        refused(session.capture_id(GPU, stream), Kind::NotFound, word);
    }
}

#[test]
fn memory_that_is_not_there() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let free = |address, bytes| session.free(address, bytes, GPU, 0);
    refused(free(0x1234, 8), Kind::NotFound, "0x1234");
    refused(
        free(memory + 8, 4088),
        Kind::InvalidArgument,
        "only its start",
    );
    refused(free(memory, 4095), Kind::InvalidArgument, "4096 bytes");
    refused(
        session.free(memory, 4096, Device(1), 0),
        Kind::InvalidArgument,
        "device 1",
    );
    assert_eq!(session.live_allocations().len(), 1);
    free(memory, 4096).unwrap();
    free(0, 77).unwrap();
    // Whether its range is still known is up to the thread that reclaims it.
    assert!(free(memory, 4096).is_err());
    refused(
        session.find_allocation(memory),
        Kind::NotFound,
        "no live allocation",
    );
    refused(
        session.cell_at(memory),
        Kind::NotFound,
        "no live allocation",
    );
    assert!(session.export_allocation(memory).is_err());
    assert_eq!(session.usage().unwrap().refused_frees, 5);
}

#[test]
fn more_memory_than_there_is() {
    let session = session();
    refused(
        session.allocate(2 << 40, GPU, 0),
        Kind::OutOfMemory,
        "out of memory",
    );
    refused(
        session.allocate(u64::MAX, GPU, 0),
        Kind::OutOfMemory,
        "more than any device",
    );
    assert_eq!(session.allocate(0, GPU, 0).unwrap(), 0);
}

#[test]
fn memory_whose_shadow_does_not_fit_is_handed_out_and_counted() {
    let session = session();
    let memory = session.allocate(256 << 20, GPU, 0).unwrap();
    let found = session.find_allocation(memory).unwrap();
    assert!(!found.managed);
    session
        .launch_on_host(GPU, 0, &launch("fill", 2), move |cta, _| {
            write(cta, memory, 1, 1)
        })
        .unwrap();
    let report = session.report().unwrap();
    assert_eq!(report.races, []);
    assert_eq!(report.summary.uncovered_bytes, 256 << 20);
    let usage = session.usage().unwrap();
    assert_eq!(
        (usage.unmanaged_ever, usage.unmanaged_bytes),
        (1, 256 << 20)
    );
    let loss = usage
        .losses
        .iter()
        .find(|loss| loss.loss == "unmanaged")
        .unwrap();
    assert_eq!(loss.times, 1);
    assert!(loss.cure.contains("shadow.reserve"));
    refused(session.cell_at(memory), Kind::NotFound, "without shadow");
}

#[test]
fn launches_out_of_order() {
    let session = session();
    let stream = session.create_host_stream(GPU, false).unwrap();
    let mut begun = session.begin_launch(GPU, stream, &launch("k", 1)).unwrap();
    let unfinished = "was begun and not finished";
    refused(
        session.begin_launch(GPU, stream, &launch("k", 1)),
        Kind::WrongOrder,
        unfinished,
    );
    refused(
        session.event_recorded(1, GPU, stream),
        Kind::WrongOrder,
        unfinished,
    );
    for gone in [
        session.destroy_host_stream(GPU, stream),
        session.stream_forgotten(GPU, stream),
    ] {
        refused(gone, Kind::WrongOrder, unfinished);
    }
    begun.finish(false).unwrap();
    refused(begun.finish(true), Kind::WrongOrder, "finished already");
    session.event_recorded(1, GPU, stream).unwrap();
    // One that is dropped was not made.
    drop(session.begin_launch(GPU, stream, &launch("k", 1)).unwrap());
    session.event_recorded(1, GPU, stream).unwrap();
    assert_eq!(session.usage().unwrap().launches, 0);
}

#[test]
fn a_stream_is_not_destroyed_while_it_is_replayed_on() {
    let session = session();
    let stream = session.create_host_stream(GPU, true).unwrap();
    let mut builder = session.begin_graph(GPU).unwrap();
    builder.kernel(&[], &[], &launch("k", 1)).unwrap();
    let graph = builder.finish().unwrap();
    let mut replay = graph.begin_replay(GPU, stream).unwrap();
    for gone in [
        session.destroy_host_stream(GPU, stream),
        session.stream_forgotten(GPU, stream),
    ] {
        refused(gone, Kind::WrongOrder, "a replay on stream");
    }
    // It is as it was.
    replay.run_on_host(stream, NodeId(0), |_, _| {}).unwrap();
    replay.finish(true).unwrap();
    session.stream_synchronized(GPU, stream).unwrap();
    session.destroy_host_stream(GPU, stream).unwrap();
}

#[test]
fn grids_that_are_none() {
    let session = session();
    let (tell, hear) = mpsc::channel();
    for grid in [
        [u32::MAX, 2, 1],
        [1 << 31, 1, 1],
        [1, 65_536, 1],
        [1, 1, 65_536],
        [65_536, 65_535, 2],
        [u32::MAX; 3],
    ] {
        let huge = KernelLaunch {
            grid,
            ..launch("huge", 1)
        };
        let launched = session.launch_on_host(GPU, 0, &huge, |_, _| {});
        refused(launched, Kind::InvalidArgument, "CTAs");
    }
    for block in [
        [0, 0, 0],
        [32, 0, 1],
        [1025, 1, 1],
        [1024, 2, 1],
        [1, 1, 65],
        [u32::MAX; 3],
    ] {
        let odd = KernelLaunch {
            block,
            ..launch("odd", 1)
        };
        let launched = session.launch_on_host(GPU, 0, &odd, |_, _| {});
        refused(launched, Kind::InvalidArgument, "a CTA has 1 to 1024");
    }
    let empty = KernelLaunch {
        grid: [5, 0, 1],
        ..launch("empty", 1)
    };
    session
        .launch_on_host(GPU, 0, &empty, move |_, _| tell.send(()).unwrap())
        .unwrap();
    session.stream_synchronized(GPU, 0).unwrap();
    assert!(hear.recv().is_err(), "an empty grid has no CTA");
    assert_eq!(session.usage().unwrap().launches, 0);
}

#[test]
fn accesses_outside_of_memory() {
    let session = session();
    let memory = session.allocate(100, GPU, 0).unwrap();
    let (tell, hear) = mpsc::channel();
    session
        .launch_on_host(GPU, 0, &launch("bad", 1), move |cta, _| {
            let atomic = |address, bytes, operation, order| {
                let scope = Scope::Gpu;
                cta.atomic(operation, address, bytes, 1, 0, order, scope, FILE, 3)
                    .map(drop)
            };
            let results = [
                (
                    cta.read(0x10, &mut [0; 4], FILE, 1),
                    "no allocation is there",
                ),
                (cta.read(memory + 98, &mut [0; 4], FILE, 1), "ends after 2"),
                (
                    cta.write(u64::MAX - 1, &[0; 4], FILE, 2),
                    "no allocation is there",
                ),
                (cta.write(memory, &[], FILE, 2), "at least one byte"),
                (
                    cta.write(memory - 1, &[0; 4], FILE, 2),
                    "no allocation is there",
                ),
                (
                    atomic(memory + 2, 4, Op::Add, Order::Relaxed),
                    "at a multiple",
                ),
                (atomic(memory, 3, Op::Add, Order::Relaxed), "1, 2, 4 or 8"),
                (
                    atomic(memory, 4, Op::Load, Order::Release),
                    "an atomic load cannot be release",
                ),
                (
                    atomic(memory, 4, Op::Store, Order::Acquire),
                    "an atomic store cannot be acquire",
                ),
                (
                    atomic(memory, 4, Op::Add, Order::Weak),
                    "an atomic cannot be weak",
                ),
                (
                    atomic(0, 4, Op::Add, Order::Relaxed),
                    "no allocation is there",
                ),
            ];
            tell.send(results).unwrap();
        })
        .unwrap();
    for (result, word) in hear.recv().unwrap() {
        refused(result, Kind::InvalidArgument, word);
    }
    session.stream_synchronized(GPU, 0).unwrap();
    let report = session.report().unwrap();
    assert_eq!((report.races.len(), report.summary.accesses), (0, 0));
}

#[test]
fn kernels_do_not_wait_for_streams() {
    let session = session();
    let (tell, hear) = mpsc::channel();
    let inside = std::sync::Arc::clone(&session);
    session
        .launch_on_host(GPU, 0, &launch("waits", 1), move |_, _| {
            let waits = [
                inside.stream_synchronized(GPU, 0),
                inside.device_synchronized(GPU),
                inside.event_synchronized(1).map(drop),
                inside.drain(),
            ];
            tell.send(waits).unwrap();
        })
        .unwrap();
    for wait in hear.recv().unwrap() {
        refused(wait, Kind::WrongOrder, "only the host can");
    }
    session.stream_synchronized(GPU, 0).unwrap();
}

#[test]
fn a_cta_that_panics_ends_and_the_stream_goes_on() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("panics", 8), move |cta, [x, ..]| {
            write(cta, memory + 8 * u64::from(x), x, 1);
            assert_ne!(x, 3, "on purpose");
        })
        .unwrap();
    session
        .launch_on_host(GPU, 0, &launch("after", 8), move |cta, [x, ..]| {
            write(cta, memory + 8 * u64::from(x), x, 2);
        })
        .unwrap();
    let report = session.report().unwrap();
    assert_eq!((report.races.len(), report.summary.launches), (0, 2));
}

#[test]
fn graphs_out_of_order() {
    let session = session();
    let mut builder = session.begin_graph(GPU).unwrap();
    let bad = builder.kernel(&[NodeId(3)], &[], &launch("k", 1));
    refused(bad, Kind::InvalidArgument, "not there yet");
    builder.other(&[]).unwrap();
    let graph = builder.finish().unwrap();
    let stream = session.create_host_stream(GPU, false).unwrap();
    let mut replay = graph.begin_replay(GPU, stream).unwrap();
    refused(graph.begin_replay(GPU, stream), Kind::Live, "in flight");
    refused(graph.close(), Kind::Live, "in flight");
    replay.finish(true).unwrap();
    refused(replay.finish(true), Kind::WrongOrder, "finished already");
    session.stream_synchronized(GPU, stream).unwrap();
    graph.close().unwrap();
    refused(graph.close(), Kind::WrongOrder, "was closed");
    refused(
        graph.begin_replay(GPU, stream),
        Kind::WrongOrder,
        "was closed",
    );
    refused(
        session.begin_graph(Device(4)).map(drop),
        Kind::InvalidArgument,
        "device 4",
    );
    assert!(session.capture_ended(77).unwrap().is_none());
}

#[test]
fn groups_say_who_is_missing() {
    let session = session_with("[topology]\nnum_devices = 2\n");
    let ranks = [0, 1].map(DeviceRank);
    let alone = session.open_group(GPU, &[DeviceRank(1)]);
    refused(
        alone.map(drop),
        Kind::InvalidArgument,
        "not among the ranks",
    );
    let far = session.open_group(GPU, &[DeviceRank(0), DeviceRank(9)]);
    refused(far.map(drop), Kind::WrongOrder, "rank 9");
    let group = session.open_group(GPU, &ranks).unwrap();
    refused(
        session.open_group(GPU, &ranks).map(drop),
        Kind::WrongOrder,
        "in a group",
    );
    let barrier = group.barrier(0, Duration::from_millis(50));
    refused(barrier, Kind::Timeout, "rank 1");
}

#[test]
fn configurations_that_do_not_fit() {
    use gsan_config::Loaded;
    use gsan_runtime::Session;
    let start = |more: &str| {
        let mut loaded = Loaded::default();
        let text = format!("[topology]\nbackend = \"host\"\n{more}");
        loaded
            .apply_file(std::path::Path::new("test"), &text)
            .unwrap();
        Session::start(&loaded).map(drop)
    };
    refused(
        start("device_ranks = { 0 = 5 }\nnum_devices = 3\n"),
        Kind::InvalidArgument,
        "topology.device_ranks",
    );
    refused(
        start("[clock]\nsnapshot_memory = \"900MiB\"\nprivate_memory = \"900MiB\"\n"),
        Kind::InvalidArgument,
        "1 GiB",
    );
    #[cfg(feature = "cuda")]
    {
        let mut loaded = Loaded::default();
        let text = "[topology]\nbackend = \"cuda\"\n";
        loaded
            .apply_file(std::path::Path::new("test"), text)
            .unwrap();
        if let Err(error) = Session::start(&loaded).map(drop) {
            assert!(
                matches!(error.kind(), Kind::Unsupported | Kind::Device),
                "{error}"
            );
        }
    }
}
