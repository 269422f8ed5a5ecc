//! Warps of 32 lanes, as fibres: what their lanes do together is what the core does one by one.

use std::collections::BTreeSet;

use gsan_core::address::Records;
use gsan_core::event::{Access, Action, Detector, Event, Launch, Range, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::race::Who;
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::races;
use proptest::prelude::*;

use crate::driver::lanes;
use crate::synchronisation::{FILE, REAL, ROOMY, Twin, cases_or, cta, event_of, order, topology};

/// The addresses of a warp's elements, by lane.
type Addresses = [Option<u64>; 32];

/// What a warp does.
#[derive(Clone, Debug)]
enum Does {
    /// Loads or stores the elements.
    Tensor { write: bool },
    /// An atomic on each element.
    Atomic {
        action: Action,
        order: Order,
        scope: Scope,
    },
}

#[derive(Clone, Debug)]
struct Step {
    cta: u32,
    does: Does,
    bytes: u32,
    addresses: Addresses,
}

/// Three CTAs of one launch, each with one warp.
struct Warps<const S: usize> {
    twin: Twin<S>,
    /// What happened, for the exact detector.
    events: Vec<Event>,
    line: u32,
}

impl<const S: usize> Warps<S> {
    fn new(records: Records, splits: Option<u32>) -> Self {
        let mut warps = Warps {
            twin: Twin::with_lanes(records, topology(1, 1), ROOMY, 32),
            events: Vec::new(),
            line: 0,
        };
        if let Some(seed) = splits {
            warps.twin.driver.split_warps(seed);
        }
        warps.tell(Event::Launch(Launch {
            id: LaunchId(0),
            device: DeviceRank(0),
            stream: StreamId(0),
            ctas: 3,
            threads: 32,
            cluster: 1,
            programmatic: false,
        }));
        for sm in 0..3 {
            warps.tell(Event::CtaStart {
                cta: cta(0, sm),
                sm,
            });
        }
        warps
    }

    fn tell(&mut self, event: Event) {
        self.twin.tell(&event);
        self.events.push(event);
    }

    fn core(&mut self, event: Event) {
        self.twin.core.on(&event).unwrap();
        self.events.push(event);
    }

    fn step(&mut self, step: &Step) {
        self.line += 1;
        let cta = cta(0, step.cta);
        let globals = self.twin.at(Thread { cta, index: 0 });
        let (line, addresses) = (self.line, &step.addresses);
        for &address in addresses.iter().flatten() {
            self.twin.touches(address);
        }
        let access = |lane: usize, address, bytes, action, order, scope| Access {
            thread: Thread {
                cta,
                index: lane as u32,
            },
            range: Range {
                space: Space::Global,
                address,
                bytes,
            },
            action,
            order,
            scope,
            site: SiteId(line),
        };
        match step.does {
            Does::Tensor { write } => {
                self.twin
                    .driver
                    .warp_tensor(globals, write, (FILE, line), step.bytes, addresses);
                let action = if write { Action::Write } else { Action::Read };
                for (first, bytes) in runs(addresses, step.bytes) {
                    let access = access(0, first, bytes, action, Order::Weak, Scope::Cta);
                    self.core(Event::Access(access));
                }
            }
            Does::Atomic {
                action,
                order: by,
                scope,
            } => {
                let all: Vec<Access> = addresses
                    .iter()
                    .enumerate()
                    .filter_map(|(lane, &address)| {
                        Some(access(lane, address?, step.bytes, action, by, scope))
                    })
                    .collect();
                let Some(first) = all.first() else { return };
                let number = event_of(Thread { cta, index: 0 });
                let (sem, mask) = (order(first), lanes(addresses));
                let wrote = if action.writes() { mask } else { 0 };
                let is_rmw = matches!(action, Action::Rmw | Action::FailedRmw);
                self.twin
                    .driver
                    .warp_begin(
                        number,
                        globals,
                        (step.bytes, action.reads()),
                        sem,
                        (FILE, line),
                        addresses,
                    )
                    .warp_end(number, (mask, wrote, is_rmw), sem, (FILE, line));
                let tried = match action {
                    Action::Write => Action::Write,
                    _ => Action::Rmw,
                };
                for &access in &all {
                    let begin = Access {
                        action: tried,
                        ..access
                    };
                    self.core(Event::AtomicBegin(begin));
                }
                for &access in &all {
                    self.events.push(Event::Access(access));
                }
                for &access in &all {
                    self.core(Event::AtomicEnd(access));
                }
            }
        }
    }

    fn exit(&mut self) {
        for index in 0..3 {
            self.tell(Event::CtaExit(cta(0, index)));
        }
    }
}

/// The bytes of the elements: consecutive ones together.
fn runs(addresses: &Addresses, bytes: u32) -> Vec<(u64, u32)> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    for &address in addresses.iter().flatten() {
        match runs.last_mut() {
            Some((first, length)) if *first + u64::from(*length) == address => *length += bytes,
            _ => runs.push((address, bytes)),
        }
    }
    runs
}

/// Consecutive elements, of lanes `from` to before `to`.
fn consecutive(offset: u64, bytes: u32, from: usize, to: usize) -> Addresses {
    let mut addresses = [None; 32];
    for (lane, address) in addresses.iter_mut().enumerate().take(to).skip(from) {
        *address = Some(REAL + offset + lane as u64 * u64::from(bytes));
    }
    addresses
}

/// One element for all lanes.
fn same(offset: u64, mask: u32) -> Addresses {
    core::array::from_fn(|lane| (mask >> lane & 1 == 1).then_some(REAL + offset))
}

/// A flag and a counter lie before the data.
const DATA: u64 = 0x100;

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![3 => Just(Scope::Gpu), 1 => Just(Scope::Sys), 1 => Just(Scope::Cta)]
}

/// Atomics that acquire nothing.
fn silent() -> impl Strategy<Value = (Action, Order)> {
    use Order::{Relaxed, Release};
    prop_oneof![
        Just((Action::Read, Relaxed)),
        Just((Action::FailedRmw, Relaxed)),
        prop::sample::select(vec![Relaxed, Release]).prop_map(|order| (Action::Write, order)),
        prop::sample::select(vec![Relaxed, Release]).prop_map(|order| (Action::Rmw, order)),
    ]
}

fn action() -> impl Strategy<Value = (Action, Order)> {
    use Order::{AcqRel, Acquire, Relaxed, Release};
    prop_oneof![
        prop::sample::select(vec![Relaxed, Acquire]).prop_map(|order| (Action::Read, order)),
        prop::sample::select(vec![Relaxed, Release]).prop_map(|order| (Action::Write, order)),
        prop::sample::select(vec![Relaxed, Acquire, Release, AcqRel])
            .prop_map(|order| (Action::Rmw, order)),
        prop::sample::select(vec![Relaxed, AcqRel]).prop_map(|order| (Action::FailedRmw, order)),
    ]
}

fn tensor() -> impl Strategy<Value = Step> {
    let lanes = (0usize..32, 1usize..=32);
    let bytes = prop::sample::select(vec![1u32, 2, 4, 8]);
    (0u32..3, any::<bool>(), bytes, 0u64..4, lanes).prop_map(
        |(cta, write, bytes, block, (from, count))| Step {
            cta,
            does: Does::Tensor { write },
            bytes,
            addresses: consecutive(DATA + 64 * block, bytes, from, (from + count).min(32)),
        },
    )
}

/// All lanes of `mask` on one word.
fn counter(action: impl Strategy<Value = (Action, Order)>) -> impl Strategy<Value = Step> {
    let mask = prop_oneof![Just(1u32), Just(u32::MAX), any::<u32>()];
    (0u32..3, action, scope(), 0u64..4, mask).prop_map(
        |(cta, (action, order), scope, word, mask)| Step {
            cta,
            does: Does::Atomic {
                action,
                order,
                scope,
            },
            bytes: 4,
            addresses: same(4 * word, mask),
        },
    )
}

/// An atomic on each of consecutive elements.
fn elements(orders: Vec<Order>) -> impl Strategy<Value = Step> {
    let order = prop::sample::select(orders);
    let lanes = (0usize..32, 1usize..=32);
    let bytes = prop::sample::select(vec![2u32, 4, 8]);
    (0u32..3, order, scope(), bytes, 0u64..4, lanes).prop_map(
        |(cta, order, scope, bytes, block, (from, count))| Step {
            cta,
            does: Does::Atomic {
                action: Action::Rmw,
                order,
                scope,
            },
            bytes,
            addresses: consecutive(DATA + 64 * block, bytes, from, (from + count).min(32)),
        },
    )
}

/// Runs the steps, and says the cells and the races as the device and as the core have them.
fn together<const S: usize>(records: Records, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut warps = Warps::<S>::new(records, None);
    for step in steps {
        warps.step(step);
    }
    warps.exit();
    let [device, core] = warps.twin.cells_and_races();
    prop_assert_eq!(device.0, core.0);
    let told = |races: &[(_, u64, Cta)]| races.iter().map(|race| race.0).collect::<BTreeSet<_>>();
    prop_assert_eq!(told(&device.1), told(&core.1));
    Ok(())
}

/// Whatever the device tells, the exact detector tells, too.
fn never_invents<const S: usize>(
    records: Records,
    splits: Option<u32>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut warps = Warps::<S>::new(records, splits);
    for step in steps {
        warps.step(step);
    }
    warps.exit();
    let truth = races(&mut Exact::new(Unit::Cta), &warps.events);
    let [device, _] = warps.twin.cells_and_races();
    for ((_, _, earlier, later), granule, cta) in device.1 {
        let known = truth.iter().any(|race| {
            let granules = race.address / 8 * 8..race.address + u64::from(race.bytes);
            let sites = [race.earlier.site.0, race.later.site.0];
            let who = [race.earlier.who, race.later.who];
            granules.contains(&granule)
                && (who.contains(&Who::Cta(cta))
                    || sites == [earlier, later]
                    || sites == [later, earlier])
        });
        prop_assert!(known, "{earlier} {later} {granule:#x}\n{truth:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases_or(60))]

    /// Without acquires: when something is learned, the order of the lanes matters.
    #[test]
    fn lanes_together_do_what_they_do_one_by_one(
        steps in prop::collection::vec(
            prop_oneof![3 => tensor(), 3 => counter(silent()), 2 => elements(vec![Order::Relaxed, Order::Release])],
            1..16,
        ),
    ) {
        together::<4>(Records::Four, &steps)?;
        together::<2>(Records::Two, &steps)?;
    }

    #[test]
    fn however_a_warp_is_split_no_race_is_invented(
        steps in prop::collection::vec(
            prop_oneof![
                3 => tensor(), 3 => counter(action()),
                2 => elements(vec![Order::Relaxed, Order::Acquire, Order::Release, Order::AcqRel]),
            ],
            1..16,
        ),
        splits in prop::option::weighted(0.8, any::<u32>()),
    ) {
        never_invents::<4>(Records::Four, splits, &steps)?;
        never_invents::<2>(Records::Two, splits, &steps)?;
    }

    /// Data written by a warp, released by all its lanes on one counter or on a word each, acquired by
    /// another warp: ordered, if every edge is there.
    #[test]
    fn what_warps_hand_over_is_ordered_if_it_was_acquired(
        splits in prop::option::of(any::<u32>()),
        each in any::<bool>(),
        acquires in any::<bool>(),
        chain in any::<bool>(),
        mask in prop_oneof![Just(u32::MAX), any::<u32>().prop_map(|mask| mask | 1 << 7)],
    ) {
        let mut warps = Warps::<4>::new(Records::Four, splits);
        let data = |cta: u32, write| Step {
            cta,
            does: Does::Tensor { write },
            bytes: 4,
            addresses: consecutive(DATA, 4, 0, 32),
        };
        let flag = |cta: u32, order| Step {
            cta,
            does: Does::Atomic { action: Action::Rmw, order, scope: Scope::Gpu },
            bytes: 4,
            addresses: if each { consecutive(0, 4, 0, 32) } else { same(0, mask) },
        };
        warps.step(&data(0, true));
        warps.step(&flag(0, Order::AcqRel));
        if chain {
            warps.step(&flag(1, Order::AcqRel));
        }
        warps.step(&flag(2, if acquires { Order::AcqRel } else { Order::Relaxed }));
        warps.step(&data(2, true));
        warps.exit();
        let [device, _] = warps.twin.cells_and_races();
        prop_assert_eq!(device.1.is_empty(), acquires, "{:?}", device.1);
    }
}
