//! Memory shared between processes.

use std::ffi::{c_char, c_int, c_void};

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gsan_core::address::Records;
use gsan_core::ids::DeviceRank;
use gsan_runtime::session::Meeting;
use gsan_runtime::{Session, process};
use gsan_vmm::backend::SharedHandle;
use gsan_vmm::share::{SharedAllocation, SharedMemory, SharedState};

use crate::arguments::{output, room, slice, text, versioned, versioned_output};
use crate::call::{status, value};
use crate::handles::{self, Object};
use crate::session::running;
use crate::session::session_with;
use crate::status::{Failure, gsan_status};
use crate::types::{
    GSAN_HANDLE_TYPE_FABRIC, GSAN_HANDLE_TYPE_POSIX_FD, gsan_rendezvous, gsan_shared_allocation,
    gsan_shared_state,
};

impl Object for Mutex<Meeting> {
    type C = gsan_rendezvous;
    const KIND: &'static str = "rendezvous";
}

/// Exports the allocation that holds an address, with its shadow. The caller closes the descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_export_allocation(
    address: u64,
    out: *mut gsan_shared_allocation,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let out = unsafe { versioned_output(out, "out") }?;
        let session = running()?;
        let owner = session.find_allocation(address)?.device;
        let owner_rank = session.device_rank(owner)?;
        let (shared, offset) = session.export_allocation(address)?;
        out.set(&described(shared, offset, owner_rank));
        Ok(())
    })
}

/// Maps what another process exported, for a device of this one. The descriptors stay the caller's. Of the
/// structure `records`, `real_bytes`, `shadow_bytes` and `owner` may be 0, if both processes have the same
/// configuration.
/// `*address` is where the exported address lies here; gsanFree() with the start of the allocation
/// unmaps it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_import_allocation(
    shared: *const gsan_shared_allocation,
    device: c_int,
    address: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (shared, address) =
            unsafe { (versioned(shared, "shared")?, output(address, "address")?) };
        let (session, device) = session_with("gsan_import_allocation", device)?;
        let allocation = allocation(&shared, &session)?;
        let start = session.import_allocation(allocation, device)?;
        address.set(start + shared.offset);
        Ok(())
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
        let out = unsafe { versioned_output(out, "out") }?;
        let (session, device) = session_with("gsan_export_state", device)?;
        let SharedState {
            rank,
            owner,
            memory,
        } = session.export_state(device)?;
        let handle = Handle::of(memory.handle);
        out.set(&gsan_shared_state {
            size: size_of::<gsan_shared_state>(),
            fd: handle.fd,
            rank: rank.0.into(),
            kind: handle.kind,
            bytes: memory.bytes,
            owner,
            fabric: handle.fabric,
        });
        Ok(())
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
        let shared = unsafe { versioned(shared, "shared") }?;
        let rank = u16::try_from(shared.rank)
            .map_err(|_| Failure::invalid(format!("shared->rank is {}", shared.rank)))?;
        let handle = Handle {
            kind: shared.kind,
            fd: shared.fd,
            fabric: shared.fabric,
        };
        let state = SharedState {
            rank: DeviceRank(rank),
            owner: shared.owner,
            memory: SharedMemory {
                handle: handle.open("shared->fd")?,
                bytes: shared.bytes,
            },
        };
        let (session, device) = session_with("gsan_import_state", device)?;
        session.import_state(state, device)?;
        Ok(())
    })
}

/// Meets the other processes of a group on this host. All of them give the same name and size, and a
/// rank of their own below it. timeout_ms holds for this and for every later call with the rendezvous;
/// 0: ten minutes.
///
/// The processes agree on the ranks of their devices: those that are configured or in use stay, the others
/// follow from the UUIDs of all GPUs that the processes see, if this is called before the first use. It is
/// an error for two GPUs to have the same rank.
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
        let (name, out) = unsafe { (text(name, "name")?, output(out, "out")?) };
        let small = |number: u32, what: &str| {
            let number = u16::try_from(number);
            number.map_err(|_| Failure::invalid(format!("{what} is above 65535")))
        };
        let (rank, size) = (small(rank, "rank")?, small(size, "size")?);
        let limit = Duration::from_millis(timeout_ms.into());
        let meeting = process::join(name, rank, size, limit)?;
        out.set(handles::insert(Mutex::new(meeting)));
        Ok(())
    })
}

/// Everybody exports an allocation and its device's state, and imports those of the others. addresses
/// has room for as many as the group has ranks: each rank's memory as it is mapped here, the own one
/// included. Called by all ranks. It is an error for two processes to use one device rank: a GPU that is
/// to play two devices is given a rank in each process (topology.device_ranks).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_rendezvous_share(
    rendezvous: *mut gsan_rendezvous,
    address: u64,
    device: c_int,
    addresses: *mut u64,
) -> gsan_status {
    status(|| {
        let meeting = handles::get::<Mutex<Meeting>>(rendezvous)?;
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: C says that it points to what it should.
        let room = unsafe { room(addresses, meeting.ranks().into(), "addresses") }?;
        let (session, device) = session_with("gsan_rendezvous_share", device)?;
        room.fill(&meeting.share(&session, address, device)?);
        Ok(())
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
        let meeting = handles::get::<Mutex<Meeting>>(rendezvous)?;
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        let all_bytes = bytes.saturating_mul(meeting.ranks().into());
        // SAFETY: C says that they point to what they should.
        let (mine, room) = unsafe {
            (
                slice(mine.cast::<u8>(), bytes, "mine")?,
                room(all.cast::<u8>(), all_bytes, "all")?,
            )
        };
        let told = meeting.exchange(mine)?;
        if let Some(rank) = told.iter().position(|told| told.len() != bytes) {
            return Err(Failure::invalid(format!(
                "rank {rank} gave {} bytes, this one {bytes}: all must give as many",
                told[rank].len()
            )));
        }
        room.fill(&told.concat());
        Ok(())
    })
}

/// Leaves the group. What was imported stays.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_rendezvous_close(rendezvous: *mut gsan_rendezvous) {
    value((), || {
        handles::remove::<Mutex<Meeting>>(rendezvous).map(drop)
    });
}

/// How memory is handed over, as C has it.
struct Handle {
    kind: u32,
    fd: c_int,
    fabric: [u8; 64],
}

impl Handle {
    /// None: there is no memory.
    const NONE: Handle = Handle {
        kind: GSAN_HANDLE_TYPE_POSIX_FD,
        fd: -1,
        fabric: [0; 64],
    };

    /// The descriptor is the caller's from now on.
    fn of(handle: SharedHandle) -> Handle {
        match handle {
            SharedHandle::PosixFd(descriptor) => Handle {
                fd: descriptor.into_raw_fd(),
                ..Handle::NONE
            },
            SharedHandle::Fabric(name) => Handle {
                kind: GSAN_HANDLE_TYPE_FABRIC,
                fd: -1,
                fabric: *name,
            },
        }
    }

    /// A descriptor of its own: C's stays C's.
    fn open(&self, field: &str) -> Result<SharedHandle, Failure> {
        match self.kind {
            GSAN_HANDLE_TYPE_POSIX_FD => Ok(SharedHandle::PosixFd(duplicate(self.fd, field)?)),
            GSAN_HANDLE_TYPE_FABRIC => Ok(SharedHandle::Fabric(Box::new(self.fabric))),
            other => Err(Failure::invalid(format!(
                "shared->kind is {other}, which is not GSAN_HANDLE_TYPE_POSIX_FD or _FABRIC"
            ))),
        }
    }
}

fn duplicate(fd: c_int, field: &str) -> Result<OwnedFd, Failure> {
    if fd < 0 {
        return Err(Failure::invalid(format!(
            "{field} is {fd}, which is no descriptor"
        )));
    }
    // SAFETY: it is not -1. Whether it is open says the call, which does nothing else with it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
        .map_err(|error| Failure::invalid(format!("{field} is {fd}: {error}")))
}

fn described(
    shared: SharedAllocation,
    offset: u64,
    owner_rank: DeviceRank,
) -> gsan_shared_allocation {
    let real = Handle::of(shared.real.handle);
    let (shadow, shadow_bytes) = match shared.shadow {
        Some(shadow) => (Handle::of(shadow.handle), shadow.bytes),
        None => (Handle::NONE, 0),
    };
    gsan_shared_allocation {
        size: size_of::<gsan_shared_allocation>(),
        real_fd: real.fd,
        shadow_fd: shadow.fd,
        bytes: shared.bytes,
        real_bytes: shared.real.bytes,
        shadow_bytes,
        offset,
        owner_rank: owner_rank.0.into(),
        records: shared.records.count() as u32,
        write_once: shared.write_once.into(),
        kind: real.kind,
        owner: shared.owner,
        fabric: [real.fabric, shadow.fabric],
    }
}

/// The same for the session. What is 0 is what an exporter with the same configuration would say.
fn allocation(
    shared: &gsan_shared_allocation,
    session: &Session,
) -> Result<SharedAllocation, Failure> {
    let allocator = session.allocator();
    let records = match shared.records {
        0 => allocator.space().records(),
        2 => Records::Two,
        4 => Records::Four,
        other => {
            let why = format!("shared->records is {other}: a cell has 2 or 4");
            return Err(Failure::invalid(why));
        }
    };
    if shared.offset >= shared.bytes {
        return Err(Failure::invalid(format!(
            "shared->offset is {}, in an allocation of {} bytes",
            shared.offset, shared.bytes
        )));
    }
    let real_bytes = match shared.real_bytes {
        0 => {
            let unit = allocator.backend().granularity();
            shared.bytes.checked_next_multiple_of(unit).ok_or_else(|| {
                Failure::invalid(format!(
                    "shared->bytes is {}, which is no size",
                    shared.bytes
                ))
            })?
        }
        bytes => bytes,
    };
    let [real, shadow] = shared.fabric;
    let has_shadow = match shared.kind {
        GSAN_HANDLE_TYPE_FABRIC => shadow != [0; 64],
        _ => shared.shadow_fd >= 0,
    };
    let shadow_bytes = match (shared.shadow_bytes, has_shadow) {
        (0, true) => real_bytes.saturating_mul(records.count() as u64),
        (bytes, _) => bytes,
    };
    let memory = |fd, fabric, bytes, field| {
        let handle = Handle {
            kind: shared.kind,
            fd,
            fabric,
        };
        Ok::<_, Failure>(SharedMemory {
            handle: handle.open(field)?,
            bytes,
        })
    };
    Ok(SharedAllocation {
        owner: shared.owner,
        bytes: shared.bytes,
        records,
        write_once: shared.write_once != 0,
        real: memory(shared.real_fd, real, real_bytes, "shared->real_fd")?,
        shadow: match shadow_bytes {
            0 => None,
            bytes => Some(memory(
                shared.shadow_fd,
                shadow,
                bytes,
                "shared->shadow_fd",
            )?),
        },
    })
}
