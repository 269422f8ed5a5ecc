//! A persistent map from unit numbers to epochs: the clocks and the sets of readers.
//!
//! A radix tree of fan-out 16 whose equal subtrees collapse to one number and whose nodes are
//! shared between copies. Threads of a CTA that only meet at barriers hold the same nodes, a CTA
//! or a grid whose threads stand at the same epoch is one number, and a finished launch is one
//! number however many threads it had. So memory grows with what differs.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

const BITS: u32 = 4;
const FAN: usize = 1 << BITS;

/// Covers every epoch of a unit.
pub(super) const ALL: u32 = u32::MAX;

/// A map from `u32` keys to epochs. Keys that are not there have epoch 0: nothing is covered.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: Child,
    /// The root spans keys below `FAN.pow(height)`.
    height: u32,
}

#[derive(Clone, Debug)]
enum Child {
    /// All keys below have this epoch.
    Uniform(u32),
    Node(Arc<Node>),
}

#[derive(Clone, Debug)]
enum Node {
    Leaf([u32; FAN]),
    Inner([Child; FAN]),
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            root: Child::Uniform(0),
            height: 1,
        }
    }
}

fn slot(key: u32, height: u32) -> usize {
    (key >> (BITS * (height - 1))) as usize & (FAN - 1)
}

/// How many keys a child of a node at `height` spans.
fn width(height: u32) -> u64 {
    1 << (BITS * (height - 1))
}

impl Child {
    /// The `index`th part of this child, which lies above height 1.
    fn part(&self, index: usize) -> Child {
        match self {
            Child::Uniform(epoch) => Child::Uniform(*epoch),
            Child::Node(node) => match &**node {
                Node::Leaf(_) => unreachable!("the parts of a leaf are epochs"),
                Node::Inner(children) => children[index].clone(),
            },
        }
    }

    /// The parts of a child at height 1.
    fn epochs(&self) -> [u32; FAN] {
        match self {
            Child::Uniform(epoch) => [*epoch; FAN],
            Child::Node(node) => match &**node {
                Node::Leaf(epochs) => *epochs,
                Node::Inner(_) => unreachable!("nodes at height 1 are leaves"),
            },
        }
    }

    /// A child above height 1.
    fn of_parts(parts: [Child; FAN]) -> Child {
        let mut child = Child::Node(Arc::new(Node::Inner(parts)));
        child.close();
        child
    }

    /// Makes a node of it, so that parts can change on their own.
    fn open(&mut self, height: u32) -> &mut Node {
        if let Child::Uniform(epoch) = *self {
            *self = Child::Node(Arc::new(if height == 1 {
                Node::Leaf([epoch; FAN])
            } else {
                Node::Inner(std::array::from_fn(|_| Child::Uniform(epoch)))
            }));
        }
        match self {
            Child::Node(node) => Arc::make_mut(node),
            Child::Uniform(_) => unreachable!("it was made a node above"),
        }
    }

    /// Collapses a node whose parts are all equal.
    fn close(&mut self) {
        let Child::Node(node) = &*self else { return };
        let uniform = match &**node {
            Node::Leaf(epochs) => {
                let first = epochs[0];
                epochs.iter().all(|&epoch| epoch == first).then_some(first)
            }
            Node::Inner(children) => match children[0] {
                Child::Uniform(first) => children
                    .iter()
                    .all(|child| matches!(child, Child::Uniform(epoch) if *epoch == first))
                    .then_some(first),
                Child::Node(_) => None,
            },
        };
        if let Some(epoch) = uniform {
            *self = Child::Uniform(epoch);
        }
    }

    fn set(&mut self, height: u32, key: u32, epoch: u32) {
        match self.open(height) {
            Node::Leaf(epochs) => epochs[slot(key, 1)] = epoch,
            Node::Inner(children) => children[slot(key, height)].set(height - 1, key, epoch),
        }
        self.close();
    }

    /// Covers the keys of `range`, which is relative to the first key of this child.
    fn cover(&mut self, height: u32, range: Range<u64>) {
        let whole = width(height) * FAN as u64;
        if range.start == 0 && range.end >= whole {
            *self = Child::Uniform(ALL);
            return;
        }
        let step = width(height);
        match self.open(height) {
            Node::Leaf(epochs) => epochs[range.start as usize..range.end as usize].fill(ALL),
            Node::Inner(children) => {
                for index in range.start / step..range.end.div_ceil(step) {
                    let first = index * step;
                    let part = range.start.max(first) - first..range.end.min(first + step) - first;
                    children[index as usize].cover(height - 1, part);
                }
            }
        }
        self.close();
    }
}

/// Which of two children a join came out equal to, so that nodes stay shared.
enum Joined {
    Both,
    Left,
    Right,
    New(Child),
}

fn join(left: &Child, right: &Child, height: u32) -> Joined {
    match (left, right) {
        (Child::Uniform(l), Child::Uniform(r)) => match l.cmp(r) {
            std::cmp::Ordering::Less => Joined::Right,
            std::cmp::Ordering::Equal => Joined::Both,
            std::cmp::Ordering::Greater => Joined::Left,
        },
        (Child::Uniform(0), _) | (_, Child::Uniform(ALL)) => Joined::Right,
        (_, Child::Uniform(0)) | (Child::Uniform(ALL), _) => Joined::Left,
        (Child::Node(l), Child::Node(r)) if Arc::ptr_eq(l, r) => Joined::Both,
        _ if height == 1 => {
            let (l, r) = (left.epochs(), right.epochs());
            let joined: [u32; FAN] = std::array::from_fn(|index| l[index].max(r[index]));
            match (joined == l, joined == r) {
                (true, true) => Joined::Both,
                (true, false) => Joined::Left,
                (false, true) => Joined::Right,
                (false, false) => {
                    let mut new = Child::Node(Arc::new(Node::Leaf(joined)));
                    new.close();
                    Joined::New(new)
                }
            }
        }
        _ => {
            let (mut as_left, mut as_right) = (true, true);
            let parts = std::array::from_fn(|index| {
                let (l, r) = (left.part(index), right.part(index));
                match join(&l, &r, height - 1) {
                    Joined::Both => l,
                    Joined::Left => {
                        as_right = false;
                        l
                    }
                    Joined::Right => {
                        as_left = false;
                        r
                    }
                    Joined::New(new) => {
                        (as_left, as_right) = (false, false);
                        new
                    }
                }
            });
            match (as_left, as_right) {
                (true, true) => Joined::Both,
                (true, false) => Joined::Left,
                (false, true) => Joined::Right,
                (false, false) => Joined::New(Child::of_parts(parts)),
            }
        }
    }
}

fn visit_above(
    tree: &Child,
    other: &Child,
    height: u32,
    first: u64,
    found: &mut dyn FnMut(u32, u32) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match (tree, other) {
        (Child::Uniform(epoch), Child::Uniform(other)) => {
            if epoch > other {
                for key in first..first + width(height + 1) {
                    found(key as u32, *epoch)?;
                }
            }
        }
        (Child::Uniform(0), _) | (_, Child::Uniform(ALL)) => {}
        (Child::Node(l), Child::Node(r)) if Arc::ptr_eq(l, r) => {}
        _ if height == 1 => {
            let (epochs, others) = (tree.epochs(), other.epochs());
            for (index, (epoch, other)) in epochs.into_iter().zip(others).enumerate() {
                if epoch > other {
                    found(first as u32 + index as u32, epoch)?;
                }
            }
        }
        _ => {
            for index in 0..FAN {
                visit_above(
                    &tree.part(index),
                    &other.part(index),
                    height - 1,
                    first + index as u64 * width(height),
                    found,
                )?;
            }
        }
    }
    ControlFlow::Continue(())
}

impl Tree {
    /// The epoch of `key`.
    pub(super) fn get(&self, key: u32) -> u32 {
        if !self.spans(key) {
            return 0;
        }
        let (mut child, mut height) = (&self.root, self.height);
        loop {
            match child {
                Child::Uniform(epoch) => return *epoch,
                Child::Node(node) => match &**node {
                    Node::Leaf(epochs) => return epochs[slot(key, 1)],
                    Node::Inner(children) => {
                        child = &children[slot(key, height)];
                        height -= 1;
                    }
                },
            }
        }
    }

    /// Sets the epoch of `key`.
    pub(super) fn set(&mut self, key: u32, epoch: u32) {
        if self.get(key) != epoch {
            while !self.spans(key) {
                self.grow();
            }
            self.root.set(self.height, key, epoch);
        }
    }

    /// Sets the epoch of `key` to the larger of `epoch` and what it is.
    pub(super) fn raise(&mut self, key: u32, epoch: u32) {
        if self.get(key) < epoch {
            self.set(key, epoch);
        }
    }

    /// Covers all epochs of `keys`.
    pub(super) fn cover(&mut self, keys: Range<u32>) {
        let Some(last) = keys.end.checked_sub(1).filter(|_| !keys.is_empty()) else {
            return;
        };
        while !self.spans(last) {
            self.grow();
        }
        let keys = keys.start.into()..keys.end.into();
        self.root.cover(self.height, keys);
    }

    /// Takes the larger epoch of each key.
    pub(super) fn join(&mut self, other: &Tree) {
        if matches!(other.root, Child::Uniform(0)) {
            return;
        }
        while self.height < other.height {
            self.grow();
        }
        let mut taller;
        let other = if other.height < self.height {
            taller = other.clone();
            while taller.height < self.height {
                taller.grow();
            }
            &taller
        } else {
            other
        };
        match join(&self.root, &other.root, self.height) {
            Joined::Both | Joined::Left => {}
            Joined::Right => self.root = other.root.clone(),
            Joined::New(root) => self.root = root,
        }
    }

    /// Calls `found` with every key, and its epoch, that is larger here than in `other`.
    pub(super) fn visit_above(
        &self,
        other: &Tree,
        found: &mut dyn FnMut(u32, u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (mut left, mut right) = (self.clone(), other.clone());
        while left.height < right.height {
            left.grow();
        }
        while right.height < left.height {
            right.grow();
        }
        visit_above(&left.root, &right.root, left.height, 0, found)
    }

    /// Whether no key is larger here than in `other`.
    pub(super) fn is_within(&self, other: &Tree) -> bool {
        self.visit_above(other, &mut |_, _| ControlFlow::Break(()))
            .is_continue()
    }

    fn spans(&self, key: u32) -> bool {
        u64::from(key) < width(self.height + 1)
    }

    fn grow(&mut self) {
        let old = std::mem::replace(&mut self.root, Child::Uniform(0));
        self.height += 1;
        if !matches!(old, Child::Uniform(0)) {
            let mut parts: [Child; FAN] = std::array::from_fn(|_| Child::Uniform(0));
            parts[0] = old;
            self.root = Child::of_parts(parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let key = prop_oneof![0u32..40, 0u32..1000, any::<u32>()];
        prop::collection::vec((key, 1u32..4), 0..60)
    }

    fn tree(entries: &[(u32, u32)]) -> (Tree, BTreeMap<u32, u32>) {
        let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
        for &(key, epoch) in entries {
            tree.raise(key, epoch);
            let known = map.entry(key).or_insert(0);
            *known = epoch.max(*known);
        }
        (tree, map)
    }

    fn contents(tree: &Tree) -> BTreeMap<u32, u32> {
        let mut map = BTreeMap::new();
        let _ = tree.visit_above(&Tree::default(), &mut |key, epoch| {
            map.insert(key, epoch);
            ControlFlow::Continue(())
        });
        map
    }

    proptest! {
        #[test]
        fn a_tree_is_a_map(input in entries()) {
            let (tree, map) = tree(&input);
            prop_assert_eq!(contents(&tree), map);
        }

        #[test]
        fn join_takes_the_larger_epoch_of_each_key(a in entries(), b in entries()) {
            let (mut joined, _) = tree(&a);
            let (other, _) = tree(&b);
            joined.join(&other);
            let (_, expected) = tree(&[a.clone(), b].concat());
            prop_assert_eq!(contents(&joined), expected);
            prop_assert!(other.is_within(&joined));
            prop_assert!(tree(&a).0.is_within(&joined));
        }

        #[test]
        fn above_is_what_the_other_does_not_cover(a in entries(), b in entries()) {
            let ((left, l), (right, r)) = (tree(&a), tree(&b));
            let mut above = BTreeMap::new();
            let _ = left.visit_above(&right, &mut |key, epoch| {
                above.insert(key, epoch);
                ControlFlow::Continue(())
            });
            let expected: BTreeMap<_, _> = l
                .into_iter()
                .filter(|(key, epoch)| r.get(key).copied().unwrap_or(0) < *epoch)
                .collect();
            prop_assert_eq!(left.is_within(&right), expected.is_empty());
            prop_assert_eq!(above, expected);
        }

        #[test]
        fn cover_covers_exactly_the_range(a in entries(), start in 0u32..600, length in 0u32..600) {
            let (mut covered, _) = tree(&a);
            let before = covered.clone();
            covered.cover(start..start + length);
            for key in 0..1300 {
                let inside = (start..start + length).contains(&key);
                let expected = if inside { ALL } else { before.get(key) };
                prop_assert_eq!(covered.get(key), expected);
            }
        }
    }

    #[test]
    fn a_uniform_grid_is_one_number() {
        let mut tree = Tree::default();
        for key in 0..4096 {
            tree.set(key, 7);
        }
        assert!(matches!(tree.root, Child::Uniform(7)));
    }

    #[test]
    fn a_join_that_adds_nothing_keeps_the_nodes() {
        let (mut a, _) = tree(&[(1, 1), (200, 2)]);
        let (b, _) = tree(&[(1, 1), (200, 2), (3000, 1)]);
        a.join(&b);
        let (Child::Node(a), Child::Node(b)) = (&a.root, &b.root) else {
            panic!("both trees have nodes");
        };
        assert!(Arc::ptr_eq(a, b));
    }
}
