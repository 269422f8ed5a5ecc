//! What the allocator promises, one promise at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gsan_core::address::{AddressSpaceError, Records};
use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device, HandleKind, SharedHandle, Stream};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};
use gsan_vmm::{Allocator, Error, HandleType, Options, STATE_STRIDE};

use super::faulty::Faulty;
use super::{GPU, PAGE, allocator, options, pages};

const MIB: u64 = 1 << 20;
const NOWHERE: Device = Device(7);

fn read<const N: usize>(backend: &dyn Backend, address: u64) -> [u8; N] {
    let mut bytes = [0xee; N];
    backend.read(GPU, address, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_default_reservation_is_granted_here() {
    let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
    let allocator = Allocator::new(backend, Options::default()).unwrap();
    let space = allocator.space();
    assert_eq!(space.reserve(), 8 << 40);
    let address = allocator.allocate(3 * MIB, GPU).unwrap();
    assert_eq!(address, space.real_base());
    assert_eq!(allocator.state_base() % STATE_STRIDE, 0);
}

#[test]
fn shadow_is_zero_at_first_and_after_reuse() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let space = allocator.space();
    for round in 0..2 {
        let address = allocator.allocate(PAGE + 1, GPU).unwrap();
        assert_eq!(address, space.real_base(), "round {round}");
        let shadow = space.shadow(address + PAGE);
        assert_eq!(read::<32>(&*backend, shadow), [0; 32]);
        backend.write(GPU, shadow, &[1; 32]).unwrap();
        backend.write(GPU, address + PAGE, &[2; 8]).unwrap();
        assert_eq!(read::<8>(&*backend, address + PAGE), [2; 8]);
        allocator
            .free(address, Some((PAGE + 1, GPU)), Stream::DEFAULT)
            .unwrap();
        allocator.flush();
        assert!(allocator.is_empty());
    }
}

#[test]
fn only_the_bytes_asked_for_are_mapped() {
    let backend = Arc::new(Faulty::new(
        HostBackend::new(HostOptions {
            granularity: PAGE,
            ..HostOptions::default()
        })
        .unwrap(),
    ));
    let allocator = allocator(&backend, MIB);
    let space = allocator.space();
    // The range is 8 pages, of which 5 are mapped, and 4 times as many of shadow.
    let address = allocator.allocate(4 * PAGE + 1, GPU).unwrap();
    let expected = [(space.shadow(address), 20 * PAGE), (address, 5 * PAGE)];
    assert_eq!(backend.mappings(), expected.into());
    assert_eq!(allocator.allocate(1, GPU).unwrap(), address + 8 * PAGE);
}

#[test]
fn two_records_need_half_the_shadow() {
    let backend = pages(1, MIB);
    let two = Options {
        records: Records::Two,
        ..options(MIB)
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, two).unwrap();
    assert_eq!(allocator.space().usable(), MIB / 4);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    assert_eq!(backend.free_memory(GPU).unwrap().free, MIB - 3 * PAGE);
    assert_eq!(
        read::<16>(&*backend, allocator.space().shadow(address + PAGE - 1)),
        [0; 16]
    );
}

#[test]
fn zero_bytes_are_null_and_freeing_null_is_nothing() {
    let allocator = allocator(&pages(1, MIB), MIB);
    assert_eq!(allocator.allocate(0, GPU), Ok(0));
    assert_eq!(allocator.free(0, None, Stream::DEFAULT), Ok(()));
    assert_eq!(
        allocator.free(0, Some((5, NOWHERE)), Stream::DEFAULT),
        Ok(())
    );
    assert!(allocator.is_empty());
}

#[test]
fn reservations_that_cannot_be_are_refused() {
    let new = |reserve| {
        let backend = pages(1, MIB) as Arc<dyn Backend>;
        Allocator::new(backend, options(reserve)).map(drop)
    };
    assert_eq!(
        new(3 * MIB),
        Err(Error::BadReserve(AddressSpaceError::BadReserve(3 * MIB)))
    );
    assert_eq!(
        new(0),
        Err(Error::BadReserve(AddressSpaceError::BadReserve(0)))
    );
    let small = new(4 * PAGE).unwrap_err();
    assert_eq!(
        small.to_string(),
        "shadow.reserve = 16 KiB has no room for one unit of memory (4 KiB) and its shadow: \
         it must be at least 32 KiB"
    );
    assert_eq!(new(8 * PAGE), Ok(()));
    // More than the processor can address, and less than that is refused too.
    let huge = new(1 << 63);
    assert_eq!(huge, Ok(()), "smaller ones down to 1 TiB are tried");
}

#[test]
fn a_refused_reservation_is_tried_smaller_down_to_one_tebibyte() {
    let backend = Arc::new(Faulty::new(
        HostBackend::new(HostOptions::default()).unwrap(),
    ));
    let new = || Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, Options::default());
    backend.fail(0, 2);
    let allocator = new().unwrap();
    assert_eq!(allocator.space().reserve(), 2 << 40);
    drop(allocator);
    backend.fail(0, 4);
    let refused = new().map(drop).unwrap_err();
    assert!(matches!(refused, Error::ReserveRefused { smallest, .. } if smallest == 1 << 40));
    assert!(
        refused
            .to_string()
            .starts_with("no 1 TiB of address space could be reserved")
    );
    backend.fail(0, 0);
    backend.assert_nothing_left();
}

#[test]
fn out_of_memory_says_what_was_asked_what_is_free_and_what_to_do() {
    let backend = pages(1, 12 * PAGE);
    let allocator = allocator(&backend, MIB);
    let first = allocator.allocate(2 * PAGE, GPU).unwrap();
    let error = allocator.allocate(3 * PAGE, GPU).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory on device 0: asked for 12 KiB (12288 bytes), 8 KiB of 48 KiB are free, \
         0 bytes wait for their streams; free memory or make the program's batches smaller"
    );
    allocator.free(first, None, Stream::DEFAULT).unwrap();
    // The failed attempt has left nothing, and what was freed is waited for.
    allocator.allocate(2 * PAGE, GPU).unwrap();
}

#[test]
fn sizes_beyond_any_memory_are_refused() {
    let allocator = allocator(&pages(1, MIB), MIB);
    let too_large = allocator.allocate(u64::MAX, GPU);
    assert_eq!(too_large, Err(Error::TooLarge { bytes: u64::MAX }));
    let error = allocator.allocate(1 << 62, GPU).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(allocator.is_empty());
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let allocator = allocator(&pages(2, MIB), MIB);
    let error = allocator.allocate(1, NOWHERE).unwrap_err();
    assert_eq!(error.to_string(), "there is no device 7: they are 0 to 1");
    assert_eq!(allocator.allocate(0, NOWHERE), Err(error.clone()));
    let state = allocator.create_state(DeviceRank(0), NOWHERE, 1);
    assert_eq!(state, Err(error));
}

#[test]
fn memory_without_room_for_its_shadow_is_unmanaged() {
    // 5 pages for the first; then one page is left for 4 of shadow.
    let backend = pages(1, 6 * PAGE);
    let allocator = allocator(&backend, MIB);
    let managed = allocator.allocate(PAGE, GPU).unwrap();
    let unmanaged = allocator.allocate(PAGE, GPU).unwrap();
    assert!(allocator.find(managed).unwrap().managed);
    assert!(!allocator.find(unmanaged + PAGE - 1).unwrap().managed);
    assert!(!allocator.space().contains(unmanaged));
    let usage = allocator.usage();
    assert_eq!(
        (usage.live, usage.unmanaged_bytes, usage.unmanaged_ever),
        (2, PAGE, 1)
    );
    backend.write(GPU, unmanaged, &[1; 8]).unwrap();
    assert_eq!(
        allocator.export(unmanaged).unwrap().0.shadow.map(drop),
        None
    );
    allocator
        .free(unmanaged, Some((PAGE, GPU)), Stream::DEFAULT)
        .unwrap();
    let again = allocator.free(unmanaged, None, Stream::DEFAULT);
    assert_eq!(again, Err(Error::NotLive { address: unmanaged }));
    allocator.flush();
    assert_eq!(allocator.usage().unmanaged_bytes, 0);
    assert_eq!(backend.free_memory(GPU).unwrap().free, PAGE);
}

#[test]
fn memory_without_room_in_the_reservation_is_unmanaged_until_there_is_no_room_at_all() {
    let backend = Arc::new(Faulty::new(
        HostBackend::new(HostOptions {
            granularity: PAGE,
            ..HostOptions::default()
        })
        .unwrap(),
    ));
    // 4 pages can be handed out.
    let allocator = allocator(&backend, 32 * PAGE);
    let all = allocator.allocate(4 * PAGE, GPU).unwrap();
    assert!(allocator.find(all).unwrap().managed);
    let outside = allocator.allocate(PAGE, GPU).unwrap();
    assert!(!allocator.find(outside).unwrap().managed);
    // The memory is made, then no range is granted for it.
    backend.fail(1, 1);
    let error = allocator.allocate(PAGE, GPU).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of address space: asked for 4 KiB (4096 bytes), the largest free range has 0 bytes \
         of 16 KiB, and the driver grants none outside; set shadow.reserve above 128 KiB"
    );
    allocator.free(all, None, Stream::DEFAULT).unwrap();
    let inside = allocator.allocate(PAGE, GPU).unwrap();
    assert!(
        allocator.find(inside).unwrap().managed,
        "freed ranges are waited for"
    );
}

#[test]
fn what_is_not_an_allocation_is_not_freed() {
    let allocator = allocator(&pages(1, MIB), MIB);
    let address = allocator.allocate(PAGE + 10, GPU).unwrap();
    let free = |address, given| allocator.free(address, given, Stream::DEFAULT);
    for wild in [
        1,
        address - 1,
        address + PAGE + 10,
        address + 2 * PAGE,
        u64::MAX,
    ] {
        assert_eq!(free(wild, None), Err(Error::NotLive { address: wild }));
    }
    let interior = free(address + 8, None).unwrap_err();
    assert_eq!(
        interior.to_string(),
        format!(
            "{:#x} lies 8 bytes into the allocation at {address:#x}: only its start can be freed",
            address + 8
        )
    );
    let mismatch = free(address, Some((PAGE, GPU))).unwrap_err();
    assert_eq!(
        mismatch.to_string(),
        format!(
            "the allocation at {address:#x} has 4106 bytes on device 0; \
             it was to be freed as 4096 bytes on device 0"
        )
    );
    assert!(free(address, Some((PAGE + 10, Device(1)))).is_err());
    assert!(allocator.find(address).is_some());
    assert_eq!(free(address, Some((PAGE + 10, GPU))), Ok(()));
    assert!(allocator.find(address).is_none());
    assert!(free(address, None).is_err());
    allocator.flush();
    assert!(free(address, None).is_err());
}

#[test]
fn a_second_free_is_told_while_the_first_waits() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let stream = Stream::host(3);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    backend.work_submitted(GPU, stream);
    allocator.free(address, None, stream).unwrap();
    assert_eq!(
        allocator.free(address, None, stream),
        Err(Error::AlreadyFreed { address })
    );
    assert_eq!(
        allocator.export(address).map(drop),
        Err(Error::AlreadyFreed { address })
    );
    backend.work_done(GPU, stream);
}

#[test]
fn memory_stays_mapped_until_its_stream_has_passed_the_free() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let (slow, fast) = (Stream::host(1), Stream::host(2));
    let first = allocator.allocate(PAGE, GPU).unwrap();
    let second = allocator.allocate(PAGE, GPU).unwrap();
    backend.work_submitted(GPU, slow);
    let start = Instant::now();
    allocator.free(first, None, slow).unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    // Work after the free is not waited for.
    backend.work_submitted(GPU, slow);
    allocator.free(second, None, fast).unwrap();
    // A stream that is stuck does not hold up another stream's memory.
    let deadline = Instant::now() + Duration::from_secs(10);
    // It is counted a moment after it was unmapped.
    while allocator.usage().waiting_bytes != 5 * PAGE {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(backend.read(GPU, second, &mut [0]).is_err());
    assert!(backend.read(GPU, first, &mut [0]).is_ok());
    assert_ne!(allocator.allocate(PAGE, GPU).unwrap(), first);
    backend.work_done(GPU, slow);
    allocator.flush();
    assert!(backend.read(GPU, first, &mut [0]).is_err());
    assert_eq!(allocator.usage().waiting_bytes, 0);
    backend.work_done(GPU, slow);
}

#[test]
fn allocating_waits_for_freed_memory_no_longer_than_its_patience() {
    let backend = pages(1, 5 * PAGE);
    let impatient = Options {
        patience: Duration::from_millis(20),
        ..options(MIB)
    };
    let driver = Arc::clone(&backend) as Arc<dyn Backend>;
    let allocator = Allocator::new(driver, impatient).unwrap();
    let stream = Stream::host(1);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    backend.work_submitted(GPU, stream);
    allocator.free(address, None, stream).unwrap();
    let error = allocator.allocate(PAGE, GPU).unwrap_err();
    assert!(
        error.to_string().contains("20 KiB wait for their streams"),
        "{error}"
    );
    let done = Arc::clone(&backend);
    backend.work_done(GPU, stream);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    done.work_submitted(GPU, stream);
    allocator.free(address, None, stream).unwrap();
    // Dropping the allocator gives up too, and leaves mapped what the stream may still use.
    drop(allocator);
    assert!(backend.read(GPU, address, &mut [0]).is_ok());
}

#[test]
fn a_stream_of_another_backend_is_refused_and_nothing_changes() {
    let allocator = allocator(&pages(1, MIB), MIB);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    // SAFETY: the host backend never follows it.
    let stream = unsafe { Stream::cuda(0xdead0) };
    let error = allocator.free(address, None, stream).unwrap_err();
    assert!(error.to_string().contains("CUDA stream"), "{error}");
    assert!(allocator.find(address).is_some());
}

#[test]
fn interior_pointers_export_their_allocation() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let address = allocator.allocate_write_once(PAGE + 100, GPU).unwrap();
    let (shared, offset) = allocator.export(address + PAGE + 99).unwrap();
    assert_eq!(offset, PAGE + 99);
    assert_eq!((shared.bytes, shared.real.bytes), (PAGE + 100, 2 * PAGE));
    assert!(allocator.export(address + PAGE + 100).is_err());
    let parcel = shared.into_parcel();
    assert_eq!(parcel.descriptors.len(), 2);
    let shared = SharedAllocation::from_parcel(parcel).unwrap();
    let import = allocator.import(shared, GPU).unwrap();
    let found = allocator.find(import).unwrap();
    assert!(found.imported && found.write_once && found.managed);
    assert_eq!(found.bytes, PAGE + 100);
}

#[test]
fn an_import_is_the_same_memory_and_freeing_it_leaves_the_owner_alone() {
    let backend = pages(2, MIB);
    let owner = allocator(&backend, MIB);
    let other = allocator(&backend, MIB);
    let address = owner.allocate(PAGE, GPU).unwrap();
    let shadow = owner.space().shadow(address + 8);
    backend.write(GPU, address + 8, b"real....").unwrap();
    backend.write(GPU, shadow, &[7; 32]).unwrap();
    let import = other
        .import(owner.export(address).unwrap().0, Device(1))
        .unwrap();
    assert_eq!(&read::<8>(&*backend, import + 8), b"real....");
    let import_shadow = other.space().shadow(import + 8);
    assert_eq!(
        read::<32>(&*backend, import_shadow),
        [7; 32],
        "an import's shadow is not zeroed"
    );
    backend.write(GPU, import_shadow, &[8; 32]).unwrap();
    assert_eq!(read::<32>(&*backend, shadow), [8; 32]);
    other.free(import, None, Stream::DEFAULT).unwrap();
    other.flush();
    assert!(other.is_empty());
    assert_eq!(&read::<8>(&*backend, address + 8), b"real....");
    // The owner's free leaves an import alone, too.
    let import = other.import(owner.export(address).unwrap().0, GPU).unwrap();
    owner.free(address, None, Stream::DEFAULT).unwrap();
    owner.flush();
    assert_eq!(&read::<8>(&*backend, import + 8), b"real....");
}

#[test]
fn shares_that_contradict_themselves_are_refused() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let address = allocator.allocate(2 * PAGE, GPU).unwrap();
    type Change = fn(&mut SharedAllocation);
    let changes: [(Change, &str); 9] = [
        (
            |s| s.records = Records::Two,
            "have 2 records, here they have 4",
        ),
        (|s| s.bytes = 0, "0 bytes in memory of 8192"),
        (|s| s.bytes = 2 * PAGE + 1, "8193 bytes in memory of 8192"),
        (|s| s.real.bytes = 0, "0 bytes are not in units of 4096"),
        (
            |s| s.real.bytes = PAGE + 1,
            "4097 bytes are not in units of 4096",
        ),
        (|s| s.real.bytes = 1 << 63, "a shadow of 32768 bytes"),
        (
            |s| s.shadow.as_mut().unwrap().bytes -= PAGE,
            "a shadow of 28672 bytes",
        ),
        (
            |s| {
                s.real.bytes *= 2;
                s.shadow.as_mut().unwrap().bytes *= 2;
            },
            "16384 bytes promised, the memory has 8192",
        ),
        (
            |s| s.real.handle = SharedHandle::Fabric(Box::new([1; 64])),
            "host memory has no fabric handles",
        ),
    ];
    let free = backend.free_memory(GPU).unwrap();
    for (change, expected) in changes {
        let mut shared = allocator.export(address).unwrap().0;
        change(&mut shared);
        let error = allocator.import(shared, GPU).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let shared = allocator.export(address).unwrap().0;
    assert!(allocator.import(shared, NOWHERE).is_err());
    assert_eq!(allocator.usage().live, 1);
    assert_eq!(backend.free_memory(GPU).unwrap(), free);
}

#[test]
fn descriptors_that_are_no_memory_are_refused() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    let file = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        file
    };
    let unsealed = || {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&memory, PAGE).unwrap();
        memory
    };
    for (descriptor, expected) in [
        (file().into(), "is not one of an exported allocation"),
        (unsealed(), "can still change its size"),
    ] {
        let mut shared = allocator.export(address).unwrap().0;
        shared.real.handle = SharedHandle::PosixFd(descriptor);
        let error = allocator.import(shared, GPU).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn parcels_that_hold_something_else_are_refused() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let address = allocator.allocate(PAGE, GPU).unwrap();
    allocator.create_state(DeviceRank(0), GPU, PAGE).unwrap();
    let parcel = || allocator.export(address).unwrap().0.into_parcel();
    let state = || allocator.export_state(DeviceRank(0)).unwrap().into_parcel();
    let text = parcel().text;
    let refused = |parcel| {
        SharedAllocation::from_parcel(parcel)
            .unwrap_err()
            .to_string()
    };
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        Parcel {
            text: text.replace(from, to),
            ..parcel()
        }
    };
    for (parcel, expected) in [
        (Parcel::default(), "its text"),
        (edited("{", "["), "its text"),
        (edited("\"version\":1", "\"version\":2"), "it has version 2"),
        (
            edited("\"records\":4", "\"records\":3"),
            "3 records, not 2 or 4",
        ),
        (edited("\"bytes\":4096,", "\"bytes\":-1,"), "its text"),
        (edited("\"write_once\"", "\"unknown\""), "its text"),
        (
            Parcel {
                text: text.clone(),
                ..Parcel::default()
            },
            "a descriptor is missing",
        ),
        (state(), "an allocation was expected"),
    ] {
        let error = refused(parcel);
        assert!(error.contains(expected), "{error}");
    }
    let mut extra = parcel();
    extra.descriptors.extend(parcel().descriptors);
    assert!(refused(extra).contains("more descriptors than memory"));
    let error = SharedState::from_parcel(parcel()).unwrap_err().to_string();
    assert!(error.contains("a runtime state was expected"), "{error}");
}

#[test]
fn runtime_states_lie_a_stride_apart_and_are_zero() {
    let backend = pages(1, MIB);
    let allocator = allocator(&backend, MIB);
    let first = allocator.create_state(DeviceRank(0), GPU, PAGE).unwrap();
    let last = allocator
        .create_state(DeviceRank(31), GPU, PAGE + 1)
        .unwrap();
    assert_eq!(first, allocator.state_base());
    assert_eq!(last, first + 31 * STATE_STRIDE);
    assert_eq!(read::<64>(&*backend, last + 2 * PAGE - 64), [0; 64]);
    let create = |rank, bytes| allocator.create_state(DeviceRank(rank), GPU, bytes);
    assert_eq!(create(0, PAGE), Err(Error::RankTaken(DeviceRank(0))));
    assert_eq!(create(32, PAGE), Err(Error::BadRank(DeviceRank(32))));
    assert_eq!(create(1, 0), Err(Error::EmptyState));
    let above = STATE_STRIDE + 1;
    assert_eq!(create(1, above), Err(Error::StateTooLarge { bytes: above }));
    assert_eq!(
        create(1, u64::MAX),
        Err(Error::StateTooLarge { bytes: u64::MAX })
    );
    assert!(matches!(create(1, 2 * MIB), Err(Error::OutOfMemory { .. })));
    let release = |rank| allocator.release_state(DeviceRank(rank));
    assert_eq!(release(1), Err(Error::NoState(DeviceRank(1))));
    assert_eq!(release(99), Err(Error::BadRank(DeviceRank(99))));
    assert_eq!(release(0), Ok(()));
    assert!(backend.read(GPU, first, &mut [0]).is_err());
    assert_eq!(create(0, PAGE), Ok(first));
}

#[test]
fn runtime_states_are_shared_by_rank() {
    let backend = pages(1, MIB);
    let (owner, other) = (allocator(&backend, MIB), allocator(&backend, MIB));
    let state = owner.create_state(DeviceRank(3), GPU, PAGE).unwrap();
    backend.write(GPU, state, b"clocks").unwrap();
    let parcel = owner.export_state(DeviceRank(3)).unwrap().into_parcel();
    let shared = SharedState::from_parcel(parcel).unwrap();
    let import = other.import_state(shared, GPU).unwrap();
    assert_eq!(import, other.state_base() + 3 * STATE_STRIDE);
    assert_eq!(&read::<6>(&*backend, import), b"clocks");
    let again = owner.export_state(DeviceRank(3)).unwrap();
    assert_eq!(
        other.import_state(again, GPU),
        Err(Error::RankTaken(DeviceRank(3)))
    );
    let mut wrong = owner.export_state(DeviceRank(3)).unwrap();
    wrong.rank = DeviceRank(32);
    assert_eq!(
        other.import_state(wrong, GPU),
        Err(Error::BadRank(DeviceRank(32)))
    );
    let mut wrong = owner.export_state(DeviceRank(3)).unwrap();
    (wrong.rank, wrong.memory.bytes) = (DeviceRank(4), 2 * PAGE);
    assert!(other.import_state(wrong, GPU).is_err());
    assert_eq!(
        owner.export_state(DeviceRank(4)).map(drop),
        Err(Error::NoState(DeviceRank(4)))
    );
    other.release_state(DeviceRank(3)).unwrap();
    assert_eq!(&read::<6>(&*backend, state), b"clocks");
}

#[test]
fn fabric_handles_are_demanded_or_done_without() {
    let new = |handle_type| {
        let backend = pages(1, MIB) as Arc<dyn Backend>;
        Allocator::new(
            backend,
            Options {
                handle_type,
                ..options(MIB)
            },
        )
    };
    let error = new(HandleType::Fabric).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sharing.handle_type = \"fabric\" does not work here (memfd_create failed: host memory \
         has no fabric handles); use \"auto\" or \"posix-fd\""
    );
    let auto = new(HandleType::auto(Some("fabric:True"))).unwrap();
    assert_eq!(auto.handle_kind(), HandleKind::PosixFd);
}

#[test]
fn many_threads_allocate_and_free_at_once() {
    let backend = counted(1);
    let allocator = allocator(&backend, 1 << 30);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (allocator, backend) = (&allocator, &backend);
            scope.spawn(move || {
                for round in 0..100 {
                    let bytes = (thread + 1) * PAGE * (round % 3 + 1);
                    let address = allocator.allocate(bytes, GPU).unwrap();
                    backend.write(GPU, address, &address.to_le_bytes()).unwrap();
                    let (shared, _) = allocator.export(address).unwrap();
                    let import = allocator.import(shared, GPU).unwrap();
                    assert_eq!(read::<8>(&**backend, import), address.to_le_bytes());
                    allocator.free(import, None, Stream::host(thread)).unwrap();
                    allocator
                        .free(address, Some((bytes, GPU)), Stream::host(thread))
                        .unwrap();
                }
            });
        }
    });
    allocator.flush();
    assert!(allocator.is_empty());
    assert_eq!(
        (backend.memory_count(), backend.reservation_count()),
        (0, 2)
    );
    drop(allocator);
    backend.assert_nothing_left();
}

#[test]
fn what_is_live_at_the_end_is_given_back() {
    let backend = counted(1);
    let allocator = allocator(&backend, MIB);
    allocator.allocate(PAGE, GPU).unwrap();
    allocator.allocate(MIB, GPU).unwrap();
    allocator.create_state(DeviceRank(0), GPU, PAGE).unwrap();
    drop(allocator);
    backend.assert_nothing_left();
}

/// A backend of `devices` devices that keeps count.
fn counted(devices: u32) -> Arc<Faulty<HostBackend>> {
    let host = HostOptions {
        devices,
        granularity: PAGE,
        ..HostOptions::default()
    };
    Arc::new(Faulty::new(HostBackend::new(host).unwrap()))
}

#[test]
fn every_device_that_reaches_the_owner_gets_access_and_no_other() {
    let backend = counted(3);
    let [owner, peer, stranger] = [0, 1, 2].map(Device);
    backend.cut_off(stranger, owner);
    let (here, there) = (allocator(&backend, MIB), allocator(&backend, MIB));
    let address = here.allocate(PAGE, owner).unwrap();
    let state = here.create_state(DeviceRank(0), owner, PAGE).unwrap();
    for address in [address, here.space().shadow(address), state] {
        assert_eq!(backend.allowed(address), Some(vec![owner, peer]));
    }
    let shared = || here.export(address).unwrap().0;
    let import = there.import(shared(), peer).unwrap();
    for address in [import, there.space().shadow(import)] {
        assert_eq!(backend.allowed(address), Some(vec![owner, peer]));
    }
    let unreachable = Error::Unreachable {
        device: stranger,
        owner,
    };
    assert_eq!(there.import(shared(), stranger), Err(unreachable.clone()));
    let state = here.export_state(DeviceRank(0)).unwrap();
    assert_eq!(there.import_state(state, stranger), Err(unreachable));
    assert_eq!(there.usage().live, 1);
    drop((here, there));
    backend.assert_nothing_left();
}

#[test]
fn of_several_threads_that_free_the_same_memory_one_does() {
    let backend = counted(1);
    let allocator = allocator(&backend, MIB);
    // One with shadow; the other has no room for it.
    for bytes in [PAGE, MIB] {
        for _ in 0..100 {
            let address = allocator.allocate(bytes, GPU).unwrap();
            let start = std::sync::Barrier::new(3);
            let free = || {
                start.wait();
                allocator.free(address, None, Stream::DEFAULT).is_ok()
            };
            let freed = std::thread::scope(|scope| {
                let threads = [(); 3].map(|()| scope.spawn(free));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(freed.iter().filter(|&&freed| freed).count(), 1);
        }
    }
    allocator.flush();
    assert!(allocator.is_empty());
    drop(allocator);
    backend.assert_nothing_left();
}

#[test]
fn a_fault_while_an_allocator_is_made_leaves_nothing_behind() {
    for until in 0..3 {
        let backend = counted(1);
        backend.fail(until, 1);
        let made = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options(MIB));
        assert_eq!(made.is_ok(), until == 2, "two reservations are made");
        backend.fail(0, 0);
        drop(made);
        backend.assert_nothing_left();
    }
}

#[test]
fn a_fault_while_an_allocator_ends_leaves_nothing_behind() {
    for until in 0.. {
        let backend = counted(1);
        let allocator = allocator(&backend, MIB);
        allocator.allocate(PAGE, GPU).unwrap();
        allocator.allocate(MIB, GPU).unwrap();
        allocator.create_state(DeviceRank(0), GPU, PAGE).unwrap();
        let before = backend.calls();
        backend.fail(until, 1);
        drop(allocator);
        let calls = backend.calls() - before;
        backend.assert_nothing_left();
        if calls <= until {
            // The device is waited for. Four pieces of memory (real and shadow, real alone, a
            // state) are unmapped and released, and three reservations end.
            assert_eq!(calls, 1 + 2 * 4 + 3);
            break;
        }
    }
}

#[test]
fn write_once_memory_lies_where_device_code_tells_it() {
    let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
    let options = Options {
        write_once: true,
        ..options(8 << 30)
    };
    let allocator = Allocator::new(backend, options).unwrap();
    let base = allocator.write_once_base();
    let eighth = allocator.space().usable() / 8;
    assert_eq!(base, allocator.space().real_base() + 7 * eighth);
    let once = allocator.allocate_write_once(100, GPU).unwrap();
    let ordinary = allocator.allocate(100, GPU).unwrap();
    assert!(once >= base && ordinary < base);
    let found = allocator.find(once + 99).unwrap();
    assert!(found.write_once && found.managed);
    assert_eq!(allocator.live().len(), 2);
    // What does not fit there is handed out unchecked.
    let large = allocator.allocate_write_once(eighth + 1, GPU).unwrap();
    assert!(!allocator.find(large).unwrap().managed);
    assert_eq!(allocator.usage().unmanaged_ever, 1);
    for address in [once, ordinary, large] {
        allocator.free(address, None, Stream::DEFAULT).unwrap();
    }
    allocator.flush();
    assert!(allocator.is_empty());
}
