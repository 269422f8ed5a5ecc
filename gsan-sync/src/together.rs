//! Restarts of processes that share memory: all of them forget together.
//!
//! The marks ([`group_restart`](gsan_core::compressed::group_restart)) lie beside the counts of barriers,
//! in the state region of each rank. They are read and written by the host, which is needed only when
//! something is worn: while no rank of this process is idle, a launch looks at a flag. Who is idle
//! when others decide to restart joins by its next launch, its next look, or by the thread that watches
//! for that, so that nobody's launches wait for what a program does next.

use std::sync::atomic::{
    AtomicBool, Ordering::Acquire, Ordering::Release, Ordering::SeqCst, fence,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gsan_core::atomics::Essential;
use gsan_core::compressed::group_restart::{Mark, MarkWords, Member, Next};
use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::{Backend, BackendError, Device};

use crate::error::Error;
use crate::launch::release;
use crate::ordering::{AtomicCounts, Inner};
use crate::restart::Idle;
use crate::stream::{Begun, Entered, Stream};

/// How long a launch waits for others to zero: they are dead then.
const LIMIT: Duration = Duration::from_secs(5);

/// How often somebody who waits looks.
const LOOK: Duration = Duration::from_millis(1);

/// How often a wait for a device looks whether others want to restart.
const ASK: Duration = Duration::from_millis(10);

/// This process among those that restart together.
#[derive(Default)]
pub(crate) struct Together {
    /// The next launch has to look at the others first.
    idle: AtomicBool,
    /// Locked before any stream.
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Gate {
    member: Member,
    /// The devices that are in groups, and their marks.
    own: Vec<(Device, u64)>,
    others: Vec<u64>,
    ranks: Vec<DeviceRank>,
    /// There were groups of different ranks: who depends on whom is not known.
    mixed: bool,
    watched: bool,
    asked: Option<Instant>,
}

/// The marks, by way of the backend.
struct Words<'g> {
    backend: &'g dyn Backend,
    own: &'g [(Device, u64)],
    others: &'g [u64],
}

impl MarkWords for Words<'_> {
    type Error = BackendError;

    fn others(&self, each: &mut dyn FnMut(Mark)) -> Result<(), BackendError> {
        let Some(&(device, _)) = self.own.first() else {
            return Ok(());
        };
        for &address in self.others {
            let mut word = [0; 4];
            self.backend.read(device, address, &mut word)?;
            each(Mark::from_word(u32::from_le_bytes(word)));
        }
        Ok(())
    }

    fn write(&self, mark: Mark) -> Result<(), BackendError> {
        let word = mark.word().to_le_bytes();
        let mut own = self.own.iter();
        own.try_for_each(|&(device, address)| self.backend.write(device, address, &word))
    }

    fn fence(&self, _: Essential) {
        // The backend's calls are over when they return; what is left is this thread's own order.
        fence(SeqCst);
    }
}

impl Gate {
    fn is_member(&self) -> bool {
        !self.own.is_empty()
    }

    fn with<R>(
        &mut self,
        inner: &Inner,
        call: impl FnOnce(&mut Member, &Words<'_>) -> Result<R, BackendError>,
    ) -> Result<R, Error> {
        let words = Words {
            backend: &*inner.backend,
            own: &self.own,
            others: &self.others,
        };
        Ok(call(&mut self.member, &words)?)
    }
}

impl Together {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a launch has to look at the others first. Changes to that only while all streams are kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Acquire)
    }

    fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Release);
        if idle {
            self.changed.notify_all();
        }
    }
}

impl Inner {
    /// The device at a place is in a group of `ranks` from now on.
    pub(crate) fn join_group(
        self: &Arc<Self>,
        place: usize,
        ranks: &[DeviceRank],
    ) -> Result<(), Error> {
        let region = &self.devices[place].region;
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let mut gate = self.together.lock();
        if gate.is_member() && gate.ranks != ranks {
            gate.mixed = true;
            tracing::warn!(
                "devices of this process are in groups of different ranks: it cannot restart before it has left \
                 them, and loses reports once epochs or tokens are used up"
            );
        }
        gate.own
            .push((region.device, region.meeting_of(region.rank).mark));
        let is_own = |rank: &DeviceRank| self.devices.iter().any(|d| d.region.rank == *rank);
        let others = ranks.iter().filter(|rank| !is_own(rank));
        gate.others = others.map(|&rank| region.meeting_of(rank).mark).collect();
        gate.ranks = ranks;
        let joined = gate.with(self, |member, words| member.is_worn(words, false));
        if joined.is_err() {
            gate.own.pop();
        } else if !std::mem::replace(&mut gate.watched, true) {
            let (together, inner) = (Arc::clone(&self.together), Arc::downgrade(self));
            let watch = move || watch(&together, &inner);
            let watcher = std::thread::Builder::new().name("gsan-restart".into());
            if let Err(error) = watcher.spawn(watch) {
                tracing::warn!(%error, "other processes may have to wait for this one to restart");
                gate.watched = false;
            }
        }
        joined
    }

    /// The device at a place leaves its group. Its mark stays busy, so that the others do not restart without it.
    pub(crate) fn leave_group(&self, place: usize) {
        if let Err(error) = self.awake_together() {
            tracing::warn!(%error, "a rank leaves its group while that restarts");
        }
        let device = self.devices[place].region.device;
        let mut gate = self.together.lock();
        gate.own.retain(|(own, _)| *own != device);
        if !gate.is_member() {
            gate.others.clear();
            gate.mixed = false;
        }
        drop(gate);
        self.together.changed.notify_all();
    }

    /// Enters a stream to launch on it, when all that this process restarts with are ready for that.
    pub(crate) fn occupy_awake<'s>(
        &self,
        stream: &'s Arc<Stream>,
        what: Begun,
    ) -> Result<(Entered<'s>, Vec<Arc<Stream>>), Error> {
        loop {
            self.awake_together()?;
            let (state, held) = self.occupy(stream, what)?;
            if !self.together.is_idle() {
                return Ok((state, held));
            }
            stream.leave(state);
            release(&held);
        }
    }

    /// This process is busy from now on. The caller keeps no stream.
    fn awake_together(&self) -> Result<(), Error> {
        if !self.together.is_idle() {
            return Ok(());
        }
        let mut gate = self.together.lock();
        let end = Instant::now() + LIMIT;
        while self.together.is_idle() {
            match gate.with(self, |member, words| member.launch(words))? {
                Next::GoOn => self.together.set_idle(false),
                Next::Zero => {
                    let held = self.hold_all()?;
                    let zeroed = self.zero_together(&mut gate, &held);
                    release(&held);
                    zeroed?;
                }
                Next::Wait if Instant::now() < end => std::thread::sleep(LOOK),
                Next::Wait => {
                    tracing::warn!("a process of the group does not restart: it is left behind");
                    self.together.set_idle(false);
                }
            }
        }
        Ok(())
    }

    /// Whether others want to restart, if it is time to look.
    pub(crate) fn is_asked_to_restart(&self) -> Result<bool, Error> {
        let mut gate = self.together.lock();
        let soon = gate.asked.is_some_and(|asked| asked.elapsed() < ASK);
        if !gate.is_member() || soon {
            return Ok(false);
        }
        gate.asked = Some(Instant::now());
        gate.with(self, |member, words| member.is_asked(words))
    }

    /// Forgets everything if nothing runs on any device of any process of the group. All streams are
    /// kept. `None`: this process is in no group.
    pub(crate) fn restart_together(
        &self,
        gate: &mut Gate,
        held: &[Arc<Stream>],
    ) -> Result<Option<Idle>, Error> {
        if !gate.is_member() {
            return Ok(None);
        }
        if gate.mixed || !self.nothing_runs(held)? {
            return Ok(Some(Idle::NotYet));
        }
        // From here on launches look first, those on streams that are opened from now on, too.
        if !self.if_all(held, || self.together.set_idle(true)) {
            return Ok(Some(Idle::NotYet));
        }
        gate.with(self, |member, words| {
            member.is_worn(words, true)?;
            member.idle(words)
        })?;
        match gate.with(self, |member, words| member.try_restart(words))? {
            Next::Zero => self
                .zero_together(gate, held)
                .map(|()| Some(Idle::Restarted)),
            Next::GoOn | Next::Wait => Ok(Some(Idle::NotYet)),
        }
    }

    /// It was decided to restart.
    fn zero_together(&self, gate: &mut Gate, held: &[Arc<Stream>]) -> Result<(), Error> {
        self.forget(held, true)?;
        AtomicCounts::add(&self.counts.restarts);
        gate.with(self, |member, words| member.zeroed(words))
    }
}

/// Joins restarts of others while this process is idle.
fn watch(together: &Together, inner: &Weak<Inner>) {
    loop {
        let mut gate = together.lock();
        while gate.is_member() && !together.is_idle() {
            let waited = together.changed.wait(gate);
            gate = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let inner = inner.upgrade();
        let (true, Some(inner)) = (gate.is_member(), inner) else {
            gate.watched = false;
            return;
        };
        if let Err(error) = inner.join_restart(&mut gate) {
            tracing::debug!(%error, "while watching for restarts");
        }
        drop(gate);
        drop(inner);
        std::thread::sleep(LOOK);
    }
}

impl Inner {
    /// Takes part in a restart, if one is decided.
    fn join_restart(&self, gate: &mut Gate) -> Result<(), Error> {
        // Streams are kept only if there is something to do. Nobody starts one here: all are idle after a
        // restart, too.
        let decided = gate.with(self, |member, words| {
            let mut ahead = false;
            words.others(&mut |mark| ahead |= mark.generation == member.following())?;
            Ok(ahead)
        })?;
        if !decided || !self.together.is_idle() {
            return Ok(());
        }
        let held = self.hold_all()?;
        let joined = match gate.with(self, |member, words| member.try_restart(words)) {
            Ok(Next::Zero) => self.zero_together(gate, &held),
            Ok(Next::GoOn | Next::Wait) => Ok(()),
            Err(error) => Err(error),
        };
        release(&held);
        joined
    }
}
