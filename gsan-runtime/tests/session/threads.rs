//! Any thread may call at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::machine::{GPU, launch, read, session, write};

#[test]
fn many_threads_do_everything_at_once_and_nothing_is_invented() {
    let session = session();
    let launches = Arc::new(AtomicU64::new(0));
    let shared = session.allocate(4096, GPU, 0).unwrap();
    let long = std::env::var_os("GSAN_LONG").is_some();
    let rounds = if long { 400 } else { 20 };
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (session, launches) = (&session, &launches);
            scope.spawn(move || {
                let stream = match thread {
                    0 => 0,
                    1 => 2,
                    thread => session.create_host_stream(GPU, thread % 2 == 0).unwrap(),
                };
                let own = session.allocate(1 << 16, GPU, stream).unwrap();
                let name = format!("kernel {thread}");
                for round in 0..rounds {
                    let memory = session.allocate(4096, GPU, stream).unwrap();
                    session
                        .launch_on_host(GPU, stream, &launch(&name, 4), move |cta, [x, ..]| {
                            write(cta, memory + 4 * u64::from(x), x, 1);
                            let at = own + 4 * u64::from(x);
                            let old = read(cta, at, 2);
                            write(cta, at, old + 1, 3);
                            read(cta, shared, 4);
                        })
                        .unwrap();
                    launches.fetch_add(1, Relaxed);
                    let event = session.create_host_event().unwrap();
                    session.event_recorded(event, GPU, stream).unwrap();
                    match round % 5 {
                        0 => session.stream_synchronized(GPU, stream).unwrap(),
                        1 => drop(session.event_synchronized(event).unwrap()),
                        2 => session.device_synchronized(GPU).unwrap(),
                        3 => drop(session.usage().unwrap()),
                        _ => session.drain().unwrap(),
                    }
                    session.event_forgotten(event);
                    session.free(memory, 4096, GPU, stream).unwrap();
                    assert!(session.find_allocation(memory).is_err());
                    session.find_allocation(own).unwrap();
                }
                session.stream_synchronized(GPU, stream).unwrap();
                session.free(own, 0, GPU, stream).unwrap();
            });
        }
    });
    let report = session.report().unwrap();
    assert_eq!(report.races, []);
    assert_eq!(report.summary.launches, launches.load(Relaxed));
    assert_eq!(report.summary.accesses, launches.load(Relaxed) * 4 * 4);
    session.free(shared, 4096, GPU, 0).unwrap();
    session.allocator().flush();
    session.close().unwrap();
}

#[test]
fn launches_of_one_stream_from_many_threads_follow_each_other() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let stream = session.create_host_stream(GPU, false).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    session
                        .launch_on_host(GPU, stream, &launch("count", 1), move |cta, _| {
                            let old = read(cta, memory, 1);
                            write(cta, memory, old + 1, 2);
                        })
                        .unwrap();
                }
            });
        }
    });
    session.stream_synchronized(GPU, stream).unwrap();
    let mut count = [0; 4];
    session
        .allocator()
        .backend()
        .read(GPU, memory, &mut count)
        .unwrap();
    assert_eq!(u32::from_le_bytes(count), 80);
    assert_eq!(session.report().unwrap().races, []);
}

#[test]
fn streams_that_come_and_go_leave_room_for_others() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    for _ in 0..100 {
        let stream = session.create_host_stream(GPU, false).unwrap();
        session
            .launch_on_host(GPU, stream, &launch("fill", 1), move |cta, _| {
                write(cta, memory, 1, 1)
            })
            .unwrap();
        session.stream_synchronized(GPU, stream).unwrap();
        session.destroy_host_stream(GPU, stream).unwrap();
    }
    let usage = session.usage().unwrap();
    assert_eq!((usage.launches, usage.losses), (100, Vec::new()));
    assert_eq!(session.report().unwrap().races, []);
}

/// Streams that threads share, the legacy default stream among them, order what their own streams do or do
/// not: what a thread's own streams do one after the other is ordered in any case.
#[test]
fn threads_that_share_streams_accuse_nobody() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let made = [true, false, true].map(|b| session.create_host_stream(GPU, b).unwrap());
    let shared = [0, made[0], made[1], made[2]];
    let events = [(); 3].map(|()| session.create_host_event().unwrap());
    let long = std::env::var_os("GSAN_LONG").is_some();
    let rounds = if long { 20_000 } else { 1_000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let session = &session;
            scope.spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread + 1);
                let mut next = |below: u64| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    (random >> 11) % below
                };
                let own_word = memory + 8 * thread;
                let mut own = None;
                for _ in 0..rounds {
                    let blocking = next(2) == 0;
                    let stream = *own
                        .get_or_insert_with(|| session.create_host_stream(GPU, blocking).unwrap());
                    let (one, other) = (shared[next(4) as usize], shared[next(4) as usize]);
                    let event = events[next(3) as usize];
                    match next(9) {
                        0..=2 => session
                            .launch_on_host(GPU, stream, &launch("own", 1), move |cta, _| {
                                write(cta, own_word, 1, 1);
                            })
                            .unwrap(),
                        3 => session.stream_waited(GPU, one, other).unwrap(),
                        4 => session.event_recorded(event, GPU, one).unwrap(),
                        5 => drop(session.event_waited(event, GPU, one).unwrap()),
                        6 => session.stream_synchronized(GPU, one).unwrap(),
                        7 => session.device_synchronized(GPU).unwrap(),
                        _ => {
                            session.stream_synchronized(GPU, stream).unwrap();
                            session.destroy_host_stream(GPU, stream).unwrap();
                            own = None;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(session.report().unwrap().races, []);
}
