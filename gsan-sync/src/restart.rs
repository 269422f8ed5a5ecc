//! Restart: everything is forgotten when epochs, tokens or launch numbers are half worn, at a moment
//! when nothing runs.
//!
//! It never waits for work. A device's rank is marked idle when the host knows that it has nothing to
//! do, and busy by its next launch ([`RestartMarks`]). Whoever finds all ranks idle zeroes.

use std::mem::offset_of;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use gsan_core::atomics::Native;
use gsan_core::compressed::restart::RestartMarks;
use gsan_core::compressed::system::RUNNING;
use gsan_core::layout::GlobalState;
use gsan_core::record::Token;
use gsan_vmm::backend::{CaptureStatus, Device};

use crate::error::Error;
use crate::launch::release;
use crate::ordering::{AtomicCounts, DeviceState, Inner, Ordering};
use crate::settings::Settings;
use crate::stream::{Begun, Retired, Stream, StreamState};

/// The mark of a rank that is busy.
const BUSY: u32 = 0;

/// How often a restart tries to get hold of all streams, and how long it waits in between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_micros(50);

/// The marks of all ranks.
pub(crate) struct Marks {
    words: Box<[AtomicU32]>,
    generation: AtomicU32,
    /// Launches when wear was looked at last.
    looked: std::sync::atomic::AtomicU64,
}

impl Marks {
    pub(crate) fn new(settings: &Settings) -> Marks {
        Marks {
            words: (0..settings.devices)
                .map(|_| AtomicU32::new(BUSY))
                .collect(),
            generation: AtomicU32::new(0),
            looked: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// How many restarts there were.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }
}

/// What came of a moment at which a device had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Some stream still has work, a launch is under way, or a process that shares memory with this one is
    /// not idle.
    NotYet,
    /// Nothing runs, and nothing is worn.
    Noted,
    /// Nothing ran, and everything was forgotten.
    Restarted,
}

impl Ordering {
    /// A device-wide wait has returned. If something is half worn, or a process that shares memory with
    /// this one wants to restart, and nothing runs on any device of the process, everything is forgotten: shadow and clocks are zeroed, and streams, events and
    /// graphs start anew.
    ///
    /// # Errors
    /// When the device has no rank, a launch of this thread is unfinished, or the backend fails.
    pub fn device_is_idle(&self, device: Device) -> Result<Idle, Error> {
        self.synchronize_device(device)?;
        let inner = &*self.inner;
        if inner.is_asked_to_restart()? {
            return self.restart();
        }
        let launches = inner.counts.launches.load(Relaxed);
        let since = launches.wrapping_sub(inner.marks.looked.load(Relaxed));
        if since < inner.settings.launches_between_looks {
            return Ok(Idle::Noted);
        }
        inner.marks.looked.store(launches, Relaxed);
        if !self.is_half_worn()? {
            return Ok(Idle::Noted);
        }
        self.restart()
    }

    /// Whether half of the epochs of some thread id, of the tokens or of the launch numbers of some
    /// device are used up. It reads memory of the devices.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn is_half_worn(&self) -> Result<bool, Error> {
        for device in self.inner.devices.iter() {
            if device.blocks.is_half_worn() || self.inner.epochs_are_half_worn(device)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets everything, if nothing runs on any device of the process. Of processes that share memory
    /// the last one to call this, or to wait for its devices, does so for all: the others join.
    ///
    /// # Errors
    /// When a launch of this thread is unfinished, or the backend fails.
    pub fn restart(&self) -> Result<Idle, Error> {
        let inner = &*self.inner;
        let mut gate = inner.together.lock();
        let mut attempts = 0..ATTEMPTS;
        let held = loop {
            match inner.try_hold_all()? {
                Ok(held) => break held,
                Err(_) if attempts.next().is_none() => return Ok(Idle::NotYet),
                // A launch is begun and ended sooner than that, as a rule.
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        let restarted = match inner.restart_together(&mut gate, &held) {
            Ok(None) => inner.restart_held(&held),
            Ok(Some(idle)) => Ok(idle),
            Err(error) => Err(error),
        };
        release(&held);
        restarted
    }
}

impl Inner {
    /// A launch comes: the rank is busy from now on.
    pub(crate) fn awake(&self, device: &DeviceState) {
        let rank = usize::from(device.region.rank.0);
        // A mark turns idle only while all streams are held, so a busy one stays busy here.
        if self.marks.words[rank].load(Acquire) == BUSY {
            return;
        }
        let marks = RestartMarks::<Native>::new(&self.marks.words);
        while marks.launch(rank).is_err() {
            // Somebody zeroes, which waits for nothing.
            std::thread::yield_now();
        }
    }

    /// Gets hold of all streams. What other threads have begun is waited for.
    pub(crate) fn hold_all(&self) -> Result<Vec<std::sync::Arc<Stream>>, Error> {
        loop {
            match self.try_hold_all()? {
                Ok(streams) => return Ok(streams),
                // Whoever keeps it may want another one: nothing is kept while this waits.
                Err(busy) => match busy.enter() {
                    Ok(_) | Err(Error::UnknownStream(_)) => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Gets hold of all streams, or returns one that another thread keeps, or that is about to go.
    fn try_hold_all(
        &self,
    ) -> Result<Result<Vec<std::sync::Arc<Stream>>, std::sync::Arc<Stream>>, Error> {
        let streams = self.streams_in_order();
        for (at, stream) in streams.iter().enumerate() {
            let busy = match stream.try_enter() {
                Ok(Some(entered)) => {
                    entered.keep(Begun::Call, stream.key);
                    continue;
                }
                Ok(None) | Err(Error::UnknownStream(_)) => Ok(Err(std::sync::Arc::clone(stream))),
                Err(error) => Err(error),
            };
            release(&streams[..at]);
            return busy;
        }
        Ok(Ok(streams))
    }

    /// A stream that still has work, or is being captured.
    pub(crate) fn still_running<'s>(
        &self,
        held: &'s [std::sync::Arc<Stream>],
    ) -> Result<Option<&'s Stream>, Error> {
        for stream in held {
            let device = stream.key.device;
            if self.backend.capture_status(device, stream.queue)? != CaptureStatus::None {
                return Ok(Some(stream));
            }
            let fence = self.backend.fence(stream.key.device, stream.queue)?;
            let passed = self.backend.passed(fence);
            self.backend.forget(fence);
            if !passed? {
                return Ok(Some(stream));
            }
        }
        Ok(None)
    }

    fn restart_held(&self, held: &[std::sync::Arc<Stream>]) -> Result<Idle, Error> {
        if !self.nothing_runs(held)? {
            return Ok(Idle::NotYet);
        }
        let marks = RestartMarks::<Native>::new(&self.marks.words);
        // A device that was never used has nothing to do, either.
        let ranks = self
            .settings
            .device_ranks
            .iter()
            .map(|rank| usize::from(rank.0));
        ranks.for_each(|rank| marks.idle(rank));
        let mut zeroed = Ok(());
        let all = marks.try_restart(|| zeroed = self.forget(held, false));
        if !all {
            return Ok(Idle::NotYet);
        }
        zeroed?;
        AtomicCounts::add(&self.counts.restarts);
        Ok(Idle::Restarted)
    }

    /// Whether no stream, of those that are gone neither, has work or a replay that was begun.
    pub(crate) fn nothing_runs(&self, held: &[std::sync::Arc<Stream>]) -> Result<bool, Error> {
        if self.still_running(held)?.is_some() || self.dormant_work()?.is_some() {
            return Ok(false);
        }
        let plans = self.live_plans();
        Ok(!plans.iter().any(|plan| plan.is_begun()))
    }

    /// Forgets everything. Nothing runs. `together`: other processes forget, too, and somebody may be
    /// dead whose memory is mapped here.
    pub(crate) fn forget(
        &self,
        held: &[std::sync::Arc<Stream>],
        together: bool,
    ) -> Result<(), Error> {
        // A device that is set up later starts with the new generation.
        let present = self.devices.present();
        self.events.clear();
        self.host.clear();
        self.memory.clear();
        let version = self.host.version();
        for stream in held {
            let device = &self.devices[stream.device];
            self.forget_state(device, &mut stream.reenter(), version)?;
        }
        for device in self.devices.iter() {
            self.for_each_dormant(device, |state| self.forget_state(device, state, version))?;
        }
        for device in self.devices.iter() {
            let region = &device.region;
            self.backend.synchronize(region.device)?;
            device.blocks.restart();
            device.banks().forget();
            device.rows.clear()?;
            let told = region.meeting_of(region.rank).rows[0];
            let bytes = 2 * region.foreign_bytes();
            self.backend.fill(region.device, told, bytes, 0)?;
            self.clear_region(device, *present)?;
        }
        for plan in self.live_plans() {
            plan.restart()?;
        }
        match together {
            true => self.allocator.clear_all_shadow()?,
            false => self.allocator.clear_shadow()?,
        }
        self.marks.generation.fetch_add(1, Release);
        Ok(())
    }

    fn forget_state(
        &self,
        device: &DeviceState,
        state: &mut StreamState,
        version: u64,
    ) -> Result<(), Error> {
        state.host_seen = version;
        let mut kept = state.restart();
        while let Some(more) = state.behind.pop(&*self.backend)? {
            kept.extend(more);
        }
        for retired in kept {
            if let Retired::Block(block) = retired {
                self.give_block_back(device, block)?;
            }
        }
        Ok(())
    }

    /// Zeroes what device code keeps, apart from names, counts and losses.
    fn clear_region(&self, device: &DeviceState, present: u32) -> Result<(), Error> {
        let region = &device.region;
        let offsets = &region.global.offsets;
        let start = u64::from(offsets.slot_masks);
        let bytes = u64::from(offsets.sites) - start;
        self.allocator
            .clear_state(region.rank, region.device, start, bytes)?;
        let mut global: GlobalState = bytemuck::Zeroable::zeroed();
        let target = bytemuck::bytes_of_mut(&mut global);
        self.backend.read(region.device, region.base, target)?;
        global.generation = self.marks.generation() + 1;
        global.present = present;
        global.publication_head.value = region.global.publication_head.value;
        global.snapshot_head.value = region.global.snapshot_head.value;
        global.sequential.value = region.global.sequential.value;
        let bytes = bytemuck::bytes_of(&global);
        self.backend.write(region.device, region.base, bytes)?;
        Ok(())
    }

    fn epochs_are_half_worn(&self, device: &DeviceState) -> Result<bool, Error> {
        let region = &device.region;
        let offsets = &region.global.offsets;
        let mut head = [0; 8];
        let at = region.base + offset_of!(GlobalState, publication_head) as u64;
        self.backend.read(region.device, at, &mut head)?;
        if u64::from_le_bytes(head) > Token::MAX.get() / 2 {
            return Ok(true);
        }
        let share = usize::from(region.global.constants.share);
        let mut epochs = vec![0u32; share];
        let at = region.base + u64::from(offsets.epochs);
        let target = bytemuck::cast_slice_mut(&mut epochs);
        self.backend.read(region.device, at, target)?;
        Ok(epochs.iter().any(|&epoch| epoch > RUNNING.get() / 2))
    }
}
