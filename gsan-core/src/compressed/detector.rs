//! The compressed detector as a whole: drives the operations of CTAs by events.
//!
//! Its unit is the CTA, and it looks at global memory only. It owns the memory that on a GPU the
//! devices and the host share, and takes the host's part: banks, frontiers, completions, restarts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::cta::{Cta as ResidentCta, CtaState};
use super::frontier::{Foreign, Launch as LaunchView, LaunchState, MAX_OVERTAKEN, Overtaken};
use super::frontier::{Row, Rows};
use super::meeting::Meeting as MeetingView;
use super::strong::{Begun, StrongAccess};
use super::system::{RUNNING, Sizes, System};
use super::topology::{Place, Topology};
use crate::address::{GRANULE, granules};
use crate::atomics::{Native, words};
use crate::cell::{Cell, Conflict};
use crate::clock::ClockEntry;
use crate::event::{
    Access, Action, Completion, Detector, Event, EventError, FenceKind, HostEvent, Launch, Meeting,
    Range, Space,
};
use crate::host_order::{HostOrder, Start};
use crate::ids::{AsyncId, Cta, CtaIndex, LaunchId, SiteId, StreamId, Thread};
use crate::loss::{Loss, Losses};
use crate::race::{Race, Side, Who};
use crate::record::{MAX_SITE, Record, RecordScope};
use crate::reservoir::Sampler;
use crate::scope::{Order, Scope};

/// The compressed detector over memory of its own, with `S` records a cell.
#[derive(Debug)]
pub struct CompressedDetector<const S: usize> {
    system: System<Native>,
    seed: u32,
    host: HostOrder,
    /// The bank of each stream, and how many streams of each device have one.
    banks: BTreeMap<StreamId, u32>,
    streams: BTreeMap<u16, u32>,
    launches: BTreeMap<LaunchId, HostLaunch>,
    resident: HashMap<Cta, Resident<S>>,
    /// The cell of every granule touched, by the granule's index.
    shadow: HashMap<u64, Box<[AtomicU64; S]>>,
    meetings: HashMap<Meeting, Vec<AtomicU64>>,
    copies: BTreeMap<AsyncId, Copy>,
    /// Launches that the host has not waited for.
    running: BTreeSet<LaunchId>,
    races: Vec<Race>,
}

/// A launch as the host knows it.
#[derive(Debug)]
struct HostLaunch {
    launch: Launch,
    start: Start,
    /// The frontier, once the first CTA has started.
    before: Option<HostFrontier>,
    after: HostRows,
    state: LaunchState<Native>,
    waited: bool,
}

#[derive(Debug)]
struct HostFrontier {
    rows: HostRows,
    named: Vec<HostRow>,
}

/// A row of one bank; several frontiers may name it.
#[derive(Clone, Debug)]
struct HostRow {
    bank: u32,
    entries: Arc<Vec<AtomicU32>>,
}

#[derive(Debug)]
struct HostRows {
    own: HostRow,
    filled: AtomicU32,
    foreign: Vec<AtomicU32>,
}

#[derive(Debug)]
struct Resident<const S: usize> {
    state: CtaState<Native>,
    /// Strong accesses under way, by thread: the granule and what is kept of each part.
    begun: HashMap<u32, Vec<(u64, u8, Begun<S>)>>,
}

#[derive(Clone, Debug)]
struct Copy {
    cta: Cta,
    site: SiteId,
    reads: Vec<Range>,
    writes: Vec<Range>,
}

impl HostRows {
    fn new(topology: &Topology, bank: u32) -> Self {
        HostRows {
            own: HostRow {
                bank,
                entries: Arc::new(words(topology.slots() as usize, 0)),
            },
            filled: AtomicU32::new(0),
            foreign: words(topology.ids() as usize, 0),
        }
    }

    fn view(&self) -> Rows<'_, Native> {
        Rows {
            own: self.own.view(),
            foreign: Foreign {
                filled: &self.filled,
                entries: &self.foreign,
            },
        }
    }

    fn zero(&self) {
        let own = self.own.entries.iter();
        own.chain(&self.foreign)
            .for_each(|entry| entry.store(0, Relaxed));
        self.filled.store(0, Relaxed);
    }
}

impl HostRow {
    fn view(&self) -> Row<'_, Native> {
        Row {
            bank: self.bank,
            entries: &self.entries,
        }
    }
}

impl<const S: usize> CompressedDetector<S> {
    /// A detector for `topology`, with memory of `sizes`; `seed` decides which reads are sampled.
    pub fn new(topology: Topology, sizes: Sizes, seed: u32) -> Self {
        CompressedDetector {
            system: System::new(topology, sizes),
            seed,
            host: HostOrder::new(),
            banks: BTreeMap::new(),
            streams: BTreeMap::new(),
            launches: BTreeMap::new(),
            resident: HashMap::new(),
            shadow: HashMap::new(),
            meetings: HashMap::new(),
            copies: BTreeMap::new(),
            running: BTreeSet::new(),
            races: Vec::new(),
        }
    }

    /// The memory of all devices, to be looked at.
    pub const fn system(&self) -> &System<Native> {
        &self.system
    }

    /// The words of the cell of the granule that `address` lies in; `None` if it was never accessed.
    pub fn cell_words(&self, address: u64) -> Option<[u64; S]> {
        let words = self.shadow.get(&(address / GRANULE))?;
        Some(Cell::new(words).load())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), EventError> {
        if self.launches.contains_key(&launch.id) {
            return Err(EventError::LaunchAgain(launch.id));
        }
        if u32::from(launch.device.0) >= self.system.topology().devices() {
            return Err(EventError::Unsupported("the topology has no such device"));
        }
        let mut start = self.host.launch(launch);
        // What cannot be told apart counts as known from the start.
        let excess = start.overtaken.len().saturating_sub(MAX_OVERTAKEN);
        start.after.extend(start.overtaken.drain(..excess));
        let bank = self.bank(launch);
        let after = HostRows::new(self.system.topology(), bank);
        let record = HostLaunch {
            launch: launch.clone(),
            start,
            before: None,
            after,
            state: LaunchState::default(),
            waited: false,
        };
        self.launches.insert(launch.id, record);
        self.running.insert(launch.id);
        Ok(())
    }

    /// The bank of the launch's stream: its own while there are banks left.
    fn bank(&mut self, launch: &Launch) -> u32 {
        if let Some(&bank) = self.banks.get(&launch.stream) {
            return bank;
        }
        let topology = self.system.topology();
        let streams = self.streams.entry(launch.device.0).or_default();
        let banks = topology.banks_per_device();
        if *streams >= banks {
            self.system.count(launch.device, Loss::SharedBank);
        }
        let bank = topology.bank(launch.device, *streams % banks);
        *streams += 1;
        self.banks.insert(launch.stream, bank);
        bank
    }

    /// Joins the completions that a launch starts after. Called when its first CTA starts: they
    /// are final then.
    fn frontier(&self, record: &HostLaunch) -> HostFrontier {
        let topology = self.system.topology();
        let bank = record.after.own.bank;
        let frontier = HostRows::new(topology, bank);
        let mut named: Vec<HostRow> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut pending = record.start.after.clone();
        while let Some(id) = pending.pop() {
            let Some(earlier) = self.launches.get(&id).filter(|_| seen.insert(id)) else {
                continue;
            };
            if earlier.launch.ctas == 0 {
                // Nobody carried its frontier over.
                pending.extend(&earlier.start.after);
                pending.extend(&earlier.start.overtaken);
            }
            let inherited = earlier.before.iter().flat_map(|before| &before.named);
            for row in inherited.chain([&earlier.after.own]) {
                if row.bank == bank {
                    for (slot, entry) in row.entries.iter().enumerate() {
                        let place = Place {
                            bank,
                            slot: slot as u32,
                        };
                        let entry = ClockEntry::from_bits(entry.load(Relaxed));
                        frontier.view().add(place, topology.id(place), entry);
                    }
                } else if !named.iter().any(|n| Arc::ptr_eq(&n.entries, &row.entries)) {
                    named.push(row.clone());
                }
            }
            for place in self.system.high_water().places() {
                let id = topology.id(place);
                let entry = earlier.after.foreign[usize::from(id.0)].load(Relaxed);
                frontier.view().add(place, id, ClockEntry::from_bits(entry));
            }
        }
        HostFrontier {
            rows: frontier,
            named,
        }
    }

    fn known(&self, cta: Cta) -> Result<&HostLaunch, EventError> {
        let record = self.launches.get(&cta.launch);
        let record = record.ok_or(EventError::UnknownLaunch(cta.launch))?;
        if cta.index.0 >= record.launch.ctas {
            return Err(EventError::NoSuchCta {
                launch: cta.launch,
                index: cta.index,
                ctas: record.launch.ctas,
            });
        }
        Ok(record)
    }

    fn check_thread(&self, thread: Thread) -> Result<(), EventError> {
        let record = self.known(thread.cta)?;
        if thread.index >= record.launch.threads {
            return Err(EventError::NoSuchThread {
                index: thread.index,
                threads: record.launch.threads,
            });
        }
        if !self.resident.contains_key(&thread.cta) {
            return Err(EventError::NotResident(thread.cta));
        }
        Ok(())
    }

    /// Runs `body` with the launch of `cta` as its CTAs see it.
    fn with_launch<R>(
        &self,
        launch: LaunchId,
        body: impl FnOnce(&LaunchView<'_, Native>) -> R,
    ) -> R {
        let record = &self.launches[&launch];
        let before = record
            .before
            .as_ref()
            .expect("set when the first CTA started");
        let named: Vec<_> = before.named.iter().map(HostRow::view).collect();
        let overtaken: Vec<_> = record
            .start
            .overtaken
            .iter()
            .filter_map(|id| self.launches.get(id))
            .map(|earlier| Overtaken {
                rows: earlier.after.view(),
                exited: &earlier.state.exited,
                ctas: earlier.launch.ctas,
            })
            .collect();
        let waits_for = record.start.waits_for;
        body(&LaunchView {
            id: launch,
            device: record.launch.device,
            before: before.rows.view(),
            named: &named,
            after: record.after.view(),
            overtaken: &overtaken,
            waits_for: record
                .start
                .overtaken
                .iter()
                .position(|&id| Some(id) == waits_for),
            state: &record.state,
        })
    }

    /// Runs `body` with a resident CTA.
    fn with<R>(&self, cta: Cta, body: impl FnOnce(ResidentCta<'_, Native>) -> R) -> R {
        let state = &self.resident[&cta].state;
        self.with_launch(cta.launch, |launch| {
            body(ResidentCta {
                system: &self.system,
                launch,
                state,
            })
        })
    }

    fn cta_start(&mut self, cta: Cta, sm: u32) -> Result<(), EventError> {
        let record = self.known(cta)?;
        if self.resident.contains_key(&cta) {
            return Err(EventError::Unsupported("the CTA is resident already"));
        }
        if record.before.is_none() {
            let frontier = self.frontier(record);
            if let Some(record) = self.launches.get_mut(&cta.launch) {
                record.before = Some(frontier);
            }
        }
        let resident = Resident {
            state: CtaState::default(),
            begun: HashMap::new(),
        };
        self.with_launch(cta.launch, |launch| {
            let coordinates = u64::from(cta.index.0);
            ResidentCta::start(&self.system, launch, &resident.state, sm, coordinates);
        });
        self.resident.insert(cta, resident);
        Ok(())
    }

    fn cta_exit(&mut self, cta: Cta) -> Result<(), EventError> {
        self.known(cta)?;
        if !self.resident.contains_key(&cta) {
            return Err(EventError::NotResident(cta));
        }
        let of_cta = |(_, copy): &(&AsyncId, &Copy)| copy.cta == cta;
        let left: Vec<_> = self
            .copies
            .iter()
            .filter(of_cta)
            .map(|(&id, _)| id)
            .collect();
        for id in left {
            self.copy_done(id, Completion::Full);
            self.copies.remove(&id);
        }
        self.with(cta, |resident| resident.exit());
        self.resident.remove(&cta);
        let record = &self.launches[&cta.launch];
        let over = record.state.exited.load(Relaxed) == record.launch.ctas;
        if over && record.start.waits_for.is_some() && !record.waited {
            self.system.count(record.launch.device, Loss::NeverWaited);
        }
        Ok(())
    }

    fn host(&mut self, event: HostEvent) {
        self.host.host(event);
        match event {
            HostEvent::SyncStream(stream) => {
                let launches = &self.launches;
                self.running
                    .retain(|id| launches[id].launch.stream != stream);
            }
            HostEvent::SyncDevice(device) => {
                let launches = &self.launches;
                self.running
                    .retain(|id| launches[id].launch.device != device);
            }
            _ => return,
        }
        if self.running.is_empty() && self.resident.is_empty() && self.system.is_half_worn() {
            self.restart();
        }
    }

    /// Everything has finished, and the host knows: forgets everything.
    fn restart(&mut self) {
        self.system.restart();
        self.shadow.clear();
        self.meetings.clear();
        for record in self.launches.values_mut() {
            record.after.zero();
            if let Some(before) = &mut record.before {
                before.rows.zero();
                before.named.clear();
            }
        }
    }

    /// The granules of a range of global memory, made known to the shadow.
    fn parts(&mut self, range: Range) -> Result<Vec<(u64, u8)>, EventError> {
        let bytes = u64::from(range.bytes);
        if bytes == 0 || range.address.checked_add(bytes).is_none() {
            return Err(EventError::BadRange {
                address: range.address,
                bytes: range.bytes,
            });
        }
        if range.space != Space::Global {
            return Ok(Vec::new());
        }
        let parts: Vec<_> = granules(range.address, bytes)
            .map(|part| (part.granule / GRANULE, part.mask))
            .collect();
        for &(granule, _) in &parts {
            self.shadow
                .entry(granule)
                .or_insert_with(|| Box::new(core::array::from_fn(|_| AtomicU64::new(0))));
        }
        Ok(parts)
    }

    /// The words of the cell of the granule at `address`, if anything touched it.
    pub fn words(&self, address: u64) -> Option<[u64; S]> {
        let words = self.shadow.get(&(address / GRANULE))?;
        Some(Cell::new(words).load())
    }

    fn cell(&self, granule: u64) -> Cell<'_, AtomicU64, S> {
        Cell::new(&self.shadow[&granule])
    }

    fn sampler(&self, granule: u64) -> Sampler {
        Sampler::new(self.seed, granule)
    }

    fn site(&self, cta: Cta, site: SiteId) -> SiteId {
        if site.0 > MAX_SITE {
            let device = self.launches[&cta.launch].launch.device;
            self.system.count(device, Loss::SiteTableFull);
        }
        site
    }

    fn access(&mut self, access: &Access) -> Result<(), EventError> {
        self.check_thread(access.thread)?;
        let parts = self.parts(access.range)?;
        let (cta, index) = (access.thread.cta, access.thread.index);
        let site = self.site(cta, access.site);
        if access.order.is_strong() {
            if !self.resident[&cta].begun.contains_key(&index) {
                self.begin(access)?;
                self.end(access)?;
            }
            return Ok(());
        }
        for (granule, mask) in parts {
            let mut found = Vec::new();
            let (cell, sampler) = (self.cell(granule), self.sampler(granule));
            self.with(cta, |resident| {
                let race = |conflict| found.push(conflict);
                resident.weak(cell, mask, access.action, site, sampler, race);
            });
            self.report(granule, found, later(access));
        }
        Ok(())
    }

    fn begin(&mut self, access: &Access) -> Result<(), EventError> {
        self.check_thread(access.thread)?;
        if !access.order.is_strong() {
            return Err(EventError::Unsupported(
                "a weak access has no begin and no end",
            ));
        }
        let parts = self.parts(access.range)?;
        let cta = access.thread.cta;
        if self.resident[&cta].begun.contains_key(&access.thread.index) {
            return Err(EventError::Unsupported(
                "strong accesses of one thread do not nest",
            ));
        }
        let begun: Vec<_> = parts
            .into_iter()
            .map(|(granule, mask)| {
                let (cell, sampler) = (self.cell(granule), self.sampler(granule));
                let begun = self.with(cta, |resident| {
                    resident.begin(cell, &strong(access, mask), sampler)
                });
                (granule, mask, begun)
            })
            .collect();
        if let Some(resident) = self.resident.get_mut(&cta) {
            resident.begun.insert(access.thread.index, begun);
        }
        Ok(())
    }

    fn end(&mut self, access: &Access) -> Result<(), EventError> {
        self.check_thread(access.thread)?;
        let cta = access.thread.cta;
        let resident = self.resident.get_mut(&cta);
        let begun = resident.and_then(|resident| resident.begun.remove(&access.thread.index));
        let begun = begun.ok_or(EventError::Unsupported("the strong access never began"))?;
        for (granule, mask, begun) in begun {
            let mut found = Vec::new();
            let (cell, sampler) = (self.cell(granule), self.sampler(granule));
            self.with(cta, |resident| {
                let race = |conflict| found.push(conflict);
                resident.end(cell, &begun, &strong(access, mask), sampler, race);
            });
            self.report(granule, found, later(access));
        }
        Ok(())
    }

    fn report(&mut self, granule: u64, found: Vec<Conflict>, later: Side) {
        for conflict in found {
            let (low, high) = (
                conflict.mask.trailing_zeros(),
                u8::BITS - conflict.mask.leading_zeros(),
            );
            self.races.push(Race {
                kind: conflict.kind,
                space: Space::Global,
                address: granule * GRANULE + u64::from(low),
                bytes: high - low,
                earlier: self.earlier(conflict.earlier),
                later,
            });
        }
    }

    /// The earlier side of a race, as far as it is remembered.
    fn earlier(&self, record: Record) -> Side {
        let device = self.system.topology().device(record.thread());
        let cta = self.system.history().find(record.thread(), record.epoch());
        let who = match cta {
            Some(past) => Who::Cta(Cta {
                launch: past.launch,
                index: CtaIndex(past.coordinates as u32),
            }),
            None => {
                self.system.count(device, Loss::HistoryOverwritten);
                Who::Forgotten(device)
            }
        };
        let scope = record.scope().scope();
        Side {
            who,
            action: if record.write() {
                Action::Write
            } else {
                Action::Read
            },
            order: if scope.is_some() {
                Order::Relaxed
            } else {
                Order::Weak
            },
            scope,
            asynchronous: record.epoch() == RUNNING,
            site: record.site(),
        }
    }

    fn fence(&mut self, thread: Thread, kind: FenceKind, scope: Scope) -> Result<(), EventError> {
        self.check_thread(thread)?;
        let scope = RecordScope::from(scope);
        self.with(thread.cta, |resident| match kind {
            FenceKind::Acquire => resident.acquire_fence(scope),
            FenceKind::Release => resident.release_fence(scope),
            FenceKind::AcqRel => {
                resident.acquire_fence(scope);
                resident.release_fence(scope);
            }
            FenceKind::Sc => resident.sequential_fence(scope),
            FenceKind::ProxyAsync => {}
        });
        Ok(())
    }

    /// The memory of a barrier object that CTAs can meet at, if it is one.
    fn meeting(&mut self, at: Meeting) -> Option<&[AtomicU64]> {
        match at {
            Meeting::CtaBarrier { .. } | Meeting::WarpBarrier { .. } => None,
            Meeting::ClusterBarrier { .. } | Meeting::Mbarrier { .. } => {
                let new = || words(MeetingView::<Native>::WORDS, 0);
                Some(self.meetings.entry(at).or_insert_with(new))
            }
        }
    }

    fn meet(
        &mut self,
        thread: Thread,
        at: Meeting,
        body: impl FnOnce(MeetingView<'_, Native>, ResidentCta<'_, Native>),
    ) -> Result<(), EventError> {
        self.check_thread(thread)?;
        if self.meeting(at).is_some() {
            let view = MeetingView::new(&self.meetings[&at]);
            self.with(thread.cta, |resident| body(view, resident));
        }
        Ok(())
    }

    fn issue(&mut self, thread: Thread, id: AsyncId, copy: Copy) -> Result<(), EventError> {
        self.check_thread(thread)?;
        self.site(copy.cta, copy.site);
        self.copy(&copy, Completion::Full, true)?;
        self.copies.insert(id, copy);
        Ok(())
    }

    /// A copy is done, as far as `completion` says. It stays known until its CTA exits: it may be
    /// waited for again.
    fn copy_done(&mut self, id: AsyncId, completion: Completion) {
        if let Some(copy) = self.copies.get(&id).cloned() {
            let done = self.copy(&copy, completion, false);
            debug_assert!(done.is_ok(), "its ranges were accepted at issue");
        }
        if let Some(copy) = self.copies.get_mut(&id) {
            copy.reads.clear();
            if completion == Completion::Full {
                copy.writes.clear();
            }
        }
    }

    /// Issues or completes the parts of a copy.
    fn copy(&mut self, copy: &Copy, which: Completion, issue: bool) -> Result<(), EventError> {
        let writes: &[Range] = match which {
            Completion::Full => &copy.writes,
            Completion::ReadsOnly => &[],
        };
        let reads = copy.reads.iter().map(|&range| (range, Action::Read));
        let mut parts = Vec::new();
        for (range, action) in reads.chain(writes.iter().map(|&range| (range, Action::Write))) {
            for (granule, mask) in self.parts(range)? {
                parts.push((granule, mask, action));
            }
        }
        for (granule, mask, action) in parts {
            let mut found = Vec::new();
            let (cell, sampler) = (self.cell(granule), self.sampler(granule));
            self.with(copy.cta, |resident| {
                let race = |conflict| found.push(conflict);
                if issue {
                    resident.issue(cell, mask, action, copy.site, sampler, race);
                } else {
                    resident.complete(cell, mask, action, copy.site, sampler, race);
                }
            });
            let side = Side {
                who: Who::Cta(copy.cta),
                action,
                order: Order::Weak,
                scope: None,
                asynchronous: issue,
                site: copy.site,
            };
            self.report(granule, found, side);
        }
        Ok(())
    }

    fn copy_arrives(&mut self, id: AsyncId, at: Meeting) -> Result<(), EventError> {
        let copy = self.copies.get(&id).ok_or(EventError::UnknownCopy(id))?;
        let cta = copy.cta;
        self.copy_done(id, Completion::Full);
        if self.meeting(at).is_some() {
            let view = MeetingView::new(&self.meetings[&at]);
            self.with(cta, |resident| view.arrive(resident, true, 1));
        }
        Ok(())
    }
}

fn strong(access: &Access, mask: u8) -> StrongAccess {
    StrongAccess {
        mask,
        action: access.action,
        order: access.order,
        scope: access.scope.into(),
        site: access.site,
        thread: access.thread.index,
    }
}

/// The later side of a race.
fn later(access: &Access) -> Side {
    Side {
        who: Who::Cta(access.thread.cta),
        action: access.action,
        order: access.order,
        scope: access.order.is_strong().then_some(access.scope),
        asynchronous: false,
        site: access.site,
    }
}

impl<const S: usize> Detector for CompressedDetector<S> {
    fn on(&mut self, event: &Event) -> Result<(), EventError> {
        match event {
            Event::Host(event) => self.host(*event),
            Event::Launch(launch) => self.launch(launch)?,
            Event::CtaStart { cta, sm } => self.cta_start(*cta, *sm)?,
            Event::CtaExit(cta) => self.cta_exit(*cta)?,
            Event::GridDependencyWait(thread) => {
                self.check_thread(*thread)?;
                self.with(thread.cta, |resident| resident.grid_dependency_wait());
                if let Some(record) = self.launches.get_mut(&thread.cta.launch) {
                    record.waited = true;
                }
            }
            Event::Access(access) => self.access(access)?,
            Event::AtomicBegin(access) => {
                // Whether it will swap is not known yet.
                let action = match access.action {
                    Action::FailedRmw => Action::Rmw,
                    action => action,
                };
                self.begin(&Access { action, ..*access })?;
            }
            Event::AtomicEnd(access) => self.end(access)?,
            Event::Fence {
                thread,
                kind,
                scope,
            } => self.fence(*thread, *kind, *scope)?,
            Event::Arrive {
                thread,
                at,
                releases,
            } => self.meet(*thread, *at, |meeting, cta| {
                meeting.arrive(cta, *releases, 1)
            })?,
            Event::PhaseComplete(at) => {
                if let Some(words) = self.meeting(*at) {
                    MeetingView::<Native>::new(words).complete_phase();
                }
            }
            Event::Leave {
                thread,
                at,
                acquires,
            } => self.meet(*thread, *at, |meeting, cta| {
                if *acquires {
                    meeting.wait_newest(cta);
                }
            })?,
            Event::MeetingReset(at) => {
                if let Some(words) = self.meeting(*at) {
                    // Phases are completed by events here, not by counting.
                    MeetingView::<Native>::new(words).reset(0);
                }
            }
            Event::AsyncIssue {
                thread,
                id,
                reads,
                writes,
                proxy: _,
                site,
            } => {
                let copy = Copy {
                    cta: thread.cta,
                    site: *site,
                    reads: reads.clone(),
                    writes: writes.clone(),
                };
                self.issue(*thread, *id, copy)?;
            }
            Event::AsyncWait {
                thread,
                id,
                completion,
            } => {
                self.check_thread(*thread)?;
                if !self.copies.contains_key(id) {
                    return Err(EventError::UnknownCopy(*id));
                }
                self.copy_done(*id, *completion);
            }
            Event::AsyncArrive { id, at } => self.copy_arrives(*id, *at)?,
            Event::Forget(range) => {
                for (granule, mask) in self.parts(*range)? {
                    self.cell(granule).forget(mask);
                }
            }
        }
        Ok(())
    }

    fn take_races(&mut self) -> Vec<Race> {
        std::mem::take(&mut self.races)
    }

    fn losses(&self) -> Losses {
        self.system.losses()
    }
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
