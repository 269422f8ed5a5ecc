//! What shadow memory and runtime state say, for tests and tools.

use std::ffi::c_int;

use crate::arguments::{output, room, versioned_output};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_cell_info, gsan_device_info, gsan_thread_info};

/// What is remembered of the 8 bytes that hold an address. GSAN_NOT_FOUND outside of managed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_cell_at(address: u64, out: *mut gsan_cell_info) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = address;
        Err(Failure::not_yet())
    })
}

/// What is known of a CTA's place on a device. `*entries` says how many `vector_clock` has room for, and
/// after the call how many there are; both may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_thread_state_at(
    device: c_int,
    thread_id: u32,
    out: *mut gsan_thread_info,
    vector_clock: *mut u32,
    entries: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = (device, thread_id, vector_clock, entries);
        Err(Failure::not_yet())
    })
}

/// What is known of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_global_state_of(
    device: c_int,
    out: *mut gsan_device_info,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}
