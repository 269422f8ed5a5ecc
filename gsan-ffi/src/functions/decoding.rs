//! What shadow memory and runtime state say, for tests and tools.

use std::ffi::c_int;

use gsan_runtime::session::Clock;

use crate::arguments::{output, room, versioned_output};
use crate::call::status;
use crate::session::{running, session_with};
use crate::status::gsan_status;
use crate::types::{gsan_cell_info, gsan_clock_info, gsan_device_info, gsan_thread_info};

/// What is remembered of the 8 bytes that hold an address. GSAN_NOT_FOUND outside of managed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_cell_at(address: u64, out: *mut gsan_cell_info) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let out = unsafe { versioned_output(out, "out") }?;
        let cell = running()?.cell_at(address)?;
        let mut read_clocks = [gsan_clock_info::default(); 4];
        for (to, clock) in read_clocks.iter_mut().zip(&cell.read_clocks) {
            *to = described(clock);
        }
        let reads = cell.read_clocks.len() as u32;
        out.set(&gsan_cell_info {
            size: size_of::<gsan_cell_info>(),
            num_reads: reads,
            write_clock: described(&cell.write_clock),
            read_clocks,
            read_count: reads.min(4),
        });
        Ok(())
    })
}

/// What is known of a CTA's place on a device. `*entries` says how many `vector_clock` has room for, and
/// after the call how many there are; both may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_thread_state_at(
    device: c_int,
    thread_id: u32,
    out: *mut gsan_thread_info,
    vector_clock: *mut u32,
    entries: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let (out, clock) = unsafe {
            let out = versioned_output(out, "out")?;
            let clock = match entries.is_null() {
                true => None,
                false => {
                    let count = output(entries, "entries")?;
                    let room_for = if vector_clock.is_null() {
                        0
                    } else {
                        entries.read()
                    };
                    Some((count, room(vector_clock, room_for, "vector_clock")?))
                }
            };
            (out, clock)
        };
        let (session, device) = session_with("gsan_thread_state_at", device)?;
        let state = session.thread_state(device, thread_id)?;
        if let Some((count, room)) = clock {
            count.set(state.vector_clock.len());
            room.fill(&state.vector_clock);
        }
        out.set(&gsan_thread_info {
            size: size_of::<gsan_thread_info>(),
            thread_id: state.thread_id,
            num_reads: state.num_reads,
            num_threads: state.num_threads,
            clock_buffer_head: state.clock_buffer_head,
            clock_buffer_dirty: state.clock_buffer_dirty.into(),
            clock_buffer_size: state.clock_buffer_size,
        });
        Ok(())
    })
}

/// What is known of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_global_state_of(
    device: c_int,
    out: *mut gsan_device_info,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let out = unsafe { versioned_output(out, "out") }?;
        let (session, device) = session_with("gsan_global_state_of", device)?;
        let state = session.device_globals(device)?;
        out.set(&gsan_device_info {
            size: size_of::<gsan_device_info>(),
            num_sms: state.num_sms,
            num_threads: state.num_threads,
            num_devices: state.num_devices,
            rng_seed: state.rng_seed,
            clock_buffer_size: state.clock_buffer_size,
        });
        Ok(())
    })
}

fn described(clock: &Clock) -> gsan_clock_info {
    gsan_clock_info {
        epoch: clock.epoch,
        thread_id: clock.thread_id,
        scope: clock.scope as u32,
        is_release: clock.is_release.into(),
    }
}
