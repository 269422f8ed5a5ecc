//! A resident CTA: its thread id and epoch, what it knows, what it publishes.
//!
//! What a CTA knows is its launch's frontier, the completions of overtaken launches, perhaps a
//! checkpoint, and its private clock, which holds only what lies beyond. The private clock is made
//! at the first acquire.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::checkpoints::CheckpointRef;
use super::frontier::Launch;
use super::history::PastCta;
use super::lock::locked;
use super::publications::Publication;
use super::snapshots::{Draft, SnapshotRef};
use super::system::{FIRST_EPOCH, System};
use super::topology::Place;
use super::vector::Vector;
use crate::atomics::{Atomic, Essential, Memory, words};
use crate::cell::Past;
use crate::clock::{ClockEntry, Epoch};
use crate::ids::{DeviceRank, ThreadId};
use crate::layout::thread_flags::{
    self, ACQUIRED_PLAIN, ACQUIRED_TOKEN_SHIFT, ACQUIRED_VALID, FRONTIER_MADE,
    FRONTIER_TAKEN_SHIFT, PUBLISHED, PUBLISHED_EPOCH_SHIFT, PUBLISHED_SAID,
};
use crate::loss::Loss;
use crate::record::{RecordScope, SyncFields, SyncRecord, Token};

/// How many acquired sync words a CTA remembers, so as not to merge them again.
const ACQUIRED: usize = thread_flags::ACQUIRED as usize;

/// How many sync words that relaxed reads saw wait for an acquire fence.
const SEEN: usize = thread_flags::SEEN as usize;

/// The state of one resident CTA, shared by its threads. Device code keeps it in shared memory, as a
/// [`crate::layout::ThreadState`], whose packed words these are.
#[derive(Debug)]
pub struct CtaState<M: Memory> {
    lock: M::U32,
    /// Its thread id plus 1; 0 without a slot.
    id: M::U32,
    /// `S(t)`: its first epoch.
    start: M::U32,
    /// The newest epoch at which an access was made or the clock changed.
    touched: M::U32,
    /// The newest publication.
    published: M::U64,
    /// The newest snapshot of the private clock.
    snapshot: M::U32,
    /// Whether the clock changed since.
    changed: M::U32,
    /// The private clock's place in the pool plus 1.
    private: M::U32,
    /// Whether everything counts as ordered.
    everything: M::U32,
    /// Which launches overtaken are known to be complete.
    taken: M::U32,
    /// The checkpoint that is part of the clock.
    checkpoint: M::U32,
    /// The snapshot of the frontier with the completions in `taken`.
    frontier: M::U64,
    /// Sync words acquired last.
    acquired: Vec<M::U64>,
    /// What the newest release fence published, and its widest scope: a sync word.
    fence: M::U64,
    /// Whether relaxed reads saw more sync words than are kept.
    overflow: M::U32,
    /// Sync words that relaxed reads saw.
    seen: Vec<M::U64>,
}

impl<M: Memory> Default for CtaState<M> {
    fn default() -> Self {
        let [lock, id, start, touched, snapshot, changed] = [0; 6].map(M::U32::new);
        let [private, everything, taken, checkpoint, overflow] = [0; 5].map(M::U32::new);
        let [published, frontier, fence] = [0; 3].map(M::U64::new);
        CtaState {
            lock,
            id,
            start,
            touched,
            published,
            snapshot,
            changed,
            private,
            everything,
            taken,
            checkpoint,
            frontier,
            acquired: words(ACQUIRED, 0),
            fence,
            overflow,
            seen: words(SEEN, 0),
        }
    }
}

/// What a release published: accesses up to `epoch` are covered by `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Under which id.
    pub publisher: ThreadId,
    /// The publication.
    pub token: Token,
    /// The newest epoch it covers; 0 without a slot.
    pub epoch: Epoch,
    /// Whether the publication is marked as joined.
    joined: bool,
}

/// What a CTA knew before it published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Its newest publication, as [`CtaState`] keeps it.
    published: u64,
    /// What the sync word said, if the CTA had acquired it.
    acquired: Option<SyncRecord>,
    /// Whether that stood in the ring, and is not joined, or there are no other devices.
    plain: bool,
}

/// What of an acquired entry is left out: what the CTA did itself, or whatever it knows anyway.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Own,
    Known,
}

/// A resident CTA of a launch.
#[derive(Debug)]
pub struct Cta<'a, M: Memory> {
    /// The memory of all devices.
    pub system: &'a System<M>,
    /// Its launch.
    pub launch: &'a Launch<'a, M>,
    /// Its state.
    pub state: &'a CtaState<M>,
}

impl<M: Memory> Clone for Cta<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Cta<'_, M> {}

/// A clock cannot be said; the release publishes TOP.
struct Unsayable;

impl<M: Memory> Past for Cta<'_, M> {
    #[inline]
    fn is_ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
        if epoch == Epoch::MAX || self.knows_everything() {
            return true;
        }
        if self.is_own(thread, epoch) {
            return true;
        }
        let Some(place) = self.system.topology().place(thread) else {
            return true;
        };
        self.launch.covers(self.taken(), place, thread, epoch)
            || self
                .checkpoint()
                .is_some_and(|c| epoch <= self.system.checkpoint_epoch(c, thread))
            || self
                .private()
                .is_some_and(|clock| clock.get(place).covers(epoch))
    }

    #[inline]
    fn is_same_device(&self, thread: ThreadId) -> bool {
        self.system.topology().device(thread) == self.launch.device
    }
}

impl<'a, M: Memory> Cta<'a, M> {
    /// A CTA becomes resident on SM `sm`: takes a slot if one is free, and starts a new epoch.
    /// `coordinates` are what the history keeps.
    pub fn start(
        system: &'a System<M>,
        launch: &'a Launch<'a, M>,
        state: &'a CtaState<M>,
        sm: u32,
        coordinates: u64,
    ) -> Self {
        let cta = Cta {
            system,
            launch,
            state,
        };
        state.taken.store(u32::from(launch.complete()), Relaxed);
        if launch.state.started.fetch_add(1, Relaxed) == 0 {
            let head = system.publications(launch.device).head().load(Relaxed);
            if head + 1 > system.checkpoints(launch.device).newest().max(1) {
                system.take_checkpoint(launch.device);
            }
        }
        let Some(slot) = system.slots(launch.bank()).take(sm) else {
            cta.count(Loss::NoSlot);
            state.everything.store(1, Relaxed);
            return cta;
        };
        let place = Place {
            bank: launch.bank(),
            slot,
        };
        let id = system.topology().id(place);
        let last = system.epoch(id).load(Relaxed).max(FIRST_EPOCH - 1);
        let epoch = cta.following(last);
        system.epoch(id).store(epoch.get(), Release);
        state.start.store(epoch.get(), Relaxed);
        state.id.store(u32::from(id.0) + 1, Relaxed);
        system.history().start(
            id,
            PastCta {
                start: epoch,
                launch: launch.id,
                coordinates,
            },
        );
        cta
    }

    /// The CTA's last thread returns: what it knew goes into the completion, and its slot is free.
    pub fn exit(self) {
        let (system, after) = (self.system, self.launch.after);
        let topology = system.topology();
        if self.knows_everything() {
            for place in system.high_water().places() {
                let id = topology.id(place);
                let epoch = Epoch::new(system.epoch(id).load(Acquire)).unwrap_or(Epoch::MAX);
                after.add(place, id, ClockEntry::all(epoch));
            }
        }
        if let Some(checkpoint) = self.checkpoint() {
            for place in system.high_water().places() {
                let id = topology.id(place);
                let epoch = system.checkpoint_epoch(checkpoint, id);
                after.add(place, id, ClockEntry::all(epoch));
            }
        }
        if let Some(clock) = self.private() {
            for (place, entry) in clock.entries() {
                after.add(place, topology.id(place), entry);
            }
        }
        if let Some((id, place)) = self.own() {
            after.add(place, id, ClockEntry::all(self.epoch()));
        }
        self.launch.carry(system, self.taken());
        let private = self.state.private.swap(0, Relaxed);
        if private != 0 {
            system
                .pool(self.launch.device)
                .give_back(private as usize - 1);
        }
        if let Some((_, place)) = self.own() {
            system.slots(place.bank).give_back(place.slot);
        }
        self.launch.count_exit();
    }

    /// `griddepcontrol.wait` returned.
    pub fn grid_dependency_wait(self) {
        let Some(index) = self.launch.waits_for else {
            return;
        };
        locked::<M, _>(&self.state.lock, || {
            self.take(1 << index | self.launch.complete());
        });
    }

    /// The thread id, or `None` without a slot: such a CTA is not checked.
    pub fn id(self) -> Option<ThreadId> {
        match self.state.id.load(Relaxed) {
            0 => None,
            id => Some(ThreadId((id - 1) as u16)),
        }
    }

    /// The current epoch, without having made an access.
    pub fn epoch(self) -> Epoch {
        let Some(id) = self.id() else {
            return Epoch::ZERO;
        };
        Epoch::new(self.system.epoch(id).load(Relaxed)).unwrap_or(Epoch::MAX)
    }

    /// The epoch of an access that is being made.
    #[inline]
    pub fn touch(self) -> Epoch {
        let epoch = self.epoch();
        if self.state.touched.load(Relaxed) != epoch.get() {
            self.state.touched.fetch_max(epoch.get(), Relaxed);
        }
        epoch
    }

    /// Whether `epoch` of `thread` is one of this CTA's own.
    #[inline]
    pub fn is_own(self, thread: ThreadId, epoch: Epoch) -> bool {
        self.id() == Some(thread) && epoch.get() >= self.state.start.load(Relaxed)
    }

    fn own(self) -> Option<(ThreadId, Place)> {
        let id = self.id()?;
        Some((id, self.system.topology().place(id)?))
    }

    fn taken(self) -> u16 {
        self.state.taken.load(Relaxed) as u16
    }

    fn checkpoint(self) -> Option<CheckpointRef> {
        CheckpointRef::from_bits(self.state.checkpoint.load(Relaxed))
    }

    fn private(self) -> Option<Vector<'a, M>> {
        match self.state.private.load(Acquire) {
            0 => None,
            index => Some(
                self.system
                    .pool(self.launch.device)
                    .clock(index as usize - 1),
            ),
        }
    }

    /// Whether everything counts as ordered, for want of a slot or of room for a clock.
    pub fn knows_everything(self) -> bool {
        self.state.everything.load(Relaxed) != 0
    }

    pub(super) fn count(self, loss: Loss) {
        self.system.count(self.launch.device, loss);
    }

    /// The id under which the CTA publishes.
    fn publisher(self) -> ThreadId {
        let topology = self.system.topology();
        self.id()
            .unwrap_or_else(|| topology.reserved(self.launch.device))
    }

    /// The epoch after `epoch`: [`Epoch::MAX`] when they are worn out.
    fn following(self, epoch: u32) -> Epoch {
        if epoch < self.system.sizes().last_epoch.get() {
            Epoch::new(epoch + 1).unwrap_or(Epoch::MAX)
        } else {
            self.count(Loss::WornEpoch);
            Epoch::MAX
        }
    }

    /// Publishes what the CTA did and knows. Shares the publication before when the CTA made no
    /// access and learned nothing since.
    pub fn publish(self) -> Released {
        self.publish_knowing(Known::default())
    }

    /// The same for a word of which the CTA knew `known`. What it had acquired there is in the
    /// publication, which is marked as joined if that was.
    pub(super) fn publish_knowing(self, known: Known) -> Released {
        if let Some(shared) = self.unchanged() {
            return shared;
        }
        locked::<M, _>(&self.state.lock, || {
            self.unchanged().unwrap_or_else(|| self.publish_anew(known))
        })
    }

    /// The publication before, if it still says all.
    fn unchanged(self) -> Option<Released> {
        let published = self.state.published.load(Acquire);
        let epoch = Epoch::from_bits(published >> PUBLISHED_EPOCH_SHIFT);
        let token = Token::new(published & Token::MAX.get())?;
        let current = self.epoch();
        let said = published & PUBLISHED != 0
            && epoch.next() == Some(current)
            && self.state.touched.load(Relaxed) < current.get()
            && token != Token::MAX
            && self
                .system
                .publications(self.launch.device)
                .is_recent(token);
        said.then(|| Released {
            publisher: self.publisher(),
            token,
            epoch,
            joined: false,
        })
    }

    fn publish_anew(self, known: Known) -> Released {
        let epoch = self.epoch();
        let joined = known.acquired.is_some() && !known.plain;
        let (token, said) = match self.sayable(epoch, joined) {
            Ok(publication) => self.put(&publication),
            Err(Unsayable) => (self.put_top(), false),
        };
        if let Some(id) = self.id()
            && epoch != Epoch::MAX
        {
            let next = self.following(epoch.get());
            self.system.epoch(id).store(next.get(), Relaxed);
            let published = PUBLISHED
                | if said { PUBLISHED_SAID } else { 0 }
                | u64::from(epoch.get()) << PUBLISHED_EPOCH_SHIFT
                | token.get();
            self.state.published.store(published, Release);
        }
        Released {
            publisher: self.publisher(),
            token,
            epoch,
            joined: joined && said,
        }
    }

    /// What a publication of everything up to `epoch` says.
    fn sayable(self, epoch: Epoch, joined: bool) -> Result<Publication, Unsayable> {
        let id = self.id().filter(|_| !self.knows_everything());
        let publisher = id.ok_or(Unsayable)?;
        Ok(Publication {
            publisher,
            entry: ClockEntry::closed(self.first_epoch(), epoch),
            joined,
            frontier: self.frontier_snapshot(self.taken())?,
            snapshot: self.own_snapshot()?,
            launch: self.launch.id,
            taken: self.taken(),
        })
    }

    fn first_epoch(self) -> Epoch {
        Epoch::new(self.state.start.load(Relaxed)).unwrap_or(Epoch::MAX)
    }

    /// Puts a publication into the ring, or TOP if its place is not free. Whether it stands there.
    fn put(self, publication: &Publication) -> (Token, bool) {
        let publications = self.system.publications(self.launch.device);
        let Some(token) = publications.claim() else {
            self.count(Loss::WornToken);
            return (Token::MAX, false);
        };
        let written = publications.write(token, publication);
        if !written {
            self.count(Loss::TopRelease);
        }
        if !written || publications.checkpoint_is_due(token) {
            self.system.take_checkpoint(self.launch.device);
        }
        (token, written)
    }

    /// Claims a token that says nothing, and takes the checkpoint that it stands for. An acquirer
    /// that finds none takes its own.
    fn put_top(self) -> Token {
        self.count(Loss::TopRelease);
        let Some(token) = self.system.publications(self.launch.device).claim() else {
            self.count(Loss::WornToken);
            return Token::MAX;
        };
        self.system.take_checkpoint(self.launch.device);
        token
    }

    /// A snapshot of what the CTA learned beyond its frontier; `None` if that is nothing.
    fn own_snapshot(self) -> Result<Option<SnapshotRef>, Unsayable> {
        if self.private().is_none() && self.checkpoint().is_none() {
            return Ok(None);
        }
        let snapshots = self.system.snapshots(self.launch.device);
        let last = SnapshotRef::from_bits(self.state.snapshot.load(Relaxed));
        if self.state.changed.load(Relaxed) == 0
            && let Some(last) = last.filter(|&last| snapshots.is_recent(last))
        {
            return Ok(Some(last));
        }
        let draft = snapshots.draft().ok_or(Unsayable)?;
        self.copy_own(draft.clock);
        let snapshot = draft.publish();
        let bits = snapshot.map_or(0, SnapshotRef::bits);
        self.state.snapshot.store(bits, Relaxed);
        self.state.changed.store(0, Relaxed);
        Ok(snapshot)
    }

    /// Copies what the CTA learned beyond its frontier into an empty clock.
    fn copy_own(self, target: Vector<'_, M>) {
        if let Some(checkpoint) = self.checkpoint() {
            target.set_checkpoint(checkpoint);
        }
        if let Some(clock) = self.private() {
            for (place, entry) in clock.entries() {
                target
                    .merge(place, entry)
                    .expect("both clocks have the same number of segments");
            }
        }
    }

    /// A snapshot of the frontier with the completions in `taken`, for acquirers of other
    /// launches. Made by the first publisher, and again when it has become old.
    fn frontier_snapshot(self, taken: u16) -> Result<Option<SnapshotRef>, Unsayable> {
        let kept = match taken {
            0 => &self.launch.state.frontier,
            _ => &self.state.frontier,
        };
        let key = u64::from(taken) << FRONTIER_TAKEN_SHIFT | FRONTIER_MADE;
        let snapshots = self.system.snapshots(self.launch.device);
        let found = kept.load(Acquire);
        if found & !u64::from(u32::MAX) == key {
            let snapshot = SnapshotRef::from_bits(found as u32);
            if snapshot.is_none_or(|s| snapshots.is_recent(s)) {
                return Ok(snapshot);
            }
        }
        let draft = snapshots.draft().ok_or(Unsayable)?;
        let mut full = false;
        self.launch.for_each(self.system, taken, |place, _, entry| {
            full |= draft.clock.merge(place, entry).is_err();
        });
        if full {
            self.count(Loss::OutsideClock);
            match self.system.take_checkpoint(self.launch.device) {
                Some(checkpoint) => draft.clock.set_checkpoint(checkpoint),
                None => {
                    draft.publish();
                    return Err(Unsayable);
                }
            }
        }
        let snapshot = draft.publish();
        let bits = u64::from(snapshot.map_or(0, SnapshotRef::bits));
        kept.store(key | bits, Release);
        Ok(snapshot)
    }

    /// Merges what `sync` says.
    pub fn acquire(self, sync: SyncRecord) {
        let key = sync_key(sync);
        let at = key as usize % ACQUIRED;
        if self.knows_everything() || self.has_acquired(key) {
            return;
        }
        let plain = locked::<M, _>(&self.state.lock, || {
            self.absorb(sync.publisher(), sync.token())
        });
        if sync.token() != Token::MAX {
            let plain = if plain { ACQUIRED_PLAIN } else { 0 };
            self.state.acquired[at].store(key | plain, Release);
        }
    }

    /// Counts everything that happened so far as ordered: more than was read is merged when it
    /// is not known what was.
    pub fn acquire_everything_so_far(self) {
        self.count(Loss::PublicationOverrun);
        locked::<M, _>(&self.state.lock, || {
            self.learn_checkpoint(self.system.take_checkpoint(self.launch.device));
        });
    }

    /// Merges what `token` of `publisher` says. Returns whether the publication stood in the ring
    /// and is not joined, or there are no other devices.
    fn absorb(self, publisher: ThreadId, token: Token) -> bool {
        let device = self.system.topology().device(publisher);
        let Some(publication) = self.system.publications(device).read(token) else {
            self.count(Loss::PublicationOverrun);
            self.learn_checkpoint(self.covering(device, token));
            return false;
        };
        let same_launch = self.is_of_launch(device, &publication);
        // What a CTA of the same launch says lies beyond the frontier already. A completion or a
        // checkpoint that it tells as well may cover some of it: that is kept, so that rows need
        // not be looked at. What is kept for nothing can only make the hull with later entries wider.
        let knows_more = self.taken() != 0 || self.checkpoint().is_some();
        let cuts = if same_launch && !knows_more {
            Cut::Own
        } else {
            Cut::Known
        };
        if let Some(place) = self.system.topology().place(publication.publisher) {
            self.learn(place, publication.entry, cuts);
        }
        if same_launch {
            self.take(publication.taken);
        }
        let frontier = publication.frontier.filter(|_| !same_launch);
        for snapshot in frontier.into_iter().chain(publication.snapshot) {
            let read = self.system.snapshots(device).read(
                snapshot,
                |checkpoint| self.learn_checkpoint(Some(checkpoint)),
                |place, entry| self.learn(place, entry, cuts),
            );
            if read.is_err() {
                self.count(Loss::SnapshotOverrun);
                self.learn_checkpoint(self.covering(device, token));
            }
        }
        !publication.joined || self.system.topology().devices() == 1
    }

    fn is_of_launch(self, device: DeviceRank, publication: &Publication) -> bool {
        device == self.launch.device && publication.launch == self.launch.id
    }

    /// A checkpoint that covers what `token` of `device` said.
    fn covering(self, device: DeviceRank, token: Token) -> Option<CheckpointRef> {
        self.system
            .checkpoints(device)
            .covering(token)
            .or_else(|| self.system.take_checkpoint(self.launch.device))
    }

    /// The completions of `taken` are known.
    fn take(self, taken: u16) {
        let before = self.state.taken.fetch_or(u32::from(taken), Relaxed) as u16;
        if before | taken != before {
            self.touch();
        }
    }

    fn learn_checkpoint(self, checkpoint: Option<CheckpointRef>) {
        let latest = match (self.checkpoint(), checkpoint) {
            (Some(known), Some(new)) => self.later(known, new),
            (_, new) => new,
        };
        let Some(latest) = latest else {
            self.learn_everything(Loss::OutsideClock);
            return;
        };
        if self.checkpoint() != Some(latest) {
            self.state.checkpoint.store(latest.bits(), Release);
            self.learned();
        }
    }

    /// A checkpoint that covers both.
    fn later(self, a: CheckpointRef, b: CheckpointRef) -> Option<CheckpointRef> {
        if a == b {
            return Some(a);
        }
        if a.device() != b.device() {
            return self.system.take_checkpoint(self.launch.device);
        }
        let checkpoints = self.system.checkpoints(a.device());
        let newer = if checkpoints.position(a) >= checkpoints.position(b) {
            a
        } else {
            b
        };
        Some(newer)
    }

    fn learn_everything(self, loss: Loss) {
        self.count(loss);
        self.state.everything.store(1, Relaxed);
        self.learned();
    }

    /// The clock changed: the next release has something new to say.
    fn learned(self) {
        self.state.changed.store(1, Relaxed);
        self.touch();
    }

    fn learn(self, place: Place, entry: ClockEntry, cuts: Cut) {
        if self.knows_everything() {
            return;
        }
        let entry = match cuts {
            Cut::Own => self.not_own(place, entry),
            Cut::Known => self.beyond(self.taken(), place, entry),
        };
        if entry.is_empty() {
            return;
        }
        let Some(clock) = self.private().or_else(|| self.make_private()) else {
            self.learn_everything(Loss::PrivatePoolEmpty);
            return;
        };
        match clock.merge(place, entry) {
            Ok(true) => self.learned(),
            Ok(false) => {}
            Err(_) => self.learn_everything(Loss::OutsideClock),
        }
    }

    /// The part of `entry` that the private clock has to hold.
    fn beyond(self, taken: u16, place: Place, entry: ClockEntry) -> ClockEntry {
        let id = self.system.topology().id(place);
        let entry = self.not_own(place, entry);
        let entry = self.launch.cut(taken, place, id, entry);
        match self.checkpoint() {
            Some(c) if !entry.is_empty() => {
                entry.cut(ClockEntry::all(self.system.checkpoint_epoch(c, id)))
            }
            _ => entry,
        }
    }

    /// The part of `entry` that the CTA did not do itself.
    fn not_own(self, place: Place, entry: ClockEntry) -> ClockEntry {
        if self.id() == Some(self.system.topology().id(place)) {
            entry.cut_from(self.first_epoch())
        } else {
            entry
        }
    }

    fn make_private(self) -> Option<Vector<'a, M>> {
        let pool = self.system.pool(self.launch.device);
        let index = pool.take(self.state.id.load(Relaxed))?;
        self.state.private.store(index as u32 + 1, Release);
        Some(pool.clock(index))
    }

    /// The sync record that says `found` and `own`, for `mask` and `scope` of a release. It names
    /// the publication of `found` if that says all of it already.
    pub(super) fn joined(
        self,
        found: Option<SyncRecord>,
        own: Released,
        known: Known,
        mask: u8,
        scope: RecordScope,
    ) -> SyncRecord {
        let fields = SyncFields {
            publisher: own.publisher,
            mask,
            scope,
            token: own.token,
        };
        let Some(found) = found else {
            return SyncRecord::new(fields);
        };
        let mut wide = SyncFields {
            mask: found.mask() | mask,
            scope: self.widest(found, scope),
            ..fields
        };
        if !M::keeps(Essential::SequenceJoined) {
            return SyncRecord::new(wide);
        }
        if self.is_contained(found, own, known) {
            return SyncRecord::new(wide);
        }
        if self.contains(found, own) {
            wide.publisher = found.publisher();
            wide.token = found.token();
            return SyncRecord::new(wide);
        }
        wide.token = locked::<M, _>(&self.state.lock, || {
            self.joined_publication(found, own).map_or_else(
                |Unsayable| self.put_top(),
                |publication| self.put(&publication).0,
            )
        });
        SyncRecord::new(wide)
    }

    /// The scope of a sync record that gets another part.
    fn widest(self, found: SyncRecord, scope: RecordScope) -> RecordScope {
        let topology = self.system.topology();
        let publisher = found.publisher();
        let least = if topology.device(publisher) != self.launch.device {
            RecordScope::Sys
        } else if Some(publisher) != self.id() {
            RecordScope::Gpu
        } else {
            scope
        };
        found.scope().max(scope).max(least)
    }

    /// Whether the publication of `found` contains `own`, whose clock has not changed since.
    ///
    /// An entry for the own slot that ends at the published epoch, and does not mean "all", can
    /// only come from the publication of that epoch.
    fn contains(self, found: SyncRecord, own: Released) -> bool {
        let topology = self.system.topology();
        let device = topology.device(found.publisher());
        if found.token() == own.token && device == self.launch.device {
            return own.token != Token::MAX;
        }
        let Some((id, place)) = self.own() else {
            return false;
        };
        if own.epoch == Epoch::MAX || self.knows_everything() {
            return false;
        }
        let Some(publication) = self.system.publications(device).read(found.token()) else {
            return false;
        };
        let says =
            |entry: ClockEntry| entry.epoch() == own.epoch && entry.span() != ClockEntry::SPAN_ALL;
        (publication.publisher == id && says(publication.entry))
            || publication.snapshot.is_some_and(|snapshot| {
                let entry = self.system.snapshots(device).get(snapshot, place);
                entry.is_some_and(says)
            })
    }

    /// What the CTA knew before it published, for [`Self::is_contained`]. `found` is what the sync
    /// word said then.
    pub(super) fn known(self, found: Option<SyncRecord>) -> Known {
        let word = found.map_or(0, |found| self.acquired_word(sync_key(found)));
        Known {
            published: self.state.published.load(Acquire),
            acquired: found.filter(|found| word & !ACQUIRED_PLAIN == sync_key(*found)),
            plain: word & ACQUIRED_PLAIN != 0,
        }
    }

    fn acquired_word(self, key: u64) -> u64 {
        self.state.acquired[key as usize % ACQUIRED].load(Acquire)
    }

    fn has_acquired(self, key: u64) -> bool {
        self.acquired_word(key) & !ACQUIRED_PLAIN == key
    }

    /// Whether `own` says all that `found` says, and nothing would tell the two apart: a publication
    /// of this CTA before it, as its clock only grows; or what it had acquired.
    fn is_contained(self, found: SyncRecord, own: Released, known: Known) -> bool {
        if own.token == Token::MAX || own.epoch == Epoch::MAX {
            return false;
        }
        let topology = self.system.topology();
        let device = topology.device(found.publisher());
        let newer = self.id() == Some(found.publisher()) && found.token() < own.token;
        if newer
            && known.published & (PUBLISHED_SAID | Token::MAX.get())
                == PUBLISHED_SAID | found.token().get()
        {
            return true;
        }
        let acquired = known.acquired == Some(found) && device == self.launch.device;
        if !newer && !acquired {
            return false;
        }
        if acquired && (known.plain || own.joined) {
            return true;
        }
        let Some(publication) = self.system.publications(device).read(found.token()) else {
            return false;
        };
        // A joined one has parts of others, and may reach others.
        let of_this_cta = newer
            && publication.entry.epoch().get() >= self.state.start.load(Relaxed)
            && !publication.joined;
        let reaches_the_same = !publication.joined || topology.devices() == 1;
        of_this_cta || (acquired && reaches_the_same)
    }

    fn joined_publication(
        self,
        found: SyncRecord,
        own: Released,
    ) -> Result<Publication, Unsayable> {
        let id = self.id().filter(|_| !self.knows_everything());
        let publisher = id.ok_or(Unsayable)?;
        let device = self.system.topology().device(found.publisher());
        let theirs = self.system.publications(device).read(found.token());
        let taken = match &theirs {
            Some(theirs) if self.is_of_launch(device, theirs) => self.taken() | theirs.taken,
            _ => self.taken(),
        };
        let frontier = self.frontier_snapshot(taken)?;
        let draft = self.system.snapshots(self.launch.device).draft();
        let draft = draft.ok_or(Unsayable)?;
        self.copy_own(draft.clock);
        let filled = match &theirs {
            Some(theirs) => self.add_theirs(&draft, device, theirs, taken),
            None => self
                .add_checkpoint(&draft, self.covering(device, found.token()))
                .map(|()| own.epoch),
        };
        let snapshot = draft.publish();
        // What a fence published may be older than what the CTA has released there since. A CTA that
        // knew everything says more: epochs that are not released yet, and are not to be.
        let published = self.state.published.load(Acquire);
        let released = Epoch::from_bits(published >> PUBLISHED_EPOCH_SHIFT);
        let newest = filled?.min(released).max(own.epoch);
        Ok(Publication {
            publisher,
            entry: ClockEntry::closed(self.first_epoch(), newest),
            joined: true,
            snapshot,
            frontier,
            launch: self.launch.id,
            taken,
        })
    }

    /// Adds what another publication says to a snapshot that is being made. Returns the newest
    /// epoch of the own slot that it says.
    fn add_theirs(
        self,
        draft: &Draft<'_, M>,
        device: DeviceRank,
        theirs: &Publication,
        taken: u16,
    ) -> Result<Epoch, Unsayable> {
        let (mut full, mut newest) = (false, Epoch::ZERO);
        let own = self.own().map(|(_, place)| place);
        let mut add = |place, entry: ClockEntry| {
            if Some(place) == own {
                newest = newest.max(entry.epoch());
            }
            let entry = self.beyond(taken, place, entry);
            full |= draft.clock.merge(place, entry).is_err();
        };
        if let Some(place) = self.system.topology().place(theirs.publisher) {
            add(place, theirs.entry);
        }
        let frontier = theirs
            .frontier
            .filter(|_| !self.is_of_launch(device, theirs));
        for snapshot in frontier.into_iter().chain(theirs.snapshot) {
            let mut checkpoint = None;
            let snapshots = self.system.snapshots(device);
            let read = snapshots.read(snapshot, |c| checkpoint = Some(c), &mut add);
            read.map_err(|_| Unsayable)?;
            if checkpoint.is_some() {
                self.add_checkpoint(draft, checkpoint)?;
            }
        }
        if full { Err(Unsayable) } else { Ok(newest) }
    }

    fn add_checkpoint(
        self,
        draft: &Draft<'_, M>,
        checkpoint: Option<CheckpointRef>,
    ) -> Result<(), Unsayable> {
        let new = checkpoint.ok_or(Unsayable)?;
        let latest = match draft.clock.checkpoint() {
            Some(known) => self.later(known, new).ok_or(Unsayable)?,
            None => new,
        };
        draft.clock.set_checkpoint(latest);
        Ok(())
    }

    /// What stands in the sync word when it could not be changed in a few attempts: everything up
    /// to the moment of the acquire, for all bytes and everybody.
    /// `mask` and `scope` are those of the release that gave up.
    pub(super) fn top_word(self, mask: u8, scope: RecordScope) -> SyncRecord {
        self.count(Loss::TopRelease);
        let (mask, scope) = if M::keeps(Essential::TopForAll) {
            (u8::MAX, RecordScope::Sys)
        } else {
            (mask, scope)
        };
        SyncRecord::new(SyncFields {
            publisher: self.publisher(),
            mask,
            scope,
            token: Token::MAX,
        })
    }

    /// A release fence: later relaxed atomic writes publish the clock of now. At the scope of a CTA it tells others
    /// nothing.
    pub fn release_fence(self, scope: RecordScope) {
        if scope == RecordScope::Cta {
            return;
        }
        let own = self.publish();
        let before = sync_of(self.state.fence.load(Relaxed));
        let scope = before.map_or(scope, |before| before.scope().max(scope));
        let word = SyncRecord::new(SyncFields {
            publisher: own.publisher,
            mask: u8::MAX,
            scope,
            token: own.token,
        });
        self.state.fence.store(word.bits(), Release);
    }

    /// What the newest release fence published, and how far it reaches.
    pub(super) fn fenced(self) -> Option<(Released, RecordScope)> {
        let word = sync_of(self.state.fence.load(Acquire))?;
        let publications = self.system.publications(self.launch.device);
        // What the fence published may have been overwritten: then the clock of now does.
        let own = publications.read(word.token()).map(|publication| Released {
            publisher: word.publisher(),
            token: word.token(),
            epoch: publication.entry.epoch(),
            joined: false,
        });
        Some((own.unwrap_or_else(|| self.publish()), word.scope()))
    }

    /// A relaxed read with a result saw `sync`: a later acquire fence merges it.
    pub(super) fn saw(self, sync: SyncRecord) {
        let bits = sync.bits();
        if self
            .state
            .seen
            .iter()
            .any(|seen| seen.load(Relaxed) == bits)
        {
            return;
        }
        for seen in &self.state.seen {
            if seen.compare_exchange(0, bits, Release, Relaxed).is_ok() {
                return;
            }
        }
        self.saw_too_much();
    }

    /// A relaxed read saw more than is kept: the next acquire fence merges everything so far.
    pub(super) fn saw_too_much(self) {
        self.state.overflow.store(1, Release);
    }

    /// An acquire fence: what relaxed reads before it saw is known from now on.
    pub fn acquire_fence(self, scope: RecordScope) {
        if self.state.overflow.load(Acquire) != 0 {
            self.acquire_everything_so_far();
        }
        for seen in &self.state.seen {
            let bits = seen.load(Acquire);
            if let Some(sync) = sync_of(bits)
                && self.reaches(sync, scope)
            {
                self.acquire(sync);
                // Only then, so that no other thread's fence misses it.
                let _ = seen.compare_exchange(bits, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Whether a release sequence that `sync` tells of may reach an acquire at `scope`.
    pub(super) fn reaches(self, sync: SyncRecord, scope: RecordScope) -> bool {
        match sync.scope().min(scope) {
            RecordScope::NotAtomic => false,
            RecordScope::Cta => self.id() == Some(sync.publisher()),
            RecordScope::Sys => true,
            RecordScope::Gpu => {
                // Parts of a joined sequence may be of this device though the last one is not.
                let device = self.system.topology().device(sync.publisher());
                device == self.launch.device
                    || self
                        .system
                        .publications(device)
                        .read(sync.token())
                        .is_none_or(|publication| publication.joined)
            }
        }
    }
}

/// What tells two sync words apart for an acquirer.
fn sync_key(sync: SyncRecord) -> u64 {
    ACQUIRED_VALID | sync.token().get() << ACQUIRED_TOKEN_SHIFT | u64::from(sync.publisher().0)
}

pub(super) fn sync_of(word: u64) -> Option<SyncRecord> {
    crate::record::Word::from_bits(word).sync()
}
