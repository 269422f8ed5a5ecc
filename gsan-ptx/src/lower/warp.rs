//! What the lanes of a warp do together: shuffles, votes and matrices.

use super::Result;
use super::decode::Decoder;
use super::types::DataType;
use crate::alu::matrix::{Accumulator, Factor, LoadMatrix, Mma};
use crate::program::ir::{Collective, MemorySpace, Op, Shuffle, Vote};
use crate::program::operand::{Operand, Reg};
use DataType::{B16, B32, B64, Bf16, E4m3, E5m2, F16, F32, F64, Pred, S8, S32, Tf32, U8};

impl Decoder<'_, '_, '_> {
    fn collective(&mut self, kind: Collective, dst: &[Reg], sources: &[Operand]) -> Result<Op> {
        Ok(Op::Collective {
            kind,
            dst: self.registers(dst),
            sources: self.list(sources),
        })
    }

    /// Takes `.sync`. Without it these instructions are gone since sm_70.
    fn sync(&mut self) -> Result<()> {
        if self.flag("sync") {
            return Ok(());
        }
        let opcode = self.opcode();
        Err(self
            .opcode_error(format!("`{opcode}` without `.sync` is not supported"))
            .with_help("it does not exist on sm_70 and later; compile for such a target"))
    }

    pub(super) fn active_mask(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[B32])?;
        self.count(1, 1)?;
        let dst = self.dst(0, ty)?;
        self.collective(Collective::ActiveMask, &[dst], &[])
    }

    pub(super) fn elect(&mut self) -> Result<Op> {
        self.sync()?;
        self.count(2, 2)?;
        let (lane, elected) = self.pair(0, B32)?;
        let Some(elected) = elected else {
            let span = self.operand(0)?.span;
            return Err(self
                .error(span, "`elect.sync` has two results")
                .with_help("write `_|%p` if the lane does not matter"));
        };
        let mask = self.src(1, B32)?;
        self.collective(Collective::Elect, &[lane, elected], &[mask])
    }

    pub(super) fn shuffle(&mut self) -> Result<Op> {
        self.sync()?;
        let mode = self.required(&[
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Butterfly),
            ("idx", Shuffle::Index),
        ])?;
        let ty = self.ty_of(&[B32])?;
        self.count(5, 5)?;
        let (value, valid) = self.pair(0, ty)?;
        let sources = [
            self.src(1, ty)?,
            self.src(2, B32)?,
            self.src(3, B32)?,
            self.src(4, B32)?,
        ];
        let dst: Vec<Reg> = [value].into_iter().chain(valid).collect();
        self.collective(Collective::Shuffle(mode), &dst, &sources)
    }

    pub(super) fn vote(&mut self) -> Result<Op> {
        self.sync()?;
        let vote = self.required(&[
            ("all", Vote::All),
            ("any", Vote::Any),
            ("uni", Vote::Uniform),
            ("ballot", Vote::Ballot),
        ])?;
        let ty = match vote {
            Vote::Ballot => self.ty_of(&[B32])?,
            _ => self.ty_of(&[Pred])?,
        };
        self.count(3, 3)?;
        let dst = self.dst(0, ty)?;
        let predicate = self.predicate(1)?;
        let mask = self.src(2, B32)?;
        let kind = Collective::Vote {
            vote,
            negated: predicate.negated,
        };
        self.collective(kind, &[dst], &[predicate.operand, mask])
    }

    pub(super) fn match_lanes(&mut self) -> Result<Op> {
        let all = self.required(&[("any", false), ("all", true)])?;
        self.sync()?;
        let ty = self.ty_of(&[B32, B64])?;
        self.count(3, 3)?;
        let (lanes, same) = self.pair(0, B32)?;
        if same.is_some() && !all {
            let span = self.operand(0)?.span;
            return Err(self.error(span, "`match.any` has one result"));
        }
        let value = self.src(1, ty)?;
        let mask = self.src(2, B32)?;
        let kind = Collective::Match {
            all,
            wide: ty == B64,
        };
        let dst: Vec<Reg> = [lanes].into_iter().chain(same).collect();
        self.collective(kind, &dst, &[value, mask])
    }

    /// Takes `.sync.aligned.m8n8.xN{.trans}{.shared}.b16`.
    fn matrices(&mut self) -> Result<LoadMatrix> {
        self.sync()?;
        self.demand("aligned")?;
        if !self.flag("m8n8") {
            return Err(self.unsupported());
        }
        let count = self.required(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
        let transposed = self.flag("trans");
        let shared = match self.space() {
            MemorySpace::Shared => true,
            MemorySpace::Generic => false,
            _ => return Err(self.opcode_error("matrices are in shared memory")),
        };
        if self.ty()? != B16 {
            return Err(self.unsupported());
        }
        self.count(2, 2)?;
        Ok(LoadMatrix {
            count,
            transposed,
            shared,
        })
    }

    /// The address operand, as base and offset.
    fn row_address(&mut self, index: usize, matrix: LoadMatrix) -> Result<[Operand; 2]> {
        let space = if matrix.shared {
            MemorySpace::Shared
        } else {
            MemorySpace::Generic
        };
        let (address, found) = self.address(index, space)?;
        if found != space {
            let span = self.operand(index)?.span;
            return Err(self
                .error(span, "the address of this variable is not generic")
                .with_help("write `.shared`"));
        }
        let offset = self.body.lowerer.constant(address.offset as u64);
        Ok([address.base, offset])
    }

    pub(super) fn load_matrix(&mut self) -> Result<Op> {
        let matrix = self.matrices()?;
        let elements = self.elements_of(0, usize::from(matrix.count))?;
        let dst = self.destinations(&elements, B32)?;
        let sources = self.row_address(1, matrix)?;
        self.collective(Collective::LoadMatrix(matrix), &dst, &sources)
    }

    pub(super) fn store_matrix(&mut self) -> Result<Op> {
        let matrix = self.matrices()?;
        let elements = self.elements_of(1, usize::from(matrix.count))?;
        let mut sources = self.row_address(0, matrix)?.to_vec();
        sources.extend(self.values(&elements, B32, false)?);
        self.collective(Collective::StoreMatrix(matrix), &[], &sources)
    }

    pub(super) fn move_matrix(&mut self) -> Result<Op> {
        self.sync()?;
        for word in ["aligned", "m8n8", "trans"] {
            self.demand(word)?;
        }
        self.ty_of(&[B16])?;
        self.count(2, 2)?;
        let dst = self.dst(0, B32)?;
        let source = self.src(1, B32)?;
        self.collective(Collective::MoveMatrix, &[dst], &[source])
    }

    pub(super) fn mma(&mut self) -> Result<Op> {
        if self.flag("sp") || self.flag("sp::ordered_metadata") {
            return Err(self.unsupported());
        }
        self.sync()?;
        self.demand("aligned")?;
        let shape = self.choice(&[
            ("m8n8k4", (8u32, 4u8)),
            ("m16n8k4", (16, 4)),
            ("m16n8k8", (16, 8)),
            ("m16n8k16", (16, 16)),
            ("m16n8k32", (16, 32)),
        ]);
        let Some((rows, depth)) = shape else {
            return Err(self.unsupported());
        };
        if !self.flag("row") || !self.flag("col") {
            return Err(self.unsupported());
        }
        let saturate = self.flag("satfinite");
        let (d, a, b, c) = (self.ty()?, self.ty()?, self.ty()?, self.ty()?);
        let (Some(factor_a), Some(factor_b), Some(accumulator)) =
            (factor(a), factor(b), accumulator(d))
        else {
            return Err(self.unsupported());
        };
        let supported = c == d
            && match (a, b) {
                (F64, F64) => rows == 8 && d == F64,
                (F16, F16) => rows == 16 && matches!(depth, 8 | 16) && matches!(d, F16 | F32),
                (Bf16, Bf16) => rows == 16 && matches!(depth, 8 | 16) && d == F32,
                (Tf32, Tf32) => rows == 16 && matches!(depth, 4 | 8) && d == F32,
                (S8 | U8, S8 | U8) => rows == 16 && matches!(depth, 16 | 32) && d == S32,
                (E4m3 | E5m2, E4m3 | E5m2) => rows == 16 && depth == 32 && matches!(d, F16 | F32),
                _ => false,
            };
        if !supported {
            return Err(self.unsupported());
        }
        self.count(4, 4)?;
        let depth_u32 = u32::from(depth);
        let mut sources = Vec::new();
        let elements = self.elements_of(0, registers(rows * 8, d))?;
        let dst = self.destinations(&elements, word(d))?;
        for (index, count, ty) in [
            (1, registers(rows * depth_u32, a), a),
            (2, registers(depth_u32 * 8, b), b),
            (3, registers(rows * 8, c), c),
        ] {
            let elements = self.elements_of(index, count)?;
            sources.extend(self.values(&elements, word(ty), false)?);
        }
        let kind = Collective::Mma(Mma {
            depth,
            a: factor_a,
            b: factor_b,
            accumulator,
            saturate,
        });
        self.collective(kind, &dst, &sources)
    }
}

/// How many registers of a lane hold its share of a matrix of `elements` elements.
fn registers(elements: u32, ty: DataType) -> usize {
    let register = word(ty).bits();
    (elements / 32 * ty.bits()).div_ceil(register) as usize
}

/// The type of a register that holds matrix elements.
fn word(ty: DataType) -> DataType {
    match ty {
        F64 | F32 | S32 => ty,
        _ => B32,
    }
}

fn factor(ty: DataType) -> Option<Factor> {
    Some(match ty {
        F16 => Factor::F16,
        Bf16 => Factor::Bf16,
        Tf32 => Factor::Tf32,
        F64 => Factor::F64,
        S8 => Factor::S8,
        U8 => Factor::U8,
        E4m3 => Factor::E4m3,
        E5m2 => Factor::E5m2,
        _ => return None,
    })
}

fn accumulator(ty: DataType) -> Option<Accumulator> {
    Some(match ty {
        F16 => Accumulator::F16,
        F32 => Accumulator::F32,
        F64 => Accumulator::F64,
        S32 => Accumulator::S32,
        _ => return None,
    })
}
