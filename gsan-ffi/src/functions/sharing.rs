//! Memory shared between processes.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{output, room, slice, text, versioned, versioned_output};
use crate::call::{status, value};
use crate::handles;
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_rendezvous, gsan_shared_allocation, gsan_shared_state};

/// Exports the allocation that holds an address, with its shadow. The caller closes the descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_export_allocation(
    address: u64,
    out: *mut gsan_shared_allocation,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = address;
        Err(Failure::not_yet())
    })
}

/// Maps what another process exported, for a device of this one. The descriptors stay the caller's.
/// `*address` is where the exported address lies here; gsanFree() with the start of the allocation
/// unmaps it. The state of the owning device must be imported first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_import_allocation(
    shared: *const gsan_shared_allocation,
    device: c_int,
    address: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (versioned(shared, "shared")?, output(address, "address")?) };
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// Exports the runtime state of a device. The caller closes the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_export_state(
    device: c_int,
    out: *mut gsan_shared_state,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _out = unsafe { versioned_output(out, "out") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// Maps the runtime state of another process's device. The descriptor stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_import_state(
    shared: *const gsan_shared_state,
    device: c_int,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _shared = unsafe { versioned(shared, "shared") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// Meets the other processes of a group on this host. All of them give the same name and size, and a
/// rank of their own below it. timeout_ms holds for this and for every later call with the rendezvous;
/// 0: a minute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_rendezvous_join(
    name: *const c_char,
    rank: u32,
    size: u32,
    timeout_ms: u32,
    out: *mut *mut gsan_rendezvous,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (text(name, "name")?, output(out, "out")?) };
        let _ = (rank, size, timeout_ms);
        Err(Failure::not_yet())
    })
}

/// Everybody exports an allocation and its device's state, and imports those of the others. addresses
/// has room for as many as the group has ranks: each rank's memory as it is mapped here, the own one
/// included. Called by all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_rendezvous_share(
    rendezvous: *mut gsan_rendezvous,
    address: u64,
    device: c_int,
    addresses: *mut u64,
) -> gsan_status {
    status(|| {
        let _ = (rendezvous, address, device, addresses);
        Err(Failure::not_yet())
    })
}

/// Everybody gives some bytes, as many each, and gets those of all, in the order of ranks. Called by all
/// ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_rendezvous_exchange(
    rendezvous: *mut gsan_rendezvous,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (rendezvous, mine, bytes, all);
        Err(Failure::not_yet())
    })
}

/// Leaves the group. What was imported stays.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_rendezvous_close(rendezvous: *mut gsan_rendezvous) {
    value((), || {
        let _ = rendezvous;
        Err(Failure::not_yet())
    });
}
