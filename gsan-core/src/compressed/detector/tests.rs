//! Restarts of a whole detector: when they happen, and that nothing reaches across.

use proptest::prelude::*;

use super::*;
use crate::clock::Epoch;
use crate::ids::{DeviceRank, ThreadId};
use crate::race::RaceKind;
use crate::record::Token;
use crate::testing::execution::{Grain, execute};
use crate::testing::program::{HostOp, Program};
use crate::testing::random::{Shape, cases};

/// Half of the epochs are used up after ten.
const SIZES: Sizes = Sizes {
    publications: 64,
    snapshots: 32,
    checkpoints: 8,
    private_clocks: 8,
    segments: 4,
    history: 4,
    last_epoch: Epoch::new(20).expect("a small epoch"),
    ..Sizes::DEFAULT
};

const DATA: u64 = 0x1000;
const FLAG: u64 = 0x2000;

/// A detector for one device with one SM, four slots, and `banks` banks, told events by name.
struct Told(CompressedDetector<4>);

impl Told {
    fn new(banks: u32, sizes: Sizes) -> Told {
        let topology = Topology::new(1, 1, 4, banks).unwrap();
        Told(CompressedDetector::new(topology, sizes, 1))
    }

    fn on(&mut self, event: Event) {
        self.0.on(&event).unwrap();
    }

    /// Launch `id` of `ctas` CTAs, which start.
    fn launch(&mut self, id: u32, stream: u32, ctas: u32) {
        self.on(Event::Launch(launch(id, stream, ctas)));
        for index in 0..ctas {
            self.on(Event::CtaStart {
                cta: cta(id, index),
                sm: 0,
            });
        }
    }

    fn exit(&mut self, id: u32, index: u32) {
        self.on(Event::CtaExit(cta(id, index)));
    }

    fn host(&mut self, event: HostEvent) {
        self.on(Event::Host(event));
    }

    fn sync(&mut self, stream: u32) {
        self.host(HostEvent::SyncStream(StreamId(stream)));
    }

    fn access(&mut self, (id, index): (u32, u32), address: u64, action: Action, order: Order) {
        self.on(Event::Access(Access {
            thread: Thread::new(LaunchId(id), index, 0),
            range: Range {
                space: Space::Global,
                address,
                bytes: 4,
            },
            action,
            order,
            scope: Scope::Gpu,
            site: SiteId(1),
        }));
    }

    fn write(&mut self, who: (u32, u32), address: u64) {
        self.access(who, address, Action::Write, Order::Weak);
    }

    /// Uses up `epochs` epochs.
    fn wear(&mut self, who: (u32, u32), epochs: u32) {
        for _ in 0..epochs {
            self.write(who, DATA + 0x100);
            self.access(who, FLAG, Action::Write, Order::Release);
        }
    }

    fn epoch(&self, id: u16) -> u32 {
        self.0.system.epoch(ThreadId(id)).load(Relaxed)
    }

    fn head(&self) -> u64 {
        let publications = self.0.system.publications(DeviceRank(0));
        publications.head().load(Relaxed)
    }

    /// Launch and CTA of both sides of the races found since the last call.
    fn races(&mut self) -> Vec<(Who, Who)> {
        let races = self.0.take_races();
        let who = |race: Race| {
            assert_eq!(race.kind, RaceKind::WriteAfterWrite);
            (race.earlier.who, race.later.who)
        };
        races.into_iter().map(who).collect()
    }
}

fn cta(launch: u32, index: u32) -> Cta {
    Cta {
        launch: LaunchId(launch),
        index: CtaIndex(index),
    }
}

fn who(launch: u32, index: u32) -> Who {
    Who::Cta(cta(launch, index))
}

fn launch(id: u32, stream: u32, ctas: u32) -> Launch {
    Launch {
        id: LaunchId(id),
        device: DeviceRank(0),
        stream: StreamId(stream),
        ctas,
        threads: 1,
        cluster: 1,
        programmatic: false,
    }
}

#[test]
fn worn_epochs_restart_the_detector_when_the_host_has_waited_for_everything() {
    let mut told = Told::new(2, SIZES);
    told.launch(0, 0, 1);
    told.launch(1, 1, 1);
    told.wear((0, 0), 12);
    let worn = told.epoch(0);
    assert!(worn > 10);
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(told.epoch(0), worn, "stream 1 still runs");
    told.exit(1, 0);
    told.host(HostEvent::SyncEvent(0));
    assert_eq!(
        told.epoch(0),
        worn,
        "the host does not know that it is done"
    );
    told.sync(1);
    assert_eq!((told.epoch(0), told.head()), (0, 0));
    // A detector that is not worn keeps what it knows.
    told.launch(2, 0, 1);
    told.wear((2, 0), 3);
    told.exit(2, 0);
    let epoch = told.epoch(0);
    told.host(HostEvent::SyncDevice(DeviceRank(0)));
    assert_eq!(told.epoch(0), epoch);
    assert_eq!(told.races(), []);
}

#[test]
fn worn_tokens_restart_it_too() {
    let sizes = Sizes {
        tokens: 8,
        last_epoch: Sizes::DEFAULT.last_epoch,
        ..SIZES
    };
    let mut told = Told::new(1, sizes);
    told.launch(0, 0, 1);
    told.wear((0, 0), 5);
    assert!(told.head() > 4);
    told.exit(0, 0);
    told.sync(0);
    assert_eq!((told.epoch(0), told.head()), (0, 0));
    told.launch(1, 0, 1);
    told.wear((1, 0), 1);
    assert_eq!(told.head(), 1, "tokens start anew");
}

#[test]
fn races_are_found_before_and_after_and_none_across() {
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 2);
    told.write((0, 0), DATA);
    told.write((0, 1), DATA);
    told.wear((0, 0), 12);
    told.exit(0, 0);
    told.exit(0, 1);
    told.sync(0);
    assert_eq!(told.epoch(0), 0, "it has restarted");
    // What was found stays until it is taken.
    assert_eq!(told.races(), [(who(0, 0), who(0, 1))]);
    told.launch(1, 0, 2);
    assert_eq!((told.epoch(0), told.epoch(1)), (2, 2), "epochs start anew");
    told.write((1, 1), DATA);
    assert_eq!(told.races(), [], "launch 0 is over");
    told.write((1, 0), DATA);
    assert_eq!(told.races(), [(who(1, 1), who(1, 0))]);
}

#[test]
fn what_was_known_before_orders_nothing_after() {
    // One bank: the new CTAs have the ids of those that were known up to a high epoch.
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 1);
    told.wear((0, 0), 12);
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(told.epoch(0), 0, "it has restarted");
    told.launch(1, 1, 1);
    told.write((1, 0), DATA);
    // After launch 0, whose completion knew epoch 14 of the id that launch 1 has now.
    told.launch(2, 0, 1);
    told.write((2, 0), DATA);
    assert_eq!(told.races(), [(who(1, 0), who(2, 0))]);
}

#[test]
fn a_release_before_is_not_acquired_after() {
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 1);
    told.wear((0, 0), 12);
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(told.epoch(0), 0, "it has restarted");
    // The flag still has the value that launch 0 released.
    told.launch(1, 0, 2);
    told.write((1, 0), DATA);
    told.access((1, 1), FLAG, Action::Read, Order::Acquire);
    told.write((1, 1), DATA);
    assert_eq!(told.races(), [(who(1, 0), who(1, 1))]);
}

#[test]
fn edges_of_the_host_hold_before_across_and_after() {
    let record = |event, stream| HostEvent::Record {
        event,
        stream: StreamId(stream),
    };
    let wait = |event, stream| HostEvent::Wait {
        event,
        stream: StreamId(stream),
    };
    let mut told = Told::new(2, SIZES);
    told.launch(0, 0, 1);
    told.write((0, 0), DATA);
    told.wear((0, 0), 12);
    told.exit(0, 0);
    told.host(record(0, 0));
    told.sync(0);
    assert_eq!(told.epoch(0), 0, "it has restarted");
    // Across: stream 1 waits for what was recorded before.
    told.host(wait(0, 1));
    told.launch(1, 1, 1);
    told.write((1, 0), DATA);
    told.exit(1, 0);
    // After: by the stream, and by a new record of the same event.
    told.launch(2, 1, 1);
    told.write((2, 0), DATA);
    told.exit(2, 0);
    told.host(record(0, 1));
    told.host(wait(0, 0));
    told.launch(3, 0, 1);
    told.write((3, 0), DATA);
    assert_eq!(told.races(), []);
}

#[test]
fn the_history_forgets() {
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 1);
    told.wear((0, 0), 12);
    let at = |told: &Told, epoch| {
        let history = told.0.system.history();
        history.find(ThreadId(0), Epoch::new(epoch).unwrap())
    };
    assert_eq!(at(&told, 12).map(|past| past.launch), Some(LaunchId(0)));
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(at(&told, 12), None);
    told.launch(1, 0, 1);
    assert_eq!(at(&told, 12).map(|past| past.launch), Some(LaunchId(1)));
}

#[test]
fn an_earlier_side_that_the_history_lost_is_said_to_be_forgotten() {
    let sizes = Sizes {
        history: 1,
        ..SIZES
    };
    let mut told = Told::new(2, sizes);
    told.launch(0, 0, 1);
    told.write((0, 0), DATA);
    told.exit(0, 0);
    // The slot of launch 0 is used again.
    told.launch(1, 0, 1);
    told.launch(2, 1, 1);
    told.write((2, 0), DATA);
    let forgotten = Who::Forgotten(DeviceRank(0));
    assert_eq!(told.races(), [(forgotten, who(2, 0))]);
    assert_eq!(told.0.losses().get(Loss::HistoryOverwritten), 1);
}

#[test]
fn losses_outlive_a_restart() {
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 1);
    // The last epochs are worn out.
    told.wear((0, 0), 25);
    let worn = told.0.losses().get(Loss::WornEpoch);
    assert!(worn > 0);
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(told.epoch(0), 0, "it has restarted");
    assert_eq!(told.0.losses().get(Loss::WornEpoch), worn);
    // Who had no epoch left is told apart again.
    told.launch(1, 0, 2);
    told.write((1, 0), DATA);
    told.write((1, 1), DATA);
    assert_eq!(told.races(), [(who(1, 0), who(1, 1))]);
}

/// The events of `program` after a launch of `ctas` CTAs on each stream, the first of which is
/// worn, and after the host has waited for them.
fn after_launches(ctas: u32, program: &Program, schedule: &[u16]) -> Vec<Event> {
    const FIRST: u32 = 1000;
    let mut told = Vec::new();
    for stream in 0..2 {
        let device = DeviceRank(stream as u16);
        told.push(Event::Launch(Launch {
            device,
            ..launch(FIRST + stream, stream, ctas)
        }));
        for index in 0..ctas {
            let cta = cta(FIRST + stream, index);
            told.push(Event::CtaStart { cta, sm: 0 });
            for _ in 0..12 {
                for order in [Order::Weak, Order::Release] {
                    told.push(Event::Access(Access {
                        thread: Thread { cta, index: 0 },
                        range: Range {
                            space: Space::Global,
                            address: 0x8000 + u64::from(stream) * GRANULE,
                            bytes: 8,
                        },
                        action: Action::Write,
                        order,
                        scope: Scope::Sys,
                        site: SiteId(1),
                    }));
                }
            }
            told.push(Event::CtaExit(cta));
        }
    }
    for device in 0..2 {
        told.push(Event::Host(HostEvent::SyncDevice(DeviceRank(device))));
    }
    told.extend(execute(program, Grain::Part, schedule));
    told
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("GSAN_LONG").is_some() { 20_000 } else { 200 },
        // More than half of the programs have waits.
        max_global_rejects: 100_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn after_a_restart_it_is_as_new(case in cases(Shape::ALL)) {
        let waits = case.program.host.iter().any(|op| matches!(op, HostOp::Host(
            HostEvent::SyncStream(_) | HostEvent::SyncDevice(_)
        )));
        // It must not restart again.
        prop_assume!(!waits);
        let races = |ctas| {
            let topology = Topology::new(2, 2, 8, 2).unwrap();
            let mut detector = CompressedDetector::<4>::new(topology, SIZES, 1);
            for event in after_launches(ctas, &case.program, &case.schedule) {
                detector.on(&event).unwrap();
            }
            detector.take_races()
        };
        // One CTA each wears it out; no CTA does nothing.
        let (restarted, new) = (races(1), races(0));
        let accused = |race: &Race| race.later.who.launch() >= Some(LaunchId(1000));
        prop_assert!(!restarted.iter().any(accused));
        prop_assert_eq!(restarted, new);
    }
}

#[test]
fn a_token_of_before_is_never_taken_for_one_of_after() {
    let mut told = Told::new(1, SIZES);
    told.launch(0, 0, 1);
    told.wear((0, 0), 12);
    let token = Token::new(told.head() - 1).unwrap();
    let read = |told: &Told| told.0.system.publications(DeviceRank(0)).read(token);
    assert!(read(&told).is_some());
    told.exit(0, 0);
    told.sync(0);
    assert_eq!(read(&told), None);
}

#[test]
fn what_is_released_to_its_own_cta_is_not_acquired_by_who_polls_meanwhile() {
    let flag = |index, action, order, scope| Access {
        thread: Thread::new(LaunchId(0), index, 0),
        range: Range {
            space: Space::Global,
            address: FLAG,
            bytes: 4,
        },
        action,
        order,
        scope,
        site: SiteId(1),
    };
    for (scope, races) in [(Scope::Cta, 1), (Scope::Gpu, 0)] {
        let mut told = Told::new(1, SIZES);
        told.launch(0, 0, 2);
        told.write((0, 0), DATA);
        let see = flag(1, Action::Read, Order::Acquire, Scope::Gpu);
        let raise = flag(0, Action::Write, Order::Release, scope);
        told.on(Event::AtomicBegin(see));
        told.on(Event::AtomicBegin(raise));
        told.on(Event::AtomicEnd(raise));
        told.on(Event::AtomicEnd(see));
        told.write((0, 1), DATA);
        let found = told.0.take_races();
        let of_data = found
            .iter()
            .filter(|race| race.kind == RaceKind::WriteAfterWrite);
        assert_eq!(of_data.count(), races, "{scope:?}");
    }
}
