//! What needs `unsafe`: the process's end and its forks, streams of the program, and CTAs that run as
//! functions.

#![allow(unsafe_code, reason = "this is the crate's lowest layer")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::host::Kernel;

/// Whether this process is a forked child of one that was watched.
static FORKED: AtomicBool = AtomicBool::new(false);

static FORKS_WATCHED: Once = Once::new();
static EXIT_WATCHED: Once = Once::new();

extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

extern "C" fn exits() {
    // A panic must not cross.
    let _ = std::panic::catch_unwind(crate::process::at_exit);
}

/// From now on forks are noticed. Before the process's lock is taken for long: a child that is forked
/// meanwhile would wait for it for ever.
pub(crate) fn watch_forks() {
    FORKS_WATCHED.call_once(|| {
        // SAFETY: `forked` stores into an atomic, which is all that a child may do. It lives as long as
        // this library: it is not unloaded, since it has threads.
        let fork = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if fork != 0 {
            tracing::warn!(fork, "forks of this process are not noticed");
        }
    });
}

/// From now on the exit of this process is noticed. After the devices were set up: what the driver does
/// at the exit must come later.
pub(crate) fn watch_exit() {
    EXIT_WATCHED.call_once(|| {
        // SAFETY: `exits` is called while the process still stands. It lives as long as this library.
        let exit = unsafe { libc::atexit(exits) };
        if exit != 0 {
            tracing::warn!(exit, "the exit of this process is not noticed");
        }
    });
}

/// Whether this process is a forked child of one that was watched.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

/// A stream that the program named.
pub(crate) fn cuda_stream(handle: u64) -> gsan_vmm::backend::Stream {
    // SAFETY: the program vouches for its handles, as it does with every function of CUDA's. It is told
    // to say when a stream is gone.
    unsafe { gsan_vmm::backend::Stream::cuda(handle) }
}

/// A part's memory, made known to the driver. The part is kept for as long.
#[cfg(feature = "cuda")]
pub(crate) struct Registered {
    _registration: gsan_vmm::backend::cuda::CudaRegistration,
    _part: std::sync::Arc<crate::part::Part>,
}

/// Lets GPUs write what they tell in a part. Returns the address that they use, too.
#[cfg(feature = "cuda")]
pub(crate) fn register(
    backend: &gsan_vmm::backend::cuda::CudaBackend,
    part: &std::sync::Arc<crate::part::Part>,
) -> gsan_vmm::backend::Result<(Registered, u64)> {
    let (start, bytes) = part.device_memory();
    // SAFETY: the range is mapped as long as the part is there, which is kept; it is a section of words
    // that everybody accesses as atomics.
    let (registration, address) = unsafe { backend.register(start, bytes)? };
    let registered = Registered {
        _registration: registration,
        _part: std::sync::Arc::clone(part),
    };
    Ok((registered, address))
}

/// Starts CTA number `cta` of a launch on an SM that the launch has taken.
pub(crate) fn start_cta(kernel: &Kernel, sm: u32, cta: u64) -> gsan_device::host::Cta {
    let records = kernel.surroundings.allocator.space().records();
    let launch = (kernel.table, kernel.index);
    // SAFETY: `globals` is the state region of a device of the host backend, which the ordering has set up
    // for these cells and does not give back while streams have work; the launch is such work. Shadow of
    // live allocations is mapped; the CTA names no others. The ring is the process's part, which is never
    // given back.
    unsafe { gsan_device::host::Cta::start(kernel.globals, records, sm, launch, cta) }
}

/// Does something, such as starting a thread, while this thread takes no signals; a thread that is
/// started takes none either.
pub(crate) fn without_signals<T>(action: impl FnOnce() -> T) -> T {
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is filled before it is used, `before` by the call if it succeeds; the mask is this
    // thread's own.
    let masked = unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = action();
    if masked {
        // SAFETY: the call above has filled `before`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
    }
    result
}
