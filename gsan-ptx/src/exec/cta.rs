//! A resident CTA: its threads, shared memory and barriers.

use crate::exec::barrier::{Barrier, ClusterBarrier};
use crate::exec::interpret::CtaInfo;
use crate::exec::shared::Shared;
use crate::exec::thread::{Status, ThreadState};
use crate::program::symbols::Function;
use gsan_core::ids::Thread;

/// How many barriers a CTA has.
pub(super) const BARRIERS: u32 = 16;

/// A resident CTA.
pub(super) struct CtaState<'a> {
    pub(super) info: CtaInfo<'a>,
    /// The position of its launch in the setup.
    pub(super) launch: usize,
    pub(super) shared: Shared,
    pub(super) threads: Vec<ThreadState>,
    pub(super) warps: Vec<Warp>,
    /// Threads that have not exited.
    pub(super) alive: u32,
    pub(super) barriers: [Barrier; BARRIERS as usize],
    pub(super) cluster: ClusterBarrier,
    /// It executed `griddepcontrol.launch_dependents`.
    pub(super) triggered: bool,
}

/// The lanes of a warp, by what they do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Warp {
    /// They have not exited.
    pub(super) live: u32,
    /// They are [`Status::Warp`].
    pub(super) waiting: u32,
    /// They are [`Status::Aligned`].
    pub(super) aligned: u32,
}

impl<'a> CtaState<'a> {
    pub(super) fn new(info: CtaInfo<'a>, launch: usize, entry: &Function) -> CtaState<'a> {
        let [x, y, _] = info.launch.block;
        let count = info.launch.threads();
        let threads = (0..count).map(|index| {
            let id = Thread {
                cta: info.id,
                index,
            };
            let tid = [index % x, index / x % y, index / x / y];
            ThreadState::new(
                id,
                tid,
                entry.code.start,
                entry.registers,
                entry.local_bytes,
            )
        });
        let mut warps = vec![Warp::default(); count.div_ceil(32) as usize];
        for index in 0..count {
            warps[index as usize / 32].live |= 1 << (index % 32);
        }
        CtaState {
            info,
            launch,
            shared: Shared::new(info.shared_bytes),
            threads: threads.collect(),
            warps,
            alive: count,
            barriers: Default::default(),
            cluster: ClusterBarrier::default(),
            triggered: false,
        }
    }

    /// Changes what a thread does.
    pub(super) fn set_status(&mut self, index: u32, status: Status) {
        let warp = &mut self.warps[index as usize / 32];
        let lane = 1 << (index % 32);
        warp.waiting &= !lane;
        warp.aligned &= !lane;
        match status {
            Status::Warp(_) => warp.waiting |= lane,
            Status::Aligned => warp.aligned |= lane,
            Status::Exited => warp.live &= !lane,
            Status::Ready | Status::Barrier(_) | Status::Grid => {}
        }
        self.threads[index as usize].status = status;
    }

    /// The position in the CTA of a lane of a warp.
    pub(super) fn position(warp: u32, lane: u32) -> u32 {
        warp * 32 + lane
    }
}

/// The lanes of a mask, ascending.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |lane| mask >> lane & 1 != 0)
}
