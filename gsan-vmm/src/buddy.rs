//! The buddy tree: which parts of a power-of-two range are taken, and by what.
//!
//! Every node is a power-of-two range, aligned to its size. It knows the sizes of the free ranges
//! at or below it, one bit for each, so allocation finds the best fit and free joins neighbours in
//! one walk between the root and a leaf. Nodes exist only where the range is split: an empty tree
//! is one node, however large the range.

use std::ops::{Index, IndexMut};

/// A range of a [`BuddyTree`], by its offset from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Bytes from the start of the tree's range; a multiple of [`Self::bytes`].
    pub offset: u64,
    /// Its size, a power of two.
    pub bytes: u64,
}

/// A taken range, for as long as it is taken: leads to it without a walk through the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u32);

/// The tree over a range of `bytes` bytes; a taken range carries a `T`.
///
/// Walks are what it costs, and with many ranges the walks cost what their cache misses do. So
/// nodes are small, what ranges carry lies elsewhere, and a change goes up only as far as it
/// changes anything.
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

/// Two siblings. Aligned so that no pair lies in two cache lines: whoever walks the tree looks at
/// both.
#[derive(Debug)]
#[repr(align(32))]
struct Pair {
    nodes: [Node; 2],
    /// The node that was split into them; of no meaning for the root.
    above: u32,
    /// Their ranges have `smallest << order` bytes.
    order: u32,
}

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

/// Orders are below this: a node's `free` has one bit for each.
const MOST_ORDERS: u32 = u32::BITS;

impl Node {
    /// A free range of `smallest << order` bytes.
    fn free(order: u32) -> Node {
        Node {
            free: 1 << order,
            kind: Kind::Free,
        }
    }
}

impl Nodes {
    fn pair(&self, node: u32) -> &Pair {
        &self.0[node as usize / 2]
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, node: u32) -> &Node {
        &self.pair(node).nodes[node as usize % 2]
    }
}

impl IndexMut<u32> for Nodes {
    fn index_mut(&mut self, node: u32) -> &mut Node {
        &mut self.0[node as usize / 2].nodes[node as usize % 2]
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
        if order >= MOST_ORDERS {
            return None;
        }
        // The root's other half is never looked at.
        let root = Pair {
            nodes: [Node::free(order); 2],
            above: 0,
            order,
        };
        Some(BuddyTree {
            nodes: Nodes(vec![root]),
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
    pub fn take(&mut self, bytes: u64, value: T) -> Option<(Block, Key)> {
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

        let (mut node, mut offset, mut order) = (0, 0, self.nodes.pair(0).order);
        // A bit below a node's own order stands for a range below the node.
        while order > found
            && let Kind::Split(left) = self.nodes[node].kind
        {
            order -= 1;
            node = left;
            if self.nodes[left].free & (1 << found) == 0 {
                node = left + 1;
                offset += self.smallest << order;
            }
        }
        while order > wanted {
            order -= 1;
            let left = self.new_pair(node, order);
            self.nodes[node].kind = Kind::Split(left);
            node = left;
        }
        self.nodes[node] = Node {
            free: 0,
            kind: Kind::Taken(self.keep(value)),
        };
        self.taken += 1;
        self.tell_above(node);
        let block = Block {
            offset,
            bytes: self.smallest << order,
        };
        Some((block, Key(node)))
    }

    /// The taken range that contains `offset`.
    pub fn find(&self, offset: u64) -> Option<(Block, Key)> {
        if offset >= self.bytes {
            return None;
        }
        let (mut node, mut bytes) = (0, self.bytes);
        while let Kind::Split(left) = self.nodes[node].kind {
            bytes /= 2;
            node = left + u32::from(offset & bytes != 0);
        }
        let block = Block {
            offset: offset & !(bytes - 1),
            bytes,
        };
        match self.nodes[node].kind {
            Kind::Taken(_) => Some((block, Key(node))),
            _ => None,
        }
    }

    /// What a range carries; `None` if `key` is of none that is taken.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.values[self.place(key)?].as_ref()
    }

    /// Like [`Self::get`], to change what the range carries.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.place(key)?;
        self.values[place].as_mut()
    }

    /// What the taken ranges carry, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }

    /// The place of what a range carries.
    fn place(&self, key: Key) -> Option<usize> {
        let pair = self.nodes.0.get(key.0 as usize / 2)?;
        match pair.nodes[key.0 as usize % 2].kind {
            Kind::Taken(place) => Some(place as usize),
            _ => None,
        }
    }

    /// Gives back a taken range, joining it with free neighbours; `None`, and nothing changes, if
    /// `key` is of none that is taken.
    pub fn give_back(&mut self, key: Key) -> Option<T> {
        let place = self.place(key)?;
        let order = self.nodes.pair(key.0).order;
        let value = self.values[place].take();
        // It came from a node, which has it in 32 bits.
        self.spare_values.push(place as u32);
        self.taken -= 1;
        self.nodes[key.0] = Node::free(order);
        self.tell_above(key.0);
        if self.is_empty() {
            self.clear();
        }
        value
    }

    /// Gives back everything, and returns what the taken ranges carried, in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        let values = std::mem::take(&mut self.values);
        self.nodes[0] = Node::free(self.nodes.pair(0).order);
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

    /// Brings the nodes above `node`, which has changed, up to date. From the first on that stays
    /// as it was, so do all above it.
    fn tell_above(&mut self, node: u32) {
        let mut node = node;
        while node != 0 {
            let Pair {
                nodes: [low, high],
                above,
                order,
            } = *self.nodes.pair(node);
            if low.kind == Kind::Free && high.kind == Kind::Free {
                self.spare_pairs.push(node & !1);
                self.nodes[above] = Node::free(order + 1);
            } else {
                let free = low.free | high.free;
                if self.nodes[above].free == free {
                    return;
                }
                self.nodes[above].free = free;
            }
            node = above;
        }
    }

    /// Two free nodes of `smallest << order` bytes, the halves of `above`; returns the left one.
    fn new_pair(&mut self, above: u32, order: u32) -> u32 {
        let pair = Pair {
            nodes: [Node::free(order); 2],
            above,
            order,
        };
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

    fn take<T>(tree: &mut BuddyTree<T>, bytes: u64, value: T) -> Option<Block> {
        tree.take(bytes, value).map(|(block, _)| block)
    }

    fn give_back<T>(tree: &mut BuddyTree<T>, offset: u64) -> Option<T> {
        let (_, key) = tree.find(offset)?;
        tree.give_back(key)
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
        assert_eq!(take(&mut tree, 64, 'a'), Some(block(0, 64)));
        assert_eq!(tree.largest_free(), 0);
        assert_eq!(take(&mut tree, 1, 'b'), None);
        assert_eq!(give_back(&mut tree, 0), Some('a'));
        assert_eq!(tree.largest_free(), 64);
    }

    #[test]
    fn a_request_takes_the_smallest_range_that_fits() {
        let mut tree = BuddyTree::new(256, 16).unwrap();
        // 0..32 and 32..64 taken, then 64..128 and 128..256 free.
        assert_eq!(take(&mut tree, 32, 0), Some(block(0, 32)));
        assert_eq!(take(&mut tree, 32, 1), Some(block(32, 32)));
        assert_eq!(take(&mut tree, 100, 2), Some(block(128, 128)));
        assert_eq!(give_back(&mut tree, 32), Some(1));
        // 32..64 (32 bytes) and 64..128 (64 bytes) are free: the smaller one is taken.
        assert_eq!(take(&mut tree, 20, 3), Some(block(32, 32)));
        assert_eq!(tree.largest_free(), 64);
    }

    #[test]
    fn freed_neighbours_join() {
        let mut tree = BuddyTree::new(64, 16).unwrap();
        for offset in [0, 16, 32, 48] {
            assert_eq!(take(&mut tree, 16, offset), Some(block(offset, 16)));
        }
        give_back(&mut tree, 16);
        give_back(&mut tree, 32);
        // 16..48 is free, but its halves are not buddies.
        assert_eq!(tree.largest_free(), 16);
        give_back(&mut tree, 48);
        assert_eq!(tree.largest_free(), 32);
        give_back(&mut tree, 0);
        assert_eq!(tree.largest_free(), 64);
        assert!(tree.is_empty());
    }

    #[test]
    fn a_taken_range_is_found_by_every_offset_in_it_and_given_back_once() {
        let mut tree = BuddyTree::new(64, 16).unwrap();
        let (taken, key) = tree.take(32, 'a').unwrap();
        assert_eq!(taken, block(0, 32));
        assert_eq!(tree.find(0), Some((taken, key)));
        assert_eq!(tree.find(31), Some((taken, key)));
        for outside in [32, 63, 64, u64::MAX] {
            assert_eq!(tree.find(outside), None);
        }
        assert_eq!(tree.get_mut(key), Some(&mut 'a'));
        assert_eq!(tree.give_back(key), Some('a'));
        assert_eq!(tree.get(key), None);
        assert_eq!(tree.get_mut(key), None);
        assert_eq!(tree.give_back(key), None);
        assert!(tree.is_empty());
    }

    #[test]
    fn keys_stay_while_others_come_and_go() {
        let mut tree = BuddyTree::new(256, 16).unwrap();
        let (_, low) = tree.take(16, 'a').unwrap();
        let (_, next) = tree.take(16, 'b').unwrap();
        let (_, large) = tree.take(64, 'c').unwrap();
        assert_eq!(tree.give_back(low), Some('a'));
        assert_eq!(tree.get_mut(large), Some(&mut 'c'));
        let mut rest: Vec<_> = tree.iter().collect();
        rest.sort();
        assert_eq!(rest, [&'b', &'c']);
        assert_eq!(tree.give_back(next), Some('b'));
        // The pair of the first two was joined; their keys lead nowhere.
        assert_eq!(tree.give_back(low), None);
        assert_eq!(tree.give_back(next), None);
        assert_eq!(tree.give_back(large), Some('c'));
        assert_eq!(tree.largest_free(), 256);
    }

    #[test]
    fn the_largest_range_is_handled() {
        let unit = 1 << 32;
        let mut tree = BuddyTree::new(1 << 63, unit).unwrap();
        assert_eq!(take(&mut tree, u64::MAX, ()), None);
        assert_eq!(take(&mut tree, 1, ()), Some(block(0, unit)));
        assert_eq!(take(&mut tree, 1 << 62, ()), Some(block(1 << 62, 1 << 62)));
        give_back(&mut tree, 0);
        give_back(&mut tree, 1 << 62);
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
            for (takes, bytes, index) in steps {
                let mut free = Vec::new();
                free_ranges(&taken, 0, 1024, &mut free);
                prop_assert_eq!(tree.largest_free(), free.iter().map(|b| b.bytes).max().unwrap_or(0));
                if takes {
                    let wanted = bytes.max(16).next_power_of_two();
                    let best = free.iter().filter(|b| b.bytes >= wanted).min_by_key(|b| (b.bytes, b.offset));
                    let expected = best.map(|b| block(b.offset, wanted));
                    prop_assert_eq!(take(&mut tree, bytes, bytes), expected);
                    if let Some(b) = expected {
                        taken.insert(b.offset, b.bytes);
                    }
                } else if !taken.is_empty() {
                    let offset = *index.get(&taken.keys().copied().collect::<Vec<_>>());
                    prop_assert!(give_back(&mut tree, offset).is_some());
                    taken.remove(&offset);
                }
                prop_assert_eq!(tree.len(), taken.len());
                for (&offset, &bytes) in &taken {
                    let (found, key) = tree.find(offset + bytes - 1).unwrap();
                    prop_assert_eq!(found, block(offset, bytes));
                    prop_assert!(tree.get_mut(key).unwrap().next_power_of_two().max(16) == bytes);
                }
            }
            for offset in taken.into_keys() {
                give_back(&mut tree, offset);
            }
            prop_assert_eq!(tree.largest_free(), 1024);
            prop_assert_eq!(tree.nodes.0.len(), 1);
        }
    }
}
