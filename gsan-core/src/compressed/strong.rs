//! Strong accesses of a CTA, and its ordinary ones: what they do to a cell.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::cta::{Cta, Known, Released, sync_of};
use super::system::RUNNING;
use crate::atomics::{Atomic, Essential, Memory};
use crate::cell::{Announced, Cell, CellAccess, Conflict};
use crate::clock::Epoch;
use crate::event::Action;
use crate::ids::SiteId;
use crate::loss::Loss;
use crate::record::{RecordScope, SyncRecord};
use crate::reservoir::Sampler;
use crate::scope::Order;

/// The part of a strong access that falls into one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrongAccess {
    /// Which bytes; at least one.
    pub mask: u8,
    /// At begin what will be tried, at end what came of it.
    pub action: Action,
    /// Not weak.
    pub order: Order,
    /// How far; not [`RecordScope::NotAtomic`].
    pub scope: RecordScope,
    /// Where in the source.
    pub site: SiteId,
    /// The position of the thread in its CTA.
    pub thread: u32,
}

impl StrongAccess {
    /// Whether it hands anything to others by itself, without a fence. At the scope of a CTA it does not, whose threads
    /// are ordered among themselves as it is; and a part of another's release sequence would get the widest scope of all.
    fn releases(&self) -> bool {
        self.order.releases() && self.scope != RecordScope::Cta
    }
}

/// What a strong access keeps from its begin to its end.
#[derive(Clone, Copy, Debug)]
pub struct Begun<const S: usize> {
    /// Word 0 as it was found.
    found: u64,
    /// Word 0 as it was left.
    left: u64,
    epoch: Epoch,
    announced: Announced<S>,
}

impl<M: Memory> Cta<'_, M> {
    /// An ordinary access: checks it, and records it, before the instruction.
    pub fn weak<const S: usize>(
        self,
        cell: Cell<'_, M::U64, S>,
        mask: u8,
        action: Action,
        site: SiteId,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) {
        if let Some(access) = self.weak_access(self.touch(), mask, action, site) {
            self.count_if(cell.access(&access, &self, sampler, race));
        }
    }

    /// An asynchronous copy was issued: checks it with the clock of now, and records that it is
    /// running.
    pub fn issue<const S: usize>(
        self,
        cell: Cell<'_, M::U64, S>,
        mask: u8,
        action: Action,
        site: SiteId,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) {
        // A thread that has used up its epochs counts as ordered whatever it does.
        let epoch = self.touch().max(RUNNING);
        if let Some(access) = self.weak_access(epoch, mask, action, site) {
            self.count_if(cell.access(&access, &self, sampler, race));
        }
    }

    /// The copy is done: it counts as made now.
    pub fn complete<const S: usize>(
        self,
        cell: Cell<'_, M::U64, S>,
        mask: u8,
        action: Action,
        site: SiteId,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) {
        let running = self.weak_access(RUNNING, mask, action, site);
        let done = self.weak_access(self.touch(), mask, action, site);
        if let (Some(running), Some(done)) = (running, done)
            && !cell.settle(running.record(), done.record())
        {
            self.count_if(cell.access(&done, &self, sampler, race));
        }
    }

    fn weak_access(
        self,
        epoch: Epoch,
        mask: u8,
        action: Action,
        site: SiteId,
    ) -> Option<CellAccess> {
        Some(CellAccess {
            thread: self.id()?,
            epoch,
            mask,
            action,
            scope: RecordScope::NotAtomic,
            site,
        })
    }

    /// A strong access is about to be executed.
    pub fn begin<const S: usize>(
        self,
        cell: Cell<'_, M::U64, S>,
        access: &StrongAccess,
        sampler: Sampler,
    ) -> Begun<S> {
        let word = cell.sync_word();
        let mut epoch = None;
        let mut publishes = false;
        let writes = access.action.writes();
        let (found, left) = if writes && access.releases() {
            let (own, found, left) = self.publish_into(word, access.mask, access.scope);
            epoch = Some(own.epoch);
            publishes = true;
            (found, left)
        } else if writes && let Some((own, scope)) = self.fenced() {
            // What it has acquired since the fence is not in what the fence published.
            let found = word.load(Acquire);
            self.release_into(word, found, own, Known::default(), access.mask, scope)
        } else {
            let found = word.load(Relaxed);
            (found, found)
        };
        let epoch = epoch.unwrap_or_else(|| self.touch());
        let announced = match self.cell_access(access, epoch) {
            Some(access_) => cell.announce(&access_, publishes, access.thread, &self, sampler),
            None => Announced::none(),
        };
        // Whoever observes the value sees the announcement, and what was published.
        M::essential_fence(Essential::AtomicAnnounced, Release);
        Begun {
            found,
            left,
            epoch,
            announced,
        }
    }

    /// The strong access begun was executed.
    pub fn end<const S: usize>(
        self,
        cell: Cell<'_, M::U64, S>,
        begun: &Begun<S>,
        access: &StrongAccess,
        sampler: Sampler,
        race: impl FnMut(Conflict),
    ) {
        if access.action.returns_value() {
            M::fence(Acquire);
        }
        let acquires = access.order.acquires() && access.action.returns_value();
        if access.action.returns_value() {
            self.observe(cell.sync_word().load(Acquire), begun, access, acquires);
        }
        // A fence may have made it a release, too.
        let released = access.releases() || begun.left != begun.found;
        if access.action == Action::FailedRmw && released {
            self.count(Loss::FailedRelease);
        }
        let Some(access) = self.cell_access(access, begun.epoch) else {
            return;
        };
        let announced = &begun.announced;
        let loss = cell.finish::<M>(announced, &access, acquires, &self, sampler, race);
        self.count_if(loss);
    }

    fn cell_access(self, access: &StrongAccess, epoch: Epoch) -> Option<CellAccess> {
        Some(CellAccess {
            thread: self.id()?,
            epoch,
            mask: access.mask,
            action: access.action,
            scope: access.scope,
            site: access.site,
        })
    }

    fn count_if(self, loss: Option<Loss>) {
        if let Some(loss) = loss {
            self.count(loss);
        }
    }

    /// `fence.sc`: an acquire and a release fence that also comes after every such fence before
    /// it, as far as their scopes reach (PTX ISA, "Fence-SC order").
    pub fn sequential_fence(self, scope: RecordScope) {
        self.acquire_fence(scope);
        if scope != RecordScope::Cta {
            let (_, found, _) = self.publish_into(self.system.sequential(), u8::MAX, scope);
            if let Some(found) = sync_of(found).filter(|found| self.reaches(*found, scope)) {
                self.acquire(found);
            }
        }
        self.release_fence(scope);
    }

    /// Publishes what the CTA did and knows, together with what the sync word says. Returns what it
    /// published, what was there, and what is there now.
    pub(super) fn publish_into(
        self,
        word: &M::U64,
        mask: u8,
        scope: RecordScope,
    ) -> (Released, u64, u64) {
        let found = word.load(Acquire);
        let known = self.known(sync_of(found));
        let own = self.publish_knowing(known);
        let (found, left) = self.release_into(word, found, own, known, mask, scope);
        (own, found, left)
    }

    /// Puts `own` there together with what the sync word says, which was `found` before. Returns what
    /// was there, and what is there now.
    fn release_into(
        self,
        word: &M::U64,
        mut found: u64,
        own: Released,
        known: Known,
        mask: u8,
        scope: RecordScope,
    ) -> (u64, u64) {
        let first = sync_of(found);
        for _ in 0..M::RELEASE_ATTEMPTS {
            let joined = if M::keeps(Essential::RetryJoined) {
                sync_of(found)
            } else {
                first
            };
            let new = self.joined(joined, own, known, mask, scope).bits();
            if new == found {
                return (found, found);
            }
            if !M::keeps(Essential::SyncWordCompared) {
                word.store(new, Release);
                return (found, new);
            }
            match word.compare_exchange(found, new, Release, Acquire) {
                Ok(_) => return (found, new),
                Err(other) => found = other,
            }
        }
        let top = if M::keeps(Essential::TopExchanged) {
            self.top_word(mask, scope)
        } else {
            self.joined(first, own, known, mask, scope)
        };
        (word.swap(top.bits(), AcqRel), top.bits())
    }

    /// A strong read returned a value that one of the release sequences may have brought which
    /// the sync word tells of: as it was found, as it is `now`, or in between.
    fn observe<const S: usize>(
        self,
        now: u64,
        begun: &Begun<S>,
        access: &StrongAccess,
        acquires: bool,
    ) {
        let learn = |sync: SyncRecord| {
            if acquires {
                self.acquire(sync);
            } else {
                self.saw(sync);
            }
        };
        let may_have_been_read = |sync: &SyncRecord| {
            sync.mask() & access.mask != 0 && (!acquires || self.reaches(*sync, access.scope))
        };
        if let Some(sync) = sync_of(begun.found).filter(may_have_been_read) {
            learn(sync);
        }
        let Some(now) = sync_of(now) else { return };
        let left = sync_of(begun.left);
        if let Some(left) = left.filter(|left| same_publication(*left, now)) {
            // The access's own publication says no more than the CTA knew and what was found.
            let before = sync_of(begun.found);
            let own = before.is_none_or(|before| !same_publication(before, left));
            if !own && may_have_been_read(&now) {
                learn(now);
            }
            return;
        }
        // What was released to its own CTA only has no parts of others: those would have widened it.
        let stays = now.scope() == RecordScope::Cta && Some(now.publisher()) != self.id();
        if acquires && (stays || access.scope == RecordScope::Cta) {
            return;
        }
        // Others released meanwhile, each together with what was there before. Their parts are not
        // told apart: any may have been read.
        learn(now);
    }
}

fn same_publication(a: SyncRecord, b: SyncRecord) -> bool {
    a.token() == b.token() && a.publisher() == b.publisher()
}
