//! A run: the host's launches, the CTAs that are resident, and whose turn it is.

use crate::exec::barrier;
use crate::exec::cta::CtaState;
use crate::exec::fault::{Fault, Finding, Wait, Waiting};
use crate::exec::interpret::{CtaInfo, Env, Step, Stop, turn};
use crate::exec::launch::Launch;
use crate::exec::mbarrier::Mbarriers;
use crate::exec::memory::Memory;
use crate::exec::printf::Printed;
use crate::exec::schedule::{Handle, Schedule, Scheduler, TurnEnd};
use crate::exec::thread::{Polled, Spin, Status, site};
use crate::exec::warp::{self, Blame};
use crate::exec::watch::Watch;
use crate::exec::{Outcome, Setup};
use gsan_core::event::{self, Detector, Event, HostEvent};
use gsan_core::ids::{Cta, CtaIndex, LaunchId, StreamId};
use std::collections::HashMap;

/// A run of a setup under one schedule.
pub(super) struct Machine<'a, 'd, D> {
    setup: Setup<'a>,
    env: Env<'a, 'd, D>,
    scheduler: Scheduler,
    /// Resident CTAs; a number is used again after its CTA exited.
    ctas: Vec<Option<Box<CtaState<'a>>>>,
    free: Vec<u32>,
    resident_threads: u32,
    launches: Vec<LaunchState>,
    /// The next launch that the host issues.
    next_launch: usize,
    /// The newest launch issued on each stream.
    newest: HashMap<StreamId, usize>,
    /// The launches that an event stands for.
    events: HashMap<u32, Option<usize>>,
    /// Threads known to be stuck while memory is in this state.
    stuck: u32,
    stuck_generation: u64,
}

/// How far a launch is.
#[derive(Clone, Debug, Default)]
struct LaunchState {
    /// The launches before it, which must have ended before it starts.
    after: Vec<usize>,
    /// The launch before it on its stream.
    predecessor: Option<usize>,
    issued: bool,
    started: bool,
    /// The next CTA that starts.
    next_cta: u32,
    /// CTAs that executed `launch_dependents` or exited.
    triggered: u32,
    exited: u32,
    done: bool,
}

impl<'a, 'd, D: Detector> Machine<'a, 'd, D> {
    pub(super) fn new(setup: Setup<'a>, schedule: Schedule, detector: &'d mut D) -> Self {
        let devices = setup.launches.iter().map(|launch| launch.device).collect();
        Machine {
            setup,
            env: Env {
                program: setup.program,
                limits: setup.limits,
                memory: Memory::new(setup.image, setup.program, &devices),
                detector: Watch::new(detector),
                instructions: 0,
                generation: 1,
                printed: Printed::default(),
                next_copy: 0,
                uninitialised: None,
            },
            scheduler: Scheduler::new(schedule),
            ctas: Vec::new(),
            free: Vec::new(),
            resident_threads: 0,
            launches: vec![LaunchState::default(); setup.launches.len()],
            next_launch: 0,
            newest: HashMap::new(),
            events: HashMap::new(),
            stuck: 0,
            stuck_generation: 0,
        }
    }

    pub(super) fn run(mut self) -> Outcome<'a> {
        let finding = self
            .go()
            .err()
            .or_else(|| self.env.uninitialised.take().map(Finding::Fault));
        let (accesses, races) = self.env.detector.finish();
        Outcome {
            finding,
            races,
            accesses,
            instructions: self.env.instructions,
            memory: self.env.memory,
            printed: self.env.printed.finish(),
        }
    }

    fn go(&mut self) -> Result<(), Finding> {
        self.host()?;
        loop {
            let Some((handle, turns)) = self.scheduler.next() else {
                if self.next_launch == self.setup.launches.len()
                    && self.launches.iter().all(|launch| launch.done)
                {
                    return Ok(());
                }
                if self.start_one_more()? {
                    continue;
                }
                return Err(Finding::Deadlock(self.waiting()));
            };
            self.turn(handle, turns)?;
            if self.env.instructions > self.setup.limits.instructions {
                return Err(Finding::Budget(self.waiting()));
            }
        }
    }

    fn turn(&mut self, handle: Handle, turns: u32) -> Result<(), Finding> {
        let Some(Some(cta)) = self.ctas.get_mut(handle.cta as usize) else {
            return Ok(());
        };
        let index = handle.thread;
        let (step, before) = turn(&mut self.env, cta, index, turns);
        self.scheduler.went_on(handle, before);
        let step = match step {
            Ok(step) => step,
            Err(stop) => return Err(finding(cta, index, stop)),
        };
        let mut woken = Vec::new();
        match step {
            Step::Ready => self.scheduler.end_turn(handle, TurnEnd::Ready),
            Step::Yielded => self.scheduler.end_turn(handle, TurnEnd::Yielded),
            Step::Polled { stuck } => {
                self.scheduler.end_turn(handle, TurnEnd::Yielded);
                if stuck {
                    return self.became_stuck();
                }
            }
            Step::Barrier => {
                let done = warp::barrier(&mut self.env, cta, index, &mut woken);
                blame(cta, done)?;
            }
            Step::Collective => {
                let done = warp::collective(&mut self.env, cta, index, &mut woken);
                blame(cta, done)?;
                if woken == [index] {
                    // It was alone, or lets others come first.
                    self.scheduler.end_turn(handle, TurnEnd::Yielded);
                    return Ok(());
                }
            }
            Step::GridWait => return self.grid_wait(handle),
            Step::LaunchDependents => {
                let launch = cta.launch;
                let first = !std::mem::replace(&mut cta.triggered, true);
                self.scheduler.end_turn(handle, TurnEnd::Ready);
                if first {
                    self.launches[launch].triggered += 1;
                    return self.host();
                }
            }
            Step::Exit => return self.exit(handle),
        }
        self.wake(handle.cta, woken);
        Ok(())
    }

    fn wake(&mut self, cta: u32, woken: Vec<u32>) {
        for thread in woken {
            self.scheduler.ready(Handle { cta, thread });
        }
    }

    fn exit(&mut self, handle: Handle) -> Result<(), Finding> {
        let Some(Some(cta)) = self.ctas.get_mut(handle.cta as usize) else {
            return Ok(());
        };
        cta.set_status(handle.thread, Status::Exited);
        cta.alive -= 1;
        if cta.alive > 0 {
            let mut woken = Vec::new();
            let settled = warp::settle(&mut self.env, cta, handle.thread / 32, &mut woken);
            blame(cta, settled)?;
            let released = barrier::exited(&mut self.env, cta, &mut woken);
            blame(cta, released.map_err(|stop| (handle.thread, stop)))?;
            self.wake(handle.cta, woken);
            return Ok(());
        }
        let (launch, id, triggered) = (cta.launch, cta.info.id, cta.triggered);
        self.resident_threads -= cta.info.launch.threads();
        self.ctas[handle.cta as usize] = None;
        self.free.push(handle.cta);
        self.tell(Event::CtaExit(id))?;
        let state = &mut self.launches[launch];
        state.exited += 1;
        state.triggered += u32::from(!triggered);
        let ctas = self.setup.launches[launch].ctas();
        state.done = state.exited == ctas;
        if state.done {
            self.finished(launch)?;
        } else if state.triggered == ctas {
            self.host()?;
        }
        self.start_ctas()
    }

    fn tell(&mut self, event: Event) -> Result<(), Finding> {
        self.env.detector.on(&event).map_err(Finding::Detector)
    }

    /// A launch ended: what waited for it goes on.
    fn finished(&mut self, launch: usize) -> Result<(), Finding> {
        let mut woken = Vec::new();
        for (number, cta) in (0..).zip(&mut self.ctas) {
            let Some(cta) = cta else { continue };
            if self.launches[cta.launch].predecessor != Some(launch) {
                continue;
            }
            for index in 0..cta.threads.len() as u32 {
                if cta.threads[index as usize].status == Status::Grid {
                    cta.set_status(index, Status::Ready);
                    woken.push(Handle {
                        cta: number,
                        thread: index,
                    });
                }
            }
        }
        // They are still at the instruction, and do it with nothing to wait for.
        for handle in woken {
            self.scheduler.ready(handle);
        }
        self.host()
    }

    /// `griddepcontrol.wait`
    fn grid_wait(&mut self, handle: Handle) -> Result<(), Finding> {
        let Some(Some(cta)) = self.ctas.get_mut(handle.cta as usize) else {
            return Ok(());
        };
        let predecessor = self.launches[cta.launch].predecessor;
        if predecessor.is_some_and(|launch| !self.launches[launch].done) {
            cta.set_status(handle.thread, Status::Grid);
            return Ok(());
        }
        let thread = &mut cta.threads[handle.thread as usize];
        thread.pc += 1;
        let (id, programmatic) = (thread.id, cta.info.launch.programmatic);
        self.scheduler.end_turn(handle, TurnEnd::Ready);
        if programmatic {
            self.tell(Event::GridDependencyWait(id))?;
        }
        Ok(())
    }

    /// The host issues launches as far as it can, and launches start as far as they can.
    fn host(&mut self) -> Result<(), Finding> {
        while let Some(launch) = self.setup.launches.get(self.next_launch) {
            let synchronised = self
                .next_launch
                .checked_sub(1)
                .map(|index| &self.setup.launches[index])
                .filter(|before| before.sync);
            if let Some(before) = synchronised {
                if !self.device_is_idle(before) {
                    break;
                }
                self.tell(Event::Host(HostEvent::SyncDevice(before.device)))?;
            }
            self.issue(launch)?;
        }
        for index in 0..self.next_launch {
            let state = &self.launches[index];
            if !state.started && self.can_start(index) {
                self.launches[index].started = true;
            }
        }
        self.start_ctas()
    }

    fn device_is_idle(&self, before: &Launch) -> bool {
        self.setup
            .launches
            .iter()
            .zip(&self.launches)
            .filter(|(launch, state)| state.issued && launch.device == before.device)
            .all(|(_, state)| state.done)
    }

    fn issue(&mut self, launch: &Launch) -> Result<(), Finding> {
        let index = self.next_launch;
        self.next_launch += 1;
        let stream = launch.stream;
        let mut after = Vec::new();
        for &event in &launch.waits {
            self.tell(Event::Host(HostEvent::Wait { event, stream }))?;
            after.extend(self.events.get(&event).copied().flatten());
        }
        self.tell(Event::Launch(event::Launch {
            id: LaunchId(index as u32),
            device: launch.device,
            stream,
            ctas: launch.ctas(),
            threads: launch.threads(),
            cluster: 1,
            programmatic: launch.programmatic,
        }))?;
        let predecessor = self.newest.insert(stream, index);
        self.launches[index] = LaunchState {
            after,
            predecessor,
            issued: true,
            ..LaunchState::default()
        };
        if let Some(event) = launch.record {
            self.tell(Event::Host(HostEvent::Record { event, stream }))?;
            self.events.insert(event, Some(index));
        }
        Ok(())
    }

    fn can_start(&self, index: usize) -> bool {
        let state = &self.launches[index];
        let ordered = state.predecessor.is_none_or(|before| {
            let state = &self.launches[before];
            let triggered = state.started && state.triggered == self.setup.launches[before].ctas();
            state.done || self.setup.launches[index].programmatic && triggered
        });
        ordered && state.after.iter().all(|&before| self.launches[before].done)
    }

    /// Starts CTAs while there is room.
    fn start_ctas(&mut self) -> Result<(), Finding> {
        for index in 0..self.next_launch {
            let threads = self.setup.launches[index].threads();
            while self.has_pending(index)
                && (self.resident_threads == 0
                    || self.resident_threads + threads <= self.setup.limits.resident_threads)
            {
                self.start_cta(index)?;
            }
        }
        Ok(())
    }

    fn has_pending(&self, index: usize) -> bool {
        let state = &self.launches[index];
        state.started && state.next_cta < self.setup.launches[index].ctas()
    }

    /// Starts one CTA though there is no room, since none of those that are there goes on.
    fn start_one_more(&mut self) -> Result<bool, Finding> {
        match (0..self.next_launch).find(|&index| self.has_pending(index)) {
            Some(index) => self.start_cta(index).map(|()| true),
            None => Ok(false),
        }
    }

    fn start_cta(&mut self, index: usize) -> Result<(), Finding> {
        let launch = &self.setup.launches[index];
        let position = self.launches[index].next_cta;
        self.launches[index].next_cta += 1;
        let [x, y, _] = launch.grid;
        let id = Cta {
            launch: LaunchId(index as u32),
            index: CtaIndex(position),
        };
        let multiprocessors = self.setup.limits.multiprocessors.max(1);
        let info = CtaInfo {
            id,
            ctaid: [position % x, position / x % y, position / x / y],
            sm: position % multiprocessors,
            multiprocessors,
            launch,
            shared_bytes: launch.shared_bytes(self.setup.program),
            data_base: self.env.memory.data_base(launch.device),
        };
        self.tell(Event::CtaStart {
            cta: id,
            sm: info.sm,
        })?;
        let entry = &self.setup.program.functions[launch.entry.0 as usize];
        let cta = Box::new(CtaState::new(info, index, entry));
        let number = self.free.pop().unwrap_or(self.ctas.len() as u32);
        if number as usize == self.ctas.len() {
            self.ctas.push(None);
        }
        self.ctas[number as usize] = Some(cta);
        self.resident_threads += launch.threads();
        self.scheduler.start(number, launch.threads());
        Ok(())
    }

    /// A thread can only repeat itself until memory changes. When that is so for every thread that
    /// is ready, nothing will ever happen.
    fn became_stuck(&mut self) -> Result<(), Finding> {
        if self.stuck_generation != self.env.generation {
            self.stuck_generation = self.env.generation;
            self.stuck = 0;
        }
        self.stuck += 1;
        if (self.stuck as usize) < self.scheduler.len() {
            return Ok(());
        }
        let stuck = self.ctas.iter().flatten().all(|cta| {
            cta.threads.iter().all(|thread| {
                thread.status != Status::Ready || thread.spin.is_stuck(self.env.generation)
            })
        });
        if stuck && !self.start_one_more()? {
            return Err(Finding::Deadlock(self.waiting()));
        }
        Ok(())
    }

    /// What every thread that is resident waits for.
    fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for cta in self.ctas.iter().flatten() {
            for thread in &cta.threads {
                let lanes = cta.warps[thread.id.warp() as usize];
                let wait = match thread.status {
                    Status::Exited => continue,
                    Status::Barrier(id) => match cta.barriers.get(id as usize) {
                        Some(barrier) => Wait::Barrier {
                            id,
                            arrived: barrier.arrived(),
                            needed: barrier.needed(cta),
                        },
                        None => Wait::Cluster {
                            arrived: cta.cluster.arrived(),
                            needed: cta.alive,
                        },
                    },
                    Status::Warp(mask) => Wait::Warp {
                        mask,
                        missing: mask & lanes.live & !lanes.waiting,
                    },
                    Status::Aligned => Wait::Warp {
                        mask: lanes.live,
                        missing: lanes.live & !lanes.aligned,
                    },
                    Status::Grid => Wait::GridDependency,
                    Status::Ready if thread.spin.is_polling() => {
                        polling(&thread.spin, &cta.shared.mbarriers)
                    }
                    Status::Ready => Wait::Running,
                };
                waiting.push(Waiting {
                    thread: thread.id,
                    site: site(thread.pc),
                    wait,
                });
            }
        }
        waiting
    }
}

fn polling(spin: &Spin, mbarriers: &Mbarriers) -> Wait {
    match spin.polled {
        Polled::Mbarrier => mbarriers.wait(spin.address),
        _ => None,
    }
    .unwrap_or(Wait::Polling {
        address: spin.address,
        shared: spin.polled != Polled::Global,
    })
}

fn blame<T>(cta: &CtaState<'_>, result: Blame<T>) -> Result<T, Finding> {
    result.map_err(|(index, stop)| finding(cta, index, stop))
}

fn finding(cta: &CtaState<'_>, index: u32, stop: Stop) -> Finding {
    match stop {
        Stop::Detector(error) => Finding::Detector(error),
        Stop::Fault(kind) => {
            let thread = &cta.threads[index as usize];
            Finding::Fault(Fault {
                thread: thread.id,
                site: site(thread.pc),
                kind,
            })
        }
    }
}
