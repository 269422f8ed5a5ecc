//! Clusters: barriers of their CTAs and mbarriers, through device code, through the core, and through
//! the exact detector.

use std::collections::BTreeSet;

use gsan_core::address::Records;
use gsan_core::event::{Access, Action, Detector, Event, Launch, Meeting, Range, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, CtaIndex, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::layout::ClusterScratch;
use gsan_core::loss::Loss;
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::races;
use proptest::prelude::*;

use crate::synchronisation::{
    FILE, REAL, ROOMY, Room, Twin, cases_or, cta, event_of, order, topology,
};

/// The scratch memory: a cluster barrier, then the table of mbarriers.
const SCRATCH: u64 = FILE + (1 << 12);
const TABLE: u64 = SCRATCH + size_of::<ClusterScratch>() as u64;
/// Where every CTA has its mbarrier.
const OFFSET: u32 = 0x1230;
/// Flags lie before the data.
const DATA: u64 = 0x100;

#[derive(Clone, Debug)]
enum Does {
    Access {
        write: bool,
        granule: u64,
    },
    /// A release or an acquire of a flag.
    Flag {
        acquires: bool,
        flag: u64,
    },
    /// All CTAs of the cluster meet, in an order that follows from the seed.
    Meet {
        seed: u32,
    },
    /// Arrivals at the mbarriers of some CTAs.
    Arrive {
        recipients: u32,
        publishes: bool,
    },
    /// A wait for the newest complete phase of the mbarrier of a CTA.
    Wait {
        owner: u32,
    },
}

#[derive(Clone, Debug)]
struct Step {
    cta: u32,
    does: Does,
}

/// The hardware's count of an mbarrier.
#[derive(Clone, Copy, Default)]
struct Mbarrier {
    phase: u32,
    arrived: u32,
}

/// How the cluster is.
#[derive(Clone, Copy, Debug)]
struct Shape {
    ctas: u32,
    /// How many arrivals a phase needs.
    expected: u32,
    /// How many more of them nobody tells of, at the end of each phase.
    silent: u32,
    /// How many mbarriers the table has room for.
    capacity: u32,
}

/// A cluster, and one CTA outside of it, the last one.
struct Clusters<const S: usize> {
    twin: Twin<S>,
    events: Vec<Event>,
    line: u32,
    shape: Shape,
    mbarriers: Vec<Mbarrier>,
    /// Whether somebody waited while arrivals for a later phase were there.
    early: bool,
}

impl<const S: usize> Clusters<S> {
    fn new(records: Records, shape: Shape, room: Room, lanes: u32) -> Self {
        let mut clusters = Clusters {
            twin: Twin::with_lanes(records, topology(1, 1), room, lanes),
            events: Vec::new(),
            line: 0,
            shape,
            mbarriers: vec![Mbarrier::default(); shape.ctas as usize],
            early: false,
        };
        clusters.tell(Event::Launch(Launch {
            id: LaunchId(0),
            device: DeviceRank(0),
            stream: StreamId(0),
            ctas: shape.ctas + 1,
            threads: 32,
            cluster: 1,
            programmatic: false,
        }));
        for sm in 0..=shape.ctas {
            let cta = cta(0, sm);
            clusters.tell(Event::CtaStart { cta, sm });
        }
        let driver = &mut clusters.twin.driver;
        driver.mbarrier_table_init(TABLE, shape.capacity);
        for owner in 0..shape.ctas {
            driver.mbarrier_init(TABLE, (OFFSET, owner), shape.expected + shape.silent);
        }
        clusters
    }

    fn tell(&mut self, event: Event) {
        self.twin.tell(&event);
        self.events.push(event);
    }

    /// Told to the core and the exact detector; the device is told otherwise.
    fn core(&mut self, event: Event) {
        self.twin.core.on(&event).unwrap();
        self.events.push(event);
    }

    const fn mbarrier(owner: u32) -> Meeting {
        Meeting::Mbarrier {
            owner: Cta {
                launch: LaunchId(0),
                index: CtaIndex(owner),
            },
            offset: OFFSET as u64,
        }
    }

    fn places(&self) -> Vec<(u32, u64)> {
        (0..self.shape.ctas).map(|sm| (sm, sm.into())).collect()
    }

    fn access(&mut self, thread: Thread, address: u64, action: Action, order: Order) -> Access {
        self.line += 1;
        Access {
            thread,
            range: Range {
                space: Space::Global,
                address: REAL + address,
                bytes: 4,
            },
            action,
            order,
            scope: Scope::Gpu,
            site: SiteId(self.line),
        }
    }

    fn step(&mut self, step: &Step) {
        let outside = step.cta == self.shape.ctas;
        let thread = Thread {
            cta: cta(0, step.cta),
            index: 0,
        };
        match step.does {
            Does::Access { write, granule } => {
                let action = if write { Action::Write } else { Action::Read };
                let access = self.access(thread, DATA + 8 * granule, action, Order::Weak);
                self.tell(Event::Access(access));
            }
            Does::Flag { acquires, flag } => {
                let (action, by) = match acquires {
                    true => (Action::Read, Order::Acquire),
                    false => (Action::Write, Order::Release),
                };
                let access = self.access(thread, 8 * flag, action, by);
                let tried = match acquires {
                    true => Action::Rmw,
                    false => Action::Write,
                };
                let begin = Access {
                    action: tried,
                    ..access
                };
                self.tell(Event::AtomicBegin(begin));
                self.events.push(Event::Access(access));
                self.tell(Event::AtomicEnd(access));
                assert_eq!(event_of(thread), event_of(begin.thread));
                assert_eq!(order(&access), order(&begin));
            }
            Does::Meet { seed } => {
                let globals = self.twin.at(thread);
                let places = self.places();
                let driver = &mut self.twin.driver;
                driver.cluster_sync(globals, SCRATCH, (1, seed), &places);
                let at = Meeting::ClusterBarrier {
                    launch: LaunchId(0),
                    first: CtaIndex(0),
                };
                let all = |index| Thread::new(LaunchId(0), index, 0);
                for rank in 0..self.shape.ctas {
                    self.core(Event::Arrive {
                        thread: all(rank),
                        at,
                        releases: true,
                    });
                }
                self.core(Event::PhaseComplete(at));
                for rank in 0..self.shape.ctas {
                    self.core(Event::Leave {
                        thread: all(rank),
                        at,
                        acquires: true,
                    });
                }
            }
            Does::Arrive { .. } | Does::Wait { .. } if outside => {}
            Does::Arrive {
                recipients,
                publishes,
            } => {
                let globals = self.twin.at(thread);
                let recipients = recipients & ((1 << self.shape.ctas) - 1);
                let arrival = (1, publishes);
                let driver = &mut self.twin.driver;
                driver.mbarrier_arrive(globals, TABLE, (OFFSET, recipients), arrival);
                for owner in (0..self.shape.ctas).filter(|owner| recipients >> owner & 1 == 1) {
                    let at = Self::mbarrier(owner);
                    self.core(Event::Arrive {
                        thread,
                        at,
                        releases: publishes,
                    });
                    let mbarrier = &mut self.mbarriers[owner as usize];
                    mbarrier.arrived += 1;
                    if mbarrier.arrived == self.shape.expected {
                        mbarrier.arrived = 0;
                        mbarrier.phase += 1;
                        self.core(Event::PhaseComplete(at));
                    }
                }
            }
            Does::Wait { owner } => {
                let owner = owner % self.shape.ctas;
                let Mbarrier { phase, arrived } = self.mbarriers[owner as usize];
                self.early |= arrived != 0;
                let globals = self.twin.at(thread);
                // Before any phase is complete, the one of parity 1 is.
                let parity = phase.wrapping_sub(1) & 1;
                let driver = &mut self.twin.driver;
                driver.mbarrier_wait(globals, TABLE, (OFFSET, owner), parity);
                self.core(Event::Leave {
                    thread,
                    at: Self::mbarrier(owner),
                    acquires: true,
                });
            }
        }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        for index in 0..=self.shape.ctas {
            self.tell(Event::CtaExit(cta(0, index)));
        }
    }
}

/// The device's verdicts are the core's, unless arrivals for a later phase, arrivals that nobody tells
/// of, or a want of room made it take more for ordered; and it tells nothing that the exact detector
/// does not.
fn agree<const S: usize>(
    records: Records,
    shape: Shape,
    (room, exactly): (Room, bool),
    lanes: u32,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut clusters = Clusters::<S>::new(records, shape, room, lanes);
    clusters.run(steps);
    let truth: BTreeSet<_> = races(&mut Exact::new(Unit::Cta), &clusters.events)
        .iter()
        .map(|race| [race.earlier.site.0, race.later.site.0])
        .collect();
    let early = clusters.early;
    let [device, core] = clusters.twin.cells_and_races();
    let [device, core] = [device, core].map(|(_, races)| -> BTreeSet<[u32; 2]> {
        let lines = races
            .iter()
            .map(|((_, _, earlier, later), ..)| [*earlier, *later]);
        lines.collect()
    });
    prop_assert!(device.is_subset(&truth), "{device:?}, exactly {truth:?}");
    if exactly && !early && shape.silent == 0 && shape.capacity >= shape.ctas {
        prop_assert_eq!(device, core);
    }
    Ok(())
}

fn step(ctas: u32, mbarriers: bool) -> impl Strategy<Value = Step> {
    let access =
        (any::<bool>(), 0u64..3).prop_map(|(write, granule)| Does::Access { write, granule });
    let flag = (any::<bool>(), 0u64..2).prop_map(|(acquires, flag)| Does::Flag { acquires, flag });
    let meet = any::<u32>().prop_map(|seed| Does::Meet { seed });
    let arrive = (1u32..=0xffff, prop::bool::weighted(0.8)).prop_map(|(recipients, publishes)| {
        Does::Arrive {
            recipients,
            publishes,
        }
    });
    let wait = (0u32..16).prop_map(|owner| Does::Wait { owner });
    let weight = if mbarriers { 3 } else { 0 };
    let does = prop_oneof![
        5 => access, 2 => flag, 2 => meet, weight => arrive, weight => wait,
    ];
    (0..=ctas, does).prop_map(|(cta, does)| Step { cta, does })
}

fn shape() -> impl Strategy<Value = Shape> {
    let ctas = prop_oneof![6 => 2u32..5, 1 => Just(16u32)];
    (
        ctas,
        1u32..4,
        prop_oneof![2 => Just(0u32), 1 => 1u32..3],
        0u32..17,
    )
        .prop_map(|(ctas, expected, silent, capacity)| Shape {
            ctas,
            expected,
            silent,
            capacity: if capacity > 12 { capacity - 13 } else { 16 },
        })
}

fn case(mbarriers: bool) -> impl Strategy<Value = (Shape, Vec<Step>)> {
    shape().prop_flat_map(move |shape| {
        let steps = prop::collection::vec(step(shape.ctas, mbarriers), 1..30);
        (Just(shape), steps)
    })
}

proptest! {
    #![proptest_config(cases_or(60))]

    /// Host threads are the CTAs.
    #[test]
    fn ctas_that_meet_are_ordered_as_the_core_says((shape, steps) in case(false)) {
        agree::<4>(Records::Four, shape, (ROOMY, true), 1, &steps)?;
        agree::<2>(Records::Two, shape, (ROOMY, true), 1, &steps)?;
    }

    #[test]
    fn mbarriers_order_what_the_core_says((shape, steps) in case(true)) {
        agree::<4>(Records::Four, shape, (ROOMY, true), 1, &steps)?;
        agree::<2>(Records::Two, shape, (ROOMY, true), 1, &steps)?;
    }

    /// Warps whose accesses are mixed at random.
    #[test]
    fn warps_of_a_cluster_agree_in_any_order((shape, steps) in case(true)) {
        agree::<4>(Records::Four, shape, (ROOMY, true), 32, &steps)?;
    }

    #[test]
    fn with_room_for_nothing_no_race_is_invented((shape, steps) in case(true), room in crate::synchronisation::tight()) {
        agree::<4>(Records::Four, shape, (room, false), 32, &steps)?;
        agree::<2>(Records::Two, shape, (room, false), 1, &steps)?;
    }
}

const PAIR: Shape = Shape {
    ctas: 2,
    expected: 1,
    silent: 0,
    capacity: 2,
};

fn write(cta: u32, granule: u64) -> Step {
    Step {
        cta,
        does: Does::Access {
            write: true,
            granule,
        },
    }
}

fn release(cta: u32, flag: u64) -> Step {
    let acquires = false;
    Step {
        cta,
        does: Does::Flag { acquires, flag },
    }
}

fn arrive(cta: u32, owner: u32, publishes: bool) -> Step {
    let recipients = 1 << owner;
    Step {
        cta,
        does: Does::Arrive {
            recipients,
            publishes,
        },
    }
}

fn wait(cta: u32, owner: u32) -> Step {
    Step {
        cta,
        does: Does::Wait { owner },
    }
}

/// How many races there are, and how often barriers disagreed with the hardware.
fn found(shape: Shape, lanes: u32, steps: &[Step]) -> [u64; 2] {
    let mut clusters = Clusters::<4>::new(Records::Four, shape, ROOMY, lanes);
    clusters.run(steps);
    let mismatches = clusters.twin.loss(Loss::BarrierMismatch);
    let ([device, _], mismatches) = clusters.twin.cells_races_and(mismatches);
    [device.1.len() as u64, mismatches]
}

#[test]
fn an_arrival_that_publishes_orders_what_came_before_it_and_no_other_does() {
    for lanes in [1, 32] {
        let handed = |publishes| {
            [
                write(0, 0),
                arrive(0, 1, publishes),
                wait(1, 1),
                write(1, 0),
            ]
        };
        assert_eq!(found(PAIR, lanes, &handed(true)), [0, 0]);
        assert_eq!(found(PAIR, lanes, &handed(false)), [1, 0]);
        let after = [arrive(0, 1, true), write(0, 0), wait(1, 1), write(1, 0)];
        assert_eq!(found(PAIR, lanes, &after), [1, 0]);
        let elsewhere = [write(0, 0), arrive(0, 0, true), wait(1, 1), write(1, 0)];
        assert_eq!(found(PAIR, lanes, &elsewhere)[0], 1);
    }
}

#[test]
fn a_count_that_lags_behind_is_told_and_orders_as_much() {
    let steps = [write(0, 0), arrive(0, 1, true), wait(1, 1), write(1, 0)];
    let shape = Shape { silent: 2, ..PAIR };
    assert_eq!(found(shape, 1, &steps), [0, 1]);
}

#[test]
fn a_barrier_for_which_the_table_has_no_room_is_told_and_orders_everything_before() {
    for capacity in [0, 1] {
        let shape = Shape { capacity, ..PAIR };
        // The second CTA's barrier comes second.
        let steps = [
            write(0, 0),
            arrive(0, 1, true),
            wait(1, 1),
            write(1, 0),
            release(0, 0),
            write(0, 1),
            write(1, 1),
        ];
        // One for the arrival, one for the wait. What comes after the wait, at another epoch, is not
        // ordered.
        assert_eq!(found(shape, 1, &steps), [1, 2], "{capacity}");
    }
}

#[test]
fn an_mbarrier_initialised_again_starts_afresh() {
    let mut clusters = Clusters::<4>::new(Records::Four, PAIR, ROOMY, 1);
    for step in [write(0, 0), arrive(0, 1, true)] {
        clusters.step(&step);
    }
    let driver = &mut clusters.twin.driver;
    driver.mbarrier_init(TABLE, (OFFSET, 1), 1);
    clusters.mbarriers[1] = Mbarrier::default();
    // The phase before phase 0 is complete, and nobody arrived in it.
    clusters.run(&[wait(1, 1), write(1, 0)]);
    let mismatches = clusters.twin.loss(Loss::BarrierMismatch);
    let ([device, _], mismatches) = clusters.twin.cells_races_and(mismatches);
    assert_eq!((device.1.len(), mismatches), (1, 0));
}

/// A cluster of 16 meets 100,000 times, or hands a granule around as often: no race, no count that
/// disagrees.
#[test]
fn a_hundred_thousand_phases_are_clean() {
    let times = if std::env::var_os("GSAN_LONG").is_some() {
        100_000
    } else {
        500
    };
    for ctas in [2, 16] {
        let shape = Shape {
            ctas,
            capacity: 2 * ctas,
            ..PAIR
        };
        let mut clusters = Clusters::<4>::new(Records::Four, shape, ROOMY, 32);
        let places = clusters.places();
        let thread = Thread::new(LaunchId(0), 0, 0);
        let globals = clusters.twin.at(thread);
        let data = REAL + DATA;
        clusters.twin.touches(data);
        let driver = &mut clusters.twin.driver;
        driver
            .ring_of_mbarriers(
                globals,
                TABLE,
                (data, FILE),
                times / u64::from(ctas),
                &places,
            )
            .cluster_sync(globals, SCRATCH, (times, 0), &places);
        // The core was told nothing of this.
        let mismatches = clusters.twin.loss(Loss::BarrierMismatch);
        let (races, mismatches) = clusters.twin.races_and(mismatches);
        assert_eq!((races, mismatches), (0, 0));
    }
}
