//! The names that the body of a function declares, block by block.

use std::collections::HashMap;

use crate::program::operand::SymbolSpace;
use crate::syntax::ast::{Component, Layout, Parameter, Statement};
use crate::syntax::span::Span;
use crate::syntax::types::{StateSpace, Type};

/// A variable that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// The space that was written.
    pub(super) declared: StateSpace,
    /// Where it is at run time.
    pub(super) space: SymbolSpace,
    /// Where it lies there.
    pub(super) offset: u32,
    /// How many bytes it has; 0 for an unsized array.
    pub(super) bytes: u64,
}

/// A label of a function: its position in [`super::body::Body::labels`].
pub(super) type Label = usize;

/// A register declaration: the type, and how many components each register has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register {
    pub(super) declaration: u32,
    pub(super) ty: Type,
    pub(super) components: u32,
    /// The first number, and how many there are in the range; `None` for a single register.
    pub(super) count: Option<u32>,
}

/// What a name means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning<'a> {
    Register(Register),
    Variable(Variable),
    Label(Label),
    /// `.branchtargets`, `.calltargets` or `.callprototype`
    List(&'a Statement),
}

#[derive(Debug, Default)]
struct Block<'a> {
    names: HashMap<&'a str, (Meaning<'a>, Span)>,
    /// Register ranges (`%r<5>`) by prefix.
    ranges: HashMap<&'a str, (Register, Span)>,
}

/// The names visible at a place.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    blocks: Vec<Block<'a>>,
}

impl<'a> Scope<'a> {
    pub(super) fn open(&mut self) {
        self.blocks.push(Block::default());
    }

    pub(super) fn close(&mut self) {
        self.blocks.pop();
    }

    fn innermost(&mut self) -> &mut Block<'a> {
        if self.blocks.is_empty() {
            self.open();
        }
        self.blocks.last_mut().expect("a block was just opened")
    }

    /// Declares a name in the innermost block.
    ///
    /// # Errors
    /// The place where the block declares it already.
    pub(super) fn declare(
        &mut self,
        name: &'a str,
        meaning: Meaning<'a>,
        span: Span,
    ) -> Result<(), Span> {
        if let Some(first) = self.declared_here(name) {
            return Err(first);
        }
        self.innermost().names.insert(name, (meaning, span));
        Ok(())
    }

    /// Declares `prefix0` to `prefix(count-1)` in the innermost block.
    ///
    /// # Errors
    /// The place where the block declares a range of that prefix already.
    pub(super) fn declare_range(
        &mut self,
        prefix: &'a str,
        register: Register,
        span: Span,
    ) -> Result<(), Span> {
        match self.innermost().ranges.insert(prefix, (register, span)) {
            Some((_, first)) => Err(first),
            None => Ok(()),
        }
    }

    fn declared_here(&self, name: &str) -> Option<Span> {
        let block = self.blocks.last()?;
        let exact = block.names.get(name).map(|(_, span)| *span);
        exact.or_else(|| in_range(block, name).map(|(_, _, span)| span))
    }

    /// What `name` means here, and its number if it belongs to a range of registers.
    pub(super) fn find(&self, name: &str) -> Option<(Meaning<'a>, u32)> {
        self.blocks.iter().rev().find_map(|block| {
            if let Some((meaning, _)) = block.names.get(name) {
                return Some((*meaning, 0));
            }
            let (register, number, _) = in_range(block, name)?;
            Some((Meaning::Register(register), number))
        })
    }

    /// All names that are visible, ranges of registers apart: candidates for a misspelt one.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.blocks
            .iter()
            .flat_map(|block| block.names.keys().copied())
    }

    /// The labels that are visible.
    pub(super) fn labels(&self) -> impl Iterator<Item = &'a str> + '_ {
        let named = self.blocks.iter().flat_map(|block| &block.names);
        named.filter_map(|(name, (meaning, _))| {
            matches!(meaning, Meaning::Label(_)).then_some(*name)
        })
    }

    /// The prefixes of the ranges of registers.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.blocks
            .iter()
            .flat_map(|block| block.ranges.keys().copied())
    }

    /// The range of registers that a number too high for it would belong to.
    pub(super) fn range_of(&self, name: &str) -> Option<(&'a str, u32)> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (1..=digits).find_map(|digits| {
            let prefix = &name[..name.len() - digits];
            self.blocks.iter().rev().find_map(|block| {
                let (&prefix, (register, _)) = block.ranges.get_key_value(prefix)?;
                Some((prefix, register.count?))
            })
        })
    }
}

/// The range that a name like `%r12` belongs to, and its number.
fn in_range(block: &Block<'_>, name: &str) -> Option<(Register, u32, Span)> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    // A prefix may end with digits itself: `%r1<4>` is `%r10` to `%r13`.
    (1..=digits).find_map(|digits| {
        let (prefix, number) = name.split_at(name.len() - digits);
        if number.len() > 1 && number.starts_with('0') {
            return None;
        }
        let &(register, span) = block.ranges.get(prefix)?;
        let number = number.parse().ok()?;
        (number < register.count?).then_some((register, number, span))
    })
}

/// The component's position in a vector register.
pub(super) fn component_index(component: Component) -> u32 {
    match component {
        Component::X => 0,
        Component::Y => 1,
        Component::Z => 2,
        Component::W => 3,
    }
}

/// The size and alignment in bytes of a variable; `None` when it has no size or it is too large.
pub(super) fn size(layout: &Layout, dimensions: &[Option<u64>]) -> Option<(u64, u64)> {
    let element = u64::from(layout.ty.bytes()?) * u64::from(layout.vector.unwrap_or(1));
    let align = u64::from(layout.align.unwrap_or(0)).max(element);
    let mut bytes = element;
    for dimension in dimensions {
        bytes = bytes.checked_mul(dimension.unwrap_or(0))?;
    }
    (bytes <= LARGEST).then_some((bytes, align))
}

/// The largest variable that is accepted, in bytes: offsets in a space are 32 bits.
pub(super) const LARGEST: u64 = 1 << 31;

/// The size and alignment in bytes of a parameter.
pub(super) fn parameter_size(parameter: &Parameter) -> Option<(u64, u64)> {
    size(&parameter.layout, &parameter.dimensions)
}
