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

impl Bits {
    /// The width in bits.
    pub const fn count(self) -> u32 {
        match self {
            Bits::B8 => 8,
            Bits::B16 => 16,
            Bits::B32 => 32,
            Bits::B64 => 64,
        }
    }

    /// All ones.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.count())
    }
}

impl Int {
    /// The low bits of a word, extended as the type says.
    #[inline]
    pub fn extend(self, word: u64) -> u64 {
        let unused = 64 - self.bits.count();
        if self.signed {
            ((word << unused) as i64 >> unused) as u64
        } else {
            word & self.bits.mask()
        }
    }

    /// The low bits of a word.
    #[inline]
    pub fn truncate(self, word: u64) -> u64 {
        word & self.bits.mask()
    }

    /// The value of a word.
    #[inline]
    pub fn value(self, word: u64) -> i128 {
        if self.signed {
            i128::from(self.extend(word) as i64)
        } else {
            i128::from(self.extend(word))
        }
    }

    /// The smallest value.
    pub fn min(self) -> i128 {
        if self.signed {
            -(1 << (self.bits.count() - 1))
        } else {
            0
        }
    }

    /// The largest value.
    pub fn max(self) -> i128 {
        (1 << (self.bits.count() - u32::from(self.signed))) - 1
    }

    /// The nearest value of the type.
    fn clamp(self, value: i128) -> u64 {
        self.truncate(value.clamp(self.min(), self.max()) as u64)
    }
}

impl IntUnary {
    /// The function's value.
    #[inline]
    pub fn eval(self, int: Int, a: u64) -> u64 {
        let bits = int.bits.count();
        let plain = int.truncate(a);
        match self {
            IntUnary::Neg => int.truncate(plain.wrapping_neg()),
            IntUnary::Abs => int.truncate((int.extend(a) as i64).unsigned_abs()),
            IntUnary::Not => int.truncate(!plain),
            IntUnary::LogicalNot => u64::from(plain == 0),
            IntUnary::CountOnes => u64::from(plain.count_ones()),
            IntUnary::LeadingZeros => u64::from(plain.leading_zeros() - (64 - bits)),
            IntUnary::ReverseBits => plain.reverse_bits() >> (64 - bits),
            IntUnary::FindHighest => match highest(int, a) {
                Some(position) => u64::from(position),
                None => 0xffff_ffff,
            },
            IntUnary::FindHighestShift => match highest(int, a) {
                Some(position) => u64::from(bits - 1 - position),
                None => 0xffff_ffff,
            },
        }
    }
}

/// The position of the highest bit that differs from the sign (from 0 for unsigned integers).
fn highest(int: Int, a: u64) -> Option<u32> {
    let extended = int.extend(a);
    let differing = if int.signed && (extended as i64) < 0 {
        !extended
    } else {
        extended
    };
    (differing != 0).then(|| 63 - differing.leading_zeros())
}

impl IntBinary {
    /// The function's value. Division by zero gives 0.
    #[inline]
    pub fn eval(self, int: Int, a: u64, b: u64) -> u64 {
        let (x, y) = (int.extend(a), int.extend(b));
        match self {
            IntBinary::Add => int.truncate(x.wrapping_add(y)),
            IntBinary::AddSaturating => int.clamp(int.value(a) + int.value(b)),
            IntBinary::Sub => int.truncate(x.wrapping_sub(y)),
            IntBinary::SubSaturating => int.clamp(int.value(a) - int.value(b)),
            IntBinary::MulLow => int.truncate(x.wrapping_mul(y)),
            IntBinary::MulHigh => int.truncate(product(int, a, b).1),
            IntBinary::MulWide => {
                x.wrapping_mul(y) & u64::MAX >> (64 - (2 * int.bits.count()).min(64))
            }
            IntBinary::Mul24Low => product24(int, a, b) as u64 & 0xffff_ffff,
            IntBinary::Mul24High => (product24(int, a, b) >> 16) as u64 & 0xffff_ffff,
            IntBinary::Div if y == 0 => 0,
            IntBinary::Div if int.signed => int.truncate((x as i64).wrapping_div(y as i64) as u64),
            IntBinary::Div => x / y,
            IntBinary::Rem if y == 0 => 0,
            IntBinary::Rem if int.signed => int.truncate((x as i64).wrapping_rem(y as i64) as u64),
            IntBinary::Rem => x % y,
            IntBinary::Min => int.truncate(less(int, x, y, true)),
            IntBinary::Max => int.truncate(less(int, x, y, false)),
            IntBinary::MinRelu => int.clamp(int.value(a).min(int.value(b)).max(0)),
            IntBinary::MaxRelu => int.clamp(int.value(a).max(int.value(b)).max(0)),
            IntBinary::And => int.truncate(a & b),
            IntBinary::Or => int.truncate(a | b),
            IntBinary::Xor => int.truncate(a ^ b),
            IntBinary::ShiftLeft => {
                let amount = b & 0xffff_ffff;
                if amount >= u64::from(int.bits.count()) {
                    0
                } else {
                    int.truncate(x << amount)
                }
            }
            IntBinary::ShiftRight => {
                let amount = (b & 0xffff_ffff).min(63);
                if int.signed {
                    int.truncate(((x as i64) >> amount) as u64)
                } else if amount >= u64::from(int.bits.count()) {
                    0
                } else {
                    x >> amount
                }
            }
            IntBinary::MaskClamp => mask(a & 0xffff_ffff, b & 0xffff_ffff),
            IntBinary::MaskWrap => mask(a & 31, b & 31),
            IntBinary::ExtendClamp => extend(int, a, b & 0xffff_ffff),
            IntBinary::ExtendWrap => extend(int, a, b & 31),
        }
    }
}

fn less(int: Int, x: u64, y: u64, smaller: bool) -> u64 {
    let first = if int.signed {
        (x as i64) < (y as i64)
    } else {
        x < y
    };
    if first == smaller { x } else { y }
}

/// The low and the high half of the product, each of the operands' width.
fn product(int: Int, a: u64, b: u64) -> (u64, u64) {
    let bits = int.bits.count();
    if int.signed {
        let product = int.value(a) * int.value(b);
        (product as u64, (product >> bits) as u64)
    } else {
        let product = u128::from(int.extend(a)) * u128::from(int.extend(b));
        (product as u64, (product >> bits) as u64)
    }
}

/// The 48-bit product of the low 24 bits.
fn product24(int: Int, a: u64, b: u64) -> i64 {
    let low = |word: u64| {
        let word = (word & 0xff_ffff) as i64;
        if int.signed { word << 40 >> 40 } else { word }
    };
    low(a) * low(b)
}

/// `bmsk`: `length` ones from `start`.
fn mask(start: u64, length: u64) -> u64 {
    if start >= 32 || length == 0 {
        return 0;
    }
    let ones = if length >= 32 {
        0xffff_ffff
    } else {
        (1u64 << length) - 1
    };
    ones << start & 0xffff_ffff
}

/// `szext`: the low `bits` bits extended to 32.
fn extend(int: Int, a: u64, bits: u64) -> u64 {
    if bits == 0 {
        return 0;
    }
    if bits >= 32 {
        return a & 0xffff_ffff;
    }
    let unused = 32 - bits as u32;
    let a = (a as u32) << unused;
    if int.signed {
        u64::from((a as i32 >> unused) as u32)
    } else {
        u64::from(a >> unused)
    }
}

impl PackedBinary {
    /// The function's value.
    pub fn eval(self, a: u64, b: u64) -> u64 {
        let (f, signed) = match self {
            PackedBinary::Add => (IntBinary::Add, false),
            PackedBinary::Min { signed, relu } => (
                if relu {
                    IntBinary::MinRelu
                } else {
                    IntBinary::Min
                },
                signed,
            ),
            PackedBinary::Max { signed, relu } => (
                if relu {
                    IntBinary::MaxRelu
                } else {
                    IntBinary::Max
                },
                signed,
            ),
        };
        let int = Int {
            bits: Bits::B16,
            signed,
        };
        f.eval(int, a >> 16, b >> 16) << 16 | f.eval(int, a, b)
    }
}

impl IntTernary {
    /// The function's value.
    #[inline]
    pub fn eval(self, int: Int, a: u64, b: u64, c: u64) -> u64 {
        let s32 = Int {
            bits: Bits::B32,
            signed: true,
        };
        match self {
            IntTernary::MadLow => int.truncate(a.wrapping_mul(b).wrapping_add(c)),
            IntTernary::MadHigh => int.truncate(product(int, a, b).1.wrapping_add(c)),
            IntTernary::MadHighSaturating => {
                int.clamp(int.value(product(int, a, b).1) + int.value(c))
            }
            IntTernary::MadWide => {
                IntBinary::MulWide.eval(int, a, b).wrapping_add(c)
                    & u64::MAX >> (64 - (2 * int.bits.count()).min(64))
            }
            IntTernary::Mad24Low => (product24(int, a, b) as u64).wrapping_add(c) & 0xffff_ffff,
            IntTernary::Mad24High => {
                ((product24(int, a, b) >> 16) as u64).wrapping_add(c) & 0xffff_ffff
            }
            IntTernary::Mad24HighSaturating => {
                let high = i128::from((product24(int, a, b) >> 16) as i32);
                s32.clamp(high + s32.value(c))
            }
            IntTernary::SumAbsDifference => {
                let difference = int.value(a).abs_diff(int.value(b)) as u64;
                int.truncate(c.wrapping_add(difference))
            }
            IntTernary::BitFieldExtract => bit_field(int, a, b & 0xff, c & 0xff),
            IntTernary::FindNthSet => find_nth_set(a as u32, b as u32, c as u32 as i32),
            IntTernary::FunnelLeftClamp => funnel(a, b, 32 - (c as u32).min(32)),
            IntTernary::FunnelLeftWrap => funnel(a, b, 32 - (c as u32 & 31)),
            IntTernary::FunnelRightClamp => funnel(a, b, (c as u32).min(32)),
            IntTernary::FunnelRightWrap => funnel(a, b, c as u32 & 31),
            IntTernary::Permute(mode) => mode.eval(a, b, c),
            IntTernary::Logic3(table) => int.truncate(logic3(table, a, b, c)),
            IntTernary::Dot4 { a_signed, b_signed } => {
                let dot: i64 = (0..4)
                    .map(|i| part(a, i, 8, a_signed) * part(b, i, 8, b_signed))
                    .sum();
                c.wrapping_add(dot as u64) & 0xffff_ffff
            }
            IntTernary::Dot2 {
                a_signed,
                b_signed,
                high,
            } => {
                let first = if high { 2 } else { 0 };
                let dot: i64 = (0..2)
                    .map(|i| part(a, i, 16, a_signed) * part(b, first + i, 8, b_signed))
                    .sum();
                c.wrapping_add(dot as u64) & 0xffff_ffff
            }
        }
    }
}

/// Part `index` of a word of parts of `bits` bits.
fn part(word: u64, index: u32, bits: u32, signed: bool) -> i64 {
    let top = (word >> (index * bits)) << (64 - bits);
    if signed {
        top as i64 >> (64 - bits)
    } else {
        (top >> (64 - bits)) as i64
    }
}

/// `bfe`
fn bit_field(int: Int, a: u64, position: u64, length: u64) -> u64 {
    let top = u64::from(int.bits.count()) - 1;
    let a = int.truncate(a);
    let bit = |at: u64| if at > 63 { 0 } else { a >> at & 1 };
    let sign = if !int.signed || length == 0 {
        0
    } else {
        bit((position + length - 1).min(top))
    };
    let available = if position > top {
        0
    } else {
        length.min(top + 1 - position)
    };
    let ones = |count: u64| {
        if count >= 64 {
            u64::MAX
        } else {
            (1 << count) - 1
        }
    };
    let field = if available == 0 {
        0
    } else {
        a >> position & ones(available)
    };
    let fill = if sign == 1 { !ones(available) } else { 0 };
    int.truncate(field | fill)
}

/// `bfi`: the low `length` bits of `a` at `position` of `b`.
pub(super) fn insert_bits(bits: Bits, a: u64, b: u64, position: u64, length: u64) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let width = u64::from(bits.count());
    let b = b & bits.mask();
    if position >= width || length == 0 {
        return b;
    }
    let length = length.min(width - position);
    let field = (u64::MAX >> (64 - length)) << position;
    (b & !field | a << position & field) & bits.mask()
}

/// `fns` (PTX ISA, "fns", which gives this as pseudo-code).
fn find_nth_set(mask: u32, base: u32, offset: i32) -> u64 {
    const NONE: u64 = 0xffff_ffff;
    let is_set = |position: i64| mask >> position & 1 != 0;
    let base = i64::from(base);
    if base > 31 {
        return NONE;
    }
    if offset == 0 {
        return if is_set(base) { base as u64 } else { NONE };
    }
    let count = offset.unsigned_abs() as usize;
    let found = if offset > 0 {
        (base..32).filter(|&p| is_set(p)).nth(count - 1)
    } else {
        (0..=base).rev().filter(|&p| is_set(p)).nth(count - 1)
    };
    found.map_or(NONE, |position| position as u64)
}

/// The low word of `b:a` shifted right by up to 32.
fn funnel(a: u64, b: u64, shift: u32) -> u64 {
    let wide = b << 32 | a & 0xffff_ffff;
    (wide >> shift) & 0xffff_ffff
}

fn logic3(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut result = 0;
    for (row, truth) in (0..8).map(|row| (row, table >> row & 1 != 0)) {
        if truth {
            let pick = |word: u64, bit: u8| if row & bit != 0 { word } else { !word };
            result |= pick(a, 4) & pick(b, 2) & pick(c, 1);
        }
    }
    result
}

impl Permute {
    fn eval(self, a: u64, b: u64, c: u64) -> u64 {
        let bytes = b << 32 | a & 0xffff_ffff;
        let byte = |index: u64| bytes >> (8 * (index & 7)) & 0xff;
        let select = c & 3;
        let pick = |position: u64| match self {
            Permute::Index => {
                let selector = c >> (4 * position) & 15;
                let picked = byte(selector);
                match (selector & 8 != 0, picked & 0x80 != 0) {
                    (false, _) => picked,
                    (true, true) => 0xff,
                    (true, false) => 0,
                }
            }
            Permute::Forward4 => byte(select + position),
            Permute::Backward4 => byte(select.wrapping_sub(position)),
            Permute::Replicate8 => byte(select),
            Permute::EdgeClampLeft => byte(select.max(position)),
            Permute::EdgeClampRight => byte(select.min(position)),
            Permute::Replicate16 => byte((select & 1) * 2 + (position & 1)),
        };
        (0..4).fold(0, |word, position| word | pick(position) << (8 * position))
    }
}

impl CarryOp {
    /// The result and the flag afterwards.
    pub fn eval(self, a: u64, b: u64, c: u64, flag: bool) -> (u64, bool) {
        let int = Int {
            signed: false,
            ..self.int
        };
        let carry = u128::from(self.carry_in && flag);
        let wide = |word: u64| u128::from(int.truncate(word));
        let sum = match self.kind {
            CarryKind::Add => wide(a) + wide(b) + carry,
            CarryKind::Sub => wide(a).wrapping_sub(wide(b) + carry),
            CarryKind::MadLow => wide(product(self.int, a, b).0) + wide(c) + carry,
            CarryKind::MadHigh => wide(product(self.int, a, b).1) + wide(c) + carry,
        };
        let out = sum >> int.bits.count() & 1 != 0;
        let flag = if self.carry_out { out } else { flag };
        (int.truncate(sum as u64), flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U16: Int = int(Bits::B16, false);
    const S16: Int = int(Bits::B16, true);
    const U32: Int = int(Bits::B32, false);
    const S32: Int = int(Bits::B32, true);
    const U64: Int = int(Bits::B64, false);
    const S64: Int = int(Bits::B64, true);

    const fn int(bits: Bits, signed: bool) -> Int {
        Int { bits, signed }
    }

    fn s32(value: i32) -> u64 {
        u64::from(value as u32)
    }

    #[test]
    fn addition_wraps_at_the_width_and_ignores_higher_bits() {
        assert_eq!(IntBinary::Add.eval(U32, 0xdead_ffff_ffff, 1), 0);
        assert_eq!(IntBinary::Add.eval(U16, 0xffff, 2), 1);
        assert_eq!(IntBinary::Add.eval(U64, u64::MAX, 1), 0);
        assert_eq!(IntBinary::Sub.eval(U32, 0, 1), 0xffff_ffff);
        assert_eq!(
            IntBinary::AddSaturating.eval(S32, s32(i32::MAX), 1),
            s32(i32::MAX)
        );
        assert_eq!(
            IntBinary::SubSaturating.eval(S32, s32(i32::MIN), 1),
            s32(i32::MIN)
        );
    }

    #[test]
    fn products_low_high_and_wide() {
        assert_eq!(IntBinary::MulLow.eval(S32, s32(-3), 7), s32(-21));
        assert_eq!(IntBinary::MulHigh.eval(S32, s32(-1), 5), 0xffff_ffff);
        assert_eq!(
            IntBinary::MulHigh.eval(U32, 0xffff_ffff, 0xffff_ffff),
            0xffff_fffe
        );
        assert_eq!(
            IntBinary::MulHigh.eval(U64, u64::MAX, u64::MAX),
            u64::MAX - 1
        );
        assert_eq!(IntBinary::MulHigh.eval(S64, u64::MAX, u64::MAX), 0);
        assert_eq!(IntBinary::MulWide.eval(S32, s32(-2), 3), (-6i64) as u64);
        assert_eq!(IntBinary::MulWide.eval(U16, 0xffff, 0xffff), 0xfffe_0001);
        assert_eq!(IntBinary::MulWide.eval(S16, 0xffff, 2), 0xffff_fffe);
        assert_eq!(IntTernary::MadWide.eval(U32, 1 << 31, 4, 5), (1 << 33) + 5);
        assert_eq!(IntTernary::MadLow.eval(S32, s32(-2), 3, 10), 4);
        assert_eq!(IntTernary::MadHigh.eval(U32, 1 << 31, 2, 9), 10);
        assert_eq!(
            IntTernary::MadHighSaturating.eval(S32, s32(i32::MIN), s32(i32::MIN), s32(i32::MAX)),
            s32(i32::MAX)
        );
    }

    #[test]
    fn products_of_24_bits() {
        // 0xffffff is -1 as a signed 24-bit number.
        assert_eq!(IntBinary::Mul24Low.eval(S32, 0xff_ffff, 3), s32(-3));
        assert_eq!(IntBinary::Mul24Low.eval(U32, 0xff_ffff, 3), 0x2ff_fffd);
        // 0xffffff squared is 0xfffffe000001.
        assert_eq!(
            IntBinary::Mul24High.eval(U32, 0xff_ffff, 0xff_ffff),
            0xffff_fe00
        );
        assert_eq!(IntTernary::Mad24Low.eval(U32, 0x0100_0002, 3, 4), 10);
        assert_eq!(
            IntTernary::Mad24HighSaturating.eval(S32, 0x7f_ffff, 0x7f_ffff, s32(i32::MAX)),
            s32(i32::MAX)
        );
    }

    #[test]
    fn division_truncates_and_never_overflows() {
        assert_eq!(IntBinary::Div.eval(S32, s32(-7), 2), s32(-3));
        assert_eq!(IntBinary::Rem.eval(S32, s32(-7), 2), s32(-1));
        assert_eq!(IntBinary::Div.eval(U32, s32(-7), 2), 0x7fff_fffc);
        assert_eq!(
            IntBinary::Div.eval(S32, s32(i32::MIN), s32(-1)),
            s32(i32::MIN)
        );
        assert_eq!(IntBinary::Div.eval(S64, 1 << 63, u64::MAX), 1 << 63);
        assert_eq!(IntBinary::Rem.eval(S64, 1 << 63, u64::MAX), 0);
        assert_eq!(IntBinary::Rem.eval(U16, 0x1_0007, 4), 3);
    }

    #[test]
    fn minimum_and_maximum_by_sign() {
        assert_eq!(IntBinary::Min.eval(S32, s32(-1), 1), s32(-1));
        assert_eq!(IntBinary::Min.eval(U32, s32(-1), 1), 1);
        assert_eq!(IntBinary::Max.eval(S16, 0x8000, 0x7fff), 0x7fff);
        assert_eq!(IntBinary::MaxRelu.eval(S32, s32(-5), s32(-9)), 0);
        assert_eq!(IntBinary::MinRelu.eval(S32, 5, 9), 5);
        let min = PackedBinary::Min {
            signed: true,
            relu: false,
        };
        assert_eq!(min.eval(0x0001_ffff, 0xfffe_0003), 0xfffe_ffff);
        assert_eq!(
            PackedBinary::Add.eval(0xffff_ffff, 0x0001_0002),
            0x0000_0001
        );
    }

    #[test]
    fn shifts_beyond_the_width() {
        assert_eq!(IntBinary::ShiftLeft.eval(U32, 1, 31), 1 << 31);
        assert_eq!(IntBinary::ShiftLeft.eval(U32, 1, 32), 0);
        assert_eq!(IntBinary::ShiftLeft.eval(U64, 1, 64), 0);
        assert_eq!(IntBinary::ShiftLeft.eval(U16, 3, 15), 0x8000);
        assert_eq!(IntBinary::ShiftRight.eval(U32, 0x8000_0000, 40), 0);
        assert_eq!(
            IntBinary::ShiftRight.eval(S32, 0x8000_0000, 40),
            0xffff_ffff
        );
        assert_eq!(IntBinary::ShiftRight.eval(S16, 0x8000, 4), 0xf800);
        assert_eq!(
            IntBinary::ShiftRight.eval(S64, 1 << 63, u64::from(u32::MAX)),
            u64::MAX
        );
        // The amount is 32 bits, whatever stands above.
        assert_eq!(IntBinary::ShiftLeft.eval(U32, 1, 0x1_0000_0001), 2);
    }

    #[test]
    fn funnel_shifts_clamp_or_wrap() {
        let (a, b) = (0x1111_2222, 0xaaaa_bbbb);
        let eval = |f: IntTernary, c| f.eval(U32, a, b, c);
        assert_eq!(eval(IntTernary::FunnelLeftClamp, 16), 0xbbbb_1111);
        assert_eq!(eval(IntTernary::FunnelLeftClamp, 40), a);
        assert_eq!(eval(IntTernary::FunnelLeftWrap, 32), b);
        assert_eq!(eval(IntTernary::FunnelRightClamp, 16), 0xbbbb_1111);
        assert_eq!(eval(IntTernary::FunnelRightClamp, 33), b);
        assert_eq!(eval(IntTernary::FunnelRightWrap, 32), a);
    }

    #[test]
    fn counts_and_searches() {
        assert_eq!(IntUnary::CountOnes.eval(U32, 0xffff_0000_0000_0007), 3);
        assert_eq!(IntUnary::LeadingZeros.eval(U32, 1), 31);
        assert_eq!(IntUnary::LeadingZeros.eval(U32, 0), 32);
        assert_eq!(IntUnary::LeadingZeros.eval(U64, 0), 64);
        assert_eq!(IntUnary::ReverseBits.eval(U32, 1), 1 << 31);
        assert_eq!(IntUnary::FindHighest.eval(U32, 0x0800_0000), 27);
        assert_eq!(IntUnary::FindHighest.eval(U32, 0), 0xffff_ffff);
        assert_eq!(IntUnary::FindHighest.eval(S32, s32(-1)), 0xffff_ffff);
        assert_eq!(IntUnary::FindHighest.eval(S32, s32(-2)), 0);
        assert_eq!(IntUnary::FindHighestShift.eval(U32, 1), 31);
        assert_eq!(IntUnary::FindHighestShift.eval(S64, 0), 0xffff_ffff);
        assert_eq!(IntUnary::LogicalNot.eval(U32, 0xf_0000_0000), 1);
        assert_eq!(IntUnary::Abs.eval(S32, s32(i32::MIN)), s32(i32::MIN));
        assert_eq!(IntUnary::Abs.eval(S16, 0xffff), 1);
        assert_eq!(IntUnary::Neg.eval(S32, 5), s32(-5));
        assert_eq!(IntUnary::Not.eval(U16, 0xff), 0xff00);
    }

    #[test]
    fn the_nth_set_bit_in_both_directions() {
        let fns =
            |mask, base, offset: i32| IntTernary::FindNthSet.eval(U32, mask, base, s32(offset));
        assert_eq!(fns(0b1011_0000, 4, 0), 4);
        assert_eq!(fns(0b1011_0000, 3, 0), 0xffff_ffff);
        assert_eq!(fns(0b1011_0000, 0, 2), 5);
        assert_eq!(fns(0b1011_0000, 7, -2), 5);
        assert_eq!(fns(0b1011_0000, 0, 4), 0xffff_ffff);
    }

    #[test]
    fn bit_fields() {
        let bfe = |int, a, b, c| IntTernary::BitFieldExtract.eval(int, a, b, c);
        assert_eq!(bfe(U32, 0xabcd_1234, 8, 8), 0x12);
        assert_eq!(bfe(S32, 0xabcd_f234, 12, 4), 0xffff_ffff);
        assert_eq!(bfe(S32, 0x8000_0000, 28, 16), 0xffff_fff8);
        assert_eq!(bfe(U32, 0x8000_0000, 28, 16), 8);
        assert_eq!(bfe(S32, 0x8000_0000, 40, 4), 0xffff_ffff);
        assert_eq!(bfe(S32, 0xffff_ffff, 3, 0), 0);
        assert_eq!(bfe(U64, u64::MAX, 60, 255), 15);
        assert_eq!(insert_bits(Bits::B32, 0xff, 0x1234_5678, 8, 8), 0x1234_ff78);
        assert_eq!(insert_bits(Bits::B32, 0xff, 0, 28, 8), 0xf000_0000);
        assert_eq!(insert_bits(Bits::B32, 0xff, 7, 32, 8), 7);
        assert_eq!(insert_bits(Bits::B32, 0xff, 7, 0, 0), 7);
        assert_eq!(insert_bits(Bits::B64, u64::MAX, 0, 0, 64), u64::MAX);
        assert_eq!(IntBinary::MaskClamp.eval(U32, 4, 3), 0x70);
        assert_eq!(IntBinary::MaskClamp.eval(U32, 4, 40), 0xffff_fff0);
        assert_eq!(IntBinary::MaskClamp.eval(U32, 32, 1), 0);
        assert_eq!(IntBinary::MaskWrap.eval(U32, 36, 3), 0x70);
        assert_eq!(IntBinary::ExtendClamp.eval(S32, 0x80, 8), 0xffff_ff80);
        assert_eq!(IntBinary::ExtendClamp.eval(U32, 0x180, 8), 0x80);
        assert_eq!(
            IntBinary::ExtendClamp.eval(S32, 0x1234_5678, 99),
            0x1234_5678
        );
        assert_eq!(IntBinary::ExtendWrap.eval(S32, 3, 33), 0xffff_ffff);
        assert_eq!(IntBinary::ExtendWrap.eval(S32, 3, 32), 0);
    }

    #[test]
    fn byte_permutations_of_all_modes() {
        let (a, b) = (0x3322_1100, 0x7766_5544);
        let prmt = |mode, c| IntTernary::Permute(mode).eval(U32, a, b, c);
        assert_eq!(prmt(Permute::Index, 0x7531), 0x7755_3311);
        assert_eq!(prmt(Permute::Index, 0x0000), 0);
        // The top bit of a selector replicates the sign of the byte.
        let sign = IntTernary::Permute(Permute::Index).eval(U32, 0x7f80, 0, 0x1908);
        assert_eq!(sign, 0x7f00_80ff);
        assert_eq!(prmt(Permute::Forward4, 2), 0x5544_3322);
        assert_eq!(prmt(Permute::Backward4, 1), 0x6677_0011);
        assert_eq!(prmt(Permute::Replicate8, 2), 0x2222_2222);
        assert_eq!(prmt(Permute::EdgeClampLeft, 1), 0x3322_1111);
        assert_eq!(prmt(Permute::EdgeClampRight, 1), 0x1111_1100);
        assert_eq!(prmt(Permute::Replicate16, 1), 0x3322_3322);
    }

    #[test]
    fn lookup_tables_of_three_operands() {
        let (a, b, c) = (0xf0f0_f0f0, 0xcccc_cccc, 0xaaaa_aaaa);
        let lop3 = |table| IntTernary::Logic3(table).eval(U32, a, b, c);
        assert_eq!(lop3(0xf0), a);
        assert_eq!(lop3(0xcc), b);
        assert_eq!(lop3(0xaa), c);
        assert_eq!(lop3(0x80), a & b & c);
        assert_eq!(lop3(0xfe), a | b | c);
        assert_eq!(lop3(0x96), a ^ b ^ c);
        // a ? b : c
        assert_eq!(lop3(0xca), a & b | !a & c & 0xffff_ffff);
    }

    #[test]
    fn dot_products_of_packed_bytes() {
        let dot4 = |a_signed, b_signed, a, b, c| {
            IntTernary::Dot4 { a_signed, b_signed }.eval(S32, a, b, c)
        };
        assert_eq!(dot4(false, false, 0x0102_0304, 0x0101_0101, 10), 20);
        assert_eq!(dot4(true, true, 0xff, 0x7f, 0), s32(-127));
        assert_eq!(dot4(false, true, 0xff, 0xff, 0), s32(-255));
        let dot2 = |high| {
            IntTernary::Dot2 {
                a_signed: true,
                b_signed: false,
                high,
            }
            .eval(S32, 0x0002_ffff, 0x0403_0201, 0)
        };
        // Halves -1 and 2 by bytes 1 and 2, or 3 and 4.
        assert_eq!(dot2(false), 3);
        assert_eq!(dot2(true), 5);
    }

    #[test]
    fn sums_of_absolute_differences() {
        assert_eq!(IntTernary::SumAbsDifference.eval(S32, s32(-3), 4, 10), 17);
        assert_eq!(IntTernary::SumAbsDifference.eval(U32, 0, 0xffff_ffff, 1), 0);
    }

    #[test]
    fn carries_chain() {
        let op = |kind, carry_in| CarryOp {
            kind,
            int: U32,
            carry_in,
            carry_out: true,
        };
        let add = op(CarryKind::Add, false);
        assert_eq!(add.eval(0xffff_ffff, 1, 0, false), (0, true));
        assert_eq!(op(CarryKind::Add, true).eval(2, 3, 0, true), (6, false));
        let all = 0xffff_ffff;
        assert_eq!(
            op(CarryKind::Add, true).eval(all, all, 0, true),
            (all, true)
        );
        assert_eq!(op(CarryKind::Sub, false).eval(0, 1, 0, false), (all, true));
        assert_eq!(op(CarryKind::Sub, true).eval(5, 5, 0, true), (all, true));
        assert_eq!(
            op(CarryKind::MadLow, false).eval(all, 2, 2, false),
            (0, true)
        );
        assert_eq!(
            op(CarryKind::MadHigh, true).eval(all, 2, 2, true),
            (4, false)
        );
        let quiet = CarryOp {
            carry_out: false,
            ..add
        };
        assert_eq!(quiet.eval(all, 1, 0, true), (0, true));
    }

    #[test]
    fn a_64_bit_sum_is_two_32_bit_sums_with_carry() {
        use proptest::prelude::*;
        proptest!(|(a: u64, b: u64)| {
            let low = CarryOp { kind: CarryKind::Add, int: U32, carry_in: false, carry_out: true };
            let high = CarryOp { carry_in: true, carry_out: false, ..low };
            let (l, flag) = low.eval(a, b, 0, false);
            let (h, _) = high.eval(a >> 32, b >> 32, 0, flag);
            prop_assert_eq!(h << 32 | l, a.wrapping_add(b));
        });
    }
}
