//! The SMs of a host device: places for one CTA each.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// SMs on which no CTA is.
pub(crate) struct Sms {
    /// The lowest last.
    free: Mutex<Vec<u32>>,
    freed: Condvar,
}

impl Sms {
    /// As many as `count`.
    pub(crate) fn new(count: u32) -> Sms {
        Sms {
            free: Mutex::new((0..count).rev().collect()),
            freed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least one SM, at most `most`, and no more than half of those that are free: another launch may
    /// be what this one waits for.
    pub(super) fn take(&self, most: u64) -> Vec<u32> {
        let free = self.lock();
        let mut free = self
            .freed
            .wait_while(free, |free| free.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let half = free.len().div_ceil(2);
        let count = usize::try_from(most).map_or(half, |most| half.min(most.max(1)));
        let rest = free.len() - count;
        let mut taken = free.split_off(rest);
        taken.reverse();
        taken
    }

    pub(super) fn give_back(&self, sms: &[u32]) {
        let mut free = self.lock();
        free.extend(sms);
        // So that launches that follow each other use the same slots.
        free.sort_unstable_by(|a, b| b.cmp(a));
        drop(free);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_gets_the_lowest_and_at_most_half() {
        let sms = Sms::new(4);
        assert_eq!(sms.take(100), [0, 1]);
        assert_eq!(sms.take(1), [2]);
        assert_eq!(sms.take(9), [3]);
        sms.give_back(&[2]);
        sms.give_back(&[0, 1]);
        assert_eq!(sms.take(2), [0, 1]);
    }
}
