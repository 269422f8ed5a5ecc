//! What there is.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{output, text_room, versioned_output};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::types::gsan_allocation;

/// Distance between the runtime states of neighbouring ranks, in bytes.
const STATE_STRIDE: u64 = 1 << 30;

/// The reservation of addresses that managed memory and its shadow lie in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_reserve(base: *mut u64, bytes: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _outputs = unsafe { (output(base, "base")?, output(bytes, "bytes")?) };
        Err(Failure::not_yet())
    })
}

/// Where the runtime state of rank 0 lies; that of rank r lies r * gsan_state_stride() behind it. Kernels
/// take the address of their own device's as first argument of gsan::Kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_state_pointer(base: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _base = unsafe { output(base, "base") }?;
        Err(Failure::not_yet())
    })
}

/// Distance between the runtime states of neighbouring ranks, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_state_stride() -> u64 {
    STATE_STRIDE
}

/// The rank of a local device in the topology.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_device_rank(device: c_int, rank: *mut u32) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _rank = unsafe { output(rank, "rank") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// The allocations that are live. `*count` says how many `out` has room for, and after the call how many
/// there are; `out` may be null to ask. The size field of the first one must be set, and holds for all.
/// If there are more than there is room for, the first ones are written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_live_allocations(
    out: *mut gsan_allocation,
    count: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _outputs = unsafe {
            let count = output(count, "count")?;
            if out.is_null() {
                (count, None)
            } else {
                (count, Some(versioned_output(out, "out")?))
            }
        };
        Err(Failure::not_yet())
    })
}

/// The live allocation that holds an address. GSAN_NOT_FOUND if none does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_find_allocation(
    address: u64,
    out: *mut gsan_allocation,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = address;
        Err(Failure::not_yet())
    })
}

/// How the runtime state of this configuration is laid out, as JSON: version, offsets, sizes. For the
/// form of texts see gsan_configuration().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_layout(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _room = unsafe { text_room(json, bytes) }?;
        Err(Failure::not_yet())
    })
}

/// Whether a device can share memory by fabric handles: `*yes` is 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_supports_fabric(device: c_int, yes: *mut c_int) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _yes = unsafe { output(yes, "yes") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// What was checked and what was lost, as JSON: memory, launches, accesses, losses of coverage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_usage(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _room = unsafe { text_room(json, bytes) }?;
        Err(Failure::not_yet())
    })
}

/// The device library as LLVM bitcode, for compilers that link it into kernels. `records`: 2 or 4.
/// `by_sm` not 0: the variant without shared memory of its own. The bytes live as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_device_library(
    records: u32,
    by_sm: u32,
    bitcode: *mut *const c_void,
    bytes: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _outputs = unsafe { (output(bitcode, "bitcode")?, output(bytes, "bytes")?) };
        let _ = (records, by_sm);
        Err(Failure::not_yet())
    })
}

/// What of this machine works, as JSON: driver, devices, peers, addresses, fabric handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_doctor(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _room = unsafe { text_room(json, bytes) }?;
        Err(Failure::not_yet())
    })
}
