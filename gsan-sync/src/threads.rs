//! Threads of the program: who keeps a stream, whether that thread still runs, and threads that wait for
//! each other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A thread, by a number that no other one of the process ever has: its number for the system in the low
/// half. 0: none.
pub(crate) type Thread = u64;

/// Threads that run and have kept a stream, or have wanted to.
static LIVE: Mutex<BTreeSet<Thread>> = Mutex::new(BTreeSet::new());

/// Who waits for a stream, and where it says who keeps it.
static WAITING: Mutex<Vec<(Thread, Keeper)>> = Mutex::new(Vec::new());

/// Which thread keeps a stream.
pub(crate) type Keeper = Arc<AtomicU64>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends with its thread.
struct Life(Cell<Thread>);

impl Drop for Life {
    fn drop(&mut self) {
        lock(&LIVE).remove(&self.0.get());
    }
}

thread_local! {
    static NUMBER: Cell<Thread> = const { Cell::new(0) };
    static LIFE: Life = const { Life(Cell::new(0)) };
}

/// This thread.
#[inline]
pub(crate) fn this() -> Thread {
    match NUMBER.get() {
        0 => register(),
        number => number,
    }
}

#[cold]
fn register() -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let system = std::fs::read_link("/proc/thread-self").ok();
    let system = system
        .as_deref()
        .and_then(|path| path.file_name()?.to_str());
    let system: u32 = system.and_then(|name| name.parse().ok()).unwrap_or(0);
    let number = u64::from(NEXT.fetch_add(1, Relaxed)) << 32 | u64::from(system);
    NUMBER.set(number);
    // A thread that is about to end counts as one that runs, if it begins something now.
    if LIFE.try_with(|life| life.0.set(number)).is_ok() {
        lock(&LIVE).insert(number);
    }
    number
}

/// Whether a thread has ended.
pub(crate) fn has_ended(thread: Thread) -> bool {
    !lock(&LIVE).contains(&thread)
}

/// What people call a thread.
pub(crate) fn name(thread: Thread) -> String {
    let system = thread as u32;
    let name = std::fs::read_to_string(format!("/proc/self/task/{system}/comm"));
    match name {
        _ if system == 0 => "another thread".into(),
        Ok(name) if !has_ended(thread) => format!("thread {system} ({})", name.trim_end()),
        _ => format!("thread {system}"),
    }
}

/// The time that a thread waits for a stream.
pub(crate) struct Waiting {
    thread: Thread,
}

impl Waiting {
    /// A thread waits for the stream that `keeper` belongs to. `None` if it would wait for itself: for a
    /// stream that is kept by a thread that waits for a stream … that it keeps. Who waits keeps nothing
    /// new, so the last one to come closes a circle, and is the only one to be told.
    pub(crate) fn enter(thread: Thread, keeper: &Keeper) -> Option<Waiting> {
        let mut waiting = lock(&WAITING);
        let mut next = keeper.load(Relaxed);
        // Longer than any circle.
        for _ in 0..=waiting.len() {
            if next == thread {
                return None;
            }
            let Some((_, keeper)) = waiting.iter().find(|(waits, _)| *waits == next) else {
                break;
            };
            next = keeper.load(Relaxed);
        }
        waiting.push((thread, Arc::clone(keeper)));
        Some(Waiting { thread })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = lock(&WAITING);
        if let Some(at) = waiting
            .iter()
            .position(|(thread, _)| *thread == self.thread)
        {
            waiting.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_number_until_it_ends() {
        let own = this();
        assert_eq!(this(), own);
        assert!(!has_ended(own));
        let other = std::thread::spawn(|| (this(), has_ended(this()))).join();
        let (other, ended) = other.unwrap();
        assert!(other != own && !ended);
        assert!(has_ended(other));
        assert!(name(own).starts_with("thread "), "{}", name(own));
    }

    #[test]
    fn a_circle_of_threads_is_seen_by_its_last() {
        let numbers: Vec<Thread> = (0..3)
            .map(|_| std::thread::spawn(this).join().unwrap())
            .collect();
        let kept: Vec<Keeper> = numbers.iter().map(|&n| Arc::new(n.into())).collect();
        let first = Waiting::enter(numbers[0], &kept[1]);
        let second = Waiting::enter(numbers[1], &kept[2]);
        assert!(first.is_some() && second.is_some());
        assert!(Waiting::enter(numbers[2], &kept[0]).is_none());
        // Nobody keeps it any more.
        let keeper = kept[0].swap(0, Relaxed);
        assert!(Waiting::enter(numbers[2], &kept[0]).is_some());
        kept[0].store(keeper, Relaxed);
        drop(second);
        assert!(Waiting::enter(numbers[2], &kept[0]).is_some());
    }
}
