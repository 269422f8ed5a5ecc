//! Kernels that are functions of the program, on the host backend: for tests and examples.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gsan_core::scope::{Order, Scope};
use gsan_runtime::host::{AtomicOperation, HostCta};

use crate::arguments::{c_text, optional_output, output, room, slice};
use crate::call::status;
use crate::functions::ordering::kernel_launch;
use crate::session::{attached, number, session, session_with};
use crate::status::{Failure, gsan_status};
use crate::told::User;
use crate::types::*;

/// The CTA whose callback this thread is in.
#[derive(Clone, Copy)]
struct Running {
    handle: usize,
    /// Lives until the callback returns.
    cta: *const HostCta<'static>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Never used again, so a CTA that is over is not taken for another one.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Does `call` with the CTA of this thread, which `handle` must be.
fn with_cta<T>(
    handle: *mut gsan_cta,
    call: impl FnOnce(&HostCta<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    attached()?;
    if handle.is_null() {
        return Err(Failure::invalid("the handle is null"));
    }
    match RUNNING.get() {
        // SAFETY: it lives as long as the callback, which this thread is in.
        Some(running) if running.handle == handle.addr() => call(unsafe { &*running.cta }),
        _ => Err(Failure::invalid(format!(
            "{:#x} is no CTA of this thread: a CTA lives as long as its callback, and in the thread \
             that this is called from",
            handle.addr()
        ))),
    }
}

/// The name of a source file.
///
/// # Safety
/// As for [`c_text`].
unsafe fn file_name<'a>(file: *const c_char) -> Result<&'a CStr, Failure> {
    match file.is_null() {
        true => Ok(c"<unknown>"),
        // SAFETY: as the caller says.
        false => unsafe { c_text(file, "file") },
    }
}

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

/// Gives a stream up, when all it was given is done. GSAN_WRONG_ORDER while a launch or a replay on it was
/// begun and not ended.
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
        let (session, device) = session_with("gsan_host_stream_synchronize", device)?;
        Ok(session.stream_synchronized(device, number(stream))?)
    })
}

/// A number for an event, which no other event has: for gsan_event_recorded() and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_event_create(event: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let event = unsafe { output(event, "event") }?;
        event.set(session("gsan_host_event_create")?.create_host_event()?);
        Ok(())
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
        let launch = unsafe { kernel_launch(info) }?;
        let body = body(kernel, user)?;
        let (session, device) = session_with("gsan_host_launch", device)?;
        Ok(session.launch_on_host(device, number(stream), &launch, body)?)
    })
}

/// What a CTA of a host kernel does.
pub(crate) fn body(
    kernel: gsan_host_kernel,
    user: *mut c_void,
) -> Result<impl Fn(&HostCta<'_>, [u32; 3]) + Send + Sync + 'static, Failure> {
    let kernel = kernel.ok_or_else(|| Failure::invalid("kernel is null"))?;
    let user = User::new(user);
    Ok(move |cta: &HostCta<'_>, index: [u32; 3]| {
        let handle = NEXT.fetch_add(1, Relaxed) << 4;
        let before = RUNNING.replace(Some(Running {
            handle,
            cta: std::ptr::from_ref(cta).cast(),
        }));
        // SAFETY: C says that it is such a function.
        unsafe {
            kernel(
                std::ptr::without_provenance_mut(handle),
                index.as_ptr(),
                user.pointer(),
            );
        }
        RUNNING.set(before);
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
        // SAFETY: C says that they point to what they should.
        let (room, file) = unsafe { (room(to.cast::<u8>(), bytes, "to")?, file_name(file)?) };
        with_cta(cta, |cta| {
            let mut read = vec![0; bytes_of_access(bytes)?];
            cta.read(address, &mut read, file, line)?;
            room.fill(&read);
            Ok(())
        })
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
        // SAFETY: C says that they point to what they should.
        let (from, file) = unsafe { (slice(from.cast::<u8>(), bytes, "from")?, file_name(file)?) };
        with_cta(cta, |cta| {
            bytes_of_access(bytes)?;
            Ok(cta.write(address, from, file, line)?)
        })
    })
}

/// An atomic access of a CTA to 1, 2, 4 or 8 bytes, at a multiple of that. `operation`: GSAN_HOST_…; `order`:
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
        // SAFETY: C says that they point to what they should.
        let (old, file) = unsafe { (optional_output(old, "old")?, file_name(file)?) };
        with_cta(cta, |cta| {
            let (operation, order, scope) =
                (operation_of(operation)?, order_of(order)?, scope_of(scope)?);
            let found = cta.atomic(
                operation, address, bytes, operand, compare, order, scope, file, line,
            )?;
            if let Some(old) = old {
                old.set(found);
            }
            Ok(())
        })
    })
}

/// A CTA of a kernel that was launched as a programmatic dependent launch waits for the launch before it, as
/// griddepcontrol.wait does. A kernel that does not is not ordered after that launch. Of others it does
/// nothing.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_host_grid_dependency_wait(cta: *mut gsan_cta) -> gsan_status {
    status(|| {
        with_cta(cta, |cta| {
            cta.wait_for_dependency();
            Ok(())
        })
    })
}

/// More than any kernel accesses at once; a number beyond is none of bytes.
const MOST_BYTES: usize = 1 << 30;

fn bytes_of_access(bytes: usize) -> Result<usize, Failure> {
    match bytes {
        0..=MOST_BYTES => Ok(bytes),
        _ => Err(Failure::invalid(format!(
            "bytes is {bytes}: at most {MOST_BYTES} are accessed at once"
        ))),
    }
}

fn operation_of(operation: u32) -> Result<AtomicOperation, Failure> {
    Ok(match operation {
        GSAN_HOST_LOAD => AtomicOperation::Load,
        GSAN_HOST_STORE => AtomicOperation::Store,
        GSAN_HOST_EXCHANGE => AtomicOperation::Exchange,
        GSAN_HOST_COMPARE_AND_SWAP => AtomicOperation::CompareAndSwap,
        GSAN_HOST_ADD => AtomicOperation::Add,
        GSAN_HOST_AND => AtomicOperation::And,
        GSAN_HOST_OR => AtomicOperation::Or,
        GSAN_HOST_XOR => AtomicOperation::Xor,
        GSAN_HOST_MIN => AtomicOperation::Min,
        GSAN_HOST_MAX => AtomicOperation::Max,
        other => return Err(none_of("operation", other, "GSAN_HOST_…")),
    })
}

fn order_of(order: u32) -> Result<Order, Failure> {
    Ok(match order {
        GSAN_MEMORY_ORDER_RELAXED => Order::Relaxed,
        GSAN_MEMORY_ORDER_ACQUIRE => Order::Acquire,
        GSAN_MEMORY_ORDER_RELEASE => Order::Release,
        GSAN_MEMORY_ORDER_ACQ_REL => Order::AcqRel,
        other => return Err(none_of("order", other, "GSAN_MEMORY_ORDER_…")),
    })
}

fn scope_of(scope: u32) -> Result<Scope, Failure> {
    Ok(match scope {
        GSAN_MEMORY_SCOPE_CTA => Scope::Cta,
        GSAN_MEMORY_SCOPE_GPU => Scope::Gpu,
        GSAN_MEMORY_SCOPE_SYSTEM => Scope::Sys,
        other => {
            return Err(none_of(
                "scope",
                other,
                "GSAN_MEMORY_SCOPE_CTA, _GPU or _SYSTEM",
            ));
        }
    })
}

fn none_of(what: &str, value: u32, known: &str) -> Failure {
    Failure::invalid(format!("{what} is {value}, which is none of {known}"))
}
