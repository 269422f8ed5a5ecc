//! Random sequences of operations against a simple model, with a fault at every call of the
//! backend in turn: after each operation, exactly what is live is mapped, created and reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Stream};
use gsan_vmm::share::{SharedAllocation, SharedState};
use gsan_vmm::{Allocator, STATE_STRIDE};
use proptest::prelude::*;

use super::faulty::Faulty;
use super::{GPU, PAGE, allocator};

/// Room for 64 pages in the reservation, and for 20 with their shadow in memory, so that both run
/// out.
const RESERVE: u64 = 512 * PAGE;
const MEMORY: u64 = 100 * PAGE;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        who: usize,
        bytes: u64,
    },
    /// Of one of the live allocations; the stream may be busy until the step is over.
    Free {
        which: usize,
        busy: bool,
    },
    Import {
        who: usize,
        which: usize,
    },
    CreateState {
        who: usize,
        rank: u16,
    },
    ImportState {
        from: usize,
        rank: u16,
    },
    ReleaseState {
        who: usize,
        rank: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (who, which, rank) = (0..2usize, 0..100usize, 0..2u16);
    prop_oneof![
        4 => (who.clone(), 0..12 * PAGE).prop_map(|(who, bytes)| Step::Allocate { who, bytes }),
        3 => (which.clone(), any::<bool>()).prop_map(|(which, busy)| Step::Free { which, busy }),
        2 => (who.clone(), which).prop_map(|(who, which)| Step::Import { who, which }),
        1 => (who.clone(), rank.clone()).prop_map(|(who, rank)| Step::CreateState { who, rank }),
        1 => (who.clone(), rank.clone()).prop_map(|(from, rank)| Step::ImportState { from, rank }),
        1 => (who, rank).prop_map(|(who, rank)| Step::ReleaseState { who, rank }),
    ]
}

/// A live allocation of the model.
#[derive(Clone, Debug)]
struct Live {
    who: usize,
    address: u64,
    bytes: u64,
    managed: bool,
    /// What its first bytes hold: the same for all that share the memory.
    tag: u8,
}

/// Two allocators, as two processes would have them, and what they should look like.
struct World {
    backend: Arc<Faulty<HostBackend>>,
    allocators: [Allocator; 2],
    live: Vec<Live>,
    states: BTreeMap<(usize, u16), u64>,
    next_tag: u8,
}

impl World {
    fn new() -> World {
        let host = HostOptions {
            devices: 1,
            memory: MEMORY,
            granularity: PAGE,
        };
        let backend = Arc::new(Faulty::new(HostBackend::new(host).unwrap()));
        World {
            allocators: [(); 2].map(|()| allocator(&backend, RESERVE)),
            backend,
            live: Vec::new(),
            states: BTreeMap::new(),
            next_tag: 0,
        }
    }

    /// Takes one step; it may fail, but then it must not have changed anything.
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Allocate { who, bytes } => {
                if let Ok(address) = self.allocators[who].allocate(bytes, GPU)
                    && bytes > 0
                {
                    self.next_tag += 1;
                    let managed = self.enter(who, address, bytes, self.next_tag);
                    if managed {
                        let shadow = self.allocators[who].space().shadow(address);
                        let mut cell = [1; 32];
                        self.backend.read(GPU, shadow, &mut cell).unwrap();
                        assert_eq!(cell, [0; 32], "shadow is zero when memory is handed out");
                        self.backend.write(GPU, shadow, &[self.next_tag]).unwrap();
                    }
                    self.backend.write(GPU, address, &[self.next_tag]).unwrap();
                }
            }
            Step::Free { which, busy } if !self.live.is_empty() => {
                let index = which % self.live.len();
                let Live { who, address, .. } = self.live[index];
                let stream = Stream::host(who as u64);
                if busy {
                    self.backend.inner.work_submitted(GPU, stream);
                }
                let freed = self.allocators[who].free(address, None, stream);
                if freed.is_ok() {
                    self.live.remove(index);
                    assert!(self.allocators[who].free(address, None, stream).is_err());
                }
                if busy {
                    self.backend.inner.work_done(GPU, stream);
                }
            }
            Step::Import { who, which } if !self.live.is_empty() => {
                let Live {
                    who: owner,
                    address,
                    bytes,
                    tag,
                    ..
                } = self.live[which % self.live.len()];
                let Ok((shared, offset)) = self.allocators[owner].export(address + bytes / 2)
                else {
                    return;
                };
                assert_eq!(offset, bytes / 2);
                let shared = SharedAllocation::from_parcel(shared.into_parcel()).unwrap();
                if let Ok(address) = self.allocators[who].import(shared, GPU) {
                    self.enter(who, address, bytes, tag);
                }
            }
            Step::CreateState { who, rank } => {
                let made = self.allocators[who].create_state(DeviceRank(rank), GPU, PAGE);
                if let Ok(address) = made {
                    assert_eq!(self.states.insert((who, rank), address), None);
                }
            }
            Step::ImportState { from, rank } => {
                let Ok(shared) = self.allocators[from].export_state(DeviceRank(rank)) else {
                    return;
                };
                let shared = SharedState::from_parcel(shared.into_parcel()).unwrap();
                if let Ok(address) = self.allocators[1 - from].import_state(shared, GPU) {
                    assert_eq!(self.states.insert((1 - from, rank), address), None);
                }
            }
            Step::ReleaseState { who, rank } => {
                if self.allocators[who].release_state(DeviceRank(rank)).is_ok() {
                    assert!(self.states.remove(&(who, rank)).is_some());
                }
            }
            Step::Free { .. } | Step::Import { .. } => {}
        }
    }

    fn enter(&mut self, who: usize, address: u64, bytes: u64, tag: u8) -> bool {
        let managed = self.allocators[who].find(address).unwrap().managed;
        self.live.push(Live {
            who,
            address,
            bytes,
            managed,
            tag,
        });
        managed
    }

    /// Compares everything with the model. No fault is to come any more.
    fn check(&self) {
        let mut mapped = BTreeMap::new();
        let mut reserved = 2 * self.allocators.len();
        for live in &self.live {
            let allocator = &self.allocators[live.who];
            let found = allocator.find(live.address + live.bytes - 1).unwrap();
            assert_eq!((found.address, found.bytes), (live.address, live.bytes));
            let bytes = live.bytes.next_multiple_of(PAGE);
            assert_eq!(mapped.insert(live.address, bytes), None);
            let mut tags = vec![live.address];
            if live.managed {
                let shadow = allocator.space().shadow(live.address);
                assert_eq!(mapped.insert(shadow, 4 * bytes), None);
                tags.push(shadow);
            } else {
                reserved += 1;
            }
            // An import of managed memory that found no room has no shadow here.
            for address in tags {
                let mut tag = [0];
                self.backend.read(GPU, address, &mut tag).unwrap();
                assert_eq!(tag, [live.tag]);
            }
        }
        for (&(who, rank), &address) in &self.states {
            let base = self.allocators[who].state_base();
            assert_eq!(address, base + u64::from(rank) * STATE_STRIDE);
            mapped.insert(address, PAGE);
        }
        for (who, allocator) in self.allocators.iter().enumerate() {
            allocator.flush();
            let own = self.live.iter().filter(|live| live.who == who);
            let bytes = own.clone().map(|live| live.bytes).sum::<u64>();
            let mut expected: Vec<_> = own
                .clone()
                .map(|live| (live.address, live.bytes, live.managed))
                .collect();
            expected.sort_unstable();
            let all = allocator.live().into_iter();
            let all: Vec<_> = all.map(|a| (a.address, a.bytes, a.managed)).collect();
            assert_eq!(all, expected);
            let usage = allocator.usage();
            assert_eq!((usage.live, usage.live_bytes), (own.clone().count(), bytes));
            assert_eq!(usage.waiting_bytes, 0);
            assert_eq!(allocator.is_empty(), own.count() == 0);
        }
        assert_eq!(self.backend.memory_count(), mapped.len());
        assert_eq!(self.backend.mappings(), mapped);
        assert_eq!(self.backend.reservation_count(), reserved);
    }

    fn end(self) {
        let World {
            backend,
            allocators,
            ..
        } = self;
        drop(allocators);
        backend.assert_nothing_left();
    }
}

/// Takes all steps, with `faults` failures in a row after `until` calls of each.
fn run(steps: &[Step], until: u64, faults: u64) {
    let mut world = World::new();
    for step in steps {
        world.backend.fail(until, faults);
        world.take(step);
        world.backend.fail(0, 0);
        world.check();
    }
    world.end();
}

fn cases() -> ProptestConfig {
    let long = std::env::var_os("GSAN_LONG").is_some();
    ProptestConfig {
        cases: if long { 1000 } else { 60 },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn nothing_is_leaked_mapped_twice_or_left_reserved(
        steps in prop::collection::vec(step(), 1..60),
        until in 0..12u64,
        faults in 0..4u64,
    ) {
        run(&steps, until, faults);
    }

    /// A step makes fewer calls than this; each of them fails once.
    #[test]
    fn a_fault_at_any_call_leaves_nothing_behind(steps in prop::collection::vec(step(), 1..12)) {
        for until in 0..14 {
            run(&steps, until, 1);
        }
    }
}

#[test]
fn no_operation_makes_more_calls_than_are_made_to_fail_above() {
    let mut world = World::new();
    let steps = [
        Step::Allocate {
            who: 0,
            bytes: PAGE,
        },
        Step::Import { who: 1, which: 0 },
        Step::CreateState { who: 0, rank: 0 },
        Step::ImportState { from: 0, rank: 0 },
        Step::ReleaseState { who: 1, rank: 0 },
    ];
    for step in steps {
        let before = world.backend.calls();
        world.take(&step);
        let calls = world.backend.calls() - before;
        assert!((1..=9).contains(&calls), "{step:?} makes {calls} calls");
    }
    assert_eq!((world.live.len(), world.states.len()), (2, 1));
    world.end();
}
