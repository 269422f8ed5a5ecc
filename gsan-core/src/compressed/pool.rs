//! The pool of private clocks, bounded.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::vector::{Shape, Vector};
use crate::atomics::{Atomic, Memory};

/// The private clocks of one device.
#[derive(Debug)]
pub struct Pool<'m, M: Memory> {
    /// One bit per clock, set while it is taken.
    taken: &'m [M::U32],
    clocks: &'m [M::U32],
    shape: Shape,
}

impl<'m, M: Memory> Pool<'m, M> {
    /// How many words of bits `count` clocks need.
    pub const fn mask_words(count: usize) -> usize {
        count.div_ceil(u32::BITS as usize)
    }

    /// The clocks in `clocks`.
    pub fn new(taken: &'m [M::U32], clocks: &'m [M::U32], shape: Shape) -> Self {
        let pool = Pool {
            taken,
            clocks,
            shape,
        };
        debug_assert_eq!(taken.len(), Self::mask_words(pool.len()));
        pool
    }

    /// How many clocks there are.
    pub fn len(&self) -> usize {
        self.clocks.len() / self.shape.words()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a clock that knows nothing, or `None` if all are taken. The search begins at a word
    /// that depends on `hint`, so that CTAs do not meet.
    pub fn take(&self, hint: u32) -> Option<usize> {
        for step in 0..self.taken.len() {
            let at = (hint as usize + step) % self.taken.len();
            let here = (self.len() - at * 32).min(32) as u32;
            let all = u32::MAX >> (32 - here);
            loop {
                let free = !self.taken[at].load(Relaxed) & all;
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                if self.taken[at].fetch_or(bit, Acquire) & bit == 0 {
                    let index = at * 32 + bit.trailing_zeros() as usize;
                    self.clock(index).clear();
                    return Some(index);
                }
            }
        }
        None
    }

    /// Gives clock `index` back.
    pub fn give_back(&self, index: usize) {
        self.taken[index / 32].fetch_and(!(1 << (index % 32)), Release);
    }

    /// Clock `index`.
    pub fn clock(&self, index: usize) -> Vector<'m, M> {
        Vector::of(self.clocks, index, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::{Native, words};
    use std::collections::BTreeSet;

    #[test]
    fn every_clock_is_taken_once_whatever_the_hint() {
        let shape = Shape::holding(1, 1);
        let (taken, clocks) = (words(2, 0), words(40 * shape.words(), 7));
        let pool = Pool::<Native>::new(&taken, &clocks, shape);
        let got: BTreeSet<usize> = (0..40).filter_map(|hint| pool.take(hint)).collect();
        assert_eq!(got, (0..40).collect());
        assert_eq!(pool.take(0), None);
        pool.give_back(35);
        assert_eq!(pool.take(0), Some(35));
        assert!(pool.clock(35).is_empty());
    }

    #[test]
    fn an_empty_pool_has_nothing_to_give() {
        let shape = Shape::holding(1, 1);
        let pool = Pool::<Native>::new(&[], &[], shape);
        assert!(pool.is_empty());
        assert_eq!(pool.take(3), None);
    }
}
