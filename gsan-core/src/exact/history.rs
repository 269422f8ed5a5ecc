//! Everything that is known of one granule: who read and wrote which of its bytes, as far as it
//! can still race.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::location::Location;
use super::tree::Tree;
use super::units::{Units, Viewer};
use crate::event::{Action, Proxy};
use crate::ids::SiteId;
use crate::scope::{Order, Scope};

/// What records of one group have in common: everything but who and when.
///
/// | bits | |
/// | --- | --- |
/// | 0..32 | site |
/// | 32..40 | bytes of the granule |
/// | 40..43 | action |
/// | 43..46 | order |
/// | 46..48 | scope of a strong access |
/// | 48..53 | size of a strong access: its location is the bytes and the size together |
/// | 53 | asynchronous copy |
/// | 54 | async proxy |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag(u64);

const MASK_SHIFT: u32 = 32;

impl Tag {
    /// A weak access.
    pub(super) fn weak(site: SiteId, mask: u8, action: Action) -> Tag {
        Tag(u64::from(site.0) | u64::from(mask) << MASK_SHIFT | (action as u64) << 40)
    }

    /// A strong access to `size` bytes, `mask` of them in this granule.
    pub(super) fn strong(
        site: SiteId,
        mask: u8,
        action: Action,
        order: Order,
        scope: Scope,
        size: u32,
    ) -> Tag {
        let size = u64::from(size.min(31));
        Tag(Tag::weak(site, mask, action).0
            | (order as u64) << 43
            | (scope as u64) << 46
            | size << 48)
    }

    /// The same access made by an asynchronous copy.
    pub(super) fn asynchronous(self, proxy: Proxy) -> Tag {
        Tag(self.0 | 1 << 53 | u64::from(proxy == Proxy::Async) << 54)
    }

    /// A number to find remembered steps by.
    pub(super) fn hash(self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    pub(super) fn site(self) -> SiteId {
        SiteId(self.0 as u32)
    }

    pub(super) fn mask(self) -> u8 {
        (self.0 >> MASK_SHIFT) as u8
    }

    fn with_mask(self, mask: u8) -> Tag {
        Tag(self.0 & !(0xff << MASK_SHIFT) | u64::from(mask) << MASK_SHIFT)
    }

    pub(super) fn action(self) -> Action {
        match self.0 >> 40 & 7 {
            0 => Action::Read,
            1 => Action::Write,
            2 => Action::Rmw,
            3 => Action::FailedRmw,
            _ => Action::Red,
        }
    }

    pub(super) fn order(self) -> Order {
        match self.0 >> 43 & 7 {
            0 => Order::Weak,
            1 => Order::Relaxed,
            2 => Order::Acquire,
            3 => Order::Release,
            _ => Order::AcqRel,
        }
    }

    pub(super) fn is_strong(self) -> bool {
        self.0 >> 43 & 7 != 0
    }

    pub(super) fn scope(self) -> Scope {
        match self.0 >> 46 & 3 {
            0 => Scope::Cta,
            1 => Scope::Cluster,
            2 => Scope::Gpu,
            _ => Scope::Sys,
        }
    }

    pub(super) fn size(self) -> u8 {
        (self.0 >> 48 & 31) as u8
    }

    pub(super) fn is_asynchronous(self) -> bool {
        self.0 >> 53 & 1 != 0
    }

    pub(super) fn proxy(self) -> Proxy {
        if self.0 >> 54 & 1 != 0 {
            Proxy::Async
        } else {
            Proxy::Generic
        }
    }

    /// Whether two strong accesses touch the same location (PTX ISA, "Overlap": complete).
    fn overlaps_completely(self, other: Tag) -> bool {
        self.mask() == other.mask() && self.size() == other.size()
    }
}

/// The accesses with one tag.
#[derive(Clone, Debug)]
struct Record {
    tag: Tag,
    who: Who,
}

/// Units, each with the epoch of its newest access.
#[derive(Clone, Debug)]
enum Who {
    One(u32, u32),
    Many(Box<Crowd>),
}

#[derive(Clone, Debug)]
struct Crowd {
    epochs: Tree,
    /// How many entries were added since those that are ordered before a newer one were dropped.
    added: u32,
    /// How many may be added before that is worth doing again.
    patience: u32,
}

impl Crowd {
    const MIN_PATIENCE: u32 = 64;
}

impl Who {
    /// Calls `found` with the entries, recorded with `tag`, that the viewer is not after.
    fn visit(
        &self,
        tag: Tag,
        viewer: &Viewer<'_>,
        found: &mut dyn FnMut(u32, u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Who::One(unit, epoch) if viewer.is_after(tag, *unit, *epoch) => {
                ControlFlow::Continue(())
            }
            Who::One(unit, epoch) => found(*unit, *epoch),
            Who::Many(crowd) => crowd
                .epochs
                .visit_above(viewer.clock(tag), &mut |unit, epoch| {
                    if viewer.is_after(tag, unit, epoch) {
                        ControlFlow::Continue(())
                    } else {
                        found(unit, epoch)
                    }
                }),
        }
    }

    /// What remains without the entries that `drop` accepts, asked only for entries that
    /// `viewer` is not after; those it is after go too.
    fn without(
        &self,
        tag: Tag,
        viewer: &Viewer<'_>,
        drop: &dyn Fn(u32, u32) -> bool,
    ) -> Option<Who> {
        let mut kept: Option<Who> = None;
        let _ = self.visit(tag, viewer, &mut |unit, epoch| {
            if !drop(unit, epoch) {
                match &mut kept {
                    None => kept = Some(Who::One(unit, epoch)),
                    Some(who) => who.add(unit, epoch),
                }
            }
            ControlFlow::Continue(())
        });
        kept
    }

    fn add(&mut self, unit: u32, epoch: u32) {
        match self {
            Who::One(known, newest) if *known == unit => *newest = epoch.max(*newest),
            Who::One(known, newest) => {
                let mut epochs = Tree::default();
                epochs.set(*known, *newest);
                epochs.raise(unit, epoch);
                *self = Who::Many(Box::new(Crowd {
                    epochs,
                    added: 2,
                    patience: Crowd::MIN_PATIENCE,
                }));
            }
            Who::Many(crowd) => {
                crowd.epochs.raise(unit, epoch);
                crowd.added += 1;
            }
        }
    }
}

/// A past access that the current one races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) tag: Tag,
    pub(super) unit: u32,
    /// The bytes of the granule that both touch.
    pub(super) mask: u8,
}

/// All that is known of one granule.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    records: SmallVec<[Record; 2]>,
    /// Where strong accesses went. Empty for most granules.
    locations: Vec<Location>,
}

impl History {
    /// Whether the history is plain data that equal granules may share.
    pub(super) fn is_plain(&self) -> bool {
        self.locations.is_empty()
    }

    /// The location that strong accesses with `tag` go to, made if it is new.
    pub(super) fn location(&mut self, tag: Tag) -> &mut Location {
        let known = self.locations.iter().position(|l| l.is_at(tag));
        let index = known.unwrap_or_else(|| {
            self.locations.push(Location::new(tag));
            self.locations.len() - 1
        });
        &mut self.locations[index]
    }

    /// Finds what the access `tag` of `viewer` races with, one conflict for each group of past
    /// accesses that differ in nothing but the unit (PTX ISA, "Conflict and Data-races").
    pub(super) fn conflicts(
        &self,
        tag: Tag,
        viewer: &Viewer<'_>,
        units: &Units,
        found: &mut dyn FnMut(Conflict),
    ) {
        for record in &self.records {
            let mask = record.tag.mask() & tag.mask();
            if mask == 0 || !(record.tag.action().writes() || tag.action().writes()) {
                continue;
            }
            if let Who::One(unit, epoch) = record.who
                && viewer.is_after(record.tag, unit, epoch)
            {
                continue;
            }
            let both_strong =
                record.tag.is_strong() && tag.is_strong() && record.tag.overlaps_completely(tag);
            if both_strong && units.all_in_reach(tag.scope(), record.tag.scope()) {
                continue;
            }
            let _ = record.who.visit(record.tag, viewer, &mut |unit, _| {
                let harmless = both_strong
                    && units.morally_strong(viewer, tag.scope(), unit, record.tag.scope())
                    || is_observed(&self.locations, record.tag, unit, viewer);
                if harmless {
                    return ControlFlow::Continue(());
                }
                found(Conflict {
                    tag: record.tag,
                    unit,
                    mask,
                });
                ControlFlow::Break(())
            });
        }
    }

    /// Records a weak access of `unit` at `epoch`, and drops what can no longer race without
    /// racing with this access too.
    pub(super) fn record_weak(&mut self, tag: Tag, unit: u32, epoch: u32, viewer: &Viewer<'_>) {
        if tag.action().writes() {
            self.drop_before_write(tag.mask(), viewer);
            if self.locations.is_empty() {
                self.insert_weak(tag, unit, epoch);
                return;
            }
            for location in &mut self.locations {
                location.overwritten(tag.mask());
            }
            let records = &self.records;
            self.locations.retain_mut(|location| {
                location.keep_writes(|tag, unit| {
                    records.iter().any(|r| r.tag == tag && r.who.names(unit))
                });
                !location.is_idle()
            });
        } else {
            self.drop_before_read(tag, viewer);
        }
        self.insert_weak(tag, unit, epoch);
    }

    fn drop_before_write(&mut self, mask: u8, viewer: &Viewer<'_>) {
        let mut split: SmallVec<[Record; 2]> = SmallVec::new();
        let History { records, locations } = self;
        records.retain(|record| {
            let tag = record.tag;
            let (inside, outside) = (tag.mask() & mask, tag.mask() & !mask);
            // A strong record is about one location: it stays whole or goes whole.
            if inside == 0 || (tag.is_strong() && outside != 0) {
                return true;
            }
            // Mostly the access before is by one unit, and ordered before this one.
            if let Who::One(unit, epoch) = record.who
                && viewer.is_after(tag, unit, epoch)
            {
                record.tag = tag.with_mask(outside);
                return outside != 0;
            }
            let observed = |unit, _| is_observed(locations, tag, unit, viewer);
            match (record.who.without(tag, viewer, &observed), outside) {
                (None, 0) => false,
                (None, _) => {
                    record.tag = tag.with_mask(outside);
                    true
                }
                (Some(kept), 0) => {
                    record.who = kept;
                    true
                }
                (Some(kept), _) => {
                    if kept.count() != record.who.count() {
                        split.push(Record {
                            tag: tag.with_mask(inside),
                            who: kept,
                        });
                        record.tag = tag.with_mask(outside);
                    }
                    true
                }
            }
        });
        if !split.is_empty() {
            self.records.extend(split);
        }
    }

    /// A weak read stands for the weak reads of the same site that are ordered before it.
    fn drop_before_read(&mut self, tag: Tag, viewer: &Viewer<'_>) {
        self.records.retain_mut(|record| {
            let outside = record.tag.mask() & !tag.mask();
            if record.tag.with_mask(0) != tag.with_mask(0) || outside == record.tag.mask() {
                return true;
            }
            match &mut record.who {
                Who::One(unit, epoch) => {
                    if !viewer.is_after(record.tag, *unit, *epoch) {
                        return true;
                    }
                    record.tag = record.tag.with_mask(outside);
                    outside != 0
                }
                Who::Many(crowd) => {
                    if outside != 0 || crowd.added < crowd.patience {
                        return true;
                    }
                    let kept = record.who.without(record.tag, viewer, &|_, _| false);
                    let Some(mut kept) = kept else { return false };
                    if let Who::Many(crowd) = &mut kept {
                        crowd.patience = (crowd.added * 2).max(Crowd::MIN_PATIENCE);
                        crowd.added = 0;
                    }
                    record.who = kept;
                    true
                }
            }
        });
    }

    fn insert_weak(&mut self, tag: Tag, unit: u32, epoch: u32) {
        let bare = tag.with_mask(0);
        // What the unit did to other bytes in the same breath and by the same instruction becomes
        // one record with this, so that a granule read in parts has one crowd of readers.
        let own = self.records.iter().position(|record| {
            record.tag.with_mask(0) == bare
                && matches!(record.who, Who::One(known, at) if (known, at) == (unit, epoch))
        });
        let tag = match own {
            Some(own) => {
                let record = self.records.swap_remove(own);
                tag.with_mask(record.tag.mask() | tag.mask())
            }
            None => tag,
        };
        self.insert(tag, unit, epoch);
    }

    fn insert(&mut self, tag: Tag, unit: u32, epoch: u32) {
        match self.records.iter_mut().find(|record| record.tag == tag) {
            Some(record) => record.who.add(unit, epoch),
            None => self.records.push(Record {
                tag,
                who: Who::One(unit, epoch),
            }),
        }
    }

    /// Records a strong access of `unit` at `epoch`. It stands for the unit's own earlier ones
    /// with the same tag, and for nothing else: weaker accesses may race where it does not.
    pub(super) fn record_strong(&mut self, tag: Tag, unit: u32, epoch: u32) {
        self.insert(tag, unit, epoch);
    }

    /// Tells every other location that a strong write went to the one of `tag`.
    pub(super) fn strong_write(&mut self, tag: Tag) {
        for location in &mut self.locations {
            if !location.is_at(tag) {
                location.overwritten(tag.mask());
            }
        }
    }

    /// Forgets the bytes of `mask`.
    pub(super) fn forget(&mut self, mask: u8) {
        self.locations.retain(|location| !location.touches(mask));
        self.records.retain(|record| {
            let outside = record.tag.mask() & !mask;
            if record.tag.is_strong() {
                return outside == record.tag.mask();
            }
            record.tag = record.tag.with_mask(outside);
            outside != 0
        });
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.locations.is_empty()
    }
}

/// Whether the strong write `tag` of `unit` precedes the viewer through an observer (PTX ISA,
/// "Causality Order", second clause).
fn is_observed(locations: &[Location], tag: Tag, unit: u32, viewer: &Viewer<'_>) -> bool {
    tag.is_strong()
        && tag.action().writes()
        && locations
            .iter()
            .any(|l| l.is_at(tag) && l.is_observed_before(tag, unit, viewer))
}

impl Who {
    fn names(&self, unit: u32) -> bool {
        match self {
            Who::One(known, _) => *known == unit,
            Who::Many(crowd) => crowd.epochs.get(unit) != 0,
        }
    }

    fn count(&self) -> usize {
        match self {
            Who::One(..) => 1,
            Who::Many(crowd) => {
                let mut count = 0;
                let _ = crowd.epochs.visit_above(&Tree::default(), &mut |_, _| {
                    count += 1;
                    ControlFlow::Continue(())
                });
                count
            }
        }
    }
}
