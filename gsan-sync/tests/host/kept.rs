//! Threads that keep streams from others: between the begin and the end of a launch or a replay.

use std::sync::Barrier;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gsan_sync::{Begun, Error, Held, Idle, LaunchInfo, Settings, StreamKey, StreamKind};

use crate::gpu::Do::{Read, Write};
use crate::gpu::{GPU, Gpu, settings};
use crate::graphs::INFO;

/// What a thread does with a stream that another one keeps.
type Call = fn(&Gpu, StreamKey) -> Result<(), Error>;

const CALLS: [(&str, Call); 5] = [
    ("a launch", |gpu, stream| {
        gpu.ordering.begin_launch(stream, &INFO).map(drop)
    }),
    ("a replay", |gpu, stream| {
        let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
        builder.kernel(&[], &[], &INFO).unwrap();
        let plan = builder.finish().unwrap();
        let begun = plan.begin_replay(stream).map(drop);
        plan.close().unwrap();
        begun
    }),
    ("a record", |gpu, stream| {
        gpu.ordering.record_event(1, stream)
    }),
    ("the host's wait", |gpu, stream| {
        gpu.ordering.synchronize_stream(stream)
    }),
    ("its end", |gpu, stream| gpu.ordering.forget_stream(stream)),
];

fn held(result: Result<(), Error>) -> Option<Held> {
    match result {
        Ok(()) => None,
        Err(Error::StreamHeld { why, .. }) => Some(why),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn threads_that_want_each_others_streams_are_told_so() {
    for threads in [2usize, 3] {
        for (name, call) in CALLS {
            let gpu = Gpu::new();
            let streams: Vec<_> = (1..=threads as u64)
                .map(|handle| gpu.open(handle))
                .collect();
            let began = Barrier::new(threads);
            let start = Instant::now();
            let results: Vec<_> = std::thread::scope(|scope| {
                let running: Vec<_> = (0..threads)
                    .map(|this| {
                        let (gpu, streams, began) = (&gpu, &streams, &began);
                        scope.spawn(move || {
                            let mut launch =
                                gpu.ordering.begin_launch(streams[this], &INFO).unwrap();
                            began.wait();
                            let next = call(gpu, streams[(this + 1) % threads]);
                            launch.finish(false).unwrap();
                            next
                        })
                    })
                    .collect();
                running.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let refused: Vec<_> = results.into_iter().filter_map(held).collect();
            // One of them steps back, and the others go on.
            assert_eq!(refused, [Held::Crosswise], "{name}, {threads} threads");
            assert!(start.elapsed() < Duration::from_secs(20), "{name}");
        }
    }
}

#[test]
fn a_thread_that_only_waits_its_turn_is_not_refused() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    // All in the same order: nobody waits for himself.
                    let mut first = gpu.ordering.begin_launch(a, &INFO).unwrap();
                    let mut second = gpu.ordering.begin_launch(b, &INFO).unwrap();
                    second.finish(false).unwrap();
                    first.finish(false).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_launch_whose_thread_has_ended_is_told_of_and_can_be_ended_by_others() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    let mut left = std::thread::scope(|scope| {
        let begin = || gpu.ordering.begin_launch(a, &INFO).unwrap();
        scope.spawn(begin).join().unwrap()
    });
    let refused = gpu.ordering.record_event(1, a).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with("stream 0x1 of device 0 cannot be used: thread "),
        "{text}"
    );
    assert!(
        text.ends_with(
            " has begun a launch on stream 0x1 of device 0, and has ended without finishing it: \
             any thread can do that"
        ),
        "{text}"
    );
    // Other streams go on.
    gpu.launch(b, &[Write(0)]);
    assert_eq!(gpu.ordering.restart(), Ok(Idle::NotYet));
    left.finish(false).unwrap();
    gpu.launch(a, &[Read(1)]);
}

#[test]
fn a_launch_that_is_never_finished_is_not_waited_for_without_end() {
    let patience = Duration::from_millis(200);
    let gpu = Gpu::with(Settings {
        patience,
        ..settings()
    });
    let a = gpu.open(1);
    let (done, wait) = mpsc::channel::<()>();
    let (begun, is_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let gpu = &gpu;
        scope.spawn(move || {
            let launch = gpu.ordering.begin_launch(a, &INFO).unwrap();
            begun.send(()).unwrap();
            let _ = wait.recv();
            drop(launch);
        });
        is_begun.recv().unwrap();
        for (name, call) in CALLS {
            assert_eq!(held(call(gpu, a)), Some(Held::TooLong(patience)), "{name}");
        }
        drop(done);
    });
    gpu.launch(a, &[Read(1)]);
}

#[test]
fn what_was_begun_is_called_by_its_name() {
    let gpu = Gpu::new();
    let default = gpu.open_as(GPU, 0, StreamKind::Legacy);
    let a = gpu.open_as(GPU, 1, StreamKind::Blocking);
    let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
    builder.kernel(&[], &[], &INFO).unwrap();
    let plan = builder.finish().unwrap();
    let replay = plan.begin_replay(a).unwrap();
    let refused = gpu.ordering.record_event(1, a).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a replay on stream 0x1 of device 0 was begun and not finished: finish it before the next \
         call on that stream"
    );
    drop(replay);
    let launch = gpu.ordering.begin_launch(default, &INFO).unwrap();
    let refused = gpu.ordering.record_event(1, a).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a launch on stream 0x0 of device 0 was begun and not finished: finish it before the next \
         call on stream 0x1 of device 0, which waits for it"
    );
    drop(launch);
    gpu.ordering.record_event(1, a).unwrap();
}

#[test]
fn a_stream_goes_only_when_its_launch_is_over() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    for submitted in [true, false] {
        let mut launch = gpu.ordering.begin_launch(a, &INFO).unwrap();
        let refused = Error::LaunchUnfinished {
            stream: a,
            begun: Begun::Launch,
            on: a,
        };
        assert_eq!(gpu.ordering.forget_stream(a), Err(refused));
        if submitted {
            gpu.enqueue(a, (launch.table(), launch.index()), &[&[Write(0)]]);
        }
        launch.finish(submitted).unwrap();
    }
    gpu.ordering.wait_stream(b, a).unwrap();
    // Another thread waits for its end.
    let info = LaunchInfo { ..INFO };
    let mut launch = gpu.ordering.begin_launch(a, &info).unwrap();
    std::thread::scope(|scope| {
        let gone = scope.spawn(|| gpu.ordering.forget_stream(a));
        std::thread::sleep(Duration::from_millis(20));
        launch.finish(false).unwrap();
        gone.join().unwrap().unwrap();
    });
    assert!(!gpu.ordering.knows_stream(a));
    gpu.launch(b, &[Read(0)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn a_restart_never_keeps_a_stream_from_those_it_waits_for() {
    let gpu = Gpu::with(Settings {
        launches_between_looks: 0,
        ..settings()
    });
    let (a, b) = (gpu.open(1), gpu.open(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                let mut launch = gpu.ordering.begin_launch(b, &INFO).unwrap();
                // Streams are kept in their order: this one comes first.
                gpu.ordering.record_event(1, a).unwrap();
                launch.finish(false).unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..200 {
                gpu.ordering.restart().unwrap();
            }
        });
    });
}
