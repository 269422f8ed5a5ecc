//! The mbarrier objects of a CTA (PTX ISA, "mbarrier").
//!
//! Their state is kept beside shared memory, whose bytes hold nothing that a program may look at.
//! `try_wait` is `test_wait`: it may return before the phase is complete.

use crate::exec::access::Target;
use crate::exec::fault::{FaultKind, MbarrierMisuse, Wait};
use crate::exec::interpret::{Runner, Stop};
use crate::exec::thread::Polled;
use crate::program::ir::{Address, Arrival, MbarrierAction, MemorySpace};
use crate::program::operand::{Operand, Reg};
use gsan_core::event::{Action, Detector, Event, Meeting};
use gsan_core::scope::{Order, Scope};
use std::collections::BTreeMap;

/// The size and alignment of an object.
const BYTES: u32 = 8;

/// The largest count of arrivals, and of transactions either way.
const MOST: u32 = (1 << 20) - 1;

/// An mbarrier object.
#[derive(Clone, Copy, Debug)]
struct Mbarrier {
    /// Arrivals that a phase needs.
    expected: u32,
    /// Arrivals that the running phase still waits for.
    pending: u32,
    /// Transactions that the running phase waits for.
    transactions: i32,
    /// Phases that are complete.
    phase: u64,
}

/// The objects, by their offset in shared memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Mbarriers {
    objects: BTreeMap<u64, Mbarrier>,
}

/// The state before an arrival, as a program gets it: pending arrivals in bits 0 to 19, the
/// object's offset in units of 8 bytes in bits 20 to 39, the phase in the bits above.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

const OFFSET_SHIFT: u32 = 20;
const PHASE_SHIFT: u32 = 40;

impl State {
    fn new(offset: u64, object: &Mbarrier) -> State {
        let place = (offset / u64::from(BYTES)) & u64::from(MOST);
        State(u64::from(object.pending) | place << OFFSET_SHIFT | object.phase << PHASE_SHIFT)
    }

    /// Whether its phase of the object at `offset` is complete.
    fn is_complete(self, offset: u64, object: &Mbarrier) -> Result<bool, MbarrierMisuse> {
        let running = State::new(offset, object).0;
        if ((self.0 ^ running) >> OFFSET_SHIFT) & u64::from(MOST) != 0 {
            return Err(MbarrierMisuse::ForeignState);
        }
        let age = (running >> PHASE_SHIFT).wrapping_sub(self.0 >> PHASE_SHIFT);
        match age & (u64::MAX >> PHASE_SHIFT) {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MbarrierMisuse::OldState),
        }
    }
}

/// `mbarrier.pending_count`
pub(super) fn pending_count(state: u64) -> u64 {
    state & u64::from(MOST)
}

impl Mbarrier {
    /// Arrives `count` times. Whether that completes the phase is for [`Self::settle`].
    fn arrive(&mut self, count: u64) -> Result<(), MbarrierMisuse> {
        let pending = self.pending;
        match u32::try_from(count).ok().filter(|&count| count <= pending) {
            Some(count) => {
                self.pending -= count;
                Ok(())
            }
            None => Err(MbarrierMisuse::TooManyArrivals { count, pending }),
        }
    }

    fn expect(&mut self, transactions: i64) -> Result<(), MbarrierMisuse> {
        let sum = i64::from(self.transactions) + transactions;
        if sum.unsigned_abs() > u64::from(MOST) {
            return Err(MbarrierMisuse::Transactions(sum));
        }
        self.transactions = sum as i32;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.pending == 0 && self.transactions == 0
    }

    /// Begins the next phase if the running one is complete.
    fn settle(&mut self) -> bool {
        let complete = self.is_complete();
        if complete {
            self.pending = self.expected;
            self.phase += 1;
        }
        complete
    }
}

impl Mbarriers {
    fn get(&mut self, offset: u64) -> Result<&mut Mbarrier, MbarrierMisuse> {
        self.objects.get_mut(&offset).ok_or(MbarrierMisuse::Missing)
    }

    /// Refuses a write to an object by anything but an mbarrier operation.
    #[inline]
    pub(super) fn check_overwrite(&self, address: u64, bytes: u64) -> Result<(), FaultKind> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let first = (address + 1).saturating_sub(BYTES.into());
        match self.objects.range(first..address + bytes).next() {
            Some((&offset, _)) => Err(FaultKind::Mbarrier {
                offset,
                misuse: MbarrierMisuse::Overwritten,
            }),
            None => Ok(()),
        }
    }

    /// What a thread waits for that tests the object again and again.
    pub(super) fn wait(&self, offset: u64) -> Option<Wait> {
        self.objects.get(&offset).map(|object| Wait::Mbarrier {
            offset,
            phase: object.phase,
            pending: object.pending,
            expected: object.expected,
            transactions: object.transactions,
        })
    }
}

impl<D: Detector> Runner<'_, '_, '_, D> {
    pub(super) fn mbarrier(
        &mut self,
        action: MbarrierAction,
        address: Address,
        space: MemorySpace,
    ) -> Result<(), Stop> {
        let address = self.address(address);
        let target = self.locate(space, address, BYTES, BYTES, true)?;
        if target.space != MemorySpace::Shared {
            return Err(FaultKind::MbarrierSpace {
                space: target.space,
                address: target.address,
            }
            .into());
        }
        let offset = target.address;
        self.tell_mbarrier(target, action)?;
        let misuse = |misuse| FaultKind::Mbarrier { offset, misuse };
        let at = Meeting::Mbarrier {
            owner: self.info.id,
            offset,
        };
        match action {
            MbarrierAction::Init { count } => {
                let count = self.count(count);
                let objects = &mut self.shared.mbarriers.objects;
                if objects.contains_key(&offset) {
                    return Err(misuse(MbarrierMisuse::InitialisedAgain).into());
                }
                let expected = positive(count).map_err(misuse)?;
                let object = Mbarrier {
                    expected,
                    pending: expected,
                    transactions: 0,
                    phase: 0,
                };
                objects.insert(offset, object);
                self.shared.write(offset, &[0; BYTES as usize]);
                self.env.detector.on(&Event::MeetingReset(at))?;
            }
            MbarrierAction::Invalidate => {
                let removed = self.shared.mbarriers.objects.remove(&offset);
                removed.ok_or(misuse(MbarrierMisuse::Missing))?;
            }
            MbarrierAction::Wait {
                done,
                phase,
                parity,
                acquires,
            } => return self.wait(offset, at, done, (phase, parity), acquires),
            MbarrierAction::ExpectTx { transactions }
            | MbarrierAction::CompleteTx { transactions } => {
                let mut transactions = self.count(transactions) as i64;
                if matches!(action, MbarrierAction::CompleteTx { .. }) {
                    transactions = -transactions;
                }
                let object = self.shared.mbarriers.get(offset).map_err(misuse)?;
                object.expect(transactions).map_err(misuse)?;
                self.settle(offset, at)?;
            }
            MbarrierAction::Arrive {
                state,
                amount,
                kind,
                drops,
                releases,
            } => {
                let amount = self.count(amount);
                let object = self.shared.mbarriers.get(offset).map_err(misuse)?;
                let before = State::new(offset, object);
                let mut count = amount;
                if kind == Arrival::ExpectTx {
                    object.expect(amount as i64).map_err(misuse)?;
                    count = 1;
                }
                let arrivals = positive(count).map_err(misuse)?;
                object.arrive(count).map_err(misuse)?;
                if drops {
                    object.expected -= arrivals;
                }
                if kind == Arrival::NoComplete && object.is_complete() {
                    return Err(misuse(MbarrierMisuse::Completes).into());
                }
                self.env.detector.on(&Event::Arrive {
                    thread: self.thread.id,
                    at,
                    releases,
                })?;
                self.settle(offset, at)?;
                self.set(state, before.0);
            }
            MbarrierAction::CopyArrive { increments } => {
                let object = self.shared.mbarriers.get(offset).map_err(misuse)?;
                if increments {
                    // The arrival that comes takes it away again.
                    positive(u64::from(object.pending) + 1).map_err(misuse)?;
                } else {
                    object.arrive(1).map_err(misuse)?;
                }
                // The copies were carried out when they were issued, so the arrival comes at once.
                for id in self.thread.copies.all() {
                    self.env.detector.on(&Event::AsyncArrive { id, at })?;
                }
                if !increments {
                    self.settle(offset, at)?;
                }
            }
        }
        self.thread.spin.change();
        self.env.generation += 1;
        Ok(())
    }

    /// Operations on an object are strong, but for those that begin and end it. The arrival of an
    /// asynchronous copy is not the thread's.
    fn tell_mbarrier(&mut self, target: Target, action: MbarrierAction) -> Result<(), Stop> {
        let (action, order) = match action {
            MbarrierAction::Init { .. } | MbarrierAction::Invalidate => {
                (Action::Write, Order::Weak)
            }
            MbarrierAction::Wait { .. } => (Action::Read, Order::Relaxed),
            MbarrierAction::CopyArrive { .. } => return Ok(()),
            MbarrierAction::Arrive { .. }
            | MbarrierAction::ExpectTx { .. }
            | MbarrierAction::CompleteTx { .. } => (Action::Red, Order::Relaxed),
        };
        self.tell(target, BYTES, action, order, Scope::Cta)
    }

    fn count(&self, operand: Operand) -> u64 {
        self.value(operand) & 0xffff_ffff
    }

    fn settle(&mut self, offset: u64, at: Meeting) -> Result<(), Stop> {
        let object = self.shared.mbarriers.objects.get_mut(&offset);
        if object.is_some_and(Mbarrier::settle) {
            self.env.detector.on(&Event::PhaseComplete(at))?;
        }
        Ok(())
    }

    fn wait(
        &mut self,
        offset: u64,
        at: Meeting,
        done: Reg,
        (phase, parity): (Operand, bool),
        acquires: bool,
    ) -> Result<(), Stop> {
        let misuse = |misuse| FaultKind::Mbarrier { offset, misuse };
        let object = *self.shared.mbarriers.get(offset).map_err(misuse)?;
        let complete = if parity {
            match self.count(phase) {
                parity @ (0 | 1) => object.phase % 2 != parity,
                other => return Err(misuse(MbarrierMisuse::Parity(other)).into()),
            }
        } else {
            let state = State(self.value(phase));
            state.is_complete(offset, &object).map_err(misuse)?
        };
        let running = State::new(offset, &object).0 ^ (object.transactions as u64).rotate_left(32);
        self.thread.spin.read(offset, running, Polled::Mbarrier);
        if complete {
            self.env.detector.on(&Event::Leave {
                thread: self.thread.id,
                at,
                acquires,
            })?;
        }
        self.set(done, complete.into());
        Ok(())
    }
}

/// A count of arrivals, if it can be one.
fn positive(count: u64) -> Result<u32, MbarrierMisuse> {
    u32::try_from(count)
        .ok()
        .filter(|count| (1..=MOST).contains(count))
        .ok_or(MbarrierMisuse::Count(count))
}
