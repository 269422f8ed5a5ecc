//! A few CTAs of one launch, for tests and models of what they do together.

use super::cta::{Cta, CtaState};
use super::frontier::{Foreign, Launch, LaunchState, Row, Rows};
use super::system::{Sizes, System};
use super::topology::Topology;
use crate::atomics::{Atomic, Memory, words};
#[cfg(loom)]
use crate::cell::Cell;
use crate::cell::Past;
use crate::clock::Epoch;
use crate::ids::{DeviceRank, LaunchId, ThreadId};

/// Three resident CTAs of one launch; for models, one cell with two words, and the word of memory
/// that it is the shadow of.
pub(super) struct World<M: Memory> {
    pub(super) system: System<M>,
    launch: LaunchState<M>,
    rows: [Vec<M::U32>; 4],
    filled: M::U32,
    ctas: [CtaState<M>; 3],
    #[cfg(loom)]
    cell: [M::U64; 2],
    #[cfg(loom)]
    pub(super) data: M::U32,
}

impl<M: Memory> World<M> {
    pub(super) fn new(publications: usize) -> Self {
        let topology = Topology::new(1, 3, 1, 1).unwrap();
        let sizes = Sizes {
            publications,
            snapshots: 8,
            checkpoints: 2,
            private_clocks: 2,
            segments: 1,
            history: 0,
            ..Sizes::DEFAULT
        };
        let world = World {
            system: System::new(topology, sizes),
            launch: LaunchState::default(),
            rows: core::array::from_fn(|_| words(4, 0)),
            filled: M::U32::new(0),
            ctas: core::array::from_fn(|_| CtaState::default()),
            #[cfg(loom)]
            cell: core::array::from_fn(|_| M::U64::new(0)),
            #[cfg(loom)]
            data: M::U32::new(0),
        };
        for sm in 0..3 {
            world.with_launch(|launch| {
                Cta::start(&world.system, launch, &world.ctas[sm], sm as u32, 0);
            });
        }
        world
    }

    fn with_launch<R>(&self, body: impl FnOnce(&Launch<'_, M>) -> R) -> R {
        let rows = |own: usize| Rows {
            own: Row {
                bank: 0,
                entries: &self.rows[own],
            },
            foreign: Foreign {
                filled: &self.filled,
                entries: &self.rows[own + 1],
            },
        };
        body(&Launch {
            id: LaunchId(0),
            device: DeviceRank(0),
            before: rows(0),
            named: &[],
            after: rows(2),
            overtaken: &[],
            waits_for: None,
            state: &self.launch,
        })
    }

    pub(super) fn cta<R>(&self, index: usize, body: impl FnOnce(Cta<'_, M>) -> R) -> R {
        self.with_launch(|launch| {
            body(Cta {
                system: &self.system,
                launch,
                state: &self.ctas[index],
            })
        })
    }

    #[cfg(loom)]
    pub(super) fn cell(&self) -> Cell<'_, M::U64, 2> {
        Cell::new(&self.cell)
    }

    /// The id of CTA `index`, and its current epoch, at which it now makes an access.
    pub(super) fn touch(&self, index: usize) -> (ThreadId, Epoch) {
        self.cta(index, |cta| (cta.id().unwrap(), cta.touch()))
    }

    pub(super) fn knows(&self, index: usize, (id, epoch): (ThreadId, Epoch)) -> bool {
        self.cta(index, |cta| cta.is_ordered(id, epoch))
    }
}
