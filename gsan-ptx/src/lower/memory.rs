//! Loads, stores, atomics and asynchronous copies.

use super::Result;
use super::decode::Decoder;
use super::types::{Class, DataType};
use crate::alu::Rmw;
use crate::alu::float::{Extremum, FloatBinary, FloatMode, FloatType};
use crate::program::ir::{Element, MemoryAccess, MemorySpace, Op};
use crate::program::operand::{Operand, Reg};
use crate::syntax::ast;
use gsan_core::scope::{Order, Scope};

const SCOPES: &[(&str, Scope)] = &[
    ("cta", Scope::Cta),
    ("cluster", Scope::Cluster),
    ("gpu", Scope::Gpu),
    ("sys", Scope::Sys),
];

/// Modifiers that say how an access should be cached. They change nothing that can be observed.
const HINTS: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "nc",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "unified",
];

impl<'a> Decoder<'_, '_, 'a> {
    fn hints(&mut self) {
        for hint in HINTS {
            self.flag(hint);
        }
    }

    /// Takes `.L2::cache_hint` and checks its operand, which stands at `index`.
    fn cache_policy(&mut self, index: usize) -> Result<usize> {
        if !self.flag("L2::cache_hint") {
            return Ok(index);
        }
        self.src(index, DataType::B64)?;
        Ok(index + 1)
    }

    fn width(&mut self) -> usize {
        self.choice(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
    }

    /// Takes the order and scope of a load or store. Volatile accesses are relaxed at system
    /// scope (PTX ISA, "Memory Consistency Model", "Volatile Operations").
    fn ordering(&mut self, orders: &[(&str, Order)]) -> Result<(Order, Scope)> {
        if self.flag("volatile") {
            return Ok((Order::Relaxed, Scope::Sys));
        }
        self.flag("mmio");
        self.flag("weak");
        match self.choice(orders) {
            Some(order) => Ok((order, self.required(SCOPES)?)),
            None => Ok((Order::Weak, Scope::Sys)),
        }
    }

    /// Every element must be at most 16 bytes, and the whole at most 32.
    fn check_memory_type(&self, ty: DataType, count: usize) -> Result<()> {
        let bits = ty.bits();
        let number = matches!(ty.class(), Class::Integer { .. } | Class::Float)
            || matches!(
                ty,
                DataType::B8 | DataType::B16 | DataType::B32 | DataType::B64 | DataType::B128
            );
        if number && bits >= 8 && bits as usize * count <= 256 && ty != DataType::F16 {
            return Ok(());
        }
        Err(self.opcode_error(format!(
            "`{}` does not move {count} elements of type `{ty}`",
            self.opcode()
        )))
    }

    pub(super) fn load(&mut self) -> Result<Op> {
        let space = self.space();
        let (order, scope) =
            self.ordering(&[("relaxed", Order::Relaxed), ("acquire", Order::Acquire)])?;
        self.hints();
        let count = self.width();
        let ty = self.ty()?;
        self.check_memory_type(ty, count)?;
        let operands = self.cache_policy(2)?;
        self.count(operands, operands)?;
        let elements = self.elements_of(0, count)?;
        let mut dst = Vec::new();
        let mut widened = false;
        for element in &elements {
            let reg = match element.value {
                ast::Operand::Sink => self.body.sink(),
                _ => {
                    let (reg, register) = self.destination(element, ty, true)?;
                    widened |= register.bytes() > Some(ty.bits() / 8);
                    reg
                }
            };
            dst.push(reg);
            if ty.bits() == 128 {
                dst.push(Reg(reg.0 + 1));
            }
        }
        let (address, space) = self.address(1, space)?;
        Ok(Op::Load {
            dst: self.registers(&dst),
            address,
            access: MemoryAccess {
                space,
                element: Element {
                    signed: widened && ty.class() == Class::Integer { signed: true },
                    ..element(ty)
                },
                order,
                scope,
            },
        })
    }

    pub(super) fn store(&mut self) -> Result<Op> {
        if self.flag("async") || self.flag("bulk") {
            return Err(self.unsupported());
        }
        let space = self.space();
        let (order, scope) =
            self.ordering(&[("relaxed", Order::Relaxed), ("release", Order::Release)])?;
        self.hints();
        let count = self.width();
        let ty = self.ty()?;
        self.check_memory_type(ty, count)?;
        let operands = self.cache_policy(2)?;
        self.count(operands, operands)?;
        let (address, space) = self.address(0, space)?;
        if space == MemorySpace::Const {
            return Err(self.error(self.operand(0)?.span, "constant memory cannot be written"));
        }
        if space == MemorySpace::Param {
            return Err(self.error(
                self.operand(0)?.span,
                "the parameters of a kernel cannot be written",
            ));
        }
        let elements = self.elements_of(1, count)?;
        let sources = self.values(&elements, ty, true)?;
        Ok(Op::Store {
            sources: self.list(&sources),
            address,
            access: MemoryAccess {
                space,
                element: element(ty),
                order,
                scope,
            },
        })
    }

    /// `atom` and `red`
    pub(super) fn atomic(&mut self) -> Result<Op> {
        if self.flag("async") {
            return Err(self.unsupported());
        }
        let returns = self.opcode() == "atom";
        let space = self.space();
        if !matches!(
            space,
            MemorySpace::Generic | MemorySpace::Global | MemorySpace::Shared
        ) {
            return Err(self.opcode_error(format!(
                "`{}` works on global and shared memory only",
                self.opcode()
            )));
        }
        let order = self
            .choice(&[
                ("relaxed", Order::Relaxed),
                ("acquire", Order::Acquire),
                ("release", Order::Release),
                ("acq_rel", Order::AcqRel),
            ])
            .unwrap_or(Order::Relaxed);
        if !returns && matches!(order, Order::Acquire | Order::AcqRel) {
            return Err(self.opcode_error("`red` returns nothing and so cannot acquire"));
        }
        let scope = self.choice(SCOPES).unwrap_or(Scope::Gpu);
        self.hints();
        let count = self.width();
        let (mut rmw, ty) = self.rmw(returns)?;
        let operands = usize::from(returns) + 2 + usize::from(rmw == Rmw::CompareAndSwap);
        let operands = self.cache_policy(operands)?;
        self.count(operands, operands)?;
        let mut dst = Vec::new();
        let mut next = 0;
        if returns {
            let elements = self.elements_of(0, count)?;
            dst = self.destinations(&elements, ty)?;
            next = 1;
        }
        let (address, space) = self.address(next, space)?;
        if let Rmw::Float(_, FloatType::F32, mode) = &mut rmw {
            // Additions of f32 in global memory flush subnormal numbers, in shared memory they do
            // not (PTX ISA, "atom").
            mode.ftz = space != MemorySpace::Shared;
        }
        let mut sources = Vec::new();
        for operand in next + 1..next + 2 + usize::from(rmw == Rmw::CompareAndSwap) {
            let elements = self.elements_of(operand, count)?;
            sources.extend(self.values(&elements, ty, false)?);
        }
        Ok(Op::Atomic {
            rmw,
            dst: self.registers(&dst),
            sources: self.list(&sources),
            address,
            access: MemoryAccess {
                space,
                element: element(ty),
                order,
                scope,
            },
        })
    }

    /// Takes the operation of an atomic or of `redux`, and its type.
    fn rmw(&mut self, returns: bool) -> Result<(Rmw, DataType)> {
        use DataType::{B16, B32, B64, B128, S32, S64, U32, U64};
        #[derive(Clone, Copy, PartialEq)]
        enum Name {
            Exchange,
            CompareAndSwap,
            And,
            Or,
            Xor,
            Add,
            Inc,
            Dec,
            Min,
            Max,
        }
        let name = self.required(&[
            ("exch", Name::Exchange),
            ("cas", Name::CompareAndSwap),
            ("and", Name::And),
            ("or", Name::Or),
            ("xor", Name::Xor),
            ("add", Name::Add),
            ("inc", Name::Inc),
            ("dec", Name::Dec),
            ("min", Name::Min),
            ("max", Name::Max),
        ])?;
        if !returns && matches!(name, Name::Exchange | Name::CompareAndSwap) {
            return Err(self
                .opcode_error("`red` has no exchange and no compare-and-swap")
                .with_help("use `atom`"));
        }
        Ok(match name {
            Name::Exchange => (Rmw::Exchange, self.ty_of(&[B32, B64, B128])?),
            Name::CompareAndSwap => (Rmw::CompareAndSwap, self.ty_of(&[B16, B32, B64, B128])?),
            Name::And => (Rmw::And, self.ty_of(&[B32, B64])?),
            Name::Or => (Rmw::Or, self.ty_of(&[B32, B64])?),
            Name::Xor => (Rmw::Xor, self.ty_of(&[B32, B64])?),
            Name::Inc => (Rmw::Inc, self.ty_of(&[U32])?),
            Name::Dec => (Rmw::Dec, self.ty_of(&[U32])?),
            Name::Add | Name::Min | Name::Max => {
                let noftz = self.flag("noftz");
                let ty = self.ty()?;
                if let Some(float) = float_type(ty) {
                    let f = match name {
                        Name::Add => FloatBinary::Add,
                        Name::Min => FloatBinary::Min(Extremum::default()),
                        _ => FloatBinary::Max(Extremum::default()),
                    };
                    return Ok((Rmw::Float(f, float, FloatMode::default()), ty));
                }
                if noftz {
                    return Err(self.opcode_error(format!("`.noftz` does not apply to `{ty}`")));
                }
                let signed = ty.class() == Class::Integer { signed: true };
                let (rmw, types): (_, &[DataType]) = match name {
                    Name::Add => (Rmw::Add, &[U32, S32, U64]),
                    Name::Min => (Rmw::Min { signed }, &[U32, S32, U64, S64]),
                    _ => (Rmw::Max { signed }, &[U32, S32, U64, S64]),
                };
                if !types.contains(&ty) {
                    return Err(self.bad_type(ty, types));
                }
                (rmw, ty)
            }
        })
    }

    pub(super) fn redux(&mut self) -> Result<Op> {
        use crate::program::ir::Collective;
        self.demand("sync")?;
        let (rmw, ty) = self.rmw(true)?;
        let whole = matches!(
            rmw,
            Rmw::And | Rmw::Or | Rmw::Xor | Rmw::Add | Rmw::Min { .. } | Rmw::Max { .. }
        );
        if !whole || ty.bits() != 32 {
            return Err(self.unsupported());
        }
        self.count(3, 3)?;
        let dst = self.dst(0, ty)?;
        let value = self.src(1, ty)?;
        let mask = self.src(2, DataType::B32)?;
        Ok(Op::Collective {
            kind: Collective::Redux(rmw),
            dst: self.registers(&[dst]),
            sources: self.list(&[value, mask]),
        })
    }

    /// `cp.async` and its groups; the bulk forms are not supported.
    pub(super) fn copy(&mut self) -> Result<Op> {
        if !self.flag("async") || self.flag("bulk") {
            return Err(self.unsupported());
        }
        if self.flag("mbarrier") {
            return self.copy_arrive();
        }
        if self
            .instruction
            .value
            .modifiers
            .iter()
            .any(|word| word.starts_with("mbarrier"))
        {
            return Err(self.unsupported());
        }
        if self.flag("commit_group") {
            return self.plain(Op::CommitGroup);
        }
        if self.flag("wait_all") {
            return self.plain(Op::WaitAll);
        }
        if self.flag("wait_group") {
            self.count(1, 1)?;
            let groups = self.immediate(0)?;
            return Ok(Op::WaitGroup(u32::try_from(groups).unwrap_or(u32::MAX)));
        }
        self.required(&[("ca", ()), ("cg", ())])?;
        self.required(&[("shared", ()), ("shared::cta", ())])?;
        self.demand("global")?;
        self.hints();
        let policy = self.flag("L2::cache_hint");
        let most = 4 + usize::from(policy);
        self.count(3, most)?;
        let last = self.operand_count() - usize::from(policy);
        if policy {
            self.src(last, DataType::B64)?;
        }
        let (to, _) = self.address(0, MemorySpace::Shared)?;
        let (from, _) = self.address(1, MemorySpace::Global)?;
        let bytes = match self.immediate(2)? {
            bytes @ (4 | 8 | 16) => bytes as u8,
            bytes => {
                let span = self.operand(2)?.span;
                return Err(self
                    .error(span, format!("`cp.async` does not copy {bytes} bytes"))
                    .with_help("it copies 4, 8 or 16 bytes"));
            }
        };
        let mut source_bytes = None;
        let mut ignore_source = None;
        if last > 3 {
            if self.is_predicate(&self.operand(3)?.value) {
                let predicate = self.predicate(3)?;
                if predicate.negated {
                    return Err(self.error(self.operand(3)?.span, "a negated `ignore-src`"));
                }
                ignore_source = Some(predicate.operand);
            } else {
                source_bytes = Some(self.src(3, DataType::U32)?);
            }
        }
        Ok(Op::CopyAsync {
            to,
            from,
            bytes,
            source_bytes,
            ignore_source,
        })
    }

    /// Hints to the caches: they do nothing here. Their addresses are not read.
    pub(super) fn cache_hint(&mut self) -> Result<Op> {
        let space = self.space();
        self.choice(&[("L1", ()), ("L2", ())]);
        self.hints();
        self.flag("tensormap");
        self.count(1, 2)?;
        self.address(0, space)?;
        Ok(Op::Nop)
    }

    /// `createpolicy`: an opaque number that only cache hints take.
    pub(super) fn create_policy(&mut self) -> Result<Op> {
        self.choice(&[("fractional", ()), ("range", ())]);
        for word in [
            "global",
            "L2::evict_last",
            "L2::evict_normal",
            "L2::evict_first",
            "L2::evict_unchanged",
        ] {
            // Primary and secondary priority may be the same word.
            self.flag(word);
            self.flag(word);
        }
        self.flag("cvt");
        self.flag("L2");
        let ty = self.ty_of(&[DataType::B64])?;
        let dst = self.dst(0, ty)?;
        let src: Operand = self.body.lowerer.constant(0);
        Ok(Op::Move { dst, src })
    }
}

/// An element of type `ty`, which loads extend by zeros.
fn element(ty: DataType) -> Element {
    Element {
        bytes: (ty.bits() / 8) as u8,
        signed: false,
    }
}

/// The floating-point type of arithmetic on `ty`.
pub(super) fn float_type(ty: DataType) -> Option<FloatType> {
    Some(match ty {
        DataType::F16 => FloatType::F16,
        DataType::F16x2 => FloatType::F16x2,
        DataType::Bf16 => FloatType::Bf16,
        DataType::Bf16x2 => FloatType::Bf16x2,
        DataType::F32 => FloatType::F32,
        DataType::F32x2 => FloatType::F32x2,
        DataType::F64 => FloatType::F64,
        _ => return None,
    })
}
