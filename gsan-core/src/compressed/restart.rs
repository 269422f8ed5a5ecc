//! When a group of processes may restart: marks, one per device rank.
//!
//! A rank is marked *idle* when its process knows that everything on it has finished, and *busy*
//! by its next launch. Whoever finds all of them idle turns them to *restarting*, zeroes the
//! memory, and makes them idle again. Nobody waits for work; a launch waits for the zeroing only.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const RESTARTING: u32 = 2;

/// The marks of all ranks; 0, which is busy, when made.
#[derive(Debug)]
pub struct RestartMarks<'m, M: Memory> {
    marks: &'m [M::U32],
}

/// The memory is being zeroed: try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restarting;

impl<'m, M: Memory> RestartMarks<'m, M> {
    /// The marks in this memory.
    pub const fn new(marks: &'m [M::U32]) -> Self {
        RestartMarks { marks }
    }

    /// Everything on `rank` has finished.
    pub fn idle(&self, rank: usize) {
        let _ = self.marks[rank].compare_exchange(BUSY, IDLE, Release, Relaxed);
    }

    /// Something is about to be launched on `rank`.
    ///
    /// # Errors
    /// Not now: somebody restarts.
    pub fn launch(&self, rank: usize) -> Result<(), Restarting> {
        match self.marks[rank].compare_exchange(IDLE, BUSY, Acquire, Acquire) {
            Ok(_) | Err(BUSY) => Ok(()),
            Err(_) => Err(Restarting),
        }
    }

    /// Runs `zero` while all ranks are idle and kept from launching. Returns whether it did.
    pub fn try_restart(&self, zero: impl FnOnce()) -> bool {
        // In ascending order, so that of two who try one gets the first.
        let claimed = self
            .marks
            .iter()
            .take_while(|mark| {
                mark.compare_exchange(IDLE, RESTARTING, AcqRel, Relaxed)
                    .is_ok()
            })
            .count();
        let all = claimed == self.marks.len();
        if all {
            zero();
        }
        for mark in &self.marks[..claimed] {
            mark.store(IDLE, M::order(Essential::RestartDone, Release));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::{Native, words};

    #[test]
    fn a_restart_needs_all_ranks_idle_and_keeps_them_from_launching() {
        let memory = words(2, 0);
        let marks = RestartMarks::<Native>::new(&memory);
        marks.idle(0);
        assert!(!marks.try_restart(|| panic!("rank 1 is busy")));
        marks.idle(1);
        assert!(marks.try_restart(|| assert_eq!(marks.launch(1), Err(Restarting))));
        assert_eq!(marks.launch(0), Ok(()));
        assert_eq!(marks.launch(0), Ok(()), "busy already");
        assert!(!marks.try_restart(|| panic!("rank 0 is busy")));
    }
}
