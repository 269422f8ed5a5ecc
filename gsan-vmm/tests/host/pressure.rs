//! Everything at its limit: memory, addresses, descriptors, mappings, sizes, and a fork.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Failure, Stream};
use gsan_vmm::{Allocator, Error, STATE_STRIDE};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Resource, setrlimit};

use super::faulty::Faulty;
use super::hostile::{alone, leave_descriptors};
use super::{GPU, PAGE, allocator, options, pages};

const THREADS: u64 = 4;

/// Each of a few threads has one allocation at a time, of a page.
fn take_turns(allocator: &Allocator) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for _ in 0..2000 {
                    let address = allocator.allocate(PAGE, GPU).unwrap();
                    assert!(allocator.find(address).unwrap().managed);
                    allocator.free(address, None, Stream::host(thread)).unwrap();
                }
            });
        }
    });
    allocator.flush();
    assert!(allocator.is_empty());
}

#[test]
fn threads_that_need_no_more_memory_than_there_is_get_it() {
    take_turns(&allocator(&pages(1, THREADS * 5 * PAGE), 1 << 30));
}

#[test]
fn threads_that_need_no_more_addresses_than_there_are_get_them() {
    let reserve = THREADS * 8 * PAGE;
    take_turns(&allocator(&pages(1, 1 << 30), reserve));
}

#[test]
fn every_size_at_a_boundary_is_an_allocation_or_an_error() {
    let reserve = 64 * PAGE;
    for memory in [1 << 20, u64::MAX] {
        let backend = pages(1, memory);
        let allocator = allocator(&backend, reserve);
        let usable = allocator.space().usable();
        let limits = [
            PAGE,
            usable,
            reserve,
            1 << 40,
            1 << 47,
            1 << 62,
            1 << 63,
            u64::MAX,
        ];
        let around = limits.map(|limit| [limit - 1, limit, limit.saturating_add(1)]);
        for bytes in [1, 2].into_iter().chain(around.into_iter().flatten()) {
            let Ok(address) = allocator.allocate(bytes, GPU) else {
                assert!(bytes > usable, "{bytes}");
                continue;
            };
            let found = allocator.find(address + bytes - 1).unwrap();
            assert_eq!((found.address, found.bytes), (address, bytes));
            assert_eq!(found.managed, bytes <= usable, "{bytes}");
            assert_eq!(allocator.find(address + bytes), None);
            assert_eq!(allocator.find(address.wrapping_sub(1)), None);
            let given = Some((bytes, GPU));
            allocator.free(address, given, Stream::DEFAULT).unwrap();
            assert!(allocator.free(address, given, Stream::DEFAULT).is_err());
            allocator.flush();
        }
        assert!(allocator.is_empty());
        assert_eq!(backend.free_memory(GPU).unwrap().free, memory);
    }
}

#[test]
fn foreign_pointers_are_told() {
    let allocator = allocator(&pages(1, 1 << 30), 1 << 30);
    let live = allocator.allocate(PAGE, GPU).unwrap();
    let space = allocator.space();
    let (start, end) = (space.base(), space.base() + space.reserve());
    let shadow = space.shadow(live);
    let local = &raw const start as u64;
    let state = allocator.create_state(DeviceRank(0), GPU, PAGE).unwrap();
    let foreign = [
        1,
        7,
        start - 1,
        start,
        shadow,
        live + PAGE,
        end - 1,
        end,
        local,
        state,
    ];
    for address in foreign.into_iter().chain([1 << 47, 1 << 63, u64::MAX]) {
        assert_eq!(allocator.find(address), None, "{address:#x}");
        let not_live = Err(Error::NotLive { address });
        assert_eq!(allocator.free(address, None, Stream::DEFAULT), not_live);
        assert_eq!(allocator.export(address).map(drop), not_live);
    }
    assert_eq!(allocator.live().len(), 1);
}

#[test]
fn a_process_out_of_descriptors_is_told_so_and_goes_on_when_it_has_freed_some() {
    if !alone(
        "pressure::a_process_out_of_descriptors_is_told_so_and_goes_on_when_it_has_freed_some",
    ) {
        return;
    }
    let backend = pages(1, 1 << 30);
    let allocator = allocator(&backend, 1 << 30);
    let old = leave_descriptors(20);
    let mut addresses = Vec::new();
    let error = loop {
        match allocator.allocate(PAGE, GPU) {
            Ok(address) => addresses.push(address),
            Err(error) => break error.to_string(),
        }
    };
    assert!(addresses.len() >= 10, "{}", addresses.len());
    assert!(error.contains("too many open files"), "{error}");
    assert!(error.contains("ulimit -n"), "{error}");
    for round in 0..3 {
        let address = addresses.pop().unwrap();
        allocator.free(address, None, Stream::DEFAULT).unwrap();
        assert!(allocator.allocate(PAGE, GPU).is_ok(), "{round}");
    }
    drop(allocator);
    assert_eq!(backend.free_memory(GPU).unwrap().free, 1 << 30);
    setrlimit(Resource::Nofile, old).unwrap();
}

#[test]
fn a_process_out_of_mappings_gives_memory_back_when_it_has_some_again() {
    if !alone("pressure::a_process_out_of_mappings_gives_memory_back_when_it_has_some_again") {
        return;
    }
    let backend = pages(1, 1 << 30);
    let allocator = allocator(&backend, 1 << 30);
    let addresses: Vec<u64> = (0..20)
        .map(|_| allocator.allocate(PAGE, GPU).unwrap())
        .collect();
    let mut views = Vec::with_capacity(1 << 20);
    let error = loop {
        match backend.view(addresses[0], PAGE) {
            Ok(view) => views.push(view),
            Err(error) => break error,
        }
        if views.len() == 1 << 20 {
            // This system has no limit to speak of.
            return;
        }
    };
    assert_eq!(error.failure, Failure::OutOfMemory);
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    let refused = allocator.allocate(PAGE, GPU);
    for address in addresses.into_iter().chain(refused) {
        allocator.free(address, None, Stream::DEFAULT).unwrap();
    }
    allocator.flush();
    // Unmapping may take a mapping, too. What cannot be unmapped now is not lost.
    drop(views);
    allocator.flush();
    assert!(allocator.is_empty(), "{:?}", allocator.usage());
    drop(allocator);
    assert_eq!(backend.free_memory(GPU).unwrap().free, 1 << 30);
}

#[test]
fn an_allocator_ends_in_a_forked_process_too() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(code: i32) -> !;
    }
    let backend = pages(1, 1 << 30);
    let allocator = allocator(&backend, 1 << 30);
    let kept = allocator.allocate(PAGE, GPU).unwrap();
    backend.write(GPU, kept, &[7; 8]).unwrap();
    allocator.flush();
    // The worker has gone to sleep, and holds no lock.
    std::thread::sleep(Duration::from_millis(200));
    // SAFETY: the new process calls nothing but what is under test, and ends.
    let child = unsafe { fork() };
    if child == 0 {
        allocator.flush();
        drop(allocator);
        // SAFETY: it ends the process.
        unsafe { _exit(0) };
    }
    let child = rustix::process::Pid::from_raw(child).unwrap();
    let deadline = Instant::now() + Duration::from_secs(15);
    let options = rustix::process::WaitOptions::NOHANG;
    let ended = loop {
        match rustix::process::waitpid(Some(child), options).unwrap() {
            Some((_, status)) => break status.exit_status(),
            None if Instant::now() > deadline => {
                rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(ended, Some(0));
    // Nothing has changed here.
    let mut bytes = [0; 8];
    backend.read(GPU, kept, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 8]);
}

#[test]
fn units_and_sizes_that_no_machine_has_are_refused() {
    for granularity in [1 << 40, 1 << 61, 1 << 63] {
        let backend = HostBackend::new(HostOptions {
            granularity,
            ..HostOptions::default()
        });
        let backend = Arc::new(backend.unwrap()) as Arc<dyn Backend>;
        let refused = Allocator::new(backend, options(1 << 30)).map(drop);
        assert!(
            matches!(refused, Err(Error::ReserveTooSmall { .. })),
            "{refused:?}"
        );
    }
    let backend = pages(1, 1 << 30);
    for bytes in [1 << 50, 1 << 63, u64::MAX] {
        let refused = backend.pin(bytes).unwrap_err();
        assert_eq!(refused.failure, Failure::OutOfMemory, "{refused}");
    }
}

#[test]
fn ranges_of_a_state_that_are_none_are_told() {
    let allocator = allocator(&pages(1, 1 << 30), 1 << 30);
    let rank = DeviceRank(3);
    let empty = allocator.create_state(rank, GPU, 0).unwrap_err();
    assert_eq!(
        empty.to_string(),
        "a runtime state must have at least 1 byte"
    );
    allocator.create_state(rank, GPU, PAGE).unwrap();
    for (offset, bytes) in [(PAGE, 1), (0, PAGE + 1), (u64::MAX, 1), (1, u64::MAX)] {
        let outside = allocator.clear_state(rank, GPU, offset, bytes).unwrap_err();
        assert_eq!(
            outside.to_string(),
            format!(
                "{bytes} bytes {offset} bytes into the runtime state of device rank 3 are not \
                 all in it: it has {PAGE}"
            )
        );
    }
    assert_eq!(allocator.clear_state(rank, GPU, PAGE, 0), Ok(()));
    assert!(
        allocator
            .create_state(DeviceRank(4), GPU, STATE_STRIDE + 1)
            .is_err()
    );
}

#[test]
fn faults_while_many_threads_do_everything_lose_nothing() {
    let backend = Arc::new(Faulty::new(
        HostBackend::new(HostOptions {
            devices: 1,
            memory: 400 * PAGE,
            granularity: PAGE,
        })
        .unwrap(),
    ));
    let allocator = allocator(&backend, 64 * 8 * PAGE);
    let working = AtomicUsize::new(THREADS as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            while working.load(Relaxed) > 0 {
                backend.fail(random.random_range(0..20), random.random_range(1..4));
                std::thread::sleep(Duration::from_micros(50));
            }
            backend.fail(0, 0);
        });
        for thread in 0..THREADS {
            let (allocator, working) = (&allocator, &working);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(thread + 2);
                let mut own: Vec<(u64, u64)> = Vec::new();
                for _ in 0..1500 {
                    match random.random_range(0..8) {
                        0..3 => {
                            let bytes = random.random_range(1..4 * PAGE);
                            let address = allocator.allocate(bytes, GPU);
                            own.extend(address.ok().map(|address| (address, bytes)));
                        }
                        3 => {
                            let Some(&(address, bytes)) = own.last() else {
                                continue;
                            };
                            let shared = allocator.export(address + bytes - 1);
                            let import = shared.and_then(|(it, _)| allocator.import(it, GPU));
                            own.extend(import.ok().map(|import| (import, bytes)));
                        }
                        4..6 if !own.is_empty() => {
                            let (address, bytes) =
                                own.swap_remove(random.random_range(0..own.len()));
                            let stream = Stream::host(thread);
                            let given = Some((bytes, GPU));
                            allocator.free(address, given, stream).unwrap();
                        }
                        6 => {
                            let rank = DeviceRank(random.random_range(0..3));
                            let _ = allocator.create_state(rank, GPU, PAGE);
                            let _ = allocator.clear_state(rank, GPU, 8, 8);
                            let _ = allocator.release_state(rank);
                        }
                        _ => {
                            let live = allocator.live();
                            for (address, bytes) in &own {
                                let found = allocator.find(address + bytes - 1).unwrap();
                                assert_eq!((found.address, found.bytes), (*address, *bytes));
                                assert!(live.contains(&found));
                            }
                            let _ = allocator.clear_shadow();
                        }
                    }
                }
                for (address, _) in own {
                    allocator.free(address, None, Stream::DEFAULT).unwrap();
                }
                working.fetch_sub(1, Relaxed);
            });
        }
    });
    allocator.flush();
    assert!(allocator.is_empty(), "{:?}", allocator.usage());
    drop(allocator);
    backend.assert_nothing_left();
}
