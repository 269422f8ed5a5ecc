//! The parts of one instruction: modifiers taken in any order, operands checked against types.

use super::body::Body;
use super::scope::{Meaning, Register, Variable, component_index};
use super::special::{Found, special};
use super::types::{Class, DataType, Registers};
use super::words::KNOWN;
use super::{Result, data};
use crate::diagnostic::{Diagnostic, nearest};
use crate::program::ir::{Address, Guard, Inst, MemorySpace, Op, PredicateOperand};
use crate::program::operand::{Operand, Operands, Reg, Regs, SymbolSpace};
use crate::syntax::ast::{self, AddressBase, Constant, Instruction, Symbol};
use crate::syntax::span::{Span, Spanned};
use crate::syntax::types::{StateSpace, Type};

/// An instruction that is being decoded.
pub(super) struct Decoder<'d, 'l, 'a> {
    pub(super) body: &'d mut Body<'l, 'a>,
    pub(super) instruction: &'a Spanned<Instruction>,
    guard: Option<Guard>,
    /// Which modifiers have been taken.
    taken: Vec<bool>,
    /// The instruction as a whole is refused: which modifier it was for does not matter.
    pub(super) refused: bool,
}

/// Decodes one instruction and appends it.
pub(super) fn instruction<'a>(
    body: &mut Body<'_, 'a>,
    instruction: &'a Spanned<Instruction>,
) -> Result<()> {
    let mut decoder = Decoder {
        taken: vec![false; instruction.modifiers.len()],
        body,
        instruction,
        guard: None,
        refused: false,
    };
    decoder.guard = decoder.decode_guard()?;
    let op = match decoder.decode() {
        Ok(op) => op,
        Err(error) if decoder.refused => return Err(error),
        Err(error) => return Err(decoder.unknown_modifier().unwrap_or(error)),
    };
    if let Some(error) = decoder.unknown_modifier().or_else(|| decoder.left_over()) {
        return Err(error);
    }
    decoder.emit(op);
    Ok(())
}

impl<'a> Decoder<'_, '_, 'a> {
    pub(super) fn opcode(&self) -> &'a str {
        &self.instruction.value.opcode
    }

    /// The opcode with its modifiers, as written.
    fn whole_opcode(&self) -> String {
        let mut text = self.opcode().to_owned();
        for modifier in &self.instruction.value.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        text
    }

    pub(super) fn error(&self, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        self.body.lowerer.error(span, message)
    }

    /// An error about the opcode.
    pub(super) fn opcode_error(&self, message: impl Into<String>) -> Box<Diagnostic> {
        let opcode = self.instruction.value.opcode.span;
        let last = (self.instruction.value.modifiers.last()).map_or(opcode, |word| word.span);
        self.error(opcode.to(last), message)
    }

    pub(super) fn unsupported(&mut self) -> Box<Diagnostic> {
        self.refused = true;
        self.opcode_error(format!("`{}` is not supported yet", self.whole_opcode()))
    }

    /// Appends an operation under the instruction's guard.
    pub(super) fn emit(&mut self, op: Op) {
        let inst = Inst {
            guard: self.guard,
            op,
        };
        self.body.push(inst);
    }

    fn decode_guard(&mut self) -> Result<Option<Guard>> {
        let Some(guard) = &self.instruction.value.guard else {
            return Ok(None);
        };
        let symbol = Symbol {
            name: guard.predicate.value.clone(),
            component: None,
        };
        let span = guard.predicate.span;
        let (predicate, ty) = self.register(&symbol, span)?;
        self.check(DataType::Pred, ty, false, &symbol, span)?;
        Ok(Some(Guard {
            predicate,
            negated: guard.negated,
        }))
    }

    /// Takes the modifier `word`, if it is there.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let words = &self.instruction.value.modifiers;
        let found = (0..words.len()).find(|&i| !self.taken[i] && words[i].value == word);
        if let Some(index) = found {
            self.taken[index] = true;
        }
        found.is_some()
    }

    /// Takes the first modifier that `choices` has a value for.
    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices
            .iter()
            .find_map(|(word, value)| self.flag(word).then_some(*value))
    }

    /// Like [`Self::choice`], but one of them must be there.
    pub(super) fn required<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T> {
        self.choice(choices).ok_or_else(|| {
            let words: Vec<String> = (choices.iter())
                .map(|(word, _)| format!("`.{word}`"))
                .collect();
            let opcode = self.opcode();
            self.opcode_error(format!("`{opcode}` lacks one of {}", words.join(", ")))
        })
    }

    /// Takes the modifier `word`, which must be there.
    pub(super) fn demand(&mut self, word: &str) -> Result<()> {
        self.required(&[(word, ())])
    }

    /// Takes the first type among the modifiers that are left, if there is one.
    pub(super) fn optional_ty(&mut self) -> Option<DataType> {
        let words = &self.instruction.value.modifiers;
        (0..words.len()).find_map(|index| {
            let ty = DataType::from_word(&words[index])?;
            (!std::mem::replace(&mut self.taken[index], true)).then_some(ty)
        })
    }

    /// Takes the first type among the modifiers that are left.
    pub(super) fn ty(&mut self) -> Result<DataType> {
        let opcode = self.opcode();
        self.optional_ty()
            .ok_or_else(|| self.opcode_error(format!("`{opcode}` lacks a type, such as `.b32`")))
    }

    /// Takes a type, which must be one of `types`.
    pub(super) fn ty_of(&mut self, types: &[DataType]) -> Result<DataType> {
        let ty = self.ty()?;
        if types.contains(&ty) {
            return Ok(ty);
        }
        Err(self.bad_type(ty, types))
    }

    pub(super) fn bad_type(&self, ty: DataType, types: &[DataType]) -> Box<Diagnostic> {
        let types: Vec<String> = types.iter().map(|ty| format!("`{ty}`")).collect();
        self.opcode_error(format!("`{}` has no type `{ty}`", self.opcode()))
            .with_help(format!("its types are {}", types.join(", ")))
    }

    /// The first modifier that no instruction has, if nothing took it.
    fn unknown_modifier(&self) -> Option<Box<Diagnostic>> {
        let words = &self.instruction.value.modifiers;
        let index = (0..words.len()).find(|&i| {
            !self.taken[i]
                && !KNOWN.contains(&words[i].as_str())
                && DataType::from_word(&words[i]).is_none()
        })?;
        let word = &words[index];
        let types = DataType::ALL.iter().map(|ty| ty.word());
        let help = nearest(word, KNOWN.iter().copied().chain(types))
            .map(|word| format!("did you mean `.{word}`?"));
        let message = format!("`{}` has no modifier `.{word}`", self.opcode());
        Some(self.error(word.span, message).with_help_if(help))
    }

    /// The first modifier that this instruction does not have.
    fn left_over(&self) -> Option<Box<Diagnostic>> {
        let words = &self.instruction.value.modifiers;
        let index = (0..words.len()).find(|&i| !self.taken[i])?;
        let word = &words[index];
        let message = format!("`.{word}` does not apply to `{}`", self.whole_opcode());
        Some(self.error(word.span, message))
    }

    pub(super) fn operand_count(&self) -> usize {
        self.instruction.value.operands.len()
    }

    /// There must be from `least` to `most` operands.
    pub(super) fn count(&self, least: usize, most: usize) -> Result<()> {
        let found = self.operand_count();
        if (least..=most).contains(&found) {
            return Ok(());
        }
        let plural = if most == 1 { "" } else { "s" };
        let takes = if least == most {
            format!("{least} operand{plural}")
        } else {
            format!("{least} to {most} operands")
        };
        Err(self.error(
            self.instruction.span,
            format!("`{}` takes {takes}, found {found}", self.opcode()),
        ))
    }

    pub(super) fn operand(&self, index: usize) -> Result<&'a Spanned<ast::Operand>> {
        let operands = &self.instruction.value.operands;
        operands.get(index).ok_or_else(|| {
            self.error(
                self.instruction.span,
                format!(
                    "`{}` takes at least {} operands, found {}",
                    self.opcode(),
                    index + 1,
                    operands.len()
                ),
            )
        })
    }

    /// The register of that name, and its type.
    pub(super) fn register(&mut self, symbol: &Symbol, span: Span) -> Result<(Reg, Type)> {
        let name = symbol.name.as_str();
        match self.body.scope.find(name) {
            Some((Meaning::Register(register), number)) => {
                let component = match (symbol.component, register.components) {
                    (None, 1) => 0,
                    (Some(component), count) if component_index(component) < count && count > 1 => {
                        component_index(component)
                    }
                    (None, _) => {
                        return Err(self
                            .error(span, format!("`{name}` is a vector"))
                            .with_help(format!("name one of its elements, such as `{name}.x`")));
                    }
                    (Some(_), _) => {
                        return Err(self.error(span, format!("`{name}` has no such element")));
                    }
                };
                let reg = self.body.allocate(&register, number, component);
                Ok((reg, register.ty))
            }
            Some(_) => Err(self.error(span, format!("`{name}` is not a register"))),
            None => Err(self.undeclared(name, span)),
        }
    }

    /// Nothing of that name is declared.
    pub(super) fn undeclared(&self, name: &str, span: Span) -> Box<Diagnostic> {
        let error = self.error(span, format!("`{name}` is not declared"));
        if let Some((prefix, count)) = self.body.scope.range_of(name) {
            let help = match count.checked_sub(1) {
                Some(last) => {
                    format!("`{prefix}<{count}>` declares `{prefix}0` to `{prefix}{last}`")
                }
                None => format!("`{prefix}<0>` declares no register"),
            };
            return error.with_help(help);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Some(prefix) = nearest(stem, self.body.scope.prefixes()) {
            let number = &name[stem.len()..];
            return error.with_help(format!("did you mean `{prefix}{number}`?"));
        }
        let lowerer = &self.body.lowerer;
        let outer = lowerer.variables.keys().chain(lowerer.functions.keys());
        let candidates = self.body.scope.names().chain(outer.copied());
        let help = nearest(name, candidates).map(|near| format!("did you mean `{near}`?"));
        error.with_help_if(help)
    }

    fn check(
        &self,
        ty: DataType,
        register: Type,
        wider: bool,
        symbol: &Symbol,
        span: Span,
    ) -> Result<()> {
        if ty.fits(register, wider) {
            return Ok(());
        }
        let expected = Registers(ty, wider);
        let message = format!(
            "`{}` takes {expected} here; `{}` is a `{register}`",
            self.whole_opcode(),
            symbol.name
        );
        Err(self.error(span, message))
    }

    /// A destination register that holds exactly `ty`.
    pub(super) fn dst(&mut self, index: usize, ty: DataType) -> Result<Reg> {
        let operand = self.operand(index)?;
        self.destination(operand, ty, false).map(|(reg, _)| reg)
    }

    /// A destination, which may be `_`.
    pub(super) fn dst_or_sink(
        &mut self,
        operand: &Spanned<ast::Operand>,
        ty: DataType,
    ) -> Result<Reg> {
        match operand.value {
            ast::Operand::Sink => Ok(self.body.sink()),
            _ => self.destination(operand, ty, false).map(|(reg, _)| reg),
        }
    }

    /// A destination register that holds `ty`, or more if `wider`; also its type.
    pub(super) fn destination(
        &mut self,
        operand: &Spanned<ast::Operand>,
        ty: DataType,
        wider: bool,
    ) -> Result<(Reg, Type)> {
        let span = operand.span;
        match &operand.value {
            ast::Operand::Symbol(symbol) => {
                if special(&symbol.name, symbol.component).is_some() {
                    return Err(self.error(span, format!("`{symbol}` cannot be written")));
                }
                let (reg, register) = self.register(symbol, span)?;
                self.check(ty, register, wider, symbol, span)?;
                Ok((reg, register))
            }
            ast::Operand::Sink => {
                Err(self.error(span, format!("`{}` needs a destination", self.opcode())))
            }
            other => Err(self.expected("a register", other, span)),
        }
    }

    fn expected(&self, what: &str, found: &ast::Operand, span: Span) -> Box<Diagnostic> {
        let found = match found {
            ast::Operand::Symbol(_) | ast::Operand::Offset(..) => "a name",
            ast::Operand::Not(_) => "a negated predicate",
            ast::Operand::Constant(_) => "a number",
            ast::Operand::Address(_) | ast::Operand::Element(..) => "an address",
            ast::Operand::Vector(_) => "a vector",
            ast::Operand::Pair(_) => "two destinations",
            ast::Operand::Sink => "`_`",
            ast::Operand::Group(_) => "a list in parentheses",
        };
        let opcode = self.opcode();
        self.error(span, format!("`{opcode}` takes {what} here, found {found}"))
    }

    /// A source of exactly `ty`.
    pub(super) fn src(&mut self, index: usize, ty: DataType) -> Result<Operand> {
        let operand = self.operand(index)?;
        self.value(operand, ty, false)
    }

    /// A source of `ty`, or a register with more bits if `wider`.
    pub(super) fn value(
        &mut self,
        operand: &Spanned<ast::Operand>,
        ty: DataType,
        wider: bool,
    ) -> Result<Operand> {
        let span = operand.span;
        match &operand.value {
            ast::Operand::Symbol(symbol) => self.symbol_value(symbol, ty, wider, span),
            ast::Operand::Offset(name, offset) => {
                let variable = self.variable(name, span)?;
                self.address_value(variable, *offset, ty, span)
            }
            ast::Operand::Constant(constant) => self.constant(*constant, ty, span),
            other => Err(self.expected("a register or a number", other, span)),
        }
    }

    fn symbol_value(
        &mut self,
        symbol: &Symbol,
        ty: DataType,
        wider: bool,
        span: Span,
    ) -> Result<Operand> {
        let name = symbol.name.as_str();
        if let Some((Meaning::Register(_), _)) = self.body.scope.find(name) {
            let (reg, register) = self.register(symbol, span)?;
            self.check(ty, register, wider, symbol, span)?;
            return Ok(Operand::Reg(reg));
        }
        match special(name, symbol.component) {
            Some(Found::Register(register, bits)) => {
                // 16-bit reads of 32-bit registers are left from PTX 1.
                let fits = bits == ty.bits() || bits == 32 && ty.bits() == 16;
                if fits && ty.class() != Class::Float {
                    return Ok(Operand::Special(register));
                }
                return Err(self.error(
                    span,
                    format!("`{symbol}` has {bits} bits and cannot be read as `{ty}`"),
                ));
            }
            Some(Found::NeedsComponent) => {
                return Err(self
                    .error(span, format!("`{name}` is a vector"))
                    .with_help(format!("name one of its elements, such as `{name}.x`")));
            }
            Some(Found::NoComponent) => {
                return Err(self.error(span, format!("`{name}` is not a vector")));
            }
            None => {}
        }
        if self.body.lowerer.functions.contains_key(name) && self.body.scope.find(name).is_none() {
            return match self.body.lowerer.function_id(name) {
                Some(id) if ty.bits() == 64 => Ok(Operand::Symbol(SymbolSpace::Function, id.0)),
                Some(_) => Err(self.error(span, "the address of a function has 64 bits")),
                None => Err(self.not_defined(name, span)),
            };
        }
        let variable = self.variable(name, span)?;
        self.address_value(variable, 0, ty, span)
    }

    /// The variable of that name.
    pub(super) fn variable(&self, name: &str, span: Span) -> Result<Variable> {
        match self.body.scope.find(name) {
            Some((Meaning::Variable(variable), _)) => return Ok(variable),
            Some((Meaning::Label(_), _)) => {
                return Err(self.error(span, format!("`{name}` is a label, not a variable")));
            }
            Some(_) => return Err(self.error(span, format!("`{name}` is not a variable"))),
            None => {}
        }
        match self.body.lowerer.variables.get(name) {
            Some(variable) => Ok(*variable),
            None if self.body.lowerer.external.contains(name) => Err(self
                .error(
                    span,
                    format!("`{name}` is declared `.extern` but not defined"),
                )
                .with_help("link the modules first: `gsan check` runs one module")),
            None if self.body.lowerer.functions.contains_key(name) => {
                Err(self.error(span, format!("`{name}` is a function, not a variable")))
            }
            None => Err(self.undeclared(name, span)),
        }
    }

    fn address_value(
        &mut self,
        variable: Variable,
        offset: i64,
        ty: DataType,
        span: Span,
    ) -> Result<Operand> {
        let narrow = matches!(
            variable.space,
            SymbolSpace::Shared | SymbolSpace::Local | SymbolSpace::Param
        );
        let fits = ty.bits() == 64 || ty.bits() == 32 && narrow;
        if !fits || ty.class() == Class::Float {
            return Err(self.error(
                span,
                format!("an address cannot be used as `{ty}`: it has 64 bits"),
            ));
        }
        let address = i64::from(variable.offset).checked_add(offset);
        match address.and_then(|address| u32::try_from(address).ok()) {
            Some(address) => {
                self.body.touch(&variable);
                Ok(Operand::Symbol(variable.space, address))
            }
            None => Err(self.error(span, "this address lies outside its state space")),
        }
    }

    fn constant(&mut self, constant: Constant, ty: DataType, span: Span) -> Result<Operand> {
        let bits = ty.bits();
        let mask = if bits >= 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        };
        let value = match (constant, ty.class()) {
            (Constant::Integer { bits, .. }, Class::Integer { .. } | Class::Bits) => {
                Some(bits & mask)
            }
            (Constant::Integer { bits, .. }, Class::Predicate) => Some(u64::from(bits != 0)),
            (Constant::Single(single), Class::Bits) if bits == 32 => Some(u64::from(single)),
            (Constant::Double(double), Class::Bits) if bits == 64 => Some(double),
            (constant, Class::Float) => data::float_bits(constant, bits),
            _ => None,
        };
        match value {
            Some(value) => Ok(self.body.lowerer.constant(value)),
            None => {
                let help = match (ty, constant) {
                    (DataType::F32 | DataType::F64, Constant::Integer { bits, .. }) => {
                        Some(format!("write `{}.0`", bits as i64))
                    }
                    _ => None,
                };
                Err(self
                    .error(span, data::not_a_value(constant, &ty))
                    .with_help_if(help))
            }
        }
    }

    /// A number that must be known now.
    pub(super) fn immediate(&self, index: usize) -> Result<u64> {
        let operand = self.operand(index)?;
        match &operand.value {
            ast::Operand::Constant(Constant::Integer { bits, .. }) => Ok(*bits),
            other => Err(self.expected("an integer", other, operand.span)),
        }
    }

    /// `p` or `!p`.
    pub(super) fn predicate(&mut self, index: usize) -> Result<PredicateOperand> {
        let operand = self.operand(index)?;
        let (symbol, negated) = match &operand.value {
            ast::Operand::Symbol(symbol) => (symbol, false),
            ast::Operand::Not(symbol) => (symbol, true),
            ast::Operand::Constant(Constant::Integer { bits, .. }) => {
                let operand = self.body.lowerer.constant(u64::from(*bits != 0));
                return Ok(PredicateOperand {
                    operand,
                    negated: false,
                });
            }
            other => return Err(self.expected("a predicate", other, operand.span)),
        };
        let (reg, register) = self.register(symbol, operand.span)?;
        self.check(DataType::Pred, register, false, symbol, operand.span)?;
        Ok(PredicateOperand {
            operand: Operand::Reg(reg),
            negated,
        })
    }

    /// `d|p` or `d`: the first destination of type `ty`, and the second, a predicate.
    pub(super) fn pair(&mut self, index: usize, ty: DataType) -> Result<(Reg, Option<Reg>)> {
        let operand = self.operand(index)?;
        match &operand.value {
            ast::Operand::Pair(pair) => {
                let first = self.dst_or_sink(&pair.0, ty)?;
                let second = self.dst_or_sink(&pair.1, DataType::Pred)?;
                Ok((first, Some(second)))
            }
            _ => Ok((self.dst_or_sink(operand, ty)?, None)),
        }
    }

    /// The elements of a vector operand; a vector register is all of its elements.
    pub(super) fn elements(&self, index: usize) -> Result<Vec<Spanned<ast::Operand>>> {
        let operand = self.operand(index)?;
        match &operand.value {
            ast::Operand::Vector(elements) => Ok(elements.clone()),
            ast::Operand::Symbol(Symbol {
                name,
                component: None,
            }) => match self.body.scope.find(name) {
                Some((Meaning::Register(Register { components, .. }), _)) if components > 1 => {
                    use ast::Component::{W, X, Y, Z};
                    Ok([X, Y, Z, W]
                        .into_iter()
                        .take(components as usize)
                        .map(|component| {
                            let symbol = Symbol {
                                name: name.clone(),
                                component: Some(component),
                            };
                            Spanned::new(ast::Operand::Symbol(symbol), operand.span)
                        })
                        .collect())
                }
                _ => Ok(vec![operand.clone()]),
            },
            _ => Ok(vec![operand.clone()]),
        }
    }

    /// A vector operand of exactly `count` elements.
    pub(super) fn elements_of(
        &self,
        index: usize,
        count: usize,
    ) -> Result<Vec<Spanned<ast::Operand>>> {
        let elements = self.elements(index)?;
        if elements.len() == count {
            return Ok(elements);
        }
        let span = self.operand(index)?.span;
        let plural = if count == 1 { "" } else { "s" };
        Err(self.error(
            span,
            format!(
                "`{}` takes {count} element{plural} here, found {}",
                self.whole_opcode(),
                elements.len()
            ),
        ))
    }

    /// Destinations of one type each; `_` is allowed.
    pub(super) fn destinations(
        &mut self,
        operands: &[Spanned<ast::Operand>],
        ty: DataType,
    ) -> Result<Vec<Reg>> {
        let mut registers = Vec::new();
        for operand in operands {
            let reg = self.dst_or_sink(operand, ty)?;
            registers.push(reg);
            if ty.bits() == 128 {
                registers.push(Reg(reg.0 + 1));
            }
        }
        Ok(registers)
    }

    /// Sources of one type each, two operands for 128 bits.
    pub(super) fn values(
        &mut self,
        operands: &[Spanned<ast::Operand>],
        ty: DataType,
        wider: bool,
    ) -> Result<Vec<Operand>> {
        let mut values = Vec::new();
        for operand in operands {
            let value = self.value(operand, ty, wider)?;
            values.push(value);
            if ty.bits() == 128 {
                match value {
                    Operand::Reg(reg) => values.push(Operand::Reg(Reg(reg.0 + 1))),
                    _ => {
                        return Err(self.expected(
                            "a 128-bit register",
                            &operand.value,
                            operand.span,
                        ));
                    }
                }
            }
        }
        Ok(values)
    }

    pub(super) fn list(&mut self, operands: &[Operand]) -> Operands {
        self.body.lowerer.program.list(operands)
    }

    pub(super) fn registers(&mut self, registers: &[Reg]) -> Regs {
        self.body.lowerer.program.registers(registers)
    }

    /// Takes the state space of a memory instruction.
    pub(super) fn space(&mut self) -> MemorySpace {
        self.choice(&[
            ("global", MemorySpace::Global),
            ("shared", MemorySpace::Shared),
            ("shared::cta", MemorySpace::Shared),
            ("shared::cluster", MemorySpace::Shared),
            ("local", MemorySpace::Local),
            ("const", MemorySpace::Const),
            ("param", MemorySpace::Param),
            ("param::entry", MemorySpace::Param),
            ("param::func", MemorySpace::Param),
        ])
        .unwrap_or(MemorySpace::Generic)
    }

    /// An address in `space`, and the space it turns out to be in: a variable without a space on
    /// the instruction is in its own, parameters of functions are local memory.
    pub(super) fn address(
        &mut self,
        index: usize,
        space: MemorySpace,
    ) -> Result<(Address, MemorySpace)> {
        let operand = self.operand(index)?;
        let span = operand.span;
        let address = match &operand.value {
            ast::Operand::Address(address) => address,
            ast::Operand::Element(name, _) => {
                return Err(self
                    .error(span, "elements of arrays by index are not supported yet")
                    .with_help(format!("write the address in bytes, such as `[{name}+8]`")));
            }
            other => return Err(self.expected("an address in brackets", other, span)),
        };
        if !address.coordinates.is_empty() {
            return Err(self.unsupported());
        }
        let symbol = match &address.base {
            AddressBase::Absolute(number) => {
                let base = self.body.lowerer.constant(*number);
                return Ok((
                    Address {
                        base,
                        offset: address.offset,
                    },
                    self.parameter_space(space),
                ));
            }
            AddressBase::Symbol(symbol) => symbol,
        };
        if let Some((Meaning::Register(_), _)) = self.body.scope.find(&symbol.name) {
            let (reg, register) = self.register(symbol, span)?;
            let bytes = register.bytes();
            let fits = match space {
                MemorySpace::Generic | MemorySpace::Global => bytes == Some(8),
                _ => matches!(bytes, Some(4 | 8)),
            };
            if !fits || matches!(register, Type::F32 | Type::F64) {
                return Err(self.error(
                    span,
                    format!(
                        "`{}` is a `{register}` and cannot hold this address",
                        symbol.name
                    ),
                ));
            }
            let base = Operand::Reg(reg);
            return Ok((
                Address {
                    base,
                    offset: address.offset,
                },
                self.parameter_space(space),
            ));
        }
        let variable = self.variable(&symbol.name, span)?;
        let own = match variable.space {
            SymbolSpace::Global if variable.declared == StateSpace::Const => MemorySpace::Const,
            SymbolSpace::Global | SymbolSpace::Function => MemorySpace::Global,
            SymbolSpace::Shared => MemorySpace::Shared,
            SymbolSpace::Local => MemorySpace::Local,
            SymbolSpace::Param => MemorySpace::Param,
        };
        let agrees = match space {
            MemorySpace::Generic => true,
            MemorySpace::Param => variable.declared == StateSpace::Param,
            MemorySpace::Local => variable.declared == StateSpace::Local,
            space => space == own,
        };
        if !agrees {
            return Err(self.error(
                span,
                format!(
                    "`{}` is a `{}` variable, which `{}` does not access",
                    symbol.name,
                    variable.declared,
                    self.whole_opcode()
                ),
            ));
        }
        self.body.touch(&variable);
        let base = Operand::Symbol(variable.space, variable.offset);
        Ok((
            Address {
                base,
                offset: address.offset,
            },
            own,
        ))
    }

    /// Parameters of functions lie in local memory; those of entries in a space of their own.
    fn parameter_space(&self, space: MemorySpace) -> MemorySpace {
        match space {
            MemorySpace::Param if !self.body.entry => MemorySpace::Local,
            space => space,
        }
    }
}
