//! `mma.sync`, `ldmatrix` and `stmatrix`: which lane holds what (PTX ISA, "Warp Level Matrix
//! Instructions").

/// The type of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// `.f16`
    F16,
    /// `.bf16`
    Bf16,
    /// `.tf32`
    Tf32,
    /// `.f64`
    F64,
    /// `.s8`
    S8,
    /// `.u8`
    U8,
    /// `.e4m3`
    E4m3,
    /// `.e5m2`
    E5m2,
}

/// The type of C and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulator {
    /// `.f16`
    F16,
    /// `.f32`
    F32,
    /// `.f64`
    F64,
    /// `.s32`
    S32,
}

/// `mma.sync.aligned.MxNxK.row.col`; M is 16 except for `f64`'s 8, N is 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// K.
    pub depth: u8,
    /// The type of A.
    pub a: Factor,
    /// The type of B.
    pub b: Factor,
    /// The type of C and D.
    pub accumulator: Accumulator,
    /// `.satfinite`: `s32` sums saturate.
    pub saturate: bool,
}

/// `ldmatrix` or `stmatrix` of 8x8 matrices of 16-bit elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadMatrix {
    /// 1, 2 or 4 matrices.
    pub count: u8,
    /// `.trans`
    pub transposed: bool,
    /// `.shared` was written; otherwise the address is generic.
    pub shared: bool,
}
