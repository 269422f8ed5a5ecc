//! The lock of a CTA: held while its clock changes or is published, once per warp. Lookups take no
//! lock.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};

/// Runs `body` while `word` says that the lock is held.
pub(super) fn locked<M: Memory, R>(word: &M::U32, body: impl FnOnce() -> R) -> R {
    while word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        M::pause();
    }
    let result = body();
    word.store(0, M::order(Essential::LockReleased, Release));
    result
}
