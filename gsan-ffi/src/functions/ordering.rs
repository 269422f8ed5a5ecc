//! What orders kernels: launches, events, host waits, reused memory.

use std::ffi::{c_char, c_int, c_void};

use std::sync::{Mutex, PoisonError};

use gsan_runtime::opaque::{hidden_synchronisation, is_triton_ir};
use gsan_runtime::session::{KernelLaunch, Launch};

use crate::arguments::{optional_text, output, text, text_room, versioned};
use crate::call::status;
use crate::handles::{self, Object};
use crate::session::{attached, number, running, session_with};
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_launch, gsan_launch_info};

/// A launch that was begun.
struct Begun(Mutex<Launch>);

impl Object for Begun {
    type C = gsan_launch;
    const KIND: &'static str = "launch";
}

/// What C says of a launch.
///
/// # Safety
/// If `info` is an address at all, what it should be lies there, and where its texts point to.
pub(crate) unsafe fn kernel_launch<'a>(
    info: *const gsan_launch_info,
) -> Result<KernelLaunch<'a>, Failure> {
    // SAFETY: as the caller says.
    let (info, kernel) = unsafe {
        let info = versioned(info, "info")?;
        (info, optional_text(info.kernel, "info->kernel")?)
    };
    Ok(KernelLaunch {
        kernel: kernel.unwrap_or_default(),
        grid: info.grid,
        block: info.block,
        programmatic: info.programmatic != 0,
        opaque: info.opaque != 0,
    })
}

/// Begins a launch: chooses what it starts after. From here to gsan_launch_end() the stream is this
/// thread's; in between the program launches the kernel, and hands it `*table` and `*index` (with the
/// address of the device's runtime state: gsan::Kernel's arguments). If they are 0, the kernel runs
/// unchecked.
///
/// `stream` is the CUstream (0 and 1: the legacy default stream, 2: the thread's own), or a stream of the
/// host backend; streams become known at their first use. While the stream is captured, the launch
/// becomes a node of the graph.
///
/// Calls about the stream by other threads wait for the end. Two threads that wait for each other so are
/// told it by GSAN_WRONG_ORDER, and so is who waits for a thread that has ended; after ten minutes
/// GSAN_TIMEOUT says who keeps the stream.
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
        let (info, to_launch, to_table, to_index) = unsafe {
            (
                kernel_launch(info)?,
                output(launch, "launch")?,
                output(table, "table")?,
                output(index, "index")?,
            )
        };
        let (session, device) = session_with("gsan_launch_begin", device)?;
        let begun = session.begin_launch(device, number(stream), &info)?;
        to_table.set(begun.table());
        to_index.set(begun.index());
        to_launch.set(handles::insert(Begun(Mutex::new(begun))));
        Ok(())
    })
}

/// Ends a launch: `submitted` not 0 if the kernel was given to the stream, 0 if that failed. The handle is
/// gone, whatever is returned.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_launch_end(launch: *mut gsan_launch, submitted: c_int) -> gsan_status {
    status(|| {
        let begun = handles::remove::<Begun>(launch)?;
        let mut launch = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(launch.finish(submitted != 0)?)
    })
}

/// Whether a kernel that Triton instrumented synchronises in ways that nobody reports: `*opaque` is 1 or 0,
/// and `why` says how. `ir` is Triton's intermediate representation of it (ttir or ttgir). For the form of
/// `why` and `bytes` see gsan_configuration(); both may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_kernel_is_opaque(
    ir: *const c_char,
    opaque: *mut c_int,
    why: *mut c_char,
    bytes: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (ir, opaque, room) = unsafe {
            let room = match bytes.is_null() && why.is_null() {
                true => None,
                false => Some(text_room(why, bytes)?),
            };
            (text(ir, "ir")?, output(opaque, "opaque")?, room)
        };
        if !is_triton_ir(ir) {
            return Err(Failure::invalid(
                "ir is not Triton's intermediate representation of a kernel: it has no tt.func",
            ));
        }
        let found = hidden_synchronisation(ir);
        opaque.set(found.is_some().into());
        match room {
            Some(room) => room.write(found.as_deref().unwrap_or_default()),
            None => Ok(()),
        }
    })
}

/// An event was recorded on a stream. Call it after the CUDA call; during capture too. On the host backend,
/// which has no CUDA, this and the functions below also record, wait and synchronise.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_recorded(
    event: u64,
    device: c_int,
    stream: *mut c_void,
) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_event_recorded", device)?;
        Ok(session.event_recorded(event, device, number(stream))?)
    })
}

/// A stream waits for an event. Call it after the CUDA call; during capture too. An event that nobody
/// has recorded orders nothing.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_waited(event: u64, device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_event_waited", device)?;
        session.event_waited(event, device, number(stream))?;
        Ok(())
    })
}

/// An event was destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_forgotten(event: u64) -> gsan_status {
    status(|| {
        if let Ok(session) = running() {
            session.event_forgotten(event);
        }
        Ok(())
    })
}

/// The host has waited for an event, or a query said that it is done. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_event_synchronized(event: u64) -> gsan_status {
    status(|| {
        attached()?;
        if let Ok(session) = running() {
            session.event_synchronized(event)?;
        }
        Ok(())
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
        let (session, device) = session_with("gsan_stream_waited", device)?;
        Ok(session.stream_waited(device, number(waiting), number(awaited))?)
    })
}

/// The host has waited for a stream, or a query said that it is done. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_stream_synchronized(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_stream_synchronized", device)?;
        Ok(session.stream_synchronized(device, number(stream))?)
    })
}

/// A stream is about to be destroyed: another one may get its handle. GSAN_WRONG_ORDER while a launch or a
/// replay on it was begun and not ended.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_stream_forgotten(device: c_int, stream: *mut c_void) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_stream_forgotten", device)?;
        Ok(session.stream_forgotten(device, number(stream))?)
    })
}

/// The host has waited for a device. Call it after that.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_device_synchronized(device: c_int) -> gsan_status {
    status(|| {
        let (session, device) = session_with("gsan_device_synchronized", device)?;
        Ok(session.device_synchronized(device)?)
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
        let (session, device) = session_with("gsan_memory_used", device)?;
        Ok(session.memory_used(address, bytes, device, number(stream))?)
    })
}

/// Such memory was freed by the program.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_memory_freed(address: u64) -> gsan_status {
    status(|| match running() {
        Ok(session) => Ok(session.memory_freed(address)?),
        Err(_) => Ok(()),
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
        let (session, device) = session_with("gsan_memory_handed_out", device)?;
        Ok(session.memory_handed_out(address, bytes, device, number(stream))?)
    })
}
