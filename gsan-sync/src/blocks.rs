//! Launch numbers, descriptors and launch states, in blocks of consecutive launches.
//!
//! A stream takes a block and numbers its next launches from it. When the block is used up the
//! stream gets a fence; once that has passed, the block's launch states are zeroed on the backend's
//! own stream and the block is free again. So a launch costs no call of the backend, and no launch
//! state or descriptor is used again before its launch has finished, however deep the queue is.
//!
//! Device code looks for the state of launch `n` at place `n` modulo [`limits::LAUNCHES`]. Blocks
//! that have those places come first. If all are in use there are others, whose CTAs find their
//! descriptor in pinned memory only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Zeroable;
use gsan_core::layout::{LaunchDescriptor, LaunchState, Overtaken, limits};
use gsan_vmm::backend::{Backend, FenceId, Pinned, Result, Stream};

use crate::rows::RowMemory;
use crate::state::Region;

/// How many launches a block has.
pub(crate) const BLOCK: u32 = 32;

/// How many blocks have the places where device code looks.
const HOMES: u32 = limits::LAUNCHES / BLOCK;

/// Numbers of launches outside graphs are less.
pub(crate) const MOST_NUMBERS: u32 = 1 << 31;

/// Blocks that share pinned memory.
const SEGMENT: u32 = 32;

/// The most launches that a dependent launch may overtake.
pub(crate) const MOST_OVERTAKEN: usize = gsan_core::compressed::frontier::MAX_OVERTAKEN;

const DESCRIPTOR_LINES: usize = BLOCK as usize;
/// Lines for the overtaken launches of one launch.
const OVERTAKEN_LINES: usize = MOST_OVERTAKEN * size_of::<Overtaken>() / Pinned::LINE as usize;
const LINES: usize = DESCRIPTOR_LINES * (1 + OVERTAKEN_LINES);

/// The blocks of one device.
pub(crate) struct Blocks {
    state: Mutex<BlockState>,
}

struct BlockState {
    free: VecDeque<Place>,
    /// Blocks that are being zeroed.
    zeroing: VecDeque<(Place, FenceId)>,
    /// How many blocks there are.
    made: u32,
    /// How often each home has been numbered.
    laps: Vec<u32>,
    segment: Option<(Arc<Pinned>, u32)>,
}

/// The memory of a block.
#[derive(Clone)]
struct Place {
    /// Its place among all blocks.
    index: u32,
    pinned: Arc<Pinned>,
    /// The first line of the block.
    line: usize,
    /// The first launch state.
    states: u64,
}

/// A block in use.
pub(crate) struct Block {
    place: Place,
    /// The number of its first launch.
    first: u32,
    used: u32,
    dependent: Vec<Dependent>,
}

/// A dependent launch of a block.
struct Dependent {
    /// Its place in the block.
    at: u32,
    /// The bit that says that somebody waited.
    waited: u32,
    ctas: u32,
}

/// One launch of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    /// Where the descriptors start, for devices.
    pub(crate) table: u64,
    pub(crate) index: u32,
    /// The launch state.
    pub(crate) state: u64,
    /// Where the launches that it overtakes are listed, for devices.
    pub(crate) overtaken: u64,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks {
            state: Mutex::new(BlockState {
                free: VecDeque::new(),
                zeroing: VecDeque::new(),
                made: 0,
                laps: vec![0; HOMES as usize],
                segment: None,
            }),
        }
    }

    /// A block whose launches have all finished.
    pub(crate) fn take(
        &self,
        backend: &dyn Backend,
        region: &Region,
        rows: &RowMemory,
    ) -> Result<Option<Block>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, fence)) = state.zeroing.front() {
            if !backend.passed(*fence)? {
                break;
            }
            backend.forget(*fence);
            let zeroed = state.zeroing.pop_front();
            state.free.extend(zeroed.map(|(place, _)| place));
        }
        // While there are new homes, the oldest ones rest: their launches stay known for longer.
        let new = state.made < HOMES || state.free.is_empty();
        let place = if new {
            match state.make(backend, region, rows)? {
                Some(place) => place,
                None => return Ok(None),
            }
        } else {
            match state.free.pop_front() {
                Some(place) => place,
                None => return Ok(None),
            }
        };
        let home = place.index % HOMES;
        let lap = &mut state.laps[home as usize];
        let number = u64::from(*lap) * u64::from(limits::LAUNCHES) + u64::from(home * BLOCK);
        *lap += 1;
        Ok(Some(Block {
            place,
            first: (number % u64::from(MOST_NUMBERS)) as u32,
            used: 0,
            dependent: Vec::new(),
        }))
    }

    /// Forgets the fences behind what is being zeroed: nobody will ask for a block any more.
    pub(crate) fn close(&self, backend: &dyn Backend) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, fence) in state.zeroing.drain(..) {
            backend.forget(fence);
        }
    }

    /// Numbers launches from the start. No block is in use.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.laps.fill(0);
    }

    /// Whether half of the numbers are used up.
    pub(crate) fn is_half_worn(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let most = MOST_NUMBERS / limits::LAUNCHES / 2;
        state.laps.iter().any(|&lap| lap > most)
    }

    /// Takes a block back, all of whose launches have finished. `never_waited` is told the numbers of
    /// dependent launches that never waited for their predecessor.
    pub(crate) fn give_back(
        &self,
        backend: &dyn Backend,
        region: &Region,
        mut block: Block,
        never_waited: &mut impl FnMut(u32),
    ) -> Result<()> {
        block.settle(backend, region, true, never_waited)?;
        let own = backend.own_stream(region.device)?;
        let bytes = u64::from(BLOCK) * size_of::<LaunchState>() as u64;
        backend.fill_on(region.device, own, block.place.states, bytes, 0)?;
        let fence = backend.fence(region.device, own)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.zeroing.push_back((block.place, fence));
        Ok(())
    }
}

impl BlockState {
    fn make(
        &mut self,
        backend: &dyn Backend,
        region: &Region,
        rows: &RowMemory,
    ) -> Result<Option<Place>> {
        let index = self.made;
        let states = if index < HOMES {
            region.launch_state(index * BLOCK)
        } else {
            let bytes = u64::from(BLOCK) * size_of::<LaunchState>() as u64;
            match rows.area(bytes) {
                Some(address) => address,
                None => return Ok(None),
            }
        };
        let (pinned, used) = match self.segment.take() {
            Some((pinned, used)) if used < SEGMENT => (pinned, used),
            _ => {
                let bytes = SEGMENT as usize * LINES * Pinned::LINE as usize;
                (Arc::new(backend.pin(bytes as u64)?), 0)
            }
        };
        self.segment = Some((Arc::clone(&pinned), used + 1));
        self.made += 1;
        Ok(Some(Place {
            index,
            pinned,
            line: used as usize * LINES,
            states,
        }))
    }
}

impl Block {
    /// The next launch, or `None` when the block is used up.
    pub(crate) fn next(&mut self) -> Option<Entry> {
        if self.used == BLOCK {
            return None;
        }
        let at = self.used;
        self.used += 1;
        let line = |line: usize| self.place.pinned.address() + line as u64 * Pinned::LINE;
        let lists = self.place.line + DESCRIPTOR_LINES;
        Some(Entry {
            number: self.first + at,
            table: self.place.pinned.address(),
            index: self.place.line as u32 + at,
            state: self.place.states + u64::from(at) * size_of::<LaunchState>() as u64,
            overtaken: line(lists + at as usize * OVERTAKEN_LINES),
        })
    }

    /// Whether no launch is left.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.used == BLOCK
    }

    /// The launch of so many CTAs is a dependent one, and waits for the last of `overtaken` launches.
    pub(crate) fn depends(&mut self, entry: &Entry, overtaken: usize, ctas: u32) {
        self.dependent.push(Dependent {
            at: entry.number - self.first,
            waited: 1 << (overtaken - 1),
            ctas,
        });
    }

    /// Tells the numbers of dependent launches that have ended (`ended`: all have) and never waited for their
    /// predecessor, each once.
    pub(crate) fn settle(
        &mut self,
        backend: &dyn Backend,
        region: &Region,
        ended: bool,
        never_waited: &mut impl FnMut(u32),
    ) -> Result<()> {
        let mut left = Vec::new();
        for dependent in std::mem::take(&mut self.dependent) {
            let offset = u64::from(dependent.at) * size_of::<LaunchState>() as u64;
            let mut state = LaunchState::zeroed();
            let bytes = bytemuck::bytes_of_mut(&mut state);
            backend.read(region.device, self.place.states + offset, bytes)?;
            if !ended && state.exited < dependent.ctas {
                left.push(dependent);
            } else if state.carried & dependent.waited == 0 {
                never_waited(self.first + dependent.at);
            }
        }
        self.dependent = left;
        Ok(())
    }

    /// Takes the newest launch back: it was never given to its stream.
    pub(crate) fn take_back(&mut self, entry: &Entry) {
        self.dependent
            .retain(|dependent| self.first + dependent.at != entry.number);
        if self.first + self.used == entry.number + 1 {
            self.used -= 1;
        }
    }

    /// Writes what a launch's CTAs read.
    pub(crate) fn describe(&self, entry: &Entry, descriptor: &LaunchDescriptor) {
        write_line(&self.place.pinned, entry.index as usize, descriptor);
    }

    /// Lists the launches that a launch may overtake.
    pub(crate) fn list(&self, entry: &Entry, overtaken: &[Overtaken]) {
        let first = (entry.overtaken - self.place.pinned.address()) / 8;
        let words: &[[u64; 4]] = bytemuck::cast_slice(overtaken);
        for (at, &word) in words.as_flattened().iter().enumerate() {
            let target = self.place.pinned.word(first as usize + at);
            target.store(word, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Writes a descriptor into a line of pinned memory.
fn write_line(pinned: &Pinned, line: usize, descriptor: &LaunchDescriptor) {
    let words: [u64; 16] = bytemuck::cast(*descriptor);
    for (target, word) in pinned.line(line).iter().zip(words) {
        target.store(word, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A queue of what goes once its stream has come so far.
pub(crate) struct Behind<T> {
    queue: VecDeque<(FenceId, T)>,
}

impl<T> Default for Behind<T> {
    fn default() -> Self {
        Behind {
            queue: VecDeque::new(),
        }
    }
}

impl<T> Behind<T> {
    /// Puts `what` behind everything that `stream` was given so far.
    pub(crate) fn push(
        &mut self,
        backend: &dyn Backend,
        region: &Region,
        stream: Stream,
        what: T,
    ) -> Result<()> {
        let fence = backend.fence(region.device, stream)?;
        self.queue.push_back((fence, what));
        Ok(())
    }

    /// Everything.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.queue.iter_mut().map(|(_, what)| what)
    }

    /// Everything, whether its stream has passed it or not.
    pub(crate) fn take_all(&mut self, backend: &dyn Backend) -> Vec<T> {
        let all = self.queue.drain(..).map(|(fence, what)| {
            backend.forget(fence);
            what
        });
        all.collect()
    }

    /// The oldest, if its stream has passed it.
    pub(crate) fn pop(&mut self, backend: &dyn Backend) -> Result<Option<T>> {
        match self.queue.front() {
            Some((fence, _)) if backend.passed(*fence)? => {}
            _ => return Ok(None),
        }
        let popped = self.queue.pop_front();
        Ok(popped.map(|(fence, what)| {
            backend.forget(fence);
            what
        }))
    }
}
