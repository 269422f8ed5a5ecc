//! Memory of clock rows, and who may write them next.
//!
//! Rows only grow and are never cleared: a pair of rows goes back to the stream whose completions
//! it held, where everything in it is long known. It is cleared only when it changes hands.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gsan_vmm::backend::{Backend, Device, Result};

use crate::state::Region;

/// A row of one bank and a row over all ids, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) own: u64,
    pub(crate) foreign: u64,
}

/// The rows of one device.
pub(crate) struct RowMemory {
    backend: Arc<dyn Backend>,
    device: Device,
    own_bytes: u64,
    pair_bytes: u64,
    table_bytes: u64,
    /// What streams that exist already leave for new ones.
    reserve: u64,
    state: Mutex<RowState>,
}

struct RowState {
    next: u64,
    end: u64,
    /// All pairs ever made, as ranges of neighbours: first address and end.
    made: Vec<(u64, u64)>,
    /// Pairs whose stream is gone; to be cleared before they are used again.
    left: Vec<Pair>,
    tables: Vec<u64>,
    /// Areas that were given back: bytes and address.
    areas: Vec<(u64, u64)>,
    /// Those whose free pairs nobody reads or writes any more, who lend them when memory is short.
    lenders: Vec<Weak<Turn>>,
}

/// How many pairs a stream may have though memory is short: the frontier, the completions of
/// launches that may be overtaken, and one that is filled next.
const FEW: usize = 4;

impl RowMemory {
    pub(crate) fn new(region: &Region, backend: Arc<dyn Backend>) -> RowMemory {
        RowMemory {
            backend,
            device: region.device,
            own_bytes: region.own_bytes(),
            pair_bytes: region.own_bytes() + region.foreign_bytes(),
            table_bytes: region.table_bytes(),
            reserve: (region.end - region.rows) / 4,
            state: Mutex::new(RowState {
                next: region.rows,
                end: region.end,
                made: Vec::new(),
                left: Vec::new(),
                tables: Vec::new(),
                areas: Vec::new(),
                lenders: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RowState> {
        // Every change is a single push, pop or store.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bytes` bytes of zeroes, for good; a multiple of 128.
    pub(crate) fn area(&self, bytes: u64) -> Option<u64> {
        let mut state = self.lock();
        let address = state.next;
        if bytes > state.end - address {
            return None;
        }
        state.next += bytes;
        Some(address)
    }

    /// `bytes` bytes of zeroes, rounded up to lines, until they are given back.
    pub(crate) fn lend(self: &Arc<Self>, bytes: u64) -> Option<Area> {
        let bytes = bytes.next_multiple_of(128);
        if let Some((size, address)) = self.given_back(bytes..=2 * bytes)
            && let Some(area) = self.clear_lent(address, size)
        {
            return Some(area);
        }
        if let Some(address) = self.area(bytes) {
            return Some(self.lent(address, bytes));
        }
        // Rather one that is much too large than none.
        let (size, address) = self.given_back(bytes..=u64::MAX)?;
        self.clear_lent(address, size)
    }

    /// The smallest area of such a size that was given back: its size and address.
    fn given_back(&self, sizes: RangeInclusive<u64>) -> Option<(u64, u64)> {
        let mut state = self.lock();
        let areas = state.areas.iter().enumerate();
        let fitting = areas.filter(|(_, (size, _))| sizes.contains(size));
        let (best, _) = fitting.min_by_key(|(_, (size, _))| *size)?;
        Some(state.areas.swap_remove(best))
    }

    fn lent(self: &Arc<Self>, address: u64, bytes: u64) -> Area {
        Area {
            address,
            bytes,
            memory: Arc::clone(self),
        }
    }

    /// An area that is used again; it is given back if it cannot be cleared.
    fn clear_lent(self: &Arc<Self>, address: u64, bytes: u64) -> Option<Area> {
        let area = self.lent(address, bytes);
        let cleared = self.backend.fill(self.device, address, bytes, 0);
        cleared.is_ok().then_some(area)
    }

    /// A pair of empty rows, for somebody who has `has` of them.
    fn pair(&self, has: usize) -> Option<Pair> {
        let (plenty, left) = {
            let mut state = self.lock();
            let plenty = state.end - state.next >= self.reserve.max(self.pair_bytes);
            (plenty, if plenty { None } else { state.left.pop() })
        };
        if plenty {
            return self.new_pair();
        }
        // Whoever has a few takes his own back rather than what others may need.
        let used = match left {
            None if has < FEW => self.borrowed(),
            left => left,
        };
        let Some(used) = used else {
            return if has < FEW { self.new_pair() } else { None };
        };
        match self.backend.fill(self.device, used.own, self.pair_bytes, 0) {
            Ok(()) => Some(used),
            Err(error) => {
                tracing::warn!(%error, "rows cannot be cleared and stay unused");
                None
            }
        }
    }

    /// A pair that nobody had before.
    fn new_pair(&self) -> Option<Pair> {
        let mut state = self.lock();
        if state.end - state.next < self.pair_bytes {
            return None;
        }
        let own = state.next;
        state.next += self.pair_bytes;
        let end = state.next;
        match state.made.last_mut() {
            Some(last) if last.1 == own => last.1 = end,
            _ => state.made.push((own, end)),
        }
        Some(Pair {
            own,
            foreign: own + self.own_bytes,
        })
    }

    /// A free pair of somebody else.
    fn borrowed(&self) -> Option<Pair> {
        let lenders: Vec<Arc<Turn>> = {
            let mut state = self.lock();
            state.lenders.retain(|lender| lender.strong_count() > 0);
            state.lenders.iter().filter_map(Weak::upgrade).collect()
        };
        // One that is busy is passed over: it may be waiting for this one.
        lenders.iter().find_map(|lender| {
            let mut lender = lender.state.try_lock().ok()?;
            let pair = lender.free.pop()?;
            lender.pairs -= 1;
            Some(pair)
        })
    }

    /// Clears every pair, in use or not.
    pub(crate) fn clear(&self) -> Result<()> {
        let made = self.lock().made.clone();
        for (start, end) in made {
            self.backend.fill(self.device, start, end - start, 0)?;
        }
        Ok(())
    }

    /// Memory of a table of rows.
    pub(crate) fn table(self: &Arc<Self>) -> Option<Table> {
        let known = self.lock().tables.pop();
        let address = known.or_else(|| self.area(self.table_bytes))?;
        Some(Table {
            address,
            memory: Arc::clone(self),
        })
    }
}

/// A table of addresses of rows by bank, in device memory.
pub(crate) struct Table {
    pub(crate) address: u64,
    memory: Arc<RowMemory>,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.memory.lock().tables.push(self.address);
    }
}

/// Memory of a graph.
pub(crate) struct Area {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    memory: Arc<RowMemory>,
}

impl Drop for Area {
    fn drop(&mut self) {
        self.memory.lock().areas.push((self.bytes, self.address));
    }
}

/// The pairs of one stream, or of whatever else fills them in one order.
pub(crate) struct Turn {
    memory: Arc<RowMemory>,
    state: Mutex<TurnState>,
}

#[derive(Default)]
struct TurnState {
    free: Vec<Pair>,
    /// How many pairs it has, those in use included.
    pairs: usize,
}

impl Turn {
    pub(crate) fn new(memory: &Arc<RowMemory>) -> Arc<Turn> {
        Arc::new(Turn {
            memory: Arc::clone(memory),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on others may have its free pairs. They must not be read or written by work that is still
    /// to be done.
    pub(crate) fn lend(self: &Arc<Self>) {
        self.memory.lock().lenders.push(Arc::downgrade(self));
    }

    /// A pair that nobody reads any more.
    pub(crate) fn take(&self) -> Option<Pair> {
        let mut state = self.lock();
        if let Some(pair) = state.free.pop() {
            return Some(pair);
        }
        let pair = self.memory.pair(state.pairs)?;
        state.pairs += 1;
        Some(pair)
    }

    /// Memory of a table of rows.
    pub(crate) fn table(&self) -> Option<Table> {
        self.memory.table()
    }

    /// Gives a pair back.
    pub(crate) fn give_back(&self, pair: Pair) {
        self.lock().free.push(pair);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.memory.lock().left.append(&mut state.free);
    }
}

/// What was completed at one point of a lineage: a stream's launches, or its graphs' launches in one bank,
/// in their order.
///
/// It is pinned: as long as this exists, nobody writes the rows.
pub(crate) struct Completion {
    pub(crate) lineage: u32,
    pub(crate) mark: Mark,
    pub(crate) bank: u32,
    pub(crate) pair: Pair,
    turn: Option<Arc<Turn>>,
    /// The stream has taken the rows back for want of others, and they grow.
    taken: AtomicBool,
    /// Where the rows lie, if they are a graph's.
    _areas: Option<[Arc<Area>; 2]>,
}

/// A point of a lineage, and what of the lineage comes before it: everything up to `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) last: u64,
    pub(crate) base: u64,
}

impl Mark {
    pub(crate) const fn covers(self, other: Mark) -> bool {
        other.last == self.last || other.last <= self.base
    }

    /// Everything up to here comes before it or is it.
    pub(crate) const fn up_to(self) -> u64 {
        if self.last == self.base + 1 {
            self.last
        } else {
            self.base
        }
    }
}

impl Completion {
    pub(crate) fn new(
        (lineage, mark): (u32, Mark),
        bank: u32,
        pair: Pair,
        turn: &Arc<Turn>,
    ) -> Arc<Completion> {
        Arc::new(Completion {
            lineage,
            mark,
            bank,
            pair,
            turn: Some(Arc::clone(turn)),
            taken: AtomicBool::new(false),
            _areas: None,
        })
    }

    /// One whose rows belong to a graph, which writes them again at its next replay. Their memory is kept
    /// though the graph may go.
    pub(crate) fn lent(
        (lineage, mark): (u32, Mark),
        bank: u32,
        pair: Pair,
        areas: [Arc<Area>; 2],
    ) -> Arc<Completion> {
        Arc::new(Completion {
            lineage,
            mark,
            bank,
            pair,
            turn: None,
            taken: AtomicBool::new(true),
            _areas: Some(areas),
        })
    }

    pub(crate) fn covers(&self, other: &Completion) -> bool {
        self.lineage == other.lineage && self.mark.covers(other.mark)
    }

    /// Takes the rows although they are named: from now on they grow with later launches. False
    /// if that was done before.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Relaxed)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(turn) = &self.turn
            && !*self.taken.get_mut()
        {
            turn.give_back(self.pair);
        }
    }
}

/// What is ordered before a point of the program, as completions none of which covers another.
#[derive(Clone, Default)]
pub(crate) struct Knowledge {
    pub(crate) completions: Vec<Arc<Completion>>,
}

impl Knowledge {
    /// Adds a completion. Returns whether it was news.
    pub(crate) fn add(&mut self, new: &Arc<Completion>) -> bool {
        if self.completions.iter().any(|known| known.covers(new)) {
            return false;
        }
        self.completions.retain(|known| !new.covers(known));
        self.completions.push(Arc::clone(new));
        true
    }

    /// Whether everything that `other` has is known.
    pub(crate) fn covers(&self, other: &Knowledge) -> bool {
        let known = |new: &Arc<Completion>| self.completions.iter().any(|c| c.covers(new));
        other.completions.iter().all(known)
    }

    /// Adds everything that `other` has. Returns whether any of it was news.
    pub(crate) fn join(&mut self, other: &Knowledge) -> bool {
        let news = other.completions.iter().map(|new| self.add(new));
        news.fold(false, |any, news| any | news)
    }
}
