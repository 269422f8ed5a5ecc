//! Many host threads, each with a stream, that wait for each other's events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsan_core::layout::LaunchDescriptor;
use gsan_sync::{LaunchInfo, Settings};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::gpu::{GPU, Gpu, settings};

const STREAMS: usize = 8;

/// How many launches of each stream are ordered before a point.
type Counts = [u32; STREAMS];

/// A recorded event and what comes before the record.
#[derive(Clone, Copy)]
struct Recorded {
    event: u64,
    before: Counts,
}

/// Each launch runs one CTA on an SM of its own, so that launch `n` of a stream, from 0, has the epoch
/// `n + 2` of slot 0 of its bank. What a launch starts after is read from the rows it is given.
fn every_edge_is_there_and_no_other(launches: usize) {
    let gpu = &Gpu::with(Settings {
        sms: 1,
        slots_per_sm: STREAMS as u32,
        row_bytes: 16 << 20,
        ..settings()
    });
    let streams: Vec<_> = (1..=STREAMS as u64)
        .map(|handle| gpu.open(handle))
        .collect();
    let banks: Vec<u32> = {
        let mut banks = Vec::new();
        for &stream in &streams {
            let info = LaunchInfo {
                grid: [1, 1, 1],
                ..LaunchInfo::default()
            };
            let launch = gpu.ordering.begin_launch(stream, &info).unwrap();
            let descriptor = gpu.descriptor((launch.table(), launch.index()));
            banks.push(descriptor.bank);
        }
        banks
    };
    let banks = &banks;
    // The newest record of each stream, and what the host knows, with how many waits brought it.
    let mailbox: &[Mutex<Option<Recorded>>; STREAMS] = &Default::default();
    let wrong = &AtomicU64::new(0);
    let edges = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (this, &stream) in streams.iter().enumerate() {
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(this as u64);
                let mut before: Counts = [0; STREAMS];
                let mut records = 0;
                for _ in 0..launches / STREAMS {
                    match random.random_range(0..8) {
                        0 | 1 => {
                            // Two events in turn: re-recording must not change what others saw.
                            let event = 100 * this as u64 + records % 2;
                            records += 1;
                            // Nobody waits for an event while it is recorded anew, or what they would
                            // wait for would be chance.
                            let mut sent = mailbox[this].lock().unwrap();
                            gpu.ordering.record_event(event, stream).unwrap();
                            *sent = Some(Recorded { event, before });
                        }
                        2 | 3 => {
                            let other = random.random_range(0..STREAMS);
                            let sent = mailbox[other].lock().unwrap();
                            if let Some(recorded) = *sent {
                                gpu.ordering.wait_event(stream, recorded.event).unwrap();
                                for (own, of) in before.iter_mut().zip(recorded.before) {
                                    *own = of.max(*own);
                                }
                                edges.fetch_add(1, Relaxed);
                            }
                        }
                        4 => {
                            let info = LaunchInfo::default();
                            drop(gpu.ordering.begin_launch(stream, &info).unwrap());
                        }
                        _ => {}
                    }
                    let info = LaunchInfo {
                        kernel: 1,
                        grid: [1, 1, 1],
                        ..LaunchInfo::default()
                    };
                    let mut launch = gpu.ordering.begin_launch(stream, &info).unwrap();
                    let given = (launch.table(), launch.index());
                    let descriptor: LaunchDescriptor = gpu.descriptor(given);
                    for (bank, count) in banks.iter().zip(before) {
                        let expected = if count == 0 { 0 } else { count + 1 };
                        if gpu.knows(&descriptor, *bank) != expected {
                            wrong.fetch_add(1, Relaxed);
                        }
                    }
                    gpu.kernel(GPU, given, &[&[]])();
                    launch.finish(true).unwrap();
                    before[this] += 1;
                }
            });
        }
    });
    assert_eq!(
        wrong.load(Relaxed),
        0,
        "frontiers that were not as expected"
    );
    let counts = gpu.ordering.counts();
    assert_eq!(counts.launches as usize, launches / STREAMS * STREAMS);
    assert_eq!(counts.unchecked, 0);
    assert!(edges.load(Relaxed) as usize > launches / 20);
}

#[test]
fn eight_threads_on_eight_streams_lose_and_invent_no_edge() {
    every_edge_is_there_and_no_other(100_000);
}

#[test]
fn many_threads_launch_on_one_stream() {
    let gpu = &Gpu::new();
    let stream = gpu.open(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..500 {
                    let info = LaunchInfo {
                        grid: [1, 1, 1],
                        ..LaunchInfo::default()
                    };
                    let mut launch = gpu.ordering.begin_launch(stream, &info).unwrap();
                    let what = [crate::gpu::Do::Write(0), crate::gpu::Do::Read(1)];
                    gpu.enqueue(stream, (launch.table(), launch.index()), &[&what]);
                    launch.finish(true).unwrap();
                }
            });
        }
    });
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().launches, 2000);
}
