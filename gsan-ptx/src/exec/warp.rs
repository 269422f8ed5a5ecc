//! Operations that lanes of a warp do together.
//!
//! A lane that comes to one waits until every lane of its mask that has not exited is at one of
//! the same kind with the same mask, be it the same instruction or another. Then all of them do
//! it at once.

use crate::alu::matrix::{RESULTS, SOURCES, Words};
use crate::exec::barrier;
use crate::exec::cta::{CtaState, lanes};
use crate::exec::fault::FaultKind;
use crate::exec::interpret::{Env, Stop, set, value};
use crate::exec::matrix;
use crate::exec::thread::Status;
use crate::program::ir::{Collective, Op, Shuffle, Vote};
use crate::program::operand::{Operands, Regs};
use gsan_core::event::{Detector, Event, Meeting};

/// Who made a run end, and why.
pub(super) type Blame<T> = Result<T, (u32, Stop)>;

/// How many turns a lane at `activemask` lets others have first, so that lanes on their way to the
/// same instruction come together as on a GPU.
const PATIENCE: u32 = 64;

/// The collective operation a lane is at.
#[derive(Clone, Copy)]
struct At {
    kind: Collective,
    dst: Regs,
    sources: Operands,
}

fn at<D>(env: &Env<'_, '_, D>, cta: &CtaState<'_>, index: u32) -> Option<At> {
    let pc = cta.threads[index as usize].pc;
    match env.program.code.get(pc as usize)?.op {
        Op::Collective { kind, dst, sources } => Some(At { kind, dst, sources }),
        _ => None,
    }
}

/// A thread came to a collective operation.
pub(super) fn collective<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    index: u32,
    woken: &mut Vec<u32>,
) -> Blame<()> {
    let Some(at) = at(env, cta, index) else {
        return Ok(());
    };
    if at.kind == Collective::ActiveMask {
        active_mask(env, cta, index, at.dst);
        woken.push(index);
        return Ok(());
    }
    let thread = &cta.threads[index as usize];
    let mask = match at.kind {
        Collective::Mma(_)
        | Collective::LoadMatrix(_)
        | Collective::StoreMatrix(_)
        | Collective::MoveMatrix => u32::MAX,
        _ => match env.program.operands_of(at.sources).last() {
            Some(&mask) => value(env.program, &cta.info, thread, mask) as u32,
            None => u32::MAX,
        },
    };
    let lane = thread.lane();
    if mask >> lane & 1 == 0 {
        return Err((index, FaultKind::NotAMember { lane, mask }.into()));
    }
    cta.set_status(index, Status::Warp(mask));
    settle(env, cta, index / 32, woken)
}

/// A thread came to a barrier.
pub(super) fn barrier<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    index: u32,
    woken: &mut Vec<u32>,
) -> Blame<()> {
    let pc = cta.threads[index as usize].pc;
    match env.program.code[pc as usize].op {
        Op::Barrier { aligned: true, .. } => {
            cta.set_status(index, Status::Aligned);
            settle(env, cta, index / 32, woken)
        }
        Op::ClusterBarrier { .. } => {
            barrier::cluster(env, cta, index, woken).map_err(|stop| (index, stop))
        }
        _ => barrier::arrive(env, cta, index, 1, woken).map_err(|stop| (index, stop)),
    }
}

/// Lets lanes of a warp do what they are all there for.
pub(super) fn settle<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    warp: u32,
    woken: &mut Vec<u32>,
) -> Blame<()> {
    let state = cta.warps[warp as usize];
    if state.live == 0 {
        return Ok(());
    }
    let position = |lane| CtaState::position(warp, lane);
    if state.aligned == state.live && converged(cta, warp, state.live) {
        let last = 31 - state.live.leading_zeros();
        for lane in lanes(state.live) {
            let index = position(lane);
            let weight = if lane == last { 32 } else { 0 };
            barrier::arrive(env, cta, index, weight, woken).map_err(|stop| (index, stop))?;
        }
        return Ok(());
    }
    for lane in lanes(state.waiting) {
        let Status::Warp(mask) = cta.threads[position(lane) as usize].status else {
            continue;
        };
        let members = mask & state.live;
        if members & state.waiting == members
            && let Some(at) = agreed(env, cta, warp, members, mask)
        {
            return execute(env, cta, warp, members, at, woken);
        }
    }
    let stuck = state.aligned | state.waiting;
    if stuck == state.live && state.aligned != 0 {
        let index = position(state.aligned.trailing_zeros());
        let thread = &cta.threads[index as usize];
        let id = match env.program.code[thread.pc as usize].op {
            Op::Barrier { id, .. } => value(env.program, &cta.info, thread, id) as u32,
            _ => 0,
        };
        return Err((index, FaultKind::BarrierDivergence { id }.into()));
    }
    Ok(())
}

/// Whether lanes are at the same instruction.
fn converged(cta: &CtaState<'_>, warp: u32, mask: u32) -> bool {
    let pc = |lane| cta.threads[CtaState::position(warp, lane) as usize].pc;
    let first = pc(mask.trailing_zeros());
    lanes(mask).all(|lane| pc(lane) == first)
}

/// The operation that waiting lanes are at, if it is the same for all.
fn agreed<D>(
    env: &Env<'_, '_, D>,
    cta: &CtaState<'_>,
    warp: u32,
    members: u32,
    mask: u32,
) -> Option<Collective> {
    let first = at(env, cta, CtaState::position(warp, members.trailing_zeros()))?.kind;
    lanes(members)
        .all(|lane| {
            let index = CtaState::position(warp, lane);
            cta.threads[index as usize].status == Status::Warp(mask)
                && at(env, cta, index).is_some_and(|at| at.kind == first)
        })
        .then_some(first)
}

/// `activemask`: lets other lanes come first for a while, then answers all that are there.
fn active_mask<D>(env: &Env<'_, '_, D>, cta: &mut CtaState<'_>, index: u32, dst: Regs) {
    let warp = index / 32;
    let live = cta.warps[warp as usize].live;
    let pc = cta.threads[index as usize].pc;
    let ready = |lane: u32| {
        let thread = &cta.threads[CtaState::position(warp, lane) as usize];
        thread.status == Status::Ready
    };
    // Lanes that different calls brought into one function are not together: on a GPU, lanes that
    // parted come together where their ways join.
    let calls = |index: u32| cta.threads[index as usize].frames.iter().map(|f| f.call);
    let here = |lane: u32| {
        let other = CtaState::position(warp, lane);
        cta.threads[other as usize].pc == pc && calls(other).eq(calls(index))
    };
    let others = lanes(live).any(|lane| ready(lane) && !here(lane));
    let patience = &cta.threads[index as usize].patience;
    if others && *patience < PATIENCE {
        cta.threads[index as usize].patience += 1;
        return;
    }
    let group = lanes(live)
        .filter(|&lane| ready(lane) && here(lane))
        .fold(0u32, |mask, lane| mask | 1 << lane);
    for lane in lanes(group) {
        let thread = &mut cta.threads[CtaState::position(warp, lane) as usize];
        thread.patience = 0;
        for &reg in env.program.registers_of(dst) {
            set(thread, reg, u64::from(group));
        }
        thread.pc += 1;
    }
}

/// Does a collective operation for the members, which all wait for it.
fn execute<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    warp: u32,
    members: u32,
    kind: Collective,
    woken: &mut Vec<u32>,
) -> Blame<()> {
    let mut sources: Words<SOURCES> = [[0; SOURCES]; 32];
    for lane in lanes(members) {
        let index = CtaState::position(warp, lane);
        let Some(at) = at(env, cta, index) else {
            continue;
        };
        let operands = env.program.operands_of(at.sources);
        for (word, &operand) in sources[lane as usize].iter_mut().zip(operands) {
            *word = value(
                env.program,
                &cta.info,
                &cta.threads[index as usize],
                operand,
            );
        }
    }
    let results = match kind {
        Collective::WarpBarrier => {
            warp_barrier(env, cta, warp, members)
                .map_err(|stop| (CtaState::position(warp, members.trailing_zeros()), stop))?;
            [[0; RESULTS]; 32]
        }
        Collective::LoadMatrix(shape) => matrix::load(env, cta, warp, shape, &sources)?,
        Collective::StoreMatrix(shape) => {
            matrix::store(env, cta, warp, shape, &sources)?;
            [[0; RESULTS]; 32]
        }
        Collective::Mma(mma) => mma.eval(&sources),
        Collective::MoveMatrix => crate::alu::matrix::transpose(&sources),
        Collective::Shuffle(mode) => shuffle(mode, members, &sources),
        Collective::Vote { vote, negated } => ballot(vote, negated, members, &sources),
        Collective::Match { all, wide } => matching(all, wide, members, &sources),
        Collective::Redux(rmw) => {
            let value = lanes(members)
                .map(|lane| sources[lane as usize][0])
                .reduce(|a, b| rmw.eval(4, a, b))
                .unwrap_or(0);
            [[value, 0, 0, 0]; 32]
        }
        Collective::Elect => {
            let leader = members.trailing_zeros();
            let mut results = [[u64::from(leader), 0, 0, 0]; 32];
            if let Some(elected) = results.get_mut(leader as usize) {
                elected[1] = 1;
            }
            results
        }
        Collective::ActiveMask => [[0; RESULTS]; 32],
    };
    for lane in lanes(members) {
        let index = CtaState::position(warp, lane);
        if let Some(at) = at(env, cta, index) {
            let thread = &mut cta.threads[index as usize];
            let registers = env.program.registers_of(at.dst);
            for (&reg, &word) in registers.iter().zip(&results[lane as usize]) {
                set(thread, reg, word);
            }
        }
        cta.threads[index as usize].pc += 1;
        cta.set_status(index, Status::Ready);
        woken.push(index);
    }
    Ok(())
}

fn warp_barrier<D: Detector>(
    env: &mut Env<'_, '_, D>,
    cta: &CtaState<'_>,
    warp: u32,
    members: u32,
) -> Result<(), Stop> {
    let at = Meeting::WarpBarrier {
        cta: cta.info.id,
        warp,
        mask: members,
    };
    let thread = |lane| cta.threads[CtaState::position(warp, lane) as usize].id;
    for lane in lanes(members) {
        env.detector.on(&Event::Arrive {
            thread: thread(lane),
            at,
            releases: true,
        })?;
    }
    env.detector.on(&Event::PhaseComplete(at))?;
    for lane in lanes(members) {
        env.detector.on(&Event::Leave {
            thread: thread(lane),
            at,
            acquires: true,
        })?;
    }
    Ok(())
}

/// `shfl.sync` (PTX ISA, "shfl.sync"): the clamp's low 5 bits bound the source lane, bits 8 to 12
/// cut the warp into segments. Reading a lane that does not take part gives 0.
fn shuffle(mode: Shuffle, members: u32, sources: &Words<SOURCES>) -> Words<RESULTS> {
    let mut results = [[0; RESULTS]; 32];
    for lane in lanes(members) {
        let [own, offset, clamp, ..] = sources[lane as usize];
        let (offset, clamp) = ((offset & 31) as u32, clamp as u32);
        let segment = clamp >> 8 & 31;
        let highest = (lane & segment) | (clamp & 31 & !segment);
        let lowest = lane & segment;
        let (source, valid) = match mode {
            Shuffle::Up => {
                let source = lane.wrapping_sub(offset);
                (source, source as i32 >= highest as i32)
            }
            Shuffle::Down => (lane + offset, lane + offset <= highest),
            Shuffle::Butterfly => (lane ^ offset, lane ^ offset <= highest),
            Shuffle::Index => {
                let source = lowest | (offset & !segment);
                (source, source <= highest)
            }
        };
        let value = if !valid {
            own
        } else if members >> source & 1 != 0 {
            sources[source as usize][0]
        } else {
            0
        };
        results[lane as usize] = [value & 0xffff_ffff, u64::from(valid), 0, 0];
    }
    results
}

fn ballot(vote: Vote, negated: bool, members: u32, sources: &Words<SOURCES>) -> Words<RESULTS> {
    let ayes = lanes(members)
        .filter(|&lane| (sources[lane as usize][0] & 1 != 0) != negated)
        .fold(0u32, |mask, lane| mask | 1 << lane);
    let result = match vote {
        Vote::All => u32::from(ayes == members),
        Vote::Any => u32::from(ayes != 0),
        Vote::Uniform => u32::from(ayes == 0 || ayes == members),
        Vote::Ballot => ayes,
    };
    [[u64::from(result), 0, 0, 0]; 32]
}

fn matching(all: bool, wide: bool, members: u32, sources: &Words<SOURCES>) -> Words<RESULTS> {
    let bits = if wide { u64::MAX } else { 0xffff_ffff };
    let key = |lane: u32| sources[lane as usize][0] & bits;
    let mut results = [[0; RESULTS]; 32];
    for lane in lanes(members) {
        let equal = lanes(members)
            .filter(|&other| key(other) == key(lane))
            .fold(0u32, |mask, other| mask | 1 << other);
        let alike = equal == members;
        let mask = if all && !alike { 0 } else { equal };
        results[lane as usize] = [u64::from(mask), u64::from(alike), 0, 0];
    }
    results
}
