//! `mma.sync`, `ldmatrix` and `stmatrix`: which lane holds what (PTX ISA, "Warp Level Matrix
//! Instructions").

use super::float::Rounding;
use super::format::{self, Format};
use super::integer::{Bits, Int};

/// The most source words a lane contributes to an operation of its warp.
pub(crate) const SOURCES: usize = 12;

/// The most result words a lane gets from an operation of its warp.
pub(crate) const RESULTS: usize = 4;

/// The words of all lanes of a warp.
pub(crate) type Words<const N: usize> = [[u64; N]; 32];

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

/// `mma.sync.aligned.MxNxK.row.col`; M is 16 (8 for `f64`, whose K is 4), N is 8.
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

/// One operand of a product, dense: rows of A, columns of B.
type Dense<const N: usize> = [[f64; 32]; N];

impl Factor {
    /// The bits of an element, and its floating-point format unless it is an integer.
    fn layout(self) -> (u32, Option<Format>) {
        match self {
            Factor::F16 => (16, Some(format::F16)),
            Factor::Bf16 => (16, Some(format::BF16)),
            // The low bits of the register do not take part.
            Factor::Tf32 => (32, Some(format::F32)),
            Factor::F64 => (64, Some(format::F64)),
            Factor::S8 | Factor::U8 => (8, None),
            Factor::E4m3 => (8, Some(format::E4M3)),
            Factor::E5m2 => (8, Some(format::E5M2)),
        }
    }

    /// An element's value; every one is exact in `f64`.
    fn value(self, word: u64) -> f64 {
        let (bits, format) = self.layout();
        let word = word & u64::MAX >> (64 - bits);
        match format {
            Some(format) if self == Factor::Tf32 => format.decode(word & !0x1fff),
            Some(format) => format.decode(word),
            None => {
                let int = Int {
                    bits: Bits::B8,
                    signed: self == Factor::S8,
                };
                int.value(word) as f64
            }
        }
    }

    /// How many elements of a row (column) a register holds.
    fn per_register(self) -> usize {
        (32 / self.layout().0.min(32)) as usize
    }
}

impl Mma {
    /// How many 8-row blocks A has.
    fn row_blocks(self) -> usize {
        if self.a == Factor::F64 { 1 } else { 2 }
    }

    /// How many registers of A, B, and C (and D) a lane has.
    pub fn registers(self) -> (usize, usize, usize) {
        let chunks = usize::from(self.depth) / (4 * self.a.per_register());
        let c = match self.accumulator {
            Accumulator::F16 => 2,
            Accumulator::F64 => 2,
            Accumulator::F32 | Accumulator::S32 => 4,
        };
        (chunks * self.row_blocks(), chunks, c)
    }

    /// D of all lanes; the sources of a lane are its registers of A, B and C.
    ///
    /// Lane `l` is in group `g = l / 4` at place `t = l % 4`. A register of A or B holds
    /// neighbours in K. Floating-point products are summed in `f64` and rounded once.
    pub(crate) fn eval(self, sources: &Words<SOURCES>) -> Words<RESULTS> {
        let (a_registers, b_registers, c_registers) = self.registers();
        let blocks = self.row_blocks();
        let depth = usize::from(self.depth).min(32);
        let mut a: Dense<16> = [[0.0; 32]; 16];
        let mut b: Dense<8> = [[0.0; 32]; 8];
        for (lane, words) in sources.iter().enumerate() {
            let (group, place) = (lane / 4, lane % 4);
            let elements = self.a.per_register();
            let bits = self.a.layout().0;
            for (register, &word) in words.iter().take(a_registers).enumerate() {
                let row = group + 8 * (register % blocks);
                let first = place * elements + 4 * elements * (register / blocks);
                for element in 0..elements {
                    a[row][(first + element) % 32] = self.a.value(word >> (element as u32 * bits));
                }
            }
            let words = words.iter().skip(a_registers).take(b_registers);
            for (register, &word) in words.enumerate() {
                let first = place * elements + 4 * elements * register;
                for element in 0..elements {
                    b[group][(first + element) % 32] =
                        self.b.value(word >> (element as u32 * bits));
                }
            }
        }
        let mut results = [[0; RESULTS]; 32];
        for (lane, (words, result)) in sources.iter().zip(&mut results).enumerate() {
            let (group, place) = (lane / 4, lane % 4);
            let c = words.iter().skip(a_registers + b_registers);
            for (register, (&c, d)) in c.take(c_registers).zip(result).enumerate() {
                let dot = |row: usize, column: usize, c: f64| {
                    let (a, b) = (&a[row % 16][..depth], &b[column % 8][..depth]);
                    let terms = a.iter().zip(b);
                    if self.accumulator == Accumulator::F64 {
                        terms.fold(c, |sum, (&a, &b)| a.mul_add(b, sum))
                    } else {
                        // Products of narrow factors are exact.
                        terms.fold(c, |sum, (&a, &b)| sum + a * b)
                    }
                };
                let (row, column) = (group + 8 * (register / 2), place * 2 + register % 2);
                *d = match self.accumulator {
                    Accumulator::F64 => dot(group, column, f64::from_bits(c)).to_bits(),
                    Accumulator::F32 => {
                        let c = format::F32.decode(c & 0xffff_ffff);
                        round(format::F32, dot(row, column, c))
                    }
                    Accumulator::S32 => {
                        // At most 32 products of 16 bits: exact.
                        let sum = f64::from(c as i32) + dot(row, column, 0.0);
                        let sum = sum as i64;
                        let sum = if self.saturate {
                            sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX))
                        } else {
                            sum
                        };
                        sum as u64 & 0xffff_ffff
                    }
                    Accumulator::F16 => {
                        let row = group + 8 * register;
                        let half = |shift: u32, column: usize| {
                            let c = format::F16.decode(c >> shift & 0xffff);
                            round(format::F16, dot(row, column, c)) << shift
                        };
                        half(16, place * 2 + 1) | half(0, place * 2)
                    }
                };
            }
        }
        results
    }
}

fn round(format: Format, value: f64) -> u64 {
    format.encode(value, Rounding::NearestEven, false)
}

/// `movmatrix`: an 8x8 matrix of 16-bit elements, two in each lane's word, transposed.
pub(crate) fn transpose(sources: &Words<SOURCES>) -> Words<RESULTS> {
    let element = |row: usize, column: usize| {
        let word = sources[row * 4 + column / 2][0];
        word >> (16 * (column % 2)) & 0xffff
    };
    let mut results = [[0; RESULTS]; 32];
    for (lane, result) in results.iter_mut().enumerate() {
        let (row, column) = (lane / 4, lane % 4 * 2);
        result[0] = element(column + 1, row) << 16 | element(column, row);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element (row, column) of a test matrix: small integers, exact in every type.
    fn element(row: usize, column: usize) -> i64 {
        (row as i64 * 3 + column as i64 * 5) % 7 - 3
    }

    fn encode(factor: Factor, value: i64) -> u64 {
        let (bits, format) = factor.layout();
        let word = match format {
            Some(format) => round(format, value as f64),
            None => value as u64,
        };
        word & u64::MAX >> (64 - bits)
    }

    /// The rows and columns of the elements of a fragment as the figures of the PTX ISA give them
    /// ("Matrix Fragments for mma.m16n8k16" and its like), for A: group row, then K.
    fn a_elements(per: usize, lane: usize, register: usize) -> Vec<(usize, usize)> {
        let (group, place) = (lane >> 2, lane & 3);
        (0..per)
            .map(|i| {
                let row = [group, group + 8][register % 2];
                let column = place * per + i + if register >= 2 { 4 * per } else { 0 };
                (row, column)
            })
            .collect()
    }

    fn product(mma: Mma, c: impl Fn(usize, usize) -> i64) {
        let per = mma.a.per_register();
        let bits = mma.a.layout().0;
        let (a_registers, b_registers, c_registers) = mma.registers();
        let mut sources = [[0; SOURCES]; 32];
        for (lane, words) in sources.iter_mut().enumerate() {
            let (group, place) = (lane >> 2, lane & 3);
            let mut next = 0;
            for register in 0..a_registers {
                for (i, (row, k)) in a_elements(per, lane, register).into_iter().enumerate() {
                    words[next] |= encode(mma.a, element(row, k)) << (i as u32 * bits);
                }
                next += 1;
            }
            for register in 0..b_registers {
                for i in 0..per {
                    let k = place * per + i + register * 4 * per;
                    words[next] |= encode(mma.b, element(k, group + 1)) << (i as u32 * bits);
                }
                next += 1;
            }
            for register in 0..c_registers {
                words[next] = match mma.accumulator {
                    Accumulator::F32 => {
                        let (row, column) = (group + register / 2 * 8, place * 2 + register % 2);
                        round(format::F32, c(row, column) as f64)
                    }
                    Accumulator::S32 => {
                        let (row, column) = (group + register / 2 * 8, place * 2 + register % 2);
                        c(row, column) as u64 & 0xffff_ffff
                    }
                    Accumulator::F64 => (c(group, place * 2 + register) as f64).to_bits(),
                    Accumulator::F16 => {
                        let row = group + register * 8;
                        let half = |column| round(format::F16, c(row, column) as f64);
                        half(place * 2 + 1) << 16 | half(place * 2)
                    }
                };
                next += 1;
            }
        }
        let results = mma.eval(&sources);
        let expected = |row: usize, column: usize| -> i64 {
            let dot: i64 = (0..usize::from(mma.depth))
                .map(|k| element(row, k) * element(k, column + 1))
                .sum();
            c(row, column) + dot
        };
        for (lane, words) in results.iter().enumerate() {
            let (group, place) = (lane >> 2, lane & 3);
            for (register, &word) in words.iter().take(c_registers).enumerate() {
                let (row, column) = (group + register / 2 * 8, place * 2 + register % 2);
                match mma.accumulator {
                    Accumulator::F32 => assert_eq!(
                        f32::from_bits(word as u32),
                        expected(row, column) as f32,
                        "{mma:?} lane {lane}"
                    ),
                    Accumulator::S32 => {
                        assert_eq!(i64::from(word as i32), expected(row, column), "{mma:?}");
                    }
                    Accumulator::F64 => assert_eq!(
                        f64::from_bits(word),
                        expected(group, place * 2 + register) as f64
                    ),
                    Accumulator::F16 => {
                        let row = group + register * 8;
                        let half = |column| expected(row, column) as f64;
                        assert_eq!(format::F16.decode(word & 0xffff), half(place * 2));
                        assert_eq!(format::F16.decode(word >> 16), half(place * 2 + 1));
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_all_shapes() {
        let c = |row: usize, column: usize| row as i64 - 2 * column as i64;
        for (depth, factor, accumulator) in [
            (16, Factor::F16, Accumulator::F32),
            (8, Factor::F16, Accumulator::F32),
            (16, Factor::F16, Accumulator::F16),
            (16, Factor::Bf16, Accumulator::F32),
            (8, Factor::Bf16, Accumulator::F32),
            (8, Factor::Tf32, Accumulator::F32),
            (4, Factor::Tf32, Accumulator::F32),
            (32, Factor::S8, Accumulator::S32),
            (16, Factor::S8, Accumulator::S32),
            (32, Factor::E4m3, Accumulator::F32),
            (32, Factor::E5m2, Accumulator::F32),
            (4, Factor::F64, Accumulator::F64),
        ] {
            let mma = Mma {
                depth,
                a: factor,
                b: factor,
                accumulator,
                saturate: false,
            };
            product(mma, c);
        }
    }

    #[test]
    fn integer_sums_wrap_or_saturate() {
        let mut sources = [[0; SOURCES]; 32];
        for words in &mut sources {
            // A and B all ones; C the largest number.
            words[..6].fill(0x0101_0101);
            words[6..10].fill(0x7fff_ffff);
        }
        let mma = |saturate| Mma {
            depth: 32,
            a: Factor::S8,
            b: Factor::S8,
            accumulator: Accumulator::S32,
            saturate,
        };
        assert_eq!(mma(true).eval(&sources)[5][0], 0x7fff_ffff);
        assert_eq!(mma(false).eval(&sources)[5][0], 0x8000_001f);
    }

    #[test]
    fn unsigned_bytes_are_not_signed() {
        let mut sources = [[0; SOURCES]; 32];
        for words in &mut sources {
            words[..4].fill(0xffff_ffff);
            words[4..6].fill(0x0101_0101);
        }
        let mma = Mma {
            depth: 32,
            a: Factor::U8,
            b: Factor::S8,
            accumulator: Accumulator::S32,
            saturate: false,
        };
        assert_eq!(mma.eval(&sources)[0][0], 255 * 32);
    }

    #[test]
    fn transposing_twice_changes_nothing() {
        let mut sources = [[0; SOURCES]; 32];
        for (lane, words) in sources.iter_mut().enumerate() {
            words[0] = ((lane as u64 * 2 + 1) << 16) | (lane as u64 * 2);
        }
        let once = transpose(&sources);
        // Element (0, 1) was in lane 0's high half; (1, 0) is in lane 4's low half.
        assert_eq!(once[4][0] & 0xffff, sources[0][0] >> 16);
        let mut again = [[0; SOURCES]; 32];
        for (words, result) in again.iter_mut().zip(&once) {
            words[0] = result[0];
        }
        let twice = transpose(&again);
        for (result, words) in twice.iter().zip(&sources) {
            assert_eq!(result[0], words[0]);
        }
    }
}
