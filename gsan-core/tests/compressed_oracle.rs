//! The compressed detector against the exact one: whatever it reports, the exact one reports too,
//! however small its rings, clocks, epochs and tokens are, and with other threads' steps between
//! the begin, the instruction and the end of strong accesses.

use std::collections::{BTreeMap, BTreeSet};

use gsan_core::address::{GRANULE, granules};
use gsan_core::clock::Epoch;
use gsan_core::compressed::detector::CompressedDetector;
use gsan_core::compressed::system::Sizes;
use gsan_core::compressed::topology::Topology;
use gsan_core::event::{Detector, Event};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, SiteId, Thread};
use gsan_core::loss::Loss;
use gsan_core::race::{Race, Who};
use gsan_core::testing::execution::{Grain, execute};
use gsan_core::testing::litmus::table;
use gsan_core::testing::races;
use gsan_core::testing::random::{Case, Shape, cases};
use gsan_core::testing::text;
use proptest::prelude::*;

/// Enough of everything.
const ROOMY: Sizes = Sizes {
    publications: 256,
    snapshots: 256,
    checkpoints: 32,
    private_clocks: 32,
    segments: 8,
    history: 8,
    ..Sizes::DEFAULT
};

/// So little that everything runs out.
fn tight() -> impl Strategy<Value = Sizes> {
    (
        1usize..6,
        0u32..3,
        1usize..4,
        0usize..4,
        1u32..4,
        2u32..12,
        1u64..12,
    )
        .prop_map(
            |(publications, snapshots, checkpoints, private_clocks, segments, epochs, tokens)| {
                Sizes {
                    publications,
                    snapshots: 1 << snapshots,
                    checkpoints,
                    private_clocks,
                    segments,
                    history: 2,
                    last_epoch: Epoch::new(epochs).expect("a small epoch"),
                    tokens,
                }
            },
        )
}

fn topology() -> impl Strategy<Value = Topology> {
    (1u32..4, 1u32..5, 1u32..4)
        .prop_map(|(sms, slots, banks)| Topology::new(2, sms, slots, banks).expect("it is small"))
}

fn compressed<const S: usize>(events: &[Event], topology: Topology, sizes: Sizes) -> Vec<Race> {
    races(
        &mut CompressedDetector::<S>::new(topology, sizes, 1),
        events,
    )
}

fn exact(unit: Unit, events: &[Event]) -> Vec<Race> {
    races(&mut Exact::new(unit), events)
}

/// The granules with races, with the CTAs that took part.
///
/// Of several accesses of a CTA that race with one access, each detector may drop some that say
/// nothing new, and an access with an asynchronous copy can be met from either side. Between the
/// instruction and the end of an acquire, other threads of the CTA race as single threads do.
fn involved(races: &[Race]) -> BTreeSet<(u64, Cta)> {
    let mut involved = BTreeSet::new();
    for race in races {
        for part in granules(race.address, race.bytes.into()) {
            for who in [race.earlier.who, race.later.who] {
                match who {
                    Who::Cta(cta) | Who::Thread(Thread { cta, .. }) => {
                        involved.insert((part.granule, cta));
                    }
                    Who::Forgotten(_) => {}
                }
            }
        }
    }
    involved
}

/// The granules with races, with the sites of both sides, the smaller first.
fn sites(races: &[Race]) -> BTreeSet<(u64, SiteId, SiteId)> {
    let site = |race: &Race| {
        let (a, b) = (race.earlier.site, race.later.site);
        (race.address / GRANULE * GRANULE, a.min(b), a.max(b))
    };
    races.iter().map(site).collect()
}

/// What `found` says and the truth does not: the later CTA does not race in that granule, nor do
/// the sites. (The same race of other CTAs may have been left out as a duplicate.)
fn invented(found: &[Race], truth: &[Race]) -> Vec<Race> {
    let (involved, known) = (involved(truth), sites(truth));
    let is_known = |race: &Race| match race.later.who {
        Who::Cta(cta) => {
            involved.contains(&(race.address / GRANULE * GRANULE, cta))
                || sites(&[*race]).is_subset(&known)
        }
        _ => false,
    };
    found
        .iter()
        .filter(|race| !is_known(race))
        .copied()
        .collect()
}

fn never_invents<const S: usize>(
    case: &Case,
    grain: Grain,
    topology: Topology,
    sizes: Sizes,
) -> Result<(), TestCaseError> {
    let events = execute(&case.program, grain, &case.schedule);
    let truth = [Unit::Cta, Unit::Thread].map(|unit| exact(unit, &events));
    let invented = invented(&compressed::<S>(&events, topology, sizes), &truth.concat());
    prop_assert!(invented.is_empty(), "{invented:#?}\n{}", listed(&events));
    Ok(())
}

/// Whether no granule is accessed more than three times: what a cell of four records holds beside
/// a sync record.
fn cells_have_room(events: &[Event]) -> bool {
    let mut accesses: BTreeMap<u64, u32> = BTreeMap::new();
    for event in events {
        if let Event::Access(access) = event {
            for part in granules(access.range.address, access.range.bytes.into()) {
                *accesses.entry(part.granule).or_default() += 1;
            }
        }
    }
    accesses.values().all(|&count| count <= 3)
}

fn acquires(event: &Event) -> bool {
    match event {
        Event::Access(access) => access.order.acquires(),
        Event::Fence { .. } => true,
        _ => false,
    }
}

fn listed(events: &[Event]) -> String {
    events.iter().map(|event| format!("{event:?}\n")).collect()
}

fn cases_or(short: u32) -> ProptestConfig {
    let factor = if std::env::var_os("GSAN_LONG").is_some() {
        100
    } else {
        1
    };
    ProptestConfig::with_cases(short * factor)
}

proptest! {
    #![proptest_config(cases_or(400))]

    #[test]
    fn with_room_for_all_it_never_invents_a_race(
        case in cases(Shape::ALL), part: bool,
    ) {
        let grain = if part { Grain::Part } else { Grain::Operation };
        let topology = Topology::new(2, 2, 16, 8).unwrap();
        never_invents::<4>(&case, grain, topology, ROOMY)?;
    }

    #[test]
    fn with_room_for_nothing_it_never_invents_a_race(
        case in cases(Shape::ALL), part: bool, topology in topology(), sizes in tight(),
    ) {
        let grain = if part { Grain::Part } else { Grain::Operation };
        never_invents::<2>(&case, grain, topology, sizes)?;
        never_invents::<4>(&case, grain, topology, sizes)?;
    }

    #[test]
    fn one_kernel_with_crowded_cells(
        case in cases(Shape::ONE_KERNEL), part: bool, topology in topology(), sizes in tight(),
    ) {
        let grain = if part { Grain::Part } else { Grain::Operation };
        never_invents::<2>(&case, grain, topology, sizes)?;
    }

    #[test]
    fn it_finds_a_race_of_ordinary_accesses_where_the_cells_have_room_for_all(
        case in cases(Shape { ops: 4, ..Shape::ONE_KERNEL }),
    ) {
        let events = execute(&case.program, Grain::Operation, &case.schedule);
        // Sizes of releases and acquires may be mixed, which it takes for synchronisation.
        if !cells_have_room(&events) || events.iter().any(acquires) {
            return Ok(());
        }
        let topology = Topology::new(2, 2, 16, 8).unwrap();
        let found = compressed::<4>(&events, topology, ROOMY);
        let weak = |race: &&Race| race.earlier.scope.is_none() && race.later.scope.is_none();
        let missed = exact(Unit::Cta, &events).iter().find(weak).copied();
        prop_assert!(
            missed.is_none() || !found.is_empty(),
            "{missed:#?}\n{}",
            listed(&events)
        );
    }
}

#[test]
fn no_litmus_test_makes_it_invent_a_race() {
    let topology = Topology::new(2, 2, 16, 8).unwrap();
    for litmus in table() {
        litmus.races(&mut |events| {
            let found = compressed::<4>(events, topology, ROOMY);
            let invented = invented(&found, &exact(Unit::Cta, events));
            assert!(invented.is_empty(), "{}: {invented:#?}", litmus.name);
            found
        });
    }
}

#[test]
fn a_compare_and_swap_that_released_and_failed_is_counted() {
    let failed = |thread: &str| {
        let program = text::program("", 1, &[thread.to_owned()]).unwrap();
        let topology = Topology::new(2, 2, 16, 8).unwrap();
        let mut detector = CompressedDetector::<4>::new(topology, ROOMY, 1);
        races(&mut detector, &execute(&program, Grain::Operation, &[]));
        detector.losses().get(Loss::FailedRelease)
    };
    assert_eq!(failed("0.0: atom.release.gpu.cas f 1 2"), 1);
    assert_eq!(
        failed("0.0: fence.release.gpu; atom.relaxed.gpu.cas f 1 2"),
        1
    );
    assert_eq!(
        failed("0.0: fence.release.gpu; atom.relaxed.gpu.cas f 0 2"),
        0
    );
    assert_eq!(failed("0.0: atom.relaxed.gpu.cas f 1 2"), 0);
}

#[test]
fn both_sides_name_the_ctas_that_raced() {
    let litmus = table();
    let litmus = litmus.iter().find(|l| !l.races.is_empty()).unwrap();
    litmus.races(&mut |events| {
        let topology = Topology::new(2, 2, 16, 8).unwrap();
        let mut detector = CompressedDetector::<4>::new(topology, ROOMY, 1);
        let found = races(&mut detector, events);
        for race in &found {
            assert!(matches!(race.earlier.who, Who::Cta(_)));
            assert!(matches!(race.later.who, Who::Cta(_)));
            assert_ne!(race.earlier.who, race.later.who);
        }
        assert_eq!(detector.losses().met().count(), 0);
        found
    });
}

#[test]
fn what_narrow_releases_do_not_hand_over_is_found() {
    let topology = Topology::new(2, 2, 16, 8).unwrap();
    for name in [
        "a narrow release into another's wider sequence",
        "a narrow fence does not take part in what a wide one before it began",
    ] {
        let table = table();
        let litmus = table.iter().find(|litmus| litmus.name == name).unwrap();
        let found = litmus.races(&mut |events| compressed::<4>(events, topology, ROOMY));
        assert_eq!(found, litmus.races, "{name}");
    }
}
