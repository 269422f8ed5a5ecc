use super::*;
use crate::event::{HostEvent, Launch};
use crate::ids::{Cta, CtaIndex, DeviceRank, LaunchId, StreamId};
use crate::scope::Order;

const GLOBAL: u64 = 0x1_0000;

/// A detector with one launch whose CTAs are all resident.
fn resident(unit: Unit, ctas: u32, threads: u32) -> Exact {
    let mut exact = Exact::new(unit);
    launch(&mut exact, 0, ctas, threads);
    exact
}

fn launch(exact: &mut Exact, id: u32, ctas: u32, threads: u32) {
    let launch = Launch {
        id: LaunchId(id),
        device: DeviceRank(0),
        stream: StreamId(0),
        ctas,
        threads,
        cluster: 1,
        programmatic: false,
    };
    exact.on(&Event::Launch(launch)).unwrap();
    for index in 0..ctas {
        exact
            .on(&Event::CtaStart {
                cta: cta(id, index),
                sm: 0,
            })
            .unwrap();
    }
}

fn exit(exact: &mut Exact, id: u32, ctas: u32) {
    for index in 0..ctas {
        exact.on(&Event::CtaExit(cta(id, index))).unwrap();
    }
}

fn cta(launch: u32, index: u32) -> Cta {
    Cta {
        launch: LaunchId(launch),
        index: CtaIndex(index),
    }
}

fn thread(launch: u32, cta: u32, index: u32) -> Thread {
    Thread::new(LaunchId(launch), cta, index)
}

fn global(address: u64, bytes: u32) -> Range {
    Range {
        space: Space::Global,
        address,
        bytes,
    }
}

fn weak(thread: Thread, action: Action, range: Range, site: u32) -> Event {
    Event::Access(Access {
        thread,
        range,
        action,
        order: Order::Weak,
        scope: Scope::Cta,
        site: SiteId(site),
    })
}

fn barrier(exact: &mut Exact, cta_of: u32, threads: u32) {
    let at = Meeting::CtaBarrier {
        cta: cta(0, cta_of),
        id: 0,
    };
    for index in 0..threads {
        exact
            .on(&Event::Arrive {
                thread: thread(0, cta_of, index),
                at,
                releases: true,
            })
            .unwrap();
    }
    exact.on(&Event::PhaseComplete(at)).unwrap();
    for index in 0..threads {
        exact
            .on(&Event::Leave {
                thread: thread(0, cta_of, index),
                at,
                acquires: true,
            })
            .unwrap();
    }
}

fn keys(exact: &mut Exact) -> Vec<(RaceKind, u32, u32)> {
    let races = exact.take_races();
    let keys = races.iter().map(Race::key);
    keys.map(|key| (key.kind, key.earlier.0, key.later.0))
        .collect()
}

#[test]
fn neighbouring_bytes_never_conflict() {
    let mut exact = resident(Unit::Thread, 1, 8);
    for index in 0..8 {
        let byte = global(GLOBAL + u64::from(index), 1);
        exact
            .on(&weak(thread(0, 0, index), Action::Write, byte, 1))
            .unwrap();
    }
    assert_eq!(exact.take_races(), []);
}

#[test]
fn a_race_names_both_sides_and_the_bytes_they_share() {
    let mut exact = resident(Unit::Thread, 2, 4);
    let writer = thread(0, 0, 3);
    let reader = thread(0, 1, 2);
    exact
        .on(&weak(writer, Action::Write, global(GLOBAL + 4, 16), 7))
        .unwrap();
    exact
        .on(&weak(reader, Action::Read, global(GLOBAL + 16, 8), 9))
        .unwrap();
    let side = |thread, action, site| Side {
        who: crate::race::Who::Thread(thread),
        action,
        order: Order::Weak,
        scope: None,
        asynchronous: false,
        site: SiteId(site),
    };
    assert_eq!(
        exact.take_races(),
        [Race {
            kind: RaceKind::ReadAfterWrite,
            space: Space::Global,
            address: GLOBAL + 16,
            bytes: 4,
            earlier: side(writer, Action::Write, 7),
            later: side(reader, Action::Read, 9),
        }]
    );
}

#[test]
fn a_race_of_a_wide_access_is_one_race() {
    let mut exact = resident(Unit::Thread, 1, 2);
    for index in 0..2 {
        exact
            .on(&weak(
                thread(0, 0, index),
                Action::Write,
                global(GLOBAL, 64),
                1,
            ))
            .unwrap();
    }
    let races = exact.take_races();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].address, races[0].bytes), (GLOBAL, 64));
}

#[test]
fn every_reader_is_kept() {
    let mut exact = resident(Unit::Thread, 4, 32);
    for index in 0..128 {
        let reader = thread(0, index / 32, index % 32);
        exact
            .on(&weak(reader, Action::Read, global(GLOBAL, 4), index))
            .unwrap();
    }
    exact
        .on(&weak(
            thread(0, 0, 0),
            Action::Write,
            global(GLOBAL, 4),
            999,
        ))
        .unwrap();
    let expected: Vec<_> = (1..128)
        .map(|site| (RaceKind::WriteAfterRead, site, 999))
        .collect();
    assert_eq!(keys(&mut exact), expected);
}

#[test]
fn a_barrier_orders_the_threads_of_its_cta_and_no_others() {
    let mut exact = resident(Unit::Thread, 2, 2);
    exact
        .on(&weak(thread(0, 0, 0), Action::Write, global(GLOBAL, 4), 1))
        .unwrap();
    barrier(&mut exact, 0, 2);
    exact
        .on(&weak(thread(0, 0, 1), Action::Write, global(GLOBAL, 4), 2))
        .unwrap();
    assert_eq!(keys(&mut exact), []);
    exact
        .on(&weak(thread(0, 1, 0), Action::Read, global(GLOBAL, 4), 3))
        .unwrap();
    // The first write is ordered before the second, which stands for it.
    assert_eq!(keys(&mut exact), [(RaceKind::ReadAfterWrite, 2, 3)]);
}

#[test]
fn at_cta_unit_threads_of_one_cta_never_race() {
    let mut exact = resident(Unit::Cta, 2, 32);
    for index in 0..32 {
        exact
            .on(&weak(
                thread(0, 0, index),
                Action::Write,
                global(GLOBAL, 4),
                1,
            ))
            .unwrap();
    }
    assert_eq!(exact.take_races(), []);
    exact
        .on(&weak(thread(0, 1, 5), Action::Write, global(GLOBAL, 4), 2))
        .unwrap();
    let races = exact.take_races();
    assert_eq!(races.len(), 1);
    assert_eq!(races[0].earlier.who, crate::race::Who::Cta(cta(0, 0)));
}

#[test]
fn launches_on_one_stream_are_ordered() {
    let mut exact = Exact::new(Unit::Thread);
    for id in 0..3 {
        launch(&mut exact, id, 2, 2);
        for index in 0..4 {
            let range = global(GLOBAL + 4 * u64::from((index + id) % 4), 4);
            exact
                .on(&weak(
                    thread(id, index / 2, index % 2),
                    Action::Write,
                    range,
                    1,
                ))
                .unwrap();
        }
        exit(&mut exact, id, 2);
    }
    assert_eq!(exact.take_races(), []);
}

#[test]
fn forgotten_bytes_race_with_nothing() {
    let mut exact = resident(Unit::Thread, 1, 2);
    exact
        .on(&weak(
            thread(0, 0, 0),
            Action::Write,
            global(GLOBAL, 16_384),
            1,
        ))
        .unwrap();
    exact
        .on(&Event::Forget(global(GLOBAL + 2, 12_000)))
        .unwrap();
    exact
        .on(&weak(
            thread(0, 0, 1),
            Action::Write,
            global(GLOBAL, 16_384),
            2,
        ))
        .unwrap();
    let bytes: Vec<_> = exact
        .take_races()
        .iter()
        .map(|race| (race.address - GLOBAL, race.bytes))
        .collect();
    assert_eq!(bytes, [(0, 2), (12_002, 16_384 - 12_002)]);
}

#[test]
fn events_that_make_no_sense_are_refused() {
    let mut exact = resident(Unit::Thread, 1, 1);
    let refused = |exact: &mut Exact, event| exact.on(&event).unwrap_err();
    let write = |thread, range| weak(thread, Action::Write, range, 1);
    assert_eq!(
        refused(&mut exact, write(thread(5, 0, 0), global(0, 4))),
        EventError::UnknownLaunch(LaunchId(5))
    );
    assert_eq!(
        refused(&mut exact, write(thread(0, 1, 0), global(0, 4))),
        EventError::NoSuchCta {
            launch: LaunchId(0),
            index: CtaIndex(1),
            ctas: 1
        }
    );
    assert_eq!(
        refused(&mut exact, write(thread(0, 0, 1), global(0, 4))),
        EventError::NoSuchThread {
            index: 1,
            threads: 1
        }
    );
    assert_eq!(
        refused(&mut exact, write(thread(0, 0, 0), global(u64::MAX, 4))),
        EventError::BadRange {
            address: u64::MAX,
            bytes: 4
        }
    );
    let wait = Event::AsyncWait {
        thread: thread(0, 0, 0),
        id: AsyncId(3),
        completion: Completion::Full,
    };
    assert_eq!(
        refused(&mut exact, wait),
        EventError::UnknownCopy(AsyncId(3))
    );
    exact.on(&Event::CtaExit(cta(0, 0))).unwrap();
    for _ in 0..2 {
        assert_eq!(
            refused(&mut exact, Event::CtaExit(cta(0, 0))),
            EventError::NotResident(cta(0, 0))
        );
    }
    exact
        .on(&Event::Host(HostEvent::SyncDevice(DeviceRank(9))))
        .unwrap();
}
