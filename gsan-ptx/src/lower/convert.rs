//! Moves, conversions, and the instructions that choose among all others.

use super::Result;
use super::arithmetic::{ROUNDINGS, int};
use super::decode::Decoder;
use super::scope::Meaning;
use super::types::{Class, DataType};
use crate::alu::convert::{Conversion, Numeric, PackInts, PackPair};
use crate::alu::float::{Clamp, FloatUnary, Rounding};
use crate::alu::integer::{CarryKind, IntBinary, IntUnary};
use crate::alu::{Binary, Ternary, Unary};
use crate::diagnostic::nearest;
use crate::program::ir::{MemorySpace, Op};
use crate::program::operand::Operand;
use crate::syntax::ast::Operand as Written;
use crate::syntax::types::Type;
use DataType::{
    B16, B32, B64, B128, Bf16, Bf16x2, E4m3x2, E5m2x2, F16, F16x2, F32, F64, Pred, S16, S32, S64,
    Tf32, U16, U32, U64,
};

/// Every instruction that is decoded: candidates for a misspelt one.
const OPCODES: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "griddepcontrol",
    "isspacep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "match",
    "max",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stmatrix",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "trap",
    "vote",
    "xor",
];

/// Instructions of PTX that are known and not supported.
const UNSUPPORTED: &[&str] = &[
    "alloca",
    "clusterlaunchcontrol",
    "getctarank",
    "istypep",
    "mapa",
    "mbarrier",
    "multimem",
    "stackrestore",
    "stacksave",
    "suld",
    "sured",
    "suq",
    "sust",
    "tcgen05",
    "tensormap",
    "tex",
    "tld4",
    "txq",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "wgmma",
    "wmma",
];

impl Decoder<'_, '_, '_> {
    /// Chooses by opcode.
    pub(super) fn decode(&mut self) -> Result<Op> {
        match self.opcode() {
            "abs" => self.sign(IntUnary::Abs, FloatUnary::Abs),
            "activemask" => self.active_mask(),
            "add" => self.sum(false),
            "addc" => self.carry(CarryKind::Add, false, true, false),
            "and" => self.logic(IntBinary::And),
            "applypriority" | "discard" | "prefetch" | "prefetchu" => self.cache_hint(),
            "atom" | "red" => self.atomic(),
            "bar" | "barrier" => self.barrier(),
            "bfe" => self.bfe(),
            "bfi" => self.bfi(),
            "bfind" => self.bfind(),
            "bmsk" => self.bmsk(),
            "bra" => self.branch(),
            "brev" => self.brev(),
            "brkpt" => self.plain(Op::Breakpoint),
            "brx" => self.branch_table(),
            "call" => self.call(),
            "clz" => self.bit_count(IntUnary::LeadingZeros),
            "cnot" => self.cnot(),
            "copysign" => self.copysign(),
            "cos" => self.approximation(FloatUnary::Cos),
            "cp" => self.copy(),
            "createpolicy" => self.create_policy(),
            "cvt" => self.convert(),
            "cvta" => self.convert_address(),
            "div" => self.div(),
            "dp2a" => self.dp2a(),
            "dp4a" => self.dp4a(),
            "elect" => self.elect(),
            "ex2" => self.approximation(FloatUnary::Exp2),
            "exit" => self.plain(Op::Exit),
            "fence" => self.fence(),
            "fma" => self.fma(),
            "fns" => self.fns(),
            "griddepcontrol" => self.grid_dependency(),
            "isspacep" => self.is_space(),
            "ld" | "ldu" => self.load(),
            "ldmatrix" => self.load_matrix(),
            "lg2" => self.approximation(FloatUnary::Log2),
            "lop3" => self.lop3(),
            "mad" => self.mad(),
            "mad24" => self.mad24(),
            "madc" => self.mad_carry(None, true, false),
            "match" => self.match_lanes(),
            "max" => self.extremum(true),
            "membar" => self.membar(),
            "min" => self.extremum(false),
            "mma" => self.mma(),
            "mov" => self.mov(),
            "movmatrix" => self.move_matrix(),
            "mul" => self.product(),
            "mul24" => self.mul24(),
            "nanosleep" => self.nanosleep(),
            "neg" => self.sign(IntUnary::Neg, FloatUnary::Neg),
            "not" => self.not(),
            "or" => self.logic(IntBinary::Or),
            "pmevent" => self.pm_event(),
            "popc" => self.bit_count(IntUnary::CountOnes),
            "prmt" => self.prmt(),
            "rcp" => self.root(FloatUnary::Reciprocal),
            "redux" => self.redux(),
            "rem" => self.integers(IntBinary::Rem),
            "ret" => self.plain(Op::Return),
            "rsqrt" => self.rsqrt(),
            "sad" => self.sad(),
            "selp" => self.selp(),
            "set" => self.set(),
            "setmaxnreg" => self.set_registers(),
            "setp" => self.setp(),
            "shf" => self.funnel(),
            "shfl" => self.shuffle(),
            "shl" => self.shift(true),
            "shr" => self.shift(false),
            "sin" => self.approximation(FloatUnary::Sin),
            "slct" => self.slct(),
            "sqrt" => self.root(FloatUnary::SquareRoot),
            "st" => self.store(),
            "stmatrix" => self.store_matrix(),
            "sub" => self.sum(true),
            "subc" => self.carry(CarryKind::Sub, true, true, false),
            "szext" => self.szext(),
            "tanh" => self.approximation(FloatUnary::Tanh),
            "testp" => self.testp(),
            "trap" => self.plain(Op::Trap),
            "vote" => self.vote(),
            "xor" => self.logic(IntBinary::Xor),
            opcode if UNSUPPORTED.contains(&opcode) => Err(self.unsupported()),
            opcode => {
                self.refused = true;
                let help = nearest(opcode, OPCODES.iter().copied())
                    .map(|near| format!("did you mean `{near}`?"));
                let span = self.instruction.value.opcode.span;
                Err(self
                    .error(span, format!("`{opcode}` is not an instruction"))
                    .with_help_if(help))
            }
        }
    }

    fn pm_event(&mut self) -> Result<Op> {
        self.flag("mask");
        self.count(1, 1)?;
        self.immediate(0)?;
        Ok(Op::Nop)
    }

    fn set_registers(&mut self) -> Result<Op> {
        self.required(&[("inc", ()), ("dec", ())])?;
        self.demand("sync")?;
        self.demand("aligned")?;
        self.ty_of(&[U32])?;
        self.count(1, 1)?;
        self.immediate(0)?;
        Ok(Op::Nop)
    }

    fn mov(&mut self) -> Result<Op> {
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

    fn convert_address(&mut self) -> Result<Op> {
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

    fn is_space(&mut self) -> Result<Op> {
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

    fn convert(&mut self) -> Result<Op> {
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
