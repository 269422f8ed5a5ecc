//! A location that strong accesses go to: which write its value is, what reading it synchronises
//! with, and who observed what.

use rustc_hash::{FxHashMap, FxHashSet};

use super::history::Tag;
use super::past::{ByScope, Past, Position, Published, include_each_other};
use super::units::{Units, Viewer};
use crate::scope::Scope;

/// One location: certain bytes of a granule, accessed with one size.
#[derive(Clone, Debug)]
pub(super) struct Location {
    mask: u8,
    size: u8,
    /// The write whose value the location holds, if it was strong and to exactly this location.
    value: Option<Value>,
    /// The release operations of each unit on this location: its later strong writes here belong
    /// to their patterns.
    released: FxHashMap<u32, ByScope>,
    /// What each unit's strong reads here saw: its later acquire operations here complete the
    /// patterns.
    seen: FxHashMap<u32, ByScope>,
    chains: FxHashMap<u32, Chain>,
    next_chain: u32,
    /// The strong writes that can still race: their chain, and how many observations it had.
    writes: FxHashMap<(u32, Tag), (u32, u64)>,
    /// How many units and CTAs there may be entries of before the dead ones are looked for.
    patience: usize,
}

/// The newest strong write to a location.
#[derive(Clone, Debug)]
struct Value {
    position: Position,
    scope: Scope,
    /// What a read of the value synchronises with (PTX ISA, "Release and Acquire Patterns"): the
    /// release patterns of this write and of the writes that precede it in observation order.
    published: Published,
    chain: u32,
}

/// A write and the atomic operations that follow it in observation order (PTX ISA, "Observation
/// Order"), with the reads that observed some of them.
#[derive(Clone, Debug)]
struct Chain {
    /// The observations, numbered in the order of the execution: number, unit, epoch.
    observers: Vec<(u64, u32, u32)>,
    next: u64,
    /// Each unit's latest observation.
    latest: FxHashMap<u32, u64>,
    /// How many observations there were when the newest write came.
    newest_write: u64,
    /// How many observers there may be before those that vouch for nothing are looked for.
    patience: usize,
}

const MIN_PATIENCE: usize = 256;

impl Default for Chain {
    fn default() -> Self {
        Chain {
            observers: Vec::new(),
            next: 0,
            latest: FxHashMap::default(),
            newest_write: 0,
            patience: MIN_PATIENCE,
        }
    }
}

impl Chain {
    fn observe(&mut self, unit: u32, epoch: u32) {
        if self
            .latest
            .get(&unit)
            .is_none_or(|&at| at < self.newest_write)
        {
            self.observers.push((self.next, unit, epoch));
            self.latest.insert(unit, self.next);
            self.next += 1;
        }
    }

    fn vouches(&self, since: u64, viewer: &Viewer<'_>) -> bool {
        self.latest.get(&viewer.unit).is_some_and(|&at| at >= since)
            || self
                .observers
                .iter()
                .rev()
                .take_while(|&&(number, ..)| number >= since)
                .any(|&(_, unit, epoch)| viewer.past.all.threads.get(unit) >= epoch)
    }

    /// Between two writes that can still race, a unit's first observation says all.
    fn compact(&mut self, mut writes: Vec<u64>) {
        writes.sort_unstable();
        let mut kept = FxHashSet::default();
        self.observers.retain(|&(number, unit, _)| {
            let newer = writes.partition_point(|&write| write <= number);
            newer > 0 && kept.insert((newer, unit))
        });
        self.patience = (self.observers.len() * 2).max(MIN_PATIENCE);
    }
}

impl Location {
    pub(super) fn new(tag: Tag) -> Self {
        Location {
            mask: tag.mask(),
            size: tag.size(),
            value: None,
            released: FxHashMap::default(),
            seen: FxHashMap::default(),
            chains: FxHashMap::default(),
            next_chain: 0,
            writes: FxHashMap::default(),
            patience: MIN_PATIENCE,
        }
    }

    pub(super) fn is_at(&self, tag: Tag) -> bool {
        tag.is_strong() && (self.mask, self.size) == (tag.mask(), tag.size())
    }

    pub(super) fn touches(&self, mask: u8) -> bool {
        self.mask & mask != 0
    }

    /// The value, if the strong access `tag` by `position` and the write of the value are morally
    /// strong.
    fn value_for(&self, tag: Tag, position: Position) -> Option<&Value> {
        let value = self.value.as_ref()?;
        include_each_other((position, tag.scope()), (value.position, value.scope)).then_some(value)
    }

    /// What a synchronisation through a strong read of the value may take.
    pub(super) fn read(&self, tag: Tag, position: Position) -> ByScope {
        match self.value_for(tag, position) {
            Some(value) => value.published.seen_from(position),
            None => ByScope::default(),
        }
    }

    /// A strong read by `viewer` at `epoch` observes the value. This orders the write before what
    /// follows the read, and not before the read itself.
    pub(super) fn observe(&mut self, tag: Tag, viewer: &Viewer<'_>, epoch: u32) {
        let chain = self
            .value_for(tag, viewer.position)
            .map(|value| value.chain);
        if let Some(chain) = chain.and_then(|chain| self.chains.get_mut(&chain)) {
            chain.observe(viewer.unit, epoch);
        }
    }

    /// Remembers what a strong read by `unit` saw, for a later acquire operation here.
    pub(super) fn remember_seen(&mut self, unit: u32, seen: &ByScope, known: &Past) {
        self.seen.entry(unit).or_default().join_new(seen, known);
    }

    /// What the earlier strong reads of `unit` here saw.
    pub(super) fn take_seen(&mut self, unit: u32) -> ByScope {
        self.seen.remove(&unit).unwrap_or_default()
    }

    /// A strong write by `viewer`, with the release patterns that it is part of by itself:
    /// `fences` before it, and the release operations `release` here, the write among them.
    pub(super) fn write(
        &mut self,
        tag: Tag,
        viewer: &Viewer<'_>,
        fences: Option<&ByScope>,
        release: Option<&Past>,
    ) {
        let (position, scope, unit) = (viewer.position, tag.scope(), viewer.unit);
        let continues = tag.action().reads() && self.value_for(tag, position).is_some();
        let continued = self.value.take().filter(|_| continues);
        let (mut published, chain) = match continued {
            Some(value) => (value.published, value.chain),
            None => {
                self.next_chain = self.next_chain.wrapping_add(1);
                self.chains.insert(self.next_chain, Chain::default());
                (Published::default(), self.next_chain)
            }
        };
        if let Some(past) = release {
            let released = self.released.entry(unit).or_default();
            released.join_at(scope, past);
        }
        for released in fences.into_iter().chain(self.released.get(&unit)) {
            published.add_all(position, released);
        }
        self.value = Some(Value {
            position,
            scope,
            published,
            chain,
        });
        let observations = self.chains.get_mut(&chain).map_or(0, |chain| {
            chain.newest_write = chain.next;
            chain.next
        });
        self.writes.insert((unit, tag), (chain, observations));
        self.drop_idle_chains();
    }

    /// Whether the newest write `tag` of `unit` precedes the viewer through an observer.
    pub(super) fn is_observed_before(&self, tag: Tag, unit: u32, viewer: &Viewer<'_>) -> bool {
        self.writes.get(&(unit, tag)).is_some_and(|(chain, since)| {
            let chain = self.chains.get(chain);
            chain.is_some_and(|chain| chain.vouches(*since, viewer))
        })
    }

    /// Another write went to some of the bytes.
    pub(super) fn overwritten(&mut self, mask: u8) {
        if self.touches(mask) {
            self.value = None;
        }
    }

    /// Forgets the writes that no record names any more.
    pub(super) fn keep_writes(&mut self, named: impl Fn(Tag, u32) -> bool) {
        self.writes.retain(|&(unit, tag), _| named(tag, unit));
        self.drop_idle_chains();
    }

    /// Whether the location says nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.value.is_none()
            && self.writes.is_empty()
            && self.released.is_empty()
            && self.seen.is_empty()
    }

    /// Drops what belongs to units that will do nothing more.
    pub(super) fn drop_dead(&mut self, units: &Units) {
        if self.entries() > self.patience {
            self.released.retain(|&unit, _| units.is_alive(unit));
            self.seen.retain(|&unit, _| units.is_alive(unit));
            if let Some(value) = &mut self.value {
                value.published.drop_dead(|cta| units.is_resident(cta));
            }
            self.patience = (self.entries() * 2).max(MIN_PATIENCE);
        }
    }

    fn entries(&self) -> usize {
        let published = self.value.as_ref().map_or(0, |v| v.published.ctas());
        self.released.len() + self.seen.len() + published
    }

    fn drop_idle_chains(&mut self) {
        let live = self.value.as_ref().map(|value| value.chain);
        if self.chains.len() > 1 && self.chains.len() > self.writes.len() + 1 {
            let used: FxHashSet<u32> = self.writes.values().map(|&(chain, _)| chain).collect();
            self.chains
                .retain(|chain, _| used.contains(chain) || Some(*chain) == live);
        }
        let Some((live, chain)) = live.and_then(|id| Some((id, self.chains.get_mut(&id)?))) else {
            return;
        };
        if chain.observers.len() > chain.patience {
            let of_chain = self.writes.values().filter(|(chain, _)| *chain == live);
            chain.compact(of_chain.map(|&(_, since)| since).collect());
        }
    }
}
