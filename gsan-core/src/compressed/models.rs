//! Models of the protocols in which whole CTAs take part; loom runs them in every interleaving.
//!
//! Each is run with one essential thing broken, too, and must fail then.

use core::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::thread;

use super::cta::{Cta, CtaState};
use super::frontier::{Foreign, Launch, LaunchState, Row, Rows};
use super::restart::RestartMarks;
use super::strong::StrongAccess;
use super::system::{Sizes, System};
use super::topology::Topology;
use crate::atomics::{Atomic, Broken, Essential, Loom, Memory, words};
use crate::cell::{Cell, Past};
use crate::clock::Epoch;
use crate::event::Action;
use crate::ids::{DeviceRank, LaunchId, SiteId};
use crate::record::{RecordScope, Word};
use crate::reservoir::Sampler;
use crate::scope::Order;

/// Runs `model` in every interleaving with few preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Three resident CTAs of one launch, one cell with two words, and the word of memory that it is
/// the shadow of.
struct World<M: Memory> {
    system: System<M>,
    launch: LaunchState<M>,
    rows: [Vec<M::U32>; 4],
    filled: M::U32,
    ctas: [CtaState<M>; 3],
    cell: [M::U64; 2],
    data: M::U32,
}

impl<M: Memory> World<M> {
    fn new(publications: usize) -> Arc<Self> {
        let topology = Topology::new(1, 3, 1, 1).unwrap();
        let sizes = Sizes {
            publications,
            snapshots: 8,
            checkpoints: 2,
            private_clocks: 2,
            segments: 1,
            history: 0,
            ..Sizes::DEFAULT
        };
        let world = World {
            system: System::new(topology, sizes),
            launch: LaunchState::default(),
            rows: core::array::from_fn(|_| words(4, 0)),
            filled: M::U32::new(0),
            ctas: core::array::from_fn(|_| CtaState::default()),
            cell: core::array::from_fn(|_| M::U64::new(0)),
            data: M::U32::new(0),
        };
        for sm in 0..3 {
            world.with_launch(|launch| {
                Cta::start(&world.system, launch, &world.ctas[sm], sm as u32, 0);
            });
        }
        Arc::new(world)
    }

    fn with_launch<R>(&self, body: impl FnOnce(&Launch<'_, M>) -> R) -> R {
        let rows = |own: usize| Rows {
            own: Row {
                bank: 0,
                entries: &self.rows[own],
            },
            foreign: Foreign {
                filled: &self.filled,
                entries: &self.rows[own + 1],
            },
        };
        body(&Launch {
            id: LaunchId(0),
            device: DeviceRank(0),
            before: rows(0),
            named: &[],
            after: rows(2),
            overtaken: &[],
            waits_for: None,
            state: &self.launch,
        })
    }

    fn cta<R>(&self, index: usize, body: impl FnOnce(Cta<'_, M>) -> R) -> R {
        self.with_launch(|launch| {
            body(Cta {
                system: &self.system,
                launch,
                state: &self.ctas[index],
            })
        })
    }

    fn cell(&self) -> Cell<'_, M::U64, 2> {
        Cell::new(&self.cell)
    }

    /// A strong access of CTA `index` around `instruction`.
    fn strong<R>(
        &self,
        index: usize,
        (action, order): (Action, Order),
        instruction: impl FnOnce() -> R,
    ) -> R {
        let access = StrongAccess {
            mask: 0x0f,
            action,
            order,
            scope: RecordScope::Gpu,
            site: SiteId(1),
            thread: 0,
        };
        self.cta(index, |cta| {
            let sampler = Sampler::new(1, 1);
            let begun = cta.begin(self.cell(), &access, sampler);
            let result = instruction();
            cta.end(self.cell(), &begun, &access, sampler, |race| {
                panic!("a race was invented: {race:?}")
            });
            result
        })
    }

    /// The id of CTA `index`, and its current epoch, at which it now makes an access.
    fn touch(&self, index: usize) -> (crate::ids::ThreadId, Epoch) {
        self.cta(index, |cta| (cta.id().unwrap(), cta.touch()))
    }

    fn knows(&self, index: usize, (id, epoch): (crate::ids::ThreadId, Epoch)) -> bool {
        self.cta(index, |cta| cta.is_ordered(id, epoch))
    }
}

const RELEASE: (Action, Order) = (Action::Rmw, Order::Release);
const ACQUIRE: (Action, Order) = (Action::Read, Order::Acquire);
const RELAXED: (Action, Order) = (Action::Rmw, Order::Relaxed);

/// One CTA releases, another sees the value and acquires.
fn an_acquire_knows_what_was_released<M: Memory>()
where
    World<M>: Send + Sync,
{
    explore(|| {
        let world = World::<M>::new(8);
        let mine = world.touch(0);
        let (a, b) = (world.clone(), world);
        let releaser = thread::spawn(move || {
            a.strong(0, RELEASE, || a.data.fetch_add(1, Relaxed));
        });
        let acquirer = thread::spawn(move || {
            if b.strong(1, ACQUIRE, || b.data.load(Relaxed)) == 1 {
                assert!(b.knows(1, mine), "the release was missed");
            }
        });
        releaser.join().unwrap();
        acquirer.join().unwrap();
    });
}

#[test]
fn an_acquire_that_saw_the_value_knows_what_was_released() {
    an_acquire_knows_what_was_released::<Loom>();
}

#[test]
#[should_panic(expected = "the release was missed")]
fn a_publication_after_the_instruction_is_missed() {
    an_acquire_knows_what_was_released::<Broken<{ Essential::AtomicAnnounced as u8 }>>();
}

/// Two CTAs release into one word with a ring of `publications`; whoever acquires later knows
/// both.
fn sequences_are_joined<M: Memory>(publications: usize)
where
    World<M>: Send + Sync,
{
    explore(move || {
        let world = World::<M>::new(publications);
        // Not their first epochs, which a checkpoint taken at the start would cover.
        let touched = [0, 1].map(|index| {
            world.touch(index);
            world.cta(index, |cta| cta.publish());
            world.touch(index)
        });
        let threads = [0, 1].map(|index| {
            let world = world.clone();
            thread::spawn(move || {
                world.strong(index, RELEASE, || world.data.fetch_add(1, Relaxed));
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        world.strong(2, ACQUIRE, || world.data.load(Relaxed));
        for released in touched {
            assert!(world.knows(2, released), "a release was lost");
        }
    });
}

#[test]
fn two_releases_into_one_word_are_joined() {
    sequences_are_joined::<Loom>(8);
}

#[test]
#[should_panic(expected = "a release was lost")]
fn a_release_that_does_not_join_loses_the_other() {
    sequences_are_joined::<Broken<{ Essential::SequenceJoined as u8 }>>(8);
}

#[test]
#[should_panic(expected = "a release was lost")]
fn a_sync_word_that_is_just_stored_loses_the_other() {
    sequences_are_joined::<Broken<{ Essential::SyncWordCompared as u8 }>>(8);
}

#[test]
fn releases_that_find_their_ring_entry_taken_publish_top() {
    sequences_are_joined::<Loom>(1);
}

/// An ordinary store takes its bytes off the sync word while somebody releases into others.
fn stores_and_releases_share_a_word<M: Memory>()
where
    World<M>: Send + Sync,
{
    explore(|| {
        let world = World::<M>::new(8);
        world.strong(1, RELEASE, || {});
        let mine = world.touch(0);
        let (a, b) = (world.clone(), world.clone());
        let releaser = thread::spawn(move || {
            a.strong(0, RELEASE, || a.data.fetch_add(1, Relaxed));
        });
        let storer = thread::spawn(move || {
            let word = b.cell().sync_word();
            let found = word.load(Relaxed);
            if M::keeps(Essential::SyncWordCompared) {
                b.cell().clear_sync(found, 0xf0);
            } else if let Word::Sync(sync) = Word::from_bits(found) {
                word.store(sync.without(0xf0).bits(), Relaxed);
            }
        });
        releaser.join().unwrap();
        storer.join().unwrap();
        world.strong(2, ACQUIRE, || world.data.load(Relaxed));
        assert!(world.knows(2, mine), "a store erased a release");
    });
}

#[test]
fn an_ordinary_store_erases_no_release_of_other_bytes() {
    stores_and_releases_share_a_word::<Loom>();
}

#[test]
#[should_panic(expected = "a store erased a release")]
fn an_ordinary_store_without_comparison_erases_a_release() {
    stores_and_releases_share_a_word::<Broken<{ Essential::SyncWordCompared as u8 }>>();
}

/// Two CTAs count; the last one resets the counter with an ordinary store.
fn the_last_user_resets_the_counter<M: Memory>()
where
    World<M>: Send + Sync,
{
    explore(|| {
        let world = World::<M>::new(8);
        let threads = [0, 1].map(|index| {
            let world = world.clone();
            thread::spawn(move || {
                if world.strong(index, RELAXED, || world.data.fetch_add(1, Relaxed)) == 1 {
                    world.cta(index, |cta| {
                        let sampler = Sampler::new(1, 1);
                        let write = Action::Write;
                        cta.weak(world.cell(), 0x0f, write, SiteId(2), sampler, |race| {
                            panic!("a race was invented: {race:?}")
                        });
                    });
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_late_end_of_an_atomic_does_not_accuse_who_observed_it() {
    the_last_user_resets_the_counter::<Loom>();
}

#[test]
#[should_panic(expected = "a race was invented")]
fn an_atomic_that_is_not_announced_accuses_who_observed_it() {
    the_last_user_resets_the_counter::<Broken<{ Essential::AtomicAnnounced as u8 }>>();
}

#[test]
#[should_panic(expected = "a race was invented")]
fn a_late_record_that_is_just_stored_accuses_who_observed_it() {
    the_last_user_resets_the_counter::<Broken<{ Essential::AtomicRecordCompared as u8 }>>();
}

/// Two warps of one CTA acquire for the first time, from different publishers.
fn two_warps_make_one_private_clock<M: Memory>()
where
    World<M>: Send + Sync,
{
    // Not with few preemptions only: they would run out while a warp waits for the lock.
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(|| {
        let world = World::<M>::new(8);
        let released = [0, 1].map(|index| {
            let touched = world.touch(index);
            let own = world.cta(index, |cta| cta.publish());
            let sync = world.cta(index, |cta| cta.joined(None, own, 0xff, RecordScope::Gpu));
            (touched, sync)
        });
        let warps = released.map(|(_, sync)| {
            let world = world.clone();
            thread::spawn(move || world.cta(2, |cta| cta.acquire(sync)))
        });
        for warp in warps {
            warp.join().unwrap();
        }
        for (touched, _) in released {
            assert!(world.knows(2, touched), "a merge was lost");
        }
    });
}

#[test]
fn two_warps_that_acquire_share_one_private_clock() {
    two_warps_make_one_private_clock::<Loom>();
}

#[test]
#[should_panic(expected = "a merge was lost")]
fn a_lock_released_too_early_loses_a_merge() {
    two_warps_make_one_private_clock::<Broken<{ Essential::LockReleased as u8 }>>();
}

/// One rank restarts while another one launches.
fn a_launch_after_a_restart_sees_it<M: Memory>()
where
    M::U32: Send + Sync,
{
    explore(|| {
        let marks = Arc::new((words::<M::U32>(2, 0), M::U32::new(7)));
        let (a, b) = (marks.clone(), marks);
        RestartMarks::<M>::new(&a.0).idle(0);
        RestartMarks::<M>::new(&a.0).idle(1);
        let restarter = thread::spawn(move || {
            RestartMarks::<M>::new(&a.0).try_restart(|| a.1.store(0, Relaxed))
        });
        let launcher = thread::spawn(move || {
            let launched = RestartMarks::<M>::new(&b.0).launch(1);
            launched.ok().map(|()| b.1.load(Relaxed))
        });
        let restarted = restarter.join().unwrap();
        if let (true, Some(epoch)) = (restarted, launcher.join().unwrap()) {
            assert_eq!(epoch, 0, "a launch saw what was to be forgotten");
        }
    });
}

#[test]
fn a_launch_comes_before_a_restart_or_sees_it() {
    a_launch_after_a_restart_sees_it::<Loom>();
}

#[test]
#[should_panic(expected = "a launch saw what was to be forgotten")]
fn a_restart_announced_too_early_is_not_seen() {
    a_launch_after_a_restart_sees_it::<Broken<{ Essential::RestartDone as u8 }>>();
}
