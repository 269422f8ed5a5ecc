//! The device library on a GPU, without Python: small kernels in CUDA C++ whose races are known. Without
//! a driver each test says so and passes.
//!
//! Each test has a time limit of its own, after which the process is ended: a GPU that does not
//! answer must not hang those who wait for the result.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod clusters;
mod device;
mod halt;
mod kernels;
mod runtime;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cases::{Case, Size};
use device::Gpu;
use gsan_core::address::Records;
use gsan_core::layout::RaceEntry;
use gsan_device::{StateMemory, Variant};
use gsan_vmm::backend::cuda::CudaBackend;
use kernels::Module;

/// Runs `test` on a GPU with each variant that keeps the state of a CTA in `memory`, or says why it
/// does not.
fn on_gpu(memory: StateMemory, module: Module, limit: Duration, mut test: impl FnMut(&mut Gpu)) {
    let backend = match CudaBackend::new() {
        Ok(backend) => Arc::new(backend),
        Err(error) => return println!("skipped: {error}"),
    };
    let (done, watch) = channel::<()>();
    std::thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test has run for {} s: ending it", limit.as_secs());
            std::process::abort();
        }
    });
    for records in [Records::Four, Records::Two] {
        let ptx = match module.ptx(Variant::new(memory, records)) {
            Ok(ptx) => ptx,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut gpu = Gpu::new(&backend, module, &ptx, records);
        println!(
            "{records:?} records (loaded in {:.1} s)",
            gpu.loading().as_secs_f32()
        );
        test(&mut gpu);
    }
    drop(done);
}

/// Runs each case once.
fn agree(gpu: &mut Gpu, cases: &[Case]) {
    let mut failures = Vec::new();
    for case in cases {
        let found = gpu.run(case);
        failures.extend(case.judge(&found).err());
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    println!("{} cases as expected", cases.len());
}

const SHARED: StateMemory = StateMemory::Shared;
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn accesses_of_every_kind() {
    on_gpu(SHARED, Module::Pairs, 2 * MINUTE, |gpu| {
        agree(gpu, &cases::kinds())
    });
}

#[test]
fn messages_of_every_form_order_and_scope() {
    on_gpu(SHARED, Module::Pairs, 2 * MINUTE, |gpu| {
        agree(gpu, &cases::messages())
    });
}

#[test]
fn the_state_of_a_cta_may_lie_in_the_state_region() {
    on_gpu(StateMemory::BySm, Module::Pairs, 2 * MINUTE, |gpu| {
        // One CTA runs on an SM at a time.
        gpu.take_all_shared_memory("pair");
        agree(gpu, &cases::kinds());
        agree(gpu, &cases::messages());
    });
}

#[test]
fn clusters_that_meet() {
    on_gpu(SHARED, Module::Clusters, 2 * MINUTE, |gpu| {
        for size in [2, 4, 8] {
            for told in [true, false] {
                agree(gpu, &[clusters::cluster_rounds(size, 16, 100, told)]);
            }
        }
        gpu.allow_large_clusters("cluster_rounds");
        agree(gpu, &[clusters::cluster_rounds(16, 2, 100, true)]);
    });
}

#[test]
fn a_hundred_thousand_barriers_of_a_cluster_are_clean() {
    on_gpu(SHARED, Module::Clusters, 4 * MINUTE, |gpu| {
        for (size, clusters) in [(2, 1), (4, 8)] {
            // Two barriers a round.
            let start = Instant::now();
            agree(
                gpu,
                &[clusters::cluster_rounds(size, clusters, 50_000, true)],
            );
            println!(
                "{clusters} clusters of {size}: {:.1} s",
                start.elapsed().as_secs_f32()
            );
        }
    });
}

#[test]
fn mbarriers_handed_round() {
    on_gpu(SHARED, Module::Clusters, 4 * MINUTE, |gpu| {
        for publishes in [true, false] {
            agree(gpu, &[cases::mbarrier_ring(4, 100, publishes)]);
        }
        agree(gpu, &[cases::mbarrier_ring(2, 50_000, true)]);
    });
}

#[test]
fn copies_of_boxes() {
    on_gpu(SHARED, Module::Clusters, MINUTE, |gpu| {
        agree(gpu, &cases::boxes())
    });
}

#[test]
fn neighbours_in_a_granule() {
    on_gpu(SHARED, Module::Pairs, MINUTE, |gpu| {
        agree(gpu, &cases::neighbours())
    });
}

#[test]
fn what_a_stranger_may_do() {
    on_gpu(SHARED, Module::Edges, 2 * MINUTE, |gpu| {
        agree(gpu, &cases::edges())
    });
}

#[test]
fn launches_on_one_stream_and_on_two() {
    on_gpu(SHARED, Module::Pairs, MINUTE, |gpu| {
        agree(gpu, &cases::streams())
    });
}

#[test]
fn two_ctas_of_one_sm_at_once() {
    on_gpu(SHARED, Module::Pairs, MINUTE, |gpu| {
        for own in [true, false] {
            let case = cases::same_sm(gpu.sms(), 8, true, own);
            let found = gpu.run(&case);
            case.judge(&found).unwrap();
            let sms = gpu.sms() as u16;
            for race in &found.races {
                let [earlier, later] = [race.earlier.thread, race.later.thread];
                assert_eq!(earlier % sms, later % sms, "one SM: {race:?}");
            }
            // One that starts when another has exited may get its slot.
            let two_slots = |race: &RaceEntry| race.earlier.thread != race.later.thread;
            assert!(own || found.races.iter().any(two_slots), "all of one slot");
        }
    });
}

#[test]
fn two_ctas_of_one_sm_one_after_the_other() {
    on_gpu(SHARED, Module::Pairs, MINUTE, |gpu| {
        for own in [true, false] {
            let case = cases::same_sm(gpu.sms(), 2, false, own);
            // With all the shared memory of an SM.
            gpu.take_all_shared_memory(case.launches[0].kernel);
            let found = gpu.run(&case);
            case.judge(&found).unwrap();
            for race in &found.races {
                assert_eq!(race.earlier.thread, race.later.thread, "one slot: {race:?}");
            }
        }
    });
}

const RUNS: u32 = 100;
const SIZE: Size = Size {
    ctas: 64,
    rounds: 4,
};

#[test]
fn correct_protocols_are_clean() {
    on_gpu(SHARED, Module::Protocols, 3 * MINUTE, |gpu| {
        for protocol in cases::protocols(SIZE) {
            for run in 0..RUNS {
                let found = gpu.run_after(run, &protocol.correct);
                let judged = protocol.correct.judge(&found);
                judged.unwrap_or_else(|error| panic!("run {run}: {error}"));
            }
            println!("{}: clean in {RUNS} runs", protocol.correct.name);
        }
    });
}

#[test]
fn protocols_without_one_edge_are_found() {
    on_gpu(SHARED, Module::Protocols, 3 * MINUTE, |gpu| {
        for protocol in cases::protocols(SIZE) {
            let mut failures = Vec::new();
            for run in 0..RUNS {
                let found = gpu.run_after(run, &protocol.broken);
                failures.extend(protocol.broken.judge(&found).err());
            }
            let count = RUNS - failures.len() as u32;
            println!("{}: found in {count} of {RUNS} runs", protocol.broken.name);
            assert!(count >= 99, "{}", failures.join("\n"));
        }
    });
}

#[test]
fn a_million_releases_are_clean() {
    on_gpu(SHARED, Module::Protocols, 4 * MINUTE, |gpu| {
        let count = 1_000_000;
        let case = cases::releases(count);
        let start = Instant::now();
        let found = gpu.run(&case);
        let each = start.elapsed() / count;
        println!("{each:?} a release");
        case.judge(&found).unwrap();
    });
}

/// Bare and checked, 2^24 floats, 1,024 elements and 128 threads a CTA.
#[test]
fn vector_add() {
    on_gpu(SHARED, Module::VectorAdd, 2 * MINUTE, |gpu| {
        const ELEMENTS: u32 = 1 << 24;
        let checked = cases::vector_add(ELEMENTS);
        let bare = gpu.time(&cases::bare(&checked), 20);
        // The first run fills empty cells, the others find their predecessor's records.
        let first = gpu.time(&checked, 1);
        let later = gpu.time(&checked, 20);
        let found = gpu.run(&checked);
        checked.judge(&found).unwrap();
        let ratio = later / bare;
        println!(
            "bare {:.1} us, checked {:.1} us (the first run {:.1}): ratio {ratio:.2}",
            1e3 * bare,
            1e3 * later,
            1e3 * first
        );
        assert_eq!(found.losses(), [], "something was not checked");
        assert_eq!(gpu.accesses() % u64::from(3 * ELEMENTS / 2), 0);
    });
}
