//! `vprintf`: a C format string and values in memory, to text (CUDA C++ Programming Guide,
//! "Formatted Output").

use crate::exec::fault::FaultKind;
use crate::exec::interpret::Stop;

/// What formatting needs from memory.
pub(super) enum Request {
    /// A value of `bytes` bytes at an offset from the first value.
    Word { offset: u64, bytes: u8 },
    /// The string at a generic address.
    String(u64),
}

/// The answer to a [`Request`] of the same kind.
pub(super) enum Answer {
    Word(u64),
    Text(String),
}

/// One `%` conversion.
#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// `l`, `ll`, `z`, `j`, `t`: 8 bytes.
    long: bool,
}

/// The most bytes that are kept of what one run prints: those of the buffer that CUDA has for it.
const MOST: usize = 1 << 20;

/// Text that was printed: its beginning, and how much followed.
#[derive(Debug, Default)]
pub(super) struct Printed {
    text: String,
    lost: u64,
}

impl Printed {
    /// Adds what was printed next.
    pub(super) fn push_str(&mut self, text: &str) {
        let room = match self.lost {
            0 => MOST - self.text.len(),
            _ => 0,
        };
        let (kept, lost) = text.split_at(text.floor_char_boundary(room));
        self.text.push_str(kept);
        self.lost += lost.len() as u64;
    }

    /// Adds all that was printed next.
    pub(super) fn append(&mut self, next: &Printed) {
        self.push_str(&next.text);
        self.lost += next.lost;
    }

    /// How many bytes were printed.
    pub(super) fn bytes(&self) -> u64 {
        self.text.len() as u64 + self.lost
    }

    /// The text; says so at its end if that is not all.
    pub(super) fn finish(mut self) -> String {
        if self.lost > 0 {
            let line = format!("\n[{} more bytes were printed]\n", self.lost);
            self.text.push_str(&line);
        }
        self.text
    }
}

/// The widest field and the most digits that are printed.
const WIDEST: usize = 1024;

/// Appends the formatted text to `out`; returns the number of values.
pub(super) fn print(
    format: &str,
    out: &mut Printed,
    ask: &mut dyn FnMut(Request) -> Result<Answer, Stop>,
) -> Result<u64, Stop> {
    let mut values = Values {
        ask,
        offset: 0,
        count: 0,
    };
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push_str(c.encode_utf8(&mut [0; 4]));
            continue;
        }
        let mut spec = Conversion::default();
        while let Some(flag) = chars.next_if(|c| "-+ #0".contains(*c)) {
            match flag {
                '-' => spec.left = true,
                '+' => spec.plus = true,
                ' ' => spec.space = true,
                '#' => spec.alternate = true,
                _ => spec.zero = true,
            }
        }
        if chars.next_if_eq(&'*').is_some() {
            let width = values.word(4)? as i32;
            spec.left |= width < 0;
            spec.width = (width.unsigned_abs() as usize).min(WIDEST);
        } else {
            spec.width = number(&mut chars);
        }
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = if chars.next_if_eq(&'*').is_some() {
                usize::try_from(values.word(4)? as i32)
                    .ok()
                    .map(|p| p.min(WIDEST))
            } else {
                Some(number(&mut chars))
            };
        }
        while let Some(length) = chars.next_if(|c| "hljztL".contains(*c)) {
            spec.long |= length != 'h';
        }
        let bytes = if spec.long { 8 } else { 4 };
        let Some(kind) = chars.next() else {
            return Err(FaultKind::Format("ends inside a conversion").into());
        };
        let text = match kind {
            '%' => "%".to_owned(),
            'd' | 'i' => {
                let value = values.word(bytes)?;
                let value = if spec.long {
                    value as i64
                } else {
                    i64::from(value as i32)
                };
                spec.integer(value < 0, value.unsigned_abs().to_string(), "")
            }
            'u' => spec.unsigned(values.word(bytes)?.to_string(), ""),
            'o' => spec.unsigned(format!("{:o}", values.word(bytes)?), "0"),
            'x' => spec.unsigned(format!("{:x}", values.word(bytes)?), "0x"),
            'X' => spec.unsigned(format!("{:X}", values.word(bytes)?), "0X"),
            'p' => spec.unsigned(format!("0x{:x}", values.word(8)?), ""),
            'c' => char::from(values.word(4)? as u8).to_string(),
            's' => {
                let address = values.word(8)?;
                let text = values.text(address)?;
                match spec.precision {
                    Some(most) => text.chars().take(most).collect(),
                    None => text,
                }
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => {
                spec.float(f64::from_bits(values.word(8)?), kind)
            }
            _ => return Err(FaultKind::Format("has a conversion that is not known").into()),
        };
        spec.pad(&text, out);
    }
    Ok(values.count)
}

struct Values<'a> {
    ask: &'a mut dyn FnMut(Request) -> Result<Answer, Stop>,
    offset: u64,
    count: u64,
}

impl Values<'_> {
    /// The next value; values are aligned to their size.
    fn word(&mut self, bytes: u8) -> Result<u64, Stop> {
        let offset = self.offset.next_multiple_of(u64::from(bytes));
        self.offset = offset + u64::from(bytes);
        self.count += 1;
        match (self.ask)(Request::Word { offset, bytes })? {
            Answer::Word(word) => Ok(word),
            Answer::Text(_) => Ok(0),
        }
    }

    fn text(&mut self, address: u64) -> Result<String, Stop> {
        match (self.ask)(Request::String(address))? {
            Answer::Text(text) => Ok(text),
            Answer::Word(_) => Ok(String::new()),
        }
    }
}

fn number(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> usize {
    let mut number = 0;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        number = (number * 10 + digit as usize).min(WIDEST);
    }
    number
}

impl Conversion {
    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, _, _) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn unsigned(&self, digits: String, prefix: &str) -> String {
        let prefix = if self.alternate && digits != "0" {
            prefix
        } else {
            ""
        };
        self.digits("", prefix, digits)
    }

    fn integer(&self, negative: bool, digits: String, prefix: &str) -> String {
        self.digits(self.sign(negative), prefix, digits)
    }

    fn digits(&self, sign: &str, prefix: &str, digits: String) -> String {
        let width = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len() + prefix.len()),
            None => 0,
        };
        format!("{sign}{prefix}{digits:0>width$}")
    }

    fn float(&self, value: f64, kind: char) -> String {
        let sign = self.sign(value.is_sign_negative());
        let magnitude = value.abs();
        let text = if magnitude.is_finite() {
            match kind.to_ascii_lowercase() {
                'e' => exponent(magnitude, self.precision.unwrap_or(6)),
                'g' => self.general(magnitude),
                'a' => hexadecimal(magnitude),
                _ => format!("{magnitude:.*}", self.precision.unwrap_or(6)),
            }
        } else if magnitude.is_nan() {
            "nan".to_owned()
        } else {
            "inf".to_owned()
        };
        let text = if kind.is_ascii_uppercase() {
            text.to_uppercase()
        } else {
            text
        };
        if self.zero && !self.left && magnitude.is_finite() {
            let width = self.width.saturating_sub(sign.len());
            format!("{sign}{text:0>width$}")
        } else {
            format!("{sign}{text}")
        }
    }

    /// `%g`: as many significant digits as the precision says, in the shorter notation.
    fn general(&self, magnitude: f64) -> String {
        let digits = self.precision.unwrap_or(6).max(1);
        let scientific = exponent(magnitude, digits - 1);
        let power: i32 = scientific
            .split_once('e')
            .and_then(|(_, power)| power.parse().ok())
            .unwrap_or(0);
        let strip = |text: String| match text.contains('.') && !self.alternate {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        };
        if power < -4 || power >= digits as i32 {
            match scientific.split_once('e') {
                Some((mantissa, power)) => format!("{}e{power}", strip(mantissa.to_owned())),
                None => scientific,
            }
        } else {
            let decimals = (digits as i32 - 1 - power).max(0) as usize;
            strip(format!("{magnitude:.decimals$}"))
        }
    }

    fn pad(&self, text: &str, out: &mut Printed) {
        let padding = self.width.saturating_sub(text.chars().count());
        if self.left {
            out.push_str(text);
        }
        out.push_str(&" ".repeat(padding));
        if !self.left {
            out.push_str(text);
        }
    }
}

/// `%e`: the exponent has a sign and at least two digits.
fn exponent(magnitude: f64, precision: usize) -> String {
    let text = format!("{magnitude:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => {
            let (sign, digits) = match power.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', power),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// `%a` with as many digits as needed.
fn hexadecimal(magnitude: f64) -> String {
    if magnitude == 0.0 {
        return "0x0p+0".to_owned();
    }
    let bits = magnitude.to_bits();
    let (lead, power) = match (bits >> 52) as i32 {
        0 => (0, -1022),
        biased => (1, biased - 1023),
    };
    let digits = format!("{:013x}", bits & ((1 << 52) - 1));
    match digits.trim_end_matches('0') {
        "" => format!("0x{lead}p{power:+}"),
        digits => format!("0x{lead}.{digits}p{power:+}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_endless_output_is_bounded_and_the_rest_is_counted() {
        let mut printed = Printed::default();
        printed.push_str(&"a".repeat(MOST - 1));
        // Two bytes, of which one would fit.
        printed.push_str("é");
        printed.push_str("b");
        let mut call = Printed::default();
        call.push_str(&"c".repeat(MOST + 5));
        printed.append(&call);
        assert_eq!(printed.bytes(), 2 * MOST as u64 + 7);
        let text = printed.finish();
        assert_eq!(
            text.trim_start_matches('a'),
            format!("\n[{} more bytes were printed]\n", MOST + 8)
        );
        assert_eq!(text.len() - text.trim_start_matches('a').len(), MOST - 1);
    }

    fn printed(format: &str, words: &[u64]) -> String {
        let mut bytes = Vec::new();
        for word in words {
            bytes.extend(word.to_le_bytes());
        }
        let mut out = Printed::default();
        let result = print(format, &mut out, &mut |request| match request {
            Request::Word { offset, bytes: n } => {
                let mut word = [0; 8];
                let start = offset as usize;
                word[..n as usize].copy_from_slice(&bytes[start..start + n as usize]);
                Ok(Answer::Word(u64::from_le_bytes(word)))
            }
            Request::String(_) => Ok(Answer::Text("text".to_owned())),
        });
        result.map_or_else(|_| "fault".to_owned(), |_| out.finish())
    }

    #[test]
    fn integers_as_c_prints_them() {
        assert_eq!(printed("%d|%5d", &[0x0000_0007_ffff_ffff]), "-1|    7");
        assert_eq!(printed("%-5u|", &[42]), "42   |");
        assert_eq!(printed("%05lld", &[(-42i64) as u64]), "-0042");
        assert_eq!(printed("%#x %X", &[0xff_0000_00ff]), "0xff FF");
        assert_eq!(printed("%+.3d", &[7]), "+007");
        assert_eq!(printed("%p", &[0x1000]), "0x1000");
        assert_eq!(printed("100%% %c", &[65]), "100% A");
    }

    #[test]
    fn values_are_aligned_to_their_size() {
        assert_eq!(printed("%d %f", &[1, 2.5f64.to_bits()]), "1 2.500000");
    }

    #[test]
    fn floats_as_c_prints_them() {
        let f = |format: &str, x: f64| printed(format, &[x.to_bits()]);
        assert_eq!(f("%.2f", 2.005), "2.00");
        assert_eq!(f("%e", 12345.678), "1.234568e+04");
        assert_eq!(f("%g", 0.0001), "0.0001");
        assert_eq!(f("%g", 1e10), "1e+10");
        assert_eq!(f("%g", 100000.0), "100000");
        assert_eq!(f("%g", 1e-5), "1e-05");
        assert_eq!(f("%08.3f", -1.5), "-001.500");
        assert_eq!(f("%f", f64::INFINITY), "inf");
        assert_eq!(f("%a", 1.5), "0x1.8p+0");
    }

    #[test]
    fn strings_and_stars() {
        assert_eq!(printed("[%6s]", &[1]), "[  text]");
        assert_eq!(printed("[%.2s]", &[1]), "[te]");
        assert_eq!(printed("[%*d]", &[0x0000_0009_0000_0004]), "[   9]");
    }

    #[test]
    fn malformed_formats_are_faults() {
        assert_eq!(printed("%", &[]), "fault");
        assert_eq!(printed("%y", &[0]), "fault");
    }
}
