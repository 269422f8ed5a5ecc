//! Which readers a full cell keeps: bottom-k sampling.
//!
//! Every reader gets a number that depends on the seed, its thread id, its epoch and the place in
//! memory only. A cell that cannot hold all its readers keeps those with the smallest numbers. That is a
//! uniform sample of the distinct readers, however often and in what order each reads (Cohen and
//! Kaplan, "Summarizing data using bottom-k sketches", PODC 2007), it needs no counter, and with
//! one seed it is the same in every run.
//!
//! The two granules of 16 aligned bytes share their numbers: they are read together by every vector
//! access, so their cells stay alike and are checked as one.
//!
//! Device code computes the same numbers: everything is 32-bit arithmetic that wraps around.

/// The constants of the hash.
pub mod hash {
    constants! { "GSAN_HASH_":
        /// Multiplies the high half of the index of a pair of granules.
        pub const PAIR_MULTIPLIER: u32 = 0x9e37_79b1;
        /// Multiplies the thread id.
        pub const THREAD_MULTIPLIER: u32 = 0x85eb_ca77;
        /// Multiplies the epoch.
        pub const EPOCH_MULTIPLIER: u32 = 0xc2b2_ae3d;
        /// First multiplier of the mixing.
        pub const MIX_MULTIPLIER_1: u32 = 0x7feb_352d;
        /// Second multiplier of the mixing.
        pub const MIX_MULTIPLIER_2: u32 = 0x846c_a68b;
        /// Shift before the first multiplication.
        pub const MIX_SHIFT_1: u32 = 16;
        /// Shift between the multiplications.
        pub const MIX_SHIFT_2: u32 = 15;
        /// Shift after the second multiplication.
        pub const MIX_SHIFT_3: u32 = 16;
    }
}

use crate::record::Record;
use hash::*;

/// Spreads every bit of `x` over all bits of the result; one-to-one. The constants are those of
/// "lowbias32" (Wellons, "Prospecting for Hash Functions", 2018).
#[inline]
pub const fn mix(mut x: u32) -> u32 {
    x ^= x >> MIX_SHIFT_1;
    x = x.wrapping_mul(MIX_MULTIPLIER_1);
    x ^= x >> MIX_SHIFT_2;
    x = x.wrapping_mul(MIX_MULTIPLIER_2);
    x ^ x >> MIX_SHIFT_3
}

/// The numbers of the readers of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    seed: u32,
    /// Its address, divided by 16.
    pair: u64,
}

impl Sampler {
    /// The sampler of the granule whose address is `granule * 8`.
    #[inline]
    pub const fn new(seed: u32, granule: u64) -> Sampler {
        let pair = granule >> 1;
        Sampler { seed, pair }
    }

    /// The number of the reader that left `record`.
    #[inline]
    pub const fn number(self, record: Record) -> u32 {
        let high = (self.pair >> 32) as u32;
        let pair = self.pair as u32 ^ high.wrapping_mul(PAIR_MULTIPLIER);
        let salt = mix(self.seed ^ mix(pair));
        let thread = (record.thread().0 as u32).wrapping_mul(THREAD_MULTIPLIER);
        let epoch = record.epoch().get().wrapping_mul(EPOCH_MULTIPLIER);
        mix(salt ^ thread.wrapping_add(epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Epoch;
    use crate::ids::{SiteId, ThreadId};
    use crate::record::{RecordFields, RecordScope};

    fn reader(thread: u16, epoch: u32) -> Record {
        Record::new(RecordFields {
            thread: ThreadId(thread),
            epoch: Epoch::new(epoch).unwrap(),
            mask: 1,
            write: false,
            scope: RecordScope::NotAtomic,
            site: SiteId::UNKNOWN,
        })
    }

    /// Computed with a few lines of Python from the formulas above. Device code checks the same
    /// numbers.
    #[test]
    fn test_vectors() {
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0x6889_90c0);
        let number = |seed, granule, thread, epoch| {
            Sampler::new(seed, granule).number(reader(thread, epoch))
        };
        assert_eq!(number(0, 0, 0, 0), 0);
        assert_eq!(number(1, 2, 3, 4), number(1, 3, 3, 4), "one pair");
        assert_eq!(number(1, 2, 3, 4), 0xfcd5_520c);
        assert_eq!(
            number(0xdead_beef, 0x1ff_ffff_fff8, 0xffff, 0xff_ffff),
            0x794a_409b
        );
    }

    /// Chi-square of how often each of `readers` is among the `kept` smallest numbers of its
    /// granule.
    fn chi_square(readers: &[Record], kept: usize, samplers: impl Iterator<Item = Sampler>) -> f64 {
        let mut counts = vec![0u32; readers.len()];
        let mut trials = 0;
        for sampler in samplers {
            trials += 1;
            let mut order: Vec<usize> = (0..readers.len()).collect();
            order.sort_by_key(|&index| sampler.number(readers[index]));
            order[..kept].iter().for_each(|&index| counts[index] += 1);
        }
        let share = kept as f64 / readers.len() as f64;
        let expected = trials as f64 * share;
        // Drawing without replacement: the variance of one count is expected * (1 - share), and
        // the counts add up to a constant.
        let sum: f64 = counts
            .iter()
            .map(|&n| (f64::from(n) - expected).powi(2))
            .sum();
        let n = readers.len() as f64;
        sum / (expected * (1.0 - share)) * (n - 1.0) / n
    }

    /// Above the 99.99 % quantile of chi-square with 31 degrees of freedom, 69.3.
    const LIMIT_31: f64 = 69.4;

    #[test]
    fn the_sample_is_uniform_over_seeds() {
        for granule in [0, 1, 0x1ff_ffff_ffff] {
            for kept in [2, 3, 4] {
                let readers: Vec<Record> = (0..32).map(|thread| reader(thread, 5)).collect();
                let samplers = (0..4000).map(|seed| Sampler::new(seed, granule));
                let value = chi_square(&readers, kept, samplers);
                assert!(value < LIMIT_31, "granule {granule}, {kept} kept: {value}");
            }
        }
    }

    #[test]
    fn the_sample_is_uniform_over_granules() {
        let by_epoch = (0..32).map(|epoch| reader(7, epoch)).collect::<Vec<_>>();
        let by_thread = (0..32).map(|sm| reader(132 * sm, 1)).collect::<Vec<_>>();
        for readers in [by_epoch, by_thread] {
            let samplers = (0..4000).map(|pair| Sampler::new(42, (1 << 37) + 2 * pair));
            let value = chi_square(&readers, 3, samplers);
            assert!(value < LIMIT_31, "{value}");
        }
    }
}
