//! CTAs of one thread each that run as functions of this process, with the device library beside them.
//!
//! A CTA is a number of an SM: one CTA is on an SM at a time, and its state lies in the state region by
//! SM. Calls about one CTA come one after the other; CTAs on different SMs may call at once.

#![allow(unsafe_code, reason = "the library is in C++")]

use std::ffi::{CStr, c_char};

use gsan_core::address::Records;
use gsan_core::layout::AtomicEvent;

/// What an atomic does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strong {
    /// `1` relaxed, `2` acquire, `3` release, `4` both.
    pub order: u32,
    /// `1` gpu, `2` cta, `3` sys.
    pub scope: u32,
}

/// A CTA that is being started or was, on an SM of a device.
#[derive(Debug)]
pub struct Cta {
    globals: u64,
    records: Records,
    sm: u32,
}

macro_rules! functions {
    ($($name:ident => $two:ident, $four:ident($($argument:ident: $type:ty),*);)*) => {
        unsafe extern "C" {
            $(fn $two($($argument: $type),*);
            fn $four($($argument: $type),*);)*
        }

        $(#[allow(clippy::too_many_arguments, reason = "as the library has them")]
        unsafe fn $name(records: Records, $($argument: $type),*) {
            // SAFETY: the caller vouches for the arguments; both have the same.
            unsafe {
                match records {
                    Records::Two => $two($($argument),*),
                    Records::Four => $four($($argument),*),
                }
            }
        })*
    };
}

functions! {
    start => gsan_host_cta_start_2, gsan_host_cta_start_4(globals: u64, sm: u32, table: u64, index: u64, cta: u64);
    exit => gsan_host_cta_exit_2, gsan_host_cta_exit_4(globals: u64, sm: u32);
    wait => gsan_host_cta_wait_2, gsan_host_cta_wait_4(globals: u64, sm: u32);
    access => gsan_host_cta_access_2, gsan_host_cta_access_4(globals: u64, sm: u32, writes: u32, address: u64, bytes: u32, file: *const c_char, line: u32);
    atomic_begin => gsan_host_cta_atomic_begin_2, gsan_host_cta_atomic_begin_4(globals: u64, sm: u32, event: *mut AtomicEvent, address: u64, bytes: u32, reads: u32, order: u32, scope: u32);
    atomic_end => gsan_host_cta_atomic_end_2, gsan_host_cta_atomic_end_4(sm: u32, event: *const AtomicEvent, wrote: u32, is_rmw: u32, order: u32, scope: u32, file: *const c_char, line: u32);
}

/// An atomic that was begun.
#[derive(Debug)]
pub struct Begun {
    event: AtomicEvent,
    strong: Strong,
}

impl Cta {
    /// Starts CTA number `cta` of a launch, whose table and index are what kernels are given, on SM `sm`.
    ///
    /// # Safety
    /// `globals` is the state region of a device on the host backend, set up for cells of `records`
    /// records, with its shadow, the launch's descriptors and rows, and the race ring mapped in this
    /// process; all of it until the CTA has exited. Nobody else is on the SM until then.
    pub unsafe fn start(
        globals: u64,
        records: Records,
        sm: u32,
        (table, index): (u64, u64),
        cta: u64,
    ) -> Cta {
        // SAFETY: the caller vouches for it.
        unsafe { start(records, globals, sm, table, index, cta) }
        Cta {
            globals,
            records,
            sm,
        }
    }

    /// An ordinary access is about to be made. Memory without shadow is passed over. `file` is copied,
    /// and recognised by its address as long as the kernel is the same.
    pub fn access(&self, writes: bool, address: u64, bytes: u32, file: &CStr, line: u32) {
        let (records, globals) = (self.records, self.globals);
        // SAFETY: as whoever started the CTA vouched; the library follows addresses of the reservation to
        // their shadow, which is mapped, and no others.
        unsafe {
            access(
                records,
                globals,
                self.sm,
                writes.into(),
                address,
                bytes,
                file.as_ptr(),
                line,
            );
        }
    }

    /// An atomic on at most 8 bytes, of one granule, is about to be made.
    pub fn begin(&self, address: u64, bytes: u32, reads: bool, strong: Strong) -> Begun {
        let mut begun = Begun {
            event: bytemuck::Zeroable::zeroed(),
            strong,
        };
        let (records, globals, sm) = (self.records, self.globals, self.sm);
        let Strong { order, scope } = strong;
        // SAFETY: as above; the event is this call's own.
        unsafe {
            atomic_begin(
                records,
                globals,
                sm,
                &raw mut begun.event,
                address,
                bytes,
                reads.into(),
                order,
                scope,
            );
        }
        begun
    }

    /// The atomic was made. `wrote`: it changed memory; `is_rmw`: it read and wrote, or compared.
    pub fn end(&self, begun: &Begun, wrote: bool, is_rmw: bool, file: &CStr, line: u32) {
        let Strong { order, scope } = begun.strong;
        let (records, event) = (self.records, &raw const begun.event);
        // SAFETY: as above; the event was filled at the begin.
        unsafe {
            atomic_end(
                records,
                self.sm,
                event,
                wrote.into(),
                is_rmw.into(),
                order,
                scope,
                file.as_ptr(),
                line,
            );
        }
    }

    /// `griddepcontrol.wait`.
    pub fn wait(&self) {
        // SAFETY: as above.
        unsafe { wait(self.records, self.globals, self.sm) }
    }

    /// The CTA returns from the kernel.
    pub fn exit(self) {
        // SAFETY: as above.
        unsafe { exit(self.records, self.globals, self.sm) }
    }
}
