//! Launches, from the choice of their rows until they were given to their stream.

use std::sync::Arc;
use std::sync::PoisonError;

use gsan_core::launch_log::LaunchRecord;
use gsan_core::layout::{LaunchDescriptor, Overtaken, launch_flags};
use gsan_vmm::backend::{CaptureStatus, Device};
use smallvec::SmallVec;

use crate::blocks::{Block, Entry};
use crate::capture::CapturedLaunch;
use crate::error::Error;
use crate::host::Point;
use crate::kernels::Step;
use crate::ordering::{AtomicCounts, DeviceState, Inner, Ordering};
use crate::state::entries;
use crate::stream::{
    Begun, Entered, Join, Retired, Start, Stream, StreamKey, StreamKind, StreamState,
};

/// How much may be retired before the stream gets a fence for it alone.
const MOST_RETIRED: usize = 16;

/// A launch, as the program makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchInfo {
    /// The kernel's number in the table of names; 0: it has none.
    pub kernel: u32,
    /// The grid, in CTAs. A launch without CTAs is none: it is taken back.
    pub grid: [u32; 3],
    /// Launched with the programmatic attribute.
    pub programmatic: bool,
    /// The kernel contains synchronisation that nobody reports.
    pub opaque: bool,
}

/// A launch that was begun. Nobody else uses its stream until it is finished; dropping it takes it
/// back.
pub struct Launch {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
    /// Blocking streams, which wait for a launch of the legacy default stream.
    held: Vec<Arc<Stream>>,
    chosen: Option<Chosen>,
    /// The stream is being captured.
    captured: Option<CapturedLaunch>,
    number: u32,
    finished: bool,
}

/// What was chosen for a launch.
struct Chosen {
    entry: Entry,
    start: Start,
    record: LaunchRecord,
    ctas: u32,
}

impl Launch {
    /// Where the kernel finds the descriptors; 0: it runs unchecked.
    pub fn table(&self) -> u64 {
        match &self.captured {
            Some(captured) => captured.arguments().table,
            None => self.chosen.as_ref().map_or(0, |chosen| chosen.entry.table),
        }
    }

    /// The kernel's launch index: the entry of the table, and above it the number plus 1; of a node of a
    /// graph, whose launches have other numbers in each replay, the entry alone.
    pub fn index(&self) -> u64 {
        if let Some(captured) = &self.captured {
            return captured.arguments().index;
        }
        self.chosen.as_ref().map_or(0, |chosen| {
            let hint = u64::from(chosen.entry.number) + 1;
            hint << launch_flags::INDEX_NUMBER_SHIFT | u64::from(chosen.entry.index)
        })
    }

    /// Its number on its device; 0 if it has none yet, because its stream is being captured.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The launch was given to its stream (`submitted`), or failed and never will be.
    ///
    /// # Errors
    /// When it was finished before. When the stream was being captured and the capture holds no such
    /// launch: it stays unchecked.
    pub fn finish(&mut self, submitted: bool) -> Result<(), Error> {
        if self.finished {
            return Err(Error::LaunchFinished {
                number: self.number,
            });
        }
        self.finished = true;
        if let Some(captured) = self.captured.take() {
            let ended = captured.finish(&self.inner, &self.stream, submitted);
            self.stream.leave(self.stream.reenter());
            return ended;
        }
        let mut state = self.stream.reenter();
        let counts = &self.inner.counts;
        match self.chosen.take() {
            Some(chosen) if submitted && chosen.ctas > 0 => {
                let device = &self.inner.devices[self.stream.device];
                let overtaken = state.chain().len();
                if chosen.start.dependent
                    && let Some(block) = &mut state.block
                {
                    block.depends(&chosen.entry, overtaken, chosen.ctas);
                }
                device.log.enter(&chosen.record);
                state.submitted(&chosen.start, chosen.entry.state, chosen.ctas);
                AtomicCounts::add(&counts.launches);
                if chosen.record.opaque {
                    AtomicCounts::add(&counts.opaque);
                }
                self.stream.changed();
            }
            Some(chosen) => {
                state.turn.give_back(chosen.start.after);
                if let Some(block) = &mut state.block {
                    block.take_back(&chosen.entry);
                }
                AtomicCounts::add(&counts.taken_back);
            }
            None if submitted => AtomicCounts::add(&counts.unchecked),
            None => AtomicCounts::add(&counts.taken_back),
        }
        self.stream.leave(state);
        release(&self.held);
        Ok(())
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        let _ = self.finish(false);
    }
}

/// Lets others use streams that were held.
pub(crate) fn release(held: &[Arc<Stream>]) {
    for stream in held {
        stream.leave(stream.reenter());
    }
}

impl Ordering {
    /// Begins a launch on a stream: chooses what it starts after and where its completion goes. The
    /// stream is kept until [`Launch::finish`]. If it is being captured, the launch becomes a node of
    /// the capture.
    ///
    /// # Errors
    /// When the stream is not known, a launch of this thread on it is unfinished, another thread keeps it
    /// and does not let go of it, or the backend fails.
    pub fn begin_launch(&self, key: StreamKey, info: &LaunchInfo) -> Result<Launch, Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        let status = inner.backend.capture_status(key.device, stream.queue)?;
        if status != CaptureStatus::None {
            stream.enter()?.keep(Begun::Launch, key);
            let captured = match inner.begin_captured(&stream, status, info) {
                Ok(captured) => captured,
                Err(error) => {
                    stream.leave(stream.reenter());
                    return Err(error);
                }
            };
            return Ok(Launch {
                inner: Arc::clone(inner),
                stream,
                held: Vec::new(),
                chosen: None,
                captured,
                number: 0,
                finished: false,
            });
        }
        let (mut state, held) = inner.occupy_awake(&stream, Begun::Launch)?;
        let chosen = inner.choose(&stream, &mut state, info);
        let chosen = match chosen {
            Ok(chosen) => chosen,
            Err(error) => {
                stream.leave(state);
                release(&held);
                return Err(error);
            }
        };
        state.keep(Begun::Launch, key);
        Ok(Launch {
            inner: Arc::clone(inner),
            stream,
            held,
            number: chosen.as_ref().map_or(0, |chosen| chosen.entry.number),
            chosen,
            captured: None,
            finished: false,
        })
    }

    /// What is remembered of a launch of a device.
    ///
    /// # Errors
    /// When the device has no rank.
    pub fn launch_record(
        &self,
        device: Device,
        number: u32,
    ) -> Result<Option<LaunchRecord>, Error> {
        Ok(self.inner.device(device)?.log.find(number))
    }
}

impl Inner {
    /// Enters a stream whose implicit edges have been taken in; with it, a legacy default stream
    /// gets hold of all streams that wait for it.
    pub(crate) fn occupy<'s>(
        &self,
        stream: &'s Arc<Stream>,
        what: Begun,
    ) -> Result<(Entered<'s>, Vec<Arc<Stream>>), Error> {
        let device = &self.devices[stream.device];
        match stream.kind {
            StreamKind::NonBlocking => Ok((stream.enter()?, Vec::new())),
            StreamKind::Blocking => loop {
                let legacy = device.legacy();
                let mut state = stream.enter()?;
                let Some((legacy, version)) = legacy else {
                    return Ok((state, Vec::new()));
                };
                if state.seen == Some(version) {
                    // It cannot launch while this stream is entered.
                    if legacy.version() == version {
                        return Ok((state, Vec::new()));
                    }
                    continue;
                }
                // No two streams are locked at once.
                drop(state);
                let mut entered = legacy.enter()?;
                let knowledge = entered.at_newest_action();
                let fence = self.fence_for_others(legacy)?;
                drop(entered);
                state = stream.enter()?;
                self.wait_for(stream, fence.as_ref())?;
                state.start_after(knowledge);
                state.seen = Some(version);
            },
            StreamKind::Legacy => {
                stream.enter()?.keep(what, stream.key);
                let all: Vec<Arc<Stream>> = {
                    let blocking = device.blocking.read();
                    blocking.unwrap_or_else(PoisonError::into_inner).clone()
                };
                let mut held = Vec::with_capacity(all.len());
                for blocking in all {
                    let mut entered = match blocking.enter() {
                        Ok(entered) => entered,
                        // It went meanwhile, and told this one.
                        Err(Error::UnknownStream(_)) => continue,
                        Err(error) => {
                            release(&held);
                            stream.leave(stream.reenter());
                            return Err(error);
                        }
                    };
                    let version = blocking.version();
                    let mut own = stream.reenter();
                    if own.seen_of.get(&blocking.number).copied().unwrap_or(0) != version {
                        let fence = self.fence_for_others(&blocking);
                        let waits = fence.and_then(|fence| self.wait_for(stream, fence.as_ref()));
                        if let Err(error) = waits {
                            drop((own, entered));
                            release(&held);
                            stream.leave(stream.reenter());
                            return Err(error);
                        }
                        own.seen_of.insert(blocking.number, version);
                        let knowledge = entered.knowledge();
                        own.wait_implicitly(knowledge);
                    }
                    drop(own);
                    entered.keep(what, stream.key);
                    held.push(blocking);
                }
                Ok((stream.reenter(), held))
            }
        }
    }

    /// What is ordered before a record on `stream` now.
    pub(crate) fn point(&self, stream: &Arc<Stream>) -> Result<Point, Error> {
        let (mut state, held) = self.occupy(stream, Begun::Call)?;
        let knowledge = state.knowledge();
        if state.acted() {
            // Streams that wait for this one now wait for what it waits for.
            stream.changed();
        }
        let fence = self.fence_for_others(stream);
        self.vacate(stream, state, &held);
        Ok(Point {
            knowledge,
            fence: fence?,
        })
    }

    /// What comes next on `stream` starts after `edge`.
    pub(crate) fn add_edge(&self, stream: &Arc<Stream>, edge: &Point) -> Result<(), Error> {
        let (mut state, held) = self.occupy(stream, Begun::Call)?;
        let waits = self.wait_for(stream, edge.fence.as_ref());
        if waits.is_ok() {
            state.start_after(Arc::clone(&edge.knowledge));
            state.acted();
            stream.changed();
        }
        self.vacate(stream, state, &held);
        waits
    }

    pub(crate) fn vacate(&self, stream: &Stream, state: Entered<'_>, held: &[Arc<Stream>]) {
        if stream.kind == StreamKind::Legacy {
            stream.leave(state);
            release(held);
        }
    }

    /// Chooses rows and a descriptor; `None` when there is no memory for them.
    fn choose(
        &self,
        stream: &Stream,
        state: &mut StreamState,
        info: &LaunchInfo,
    ) -> Result<Option<Chosen>, Error> {
        let device = &self.devices[stream.device];
        self.awake(device);
        if !self.pay(device, stream, state)? {
            return Ok(None);
        }
        let news = self.host_news(stream, state.host_seen)?;
        let host = news.as_ref().map(|(_, known)| known.as_ref());
        let Ok(mut start) = state.start(host, info.programmatic) else {
            return Ok(None);
        };
        if let Some((version, _)) = news {
            state.host_seen = version;
        }
        if let Some(join) = start.join.take() {
            AtomicCounts::add(&self.counts.joins);
            state.owed = steps(device, state.bank, &join);
            self.pay_steps(stream, state)
                .inspect_err(|_| state.turn.give_back(start.after))?;
        }
        let entry = state.block.as_mut().and_then(crate::blocks::Block::next);
        let Some(entry) = entry else {
            state.turn.give_back(start.after);
            return Ok(None);
        };
        let [x, y, z] = info.grid;
        let ctas = x.saturating_mul(y).saturating_mul(z);
        self.describe(device, stream, state, &start, &entry, info, ctas);
        let record = LaunchRecord {
            number: entry.number,
            kernel: info.kernel,
            stream: stream.key.handle,
            grid: info.grid,
            opaque: info.opaque,
        };
        Ok(Some(Chosen {
            entry,
            start,
            record,
            ctas,
        }))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "all of it goes into one descriptor"
    )]
    fn describe(
        &self,
        device: &DeviceState,
        stream: &Stream,
        state: &StreamState,
        start: &Start,
        entry: &Entry,
        info: &LaunchInfo,
        ctas: u32,
    ) {
        let region = &device.region;
        let Some(block) = &state.block else {
            return;
        };
        let mut flags = 0;
        let mut overtaken: SmallVec<[Overtaken; 2]> = SmallVec::new();
        if start.dependent {
            flags |= launch_flags::DEPENDENT;
            overtaken.extend(state.chain().iter().map(|chained| Overtaken {
                own_row: chained.link.pair.own,
                foreign_row: chained.link.pair.foreign,
                state: chained.state,
                ctas: self.settings.ctas_to_learn_of(chained.ctas),
                reserved: 0,
            }));
            block.list(entry, &overtaken);
        }
        if info.opaque {
            flags |= launch_flags::OPAQUE;
        }
        if state.shares_bank {
            flags |= launch_flags::SHARED_BANK;
        }
        let count = overtaken.len() as u32;
        block.describe(
            entry,
            &LaunchDescriptor {
                own_row: start.before.own,
                foreign_row: start.before.foreign,
                named_rows: state.table.as_ref().map_or(0, |table| table.address),
                own_done: start.after.own,
                foreign_done: start.after.foreign,
                overtaken: if count == 0 { 0 } else { entry.overtaken },
                state: entry.state,
                slot_masks: region.slot_masks(state.bank),
                number: entry.number,
                ctas,
                flags,
                kernel: info.kernel,
                bank: state.bank,
                bank_first: region.bank_first(state.bank),
                overtaken_count: count,
                waits_for: count,
                generation: self.marks.generation(),
                stream: stream.number,
                grid: info.grid,
                reserved: [0; 3],
            },
        );
    }

    /// Joins everything that comes before the next work of a stream into one frontier. False when
    /// there is no memory for it.
    pub(crate) fn join_all(&self, stream: &Stream, state: &mut StreamState) -> Result<bool, Error> {
        let device = &self.devices[stream.device];
        self.pay_steps(stream, state)?;
        let news = self.host_news(stream, state.host_seen)?;
        let host = news.as_ref().map(|(_, known)| known.as_ref());
        let Ok(join) = state.join_all(host) else {
            return Ok(false);
        };
        if let Some((version, _)) = news {
            state.host_seen = version;
        }
        if let Some(join) = join {
            AtomicCounts::add(&self.counts.joins);
            state.owed = steps(device, state.bank, &join);
            self.pay_steps(stream, state)?;
        }
        // Of a stream that only replays graphs, too.
        if state.retired.len() >= MOST_RETIRED {
            self.retire(device, stream, state)?;
        }
        Ok(true)
    }

    /// Sees to it that the stream has a block with a launch left, and gives back what its launches
    /// do not need any more. False when there is no memory for a block.
    fn pay(
        &self,
        device: &DeviceState,
        stream: &Stream,
        state: &mut StreamState,
    ) -> Result<bool, Error> {
        self.pay_steps(stream, state)?;
        let used_up = state.block.as_ref().is_none_or(|block| block.is_used_up());
        if used_up {
            let block = state.block.take();
            state.retired.extend(block.map(Retired::Block));
        }
        if used_up || state.retired.len() >= MOST_RETIRED {
            self.retire(device, stream, state)?;
        }
        if used_up {
            let (backend, region) = (&*self.backend, &device.region);
            state.block = device.blocks.take(backend, region, &device.rows)?;
        }
        Ok(state.block.is_some())
    }

    /// Puts what the stream's work does not need once it has come so far behind a fence, and gives back what
    /// is behind fences that have passed.
    fn retire(
        &self,
        device: &DeviceState,
        stream: &Stream,
        state: &mut StreamState,
    ) -> Result<(), Error> {
        let (backend, region) = (&*self.backend, &device.region);
        let gone = std::mem::take(&mut state.retired);
        if !gone.is_empty() {
            state.behind.push(backend, region, stream.queue, gone)?;
        }
        while let Some(gone) = state.behind.pop(backend)? {
            for retired in gone {
                if let Retired::Block(block) = retired {
                    self.give_block_back(device, block)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a block back, and notes which of its launches never waited for their predecessor.
    pub(crate) fn give_block_back(&self, device: &DeviceState, block: Block) -> Result<(), Error> {
        let mut never_waited = |number| self.never_waited(device, number);
        let given =
            device
                .blocks
                .give_back(&*self.backend, &device.region, block, &mut never_waited);
        Ok(given?)
    }

    fn never_waited(&self, device: &DeviceState, number: u32) {
        let kernel = device.log.find(number).map_or(0, |record| record.kernel);
        self.names.never_waited(kernel);
    }

    /// Notes which dependent launches have ended and never waited for their predecessor. It reads memory of
    /// the devices.
    pub(crate) fn look_for_never_waited(&self) -> Result<(), Error> {
        for stream in self.streams(None) {
            let device = &self.devices[stream.device];
            self.look_at_blocks(device, &mut stream.reenter())?;
        }
        for device in self.devices.iter() {
            device
                .dormant
                .for_each(|state| self.look_at_blocks(device, state))?;
        }
        Ok(())
    }

    fn look_at_blocks(&self, device: &DeviceState, state: &mut StreamState) -> Result<(), Error> {
        let mut never_waited = |number| self.never_waited(device, number);
        let retired = state.behind.iter_mut().flatten();
        let retired = retired.chain(&mut state.retired);
        let blocks = retired.filter_map(|retired| match retired {
            Retired::Block(block) => Some(block),
            _ => None,
        });
        for block in blocks.chain(&mut state.block) {
            block.settle(&*self.backend, &device.region, false, &mut never_waited)?;
        }
        Ok(())
    }

    /// Gives the stream the steps that it is owed.
    fn pay_steps(&self, stream: &Stream, state: &mut StreamState) -> Result<(), Error> {
        if state.owed.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut state.owed);
        let device = stream.key.device;
        let run = self.kernels.run(device, stream.queue, steps.clone());
        Ok(run.inspect_err(|_| state.owed = steps)?)
    }
}

/// The steps of a join into rows of `bank`.
fn steps(device: &DeviceState, bank: u32, join: &Join) -> Vec<Step> {
    let region = &device.region;
    let slots = region.topology.slots();
    let ids = region.topology.ids();
    let target = join.target;
    let mut steps = Vec::new();
    let merge = |source, source_filled, target, target_filled, entries| Step::Merge {
        target,
        source,
        entries,
        source_filled,
        target_filled,
    };
    for pair in &join.own {
        steps.push(merge(pair.own, 0, target.own, 0, slots));
        let (from, to) = (entries(pair.foreign), entries(target.foreign));
        steps.push(merge(from, pair.foreign, to, target.foreign, ids));
    }
    for &foreign in &join.foreign {
        let (from, to) = (entries(foreign), entries(target.foreign));
        steps.push(merge(from, foreign, to, target.foreign, ids));
    }
    for &(of, row) in &join.folded {
        steps.push(if of == bank {
            merge(row, 0, target.own, 0, slots)
        } else {
            let first = entries(target.foreign) + 4 * u64::from(region.bank_first(of));
            merge(row, 0, first, target.foreign, slots)
        });
    }
    if let Some((address, rows)) = &join.table {
        let mut words = rows.clone();
        words.resize(region.topology.banks() as usize, 0);
        steps.push(Step::Words {
            address: *address,
            words: words.into(),
        });
    }
    steps
}
