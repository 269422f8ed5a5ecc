//! Memory that is used on several streams, freed, and handed out again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::host::Point;
use crate::ordering::Ordering;
use crate::rows::Knowledge;
use crate::stream::StreamKey;

/// Who uses memory, and what must come before its next user.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By first address.
    used: BTreeMap<u64, Used>,
    freed: Freed,
}

/// Memory that is used.
#[derive(Default)]
struct Used {
    bytes: u64,
    streams: Vec<StreamKey>,
    /// What streams that used it were given before they were destroyed.
    gone: Knowledge,
}

/// Freed ranges, which do not overlap, by their first address.
#[derive(Default)]
struct Freed {
    ranges: BTreeMap<u64, (u64, Arc<Knowledge>)>,
}

impl Freed {
    fn insert(&mut self, range: Range<u64>, knowledge: Arc<Knowledge>) {
        self.take(range.clone());
        self.ranges.insert(range.start, (range.end, knowledge));
    }

    /// Takes out what overlaps `range`; what is left of it stays.
    fn take(&mut self, range: Range<u64>) -> Vec<Arc<Knowledge>> {
        let before = self.ranges.range(..range.start).next_back();
        let first = before
            .filter(|(_, (end, _))| *end > range.start)
            .map_or(range.start, |(&start, _)| start);
        let overlapping: Vec<u64> = self
            .ranges
            .range(first..range.end)
            .map(|(&start, _)| start)
            .collect();
        let mut taken = Vec::new();
        for start in overlapping {
            let Some((end, knowledge)) = self.ranges.remove(&start) else {
                continue;
            };
            if start < range.start {
                let rest = (range.start, Arc::clone(&knowledge));
                self.ranges.insert(start, rest);
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, Arc::clone(&knowledge)));
            }
            taken.push(knowledge);
        }
        taken
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream is destroyed that was given what `last` says.
    pub(crate) fn user_is_gone(&self, key: StreamKey, last: &Knowledge) {
        for used in self.lock().used.values_mut() {
            if let Some(at) = used.streams.iter().position(|&user| user == key) {
                used.streams.swap_remove(at);
                used.gone.join(last);
            }
        }
    }

    /// Forgets what was freed.
    pub(crate) fn clear(&self) {
        let mut memory = self.lock();
        memory.freed.ranges.clear();
        for used in memory.used.values_mut() {
            used.gone = Knowledge::default();
        }
    }
}

impl Ordering {
    /// A stream uses memory of `bytes` bytes at `address`, which was handed out to another one.
    ///
    /// # Errors
    /// When the stream is not known.
    pub fn memory_used(&self, address: u64, bytes: u64, key: StreamKey) -> Result<(), Error> {
        self.inner.stream(key)?;
        let mut memory = self.inner.memory.lock();
        let used = memory.used.entry(address).or_default();
        used.bytes = bytes.max(used.bytes).max(1);
        if !used.streams.contains(&key) {
            used.streams.push(key);
        }
        Ok(())
    }

    /// The memory at `address` was freed: whoever gets it next starts after what the streams that
    /// were noted as its users have been given so far.
    ///
    /// # Errors
    /// When a launch of this thread on one of the streams is unfinished.
    pub fn memory_freed(&self, address: u64) -> Result<(), Error> {
        let Some(used) = self.inner.memory.lock().used.remove(&address) else {
            return Ok(());
        };
        let mut all = used.gone;
        for key in used.streams {
            let point = self.inner.point(&self.inner.stream(key)?)?;
            all.join(&point.knowledge);
        }
        let range = address..address.saturating_add(used.bytes);
        let mut memory = self.inner.memory.lock();
        memory.freed.insert(range, Arc::new(all));
        Ok(())
    }

    /// Memory was handed out to `key`; to anybody if that is not known.
    ///
    /// # Errors
    /// When the stream is not known, or a launch of this thread on it is unfinished.
    pub fn memory_handed_out(
        &self,
        address: u64,
        bytes: u64,
        key: Option<StreamKey>,
    ) -> Result<(), Error> {
        let stream = key.map(|key| self.inner.stream(key)).transpose()?;
        let range = address..address.saturating_add(bytes.max(1));
        let edges = self.inner.memory.lock().freed.take(range);
        for edge in edges {
            match &stream {
                // The program sees to it that the uses are over.
                Some(stream) => self.inner.add_edge(
                    stream,
                    &Point {
                        knowledge: edge,
                        fence: None,
                    },
                )?,
                None => self.inner.host.learn(&edge),
            }
        }
        Ok(())
    }

    /// Memory was given back to the system: nobody gets it from the program's allocator any more.
    pub fn memory_gone(&self, address: u64, bytes: u64) {
        let range = address..address.saturating_add(bytes.max(1));
        let mut memory = self.inner.memory.lock();
        let _ = memory.freed.take(range.clone());
        let used: Vec<u64> = memory.used.range(range).map(|(&start, _)| start).collect();
        for start in used {
            memory.used.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(freed: &Freed) -> Vec<Range<u64>> {
        let ranges = freed.ranges.iter();
        ranges.map(|(&start, &(end, _))| start..end).collect()
    }

    #[test]
    fn parts_of_a_freed_range_are_taken_and_the_rest_stays() {
        let mut freed = Freed::default();
        freed.insert(100..200, Arc::default());
        freed.insert(200..300, Arc::default());
        assert_eq!(freed.take(150..160).len(), 1);
        assert_eq!(ranges(&freed), [100..150, 160..200, 200..300]);
        assert_eq!(freed.take(190..210).len(), 2);
        assert_eq!(ranges(&freed), [100..150, 160..190, 210..300]);
        assert_eq!(freed.take(150..160).len(), 0);
        assert_eq!(freed.take(0..1000).len(), 3);
        assert_eq!(ranges(&freed), []);
    }
}
