//! What a kernel that is a function can do: accesses to memory, each checked as on a GPU.

use std::ffi::CStr;
use std::sync::PoisonError;

use gsan_core::scope::{Order, Scope};
use gsan_device::host::{Cta, Strong};
use gsan_vmm::backend::{Backend, Device};

use super::kernel::Run;
use crate::error::{Error, Result};

/// A chance of 1 in so many that another CTA goes on after an ordinary access.
const AFTER_ORDINARY: u32 = 8;
/// The same after an atomic, which may wait for another CTA.
const AFTER_ATOMIC: u32 = 2;
/// As much of an access as is checked at once.
const CHUNK: usize = 1 << 16;

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOperation {
    /// Reads.
    Load,
    /// Writes the operand.
    Store,
    /// Adds the operand; wraps around.
    Add,
    /// Writes the operand.
    Exchange,
    /// Writes the operand if memory is what it is compared with.
    CompareAndSwap,
    /// The bits that both have.
    And,
    /// The bits that one of them has.
    Or,
    /// The bits that just one of them has.
    Xor,
    /// The smaller one, without sign.
    Min,
    /// The larger one, without sign.
    Max,
}

/// A CTA of a kernel that is a function.
pub struct HostCta<'r> {
    pub(super) run: &'r Run<'r>,
    pub(super) place: usize,
    pub(super) position: [u32; 3],
    pub(super) cta: Cta,
}

impl HostCta<'_> {
    /// Its position in the grid.
    pub const fn position(&self) -> [u32; 3] {
        self.position
    }

    /// Reads memory, at a line of a source file.
    ///
    /// # Errors
    /// When the range is not within one allocation, or the launch took too long.
    pub fn read(&self, address: u64, into: &mut [u8], file: &CStr, line: u32) -> Result<()> {
        self.turn(AFTER_ORDINARY)?;
        let device = self.check(address, into.len(), "read")?;
        let file = self.run.kernel.surroundings.files.intern(file);
        for (nth, part) in into.chunks_mut(CHUNK).enumerate() {
            let at = address + (nth * CHUNK) as u64;
            self.cta.access(false, at, part.len() as u32, &file, line);
            self.run
                .kernel
                .surroundings
                .backend
                .read(device, at, part)?;
        }
        Ok(())
    }

    /// Writes memory, at a line of a source file.
    ///
    /// # Errors
    /// When the range is not within one allocation, or the launch took too long.
    pub fn write(&self, address: u64, from: &[u8], file: &CStr, line: u32) -> Result<()> {
        self.turn(AFTER_ORDINARY)?;
        let device = self.check(address, from.len(), "write")?;
        let file = self.run.kernel.surroundings.files.intern(file);
        for (nth, part) in from.chunks(CHUNK).enumerate() {
            let at = address + (nth * CHUNK) as u64;
            self.cta.access(true, at, part.len() as u32, &file, line);
            self.run
                .kernel
                .surroundings
                .backend
                .write(device, at, part)?;
        }
        Ok(())
    }

    /// Does an atomic on `bytes` bytes, 1, 2, 4 or 8, at a multiple of that, at a line of a source file.
    /// Returns what was there before.
    ///
    /// # Errors
    /// When size or address are none of these, the order is one that the operation does not have, the
    /// range is not within one allocation, or the launch took too long.
    #[expect(
        clippy::too_many_arguments,
        reason = "an atomic has as many properties"
    )]
    pub fn atomic(
        &self,
        operation: AtomicOperation,
        address: u64,
        bytes: usize,
        operand: u64,
        compare: u64,
        order: Order,
        scope: Scope,
        file: &CStr,
        line: u32,
    ) -> Result<u64> {
        use AtomicOperation as Op;
        self.turn(AFTER_ATOMIC)?;
        if !matches!(bytes, 1 | 2 | 4 | 8) || !address.is_multiple_of(bytes as u64) {
            return Err(Error::Argument(format!(
                "an atomic on {bytes} bytes at {address:#x}: atomics are on 1, 2, 4 or 8 bytes, at a \
                 multiple of that"
            )));
        }
        let fits = match operation {
            Op::Load => !order.releases(),
            Op::Store => !order.acquires(),
            _ => true,
        };
        if !fits || order == Order::Weak {
            let access = match operation {
                Op::Load => "an atomic load",
                Op::Store => "an atomic store",
                _ => "an atomic",
            };
            let order = match order {
                Order::Weak => "weak",
                Order::Relaxed => "relaxed",
                Order::Acquire => "acquire",
                Order::Release => "release",
                Order::AcqRel => "acquire and release",
            };
            return Err(Error::Argument(format!(
                "{access} cannot be {order}: loads are relaxed or acquire, stores \
                 relaxed or release, all others relaxed, acquire, release or both"
            )));
        }
        let device = self.check(address, bytes, "atomic")?;
        let surroundings = &self.run.kernel.surroundings;
        let file = surroundings.files.intern(file);
        let reads = operation != Op::Store;
        let begun = self
            .cta
            .begin(address, bytes as u32, reads, strong(order, scope));
        let keep = if bytes == 8 {
            u64::MAX
        } else {
            (1 << (8 * bytes)) - 1
        };
        let (operand, compare) = (operand & keep, compare & keep);
        let mut word = [0u8; 8];
        let changed = {
            let _alone = surroundings
                .atomics
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            surroundings
                .backend
                .read(device, address, &mut word[..bytes])?;
            let old = u64::from_le_bytes(word);
            let new = match operation {
                Op::Load => None,
                Op::Store | Op::Exchange => Some(operand),
                Op::Add => Some(old.wrapping_add(operand) & keep),
                Op::CompareAndSwap => (old == compare).then_some(operand),
                Op::And => Some(old & operand),
                Op::Or => Some(old | operand),
                Op::Xor => Some(old ^ operand),
                Op::Min => Some(old.min(operand)),
                Op::Max => Some(old.max(operand)),
            };
            if let Some(new) = new {
                let new = &new.to_le_bytes()[..bytes];
                surroundings.backend.write(device, address, new)?;
            }
            new.is_some()
        };
        let is_rmw = !matches!(operation, Op::Load | Op::Store);
        self.cta.end(&begun, changed, is_rmw, &file, line);
        Ok(u64::from_le_bytes(word))
    }

    /// Waits for the launch that this one may overtake, as `griddepcontrol.wait` does. Streams of the host
    /// backend run one launch at a time, so that nothing is left to wait for; but without this call a kernel
    /// that is launched as a dependent one is not ordered after it, as on a GPU.
    pub fn wait_for_dependency(&self) {
        self.cta.wait();
    }

    pub(super) fn exit(self) {
        self.cta.exit();
    }

    /// Lets another CTA go on, perhaps.
    fn turn(&self, chance: u32) -> Result<()> {
        if self.place != usize::MAX {
            self.run.baton.pass(self.place, chance);
        }
        if self.run.is_late() {
            return Err(Error::Timeout(format!(
                "{} was given up after {:?}: a CTA may wait for something that never comes",
                self.name(),
                Run::limit()
            )));
        }
        Ok(())
    }

    fn name(&self) -> String {
        let [x, y, z] = self.position;
        format!("CTA ({x}, {y}, {z}) of `{}`", self.run.kernel.name)
    }

    /// Whether a range lies within one allocation. Returns whose memory it is.
    fn check(&self, address: u64, bytes: usize, what: &str) -> Result<Device> {
        let wrong = |why: String| {
            let name = self.name();
            Error::Argument(format!(
                "{what} of {bytes} bytes at {address:#x} by {name}: {why}"
            ))
        };
        if bytes == 0 {
            return Err(wrong("an access has at least one byte".into()));
        }
        let surroundings = &self.run.kernel.surroundings;
        let Some(allocation) = surroundings.allocator.find(address) else {
            return match surroundings.may_be_freed(address, bytes) {
                true => Ok(Device(0)),
                false => Err(wrong("no allocation is there".into())),
            };
        };
        let left = allocation.bytes - (address - allocation.address);
        if bytes as u64 > left {
            return Err(wrong(format!(
                "the allocation ends after {left} of them: it has {} bytes at {:#x}",
                allocation.bytes, allocation.address
            )));
        }
        Ok(allocation.device)
    }
}

fn strong(order: Order, scope: Scope) -> Strong {
    Strong {
        order: match order {
            Order::Weak | Order::Relaxed => 1,
            Order::Acquire => 2,
            Order::Release => 3,
            Order::AcqRel => 4,
        },
        scope: match scope {
            Scope::Cluster | Scope::Gpu => 1,
            Scope::Cta => 2,
            Scope::Sys => 3,
        },
    }
}
