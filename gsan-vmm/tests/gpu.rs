//! The allocator on a GPU. Without a driver each test says so and passes.
//!
//! Each test has a time limit of its own, after which the process is ended: a GPU that does not
//! answer must not hang those who wait for the result.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstreamCaptureMode_enum as CaptureMode;
use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::{Backend, Device, HandleKind, Stream};
use gsan_vmm::rendezvous::{Group, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};
use gsan_vmm::{Allocator, Bytes, Error, HandleType, Options, STATE_STRIDE};

const GPU: Device = Device(0);
const MIB: u64 = 1 << 20;

/// Runs `test` with at least `devices` GPUs, or says why it does not.
fn on_gpus(devices: usize, limit: Duration, test: impl FnOnce(Arc<CudaBackend>)) {
    let backend = match CudaBackend::new() {
        Ok(backend) => Arc::new(backend),
        Err(error) => return println!("skipped: {error}"),
    };
    let found = backend.devices().len();
    if found < devices {
        return println!("skipped: {devices} GPUs are needed, there is {found}");
    }
    let (done, watch) = channel::<()>();
    std::thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test has run for {} s: ending it", limit.as_secs());
            std::process::abort();
        }
    });
    test(backend);
    drop(done);
}

fn allocator(backend: &Arc<CudaBackend>) -> Allocator {
    Allocator::new(Arc::<CudaBackend>::clone(backend), Options::default()).unwrap()
}

fn bytes_at(backend: &CudaBackend, device: Device, address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; count];
    backend.read(device, address, &mut bytes).unwrap();
    bytes
}

#[test]
fn eight_tebibytes_are_reserved() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let allocator = allocator(&backend);
        let space = allocator.space();
        println!("{} at {:#x}", Bytes(space.reserve()), space.base());
        assert_eq!(space.reserve(), 8 << 40);
        assert_eq!(space.usable(), 1 << 40);
        assert_eq!(backend.granularity(), 2 * MIB);
        assert_eq!(allocator.state_base() % STATE_STRIDE, 0);
    });
}

#[test]
fn shadow_is_zero_and_apart_from_real_memory() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let allocator = allocator(&backend);
        let space = allocator.space();
        let size = 6 * MIB + 8;
        let address = allocator.allocate(size, GPU).unwrap();
        assert!(space.is_managed(address));
        assert!(allocator.find(address).unwrap().managed);
        backend.fill(GPU, address, size, 0xab).unwrap();
        let granules = [address, address + 3 * MIB, address + size - 8];
        for granule in granules {
            assert_eq!(bytes_at(&backend, GPU, space.shadow(granule), 32), [0; 32]);
            assert_eq!(bytes_at(&backend, GPU, granule, 8), [0xab; 8]);
        }
        for (number, granule) in (1..).zip(granules) {
            backend
                .fill(GPU, space.shadow(granule), 32, number)
                .unwrap();
        }
        for (number, granule) in (1..).zip(granules) {
            assert_eq!(
                bytes_at(&backend, GPU, space.shadow(granule), 32),
                [number; 32]
            );
            assert_eq!(bytes_at(&backend, GPU, granule, 8), [0xab; 8]);
        }
        allocator
            .free(address, Some((size, GPU)), Stream::DEFAULT)
            .unwrap();
        allocator.flush();
        assert!(allocator.is_empty());
        // The same addresses again, with fresh shadow.
        let again = allocator.allocate(size, GPU).unwrap();
        assert_eq!(again, address);
        for granule in granules {
            assert_eq!(bytes_at(&backend, GPU, space.shadow(granule), 32), [0; 32]);
        }
    });
}

#[test]
fn runtime_state_is_zero_at_its_rank() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let allocator = allocator(&backend);
        for rank in [0, 31] {
            let address = allocator
                .create_state(DeviceRank(rank), GPU, 300 * MIB)
                .unwrap();
            assert_eq!(
                address,
                allocator.state_base() + u64::from(rank) * STATE_STRIDE
            );
            assert_eq!(
                bytes_at(&backend, GPU, address + 300 * MIB - 64, 64),
                [0; 64]
            );
            backend.fill(GPU, address, 300 * MIB, 7).unwrap();
            assert_eq!(bytes_at(&backend, GPU, address, 64), [7; 64]);
        }
        allocator.release_state(DeviceRank(0)).unwrap();
        assert!(backend.read(GPU, allocator.state_base(), &mut [0]).is_err());
    });
}

#[test]
fn freed_memory_returns_to_the_device() {
    on_gpus(1, Duration::from_secs(120), |backend| {
        let allocator = allocator(&backend);
        let free = || backend.free_memory(GPU).unwrap().free;
        // The driver keeps what its first memset needs.
        let first = allocator.allocate(2 * MIB, GPU).unwrap();
        allocator.free(first, None, Stream::DEFAULT).unwrap();
        allocator.flush();
        let before = free();
        for size in [2 * MIB, 64 * MIB, 1024 * MIB] {
            let rounds: u32 = 20;
            let (mut allocating, mut freeing) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..rounds {
                let start = Instant::now();
                let address = allocator.allocate(size, GPU).unwrap();
                allocating += start.elapsed();
                let start = Instant::now();
                allocator.free(address, None, Stream::DEFAULT).unwrap();
                freeing += start.elapsed();
                allocator.flush();
            }
            println!(
                "{}: allocate {:?}, free {:?} (means of {rounds})",
                Bytes(size),
                allocating / rounds,
                freeing / rounds
            );
        }
        assert!(allocator.is_empty());
        assert_eq!(free(), before);
    });
}

#[test]
fn memory_stays_mapped_until_its_stream_has_passed_the_free() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let allocator = allocator(&backend);
        let context = CudaContext::new(0).unwrap();
        let queue = context.new_stream().unwrap();
        let size = 1024 * MIB;
        let mut work = queue.alloc_zeros::<u8>(8 * size as usize).unwrap();
        let address = allocator.allocate(size, GPU).unwrap();
        // SAFETY: the stream outlives the allocator's use of it: it is dropped after the flush.
        let stream = unsafe { Stream::cuda(queue.cu_stream() as u64) };
        // About a second of work, in so few pieces that the queue takes them all at once.
        for _ in 0..500 {
            queue.memset_zeros(&mut work).unwrap();
        }
        let start = Instant::now();
        allocator.free(address, None, stream).unwrap();
        let freeing = start.elapsed();
        let mapped = backend.read(GPU, address, &mut [0; 8]).is_ok();
        let reading = start.elapsed();
        queue.synchronize().unwrap();
        let waited = start.elapsed();
        println!("free took {freeing:?}, the stream passed it after {waited:?}");
        assert!(
            waited > Duration::from_millis(200),
            "there was too little work to tell"
        );
        assert!(freeing < waited / 10);
        assert!(mapped && reading < waited / 2, "reading took {reading:?}");
        allocator.flush();
        assert!(allocator.is_empty());
        assert!(backend.read(GPU, address, &mut [0; 8]).is_err());
    });
}

#[test]
fn memory_is_handed_out_unmanaged_when_its_shadow_does_not_fit() {
    on_gpus(1, Duration::from_secs(240), |backend| {
        let allocator = allocator(&backend);
        let memory = backend.free_memory(GPU).unwrap();
        let refused = allocator.allocate(memory.total + MIB, GPU).unwrap_err();
        println!("{refused}");
        assert!(matches!(refused, Error::OutOfMemory { device: GPU, .. }));
        // Real and shadow take 5 times the size: the third fits no more, its real part does.
        let size = (memory.free / 12).next_multiple_of(2 * MIB);
        let addresses = [0; 3].map(|_| allocator.allocate(size, GPU).unwrap());
        let managed = addresses.map(|address| allocator.find(address).unwrap().managed);
        assert_eq!(managed, [true, true, false]);
        assert!(!allocator.space().contains(addresses[2]));
        assert_eq!(allocator.usage().unmanaged_bytes, size);
        backend.fill(GPU, addresses[2], size, 1).unwrap();
        // What was freed is waited for before giving up.
        allocator.free(addresses[0], None, Stream::DEFAULT).unwrap();
        let again = allocator.allocate(size, GPU).unwrap();
        assert!(allocator.find(again).unwrap().managed);
    });
}

#[test]
fn a_capture_is_not_disturbed() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let allocator = allocator(&backend);
        let context = CudaContext::new(0).unwrap();
        let queue = context.new_stream().unwrap();
        // SAFETY: the stream outlives the allocator's use of it: it is dropped after the flush.
        let stream = unsafe { Stream::cuda(queue.cu_stream() as u64) };
        let address = allocator.allocate(4 * MIB, GPU).unwrap();
        let mode = CaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        queue.begin_capture(mode).unwrap();
        let inside = allocator.allocate(4 * MIB, GPU).unwrap();
        allocator.free(address, None, stream).unwrap();
        allocator.free(inside, None, Stream::DEFAULT).unwrap();
        // Long enough for the worker to have asked the fences.
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !allocator.is_empty(),
            "it was unmapped during the capture of its stream"
        );
        let flags = cudarc::driver::sys::CUgraphInstantiate_flags_enum::
            CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = queue.end_capture(flags);
        assert!(
            graph.is_ok(),
            "the capture was ended by something of the allocator"
        );
        allocator.flush();
        assert!(allocator.is_empty());
    });
}

#[test]
fn two_devices_reach_each_other() {
    on_gpus(2, Duration::from_secs(120), |backend| {
        let other = Device(1);
        if !backend.reaches(GPU, other) || !backend.reaches(other, GPU) {
            return println!("skipped: the two GPUs have no peer link");
        }
        let allocator = allocator(&backend);
        let space = allocator.space();
        for (owner, user) in [(GPU, other), (other, GPU)] {
            let address = allocator.allocate(4 * MIB, owner).unwrap();
            backend.fill(user, address, 4 * MIB, 0x5a).unwrap();
            assert_eq!(bytes_at(&backend, owner, address, 64), [0x5a; 64]);
            let shadow = space.shadow(address);
            assert_eq!(bytes_at(&backend, user, shadow, 64), [0; 64]);
            backend.fill(owner, shadow, 64, 3).unwrap();
            assert_eq!(bytes_at(&backend, user, shadow, 64), [3; 64]);
            let rank = DeviceRank(owner.0 as u16);
            let state = allocator.create_state(rank, owner, 4 * MIB).unwrap();
            backend.fill(user, state, 64, 9).unwrap();
            assert_eq!(bytes_at(&backend, owner, state, 64), [9; 64]);
        }
    });
}

#[test]
fn fabric_handles() {
    on_gpus(1, Duration::from_secs(60), |backend| {
        let options = Options {
            handle_type: HandleType::Fabric,
            ..Options::default()
        };
        let driver = Arc::<CudaBackend>::clone(&backend);
        let allocator = match Allocator::new(driver, options) {
            Ok(allocator) => allocator,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!(allocator.handle_kind(), HandleKind::Fabric);
        let address = allocator.allocate(4 * MIB, GPU).unwrap();
        backend.fill(GPU, address, 64, 4).unwrap();
        let parcel = allocator.export(address).unwrap().0.into_parcel();
        assert!(parcel.descriptors.is_empty());
        let shared = SharedAllocation::from_parcel(parcel).unwrap();
        let imported = allocator.import(shared, GPU).unwrap();
        assert_eq!(bytes_at(&backend, GPU, imported, 64), [4; 64]);
    });
}

/// Where two processes of one test meet.
const MEETING: &str = "GSAN_TEST_MEETING";

fn group(name: String, rank: u16) -> Group {
    Group {
        name,
        rank,
        ranks: 2,
        hosts: Vec::new(),
        directory: None,
        limit: Duration::from_secs(60),
    }
}

/// Starts this binary again, for the test `name` alone.
fn second_process(name: &str, meeting: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(MEETING, meeting)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_second_process_sees_real_memory_shadow_and_runtime_state() {
    if std::env::var_os(MEETING).is_some() {
        // It is the second process itself.
        return import_in_the_second_process();
    }
    on_gpus(1, Duration::from_secs(120), |backend| {
        let allocator = allocator(&backend);
        let size = 4 * MIB + 16;
        let address = allocator.allocate(size, GPU).unwrap();
        let shadow = allocator.space().shadow(address);
        backend.fill(GPU, address, size, 0x11).unwrap();
        backend.fill(GPU, shadow, 64, 0x22).unwrap();
        let state = allocator.create_state(DeviceRank(0), GPU, 2 * MIB).unwrap();
        backend.fill(GPU, state, 64, 0x33).unwrap();

        let meeting = format!("gpu test {}", std::process::id());
        let name = "a_second_process_sees_real_memory_shadow_and_runtime_state";
        let mut child = second_process(name, &meeting);
        let mut rendezvous = Rendezvous::join(group(meeting, 0)).unwrap();
        let (shared, offset) = allocator.export(address + 100).unwrap();
        assert_eq!(offset, 100);
        rendezvous.exchange(&shared.into_parcel()).unwrap();
        let state_parcel = allocator.export_state(DeviceRank(0)).unwrap().into_parcel();
        rendezvous.exchange(&state_parcel).unwrap();
        // The child has written when it comes to the next exchange.
        rendezvous.exchange(&Parcel::default()).unwrap();
        assert_eq!(bytes_at(&backend, GPU, address + size - 16, 16), [0x44; 16]);
        assert_eq!(bytes_at(&backend, GPU, shadow, 32), [0x55; 32]);
        assert_eq!(bytes_at(&backend, GPU, state, 64), [0x66; 64]);
        assert!(child.wait().unwrap().success());
        // The child has freed its import: the memory is still here.
        assert_eq!(bytes_at(&backend, GPU, address + size - 16, 16), [0x44; 16]);
    });
}

fn import_in_the_second_process() {
    on_gpus(1, Duration::from_secs(120), |backend| {
        let allocator = allocator(&backend);
        let meeting = std::env::var(MEETING).unwrap();
        let mut rendezvous = Rendezvous::join(group(meeting, 1)).unwrap();
        let mut receive = || {
            let parcels = rendezvous.exchange(&Parcel::default()).unwrap();
            parcels.into_iter().next().flatten().unwrap()
        };
        let shared = SharedAllocation::from_parcel(receive()).unwrap();
        let size = shared.bytes;
        let address = allocator.import(shared, GPU).unwrap();
        let shadow = allocator.space().shadow(address);
        assert_eq!(bytes_at(&backend, GPU, address, 64), [0x11; 64]);
        assert_eq!(bytes_at(&backend, GPU, shadow, 64), [0x22; 64]);
        let shared = SharedState::from_parcel(receive()).unwrap();
        let state = allocator.import_state(shared, GPU).unwrap();
        assert_eq!(bytes_at(&backend, GPU, state, 64), [0x33; 64]);
        backend.fill(GPU, address + size - 16, 16, 0x44).unwrap();
        backend.fill(GPU, shadow, 32, 0x55).unwrap();
        backend.fill(GPU, state, 64, 0x66).unwrap();
        receive();
        allocator.free(address, None, Stream::DEFAULT).unwrap();
        allocator.flush();
        assert!(allocator.is_empty());
    });
}
