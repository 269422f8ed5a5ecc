//! Moves and conversions.

use super::Result;
use super::arithmetic::{ROUNDINGS, int};
use super::decode::Decoder;
use super::scope::Meaning;
use super::types::{Class, DataType};
use crate::alu::convert::{Conversion, Numeric, PackInts, PackPair};
use crate::alu::float::{Clamp, Rounding};
use crate::alu::{Binary, Ternary, Unary};
use crate::program::ir::{MemorySpace, Op};
use crate::program::operand::Operand;
use crate::syntax::ast::Operand as Written;
use crate::syntax::types::Type;
use DataType::{
    B16, B32, B64, B128, Bf16, Bf16x2, E4m3x2, E5m2x2, F16, F16x2, F32, F64, Pred, S16, S32, S64,
    Tf32, U16, U32, U64,
};

impl Decoder<'_, '_, '_> {
    pub(super) fn mov(&mut self) -> Result<Op> {
        let width = self.choice(&[("v2", 2), ("v4", 4)]);
        let ty = self.ty_of(&[
            Pred, B16, B32, B64, B128, U16, U32, U64, S16, S32, S64, F32, F64,
        ])?;
        self.count(2, 2)?;
        if let Some(width) = width {
            return self.move_elements(width, ty);
        }
        let (to, from) = (self.operand(0)?, self.operand(1)?);
        let vectors = [&to.value, &from.value].map(|o| matches!(o, Written::Vector(_)));
        match vectors {
            [true, true] => Err(self.error(from.span, "`mov` takes one vector, not two")),
            [false, true] => self.pack(ty),
            [true, false] => self.unpack(ty),
            [false, false] if ty == B128 => {
                let dst = self.destinations(std::slice::from_ref(to), ty)?;
                let src = self.values(std::slice::from_ref(from), ty, false)?;
                self.emit(Op::Move {
                    dst: dst[0],
                    src: src[0],
                });
                Ok(Op::Move {
                    dst: dst[1],
                    src: src[1],
                })
            }
            [false, false] if ty == Pred => Ok(Op::Move {
                dst: self.dst(0, ty)?,
                src: {
                    let predicate = self.predicate(1)?;
                    if predicate.negated {
                        return Err(self.error(from.span, "`mov` takes no negated predicate"));
                    }
                    predicate.operand
                },
            }),
            [false, false] => Ok(Op::Move {
                dst: self.dst(0, ty)?,
                src: self.src(1, ty)?,
            }),
        }
    }

    /// `mov.v4` between vector registers.
    fn move_elements(&mut self, width: usize, ty: DataType) -> Result<Op> {
        let (to, from) = (self.elements_of(0, width)?, self.elements_of(1, width)?);
        let dst = self.destinations(&to, ty)?;
        let src = self.values(&from, ty, false)?;
        // All are read before one is written.
        let mut copies = Vec::new();
        for src in src {
            let copy = self.body.temporary();
            self.emit(Op::Move { dst: copy, src });
            copies.push(copy);
        }
        for (dst, copy) in dst.into_iter().zip(copies) {
            let src = Operand::Reg(copy);
            self.emit(Op::Move { dst, src });
        }
        Ok(Op::Nop)
    }

    /// The type of each of `count` parts of a value of type `ty`.
    fn part(&self, ty: DataType, count: usize) -> Result<DataType> {
        let bits = ty.bits();
        match (bits as usize).checked_div(count) {
            Some(part @ (8 | 16 | 32 | 64)) if part * count == bits as usize && count > 1 => {
                Ok(DataType::of_bits(part as u32))
            }
            _ => Err(self.opcode_error(format!("`{ty}` does not consist of {count} parts"))),
        }
    }

    fn pack(&mut self, ty: DataType) -> Result<Op> {
        let elements = self.elements(1)?;
        let part = self.part(ty, elements.len())?;
        let sources = self.values(&elements, part, false)?;
        let to = self.operand(0)?;
        let dst = self.destinations(std::slice::from_ref(to), DataType::of_bits(ty.bits()))?;
        Ok(Op::Pack {
            dst: self.registers(&dst),
            bits: part.bits() as u8,
            sources: self.list(&sources),
        })
    }

    fn unpack(&mut self, ty: DataType) -> Result<Op> {
        let elements = self.elements(0)?;
        let part = self.part(ty, elements.len())?;
        let dst = self.destinations(&elements, part)?;
        let from = self.operand(1)?;
        let untyped = DataType::of_bits(ty.bits());
        let source = self.values(std::slice::from_ref(from), untyped, false)?;
        Ok(Op::Unpack {
            dst: self.registers(&dst),
            bits: part.bits() as u8,
            source: self.list(&source),
        })
    }

    pub(super) fn convert_address(&mut self) -> Result<Op> {
        let to_space = self.flag("to");
        let space = self.space();
        if space == MemorySpace::Generic {
            return Err(self.opcode_error("`cvta` lacks a state space, such as `.global`"));
        }
        let ty = self.ty_of(&[U32, U64])?;
        if ty == U32 {
            return Err(self.opcode_error("32-bit generic addresses are not supported"));
        }
        self.count(2, 2)?;
        let dst = self.dst(0, ty)?;
        let a = self.src(1, ty)?;
        Ok(match space {
            MemorySpace::Global | MemorySpace::Const => Op::Move { dst, src: a },
            MemorySpace::Param if !self.body.entry => Op::ConvertAddress {
                dst,
                a,
                space: MemorySpace::Local,
                to_space,
            },
            space => Op::ConvertAddress {
                dst,
                a,
                space,
                to_space,
            },
        })
    }

    pub(super) fn is_space(&mut self) -> Result<Op> {
        let space = self.space();
        if space == MemorySpace::Generic {
            return Err(self.opcode_error("`isspacep` lacks a state space, such as `.global`"));
        }
        self.count(2, 2)?;
        Ok(Op::IsSpace {
            dst: self.dst(0, Pred)?,
            a: self.src(1, B64)?,
            space,
        })
    }

    pub(super) fn convert(&mut self) -> Result<Op> {
        if self.flag("pack") {
            return self.pack_integers();
        }
        let integral = self.choice(&[
            ("rni", Rounding::NearestEven),
            ("rzi", Rounding::TowardZero),
            ("rmi", Rounding::Down),
            ("rpi", Rounding::Up),
        ]);
        let rounding = integral.or_else(|| self.choice(ROUNDINGS));
        let ftz = self.flag("ftz");
        let clamp = self
            .choice(&[("sat", Clamp::Saturate), ("relu", Clamp::Relu)])
            .unwrap_or_default();
        let finite = self.flag("satfinite");
        let to = self.ty()?;
        let from = self.ty()?;
        let (Some(to_number), Some(from_number)) = (numeric(to), numeric(from)) else {
            return Err(self.unsupported());
        };
        let integer = |ty: DataType| matches!(ty.class(), Class::Integer { .. });
        let narrows = !integer(to) && (integer(from) || from.bits() > to.bits());
        if rounding.is_none() && (narrows || integer(to) && !integer(from)) {
            let help = if integer(to) { "`.rzi`" } else { "`.rn`" };
            return Err(self
                .opcode_error("this `cvt` needs a rounding modifier")
                .with_help(format!("write {help} to round as C does")));
        }
        let rounding = rounding.unwrap_or_default();
        if self.operand_count() == 3 {
            return self.convert_pair(to, to_number, from, rounding, clamp, finite);
        }
        self.count(2, 2)?;
        let operand = self.operand(1)?;
        let a = self.value(operand, from, true)?;
        let (dst, register) = self.destination(self.operand(0)?, to, true)?;
        let conversion = Conversion {
            to: to_number,
            from: from_number,
            rounding,
            integral: integral.is_some() && !integer(to),
            ftz,
            clamp,
            finite,
        };
        let convert = Op::Unary {
            f: Unary::Convert(conversion),
            dst,
            a,
        };
        let signed = to.class() == Class::Integer { signed: true };
        if !signed || register.bytes() == Some(to.bits() / 8) {
            return Ok(convert);
        }
        // A signed result fills the whole register with its sign.
        self.emit(convert);
        Ok(Op::Unary {
            f: Unary::Convert(Conversion {
                to: Numeric::Int(signed_of(register)),
                from: to_number,
                rounding: Rounding::default(),
                integral: false,
                ftz: false,
                clamp: Clamp::None,
                finite: false,
            }),
            dst,
            a: Operand::Reg(dst),
        })
    }

    fn convert_pair(
        &mut self,
        to: DataType,
        number: Numeric,
        from: DataType,
        rounding: Rounding,
        clamp: Clamp,
        finite: bool,
    ) -> Result<Op> {
        if from != F32 || !matches!(to, F16x2 | Bf16x2 | E4m3x2 | E5m2x2) {
            return Err(self.unsupported());
        }
        Ok(Op::Binary {
            f: Binary::Pack(PackPair {
                to: number,
                rounding,
                clamp,
                finite,
            }),
            dst: self.dst(0, to)?,
            a: self.src(1, from)?,
            b: self.src(2, from)?,
        })
    }

    /// `cvt.pack.sat.to.from d, a, b {, c}`
    fn pack_integers(&mut self) -> Result<Op> {
        use DataType::{S2, S4, S8, U2, U4, U8};
        self.demand("sat")?;
        let to = self.ty_of(&[U2, S2, U4, S4, U8, S8, U16, S16])?;
        let from = self.ty_of(&[S32])?;
        let pack = PackInts {
            bits: to.bits() as u8,
            signed: to.class() == Class::Integer { signed: true },
            from_signed: from == S32,
        };
        if matches!(to, U16 | S16) {
            self.count(3, 3)?;
            return Ok(Op::Binary {
                f: Binary::PackInts(pack),
                dst: self.dst(0, B32)?,
                a: self.src(1, from)?,
                b: self.src(2, from)?,
            });
        }
        self.ty_of(&[B32])?;
        self.count(4, 4)?;
        Ok(Op::Ternary {
            f: Ternary::PackInts(pack),
            dst: self.dst(0, B32)?,
            a: self.src(1, from)?,
            b: self.src(2, from)?,
            c: self.src(3, B32)?,
        })
    }

    /// Whether an operand names a predicate register.
    pub(super) fn is_predicate(&self, operand: &Written) -> bool {
        match operand {
            Written::Not(_) => true,
            Written::Symbol(symbol) => matches!(
                self.body.scope.find(&symbol.name),
                Some((Meaning::Register(register), _)) if register.ty == Type::Pred
            ),
            _ => false,
        }
    }
}

fn signed_of(register: Type) -> crate::alu::integer::Int {
    int(match register.bytes() {
        Some(1 | 2) => S16,
        Some(4) => S32,
        _ => S64,
    })
}

/// What `cvt` makes of a type.
fn numeric(ty: DataType) -> Option<Numeric> {
    Some(match ty {
        F16 => Numeric::F16,
        F16x2 => Numeric::F16x2,
        Bf16 => Numeric::Bf16,
        Bf16x2 => Numeric::Bf16x2,
        Tf32 => Numeric::Tf32,
        F32 => Numeric::F32,
        F64 => Numeric::F64,
        E4m3x2 => Numeric::E4m3x2,
        E5m2x2 => Numeric::E5m2x2,
        ty if matches!(ty.class(), Class::Integer { .. }) && ty.bits() >= 8 => {
            Numeric::Int(int(ty))
        }
        _ => return None,
    })
}
