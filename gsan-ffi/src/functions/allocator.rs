//! Memory, by the ABI of CUDA's pluggable allocators.

use std::ffi::{c_int, c_void};

use gsan_runtime::Session;
use gsan_vmm::backend::Device;

use crate::call::{status, value};
use crate::session::{number, running, session_with};
use crate::status::Failure;

/// Allocates memory on a device, with shadow memory, so that accesses to it are checked. Where only the
/// shadow cannot be had, the memory is handed out unchecked, and counted. Null when there is no memory,
/// with the reason in gsan_last_error(); null without a reason for 0 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gsanMalloc(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    malloc("gsanMalloc", bytes, device, |session, bytes, device| {
        session.allocate(bytes, device, number(stream))
    })
}

/// The same, of memory in which each byte may be written once: a second write, a read before the write,
/// and atomics are reported.
#[unsafe(no_mangle)]
pub extern "C" fn gsanMallocWriteOnce(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    malloc(
        "gsanMallocWriteOnce",
        bytes,
        device,
        |session, bytes, device| session.allocate_write_once(bytes, device, number(stream)),
    )
}

/// Gives memory back: at once for the program, for the device when `stream` has come this far. Bytes 0:
/// not known. What is not live, is no start of an allocation, or has another size or device is refused:
/// nothing changes, and gsan_last_error() says why. Null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn gsanFree(address: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void) {
    status(|| {
        if address.is_null() {
            return Ok(());
        }
        let bytes = size(bytes)?;
        let session = running()?;
        let device = session.device(device)?;
        Ok(session.free(number(address), bytes, device, number(stream))?)
    });
}

fn malloc(
    user: &'static str,
    bytes: isize,
    device: c_int,
    allocate: impl FnOnce(&Session, u64, Device) -> gsan_runtime::error::Result<u64>,
) -> *mut c_void {
    value(std::ptr::null_mut(), || {
        let bytes = size(bytes)?;
        let (session, device) = session_with(user, device)?;
        let address = allocate(&session, bytes, device)?;
        // It is the program's, which may use it however it likes.
        Ok(std::ptr::with_exposed_provenance_mut(address as usize))
    })
}

fn size(bytes: isize) -> Result<u64, Failure> {
    u64::try_from(bytes).map_err(|_| Failure::invalid(format!("{bytes} bytes are no size")))
}
