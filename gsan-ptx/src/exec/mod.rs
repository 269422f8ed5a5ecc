//! The interpreter: launches of a decoded program run under one schedule.
//!
//! A [`Setup`] is what is the same for all schedules: program, memory image, launches. Running it
//! under a [`Schedule`] gives an [`Outcome`]; the detector is told every event on the way.
//!
//! **Threads make progress one by one.** A turn of a thread is one operation that others can
//! notice (an access to global or shared memory, a barrier, a fence, ...) and the private
//! operations up to the next such one: no interleaving of private operations can be told from
//! another, so all that matter are reached.
//!
//! **Memory is sequentially consistent here.** What the PTX memory model allows beyond that shows
//! as races, not as values.

mod access;
mod barrier;
mod cta;
pub mod fault;
mod interpret;
pub mod launch;
mod local;
mod machine;
mod matrix;
mod mbarrier;
pub mod memory;
mod pages;
mod printf;
pub mod schedule;
mod shared;
mod thread;
mod warp;
mod watch;

use crate::program::Program;
use fault::Finding;
use gsan_core::event::Detector;
use gsan_core::race::Race;
use launch::{Launch, LaunchError};
use machine::Machine;
use memory::{Image, Memory};
use schedule::Schedule;

/// What does not change from schedule to schedule.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    program: &'a Program,
    image: &'a Image,
    launches: &'a [Launch],
    limits: Limits,
}

/// When a run is given up, and how large the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of all threads together.
    pub instructions: u64,
    /// Multiprocessors: CTA `i` of a launch runs on number `i` modulo this.
    pub multiprocessors: u32,
    /// Threads that are resident at once while they make progress. When all of them wait, further
    /// CTAs start, so that a grid whose CTAs wait for each other never stalls for this limit.
    pub resident_threads: u32,
    /// Bytes of local memory and registers of one thread, call frames included.
    pub stack_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            instructions: 200_000_000,
            multiprocessors: 132,
            resident_threads: 16_384,
            stack_bytes: 1 << 20,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// Why it ended early; `None` when every launch ran to its end.
    pub finding: Option<Finding>,
    /// The races that the detector found, each kind of pair of sites and launches once, in the
    /// order in which they were found, and how often each came. Threads of a CTA that store the
    /// same value to the same shared bytes with the same instruction are not among them.
    pub races: Vec<(Race, u64)>,
    /// Accesses that the detector was told of.
    pub accesses: u64,
    /// Instructions of all threads together.
    pub instructions: u64,
    /// Global memory at the end.
    pub memory: Memory<'a>,
    /// What the kernels printed.
    pub printed: String,
}

impl<'a> Setup<'a> {
    /// Checks launches against the program.
    ///
    /// # Errors
    /// The first launch that cannot run as it is.
    pub fn new(
        program: &'a Program,
        image: &'a Image,
        launches: &'a [Launch],
        limits: Limits,
    ) -> Result<Setup<'a>, LaunchError> {
        for (index, launch) in launches.iter().enumerate() {
            launch.check(index, program)?;
        }
        Ok(Setup {
            program,
            image,
            launches,
            limits,
        })
    }

    /// Runs the launches under one schedule, telling the detector. Races the detector finds are
    /// in the outcome; it must be new, or what it saw before counts too.
    pub fn run<D: Detector>(&self, schedule: Schedule, detector: &mut D) -> Outcome<'a> {
        Machine::new(*self, schedule, detector).run()
    }
}

#[cfg(test)]
mod tests;
