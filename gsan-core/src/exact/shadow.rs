//! Where the histories are: a page table from granules to histories that equal granules share.

use rustc_hash::FxHashMap;

use super::history::{History, Tag};
use crate::address::GRANULE;
use crate::event::Space;
use crate::ids::Cta;

/// Granules in a page.
const PAGE: u64 = 512;

/// The number of a history. Granules that were treated alike have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryId(u32);

/// The history of a granule of which nothing is known.
const EMPTY: HistoryId = HistoryId(0);

/// One granule's place in the page table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granule {
    page: u32,
    index: usize,
}

#[derive(Debug)]
struct Shared {
    /// Granules and remembered steps that name the history.
    names: u32,
    history: History,
}

/// What a step depends on, besides the history: the access, the unit that makes it, and the
/// version of what the unit knows.
type What = (Tag, u32, u32);

/// A step that was taken before: the access `what` takes every granule with history `from` to
/// `to`, without a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: HistoryId,
    what: What,
    to: HistoryId,
}

/// The histories of all memory.
#[derive(Debug)]
pub(super) struct Shadow {
    tables: FxHashMap<(Space, u64), u32>,
    of_cta: FxHashMap<Cta, Vec<u64>>,
    #[expect(
        clippy::vec_box,
        reason = "a vector of pages would copy them when it grows"
    )]
    pages: Vec<Box<[HistoryId; PAGE as usize]>>,
    free_pages: Vec<u32>,
    recent_pages: [Option<(Space, u64, u32)>; 16],
    histories: Vec<Shared>,
    free_histories: Vec<u32>,
    steps: Vec<Option<Step>>,
    /// See [`Self::is_worth_remembering`].
    credit: u32,
    misses: u32,
}

impl Shadow {
    const STEPS: usize = 256;

    /// What a step that was repeated pays for: so many that were not.
    const REWARD: u32 = 8;

    /// The most credit there can be.
    const MOST_CREDIT: u32 = 1024;

    /// Without credit, one of so many steps is remembered.
    const PROBE: u32 = 13;

    pub(super) fn new() -> Self {
        Shadow {
            tables: FxHashMap::default(),
            of_cta: FxHashMap::default(),
            pages: Vec::new(),
            free_pages: Vec::new(),
            recent_pages: [None; 16],
            histories: vec![Shared {
                names: 1,
                history: History::default(),
            }],
            free_histories: Vec::new(),
            steps: vec![None; Self::STEPS],
            credit: Self::MOST_CREDIT,
            misses: 0,
        }
    }

    /// The granule at `address`, which is a multiple of its size.
    #[inline]
    pub(super) fn granule(&mut self, space: Space, address: u64) -> Granule {
        let number = address / GRANULE;
        let index = (number % PAGE) as usize;
        let number = number / PAGE;
        let recent = number as usize % self.recent_pages.len();
        if let Some((known, at, page)) = self.recent_pages[recent]
            && (known, at) == (space, number)
        {
            return Granule { page, index };
        }
        let page = match self.tables.get(&(space, number)) {
            Some(&page) => page,
            None => self.new_page(space, number),
        };
        self.recent_pages[recent] = Some((space, number, page));
        Granule { page, index }
    }

    fn new_page(&mut self, space: Space, number: u64) -> u32 {
        let page = self.free_pages.pop().unwrap_or_else(|| {
            self.pages.push(Box::new([EMPTY; PAGE as usize]));
            (self.pages.len() - 1) as u32
        });
        self.tables.insert((space, number), page);
        if let Space::Shared(cta) = space {
            self.of_cta.entry(cta).or_default().push(number);
        }
        page
    }

    #[inline]
    fn entry(&mut self, granule: Granule) -> &mut HistoryId {
        &mut self.pages[granule.page as usize][granule.index]
    }

    /// What is known of the granule.
    #[inline]
    pub(super) fn history(&self, granule: Granule) -> &History {
        let HistoryId(id) = self.pages[granule.page as usize][granule.index];
        &self.histories[id as usize].history
    }

    /// What is known of the granule, to change it and no other.
    #[inline]
    pub(super) fn own_history(&mut self, granule: Granule) -> &mut History {
        let id = *self.entry(granule);
        let shared = &self.histories[id.0 as usize];
        let own = if id != EMPTY && shared.names == 1 {
            id
        } else {
            let copy = shared.history.clone();
            let own = self.add(copy);
            self.rename(granule, own);
            own
        };
        &mut self.histories[own.0 as usize].history
    }

    /// Takes the step `what` if it was taken from this history before.
    #[inline]
    pub(super) fn repeat(&mut self, granule: Granule, what: What) -> bool {
        let from = self.pages[granule.page as usize][granule.index];
        match self.steps[slot(from, what)] {
            Some(step) if step.from == from && step.what == what => {
                if step.to != from {
                    self.rename(granule, step.to);
                }
                self.credit = (self.credit + Self::REWARD).min(Self::MOST_CREDIT);
                true
            }
            _ => {
                self.credit = self.credit.saturating_sub(1);
                self.misses = self.misses.wrapping_add(1);
                false
            }
        }
    }

    /// Whether the step that [`Self::repeat`] did not know should be remembered. Remembering costs
    /// a copy of the history. Where steps are hardly ever repeated, only samples are, which is
    /// enough to notice that this changes.
    #[inline]
    pub(super) fn is_worth_remembering(&self) -> bool {
        self.credit > 0 || self.misses.is_multiple_of(Self::PROBE)
    }

    /// Keeps the present history of the granule as the beginning of a step to remember.
    pub(super) fn before(&mut self, granule: Granule) -> HistoryId {
        let from = *self.entry(granule);
        self.histories[from.0 as usize].names += 1;
        from
    }

    /// Remembers that `what` led from `from` to the present history of the granule.
    pub(super) fn remember(&mut self, from: HistoryId, granule: Granule, what: What) {
        let to = *self.entry(granule);
        self.histories[to.0 as usize].names += 1;
        let step = Step { from, what, to };
        if let Some(old) = self.steps[slot(from, what)].replace(step) {
            self.release(old.from);
            self.release(old.to);
        }
    }

    /// Changes some bytes' history, without any access.
    pub(super) fn forget(&mut self, space: Space, granule: u64, mask: u8) {
        let number = granule / GRANULE;
        let Some(&page) = self.tables.get(&(space, number / PAGE)) else {
            return;
        };
        let granule = Granule {
            page,
            index: (number % PAGE) as usize,
        };
        if *self.entry(granule) == EMPTY {
            return;
        }
        let history = self.own_history(granule);
        history.forget(mask);
        if history.is_empty() {
            self.rename(granule, EMPTY);
        }
    }

    /// Forgets the shared memory of a CTA.
    pub(super) fn forget_cta(&mut self, cta: Cta) {
        let space = Space::Shared(cta);
        for number in self.of_cta.remove(&cta).unwrap_or_default() {
            self.forget_page(space, number);
        }
    }

    /// Forgets whole pages of a space: those in `pages`, counted in pages from address 0.
    pub(super) fn forget_pages(&mut self, space: Space, pages: std::ops::Range<u64>) {
        if pages.end - pages.start <= self.tables.len() as u64 {
            for number in pages {
                self.forget_page(space, number);
            }
        } else {
            let known: Vec<u64> = self
                .tables
                .keys()
                .filter(|(of, number)| *of == space && pages.contains(number))
                .map(|&(_, number)| number)
                .collect();
            for number in known {
                self.forget_page(space, number);
            }
        }
    }

    fn forget_page(&mut self, space: Space, number: u64) {
        let Some(page) = self.tables.remove(&(space, number)) else {
            return;
        };
        for index in 0..PAGE as usize {
            self.rename(Granule { page, index }, EMPTY);
        }
        self.free_pages.push(page);
        let recent = number as usize % self.recent_pages.len();
        self.recent_pages[recent] = None;
    }

    fn rename(&mut self, granule: Granule, id: HistoryId) {
        self.histories[id.0 as usize].names += 1;
        let old = std::mem::replace(self.entry(granule), id);
        self.release(old);
    }

    fn add(&mut self, history: History) -> HistoryId {
        let shared = Shared { names: 0, history };
        match self.free_histories.pop() {
            Some(id) => {
                self.histories[id as usize] = shared;
                HistoryId(id)
            }
            None => {
                self.histories.push(shared);
                HistoryId((self.histories.len() - 1) as u32)
            }
        }
    }

    fn release(&mut self, id: HistoryId) {
        if id == EMPTY {
            return;
        }
        let shared = &mut self.histories[id.0 as usize];
        shared.names -= 1;
        if shared.names == 0 {
            shared.history = History::default();
            self.free_histories.push(id.0);
        }
    }
}

/// Bytes in a page.
pub(super) const PAGE_BYTES: u64 = PAGE * GRANULE;

fn slot(from: HistoryId, what: What) -> usize {
    let mixed = what
        .0
        .hash()
        .wrapping_add(u64::from(from.0) << 7)
        .wrapping_add(u64::from(what.1))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % Shadow::STEPS
}
