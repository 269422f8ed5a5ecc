//! The legacy default stream and blocking streams wait for each other, whatever they are given.

use std::sync::Arc;
use std::time::Duration;

use gsan_core::scope::Order;
use gsan_runtime::Session;
use gsan_runtime::host::{AtomicOperation as Op, HostCta};
use gsan_runtime::session::Graph;
use gsan_sync::NodeId;

use crate::machine::{GPU, atomic, launch, read, session, write};

/// How long a kernel takes that others should wait for.
const SLOW: Duration = Duration::from_millis(30);

type Body = Box<dyn Fn(&HostCta<'_>, [u32; 3]) + Send + Sync>;

fn slow_write(memory: u64) -> Body {
    Box::new(move |cta, _| {
        std::thread::sleep(SLOW);
        write(cta, memory, 1, 1);
    })
}

fn one_read(memory: u64) -> Body {
    Box::new(move |cta, _| {
        read(cta, memory, 2);
    })
}

/// How a kernel is given to a stream: as a launch, or in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Launched,
    Replayed,
}

fn give(session: &Arc<Session>, given: Given, stream: u64, body: Body) {
    match given {
        Given::Launched => session
            .launch_on_host(GPU, stream, &launch("kernel", 1), body)
            .unwrap(),
        Given::Replayed => {
            let graph = one_kernel(session);
            let mut replay = graph.begin_replay(GPU, stream).unwrap();
            replay.run_on_host(stream, NodeId(0), body).unwrap();
            replay.finish(true).unwrap();
        }
    }
}

fn one_kernel(session: &Arc<Session>) -> Graph {
    let mut builder = session.begin_graph(GPU).unwrap();
    builder.kernel(&[], &[], &launch("kernel", 1)).unwrap();
    builder.finish().unwrap()
}

fn races(session: &Session) -> usize {
    session.report().unwrap().races.len()
}

#[test]
fn launches_and_replays_wait_for_what_was_given_before() {
    for first in [Given::Launched, Given::Replayed] {
        for second in [Given::Launched, Given::Replayed] {
            for default_first in [false, true] {
                for blocking in [true, false] {
                    let session = session();
                    let memory = session.allocate(4096, GPU, 0).unwrap();
                    let other = session.create_host_stream(GPU, blocking).unwrap();
                    let (early, late) = if default_first {
                        (0, other)
                    } else {
                        (other, 0)
                    };
                    give(&session, first, early, slow_write(memory));
                    if !blocking {
                        // The read comes second all the same.
                        session.allocator().backend().synchronize(GPU).unwrap();
                    }
                    give(&session, second, late, one_read(memory));
                    assert_eq!(
                        races(&session),
                        usize::from(!blocking),
                        "{first:?}, {second:?}, default stream first: {default_first}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_stream_acquired_is_waited_for_too() {
    for second in [Given::Launched, Given::Replayed] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let apart = session.create_host_stream(GPU, false).unwrap();
        let other = session.create_host_stream(GPU, true).unwrap();
        let flag = memory + 64;
        give(
            &session,
            Given::Launched,
            apart,
            Box::new(move |cta, _| {
                write(cta, memory, 1, 1);
                atomic(cta, Op::Store, flag, 1, Order::Release, 2);
            }),
        );
        give(
            &session,
            Given::Launched,
            other,
            Box::new(move |cta, _| {
                std::thread::sleep(SLOW);
                while atomic(cta, Op::Load, flag, 0, Order::Acquire, 3) == 0 {}
            }),
        );
        give(&session, second, 0, one_read(memory));
        assert_eq!(races(&session), 0, "{second:?}");
    }
}

#[test]
fn what_the_default_stream_does_waits_for_blocking_streams() {
    type Act = fn(&Session, u64, u64);
    let event_on_it: Act = |session, _, apart| {
        let event = session.create_host_event().unwrap();
        session.event_recorded(event, GPU, 0).unwrap();
        session.event_waited(event, GPU, apart).unwrap();
    };
    let it_is_waited_for: Act = |session, _, apart| {
        session.stream_waited(GPU, apart, 0).unwrap();
    };
    let it_waits: Act = |session, idle, apart| {
        session.stream_waited(GPU, 0, idle).unwrap();
        session.stream_waited(GPU, apart, 0).unwrap();
    };
    let it_waits_for_an_event: Act = |session, idle, apart| {
        let event = session.create_host_event().unwrap();
        session.event_recorded(event, GPU, idle).unwrap();
        session.event_waited(event, GPU, 0).unwrap();
        session.stream_waited(GPU, apart, 0).unwrap();
    };
    let host: Act = |session, _, _| session.stream_synchronized(GPU, 0).unwrap();
    let acts = [
        ("an event", event_on_it),
        ("a stream that waits for it", it_is_waited_for),
        ("its wait for a stream", it_waits),
        ("its wait for an event", it_waits_for_an_event),
        ("the host's wait", host),
    ];
    for (name, act) in acts {
        for blocking in [true, false] {
            let session = session();
            let memory = session.allocate(4096, GPU, 0).unwrap();
            let busy = session.create_host_stream(GPU, blocking).unwrap();
            let idle = session.create_host_stream(GPU, true).unwrap();
            let apart = session.create_host_stream(GPU, false).unwrap();
            give(&session, Given::Launched, idle, one_read(memory + 64));
            give(&session, Given::Launched, 0, one_read(memory + 64));
            give(&session, Given::Launched, busy, slow_write(memory));
            act(&session, idle, apart);
            if !blocking {
                session.allocator().backend().synchronize(GPU).unwrap();
            }
            give(&session, Given::Launched, apart, one_read(memory));
            assert_eq!(races(&session), usize::from(!blocking), "{name}");
        }
    }
}

#[test]
fn blocking_streams_wait_for_what_the_default_stream_waited_for() {
    type Act = fn(&Session, u64);
    let acts: [(&str, Act); 2] = [
        ("a stream", |session, apart| {
            session.stream_waited(GPU, 0, apart).unwrap();
        }),
        ("an event", |session, apart| {
            let event = session.create_host_event().unwrap();
            session.event_recorded(event, GPU, apart).unwrap();
            session.event_waited(event, GPU, 0).unwrap();
        }),
    ];
    for (name, act) in acts {
        for given in [Given::Launched, Given::Replayed] {
            let session = session();
            let memory = session.allocate(4096, GPU, 0).unwrap();
            let apart = session.create_host_stream(GPU, false).unwrap();
            let other = session.create_host_stream(GPU, true).unwrap();
            give(&session, Given::Launched, apart, slow_write(memory));
            act(&session, apart);
            give(&session, given, other, one_read(memory));
            assert_eq!(races(&session), 0, "{name}, {given:?}");
        }
    }
}

#[test]
fn the_default_stream_waits_for_blocking_streams_that_are_gone() {
    for used_before in [true, false] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        if used_before {
            give(&session, Given::Launched, 0, one_read(memory + 64));
        }
        let other = session.create_host_stream(GPU, true).unwrap();
        give(&session, Given::Launched, other, slow_write(memory));
        session.destroy_host_stream(GPU, other).unwrap();
        give(&session, Given::Replayed, 0, one_read(memory));
        assert_eq!(races(&session), 0, "default stream used: {used_before}");
    }
}
