//! Numbers and constant expressions (PTX ISA, "Constant Expressions").

use super::{Parser, Result};
use crate::syntax::ast::Constant;
use crate::syntax::lexer::{Kind, Token};

/// Operators by how tightly they bind, loosest first.
const BINARY: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Parser<'_, 'a> {
    /// A constant expression, folded.
    pub(super) fn expression(&mut self) -> Result<Constant> {
        let condition = self.binary(0)?;
        if !self.is("?") {
            return Ok(condition);
        }
        let question = self.bump();
        let condition = self.truth(condition, &question)?;
        self.nested(|p| {
            let yes = p.expression()?;
            p.expect(":", "between the two values of `?`")?;
            let no = p.expression()?;
            Ok(if condition { yes } else { no })
        })
    }

    /// A constant expression that is an integer.
    pub(super) fn integer(&mut self) -> Result<u64> {
        let start = self.peek();
        match self.expression()? {
            Constant::Integer { bits, .. } => Ok(bits),
            _ => Err(self.source.error(
                start.span,
                "expected an integer, found a floating-point number",
            )),
        }
    }

    /// A plain number that satisfies `accept`.
    pub(super) fn number_of<T: TryFrom<u64> + Copy>(
        &mut self,
        what: &str,
        accept: impl Fn(T) -> bool,
    ) -> Result<T> {
        if let Kind::Number(Constant::Integer { bits, .. }) = self.peek().kind
            && let Ok(value) = T::try_from(bits)
            && accept(value)
        {
            self.bump();
            return Ok(value);
        }
        Err(self.unexpected(what))
    }

    fn binary(&mut self, level: usize) -> Result<Constant> {
        let Some(operators) = BINARY.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        loop {
            let operator = self.peek();
            if operator.kind != Kind::Punctuation || !operators.contains(&operator.text) {
                return Ok(left);
            }
            self.bump();
            let right = self.binary(level + 1)?;
            left = self.apply(&operator, left, right)?;
        }
    }

    fn unary(&mut self) -> Result<Constant> {
        let token = self.peek();
        if let Kind::Number(constant) = token.kind {
            self.bump();
            return Ok(constant);
        }
        match token.text {
            "WARP_SZ" => {
                self.bump();
                Ok(Constant::signed(32))
            }
            "(" => {
                self.bump();
                self.nested(Self::parenthesised)
            }
            "-" | "+" | "~" | "!" => {
                self.bump();
                let value = self.nested(Self::unary)?;
                self.apply_unary(&token, value)
            }
            _ => Err(self.unexpected("a number")),
        }
    }

    /// What follows an opening parenthesis: a cast and its operand, or an expression.
    fn parenthesised(&mut self) -> Result<Constant> {
        let cast = match self.peek().text {
            ".s64" => Some(false),
            ".u64" => Some(true),
            _ => None,
        };
        let Some(unsigned) = cast else {
            let value = self.expression()?;
            self.expect(")", "after an expression")?;
            return Ok(value);
        };
        self.bump();
        self.expect(")", "after the type of a cast")?;
        let operand = self.peek();
        match self.unary()? {
            Constant::Integer { bits, .. } => Ok(Constant::Integer { bits, unsigned }),
            _ => Err(self.not_integers(&operand)),
        }
    }

    fn not_integers(&self, operator: &Token<'a>) -> Box<crate::diagnostic::Diagnostic> {
        self.source.error(
            operator.span,
            format!("{} works on integers only", operator.describe()),
        )
    }

    fn truth(&self, value: Constant, operator: &Token<'a>) -> Result<bool> {
        match value {
            Constant::Integer { bits, .. } => Ok(bits != 0),
            _ => Err(self.not_integers(operator)),
        }
    }

    fn apply_unary(&self, operator: &Token<'a>, value: Constant) -> Result<Constant> {
        Ok(match (operator.text, value) {
            ("+", value) => value,
            ("-", Constant::Integer { bits, unsigned }) => Constant::Integer {
                bits: bits.wrapping_neg(),
                unsigned,
            },
            ("-", Constant::Double(bits)) => Constant::Double(bits ^ 1 << 63),
            ("-", Constant::Single(bits)) => Constant::Single(bits ^ 1 << 31),
            ("~", Constant::Integer { bits, unsigned }) => Constant::Integer {
                bits: !bits,
                unsigned,
            },
            ("!", Constant::Integer { bits, .. }) => Constant::signed(i64::from(bits == 0)),
            _ => return Err(self.not_integers(operator)),
        })
    }

    fn apply(&self, operator: &Token<'a>, left: Constant, right: Constant) -> Result<Constant> {
        use Constant::{Double, Integer};
        match (left, right) {
            (
                Integer {
                    bits: left,
                    unsigned: left_unsigned,
                },
                Integer {
                    bits: right,
                    unsigned: right_unsigned,
                },
            ) => {
                let shift = matches!(operator.text, "<<" | ">>");
                let unsigned = left_unsigned || right_unsigned && !shift;
                match integers(operator.text, left, right, unsigned) {
                    Some(bits) => {
                        let truth = matches!(
                            operator.text,
                            "<" | "<=" | ">" | ">=" | "==" | "!=" | "&&" | "||"
                        );
                        Ok(Integer {
                            bits,
                            unsigned: unsigned && !truth,
                        })
                    }
                    None => Err(self.source.error(operator.span, "division by zero")),
                }
            }
            (Double(left), Double(right)) => {
                let (left, right) = (f64::from_bits(left), f64::from_bits(right));
                let value = match operator.text {
                    "+" => left + right,
                    "-" => left - right,
                    "*" => left * right,
                    "/" => left / right,
                    _ => return Err(self.not_integers(operator)),
                };
                Ok(Double(value.to_bits()))
            }
            _ => Err(self.source.error(
                operator.span,
                format!(
                    "{} works on two integers or two decimal numbers",
                    operator.describe()
                ),
            )),
        }
    }
}

/// `None` is a division by zero.
fn integers(operator: &str, left: u64, right: u64, unsigned: bool) -> Option<u64> {
    let (signed_left, signed_right) = (left as i64, right as i64);
    let less = |left: u64, right: u64| {
        if unsigned {
            left < right
        } else {
            (left as i64) < (right as i64)
        }
    };
    let truth = |value: bool| Some(u64::from(value));
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    match operator {
        "||" => truth(left != 0 || right != 0),
        "&&" => truth(left != 0 && right != 0),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "==" => truth(left == right),
        "!=" => truth(left != right),
        "<" => truth(less(left, right)),
        ">" => truth(less(right, left)),
        "<=" => truth(!less(right, left)),
        ">=" => truth(!less(left, right)),
        "<<" => Some(left.checked_shl(shift).unwrap_or(0)),
        ">>" if unsigned => Some(left.checked_shr(shift).unwrap_or(0)),
        ">>" => Some((signed_left >> shift.min(63)) as u64),
        "+" => Some(left.wrapping_add(right)),
        "-" => Some(left.wrapping_sub(right)),
        "*" => Some(left.wrapping_mul(right)),
        "/" if unsigned => left.checked_div(right),
        "%" if unsigned => left.checked_rem(right),
        "/" if right != 0 => Some(signed_left.wrapping_div(signed_right) as u64),
        "%" if right != 0 => Some(signed_left.wrapping_rem(signed_right) as u64),
        _ => None,
    }
}
