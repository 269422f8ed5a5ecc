//! The atomics facade: what the lock-free protocols see of memory.
//!
//! A protocol is generic over [`Memory`] and takes slices of its words. [`Native`] words are the
//! ordinary atomics; a slice of them may lie in a vector or, through [`map_words32`] and
//! [`map_words64`], in mapped memory that other processes or a device share. With `--cfg loom`
//! there is `Loom` as well: its words cannot live in mapped memory, and loom explores every
//! interleaving of them.

use core::fmt::Debug;
use core::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};

/// One atomic word.
pub trait Atomic: Send + Sync + Debug {
    /// What it holds.
    type Value: Copy + Eq + Debug;

    /// A word that holds `value`.
    fn new(value: Self::Value) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> Self::Value;
    /// Writes the word.
    fn store(&self, value: Self::Value, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Writes `new` if the word holds `current`. Returns what it held: `Ok` if it was written.
    ///
    /// # Errors
    /// The word held something else, which is returned.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    /// Adds, wrapping around, and returns what it held.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Sets the bits of `value` and returns what it held.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Keeps only the bits of `value` and returns what it held.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Raises the word to at least `value` and returns what it held.
    fn fetch_max(&self, value: Self::Value, order: Ordering) -> Self::Value;
}

/// An ordering that a protocol cannot do without. Each has a model that fails when it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Essential {
    /// A slot is given back after its last epoch was written.
    SlotGivenBack,
    /// The lock of a CTA is released after what it protects was changed.
    LockReleased,
    /// A ring entry is filled before it is said to be complete.
    EntryFilled,
    /// A ring entry is looked at again after it was read.
    EntryStillThere,
    /// A publication is claimed after its clock is known, and a checkpoint copies after it has
    /// read the head.
    HeadBeforeCheckpoint,
    /// The sync word changes only from what was found there.
    SyncWordCompared,
    /// A release that meets a sequence takes the sequence along.
    SequenceJoined,
    /// An atomic access is announced before its instruction.
    AtomicAnnounced,
    /// The record of an atomic access replaces nothing but its announcement.
    AtomicRecordCompared,
    /// Memory is zeroed before the ranks may launch again.
    RestartDone,
    /// A rank writes its mark before it looks at the others'.
    MarkBeforeLook,
    /// A release that has lost against another takes that one along when it tries again.
    RetryJoined,
    /// Who gives up publishing exchanges in "everything up to now".
    TopExchanged,
    /// That is for all bytes and everybody, since it may have replaced anybody's release.
    TopForAll,
    /// A place of the race ring, or of its filter, is taken only as it was found.
    PlaceClaimed,
    /// A place of the race ring is given back after its entry was read.
    EntryTaken,
    /// The name and the entry of a site are written before the site is said to be there.
    SiteFilled,
}

/// A kind of memory: its words and its fence.
pub trait Memory: Sized + 'static {
    /// A 32-bit word.
    type U32: Atomic<Value = u32>;
    /// A 64-bit word.
    type U64: Atomic<Value = u64>;

    /// How often a release tries to change a sync word before it exchanges a TOP publication in.
    const RELEASE_ATTEMPTS: usize = 64;

    /// A fence between this thread's accesses (C++ `atomic_thread_fence`).
    fn fence(order: Ordering);

    /// Lets another thread run: between two looks at a word that another thread will change.
    fn pause();

    /// Whether `what` is done as it must be. A model breaks one to show that it is essential.
    #[inline(always)]
    fn keeps(_what: Essential) -> bool {
        true
    }

    /// `order`, which is essential for `what`.
    #[inline(always)]
    fn order(what: Essential, order: Ordering) -> Ordering {
        if Self::keeps(what) {
            order
        } else {
            Ordering::Relaxed
        }
    }

    /// A fence that is essential for `what`.
    #[inline(always)]
    fn essential_fence(what: Essential, order: Ordering) {
        if Self::keeps(what) {
            Self::fence(order);
        }
    }
}

macro_rules! atomic {
    ($value:ty, $($word:tt)+) => {
        impl Atomic for $($word)+ {
            type Value = $value;

            #[inline(always)]
            fn new(value: $value) -> Self {
                <$($word)+>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
            #[inline(always)]
            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.fetch_max(value, order)
            }
        }
    };
}

atomic!(u32, AtomicU32);
atomic!(u64, AtomicU64);

/// The machine's own memory.
#[derive(Clone, Copy, Debug)]
pub struct Native;

impl Memory for Native {
    type U32 = AtomicU32;
    type U64 = AtomicU64;

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::atomic;

    use super::{Atomic, Essential, Memory, Ordering};

    macro_rules! modelled {
        ($name:ident, $value:ty, $word:ty) => {
            /// A word inside a loom model.
            ///
            /// Loom 0.7 reorders a store with the *last* access to the word only: if that was the
            /// storing thread's own load, it never tries the store before the earlier load of
            /// another thread, and so misses most of what a load followed by a plain store can do.
            /// A store to a second word that nobody reads, before each load, makes it try the
            /// loads in every order, and synchronises nothing.
            #[derive(Debug)]
            pub struct $name {
                word: $word,
                turn: atomic::AtomicU32,
            }

            impl Atomic for $name {
                type Value = $value;

                fn new(value: $value) -> Self {
                    $name {
                        word: <$word>::new(value),
                        turn: atomic::AtomicU32::new(0),
                    }
                }
                fn load(&self, order: Ordering) -> $value {
                    self.turn.store(0, Ordering::Relaxed);
                    self.word.load(order)
                }
                fn store(&self, value: $value, order: Ordering) {
                    self.word.store(value, order);
                }
                fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.word.swap(value, order)
                }
                fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.word.compare_exchange(current, new, success, failure)
                }
                fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    self.word.fetch_add(value, order)
                }
                fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.word.fetch_or(value, order)
                }
                fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    self.word.fetch_and(value, order)
                }
                fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    self.word.fetch_max(value, order)
                }
            }
        };
    }

    modelled!(LoomU32, u32, atomic::AtomicU32);
    modelled!(LoomU64, u64, atomic::AtomicU64);

    /// Memory inside a loom model.
    #[derive(Clone, Copy, Debug)]
    pub struct Loom;

    impl Memory for Loom {
        type U32 = LoomU32;
        type U64 = LoomU64;

        fn fence(order: Ordering) {
            atomic::fence(order);
        }

        fn pause() {
            loom::thread::yield_now();
        }
    }

    /// [`Loom`] with one essential ordering broken: `WHAT` is an [`Essential`] as a number.
    #[derive(Clone, Copy, Debug)]
    pub struct Broken<const WHAT: u8>;

    impl<const WHAT: u8> Memory for Broken<WHAT> {
        type U32 = LoomU32;
        type U64 = LoomU64;

        fn fence(order: Ordering) {
            Loom::fence(order);
        }

        fn pause() {
            Loom::pause();
        }

        fn keeps(what: Essential) -> bool {
            what as u8 != WHAT
        }
    }

    /// `M` where a release gives up after its first attempt.
    #[derive(Clone, Copy, Debug)]
    pub struct Hasty<M>(core::marker::PhantomData<M>);

    impl<M: Memory> Memory for Hasty<M> {
        type U32 = M::U32;
        type U64 = M::U64;

        const RELEASE_ATTEMPTS: usize = 1;

        fn fence(order: Ordering) {
            M::fence(order);
        }

        fn pause() {
            M::pause();
        }

        fn keeps(what: Essential) -> bool {
            M::keeps(what)
        }
    }
}

#[cfg(loom)]
pub use model::{Broken, Hasty, Loom, LoomU32, LoomU64};

/// `count` words that hold `value`.
pub fn words<A: Atomic>(count: usize, value: A::Value) -> Vec<A> {
    (0..count).map(|_| A::new(value)).collect()
}

/// The `count` 32-bit words of mapped memory at `address`.
///
/// # Safety
/// For the whole of `'a`, `count * 4` bytes at `address` must stay mapped, readable and writable,
/// and everybody who reaches them from this process must use atomic accesses. `address` must be
/// aligned to 4 bytes.
pub const unsafe fn map_words32<'a>(address: *mut u32, count: usize) -> &'a [AtomicU32] {
    // SAFETY: an `AtomicU32` has the size and bit validity of a `u32`; the caller promises the
    // alignment, the lifetime and that all accesses are atomic.
    unsafe { core::slice::from_raw_parts(address.cast::<AtomicU32>(), count) }
}

/// The `count` 64-bit words of mapped memory at `address`.
///
/// # Safety
/// As for [`map_words32`], with 8 bytes a word and aligned to 8 bytes.
pub const unsafe fn map_words64<'a>(address: *mut u64, count: usize) -> &'a [AtomicU64] {
    // SAFETY: an `AtomicU64` has the size and bit validity of a `u64`; the caller promises the
    // alignment, the lifetime and that all accesses are atomic.
    unsafe { core::slice::from_raw_parts(address.cast::<AtomicU64>(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::Relaxed;

    fn exercise<A: Atomic<Value: From<u8>>>() {
        let word = A::new(1.into());
        assert_eq!(word.load(Relaxed), 1.into());
        word.store(2.into(), Relaxed);
        assert_eq!(word.swap(3.into(), Relaxed), 2.into());
        assert_eq!(
            word.compare_exchange(9.into(), 4.into(), Relaxed, Relaxed),
            Err(3.into())
        );
        assert_eq!(
            word.compare_exchange(3.into(), 4.into(), Relaxed, Relaxed),
            Ok(3.into())
        );
        assert_eq!(word.fetch_add(1.into(), Relaxed), 4.into());
        assert_eq!(word.fetch_or(8.into(), Relaxed), 5.into());
        assert_eq!(word.fetch_and(12.into(), Relaxed), 13.into());
        assert_eq!(word.fetch_max(20.into(), Relaxed), 12.into());
        assert_eq!(word.load(Relaxed), 20.into());
    }

    #[test]
    fn every_operation_returns_what_the_word_held() {
        exercise::<AtomicU32>();
        exercise::<AtomicU64>();
    }

    #[test]
    fn mapped_words_are_the_memory_they_map() {
        let mut memory = [1u64, 2];
        // SAFETY: `memory` outlives the slice and is reached only through it meanwhile.
        let words = unsafe { map_words64(memory.as_mut_ptr(), memory.len()) };
        words[1].store(0x5_0000_0006, Relaxed);
        assert_eq!(memory[1], 0x5_0000_0006);
        let mut halves = [1u32, 2];
        // SAFETY: as above.
        let words = unsafe { map_words32(halves.as_mut_ptr(), halves.len()) };
        words[0].store(7, Relaxed);
        Native::fence(Ordering::SeqCst);
        assert_eq!(halves, [7, 2]);
    }
}
