//! Slots: which resident CTA has which thread id.
//!
//! A mask per bank and SM hands slots out, the lowest free one first, so that low numbers fill
//! first and clocks stay short. The *high-water mark* of a bank says how many of its slots have
//! been used since the last restart; no pass over slots goes further.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::topology::{Place, Topology};
use crate::atomics::{Atomic, Essential, Memory};

/// The masks of one bank, and its high-water mark.
#[derive(Debug)]
pub struct Slots<'m, M: Memory> {
    /// One word per SM: bit `k` is set while slot `k * SMs + smid` is taken.
    masks: &'m [M::U32],
    high_water: &'m M::U32,
    slots_per_sm: u32,
}

impl<'m, M: Memory> Slots<'m, M> {
    /// The slots of bank `bank`, given the masks and marks of all banks.
    pub fn new(
        topology: &Topology,
        bank: u32,
        masks: &'m [M::U32],
        high_water: &'m [M::U32],
    ) -> Self {
        let sms = topology.sms() as usize;
        Slots {
            masks: &masks[bank as usize * sms..][..sms],
            high_water: &high_water[bank as usize],
            slots_per_sm: topology.slots_per_sm(),
        }
    }

    /// Takes the lowest free slot of SM `sm`, or `None` if all are taken or there is no such SM.
    pub fn take(&self, sm: u32) -> Option<u32> {
        let mask = self.masks.get(sm as usize)?;
        let all = u32::MAX >> (u32::BITS - self.slots_per_sm);
        loop {
            let free = !mask.load(Relaxed) & all;
            if free == 0 {
                return None;
            }
            let bit = free & free.wrapping_neg();
            // Acquires what the last holder of the slot wrote before it gave it back.
            if mask.fetch_or(bit, Acquire) & bit == 0 {
                let slot = bit.trailing_zeros() * self.masks.len() as u32 + sm;
                self.high_water.fetch_max(slot + 1, Relaxed);
                return Some(slot);
            }
        }
    }

    /// Gives `slot` back.
    pub fn give_back(&self, slot: u32) {
        let sms = self.masks.len() as u32;
        let order = M::order(Essential::SlotGivenBack, Release);
        self.masks[(slot % sms) as usize].fetch_and(!(1 << (slot / sms)), order);
    }
}

/// How many slots of each bank have been used.
#[derive(Debug)]
pub struct HighWater<'m, M: Memory> {
    marks: &'m [M::U32],
}

impl<'m, M: Memory> HighWater<'m, M> {
    /// The marks of all banks.
    pub const fn new(marks: &'m [M::U32]) -> Self {
        HighWater { marks }
    }

    /// How many slots of `bank` have been used, the unused ones below a used one included.
    pub fn of(&self, bank: u32) -> u32 {
        self.marks[bank as usize].load(Relaxed)
    }

    /// Every place that has been used.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.marks.len() as u32)
            .flat_map(|bank| (0..self.of(bank)).map(move |slot| Place { bank, slot }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::atomics::{Native, words};

    #[test]
    fn low_slots_fill_first_and_a_full_sm_gives_none() {
        let topology = Topology::new(1, 3, 2, 1).unwrap();
        let (masks, marks) = (words(3, 0), words(1, 0));
        let slots = Slots::<Native>::new(&topology, 0, &masks, &marks);
        assert_eq!(slots.take(1), Some(1));
        assert_eq!(slots.take(1), Some(4));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.take(3), None);
        slots.give_back(1);
        assert_eq!(slots.take(1), Some(1));
        let high_water = HighWater::<Native>::new(&marks);
        assert_eq!(high_water.of(0), 5);
        assert_eq!(high_water.places().count(), 5);
    }

    #[test]
    fn an_sm_can_have_32_slots() {
        let topology = Topology::new(1, 1, 32, 1).unwrap();
        let (masks, marks) = (words(1, 0), words(1, 0));
        let slots = Slots::<Native>::new(&topology, 0, &masks, &marks);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(0)).collect();
        assert_eq!(taken, (0..32).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn no_slot_has_two_holders(steps in prop::collection::vec((0u32..3, any::<bool>()), 0..60)) {
            let topology = Topology::new(2, 3, 3, 2).unwrap();
            let (masks, marks) = (words(12, 0), words(4, 0));
            let slots = Slots::<Native>::new(&topology, 2, &masks, &marks);
            let mut held = BTreeSet::new();
            let mut most = 0;
            for (sm, take) in steps {
                let of_sm: Vec<u32> = held.iter().copied().filter(|s| s % 3 == sm).collect();
                if take {
                    let slot = slots.take(sm);
                    let lowest = (0..3).map(|k| k * 3 + sm).find(|s| !held.contains(s));
                    prop_assert_eq!(slot, lowest);
                    held.extend(slot);
                    most = most.max(slot.map_or(0, |s| s + 1));
                } else if let Some(&slot) = of_sm.last() {
                    slots.give_back(slot);
                    held.remove(&slot);
                }
            }
            prop_assert_eq!(HighWater::<Native>::new(&marks).of(2), most);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom, words};

    /// Two CTAs on one SM with one slot: whoever comes second must see the epoch of the first.
    fn successive_holders_count_on<M: Memory<U32: 'static, U64: 'static>>() {
        loom::model(|| {
            let topology = Topology::new(1, 1, 1, 1).unwrap();
            let memory = Arc::new((words::<M::U32>(1, 0), words::<M::U32>(1, 0), M::U32::new(0)));
            let cta = move |memory: &(Vec<M::U32>, Vec<M::U32>, M::U32)| {
                let slots = Slots::<M>::new(&topology, 0, &memory.0, &memory.1);
                let slot = slots.take(0)?;
                let epoch = memory.2.load(Relaxed) + 1;
                memory.2.store(epoch, Relaxed);
                slots.give_back(slot);
                Some(epoch)
            };
            let other = memory.clone();
            let first = thread::spawn(move || cta(&other));
            let second = cta(&memory);
            if let (Some(a), Some(b)) = (first.join().unwrap(), second) {
                assert_ne!(a, b, "two CTAs have the same thread id and epoch");
            }
        });
    }

    #[test]
    fn a_slot_has_one_holder_whose_successor_counts_on() {
        successive_holders_count_on::<Loom>();
    }

    #[test]
    #[should_panic(expected = "the same thread id and epoch")]
    fn a_slot_given_back_too_early_repeats_an_epoch() {
        successive_holders_count_on::<Broken<{ Essential::SlotGivenBack as u8 }>>();
    }
}
