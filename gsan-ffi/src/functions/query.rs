//! What there is.

use std::ffi::{c_char, c_int, c_void};

use gsan_core::address::Records;
use gsan_device::{StateMemory, Variant};
use gsan_vmm::{Allocation, STATE_STRIDE};

use crate::arguments::{output, text_room, versioned_output};
use crate::call::status;
use crate::session::{running, session, session_with};
use crate::status::{Failure, gsan_status};
use crate::types::gsan_allocation;

/// The reservation of addresses that managed memory and its shadow lie in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_reserve(base: *mut u64, bytes: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (to_base, to_bytes) = unsafe { (output(base, "base")?, output(bytes, "bytes")?) };
        let (base, bytes) = session("gsan_reserve")?.reserve();
        to_base.set(base);
        to_bytes.set(bytes);
        Ok(())
    })
}

/// Where the runtime state of rank 0 lies; that of rank r lies r * gsan_state_stride() behind it. Kernels
/// take the address of their own device's as first argument of gsan::Kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_state_pointer(base: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let base = unsafe { output(base, "base") }?;
        base.set(session("gsan_state_pointer")?.state_pointer());
        Ok(())
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
        let rank = unsafe { output(rank, "rank") }?;
        let (session, device) = session_with("gsan_device_rank", device)?;
        rank.set(session.device_rank(device)?.0.into());
        Ok(())
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
        let (to_count, room, to) = unsafe {
            let to_count = output(count, "count")?;
            match out.is_null() {
                true => (to_count, 0, None),
                false => match count.read() {
                    0 => (to_count, 0, None),
                    room => (to_count, room, Some(versioned_output(out, "out")?)),
                },
            }
        };
        let live = match running() {
            Ok(session) => session.live_allocations(),
            Err(_) => Vec::new(),
        };
        to_count.set(live.len());
        if let Some(to) = to {
            for (index, allocation) in live.iter().take(room).enumerate() {
                to.set_at(index, &described(allocation));
            }
        }
        Ok(())
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
        let out = unsafe { versioned_output(out, "out") }?;
        out.set(&described(&running()?.find_allocation(address)?));
        Ok(())
    })
}

/// How the runtime state of this configuration is laid out, as JSON: version, offsets, sizes. For the
/// form of texts see gsan_configuration().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_layout(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let room = unsafe { text_room(json, bytes) }?;
        room.write(&session("gsan_layout")?.layout()?.to_string())
    })
}

/// Whether a device can share memory by fabric handles: `*yes` is 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_supports_fabric(device: c_int, yes: *mut c_int) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let yes = unsafe { output(yes, "yes") }?;
        let (session, device) = session_with("gsan_supports_fabric", device)?;
        yes.set(session.supports_fabric(device)?.into());
        Ok(())
    })
}

/// What was checked and what was lost, as JSON: memory, launches, accesses, losses of coverage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_usage(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let room = unsafe { text_room(json, bytes) }?;
        let usage = session("gsan_usage")?.usage()?;
        let text = serde_json::to_string(&usage)
            .map_err(|error| Failure::new(gsan_status::GSAN_INTERNAL, error.to_string()))?;
        room.write(&text)
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
        let (bitcode, bytes) = unsafe { (output(bitcode, "bitcode")?, output(bytes, "bytes")?) };
        let records = match records {
            2 => Records::Two,
            4 => Records::Four,
            other => {
                let why = format!("records is {other}: a cell has 2 or 4");
                return Err(Failure::invalid(why));
            }
        };
        let state = match by_sm {
            0 => StateMemory::Shared,
            _ => StateMemory::BySm,
        };
        let library = Variant::new(state, records).triton_library();
        bitcode.set(library.as_ptr().cast());
        bytes.set(library.len());
        Ok(())
    })
}

/// What of this machine works, as JSON: driver, devices, peers, addresses, fabric handles. What is missing
/// says why. Starts nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_doctor(json: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let room = unsafe { text_room(json, bytes) }?;
        room.write(&gsan_runtime::doctor::facts().to_string())
    })
}

fn described(allocation: &Allocation) -> gsan_allocation {
    gsan_allocation {
        size: size_of::<gsan_allocation>(),
        address: allocation.address,
        bytes: allocation.bytes,
        device: allocation.device.0,
        managed: allocation.managed.into(),
        write_once: allocation.write_once.into(),
    }
}
