//! Address ranges that do not overlap, each with a value.

use std::collections::BTreeMap;

/// The ranges, by their first address, with their length in bytes.
#[derive(Debug)]
pub(super) struct Intervals<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals(BTreeMap::new())
    }
}

impl<T> Intervals<T> {
    /// Enters a range that overlaps none (see [`Self::overlaps`]).
    pub(super) fn insert(&mut self, address: u64, bytes: u64, value: T) {
        debug_assert!(!self.overlaps(address, bytes));
        self.0.insert(address, (bytes, value));
    }

    /// Whether any range shares a byte with this one.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let last = self.0.range(..end).next_back();
        last.is_some_and(|(start, (length, _))| start + length > address)
    }

    /// The range that contains all of this one: its start and its value.
    pub(super) fn containing(&mut self, address: u64, bytes: u64) -> Option<(u64, &mut T)> {
        let (&start, (length, value)) = self.0.range_mut(..=address).next_back()?;
        let end = (address - start).checked_add(bytes)?;
        (end <= *length).then_some((start, value))
    }

    /// The value of exactly this range.
    pub(super) fn exact(&self, address: u64, bytes: u64) -> Option<&T> {
        let (length, value) = self.0.get(&address)?;
        (*length == bytes).then_some(value)
    }

    /// Removes the range that starts at `address`.
    pub(super) fn remove(&mut self, address: u64) -> Option<T> {
        self.0.remove(&address).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_what_they_contain() {
        let mut ranges = Intervals::default();
        ranges.insert(100, 50, 'a');
        ranges.insert(150, 10, 'b');
        assert!(ranges.overlaps(149, 1) && ranges.overlaps(90, 11) && ranges.overlaps(0, 1000));
        assert!(!ranges.overlaps(90, 10) && !ranges.overlaps(160, 10));
        assert_eq!(ranges.containing(120, 30), Some((100, &mut 'a')));
        assert_eq!(ranges.containing(120, 31), None);
        assert_eq!(ranges.containing(120, u64::MAX), None);
        assert_eq!(ranges.containing(99, 1), None);
        assert_eq!(ranges.exact(150, 10), Some(&'b'));
        assert_eq!(ranges.exact(150, 9), None);
        assert_eq!(ranges.remove(100), Some('a'));
        assert!(!ranges.overlaps(100, 50));
    }
}
