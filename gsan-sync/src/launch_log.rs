//! Which launch had which number: kernel, stream and grid, for reports.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

/// How many launches of a device are remembered.
const KEPT: usize = 1 << 16;

/// Words of an entry: stamp and kernel, stream and x, y and z.
const WORDS: usize = 3;

/// What is remembered of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Its number on its device.
    pub number: u32,
    /// The kernel's number in the table of names; 0: it has none.
    pub kernel: u32,
    /// The stream, as numbered by the host.
    pub stream: u32,
    /// The grid, in CTAs.
    pub grid: [u32; 3],
}

/// The newest launches of one device, by number, modulo.
pub(crate) struct LaunchLog {
    words: Box<[AtomicU64]>,
}

impl LaunchLog {
    pub(crate) fn new() -> LaunchLog {
        LaunchLog {
            words: (0..KEPT * WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn entry(&self, number: u32) -> &[AtomicU64] {
        &self.words[number as usize % KEPT * WORDS..][..WORDS]
    }

    /// Remembers a launch.
    pub(crate) fn enter(&self, record: &LaunchRecord) {
        let entry = self.entry(record.number);
        let [x, y, z] = record.grid;
        entry[0].store(0, Relaxed);
        fence(Release);
        entry[1].store(pack(record.stream, x), Relaxed);
        entry[2].store(pack(y, z), Relaxed);
        entry[0].store(pack(record.number.wrapping_add(1), record.kernel), Release);
    }

    /// The launch `number`, or `None` when it is forgotten.
    pub(crate) fn find(&self, number: u32) -> Option<LaunchRecord> {
        let entry = self.entry(number);
        let first = entry[0].load(Acquire);
        let (second, third) = (entry[1].load(Relaxed), entry[2].load(Relaxed));
        fence(Acquire);
        let (stamp, kernel) = unpack(first);
        if first == 0 || stamp != number.wrapping_add(1) || entry[0].load(Relaxed) != first {
            return None;
        }
        let ((stream, x), (y, z)) = (unpack(second), unpack(third));
        Some(LaunchRecord {
            number,
            kernel,
            stream,
            grid: [x, y, z],
        })
    }
}

const fn pack(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_launches_are_found_by_number() {
        let log = LaunchLog::new();
        let record = |number| LaunchRecord {
            number,
            kernel: 3,
            stream: 2,
            grid: [number, 5, 6],
        };
        assert_eq!(log.find(0), None);
        log.enter(&record(0));
        log.enter(&record(70_000));
        assert_eq!(log.find(0), Some(record(0)));
        assert_eq!(log.find(70_000), Some(record(70_000)));
        log.enter(&record(KEPT as u32));
        assert_eq!(log.find(0), None);
    }
}
