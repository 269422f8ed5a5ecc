//! The buddy tree: which parts of a power-of-two range are taken, and by what.
//!
//! Every node is a power-of-two range, aligned to its size. It knows the sizes of the free ranges
//! at or below it, one bit for each, so allocation finds the best fit and free joins neighbours in
//! one walk between the root and a leaf. Nodes exist only where the range is split: an empty tree
//! is one node, however large the range.

/// A range of a [`BuddyTree`], by its offset from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Bytes from the start of the tree's range; a multiple of [`Self::bytes`].
    pub offset: u64,
    /// Its size, a power of two.
    pub bytes: u64,
}

/// The tree over a range of `bytes` bytes; a taken range carries a `T`.
///
/// Walks are what it costs, and with many ranges the walks cost what their cache misses do, so
/// nodes are small and what ranges carry lies elsewhere.
#[derive(Debug)]
pub struct BuddyTree<T> {
    nodes: Nodes,
    /// Pairs of nodes that are not in use, by their left node.
    spare_pairs: Vec<u32>,
    values: Vec<Option<T>>,
    /// Places of `values` that are not in use.
    spare_values: Vec<u32>,
    bytes: u64,
    smallest: u64,
    taken: usize,
}

/// Node 0 is the root. Siblings are a pair: nodes `k`, which is even, and `k + 1`.
#[derive(Debug)]
struct Nodes(Vec<Pair>);

/// Aligned so that no pair lies in two cache lines: whoever walks the tree looks at both nodes.
#[derive(Debug)]
#[repr(align(32))]
struct Pair([Node; 2]);

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Bit `k` is set when a free range of `smallest << k` bytes lies at or below this node.
    free: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    /// The left child; the right one follows it.
    Split(u32),
    /// The place of what the range carries.
    Taken(u32),
}

impl Node {
    /// A free range of `smallest << order` bytes.
    fn free(order: u32) -> Node {
        Node {
            free: 1 << order,
            kind: Kind::Free,
        }
    }
}

impl std::ops::Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, node: u32) -> &Node {
        &self.0[node as usize / 2].0[node as usize % 2]
    }
}

impl std::ops::IndexMut<u32> for Nodes {
    fn index_mut(&mut self, node: u32) -> &mut Node {
        &mut self.0[node as usize / 2].0[node as usize % 2]
    }
}

/// The nodes from the root to one that is being changed: at most one for each power of two.
struct Path {
    nodes: [u32; MOST_ORDERS],
    length: usize,
}

/// How many sizes of ranges there are at most: as many as a node's `free` has bits.
const MOST_ORDERS: usize = u32::BITS as usize;

impl Path {
    fn new() -> Path {
        Path {
            nodes: [0; MOST_ORDERS],
            length: 0,
        }
    }

    fn push(&mut self, node: u32) {
        self.nodes[self.length] = node;
        self.length += 1;
    }

    /// From the last one up to the root.
    fn upwards(&self) -> impl Iterator<Item = u32> {
        self.nodes[..self.length].iter().rev().copied()
    }
}

impl<T> BuddyTree<T> {
    /// A tree over `bytes` bytes that hands out ranges of at least `smallest` bytes. Both must be
    /// powers of two, and the larger one 1 to 2^31 times the smaller one.
    pub fn new(bytes: u64, smallest: u64) -> Option<BuddyTree<T>> {
        if !bytes.is_power_of_two() || !smallest.is_power_of_two() || smallest > bytes {
            return None;
        }
        let order = (bytes / smallest).ilog2();
        if order as usize >= MOST_ORDERS {
            return None;
        }
        Some(BuddyTree {
            // The root's other half is never looked at.
            nodes: Nodes(vec![Pair([Node::free(order); 2])]),
            spare_pairs: Vec::new(),
            values: Vec::new(),
            spare_values: Vec::new(),
            bytes,
            smallest,
            taken: 0,
        })
    }

    /// How many ranges are taken.
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Whether nothing is taken, which makes the whole range one free block again.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// The size of the range in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of the largest free range in bytes, 0 if all is taken.
    pub fn largest_free(&self) -> u64 {
        match self.nodes[0].free {
            0 => 0,
            free => self.smallest << free.ilog2(),
        }
    }

    /// Takes the smallest free range of at least `bytes` bytes, the lowest of several; `None` if
    /// there is none.
    pub fn take(&mut self, bytes: u64, value: T) -> Option<Block> {
        if bytes > self.bytes {
            return None;
        }
        let wanted = bytes
            .div_ceil(self.smallest)
            .max(1)
            .next_power_of_two()
            .ilog2();
        let fitting = self.nodes[0].free >> wanted << wanted;
        if fitting == 0 {
            return None;
        }
        let found = fitting.trailing_zeros();

        let mut path = Path::new();
        let (mut node, mut offset, mut order) = (0, 0, self.root_order());
        // A bit below a node's own order stands for a range below the node.
        while order > found
            && let Kind::Split(left) = self.nodes[node].kind
        {
            path.push(node);
            order -= 1;
            node = left;
            if self.nodes[left].free & (1 << found) == 0 {
                node = left + 1;
                offset += self.smallest << order;
            }
        }
        while order > wanted {
            path.push(node);
            order -= 1;
            let left = self.new_pair(order);
            self.nodes[node].kind = Kind::Split(left);
            node = left;
        }
        self.nodes[node] = Node {
            free: 0,
            kind: Kind::Taken(self.keep(value)),
        };
        self.taken += 1;
        for above in path.upwards() {
            if let Kind::Split(left) = self.nodes[above].kind {
                self.nodes[above].free = self.nodes[left].free | self.nodes[left + 1].free;
            }
        }
        Some(Block {
            offset,
            bytes: self.smallest << order,
        })
    }

    /// The taken range that contains `offset`, and what it carries.
    pub fn get(&self, offset: u64) -> Option<(Block, &T)> {
        let (node, block) = self.find(offset, |_| ())?;
        match self.nodes[node].kind {
            Kind::Taken(place) => Some((block, self.values[place as usize].as_ref()?)),
            _ => None,
        }
    }

    /// Like [`Self::get`], to change what the range carries.
    pub fn get_mut(&mut self, offset: u64) -> Option<(Block, &mut T)> {
        let (node, block) = self.find(offset, |_| ())?;
        match self.nodes[node].kind {
            Kind::Taken(place) => Some((block, self.values[place as usize].as_mut()?)),
            _ => None,
        }
    }

    /// Gives back the taken range that starts at `offset`, joining it with free neighbours;
    /// `None`, and nothing changes, if no taken range starts there.
    pub fn give_back(&mut self, offset: u64) -> Option<T> {
        let mut path = Path::new();
        let (node, block) = self.find(offset, |above| path.push(above))?;
        let Kind::Taken(place) = self.nodes[node].kind else {
            return None;
        };
        if block.offset != offset {
            return None;
        }
        let value = self.values[place as usize].take();
        self.spare_values.push(place);
        self.taken -= 1;
        let mut order = (block.bytes / self.smallest).ilog2();
        self.nodes[node] = Node::free(order);
        for above in path.upwards() {
            order += 1;
            let Kind::Split(left) = self.nodes[above].kind else {
                continue;
            };
            let (low, high) = (self.nodes[left], self.nodes[left + 1]);
            if low.kind == Kind::Free && high.kind == Kind::Free {
                self.spare_pairs.push(left);
                self.nodes[above] = Node::free(order);
            } else {
                self.nodes[above].free = low.free | high.free;
            }
        }
        if self.is_empty() {
            self.clear();
        }
        value
    }

    /// Gives back everything, and returns what the taken ranges carried, in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        let values = std::mem::take(&mut self.values);
        self.nodes[0] = Node::free(self.root_order());
        self.taken = 0;
        self.clear();
        values.into_iter().flatten()
    }

    /// Forgets all that an empty tree has no use for.
    fn clear(&mut self) {
        self.nodes.0.truncate(1);
        self.spare_pairs.clear();
        self.values.clear();
        self.spare_values.clear();
    }

    fn root_order(&self) -> u32 {
        (self.bytes / self.smallest).ilog2()
    }

    /// The node without children whose range contains `offset`; `visit` sees the nodes above it.
    fn find(&self, offset: u64, mut visit: impl FnMut(u32)) -> Option<(u32, Block)> {
        if offset >= self.bytes {
            return None;
        }
        let (mut node, mut size) = (0, self.bytes);
        while let Kind::Split(left) = self.nodes[node].kind {
            visit(node);
            size /= 2;
            node = left + u32::from(offset & size != 0);
        }
        let block = Block {
            offset: offset & !(size - 1),
            bytes: size,
        };
        Some((node, block))
    }

    /// Two free nodes of `smallest << order` bytes; returns the left one.
    fn new_pair(&mut self, order: u32) -> u32 {
        let pair = Pair([Node::free(order); 2]);
        match self.spare_pairs.pop() {
            Some(left) => {
                self.nodes.0[left as usize / 2] = pair;
                left
            }
            // There are fewer pairs than smallest ranges, of which there are at most 2^31.
            None => {
                self.nodes.0.push(pair);
                2 * (self.nodes.0.len() as u32 - 1)
            }
        }
    }

    /// Keeps what a range carries, and returns its place.
    fn keep(&mut self, value: T) -> u32 {
        match self.spare_values.pop() {
            Some(place) => {
                self.values[place as usize] = Some(value);
                place
            }
            // There are at most as many as smallest ranges.
            None => {
                self.values.push(Some(value));
                self.values.len() as u32 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn block(offset: u64, bytes: u64) -> Block {
        Block { offset, bytes }
    }

    #[test]
    fn sizes_that_are_no_powers_of_two_are_refused() {
        assert!(BuddyTree::<()>::new(48, 16).is_none());
        assert!(BuddyTree::<()>::new(64, 3).is_none());
        assert!(BuddyTree::<()>::new(64, 128).is_none());
        assert!(BuddyTree::<()>::new(0, 0).is_none());
        assert!(BuddyTree::<()>::new(1 << 32, 1).is_none());
    }

    #[test]
    fn the_whole_range_can_be_taken_at_once() {
        let mut tree = BuddyTree::new(64, 16).unwrap();
        assert_eq!(tree.take(64, 'a'), Some(block(0, 64)));
        assert_eq!(tree.largest_free(), 0);
        assert_eq!(tree.take(1, 'b'), None);
        assert_eq!(tree.give_back(0), Some('a'));
        assert_eq!(tree.largest_free(), 64);
    }

    #[test]
    fn a_request_takes_the_smallest_range_that_fits() {
        let mut tree = BuddyTree::new(256, 16).unwrap();
        // 0..32 and 32..64 taken, then 64..128 and 128..256 free.
        assert_eq!(tree.take(32, 0), Some(block(0, 32)));
        assert_eq!(tree.take(32, 1), Some(block(32, 32)));
        assert_eq!(tree.take(100, 2), Some(block(128, 128)));
        assert_eq!(tree.give_back(32), Some(1));
        // 32..64 (32 bytes) and 64..128 (64 bytes) are free: the smaller one is taken.
        assert_eq!(tree.take(20, 3), Some(block(32, 32)));
        assert_eq!(tree.largest_free(), 64);
    }

    #[test]
    fn freed_neighbours_join() {
        let mut tree = BuddyTree::new(64, 16).unwrap();
        for offset in [0, 16, 32, 48] {
            assert_eq!(tree.take(16, offset), Some(block(offset, 16)));
        }
        tree.give_back(16);
        tree.give_back(32);
        // 16..48 is free, but its halves are not buddies.
        assert_eq!(tree.largest_free(), 16);
        tree.give_back(48);
        assert_eq!(tree.largest_free(), 32);
        tree.give_back(0);
        assert_eq!(tree.largest_free(), 64);
        assert!(tree.is_empty());
    }

    #[test]
    fn only_the_start_of_a_taken_range_is_given_back() {
        let mut tree = BuddyTree::new(64, 16).unwrap();
        tree.take(32, 'a');
        assert_eq!(tree.get(31), Some((block(0, 32), &'a')));
        assert_eq!(tree.give_back(16), None);
        assert_eq!(tree.give_back(32), None);
        assert_eq!(tree.give_back(64), None);
        assert_eq!(tree.give_back(u64::MAX), None);
        assert_eq!(tree.len(), 1);
        assert_eq!(tree.give_back(0), Some('a'));
        assert_eq!(tree.give_back(0), None);
    }

    #[test]
    fn the_largest_range_is_handled() {
        let unit = 1 << 32;
        let mut tree = BuddyTree::new(1 << 63, unit).unwrap();
        assert_eq!(tree.take(u64::MAX, ()), None);
        assert_eq!(tree.take(1, ()), Some(block(0, unit)));
        assert_eq!(tree.take(1 << 62, ()), Some(block(1 << 62, 1 << 62)));
        tree.give_back(0);
        tree.give_back(1 << 62);
        assert_eq!(tree.largest_free(), 1 << 63);
    }

    /// The free ranges of `size` bytes that are not part of a larger free one.
    fn free_ranges(taken: &BTreeMap<u64, u64>, start: u64, size: u64, out: &mut Vec<Block>) {
        let overlaps = |(&at, &bytes): (&u64, &u64)| at < start + size && start < at + bytes;
        if !taken.iter().any(overlaps) {
            out.push(block(start, size));
        } else if size > 16 {
            free_ranges(taken, start, size / 2, out);
            free_ranges(taken, start + size / 2, size / 2, out);
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_taken_ranges(
            steps in prop::collection::vec((any::<bool>(), 1u64..300, any::<prop::sample::Index>()), 1..80)
        ) {
            let mut tree = BuddyTree::new(1024, 16).unwrap();
            let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
            for (take, bytes, index) in steps {
                let mut free = Vec::new();
                free_ranges(&taken, 0, 1024, &mut free);
                prop_assert_eq!(tree.largest_free(), free.iter().map(|b| b.bytes).max().unwrap_or(0));
                if take {
                    let wanted = bytes.max(16).next_power_of_two();
                    let best = free.iter().filter(|b| b.bytes >= wanted).min_by_key(|b| (b.bytes, b.offset));
                    let expected = best.map(|b| block(b.offset, wanted));
                    prop_assert_eq!(tree.take(bytes, bytes), expected);
                    if let Some(b) = expected {
                        taken.insert(b.offset, b.bytes);
                    }
                } else if !taken.is_empty() {
                    let offset = *index.get(&taken.keys().copied().collect::<Vec<_>>());
                    prop_assert!(tree.give_back(offset).is_some());
                    taken.remove(&offset);
                }
                prop_assert_eq!(tree.len(), taken.len());
                for (&offset, &bytes) in &taken {
                    prop_assert_eq!(tree.get(offset + bytes - 1).unwrap().0, block(offset, bytes));
                }
            }
            for offset in taken.into_keys() {
                tree.give_back(offset);
            }
            prop_assert_eq!(tree.largest_free(), 1024);
            prop_assert_eq!(tree.nodes.0.len(), 1);
        }
    }
}
