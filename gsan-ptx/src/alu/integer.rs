//! Integer arithmetic, logic, shifts and bit fields (PTX ISA, "Integer Arithmetic Instructions",
//! "Extended-Precision Integer Arithmetic Instructions", "Logic and Shift Instructions").

/// The width of an integer operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bits {
    /// 8 bits; conversions only.
    B8,
    /// 16 bits
    B16,
    /// 32 bits
    B32,
    /// 64 bits
    B64,
}

/// An integer type. Bit types (`.b32`) are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// Its width.
    pub bits: Bits,
    /// Whether it is signed.
    pub signed: bool,
}

/// A function of one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntUnary {
    /// `neg`
    Neg,
    /// `abs`
    Abs,
    /// `not`
    Not,
    /// `cnot`: 1 for 0, else 0
    LogicalNot,
    /// `popc`
    CountOnes,
    /// `clz`
    LeadingZeros,
    /// `brev`
    ReverseBits,
    /// `bfind`: the position of the highest bit that is not the sign; all ones if none
    FindHighest,
    /// `bfind.shiftamt`: how far to shift it left to the top
    FindHighestShift,
}

/// A function of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntBinary {
    /// `add`
    Add,
    /// `add.sat.s32`
    AddSaturating,
    /// `sub`
    Sub,
    /// `sub.sat.s32`
    SubSaturating,
    /// `mul.lo`
    MulLow,
    /// `mul.hi`
    MulHigh,
    /// `mul.wide`: twice as wide a result
    MulWide,
    /// `mul24.lo`: the low 32 bits of the 48-bit product
    Mul24Low,
    /// `mul24.hi`: the high 32 bits of the 48-bit product
    Mul24High,
    /// `div`; the machine faults on division by zero
    Div,
    /// `rem`; the machine faults on division by zero
    Rem,
    /// `min`
    Min,
    /// `max`
    Max,
    /// `min.relu`: then at least 0
    MinRelu,
    /// `max.relu`: then at least 0
    MaxRelu,
    /// `and`
    And,
    /// `or`
    Or,
    /// `xor`
    Xor,
    /// `shl`: 0 beyond the width
    ShiftLeft,
    /// `shr`: 0 or the sign beyond the width
    ShiftRight,
    /// `bmsk.clamp`
    MaskClamp,
    /// `bmsk.wrap`
    MaskWrap,
    /// `szext.clamp`
    ExtendClamp,
    /// `szext.wrap`
    ExtendWrap,
}

/// A function of two pairs of 16-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackedBinary {
    /// `add.u16x2`, `add.s16x2`
    Add,
    /// `min`
    Min {
        /// Signed halves.
        signed: bool,
        /// Then at least 0.
        relu: bool,
    },
    /// `max`
    Max {
        /// Signed halves.
        signed: bool,
        /// Then at least 0.
        relu: bool,
    },
}

/// The mode of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permute {
    /// No mode: each nibble of `c` selects a byte, its top bit replicates the byte's sign.
    Index,
    /// `.f4e`: forward 4 extract
    Forward4,
    /// `.b4e`: backward 4 extract
    Backward4,
    /// `.rc8`: replicate 8
    Replicate8,
    /// `.ecl`: edge clamp left
    EdgeClampLeft,
    /// `.ecr`: edge clamp right
    EdgeClampRight,
    /// `.rc16`: replicate 16
    Replicate16,
}

/// A function of three integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntTernary {
    /// `mad.lo`
    MadLow,
    /// `mad.hi`
    MadHigh,
    /// `mad.hi.sat.s32`
    MadHighSaturating,
    /// `mad.wide`: `c` and the result are twice as wide
    MadWide,
    /// `mad24.lo`
    Mad24Low,
    /// `mad24.hi`
    Mad24High,
    /// `mad24.hi.sat.s32`
    Mad24HighSaturating,
    /// `sad`: `c + |a - b|`
    SumAbsDifference,
    /// `bfe`: `c` bits of `a` from position `b`
    BitFieldExtract,
    /// `fns`: the position of the `c`-th set bit of mask `a` from base `b`
    FindNthSet,
    /// `shf.l.clamp`: the high word of `b:a` shifted left by `c`, at most 32
    FunnelLeftClamp,
    /// `shf.l.wrap`
    FunnelLeftWrap,
    /// `shf.r.clamp`: the low word of `b:a` shifted right by `c`, at most 32
    FunnelRightClamp,
    /// `shf.r.wrap`
    FunnelRightWrap,
    /// `prmt`
    Permute(Permute),
    /// `lop3` with its look-up table
    Logic3(u8),
    /// `dp4a`: four byte products added to `c`
    Dot4 {
        /// `a` holds signed bytes.
        a_signed: bool,
        /// `b` holds signed bytes.
        b_signed: bool,
    },
    /// `dp2a`: two products of a half of `a` and a byte of `b` added to `c`
    Dot2 {
        /// `a` holds signed halves.
        a_signed: bool,
        /// `b` holds signed bytes.
        b_signed: bool,
        /// `.hi`: the upper two bytes of `b`.
        high: bool,
    },
}

/// What an instruction with carry computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CarryKind {
    /// `a + b`
    Add,
    /// `a - b`; the flag is the borrow
    Sub,
    /// The low half of `a * b`, plus `c`
    MadLow,
    /// The high half of `a * b`, plus `c`
    MadHigh,
}

/// An instruction with carry in, carry out, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CarryOp {
    /// What it computes.
    pub kind: CarryKind,
    /// The type: 32 or 64 bits.
    pub int: Int,
    /// Adds (subtracts) the flag: `addc`, `subc`, `madc`.
    pub carry_in: bool,
    /// Sets the flag: `.cc`.
    pub carry_out: bool,
}
