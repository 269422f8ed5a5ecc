//! Many schedules, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gsan_core::event::Detector;
use gsan_core::exact::{Exact, Unit};
use gsan_core::loss::Losses;
use gsan_core::race::Race;
use gsan_report::builder::Builder;
use gsan_report::model::{Replay, Report};

use super::Error;
use super::findings;
use super::prepare::Prepared;
use crate::exec::fault::Finding;
use crate::exec::schedule::{Schedule, Strategy};
use crate::exec::{Limits, Outcome};

/// Which schedules are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How turns are given.
    pub strategy: Strategy,
    /// How many schedules.
    pub schedules: u64,
    /// The seed of the first; each further one has the next number.
    pub seed: u64,
    /// Run all of them, even if one shows something.
    pub all: bool,
    /// How many run at once.
    pub threads: usize,
    /// When a run is given up.
    pub limits: Limits,
}

/// What the schedules showed.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The findings. They are those of the first schedule that shows any, in the order of their
    /// seeds, or those of all schedules: never a matter of how fast a core is.
    pub report: Report,
    /// What the kernels printed, in the schedule reported or else the first.
    pub printed: String,
}

/// What one schedule showed.
struct Run {
    /// Something that no suppression hides.
    shows_something: bool,
    races: Vec<(Race, u64)>,
    finding: Option<Finding>,
    accesses: u64,
    losses: Losses,
    printed: String,
}

/// Runs the schedules of `plan`; their findings go into `builder`. `replay` gives the command that runs the schedule of one seed;
/// `progress` is told how many schedules are done.
///
/// # Errors
/// Only for defects of this program.
pub fn explore(
    prepared: &Prepared,
    plan: &Plan,
    builder: Builder,
    replay: &dyn Fn(u64) -> String,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Explored, Error> {
    let setup = prepared.setup(plan.limits)?;
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(plan.schedules);
    let done = AtomicU64::new(0);
    let runs: Mutex<Vec<(u64, Run)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= end.load(Ordering::Relaxed) {
                return;
            }
            let mut detector = Exact::new(Unit::Thread);
            let schedule = Schedule {
                strategy: plan.strategy,
                seed: plan.seed.wrapping_add(index),
            };
            let outcome = setup.run(schedule, &mut detector);
            let shows_something = shows_something(&outcome, prepared, &builder);
            let run = Run {
                shows_something,
                races: outcome.races,
                finding: outcome.finding,
                accesses: outcome.accesses,
                losses: detector.losses(),
                // What others printed is not shown.
                printed: match index == 0 || shows_something && !plan.all {
                    true => outcome.printed,
                    false => String::new(),
                },
            };
            if run.shows_something && !plan.all {
                // Earlier ones still run: which one is reported does not depend on who is faster.
                end.fetch_min(index + 1, Ordering::Relaxed);
            }
            let mut runs = runs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            runs.push((index, run));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        let others = plan.threads.clamp(1, 1024) as u64 - 1;
        for _ in 0..others.min(plan.schedules.saturating_sub(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut runs = runs
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    runs.sort_by_key(|(index, _)| *index);
    runs.retain(|(index, _)| *index < end.load(Ordering::Relaxed));
    report(prepared, plan, builder, replay, runs)
}

/// Whether a run found something that no suppression hides: a benign race does not end the search
/// for others.
fn shows_something(outcome: &Outcome<'_>, prepared: &Prepared, builder: &Builder) -> bool {
    let counts = |race| !builder.hides_race(&prepared.names.race(race).0);
    let fault = |finding: &Finding| {
        // What cannot be told is a defect, which ends the search.
        let replay = Replay {
            seed: 0,
            command: String::new(),
        };
        findings::fault(finding.clone(), prepared, &replay)
            .map_or(true, |fault| !builder.hides_fault(&fault))
    };
    outcome.races.iter().any(|(race, _)| counts(race))
        || outcome.finding.as_ref().is_some_and(fault)
}

fn report(
    prepared: &Prepared,
    plan: &Plan,
    mut builder: Builder,
    replay: &dyn Fn(u64) -> String,
    runs: Vec<(u64, Run)>,
) -> Result<Explored, Error> {
    let mut printed = None;
    let mut accesses = 0u64;
    let schedules = runs.len() as u64;
    for (index, run) in runs {
        let seed = plan.seed.wrapping_add(index);
        let replay = Replay {
            seed,
            command: replay(seed),
        };
        accesses = accesses.saturating_add(run.accesses);
        builder.losses(&run.losses);
        let shows_something = run.shows_something;
        for (race, times) in &run.races {
            let (mut race, reason) = prepared.names.race(race);
            race.times = *times;
            race.replay = Some(replay.clone());
            builder.named_race(race, reason);
        }
        if let Some(finding) = run.finding {
            let fault = findings::fault(finding, prepared, &replay)?;
            builder.fault(fault);
        }
        if printed.is_none() || shows_something && !plan.all {
            printed = Some(run.printed);
        }
    }
    let summary = builder.summary();
    summary.schedules = schedules;
    summary.launches = schedules.saturating_mul(prepared.launches.len() as u64);
    summary.accesses = accesses;
    summary.covered_bytes = prepared.buffer_bytes;
    summary.seeds.insert(plan.seed);
    Ok(Explored {
        report: builder.finish(),
        printed: printed.unwrap_or_default(),
    })
}
