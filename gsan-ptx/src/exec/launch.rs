//! What the host does: launches in order, on streams, with events.

use crate::program::Program;
use crate::program::symbols::FunctionId;
use gsan_core::ids::{DeviceRank, StreamId};

/// A launch, and what the host does just before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel.
    pub entry: FunctionId,
    /// CTAs in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter space: as long as
    /// [`Function::param_bytes`](crate::program::symbols::Function::param_bytes).
    pub params: Vec<u8>,
    /// The device.
    pub device: DeviceRank,
    /// The stream; streams of different devices have different numbers.
    pub stream: StreamId,
    /// Launched with the programmatic attribute: it may start when every CTA of its predecessor
    /// has executed `griddepcontrol.launch_dependents` or exited.
    pub programmatic: bool,
    /// Events the stream waits for first. An event that was never recorded does not wait.
    pub waits: Vec<u32>,
    /// The event recorded after it.
    pub record: Option<u32>,
    /// The host then waits for the device.
    pub sync: bool,
}

/// A launch that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("launch {launch}: {what}")]
pub struct LaunchError {
    /// The position of the launch, from 0.
    pub launch: usize,
    /// What is wrong.
    pub what: LaunchProblem,
}

/// What is wrong with a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchProblem {
    /// The function does not exist or is not an entry.
    #[error("the kernel is not an entry of the program")]
    NotAnEntry,
    /// A dimension of the grid is 0, or there are more than 2^31 - 1 CTAs.
    #[error("a grid of {0:?} CTAs; each dimension must be at least 1, the product below 2^31")]
    Grid([u32; 3]),
    /// A dimension of the block is 0, or there are more than 1,024 threads.
    #[error(
        "a block of {0:?} threads; each dimension must be at least 1, the product at most 1024"
    )]
    Block([u32; 3]),
    /// The block is not the one the kernel requires.
    #[error("a block of {block:?} threads; the kernel requires {required:?} (.reqntid)")]
    RequiredBlock {
        /// The block given.
        block: [u32; 3],
        /// `.reqntid`
        required: [u32; 3],
    },
    /// The block has more threads than the kernel allows.
    #[error("a block of {threads} threads; the kernel allows {allowed} (.maxntid)")]
    TooManyThreads {
        /// The threads given.
        threads: u64,
        /// The product of `.maxntid`.
        allowed: u64,
    },
    /// The parameter bytes do not fit the kernel's parameters.
    #[error("{given} bytes of parameters; the kernel has {expected}")]
    Params {
        /// The bytes given.
        given: usize,
        /// The size of the parameter space.
        expected: u32,
    },
    /// More shared memory than any GPU has.
    #[error("{0} bytes of shared memory; a CTA has at most {limit}", limit = MAX_SHARED_BYTES)]
    Shared(u64),
}

/// The most shared memory a CTA can have: 16 MiB, the size of the shared window. (Static variables
/// of all kernels of a module count together, so this is more than hardware has.)
pub const MAX_SHARED_BYTES: u32 = 1 << 24;

impl Launch {
    /// How many CTAs there are.
    pub fn ctas(&self) -> u32 {
        self.grid.iter().product()
    }

    /// How many threads a CTA has.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Static and dynamic shared memory of a CTA.
    pub fn shared_bytes(&self, program: &Program) -> u32 {
        match self.dynamic_shared {
            0 => program.shared_bytes,
            dynamic => program.dynamic_shared_offset() + dynamic,
        }
    }

    pub(super) fn check(&self, launch: usize, program: &Program) -> Result<(), LaunchError> {
        self.problem(program)
            .map_or(Ok(()), |what| Err(LaunchError { launch, what }))
    }

    fn problem(&self, program: &Program) -> Option<LaunchProblem> {
        let product = |dims: [u32; 3]| {
            dims.iter()
                .try_fold(1u64, |product, &d| product.checked_mul(u64::from(d)))
        };
        let Some(entry) = program
            .functions
            .get(self.entry.0 as usize)
            .filter(|f| f.entry)
        else {
            return Some(LaunchProblem::NotAnEntry);
        };
        if !product(self.grid).is_some_and(|n| (1..1 << 31).contains(&n)) {
            return Some(LaunchProblem::Grid(self.grid));
        }
        let threads = product(self.block).unwrap_or(0);
        if !(1..=1024).contains(&threads) {
            return Some(LaunchProblem::Block(self.block));
        }
        if let Some(required) = entry.reqntid.filter(|&required| required != self.block) {
            return Some(LaunchProblem::RequiredBlock {
                block: self.block,
                required,
            });
        }
        if let Some(allowed) = entry.maxntid.and_then(product).filter(|&max| threads > max) {
            return Some(LaunchProblem::TooManyThreads { threads, allowed });
        }
        if self.params.len() != entry.param_bytes as usize {
            return Some(LaunchProblem::Params {
                given: self.params.len(),
                expected: entry.param_bytes,
            });
        }
        let shared = u64::from(program.dynamic_shared_offset()) + u64::from(self.dynamic_shared);
        (shared > u64::from(MAX_SHARED_BYTES)).then_some(LaunchProblem::Shared(shared))
    }
}
