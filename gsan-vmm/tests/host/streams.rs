//! Streams of the host backend, pinned memory, views, and what a restart zeroes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::{HostBackend, HostOptions, Stepped};
use gsan_vmm::backend::{Backend, Device, Failure, FenceId, Stream};
use gsan_vmm::{Allocator, Options};

const GPU: Device = Device(0);
const A: Stream = Stream::host(1);
const B: Stream = Stream::host(2);

fn backend() -> Arc<HostBackend> {
    Arc::new(HostBackend::new(HostOptions::default()).unwrap())
}

/// Work that notes `what` when it runs.
fn note(notes: &Arc<Mutex<Vec<u32>>>, what: u32) -> impl FnOnce() + Send + 'static {
    let notes = Arc::clone(notes);
    move || notes.lock().unwrap().push(what)
}

#[test]
fn work_runs_at_once_and_held_work_runs_step_by_step() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    backend.enqueue(GPU, A, note(&notes, 1)).unwrap();
    assert_eq!(*notes.lock().unwrap(), [1]);
    backend.hold(true);
    backend.enqueue(GPU, A, note(&notes, 2)).unwrap();
    backend.enqueue(GPU, A, note(&notes, 3)).unwrap();
    let fence = backend.fence(GPU, A).unwrap();
    assert_eq!(backend.step(GPU, A), Ok(Stepped::Ran));
    assert_eq!(*notes.lock().unwrap(), [1, 2]);
    assert_eq!(backend.passed(fence), Ok(false));
    backend.hold(false);
    assert_eq!(*notes.lock().unwrap(), [1, 2, 3]);
    assert_eq!(backend.passed(fence), Ok(true));
    assert_eq!(backend.step(GPU, A), Ok(Stepped::Empty));
    backend.forget(fence);
}

#[test]
fn a_stream_waits_for_a_fence_of_another_one() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    backend.hold(true);
    backend.enqueue(GPU, A, note(&notes, 1)).unwrap();
    let fence = backend.fence(GPU, A).unwrap();
    backend.wait_on(GPU, B, fence).unwrap();
    backend.enqueue(GPU, B, note(&notes, 2)).unwrap();
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Waits));
    backend.forget(fence);
    assert_eq!(backend.step(GPU, A), Ok(Stepped::Ran));
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Ran));
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Ran));
    assert_eq!(*notes.lock().unwrap(), [1, 2]);
    let unknown = backend.wait_on(GPU, B, FenceId(99)).unwrap_err();
    assert_eq!(unknown.failure, Failure::NoSuchHandle);
}

#[test]
fn streams_that_wait_for_each_other_run_on_many_threads() {
    let backend = backend();
    let count = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for stream in 1..5 {
            let (backend, count) = (&backend, &count);
            scope.spawn(move || {
                for _ in 0..500 {
                    let fence = backend.fence(GPU, Stream::host(stream % 4 + 1)).unwrap();
                    backend.wait_on(GPU, Stream::host(stream), fence).unwrap();
                    backend.forget(fence);
                    let count = Arc::clone(count);
                    let work = move || {
                        count.fetch_add(1, Relaxed);
                    };
                    backend.enqueue(GPU, Stream::host(stream), work).unwrap();
                }
            });
        }
    });
    backend.run_all();
    backend.synchronize(GPU).unwrap();
    assert_eq!(count.load(Relaxed), 2000);
}

#[test]
fn the_own_stream_is_never_held_and_fills_in_order() {
    let backend = backend();
    let allocator = Allocator::new(
        Arc::clone(&backend) as Arc<dyn Backend>,
        Options {
            reserve: 1 << 30,
            ..Options::default()
        },
    )
    .unwrap();
    let address = allocator.create_state(DeviceRank(2), GPU, 4096).unwrap();
    let bytes = backend.granularity();
    assert_eq!(allocator.state(DeviceRank(2)), Some((address, bytes)));
    assert_eq!(allocator.state(DeviceRank(1)), None);
    let view = backend.view(address, bytes).unwrap();
    backend.hold(true);
    let own = backend.own_stream(GPU).unwrap();
    backend.fill_on(GPU, own, address, 64, 0xff).unwrap();
    assert_eq!(view.words32()[15].load(Relaxed), u32::MAX);
    backend.fill_on(GPU, A, address, 4, 0).unwrap();
    assert_eq!(view.words64()[0].load(Relaxed), u64::MAX);
    backend.step(GPU, A).unwrap();
    assert_eq!(view.words64()[0].load(Relaxed), u64::from(u32::MAX) << 32);
    allocator.clear_state(DeviceRank(2), GPU, 8, 56).unwrap();
    assert_eq!(view.words64()[1].load(Relaxed), 0);
    let outside = allocator.clear_state(DeviceRank(2), GPU, bytes, 1);
    assert!(
        outside
            .unwrap_err()
            .to_string()
            .contains("are not all in it")
    );
    allocator.release_state(DeviceRank(2)).unwrap();
    // A view outlives the mapping it was made of.
    assert_ne!(view.words64()[0].load(Relaxed), 0);
}

#[test]
fn shadow_is_cleared_for_all_live_allocations() {
    let backend = backend();
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
    let addresses: Vec<u64> = (0..3)
        .map(|_| allocator.allocate(5 << 20, GPU).unwrap())
        .collect();
    let shadows: Vec<u64> = addresses
        .iter()
        .map(|&address| allocator.space().shadow(address))
        .collect();
    for &shadow in &shadows {
        backend.write(GPU, shadow + (20 << 20), &[7]).unwrap();
    }
    allocator.free(addresses[1], None, A).unwrap();
    allocator.clear_shadow().unwrap();
    for shadow in [shadows[0], shadows[2]] {
        let mut byte = [1];
        backend.read(GPU, shadow + (20 << 20), &mut byte).unwrap();
        assert_eq!(byte, [0]);
    }
}

/// Zeroes would say that nothing was written. Without addresses of its own, the memory is checked as any
/// other.
#[test]
fn shadow_of_write_once_memory_becomes_ones() {
    for write_once in [true, false] {
        let backend = backend();
        let options = Options {
            reserve: 1 << 30,
            write_once,
            ..Options::default()
        };
        let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
        let address = allocator.allocate_write_once(5 << 20, GPU).unwrap();
        allocator.clear_shadow().unwrap();
        for at in [0, 19 << 20] {
            let mut bytes = [1; 32];
            let shadow = allocator.space().shadow(address) + at;
            backend.read(GPU, shadow, &mut bytes).unwrap();
            assert_eq!(bytes, [if write_once { u8::MAX } else { 0 }; 32]);
        }
    }
}

#[test]
fn pinned_memory_is_zeroed_lines_at_their_address() {
    let pinned = backend().pin(65_537).unwrap();
    assert!(pinned.bytes() >= 65_537);
    assert_eq!(pinned.address() % 4096, 0);
    pinned.word(17).store(5, Relaxed);
    assert_eq!(pinned.line(1)[1].load(Relaxed), 5);
    assert_eq!(pinned.line(0)[0].load(Relaxed), 0);
    let last = pinned.bytes() as usize / 128 - 1;
    pinned.line(last)[15].store(6, Relaxed);
    assert_eq!(pinned.word(16 * last + 15).load(Relaxed), 6);
}

#[test]
fn held_streams_stay_held_whatever_the_own_stream_does() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    let own = backend.own_stream(GPU).unwrap();
    backend.hold(true);
    backend.enqueue(GPU, A, note(&notes, 1)).unwrap();
    let fence = backend.fence(GPU, A).unwrap();
    backend.wait_on(GPU, B, fence).unwrap();
    backend.enqueue(GPU, B, note(&notes, 2)).unwrap();
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Waits));
    assert_eq!(backend.step(GPU, A), Ok(Stepped::Ran));
    backend.enqueue(GPU, own, note(&notes, 3)).unwrap();
    assert_eq!(*notes.lock().unwrap(), [1, 3]);
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Ran));
    assert_eq!(backend.step(GPU, B), Ok(Stepped::Ran));
    assert_eq!(*notes.lock().unwrap(), [1, 3, 2]);
    backend.forget(fence);
}

#[test]
fn the_own_stream_goes_on_when_what_it_waits_for_is_stepped_through() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    let own = backend.own_stream(GPU).unwrap();
    backend.hold(true);
    backend.enqueue(GPU, A, note(&notes, 1)).unwrap();
    let fence = backend.fence(GPU, A).unwrap();
    backend.wait_on(GPU, own, fence).unwrap();
    backend.enqueue(GPU, own, note(&notes, 2)).unwrap();
    assert!(notes.lock().unwrap().is_empty());
    assert_eq!(backend.step(GPU, A), Ok(Stepped::Ran));
    assert_eq!(*notes.lock().unwrap(), [1, 2]);
    backend.forget(fence);
}

#[test]
fn a_stream_goes_on_when_work_that_is_only_counted_is_done() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    backend.work_submitted(GPU, A);
    let fence = backend.fence(GPU, A).unwrap();
    backend.wait_on(GPU, B, fence).unwrap();
    backend.enqueue(GPU, B, note(&notes, 1)).unwrap();
    assert!(notes.lock().unwrap().is_empty());
    backend.work_done(GPU, A);
    assert_eq!(*notes.lock().unwrap(), [1]);
    backend.forget(fence);
}

#[test]
fn work_that_panics_does_not_hold_up_its_stream() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    let panicking = {
        let backend = Arc::clone(&backend);
        std::thread::spawn(move || backend.enqueue(GPU, A, || panic!("this work panics")))
    };
    assert!(panicking.join().is_err());
    backend.enqueue(GPU, A, note(&notes, 1)).unwrap();
    assert_eq!(*notes.lock().unwrap(), [1]);
    backend.synchronize(GPU).unwrap();
}

#[test]
fn stepping_a_stream_that_is_not_held_leaves_nothing_behind() {
    let (backend, notes) = (backend(), Arc::<Mutex<Vec<u32>>>::default());
    for round in 0..200 {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        backend.enqueue(GPU, A, note(&notes, round)).unwrap();
                        backend.step(GPU, A).unwrap();
                    }
                });
            }
        });
        assert_eq!(notes.lock().unwrap().len(), 10 * (round as usize + 1));
    }
}
