//! `mbarrier`, and `cp.async.mbarrier.arrive`.

use super::Result;
use super::decode::Decoder;
use super::types::DataType;
use crate::program::ir::{Address, Arrival, MbarrierAction, MemorySpace, Op};

impl Decoder<'_, '_, '_> {
    pub(super) fn mbarrier(&mut self) -> Result<Op> {
        #[derive(Clone, Copy)]
        enum Name {
            Init,
            Inval,
            ExpectTx,
            CompleteTx,
            Arrive { drops: bool },
            Wait { hint: bool },
            PendingCount,
        }
        let name = self.required(&[
            ("init", Name::Init),
            ("inval", Name::Inval),
            ("arrive", Name::Arrive { drops: false }),
            ("arrive_drop", Name::Arrive { drops: true }),
            ("test_wait", Name::Wait { hint: false }),
            ("try_wait", Name::Wait { hint: true }),
            ("pending_count", Name::PendingCount),
            ("expect_tx", Name::ExpectTx),
            ("complete_tx", Name::CompleteTx),
        ])?;
        self.ty_of(&[DataType::B64])?;
        match name {
            Name::Init => {
                self.count(2, 2)?;
                let count = self.src(1, DataType::U32)?;
                self.action(0, MbarrierAction::Init { count })
            }
            Name::Inval => {
                self.count(1, 1)?;
                self.action(0, MbarrierAction::Invalidate)
            }
            Name::ExpectTx | Name::CompleteTx => {
                self.flag("relaxed");
                self.reach();
                self.count(2, 2)?;
                let transactions = self.src(1, DataType::U32)?;
                let action = match name {
                    Name::ExpectTx => MbarrierAction::ExpectTx { transactions },
                    _ => MbarrierAction::CompleteTx { transactions },
                };
                self.action(0, action)
            }
            Name::Arrive { drops } => self.mbarrier_arrive(drops),
            Name::Wait { hint } => self.mbarrier_wait(hint),
            Name::PendingCount => {
                self.count(2, 2)?;
                Ok(Op::PendingCount {
                    dst: self.dst(0, DataType::B32)?,
                    state: self.src(1, DataType::B64)?,
                })
            }
        }
    }

    fn mbarrier_arrive(&mut self, drops: bool) -> Result<Op> {
        let kind = self
            .choice(&[
                ("noComplete", Arrival::NoComplete),
                ("expect_tx", Arrival::ExpectTx),
            ])
            .unwrap_or(Arrival::Counted);
        let releases = !self.flag("relaxed");
        self.flag("release");
        self.reach();
        self.count(if kind == Arrival::Counted { 2 } else { 3 }, 3)?;
        let state = self.operand(0)?;
        let state = self.dst_or_sink(state, DataType::B64)?;
        let amount = if self.operand_count() == 3 {
            self.src(2, DataType::U32)?
        } else {
            self.body.lowerer.constant(1)
        };
        self.action(
            1,
            MbarrierAction::Arrive {
                state,
                amount,
                kind,
                drops,
                releases,
            },
        )
    }

    /// `test_wait`, and `try_wait`, which may return at any time and so is the same, but that a hint
    /// how long to wait may follow.
    fn mbarrier_wait(&mut self, hint: bool) -> Result<Op> {
        let parity = self.flag("parity");
        let acquires = !self.flag("relaxed");
        self.flag("acquire");
        self.reach();
        self.count(3, if hint { 4 } else { 3 })?;
        let done = self.dst(0, DataType::Pred)?;
        let ty = if parity { DataType::B32 } else { DataType::B64 };
        let phase = self.src(2, ty)?;
        if self.operand_count() == 4 {
            self.src(3, DataType::U32)?;
        }
        self.action(
            1,
            MbarrierAction::Wait {
                done,
                phase,
                parity,
                acquires,
            },
        )
    }

    /// `cp.async.mbarrier.arrive`, its first three words taken.
    pub(super) fn copy_arrive(&mut self) -> Result<Op> {
        self.demand("arrive")?;
        let increments = !self.flag("noinc");
        self.ty_of(&[DataType::B64])?;
        self.count(1, 1)?;
        self.action(0, MbarrierAction::CopyArrive { increments })
    }

    /// Takes a scope. Barriers of a CTA, and of a cluster of one, reach everybody who can name
    /// them.
    fn reach(&mut self) {
        self.choice(&[("cta", ()), ("cluster", ())]);
    }

    /// The operation on the object whose address stands at `index`.
    fn action(&mut self, index: usize, action: MbarrierAction) -> Result<Op> {
        let (address, space) = self.object(index)?;
        Ok(Op::Mbarrier {
            action,
            address,
            space,
        })
    }

    fn object(&mut self, index: usize) -> Result<(Address, MemorySpace)> {
        let space = self.space();
        let (address, found) = self.address(index, space)?;
        if matches!(found, MemorySpace::Generic | MemorySpace::Shared) {
            return Ok((address, found));
        }
        let span = self.operand(index)?.span;
        Err(self.error(span, "an mbarrier lies in shared memory"))
    }
}
