//! Sizes and initial values of variables.

use std::fmt;

use super::{Lowerer, Result};
use crate::lower::scope;
use crate::program::operand::SymbolSpace;
use crate::program::symbols::{Relocation, RelocationTarget, Variable as Stored};
use crate::syntax::ast::{
    Constant, Initializer, Item, Linkage, Module, Statement, Variable, Variables,
};
use crate::syntax::span::{Span, Spanned};
use crate::syntax::types::{StateSpace, Type};

/// The bits of a number as a value of a floating-point type.
pub(super) fn float_bits(constant: Constant, bits: u32) -> Option<u64> {
    Some(match (constant, bits) {
        (Constant::Single(single), 32) => u64::from(single),
        (Constant::Single(single), 64) => f64::from(f32::from_bits(single)).to_bits(),
        (Constant::Double(double), 32) => u64::from((f64::from_bits(double) as f32).to_bits()),
        (Constant::Double(double), 64) => double,
        _ => return None,
    })
}

/// The message about a number of the wrong kind.
pub(super) fn not_a_value(constant: Constant, ty: &dyn fmt::Display) -> String {
    match constant {
        Constant::Double(bits) => {
            format!("`{:?}` is not a value of type `{ty}`", f64::from_bits(bits))
        }
        constant => format!("`{constant}` is not a value of type `{ty}`"),
    }
}

/// Where initial values are written to, and of what type they are.
struct Target<'v> {
    bytes: &'v mut Vec<u8>,
    ty: Type,
    /// Where the variable lies in the data.
    offset: u64,
}

impl<'a> Lowerer<'a> {
    /// The size and alignment of a variable, an omitted first dimension filled in.
    pub(super) fn variable_size(
        &self,
        variables: &Variables,
        variable: &Variable,
    ) -> Result<(u64, u64)> {
        let mut dimensions = variable.dimensions.clone();
        if let (Some(first @ None), Some(initial)) = (dimensions.first_mut(), &variable.initial)
            && let Initializer::List(list) = &initial.value
        {
            *first = Some(list.len() as u64);
        }
        scope::size(&variables.layout, &dimensions).ok_or_else(|| {
            let ty = variables.layout.ty;
            let message = if ty.bytes().is_none() {
                format!("variables of type `{ty}` are not supported yet")
            } else {
                format!("`{}` is larger than 2 GiB", variable.name)
            };
            self.error(variable.name.span, message)
        })
    }

    /// Fills in the initial values of all variables of the module.
    pub(super) fn initialise(&mut self, module: &'a Module) -> Result<()> {
        for item in &module.items {
            match item {
                Item::Variables(variables) => self.initialise_variables(variables)?,
                Item::Function(function) => {
                    if let Some(body) = &function.body {
                        self.initialise_inner(&body.value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn initialise_inner(&mut self, statements: &'a [Statement]) -> Result<()> {
        for statement in statements {
            match statement {
                Statement::Block(block) => self.initialise_inner(&block.value)?,
                Statement::Variables(variables) => self.initialise_variables(variables)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn initialise_variables(&mut self, variables: &'a Variables) -> Result<()> {
        if variables.linkage == Linkage::Extern {
            return Ok(());
        }
        let global = matches!(
            variables.space.value,
            StateSpace::Global | StateSpace::Const
        );
        for variable in &variables.variables {
            let name = &variable.name;
            if let Some(initial) = variable.initial.as_ref().filter(|_| !global) {
                return Err(self.error(
                    initial.span,
                    format!("a `{}` variable has no initial value", variables.space),
                ));
            }
            if !global {
                continue;
            }
            let (bytes, _) = self.variable_size(variables, variable)?;
            let place = (self.inner.get(&name.span.start))
                .or_else(|| self.variables.get(name.as_str()))
                .copied();
            let Some(place) = place else { continue };
            let mut init = Vec::new();
            if let Some(initial) = &variable.initial {
                let mut dimensions: Vec<u64> = variable
                    .dimensions
                    .iter()
                    .map(|dimension| dimension.unwrap_or(u64::MAX))
                    .collect();
                dimensions.extend(variables.layout.vector.map(u64::from));
                let mut target = Target {
                    bytes: &mut init,
                    ty: variables.layout.ty.value,
                    offset: u64::from(place.offset),
                };
                self.fill(&mut target, 0, &dimensions, initial)?;
                if init.len() as u64 > bytes {
                    return Err(self.error(
                        initial.span,
                        format!("more initial values than `{name}` has elements"),
                    ));
                }
            }
            self.program.data.variables.push(Stored {
                name: name.value.clone(),
                offset: u64::from(place.offset),
                bytes,
                init,
                constant: variables.space.value == StateSpace::Const,
            });
        }
        // Inner variables come in the order of their functions.
        self.program.data.variables.sort_by_key(|v| v.offset);
        Ok(())
    }

    /// Writes `initial`, the value of an array of `dimensions`, at byte `at` of the target.
    fn fill(
        &mut self,
        target: &mut Target<'_>,
        at: u64,
        dimensions: &[u64],
        initial: &'a Spanned<Initializer>,
    ) -> Result<()> {
        let element = u64::from(target.ty.bytes().unwrap_or(1));
        match &initial.value {
            Initializer::List(list) => {
                let Some((&limit, inner)) = dimensions.split_first() else {
                    return Err(self.error(initial.span, "a list of values for a single element"));
                };
                // Numbers without braces of their own fill the inner dimensions one by one.
                let nested = list
                    .iter()
                    .any(|value| matches!(value.value, Initializer::List(_)));
                let total = inner.iter().fold(limit, |n, d| n.saturating_mul(*d));
                let (limit, inner) = if nested {
                    (limit, inner)
                } else {
                    (total, &[][..])
                };
                let stride = inner.iter().fold(element, |n, d| n.saturating_mul(*d));
                if list.len() as u64 > limit {
                    return Err(self.error(
                        initial.span,
                        format!("{} values for {limit} elements", list.len()),
                    ));
                }
                for (index, value) in list.iter().enumerate() {
                    let at = at.saturating_add((index as u64).saturating_mul(stride));
                    self.fill(target, at, inner, value)?;
                }
                Ok(())
            }
            Initializer::Constant(constant) => {
                let Some(value) = element_bits(*constant, target.ty) else {
                    return Err(self.error(initial.span, not_a_value(*constant, &target.ty)));
                };
                self.write(target, at, element, value, initial.span)
            }
            Initializer::Symbol {
                name,
                offset,
                mask,
                generic: _,
            } => {
                let target_of = self.address_of(name, *offset, initial.span)?;
                let byte = match mask {
                    None if element == 8 => Some(0),
                    Some(mask) if element == 1 => {
                        (0..8).find(|byte| 0xffu64 << (8 * byte) == *mask)
                    }
                    _ => None,
                };
                let (Some(byte), Some(start)) = (byte, byte.and_then(|b| at.checked_sub(b))) else {
                    return Err(self
                        .error(
                            initial.span,
                            format!("an address does not fit a `{}` element", target.ty),
                        )
                        .with_help("addresses have 64 bits"));
                };
                // The byte at 0 stands for the whole word; the others only make room for it.
                self.write(target, at, element, 0, initial.span)?;
                if byte == 0 {
                    let at = target.offset + start;
                    self.program.data.relocations.push(Relocation {
                        at,
                        target: target_of,
                    });
                    return Ok(());
                }
                let whole = Relocation {
                    at: target.offset + start,
                    target: target_of,
                };
                if self.program.data.relocations.last() == Some(&whole) {
                    return Ok(());
                }
                Err(self.error(
                    initial.span,
                    "a byte of an address that is not beside its other bytes is not supported",
                ))
            }
        }
    }

    fn write(
        &self,
        target: &mut Target<'_>,
        at: u64,
        element: u64,
        value: u64,
        span: Span,
    ) -> Result<()> {
        let end = at.saturating_add(element);
        if end > scope::LARGEST {
            return Err(self.error(span, "this value lies outside its variable"));
        }
        let (at, end) = (at as usize, end as usize);
        if target.bytes.len() < end {
            target.bytes.resize(end, 0);
        }
        let value = u128::from(value).to_le_bytes();
        target.bytes[at..end].copy_from_slice(&value[..end - at]);
        Ok(())
    }

    fn address_of(&mut self, name: &str, offset: i64, span: Span) -> Result<RelocationTarget> {
        if let Some(variable) = self.variables.get(name) {
            if variable.space != SymbolSpace::Global {
                return Err(self.error(
                    span,
                    format!("the address of `{name}` is not known before the kernel runs"),
                ));
            }
            let address = u64::from(variable.offset).wrapping_add(offset as u64);
            return Ok(RelocationTarget::Data(address));
        }
        match self.function_id(name) {
            Some(id) if offset == 0 => Ok(RelocationTarget::Function(id)),
            Some(_) => Err(self.error(span, "an offset to the address of a function")),
            None => Err(self.error(span, format!("`{name}` is not defined in this module"))),
        }
    }
}

/// A number as an element of type `ty`.
fn element_bits(constant: Constant, ty: Type) -> Option<u64> {
    let float = matches!(ty, Type::F32 | Type::F64);
    match constant {
        Constant::Integer { bits, .. } if !float => Some(bits),
        Constant::Single(bits) if ty == Type::B32 => Some(u64::from(bits)),
        Constant::Double(bits) if ty == Type::B64 => Some(bits),
        constant if float => float_bits(constant, ty.bytes()? * 8),
        _ => None,
    }
}
