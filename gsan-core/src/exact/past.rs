//! What happened before: clocks over threads and asynchronous copies, and clocks that only some
//! positions and scopes may see.

use rustc_hash::FxHashMap;

use super::tree::Tree;
use crate::ids::{Cta, DeviceRank};
use crate::scope::Scope;

/// A vector clock over GPU threads (or CTAs, by the detector's unit) and asynchronous copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    pub(super) threads: Tree,
    pub(super) copies: Tree,
}

impl Clock {
    pub(super) fn join(&mut self, other: &Clock) {
        self.threads.join(&other.threads);
        self.copies.join(&other.copies);
    }

    fn is_within(&self, other: &Clock) -> bool {
        self.threads.is_within(&other.threads) && self.copies.is_within(&other.copies)
    }
}

/// Everything that precedes a point in base causality order, and the part of it that is linked to
/// the point by a proxy fence (PTX ISA, "Causality Order", proxy-preserved base causality order).
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) all: Clock,
    pub(super) fenced: Clock,
}

impl Past {
    pub(super) fn join(&mut self, other: &Past) {
        self.all.join(&other.all);
        self.fenced.join(&other.fenced);
    }

    pub(super) fn is_within(&self, other: &Past) -> bool {
        self.all.is_within(&other.all) && self.fenced.is_within(&other.fenced)
    }

    /// Orders whole launches before: kernel boundaries need no proxy fence.
    pub(super) fn cover(&mut self, units: std::ops::Range<u32>) {
        self.all.threads.cover(units.clone());
        self.fenced.threads.cover(units);
    }
}

/// Where a thread stands in the hierarchy, as far as scopes can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) cta: Cta,
    /// The first CTA of the cluster.
    pub(super) cluster: Cta,
    pub(super) device: DeviceRank,
}

impl Position {
    /// Whether `scope`, taken from here, includes `other` (PTX ISA, "Scope").
    fn reaches(self, scope: Scope, other: Position) -> bool {
        match scope {
            Scope::Cta => self.cta == other.cta,
            Scope::Cluster => self.cluster == other.cluster,
            Scope::Gpu => self.device == other.device,
            Scope::Sys => true,
        }
    }
}

/// Whether the scopes of two strong operations each include the other's thread, as "Morally
/// Strong Operations" of the PTX ISA asks.
pub(super) fn include_each_other(a: (Position, Scope), b: (Position, Scope)) -> bool {
    a.0.reaches(a.1, b.0) && b.0.reaches(b.1, a.0)
}

const SCOPES: [Scope; 4] = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys];

/// One past per scope.
#[derive(Clone, Debug, Default)]
pub(super) struct ByScope([Option<Past>; 4]);

impl ByScope {
    /// Joins `past` to what is known at `scope`.
    pub(super) fn join_at(&mut self, scope: Scope, past: &Past) {
        match &mut self.0[scope as usize] {
            Some(known) => known.join(past),
            empty => *empty = Some(past.clone()),
        }
    }

    /// Joins everything of `other`, scope by scope, that is not within `known` already.
    pub(super) fn join_new(&mut self, other: &ByScope, known: &Past) {
        for (scope, past) in other.entries() {
            if !past.is_within(known) {
                self.join_at(scope, past);
            }
        }
    }

    /// What an operation of `scope` takes when the entries say how wide it must be.
    pub(super) fn up_to(&self, scope: Scope) -> impl Iterator<Item = &Past> {
        self.0[..=scope as usize].iter().flatten()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Scope, &Past)> {
        let with_scope = SCOPES.into_iter().zip(&self.0);
        with_scope.filter_map(|(scope, past)| past.as_ref().map(|past| (scope, past)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Drops what is within `known`.
    pub(super) fn drop_known(&mut self, known: &Past) {
        for entry in &mut self.0 {
            if entry.as_ref().is_some_and(|past| past.is_within(known)) {
                *entry = None;
            }
        }
    }
}

/// What the first operations of release patterns released, sorted by who may take it.
///
/// Such an operation and the last of an acquire pattern must be morally strong: the releaser's
/// scope must include the acquirer, and the acquirer's the releaser. An acquirer of scope `cta`
/// takes what its own CTA released; one of scope `cluster` also what its cluster released at
/// `cluster` or wider; and so on. Pasts of releasers that no acquirer can tell apart are joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    cta: FxHashMap<Cta, Past>,
    cluster: FxHashMap<Cta, Past>,
    device: FxHashMap<DeviceRank, Past>,
    system: Option<Past>,
}

impl Published {
    /// Adds what a thread at `position` released at `scope`.
    pub(super) fn add(&mut self, position: Position, scope: Scope, past: &Past) {
        let join = |known: Option<&mut Past>| known.map(|known| known.join(past)).is_some();
        if !join(self.cta.get_mut(&position.cta)) {
            self.cta.insert(position.cta, past.clone());
        }
        if scope >= Scope::Cluster && !join(self.cluster.get_mut(&position.cluster)) {
            self.cluster.insert(position.cluster, past.clone());
        }
        if scope >= Scope::Gpu && !join(self.device.get_mut(&position.device)) {
            self.device.insert(position.device, past.clone());
        }
        if scope == Scope::Sys && !join(self.system.as_mut()) {
            self.system = Some(past.clone());
        }
    }

    /// Adds every entry of `released`, which a thread at `position` released.
    pub(super) fn add_all(&mut self, position: Position, released: &ByScope) {
        for (scope, past) in released.entries() {
            self.add(position, scope, past);
        }
    }

    /// What a thread at `position` can take: the entry of a scope needs an acquiring operation of
    /// that scope or a wider one.
    pub(super) fn seen_from(&self, position: Position) -> ByScope {
        ByScope([
            self.cta.get(&position.cta).cloned(),
            self.cluster.get(&position.cluster).cloned(),
            self.device.get(&position.device).cloned(),
            self.system.clone(),
        ])
    }

    /// Drops what only CTAs that will do nothing more could take.
    pub(super) fn drop_dead(&mut self, alive: impl Fn(Cta) -> bool) {
        self.cta.retain(|&cta, _| alive(cta));
    }

    /// How many CTAs have an entry of their own.
    pub(super) fn ctas(&self) -> usize {
        self.cta.len()
    }
}
