//! Integer, floating-point, logic and comparison instructions.

use super::Result;
use super::decode::Decoder;
use super::memory::float_type;
use super::types::{Class, DataType};
use crate::alu::compare::{Combine, Compared, Comparison, SetResult, Test};
use crate::alu::float::{
    Clamp, Extremum, FloatBinary, FloatMode, FloatTernary, FloatType, FloatUnary, NumberTest,
    Rounding,
};
use crate::alu::integer::{
    Bits, CarryKind, CarryOp, Int, IntBinary, IntTernary, IntUnary, PackedBinary, Permute,
};
use crate::alu::{Binary, Quaternary, Ternary, Unary};
use crate::program::ir::{Op, PredicateOperand};
use crate::program::operand::Operand;
use DataType::{
    B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F32x2, F64, Pred, S16, S16x2, S32, S64, U16,
    U16x2, U32, U64,
};

const INTEGERS: &[DataType] = &[U16, U32, U64, S16, S32, S64];
const WORDS: &[DataType] = &[B16, B32, B64];
const LARGE_WORDS: &[DataType] = &[B32, B64];

pub(super) const ROUNDINGS: &[(&str, Rounding)] = &[
    ("rn", Rounding::NearestEven),
    ("rz", Rounding::TowardZero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
    ("rna", Rounding::NearestAway),
];

/// The integer type of arithmetic on `ty`, which is an integer or untyped.
pub(super) fn int(ty: DataType) -> Int {
    Int {
        bits: match ty.bits() {
            0..=8 => Bits::B8,
            16 => Bits::B16,
            32 => Bits::B32,
            _ => Bits::B64,
        },
        signed: ty.class() == Class::Integer { signed: true },
    }
}

/// Twice as wide a type.
fn wide(ty: DataType) -> DataType {
    match ty {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        _ => S64,
    }
}

impl Decoder<'_, '_, '_> {
    fn unary(&mut self, f: Unary, to: DataType, from: DataType) -> Result<Op> {
        self.count(2, 2)?;
        Ok(Op::Unary {
            f,
            dst: self.dst(0, to)?,
            a: self.src(1, from)?,
        })
    }

    /// Destination and operands of these types.
    fn binary(&mut self, f: Binary, to: DataType, from: [DataType; 2]) -> Result<Op> {
        self.count(3, 3)?;
        Ok(Op::Binary {
            f,
            dst: self.dst(0, to)?,
            a: self.src(1, from[0])?,
            b: self.src(2, from[1])?,
        })
    }

    fn ternary(&mut self, f: Ternary, to: DataType, from: [DataType; 3]) -> Result<Op> {
        self.count(4, 4)?;
        Ok(Op::Ternary {
            f,
            dst: self.dst(0, to)?,
            a: self.src(1, from[0])?,
            b: self.src(2, from[1])?,
            c: self.src(3, from[2])?,
        })
    }

    /// Takes rounding, `.ftz`, `.sat` and `.relu`.
    fn float_mode(&mut self) -> FloatMode {
        FloatMode {
            rounding: self.choice(ROUNDINGS).unwrap_or_default(),
            ftz: self.flag("ftz"),
            clamp: self
                .choice(&[("sat", Clamp::Saturate), ("relu", Clamp::Relu)])
                .unwrap_or_default(),
        }
    }

    fn float_ty(&mut self) -> Result<(DataType, FloatType)> {
        let ty = self.ty()?;
        match float_type(ty) {
            Some(float) => Ok((ty, float)),
            None => Err(self.bad_type(ty, &[F16, F16x2, Bf16, Bf16x2, F32, F32x2, F64])),
        }
    }

    /// `add`, `sub`
    pub(super) fn sum(&mut self, subtract: bool) -> Result<Op> {
        if self.flag("cc") {
            return self.carry(CarryKind::Add, subtract, false, true);
        }
        let mode = self.float_mode();
        let ty = self.ty()?;
        if let Some(float) = float_type(ty) {
            let f = if subtract {
                FloatBinary::Sub
            } else {
                FloatBinary::Add
            };
            return self.binary(Binary::Float(f, float, mode), ty, [ty; 2]);
        }
        if mode.rounding != Rounding::default() || mode.ftz || mode.clamp == Clamp::Relu {
            return Err(self.opcode_error("rounding, `.ftz` and `.relu` do not apply to integers"));
        }
        if matches!(ty, U16x2 | S16x2) && !subtract {
            return self.binary(Binary::Packed(PackedBinary::Add), ty, [ty; 2]);
        }
        if !INTEGERS.contains(&ty) {
            return Err(self.bad_type(ty, INTEGERS));
        }
        let saturates = mode.clamp == Clamp::Saturate;
        if saturates && ty != S32 {
            return Err(self.opcode_error(format!("`.sat` does not apply to `{ty}`")));
        }
        let f = match (subtract, saturates) {
            (false, false) => IntBinary::Add,
            (false, true) => IntBinary::AddSaturating,
            (true, false) => IntBinary::Sub,
            (true, true) => IntBinary::SubSaturating,
        };
        self.binary(Binary::Int(f, int(ty)), ty, [ty; 2])
    }

    /// `addc`, `subc`, and the `.cc` forms.
    pub(super) fn carry(
        &mut self,
        kind: CarryKind,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
    ) -> Result<Op> {
        let carry_out = carry_out || self.flag("cc");
        let ty = self.ty_of(&[U32, S32, U64, S64])?;
        let kind = if subtract { CarryKind::Sub } else { kind };
        let mad = matches!(kind, CarryKind::MadLow | CarryKind::MadHigh);
        let operands = if mad { 4 } else { 3 };
        self.count(operands, operands)?;
        Ok(Op::Carry {
            f: CarryOp {
                kind,
                int: int(ty),
                carry_in,
                carry_out,
            },
            dst: self.dst(0, ty)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            c: if mad {
                self.src(3, ty)?
            } else {
                self.body.lowerer.constant(0)
            },
        })
    }

    /// `mul`
    pub(super) fn product(&mut self) -> Result<Op> {
        let half = self.half();
        let mode = self.float_mode();
        let ty = self.ty()?;
        match (half, float_type(ty)) {
            (None, Some(float)) => {
                let f = Binary::Float(FloatBinary::Mul, float, mode);
                self.binary(f, ty, [ty; 2])
            }
            (Some(half), None) => {
                self.plain_integers(ty, mode, half)?;
                let (f, to) = match half {
                    Half::Low => (IntBinary::MulLow, ty),
                    Half::High => (IntBinary::MulHigh, ty),
                    Half::Wide => (IntBinary::MulWide, wide(ty)),
                };
                self.binary(Binary::Int(f, int(ty)), to, [ty; 2])
            }
            _ => Err(self.half_error(ty)),
        }
    }

    fn half(&mut self) -> Option<Half> {
        self.choice(&[("lo", Half::Low), ("hi", Half::High), ("wide", Half::Wide)])
    }

    fn half_error(&self, ty: DataType) -> Box<crate::diagnostic::Diagnostic> {
        let opcode = self.opcode();
        self.opcode_error(format!("`{opcode}` of `{ty}` is not an instruction"))
            .with_help("integers need one of `.lo`, `.hi`, `.wide`; floating-point numbers none")
    }

    fn plain_integers(&self, ty: DataType, mode: FloatMode, half: Half) -> Result<()> {
        if mode != FloatMode::default() {
            return Err(self.opcode_error("rounding, `.ftz` and `.sat` do not apply to integers"));
        }
        let types: &[DataType] = match half {
            Half::Wide => &[U16, U32, S16, S32],
            _ => INTEGERS,
        };
        if types.contains(&ty) {
            Ok(())
        } else {
            Err(self.bad_type(ty, types))
        }
    }

    /// `mad`
    pub(super) fn mad(&mut self) -> Result<Op> {
        let half = self.half();
        if self.flag("cc") {
            return self.mad_carry(half, false, true);
        }
        let mut mode = self.float_mode();
        let ty = self.ty()?;
        match (half, float_type(ty)) {
            (None, Some(float)) => {
                let f = Ternary::Float(FloatTernary::Fma, float, mode);
                self.ternary(f, ty, [ty; 3])
            }
            (Some(half), None) => {
                let saturates = half == Half::High && ty == S32 && mode.clamp == Clamp::Saturate;
                if saturates {
                    mode.clamp = Clamp::None;
                }
                self.plain_integers(ty, mode, half)?;
                let (f, to) = match half {
                    Half::Low => (IntTernary::MadLow, ty),
                    Half::High if saturates => (IntTernary::MadHighSaturating, ty),
                    Half::High => (IntTernary::MadHigh, ty),
                    Half::Wide => (IntTernary::MadWide, wide(ty)),
                };
                self.ternary(Ternary::Int(f, int(ty)), to, [ty, ty, to])
            }
            _ => Err(self.half_error(ty)),
        }
    }

    /// `mad.cc`, `madc`
    pub(super) fn mad_carry(
        &mut self,
        half: Option<Half>,
        carry_in: bool,
        carry_out: bool,
    ) -> Result<Op> {
        let kind = match half.or_else(|| self.half()) {
            Some(Half::Low) => CarryKind::MadLow,
            Some(Half::High) => CarryKind::MadHigh,
            _ => return Err(self.opcode_error("`mad` with carry needs `.lo` or `.hi`")),
        };
        self.carry(kind, false, carry_in, carry_out)
    }

    pub(super) fn mul24(&mut self) -> Result<Op> {
        let low = self.required(&[("lo", true), ("hi", false)])?;
        let ty = self.ty_of(&[U32, S32])?;
        let f = if low {
            IntBinary::Mul24Low
        } else {
            IntBinary::Mul24High
        };
        self.binary(Binary::Int(f, int(ty)), ty, [ty; 2])
    }

    pub(super) fn mad24(&mut self) -> Result<Op> {
        let low = self.required(&[("lo", true), ("hi", false)])?;
        let saturates = !low && self.flag("sat");
        let ty = if saturates {
            self.ty_of(&[S32])?
        } else {
            self.ty_of(&[U32, S32])?
        };
        let f = match (low, saturates) {
            (true, _) => IntTernary::Mad24Low,
            (false, false) => IntTernary::Mad24High,
            (false, true) => IntTernary::Mad24HighSaturating,
        };
        self.ternary(Ternary::Int(f, int(ty)), ty, [ty; 3])
    }

    pub(super) fn fma(&mut self) -> Result<Op> {
        let rounding = self.required(ROUNDINGS)?;
        let mode = FloatMode {
            rounding,
            ..self.float_mode()
        };
        let (ty, float) = self.float_ty()?;
        self.ternary(Ternary::Float(FloatTernary::Fma, float, mode), ty, [ty; 3])
    }

    pub(super) fn div(&mut self) -> Result<Op> {
        let f = self
            .choice(&[
                ("approx", FloatBinary::DivApprox),
                ("full", FloatBinary::Div),
            ])
            .unwrap_or(FloatBinary::Div);
        let mode = self.float_mode();
        let ty = self.ty()?;
        match ty {
            F32 => self.binary(Binary::Float(f, FloatType::F32, mode), ty, [ty; 2]),
            F64 if f == FloatBinary::Div => {
                self.binary(Binary::Float(f, FloatType::F64, mode), ty, [ty; 2])
            }
            ty if INTEGERS.contains(&ty) && mode == FloatMode::default() => {
                self.binary(Binary::Int(IntBinary::Div, int(ty)), ty, [ty; 2])
            }
            ty => Err(self.bad_type(ty, &[U16, U32, U64, S16, S32, S64, F32, F64])),
        }
    }

    pub(super) fn integers(&mut self, f: IntBinary) -> Result<Op> {
        let ty = self.ty_of(INTEGERS)?;
        self.binary(Binary::Int(f, int(ty)), ty, [ty; 2])
    }

    /// `min`, `max`
    pub(super) fn extremum(&mut self, largest: bool) -> Result<Op> {
        let mode = self.float_mode();
        let extremum = Extremum {
            nan: self.flag("NaN"),
            xorsign: self.flag("xorsign"),
        };
        if extremum.xorsign {
            self.demand("abs")?;
        }
        let ty = self.ty()?;
        if let Some(float) = float_type(ty) {
            if self.operand_count() == 4 && ty == F32 {
                let f = if largest {
                    FloatTernary::Max(extremum)
                } else {
                    FloatTernary::Min(extremum)
                };
                return self.ternary(Ternary::Float(f, float, mode), ty, [ty; 3]);
            }
            let f = if largest {
                FloatBinary::Max(extremum)
            } else {
                FloatBinary::Min(extremum)
            };
            return self.binary(Binary::Float(f, float, mode), ty, [ty; 2]);
        }
        let relu = mode.clamp == Clamp::Relu;
        let signed = ty.class() == Class::Integer { signed: true } || ty == S16x2;
        if extremum != Extremum::default()
            || (mode
                != FloatMode {
                    clamp: mode.clamp,
                    ..FloatMode::default()
                })
            || mode.clamp == Clamp::Saturate
            || relu && !matches!(ty, S32 | S16x2)
        {
            return Err(self.opcode_error(format!("these modifiers do not apply to `{ty}`")));
        }
        if matches!(ty, U16x2 | S16x2) {
            let f = if largest {
                PackedBinary::Max { signed, relu }
            } else {
                PackedBinary::Min { signed, relu }
            };
            return self.binary(Binary::Packed(f), ty, [ty; 2]);
        }
        if !INTEGERS.contains(&ty) {
            return Err(self.bad_type(ty, INTEGERS));
        }
        let f = match (largest, relu) {
            (false, false) => IntBinary::Min,
            (false, true) => IntBinary::MinRelu,
            (true, false) => IntBinary::Max,
            (true, true) => IntBinary::MaxRelu,
        };
        self.binary(Binary::Int(f, int(ty)), ty, [ty; 2])
    }

    /// `abs`, `neg`
    pub(super) fn sign(&mut self, integer: IntUnary, float: FloatUnary) -> Result<Op> {
        let ftz = self.flag("ftz");
        let ty = self.ty()?;
        if let Some(kind) = float_type(ty) {
            let mode = FloatMode {
                ftz,
                ..FloatMode::default()
            };
            return self.unary(Unary::Float(float, kind, mode), ty, ty);
        }
        if ftz || !matches!(ty, S16 | S32 | S64) {
            return Err(self.bad_type(ty, &[S16, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64]));
        }
        self.unary(Unary::Int(integer, int(ty)), ty, ty)
    }

    /// `rcp`, `sqrt`
    pub(super) fn root(&mut self, f: FloatUnary) -> Result<Op> {
        let approximate = self.flag("approx");
        let mode = self.float_mode();
        let (ty, float) = self.float_ty()?;
        let f = match (approximate, ty) {
            (_, F32) | (false, F64) => f,
            (true, F64) if f == FloatUnary::Reciprocal && mode.ftz => FloatUnary::ReciprocalHigh,
            _ => return Err(self.bad_type(ty, &[F32, F64])),
        };
        self.unary(Unary::Float(f, float, mode), ty, ty)
    }

    pub(super) fn rsqrt(&mut self) -> Result<Op> {
        self.demand("approx")?;
        let mode = self.float_mode();
        let ty = self.ty_of(&[F32, F64])?;
        let (f, float) = match (ty, mode.ftz) {
            (F32, _) => (FloatUnary::ReciprocalSquareRoot, FloatType::F32),
            (_, true) => (FloatUnary::ReciprocalSquareRootHigh, FloatType::F64),
            (_, false) => (FloatUnary::ReciprocalSquareRoot, FloatType::F64),
        };
        self.unary(Unary::Float(f, float, mode), ty, ty)
    }

    /// `sin`, `cos`, `lg2`, `ex2`, `tanh`
    pub(super) fn approximation(&mut self, f: FloatUnary) -> Result<Op> {
        self.demand("approx")?;
        let ftz = self.flag("ftz");
        let half = matches!(f, FloatUnary::Exp2 | FloatUnary::Tanh);
        let (ty, float) = self.float_ty()?;
        let fits = ty == F32 || half && matches!(ty, F16 | F16x2 | Bf16 | Bf16x2);
        if !fits {
            return Err(self.bad_type(
                ty,
                if half {
                    &[F16, F16x2, Bf16, Bf16x2, F32]
                } else {
                    &[F32]
                },
            ));
        }
        let mode = FloatMode {
            ftz,
            ..FloatMode::default()
        };
        self.unary(Unary::Float(f, float, mode), ty, ty)
    }

    pub(super) fn copysign(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[F32, F64])?;
        let float = if ty == F32 {
            FloatType::F32
        } else {
            FloatType::F64
        };
        let f = Binary::Float(FloatBinary::CopySign, float, FloatMode::default());
        self.binary(f, ty, [ty; 2])
    }

    pub(super) fn testp(&mut self) -> Result<Op> {
        let test = self.required(&[
            ("finite", NumberTest::Finite),
            ("infinite", NumberTest::Infinite),
            ("number", NumberTest::Number),
            ("notanumber", NumberTest::NotANumber),
            ("normal", NumberTest::Normal),
            ("subnormal", NumberTest::Subnormal),
        ])?;
        let ty = self.ty_of(&[F32, F64])?;
        let float = if ty == F32 {
            FloatType::F32
        } else {
            FloatType::F64
        };
        self.unary(Unary::TestNumber(test, float), Pred, ty)
    }

    /// `and`, `or`, `xor`
    pub(super) fn logic(&mut self, f: IntBinary) -> Result<Op> {
        let ty = self.ty_of(&[Pred, B16, B32, B64])?;
        let kind = if ty == Pred { int(B16) } else { int(ty) };
        if ty != Pred {
            return self.binary(Binary::Int(f, kind), ty, [ty; 2]);
        }
        self.count(3, 3)?;
        let a = self.predicate(1)?;
        let b = self.predicate(2)?;
        Ok(Op::Binary {
            f: Binary::Int(f, kind),
            dst: self.dst(0, ty)?,
            a: self.positive(a),
            b: self.positive(b),
        })
    }

    /// The value of `p` or `!p` in a register.
    fn positive(&mut self, predicate: PredicateOperand) -> Operand {
        if !predicate.negated {
            return predicate.operand;
        }
        let dst = self.body.temporary();
        self.emit(Op::Unary {
            f: Unary::NotPredicate,
            dst,
            a: predicate.operand,
        });
        Operand::Reg(dst)
    }

    pub(super) fn not(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[Pred, B16, B32, B64])?;
        let f = if ty == Pred {
            Unary::NotPredicate
        } else {
            Unary::Int(IntUnary::Not, int(ty))
        };
        self.unary(f, ty, ty)
    }

    pub(super) fn cnot(&mut self) -> Result<Op> {
        let ty = self.ty_of(WORDS)?;
        self.unary(Unary::Int(IntUnary::LogicalNot, int(ty)), ty, ty)
    }

    pub(super) fn shift(&mut self, left: bool) -> Result<Op> {
        let (f, ty) = if left {
            (IntBinary::ShiftLeft, self.ty_of(WORDS)?)
        } else {
            let types = &[B16, B32, B64, U16, U32, U64, S16, S32, S64];
            (IntBinary::ShiftRight, self.ty_of(types)?)
        };
        self.binary(Binary::Int(f, int(ty)), ty, [ty, U32])
    }

    pub(super) fn funnel(&mut self) -> Result<Op> {
        let left = self.required(&[("l", true), ("r", false)])?;
        let clamp = self.required(&[("clamp", true), ("wrap", false)])?;
        let ty = self.ty_of(&[B32])?;
        let f = match (left, clamp) {
            (true, true) => IntTernary::FunnelLeftClamp,
            (true, false) => IntTernary::FunnelLeftWrap,
            (false, true) => IntTernary::FunnelRightClamp,
            (false, false) => IntTernary::FunnelRightWrap,
        };
        self.ternary(Ternary::Int(f, int(ty)), ty, [ty, ty, U32])
    }

    /// `popc`, `clz`
    pub(super) fn bit_count(&mut self, f: IntUnary) -> Result<Op> {
        let ty = self.ty_of(LARGE_WORDS)?;
        self.unary(Unary::Int(f, int(ty)), U32, ty)
    }

    pub(super) fn brev(&mut self) -> Result<Op> {
        let ty = self.ty_of(LARGE_WORDS)?;
        self.unary(Unary::Int(IntUnary::ReverseBits, int(ty)), ty, ty)
    }

    pub(super) fn bfind(&mut self) -> Result<Op> {
        let f = if self.flag("shiftamt") {
            IntUnary::FindHighestShift
        } else {
            IntUnary::FindHighest
        };
        let ty = self.ty_of(&[U32, U64, S32, S64])?;
        self.unary(Unary::Int(f, int(ty)), U32, ty)
    }

    pub(super) fn bfe(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[U32, U64, S32, S64])?;
        let f = Ternary::Int(IntTernary::BitFieldExtract, int(ty));
        self.ternary(f, ty, [ty, U32, U32])
    }

    pub(super) fn bfi(&mut self) -> Result<Op> {
        let ty = self.ty_of(LARGE_WORDS)?;
        self.count(5, 5)?;
        let dst = self.dst(0, ty)?;
        let sources = [
            self.src(1, ty)?,
            self.src(2, ty)?,
            self.src(3, U32)?,
            self.src(4, U32)?,
        ];
        Ok(Op::Quaternary {
            f: Quaternary::BitFieldInsert { wide: ty == B64 },
            dst,
            sources: self.list(&sources),
        })
    }

    pub(super) fn fns(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[B32])?;
        let f = Ternary::Int(IntTernary::FindNthSet, int(ty));
        self.ternary(f, ty, [ty, ty, S32])
    }

    pub(super) fn bmsk(&mut self) -> Result<Op> {
        let f = self.required(&[
            ("clamp", IntBinary::MaskClamp),
            ("wrap", IntBinary::MaskWrap),
        ])?;
        let ty = self.ty_of(&[B32])?;
        self.binary(Binary::Int(f, int(ty)), ty, [ty; 2])
    }

    pub(super) fn szext(&mut self) -> Result<Op> {
        let f = self.required(&[
            ("clamp", IntBinary::ExtendClamp),
            ("wrap", IntBinary::ExtendWrap),
        ])?;
        let ty = self.ty_of(&[U32, S32])?;
        self.binary(Binary::Int(f, int(ty)), ty, [ty, U32])
    }

    pub(super) fn sad(&mut self) -> Result<Op> {
        let ty = self.ty_of(INTEGERS)?;
        let f = Ternary::Int(IntTernary::SumAbsDifference, int(ty));
        self.ternary(f, ty, [ty; 3])
    }

    pub(super) fn dp4a(&mut self) -> Result<Op> {
        let a = self.ty_of(&[U32, S32])?;
        let b = self.ty_of(&[U32, S32])?;
        let f = IntTernary::Dot4 {
            a_signed: a == S32,
            b_signed: b == S32,
        };
        self.dot(f, a, b)
    }

    pub(super) fn dp2a(&mut self) -> Result<Op> {
        let high = self.required(&[("hi", true), ("lo", false)])?;
        let a = self.ty_of(&[U32, S32])?;
        let b = self.ty_of(&[U32, S32])?;
        let f = IntTernary::Dot2 {
            a_signed: a == S32,
            b_signed: b == S32,
            high,
        };
        self.dot(f, a, b)
    }

    fn dot(&mut self, f: IntTernary, a: DataType, b: DataType) -> Result<Op> {
        // The sum is signed if one of the factors is.
        let sum = if a == S32 || b == S32 { S32 } else { U32 };
        self.ternary(Ternary::Int(f, int(sum)), sum, [B32, B32, sum])
    }

    pub(super) fn lop3(&mut self) -> Result<Op> {
        if self.flag("or") || self.flag("and") {
            return Err(self.unsupported());
        }
        let ty = self.ty_of(&[B32])?;
        self.count(5, 5)?;
        let table = self.immediate(4)?;
        let Ok(table) = u8::try_from(table) else {
            let span = self.operand(4)?.span;
            return Err(self.error(span, "the table of `lop3` is from 0 to 255"));
        };
        Ok(Op::Ternary {
            f: Ternary::Int(IntTernary::Logic3(table), int(ty)),
            dst: self.dst(0, ty)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            c: self.src(3, ty)?,
        })
    }

    pub(super) fn prmt(&mut self) -> Result<Op> {
        let mode = self
            .choice(&[
                ("f4e", Permute::Forward4),
                ("b4e", Permute::Backward4),
                ("rc8", Permute::Replicate8),
                ("ecl", Permute::EdgeClampLeft),
                ("ecr", Permute::EdgeClampRight),
                ("rc16", Permute::Replicate16),
            ])
            .unwrap_or(Permute::Index);
        let ty = self.ty_of(&[B32])?;
        self.ternary(
            Ternary::Int(IntTernary::Permute(mode), int(ty)),
            ty,
            [ty; 3],
        )
    }

    pub(super) fn selp(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64])?;
        self.count(4, 4)?;
        let predicate = self.predicate(3)?;
        if predicate.negated {
            let span = self.operand(3)?.span;
            return Err(self.error(span, "`selp` takes no negated predicate"));
        }
        Ok(Op::Select {
            dst: self.dst(0, ty)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            predicate: predicate.operand,
        })
    }

    pub(super) fn slct(&mut self) -> Result<Op> {
        let ftz = self.flag("ftz");
        let ty = self.ty_of(&[B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64])?;
        let selector = self.ty_of(&[S32, F32])?;
        let f = if selector == S32 {
            Ternary::SelectSigned
        } else {
            Ternary::SelectFloat { ftz }
        };
        self.ternary(f, ty, [ty, ty, selector])
    }

    /// Takes comparison operator and combination of `setp` and `set`.
    fn comparison(&mut self) -> Result<(Comparison, bool, Option<Combine>)> {
        let (comparison, unsigned) = self.required(&[
            ("eq", (Comparison::Eq, false)),
            ("ne", (Comparison::Ne, false)),
            ("lt", (Comparison::Lt, false)),
            ("le", (Comparison::Le, false)),
            ("gt", (Comparison::Gt, false)),
            ("ge", (Comparison::Ge, false)),
            ("lo", (Comparison::Lt, true)),
            ("ls", (Comparison::Le, true)),
            ("hi", (Comparison::Gt, true)),
            ("hs", (Comparison::Ge, true)),
            ("equ", (Comparison::EqUnordered, false)),
            ("neu", (Comparison::NeUnordered, false)),
            ("ltu", (Comparison::LtUnordered, false)),
            ("leu", (Comparison::LeUnordered, false)),
            ("gtu", (Comparison::GtUnordered, false)),
            ("geu", (Comparison::GeUnordered, false)),
            ("num", (Comparison::Number, false)),
            ("nan", (Comparison::NotANumber, false)),
        ])?;
        let combine = self.choice(&[
            ("and", Combine::And),
            ("or", Combine::Or),
            ("xor", Combine::Xor),
        ]);
        Ok((comparison, unsigned, combine))
    }

    /// What is compared; `comparison` must make sense for it.
    fn test(
        &mut self,
        comparison: Comparison,
        unsigned: bool,
        ftz: bool,
        ty: DataType,
    ) -> Result<Test> {
        use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
        let mismatch = |decoder: &Self| {
            decoder.opcode_error(format!("this comparison does not apply to `{ty}`"))
        };
        let compared = match float_type(ty) {
            Some(_) if unsigned => return Err(mismatch(self)),
            Some(ty) => Compared::Float { ty, ftz },
            None => {
                let fits = match ty.class() {
                    Class::Bits => matches!(comparison, Eq | Ne) && WORDS.contains(&ty),
                    Class::Integer { signed } => {
                        matches!(comparison, Eq | Ne | Lt | Le | Gt | Ge) && !(signed && unsigned)
                    }
                    _ => false,
                };
                if !fits || ftz {
                    return Err(mismatch(self));
                }
                Compared::Int(int(ty))
            }
        };
        Ok(Test {
            comparison,
            compared,
        })
    }

    fn combined(
        &mut self,
        combine: Option<Combine>,
        operands: usize,
    ) -> Result<Option<(Combine, PredicateOperand)>> {
        match combine {
            Some(combine) => {
                self.count(operands + 1, operands + 1)?;
                Ok(Some((combine, self.predicate(operands)?)))
            }
            None => {
                self.count(operands, operands)?;
                Ok(None)
            }
        }
    }

    pub(super) fn setp(&mut self) -> Result<Op> {
        let (comparison, unsigned, combine) = self.comparison()?;
        let ftz = self.flag("ftz");
        let ty = self.ty()?;
        let test = self.test(comparison, unsigned, ftz, ty)?;
        let combine = self.combined(combine, 3)?;
        let (dst, other) = self.pair(0, Pred)?;
        Ok(Op::SetPredicate {
            test,
            dst,
            other,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            combine,
        })
    }

    pub(super) fn set(&mut self) -> Result<Op> {
        let (comparison, unsigned, combine) = self.comparison()?;
        let ftz = self.flag("ftz");
        let to = self.ty()?;
        let ty = self.ty()?;
        let packed = matches!(ty, F16x2 | Bf16x2);
        let result = match to {
            U32 | S32 if packed => SetResult::Ones16x2,
            U32 | S32 => SetResult::Ones32,
            U16 | S16 => SetResult::Ones16,
            F32 => SetResult::F32,
            F16 => SetResult::F16,
            Bf16 => SetResult::Bf16,
            F16x2 if packed => SetResult::F16x2,
            Bf16x2 if packed => SetResult::Bf16x2,
            _ => return Err(self.bad_type(to, &[U16, S16, U32, S32, F16, Bf16, F32])),
        };
        let test = self.test(comparison, unsigned, ftz, ty)?;
        let combine = self.combined(combine, 3)?;
        Ok(Op::Set {
            test,
            result,
            dst: self.dst(0, to)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            combine,
        })
    }
}

/// Which part of a product is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Low,
    High,
    Wide,
}
