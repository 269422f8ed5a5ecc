//! What orders kernels: launches, events, host waits, reused memory.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{output, text, versioned};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_launch, gsan_launch_info};

/// Begins a launch: chooses what it starts after. From here to gsan_launch_end() the stream is this
/// thread's; in between the program launches the kernel, and hands it `*table` and `*index` (with the
/// address of the device's runtime state: gsan::Kernel's arguments). If they are 0, the kernel runs
/// unchecked.
///
/// `stream` is the CUstream (0 and 1: the legacy default stream, 2: the thread's own), or a stream of the
/// host backend; streams become known at their first use. While the stream is captured, the launch
/// becomes a node of the graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_launch_begin(
    device: c_int,
    stream: *mut c_void,
    info: *const gsan_launch_info,
    launch: *mut *mut gsan_launch,
    table: *mut u64,
    index: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe {
            (
                versioned(info, "info")?,
                output(launch, "launch")?,
                output(table, "table")?,
                output(index, "index")?,
            )
        };
        let _ = (device, stream);
        Err(Failure::not_yet())
    })
}

/// Ends a launch: `submitted` not 0 if the kernel was given to the stream, 0 if that failed. The handle is
/// gone, whatever is returned.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_launch_end(launch: *mut gsan_launch, submitted: c_int) -> gsan_status {
    status(|| {
        let _ = (launch, submitted);
        Err(Failure::not_yet())
    })
}

/// Whether a kernel that Triton instrumented synchronises in ways that nobody reports, by its PTX:
/// `*opaque` is 1 or 0, and `why` says which instruction it is. For the form of `why` and `bytes` see
/// gsan_configuration(); both may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_kernel_is_opaque(
    ptx: *const c_char,
    opaque: *mut c_int,
    why: *mut c_char,
    bytes: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (text(ptx, "ptx")?, output(opaque, "opaque")?) };
        let _ = (why, bytes);
        Err(Failure::not_yet())
    })
}

/// An event was recorded on a stream. Call it after the CUDA call; during capture too.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_recorded(
    event: u64,
    device: c_int,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (event, device, stream);
        Err(Failure::not_yet())
    })
}

/// A stream waits for an event. Call it after the CUDA call; during capture too. An event that nobody
/// has recorded orders nothing.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_waited(event: u64, device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let _ = (event, device, stream);
        Err(Failure::not_yet())
    })
}

/// An event was destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_forgotten(event: u64) -> gsan_status {
    status(|| {
        let _ = event;
        Err(Failure::not_yet())
    })
}

/// The host has waited for an event, or a query said that it is done. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_synchronized(event: u64) -> gsan_status {
    status(|| {
        let _ = event;
        Err(Failure::not_yet())
    })
}

/// A stream waits for all that another one was given so far: an event recorded on one and waited for on
/// the other.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_stream_waited(
    device: c_int,
    waiting: *mut c_void,
    awaited: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (device, waiting, awaited);
        Err(Failure::not_yet())
    })
}

/// The host has waited for a stream, or a query said that it is done. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_stream_synchronized(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let _ = (device, stream);
        Err(Failure::not_yet())
    })
}

/// A stream is about to be destroyed: another one may get its handle.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_stream_forgotten(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let _ = (device, stream);
        Err(Failure::not_yet())
    })
}

/// The host has waited for a device. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_device_synchronized(device: c_int) -> gsan_status {
    status(|| {
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// Memory of an allocator on top of gsanMalloc() is used on a stream other than the one that it was handed
/// out to: whoever gets it after it was freed starts after what that stream does until then.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_memory_used(
    address: u64,
    bytes: u64,
    device: c_int,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (address, bytes, device, stream);
        Err(Failure::not_yet())
    })
}

/// Such memory was freed by the program.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_memory_freed(address: u64) -> gsan_status {
    status(|| {
        let _ = address;
        Err(Failure::not_yet())
    })
}

/// Such memory was handed out to a stream.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_memory_handed_out(
    address: u64,
    bytes: u64,
    device: c_int,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (address, bytes, device, stream);
        Err(Failure::not_yet())
    })
}
