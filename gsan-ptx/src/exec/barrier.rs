//! CTA barriers (PTX ISA, "bar, barrier").
//!
//! An aligned operation is one of the whole warp: lanes wait for each other first
//! ([`super::warp`]), then arrive together.

use crate::exec::cta::{BARRIERS, CtaState};
use crate::exec::fault::FaultKind;
use crate::exec::interpret::{CtaInfo, Env, Stop, set, value};
use crate::exec::thread::{Status, ThreadState};
use crate::program::ir::{BarrierKind, BarrierReduction, Op};
use gsan_core::event::{Detector, Event, Meeting};

/// One of a CTA's barriers: its running phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Barrier {
    /// The count, as the first arrival gave it; `None` for all threads that have not exited.
    threads: Option<u32>,
    /// Threads that arrived, by their position in the CTA.
    arrived: Vec<u32>,
    /// What they count for, see [`arrive`].
    counted: u32,
    /// Those of them that wait.
    waiting: Vec<u32>,
    /// Predicates of `.red`, and how many of them are true.
    votes: u32,
    ayes: u32,
}

impl Barrier {
    /// How many threads have arrived.
    pub(super) fn arrived(&self) -> u32 {
        self.arrived.len() as u32
    }

    /// How many threads it waits for in all.
    pub(super) fn needed(&self, cta: &CtaState<'_>) -> u32 {
        self.threads.unwrap_or(cta.alive)
    }

    fn is_complete(&self, cta: &CtaState<'_>) -> bool {
        match self.threads {
            Some(needed) => self.counted >= needed,
            None => self.arrived() >= cta.alive,
        }
    }
}

/// The barrier of a CTA's cluster, which is the CTA alone (PTX ISA, "barrier.cluster").
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterBarrier {
    /// Phases that are complete.
    phase: u64,
    /// Threads that arrived in the running one.
    arrived: u32,
    /// Threads that wait for it to complete.
    waiting: Vec<u32>,
}

impl ClusterBarrier {
    /// How many threads have arrived.
    pub(super) fn arrived(&self) -> u32 {
        self.arrived
    }
}

/// A thread does `barrier.cluster.arrive`, `.wait`, or both.
pub(super) fn cluster<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &mut CtaState<'_>,
    index: u32,
    woken: &mut Vec<u32>,
) -> Result<(), Stop> {
    let thread = &mut cta.threads[index as usize];
    let Op::ClusterBarrier {
        arrives,
        waits,
        releases,
    } = env.program.code[thread.pc as usize].op
    else {
        return Ok(());
    };
    let at = cluster_meeting(&cta.info);
    if arrives {
        thread.cluster_phase = cta.cluster.phase + 1;
        cta.cluster.arrived += 1;
        env.detector.on(&Event::Arrive {
            thread: thread.id,
            at,
            releases,
        })?;
    }
    if waits && thread.cluster_phase > cta.cluster.phase {
        cta.cluster.waiting.push(index);
        cta.set_status(index, Status::Barrier(BARRIERS));
    } else {
        if waits {
            env.detector.on(&Event::Leave {
                thread: thread.id,
                at,
                acquires: true,
            })?;
        }
        thread.pc += 1;
        woken.push(index);
    }
    complete_cluster(env, cta, woken)
}

fn cluster_meeting(info: &CtaInfo<'_>) -> Meeting {
    Meeting::ClusterBarrier {
        launch: info.id.launch,
        first: info.id.index,
    }
}

/// Ends the running phase of the cluster's barrier if all have arrived.
fn complete_cluster<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &mut CtaState<'_>,
    woken: &mut Vec<u32>,
) -> Result<(), Stop> {
    if cta.cluster.arrived == 0 || cta.cluster.arrived < cta.alive {
        return Ok(());
    }
    let at = cluster_meeting(&cta.info);
    cta.cluster.phase += 1;
    cta.cluster.arrived = 0;
    env.detector.on(&Event::PhaseComplete(at))?;
    for index in std::mem::take(&mut cta.cluster.waiting) {
        let thread = &mut cta.threads[index as usize];
        env.detector.on(&Event::Leave {
            thread: thread.id,
            at,
            acquires: true,
        })?;
        thread.pc += 1;
        cta.set_status(index, Status::Ready);
        woken.push(index);
    }
    Ok(())
}

/// A thread that is at a barrier operation arrives. Threads that can go on are added to `woken`,
/// itself included. It counts for `weight` threads: an aligned operation counts for the 32 of a
/// whole warp, existing or not, when its last lane arrives.
pub(super) fn arrive<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &mut CtaState<'_>,
    index: u32,
    weight: u32,
    woken: &mut Vec<u32>,
) -> Result<(), Stop> {
    let thread = &cta.threads[index as usize];
    let Op::Barrier {
        kind, id, threads, ..
    } = env.program.code[thread.pc as usize].op
    else {
        return Ok(());
    };
    let read = |operand| value(env.program, &cta.info, thread, operand) & 0xffff_ffff;
    let number = read(id);
    let Some(id) = u32::try_from(number).ok().filter(|&id| id < BARRIERS) else {
        return Err(FaultKind::BadBarrier(number).into());
    };
    let threads = threads.map(read);
    check_count(cta, id, threads)?;
    let vote = match kind {
        BarrierKind::Reduce { predicate, .. } => {
            Some((read(predicate.operand) & 1 != 0) != predicate.negated)
        }
        BarrierKind::Sync | BarrierKind::Arrive => None,
    };
    env.detector.on(&Event::Arrive {
        thread: thread.id,
        at: meeting(cta, id),
        releases: true,
    })?;
    let barrier = &mut cta.barriers[id as usize];
    barrier.threads = threads.map(|threads| threads as u32);
    barrier.arrived.push(index);
    barrier.counted += weight;
    barrier.votes += u32::from(vote.is_some());
    barrier.ayes += u32::from(vote == Some(true));
    if kind == BarrierKind::Arrive {
        cta.threads[index as usize].pc += 1;
        cta.set_status(index, Status::Ready);
        woken.push(index);
    } else {
        barrier.waiting.push(index);
        cta.set_status(index, Status::Barrier(id));
    }
    complete(env, cta, id, woken)
}

fn meeting(cta: &CtaState<'_>, id: u32) -> Meeting {
    Meeting::CtaBarrier {
        cta: cta.info.id,
        id,
    }
}

/// Whether a count can be, and is that of the running phase.
fn check_count(cta: &CtaState<'_>, id: u32, threads: Option<u64>) -> Result<(), FaultKind> {
    let why = match threads {
        Some(0) => "it must be positive",
        Some(threads) if threads % 32 != 0 => "it must be a multiple of 32",
        _ => {
            let barrier = &cta.barriers[id as usize];
            if barrier.arrived.is_empty() || barrier.threads.map(u64::from) == threads {
                return Ok(());
            }
            "threads that arrived before gave another count"
        }
    };
    Err(FaultKind::BarrierThreads {
        id,
        threads: threads.unwrap_or_else(|| u64::from(cta.info.launch.threads())),
        why,
    })
}

/// Ends the running phase of a barrier if all have arrived.
fn complete<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &mut CtaState<'_>,
    id: u32,
    woken: &mut Vec<u32>,
) -> Result<(), Stop> {
    let barrier = &cta.barriers[id as usize];
    if barrier.arrived.is_empty() || !barrier.is_complete(cta) {
        return Ok(());
    }
    let barrier = std::mem::take(&mut cta.barriers[id as usize]);
    let meeting = meeting(cta, id);
    env.detector.on(&Event::PhaseComplete(meeting))?;
    for index in barrier.waiting {
        let thread = &mut cta.threads[index as usize];
        env.detector.on(&Event::Leave {
            thread: thread.id,
            at: meeting,
            acquires: true,
        })?;
        finish(env, thread, barrier.votes, barrier.ayes);
        cta.set_status(index, Status::Ready);
        woken.push(index);
    }
    Ok(())
}

/// Writes the result of `.red` and goes on to the next instruction.
fn finish<D>(env: &Env<'_, '_, D>, thread: &mut ThreadState, votes: u32, ayes: u32) {
    if let Op::Barrier {
        kind: BarrierKind::Reduce { op, dst, .. },
        ..
    } = env.program.code[thread.pc as usize].op
    {
        let result = match op {
            BarrierReduction::Count => ayes,
            BarrierReduction::And => u32::from(ayes == votes),
            BarrierReduction::Or => u32::from(ayes > 0),
        };
        set(thread, dst, u64::from(result));
    }
    thread.pc += 1;
}

/// A thread exited: barriers may no longer wait for it.
pub(super) fn exited<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &mut CtaState<'_>,
    woken: &mut Vec<u32>,
) -> Result<(), Stop> {
    for id in 0..BARRIERS {
        complete(env, cta, id, woken)?;
    }
    complete_cluster(env, cta, woken)
}
