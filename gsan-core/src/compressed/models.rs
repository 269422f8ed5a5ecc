//! Models of the protocols in which whole CTAs take part; loom runs them in every interleaving.
//!
//! Each is run with one essential thing broken, too, and must fail then.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use loom::sync::Arc;
use loom::thread;

use super::cta::Known;
use super::group_restart::{Mark, MarkWords, Member, Next};
use super::restart::RestartMarks;
use super::strong::StrongAccess;
use super::world::World;
use crate::atomics::{Atomic, Broken, Essential, Hasty, Loom, Memory, words};
use crate::event::Action;
use crate::ids::SiteId;
use crate::record::RecordScope;
use crate::reservoir::Sampler;
use crate::scope::Order;

/// Runs `model` in every interleaving with few preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(model);
}

impl<M: Memory> World<M> {
    /// A strong access of CTA `index` around `instruction`.
    fn strong<R>(&self, index: usize, what: (Action, Order), instruction: impl FnOnce() -> R) -> R {
        self.strong_at(index, 0x0f, what, instruction)
    }

    /// The same, to the bytes of `mask`.
    fn strong_at<R>(
        &self,
        index: usize,
        mask: u8,
        (action, order): (Action, Order),
        instruction: impl FnOnce() -> R,
    ) -> R {
        let access = StrongAccess {
            mask,
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
        let world = Arc::new(World::<M>::new(8));
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
        let world = Arc::new(World::<M>::new(publications));
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

/// Two CTAs release into `masks` of one word at once, and one may lose against the other: whoever
/// acquires from either place later knows who released there.
fn releases_that_collide_are_kept<M: Memory>(masks: [u8; 2])
where
    World<M>: Send + Sync,
{
    explore(move || {
        let world = Arc::new(World::<M>::new(8));
        let touched = [0, 1].map(|index| {
            world.touch(index);
            world.cta(index, |cta| cta.publish());
            world.touch(index)
        });
        let threads = [0, 1].map(|index| {
            let world = world.clone();
            thread::spawn(move || {
                world.cta(index, |cta| {
                    let word = world.cell().sync_word();
                    cta.publish_into(word, masks[index], RecordScope::Gpu);
                });
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        for (mask, released) in masks.into_iter().zip(touched) {
            world.strong_at(2, mask, ACQUIRE, || {});
            assert!(world.knows(2, released), "a release was lost");
        }
    });
}

#[test]
fn a_release_that_loses_against_another_tries_again() {
    releases_that_collide_are_kept::<Loom>([0x0f, 0x0f]);
}

#[test]
#[should_panic(expected = "a release was lost")]
fn a_release_that_tries_again_as_before_loses_the_other() {
    releases_that_collide_are_kept::<Broken<{ Essential::RetryJoined as u8 }>>([0x0f, 0x0f]);
}

#[test]
fn a_release_that_gives_up_publishes_everything() {
    releases_that_collide_are_kept::<Hasty<Loom>>([0x0f, 0x0f]);
}

#[test]
fn a_release_that_gives_up_publishes_for_all_bytes() {
    releases_that_collide_are_kept::<Hasty<Loom>>([0x0f, 0xf0]);
}

#[test]
#[should_panic(expected = "a release was lost")]
fn a_release_that_gives_up_and_exchanges_its_own_clock_loses_the_other() {
    releases_that_collide_are_kept::<Hasty<Broken<{ Essential::TopExchanged as u8 }>>>([
        0x0f, 0x0f,
    ]);
}

#[test]
#[should_panic(expected = "a release was lost")]
fn a_release_that_gives_up_for_its_own_bytes_only_loses_the_other() {
    releases_that_collide_are_kept::<Hasty<Broken<{ Essential::TopForAll as u8 }>>>([0x0f, 0xf0]);
}

/// Two CTAs count; the last one resets the counter with an ordinary store.
fn the_last_user_resets_the_counter<M: Memory>()
where
    World<M>: Send + Sync,
{
    explore(|| {
        let world = Arc::new(World::<M>::new(8));
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
        let world = Arc::new(World::<M>::new(8));
        let released = [0, 1].map(|index| {
            let touched = world.touch(index);
            let own = world.cta(index, |cta| cta.publish());
            let known = Known::default();
            let sync = world.cta(index, |cta| {
                cta.joined(None, own, known, 0xff, RecordScope::Gpu)
            });
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

/// The marks of two processes, and what each has zeroed, by generation.
struct Pair<M: Memory> {
    marks: Vec<M::U32>,
    zeroed: Vec<M::U32>,
}

struct Side<M: Memory> {
    pair: Arc<Pair<M>>,
    own: usize,
}

impl<M: Memory> MarkWords for Side<M> {
    type Error = core::convert::Infallible;

    fn others(&self, each: &mut dyn FnMut(Mark)) -> Result<(), Self::Error> {
        each(Mark::from_word(self.pair.marks[1 - self.own].load(Relaxed)));
        Ok(())
    }

    fn write(&self, mark: Mark) -> Result<(), Self::Error> {
        self.pair.marks[self.own].store(mark.word(), Relaxed);
        Ok(())
    }

    fn fence(&self, what: Essential) {
        M::essential_fence(what, SeqCst);
    }
}

impl<M: Memory> Side<M> {
    /// Zeroes what is its own.
    fn zero(&self, member: &mut Member) {
        self.pair.zeroed[self.own].store(member.generation(), Relaxed);
        member.zeroed(self).unwrap();
    }

    /// Launches, and looks at what both have zeroed.
    fn launch(&self, member: &mut Member) {
        loop {
            match member.launch(self).unwrap() {
                Next::GoOn => break,
                Next::Wait => M::pause(),
                Next::Zero => self.zero(member),
            }
        }
        for zeroed in &self.pair.zeroed {
            let generation = zeroed.load(Relaxed);
            assert_eq!(
                generation,
                member.generation(),
                "memory of another generation"
            );
        }
    }
}

/// Two idle processes: both try to restart, and one of them launches.
fn processes_launch_in_one_generation<M: Memory>()
where
    M::U32: Send + Sync,
    M::U64: Send + Sync,
{
    explore(|| {
        let pair = Arc::new(Pair::<M> {
            marks: words::<M::U32>(2, 0),
            zeroed: words::<M::U32>(2, 0),
        });
        let idle = |own| {
            let side = Side {
                pair: pair.clone(),
                own,
            };
            let mut member = Member::default();
            member.idle(&side).unwrap();
            (side, member)
        };
        let (a, b) = (idle(0), idle(1));
        let launcher = thread::spawn(move || {
            let (side, mut member) = a;
            side.launch(&mut member);
            (side, member)
        });
        let (side, mut member) = b;
        if member.try_restart(&side).unwrap() == Next::Zero {
            side.zero(&mut member);
        }
        let _ = launcher.join().unwrap();
    });
}

#[test]
fn a_launch_is_of_the_generation_of_all_memory() {
    processes_launch_in_one_generation::<Loom>();
}

#[test]
#[should_panic(expected = "memory of another generation")]
fn a_rank_that_looks_before_it_has_written_its_mark_launches_too_early() {
    processes_launch_in_one_generation::<Broken<{ Essential::MarkBeforeLook as u8 }>>();
}

#[test]
#[should_panic(expected = "memory of another generation")]
fn a_rank_that_says_too_early_that_it_has_zeroed_lets_others_launch() {
    processes_launch_in_one_generation::<Broken<{ Essential::RestartDone as u8 }>>();
}
