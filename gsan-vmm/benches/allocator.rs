//! What the allocator itself costs: a backend that does nothing stands in for the driver.
//!
//! Times are of the process's processor, so that they count the thread that gives memory back and
//! do not count other programs.

#[path = "../tests/host/null.rs"]
mod null;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gsan_vmm::backend::{Device, Stream};
use gsan_vmm::buddy::BuddyTree;
use gsan_vmm::{Allocator, Options};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::ClockId;

const LIVE: [usize; 3] = [10, 1_000, 100_000];
const GPU: Device = Device(0);
const UNIT: u64 = 2 << 20;

/// Sizes of 1 to 4 units in turn.
fn size(number: usize) -> u64 {
    UNIT * (1 + number as u64 % 4)
}

/// Runs `routine` as often as it is told, and returns the processor time that took.
fn processor_time(mut routine: impl FnMut()) -> impl FnMut(u64) -> Duration {
    let now = || {
        let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    move |iterations| {
        let start = now();
        for _ in 0..iterations {
            routine();
        }
        now() - start
    }
}

/// Frees and allocates one of `live` in turn: a random one, as an order would suit the caches.
/// Everything has been replaced once before the first is timed, so that neighbours in the tree
/// are strangers in time.
fn churn(live: usize, mut replace: impl FnMut(usize, usize)) -> impl FnMut() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut number = 0;
    let mut step = move || {
        number += 1;
        replace(random.random_range(0..live), number);
    };
    for _ in 0..2 * live {
        step();
    }
    step
}

/// One allocation and one free, among as many live allocations.
fn allocator(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocate and free");
    for live in LIVE {
        let driver = Arc::new(null::Null::new());
        let allocator = Allocator::new(driver, Options::default()).expect("nothing is refused");
        let allocate = |number| {
            allocator
                .allocate(size(number), GPU)
                .expect("there is room")
        };
        let mut addresses: Vec<u64> = (0..live).map(allocate).collect();
        let mut step = churn(live, |victim, number| {
            let freed = allocator.free(addresses[victim], None, Stream::DEFAULT);
            freed.expect("it is live");
            addresses[victim] = black_box(allocate(number));
        });
        group.bench_function(BenchmarkId::from_parameter(live), |bencher| {
            bencher.iter_custom(processor_time(&mut step));
        });
    }
    group.finish();
}

/// The same for the tree alone: no locks, no thread that gives memory back.
fn tree(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree: find, give back and take");
    for live in LIVE {
        let mut tree = BuddyTree::new(1 << 40, UNIT).expect("both are powers of two");
        let mut offsets: Vec<u64> = Vec::new();
        for number in 0..live {
            let (block, _) = tree.take(size(number), ()).expect("there is room");
            offsets.push(block.offset);
        }
        let mut step = churn(live, |victim, number| {
            let (_, key) = tree.find(offsets[victim]).expect("it is taken");
            tree.give_back(key).expect("it is taken");
            let (block, _) = tree.take(size(number), ()).expect("there is room");
            offsets[victim] = black_box(block).offset;
        });
        group.bench_function(BenchmarkId::from_parameter(live), |bencher| {
            bencher.iter_custom(processor_time(&mut step));
        });
    }
    group.finish();
}

criterion_group!(benches, allocator, tree);
criterion_main!(benches);
