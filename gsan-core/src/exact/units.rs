//! Launches, their CTAs and their units: who exists, where it stands, and what it knows.

use std::cell::Cell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Unit;
use super::history::Tag;
use super::past::{ByScope, Clock, Past, Position, Published, include_each_other};
use super::tree::{ALL, Tree};
use crate::event::{Completion, EventError, Launch, Meeting, Proxy};
use crate::host_order::Start;
use crate::ids::{AsyncId, Cta, CtaIndex, LaunchId, Thread};
use crate::race::Who;
use crate::scope::Scope;

/// What one unit knows.
#[derive(Debug, Default)]
pub(super) struct Actor {
    pub(super) past: Past,
    /// Release fences, and what strong reads saw that no fence acquired yet.
    pub(super) fences: Option<Box<Fences>>,
    /// The epoch its next access is recorded at, less one: new units have epoch 1.
    finished: u32,
    /// Whether an access was recorded at the present epoch.
    touched: Cell<bool>,
    /// Grows whenever `past` or the epoch does.
    pub(super) version: u32,
}

#[derive(Debug, Default)]
pub(super) struct Fences {
    pub(super) released: ByScope,
    pub(super) seen: ByScope,
}

impl Actor {
    fn new(past: Past) -> Self {
        Actor {
            past,
            ..Actor::default()
        }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.finished + 1
    }

    /// An access is recorded at the present epoch.
    pub(super) fn touch(&self) {
        self.touched.set(true);
    }

    /// The newest epoch with accesses; later ones get a newer epoch. The last epoch is never
    /// left: what a unit does there counts as ordered.
    pub(super) fn finish_epoch(&mut self) -> u32 {
        if self.touched.get() && self.finished < ALL - 2 {
            self.touched.set(false);
            self.finished += 1;
            self.version = self.version.wrapping_add(1);
        }
        self.finished
    }

    /// Everything before now, the unit's own accesses included.
    pub(super) fn release(&mut self, unit: u32) -> Past {
        let own = self.finish_epoch();
        let mut past = self.past.clone();
        past.all.threads.raise(unit, own);
        past
    }

    pub(super) fn acquire(&mut self, past: &Past) {
        self.past.join(past);
        self.version = self.version.wrapping_add(1);
    }

    /// Orders the unit's earlier generic accesses before its later asynchronous ones.
    pub(super) fn proxy_fence(&mut self, unit: u32) {
        let past = self.release(unit);
        self.past.fenced.join(&past.all);
        self.version = self.version.wrapping_add(1);
    }
}

/// What a meeting's phases know.
#[derive(Debug, Default)]
pub(super) struct Phases {
    pub(super) running: Phase,
    pub(super) completed: Phase,
}

/// What the arrivals of one phase released.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) released: Past,
    /// What release fences before relaxed arrivals released.
    pub(super) by_fences: Published,
}

#[derive(Debug)]
enum CtaState {
    NotStarted,
    Resident(Box<Resident>),
    Exited,
}

#[derive(Debug)]
struct Resident {
    actors: Vec<Actor>,
    meetings: FxHashMap<Meeting, Phases>,
    /// The copies its threads issued.
    copies: Tree,
}

#[derive(Debug)]
struct LaunchState {
    launch: Launch,
    first_unit: u32,
    units_per_cta: u32,
    start: Start,
    /// What every CTA starts with; worked out when the first one starts.
    frontier: Option<Past>,
    /// The CTAs up to the last that any event named.
    ctas: Vec<CtaState>,
    exited: u32,
    /// What the CTAs that exited knew.
    completion: Past,
    cluster_barriers: FxHashMap<Meeting, Phases>,
}

impl LaunchState {
    fn units(&self) -> std::ops::Range<u32> {
        self.first_unit..self.first_unit + self.launch.ctas * self.units_per_cta
    }

    #[inline]
    fn cluster_of(&self, index: u32) -> Cta {
        Cta {
            launch: self.launch.id,
            index: CtaIndex(match self.launch.cluster {
                1 => index,
                cluster => index - index % cluster,
            }),
        }
    }
}

/// An asynchronous copy.
#[derive(Clone, Copy, Debug)]
struct Copy {
    by: Thread,
    unit: u32,
}

/// Epochs of a copy: what it reads is done before what it writes.
pub(super) const COPY_READS: u32 = 1;
pub(super) const COPY_WRITES: u32 = 2;

/// Everybody who acts.
#[derive(Debug)]
pub(super) struct Units {
    unit: Unit,
    launches: Vec<LaunchState>,
    numbers: FxHashMap<LaunchId, usize>,
    /// The launch asked for last.
    latest: (LaunchId, usize),
    copies: Vec<Copy>,
    copy_numbers: BTreeMap<AsyncId, u32>,
    devices_differ: bool,
}

/// Names a unit: its number, and where it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitRef {
    pub(super) unit: u32,
    pub(super) position: Position,
    launch: usize,
    actor: usize,
}

/// A unit about to access memory, and what is ordered before that access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Viewer<'a> {
    pub(super) unit: u32,
    pub(super) position: Position,
    pub(super) past: &'a Past,
    /// The copy that accesses, if it is one, and its proxy.
    pub(super) copy: Option<(u32, Proxy)>,
    copies: &'a [Copy],
    by: Unit,
}

impl<'a> Viewer<'a> {
    /// The copy `number` that the unit issues now.
    pub(super) fn of_copy(self, number: u32, proxy: Proxy) -> Self {
        Viewer {
            copy: Some((number, proxy)),
            ..self
        }
    }

    /// Whether the link from a past access to this one needs a proxy fence. A generic read before
    /// an asynchronous write does not: the value read is in a register by then, and the pipelines
    /// in use rely on it.
    #[inline]
    fn needs_proxy_fence(&self, tag: Tag) -> bool {
        self.copy.is_some_and(|(_, proxy)| proxy == Proxy::Async)
            && tag.proxy() == Proxy::Generic
            && tag.action().writes()
    }

    /// The clock that decides about past accesses with `tag` by other units.
    #[inline]
    pub(super) fn clock(&self, tag: Tag) -> &'a Tree {
        let clock: &Clock = if self.needs_proxy_fence(tag) {
            &self.past.fenced
        } else {
            &self.past.all
        };
        if tag.is_asynchronous() {
            &clock.copies
        } else {
            &clock.threads
        }
    }

    /// Whether the access `tag` that `unit` (a copy's number for an asynchronous one) recorded at
    /// `epoch` precedes this one in base causality order.
    #[inline]
    pub(super) fn is_after(&self, tag: Tag, unit: u32, epoch: u32) -> bool {
        let own = if tag.is_asynchronous() {
            // The parts of one copy are ordered among themselves.
            self.copy.is_some_and(|(copy, _)| copy == unit)
                || self.by == Unit::Cta && self.copies[unit as usize].unit == self.unit
        } else {
            unit == self.unit && (self.by == Unit::Cta || !self.needs_proxy_fence(tag))
        };
        own || self.clock(tag).get(unit) >= epoch
    }
}

impl Units {
    pub(super) fn new(unit: Unit) -> Self {
        Units {
            unit,
            launches: Vec::new(),
            numbers: FxHashMap::default(),
            latest: (LaunchId(0), usize::MAX),
            copies: Vec::new(),
            copy_numbers: BTreeMap::new(),
            devices_differ: false,
        }
    }

    /// Whether the launch may be announced.
    pub(super) fn check_launch(&self, launch: &Launch) -> Result<(), EventError> {
        if self.numbers.contains_key(&launch.id) {
            return Err(EventError::LaunchAgain(launch.id));
        }
        if launch.threads == 0 {
            return Err(EventError::Unsupported("a CTA has at least one thread"));
        }
        if launch.cluster == 0 {
            return Err(EventError::Unsupported("a cluster has at least one CTA"));
        }
        self.units_end(launch).map(drop)
    }

    fn units_per_cta(&self, launch: &Launch) -> u32 {
        match self.unit {
            Unit::Thread => launch.threads,
            Unit::Cta => 1,
        }
    }

    fn next_unit(&self) -> u32 {
        self.launches.last().map_or(0, |last| last.units().end)
    }

    fn units_end(&self, launch: &Launch) -> Result<u32, EventError> {
        let units = launch.ctas.checked_mul(self.units_per_cta(launch));
        units
            .and_then(|units| units.checked_add(self.next_unit()))
            .filter(|&end| end < u32::MAX)
            .ok_or(EventError::Unsupported(
                "the launches of one detector have fewer than 2^32 - 1 units in all",
            ))
    }

    /// Adds a launch that was checked.
    pub(super) fn launch(&mut self, launch: &Launch, start: Start) {
        let number = self.launches.len();
        self.devices_differ |= self
            .launches
            .last()
            .is_some_and(|last| last.launch.device != launch.device);
        self.numbers.insert(launch.id, number);
        self.launches.push(LaunchState {
            first_unit: self.next_unit(),
            units_per_cta: self.units_per_cta(launch),
            start,
            frontier: None,
            ctas: Vec::new(),
            exited: 0,
            completion: Past::default(),
            cluster_barriers: FxHashMap::default(),
            launch: launch.clone(),
        });
    }

    #[inline]
    fn number(&mut self, id: LaunchId) -> Result<usize, EventError> {
        if self.latest.0 != id || self.latest.1 == usize::MAX {
            let number = self.numbers.get(&id);
            self.latest = (id, *number.ok_or(EventError::UnknownLaunch(id))?);
        }
        Ok(self.latest.1)
    }

    #[inline]
    fn cta(&mut self, cta: Cta) -> Result<(usize, &mut CtaState), EventError> {
        let number = self.number(cta.launch)?;
        let launch = &mut self.launches[number];
        if cta.index.0 >= launch.launch.ctas {
            return Err(EventError::NoSuchCta {
                launch: cta.launch,
                index: cta.index,
                ctas: launch.launch.ctas,
            });
        }
        let index = cta.index.0 as usize;
        if index >= launch.ctas.len() {
            launch.ctas.resize_with(index + 1, || CtaState::NotStarted);
        }
        Ok((number, &mut launch.ctas[index]))
    }

    fn resident(&mut self, cta: Cta) -> Result<&mut Resident, EventError> {
        match self.cta(cta)?.1 {
            CtaState::Resident(resident) => Ok(resident),
            _ => Err(EventError::NotResident(cta)),
        }
    }

    /// A CTA became resident.
    pub(super) fn start(&mut self, cta: Cta) -> Result<(), EventError> {
        let (number, state) = self.cta(cta)?;
        if !matches!(state, CtaState::NotStarted) {
            return Err(EventError::Unsupported("a CTA starts once"));
        }
        let mut past = self.frontier(number);
        for overtaken in self.launches[number].start.overtaken.clone() {
            let overtaken = self.number(overtaken)?;
            let launch = &self.launches[overtaken];
            if launch.exited == launch.launch.ctas {
                past.join(&self.completion(overtaken));
            }
        }
        let launch = &mut self.launches[number];
        let units = launch.units_per_cta as usize;
        launch.ctas[cta.index.0 as usize] = CtaState::Resident(Box::new(Resident {
            actors: std::iter::repeat_with(|| Actor::new(past.clone()))
                .take(units)
                .collect(),
            meetings: FxHashMap::default(),
            copies: Tree::default(),
        }));
        Ok(())
    }

    /// What every CTA of a launch starts with.
    fn frontier(&mut self, number: usize) -> Past {
        let mut wanted = vec![number];
        loop {
            let top = wanted[wanted.len() - 1];
            let before: Vec<usize> = self.launches[top]
                .start
                .after
                .iter()
                .filter_map(|launch| self.numbers.get(launch).copied())
                .collect();
            let missing = |number: &usize| self.launches[*number].frontier.is_none();
            if missing(&top) {
                if let Some(missing) = before.iter().copied().find(missing) {
                    wanted.push(missing);
                    continue;
                }
                let mut past = Past::default();
                for launch in before {
                    past.join(&self.completion(launch));
                }
                self.launches[top].completion.join(&past);
                self.launches[top].frontier = Some(past);
            }
            wanted.pop();
            if wanted.is_empty() {
                return self.launches[number].frontier.clone().unwrap_or_default();
            }
        }
    }

    /// Everything that is done when the launch is.
    fn completion(&self, number: usize) -> Past {
        let launch = &self.launches[number];
        let mut past = launch.completion.clone();
        past.cover(launch.units());
        past
    }

    /// All threads of a CTA returned. Their copies complete before the kernel does.
    pub(super) fn exit(&mut self, cta: Cta) -> Result<(), EventError> {
        let (number, state) = self.cta(cta)?;
        let resident = match std::mem::replace(state, CtaState::Exited) {
            CtaState::Resident(resident) => resident,
            other => {
                *state = other;
                return Err(EventError::NotResident(cta));
            }
        };
        let launch = &mut self.launches[number];
        launch.exited += 1;
        for actor in &resident.actors {
            launch.completion.join(&actor.past);
        }
        launch.completion.all.copies.join(&resident.copies);
        launch.completion.fenced.copies.join(&resident.copies);
        if launch.exited == launch.launch.ctas {
            launch.cluster_barriers = FxHashMap::default();
        }
        Ok(())
    }

    /// Finds a unit that may act.
    #[inline]
    pub(super) fn find(&mut self, thread: Thread) -> Result<UnitRef, EventError> {
        let (number, state) = self.cta(thread.cta)?;
        if !matches!(state, CtaState::Resident(_)) {
            return Err(EventError::NotResident(thread.cta));
        }
        let launch = &self.launches[number];
        if thread.index >= launch.launch.threads {
            return Err(EventError::NoSuchThread {
                index: thread.index,
                threads: launch.launch.threads,
            });
        }
        let actor = match self.unit {
            Unit::Thread => thread.index,
            Unit::Cta => 0,
        };
        let cta = thread.cta.index.0;
        Ok(UnitRef {
            unit: launch.first_unit + cta * launch.units_per_cta + actor,
            position: Position {
                cta: thread.cta,
                cluster: launch.cluster_of(cta),
                device: launch.launch.device,
            },
            launch: number,
            actor: actor as usize,
        })
    }

    #[inline]
    pub(super) fn actor(&self, unit: UnitRef) -> &Actor {
        let cta = unit.position.cta.index.0 as usize;
        match &self.launches[unit.launch].ctas[cta] {
            CtaState::Resident(resident) => &resident.actors[unit.actor],
            _ => unreachable!("a unit is only found while its CTA is resident"),
        }
    }

    #[inline]
    fn resident_of(&mut self, unit: UnitRef) -> &mut Resident {
        let cta = unit.position.cta.index.0 as usize;
        match &mut self.launches[unit.launch].ctas[cta] {
            CtaState::Resident(resident) => resident,
            _ => unreachable!("a unit is only found while its CTA is resident"),
        }
    }

    #[inline]
    pub(super) fn actor_mut(&mut self, unit: UnitRef) -> &mut Actor {
        &mut self.resident_of(unit).actors[unit.actor]
    }

    /// The same unit, ready to access memory.
    #[inline]
    pub(super) fn viewer<'a>(&'a self, unit: UnitRef, past: &'a Past) -> Viewer<'a> {
        Viewer {
            unit: unit.unit,
            position: unit.position,
            past,
            copy: None,
            copies: &self.copies,
            by: self.unit,
        }
    }

    /// What `griddepcontrol.wait` of the unit's launch adds.
    pub(super) fn waited_for(&mut self, unit: UnitRef) -> Option<Past> {
        let launch = self.launches[unit.launch].start.waits_for?;
        let number = self.number(launch).ok()?;
        self.frontier(number);
        Some(self.completion(number))
    }

    /// The phases of a meeting.
    pub(super) fn meeting(&mut self, at: Meeting) -> Result<&mut Phases, EventError> {
        let phases = match at {
            Meeting::CtaBarrier { cta, .. }
            | Meeting::WarpBarrier { cta, .. }
            | Meeting::Mbarrier { owner: cta, .. } => &mut self.resident(cta)?.meetings,
            Meeting::ClusterBarrier { launch, first } => {
                let cta = Cta {
                    launch,
                    index: first,
                };
                let (number, _) = self.cta(cta)?;
                &mut self.launches[number].cluster_barriers
            }
        };
        Ok(phases.entry(at).or_default())
    }

    /// Numbers a copy that `by`, found as `unit`, issues.
    pub(super) fn issue(
        &mut self,
        id: AsyncId,
        by: Thread,
        unit: UnitRef,
    ) -> Result<u32, EventError> {
        let number = u32::try_from(self.copies.len())
            .ok()
            .filter(|&number| number < u32::MAX)
            .ok_or(EventError::Unsupported("too many asynchronous copies"))?;
        if self.copy_numbers.contains_key(&id) {
            return Err(EventError::Unsupported(
                "asynchronous copy numbers are never reused",
            ));
        }
        self.copy_numbers.insert(id, number);
        self.copies.push(Copy {
            by,
            unit: unit.unit,
        });
        let resident = self.resident_of(unit);
        resident.copies.set(number, COPY_WRITES);
        Ok(number)
    }

    /// What somebody knows who knows that a copy is done.
    pub(super) fn copied(&self, id: AsyncId, completion: Completion) -> Result<Past, EventError> {
        let number = self.copy_numbers.get(&id);
        let number = *number.ok_or(EventError::UnknownCopy(id))?;
        let mut past = Past::default();
        past.all.copies.set(
            number,
            match completion {
                Completion::Full => COPY_WRITES,
                Completion::ReadsOnly => COPY_READS,
            },
        );
        Ok(past)
    }

    fn of_unit(&self, unit: u32) -> (&LaunchState, u32) {
        let after = self
            .launches
            .partition_point(|launch| launch.first_unit <= unit);
        // Launches without units share their first unit with the next one, so the last whose
        // first unit is not above is the right one.
        let launch = &self.launches[after - 1];
        (launch, unit - launch.first_unit)
    }

    fn position(&self, unit: u32) -> Position {
        let (launch, offset) = self.of_unit(unit);
        let index = offset / launch.units_per_cta;
        Position {
            cta: Cta {
                launch: launch.launch.id,
                index: CtaIndex(index),
            },
            cluster: launch.cluster_of(index),
            device: launch.launch.device,
        }
    }

    /// Whether the scopes of a strong access by `viewer` and a past one by `unit` include each
    /// other.
    pub(super) fn morally_strong(
        &self,
        viewer: &Viewer<'_>,
        scope: Scope,
        unit: u32,
        other: Scope,
    ) -> bool {
        include_each_other((viewer.position, scope), (self.position(unit), other))
    }

    /// Whether accesses of the two scopes reach each other wherever their threads are.
    pub(super) fn all_in_reach(&self, scope: Scope, other: Scope) -> bool {
        let narrower = scope.min(other);
        narrower == Scope::Sys || narrower == Scope::Gpu && !self.devices_differ
    }

    /// Whether the unit may still act.
    pub(super) fn is_alive(&self, unit: u32) -> bool {
        self.is_resident(self.position(unit).cta)
    }

    /// Whether the CTA may still act.
    pub(super) fn is_resident(&self, cta: Cta) -> bool {
        let launch = self.numbers.get(&cta.launch).map(|&n| &self.launches[n]);
        let state = launch.and_then(|launch| launch.ctas.get(cta.index.0 as usize));
        matches!(state, Some(CtaState::Resident(_)))
    }

    /// How a report names the one who made an access.
    pub(super) fn who(&self, unit: u32, asynchronous: bool) -> Who {
        let thread = if asynchronous {
            self.copies[unit as usize].by
        } else {
            let (launch, offset) = self.of_unit(unit);
            Thread::new(
                launch.launch.id,
                offset / launch.units_per_cta,
                offset % launch.units_per_cta,
            )
        };
        match self.unit {
            Unit::Thread => Who::Thread(thread),
            Unit::Cta => Who::Cta(thread.cta),
        }
    }
}
