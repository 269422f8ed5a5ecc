//! Kernels that are functions of the program, on the host backend: for tests and examples.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{output, versioned};
use crate::call::status;
use crate::session::{number, session_with};
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_cta, gsan_host_kernel, gsan_launch_info};

/// Makes a stream of the host backend. `blocking` not 0: it waits for the default stream, and that for it,
/// as streams of cudaStreamCreate do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_stream_create(
    device: c_int,
    blocking: c_int,
    stream: *mut *mut c_void,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let stream = unsafe { output(stream, "stream") }?;
        let (session, device) = session_with("gsan_host_stream_create", device)?;
        let created = session.create_host_stream(device, blocking != 0)?;
        stream.set(std::ptr::without_provenance_mut(created as usize));
        Ok(())
    })
}

/// Gives a stream up, when all it was given is done.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_host_stream_destroy(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_host_stream_destroy", device)?;
        Ok(session.destroy_host_stream(device, number(stream))?)
    })
}

/// Waits for a stream, which orders what follows after it.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_host_stream_synchronize(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let _ = (device, stream);
        Err(Failure::not_yet())
    })
}

/// A number for an event, which no other event has: for gsan_event_recorded() and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_event_create(event: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _event = unsafe { output(event, "event") }?;
        Err(Failure::not_yet())
    })
}

/// Launches a function as a kernel, with its begin and end: it is called for each CTA of the grid, from a
/// thread of GSan, in the order of the stream. CTAs take turns; the seed of the configuration decides
/// whose it is. Returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_launch(
    device: c_int,
    stream: *mut c_void,
    info: *const gsan_launch_info,
    kernel: gsan_host_kernel,
    user: *mut c_void,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _info = unsafe { versioned(info, "info") }?;
        let _ = (device, stream, kernel, user);
        Err(Failure::not_yet())
    })
}

/// A CTA reads memory: the access is checked, and made. `file`: null for unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_read(
    cta: *mut gsan_cta,
    address: u64,
    to: *mut c_void,
    bytes: usize,
    file: *const c_char,
    line: u32,
) -> gsan_status {
    status(|| {
        let _ = (cta, address, to, bytes, file, line);
        Err(Failure::not_yet())
    })
}

/// A CTA writes memory: the access is checked, and made. `file`: null for unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_write(
    cta: *mut gsan_cta,
    address: u64,
    from: *const c_void,
    bytes: usize,
    file: *const c_char,
    line: u32,
) -> gsan_status {
    status(|| {
        let _ = (cta, address, from, bytes, file, line);
        Err(Failure::not_yet())
    })
}

/// An atomic access of a CTA to 4 or 8 bytes, at a multiple of that. `operation`: GSAN_HOST_…; `order`:
/// GSAN_MEMORY_ORDER_…; `scope`: GSAN_MEMORY_SCOPE_…. `*old`, which may be null, is what was there;
/// `compare` is for GSAN_HOST_COMPARE_AND_SWAP. Others get a turn before it, so that CTAs may wait for
/// each other in a loop of atomics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_atomic(
    cta: *mut gsan_cta,
    operation: u32,
    address: u64,
    bytes: usize,
    operand: u64,
    compare: u64,
    old: *mut u64,
    order: u32,
    scope: u32,
    file: *const c_char,
    line: u32,
) -> gsan_status {
    status(|| {
        let _ = (
            cta, operation, address, bytes, operand, compare, old, order, scope, file, line,
        );
        Err(Failure::not_yet())
    })
}
