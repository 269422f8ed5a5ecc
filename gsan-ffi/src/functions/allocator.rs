//! Memory, by the ABI of CUDA's pluggable allocators.

use std::ffi::{c_int, c_void};

use crate::call::{status, value};
use crate::status::Failure;

/// Allocates memory on a device, with shadow memory, so that accesses to it are checked. Where only the
/// shadow cannot be had, the memory is handed out unchecked, and counted. Null when there is no memory,
/// with the reason in gsan_last_error(); null without a reason for 0 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gsanMalloc(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let _ = (bytes, device, stream);
    value(std::ptr::null_mut(), || Err(Failure::not_yet()))
}

/// The same, of memory in which each byte may be written once: a second write, a read before the write,
/// and atomics are reported.
#[unsafe(no_mangle)]
pub extern "C" fn gsanMallocWriteOnce(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let _ = (bytes, device, stream);
    value(std::ptr::null_mut(), || Err(Failure::not_yet()))
}

/// Gives memory back: at once for the program, for the device when `stream` has come this far. Bytes 0:
/// not known. What is not live, is no start of an allocation, or has another size or device is refused:
/// nothing changes, and gsan_last_error() says why. Null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn gsanFree(address: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void) {
    let _ = (address, bytes, device, stream);
    status(|| Err(Failure::not_yet()));
}
