//! A million operations: nothing grows.

use std::sync::Arc;

use gsan_vmm::Allocator;
use gsan_vmm::backend::{Backend, Stream};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::null::Null;
use super::{GPU, PAGE, allocator, options, pages};

/// The most allocations that are live at once.
const LIVE: usize = 500;

/// Allocates and frees at random, with up to [`LIVE`] live allocations of up to `most` bytes.
fn operate(allocator: &Allocator, random: &mut Xoshiro256PlusPlus, count: usize, most: u64) {
    let mut live: Vec<u64> = Vec::new();
    for operation in 0..count {
        if operation % 1000 == 0 {
            // On a busy machine what waits to be given back would come and go like live memory.
            allocator.flush();
        }
        if live.len() < LIVE && random.random_bool(0.5) || live.is_empty() {
            let bytes = random.random_range(1..=most);
            let address = allocator.allocate(bytes, GPU).unwrap();
            assert!(allocator.space().is_managed(address));
            live.push(address);
        } else {
            let address = live.swap_remove(random.random_range(0..live.len()));
            let stream = Stream::host(random.random_range(0..4));
            allocator.free(address, None, stream).unwrap();
        }
    }
    for address in live {
        allocator.free(address, None, Stream::DEFAULT).unwrap();
    }
    allocator.flush();
    assert!(allocator.is_empty());
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    pages * rustix::param::page_size() as u64
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapped_areas() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// The whole range in one piece.
fn take_everything(allocator: &Allocator) {
    let address = allocator.allocate(allocator.space().usable(), GPU).unwrap();
    assert_eq!(address, allocator.space().real_base());
}

#[test]
fn a_million_operations_leave_nothing() {
    let driver = Arc::new(Null::new()) as Arc<dyn Backend>;
    let allocator = Allocator::new(driver, options(8 << 40)).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    operate(&allocator, &mut random, 100_000, 256 << 20);
    let before = resident();
    operate(&allocator, &mut random, 900_000, 256 << 20);
    let growth = resident().saturating_sub(before);
    assert!(growth < 2 << 20, "the process has grown by {growth} bytes");
    take_everything(&allocator);
}

#[test]
fn operations_on_real_memory_leave_nothing() {
    let long = std::env::var_os("GSAN_LONG").is_some();
    let rounds = if long { 20 } else { 1 };
    let allocator = allocator(&pages(1, 1 << 40), 1 << 32);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    operate(&allocator, &mut random, 10_000, 32 * PAGE);
    let before = (resident(), open_descriptors(), mapped_areas());
    for _ in 0..rounds {
        operate(&allocator, &mut random, 50_000, 32 * PAGE);
    }
    let growth = resident().saturating_sub(before.0);
    assert!(growth < 2 << 20, "the process has grown by {growth} bytes");
    assert_eq!(open_descriptors(), before.1);
    // The heap may be one area more.
    assert!(mapped_areas() <= before.2 + 2);
    take_everything(&allocator);
}
