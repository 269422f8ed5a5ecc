//! Functions: their frames, and the statements of their bodies.

use std::collections::{HashMap, HashSet};

use super::scope::{self, Label, Meaning, Register, Scope, Variable};
use super::{Lowerer, Result, decode};
use crate::program::ir::{Inst, Op, Storage};
use crate::program::operand::{Operand, Reg, SymbolSpace};
use crate::program::symbols::{Function as Decoded, Param, Place};
use crate::syntax::ast::{
    Directive, Function, Layout, Location, Name, Parameter, Registers, SourcePlace, Statement,
    Variables,
};
use crate::syntax::span::{Span, Spanned};
use crate::syntax::types::{StateSpace, Type};

/// Where the results and arguments of a function lie in its frame. Functions with the same
/// results and parameters have the same, so a call through a register needs to know no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) returns: Vec<Slot>,
    pub(super) parameters: Vec<Slot>,
    local_bytes: u64,
    registers: u32,
}

/// One result or argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) storage: Storage,
    pub(super) bytes: u32,
}

impl Frame {
    pub(super) fn new(
        lowerer: &Lowerer<'_>,
        returns: &[Parameter],
        parameters: &[Parameter],
        name: Span,
    ) -> Result<Frame> {
        let mut frame = Frame::default();
        for parameter in returns {
            let slot = frame.slot(lowerer, parameter, name)?;
            frame.returns.push(slot);
        }
        for parameter in parameters {
            let slot = frame.slot(lowerer, parameter, name)?;
            frame.parameters.push(slot);
        }
        Ok(frame)
    }

    /// A function of the system keeps its arguments nowhere.
    pub(super) fn of_builtin(returns: Vec<Slot>, parameters: Vec<Slot>) -> Frame {
        Frame {
            returns,
            parameters,
            ..Frame::default()
        }
    }

    fn slot(&mut self, lowerer: &Lowerer<'_>, parameter: &Parameter, name: Span) -> Result<Slot> {
        let span = parameter.name.as_ref().map_or(name, |name| name.span);
        if parameter.space.value == StateSpace::Reg {
            let bytes = match parameter.layout.ty.value {
                Type::Pred => 1,
                ty => ty.bytes().unwrap_or(16),
            };
            if bytes > 8 || parameter.layout.vector.is_some() || !parameter.dimensions.is_empty() {
                return Err(lowerer.error(
                    span,
                    "parameters in vector or 128-bit registers are not supported yet",
                ));
            }
            let reg = Reg(self.registers);
            self.registers += 1;
            return Ok(Slot {
                storage: Storage::Value(Operand::Reg(reg)),
                bytes,
            });
        }
        let (offset, bytes) = place_parameter(lowerer, parameter, &mut self.local_bytes, name)?;
        Ok(Slot {
            storage: Storage::Local(offset),
            bytes,
        })
    }
}

/// The offset and size of a `.param` parameter that is placed behind `end`, which grows.
fn place_parameter(
    lowerer: &Lowerer<'_>,
    parameter: &Parameter,
    end: &mut u64,
    name: Span,
) -> Result<(u32, u32)> {
    let span = parameter.name.as_ref().map_or(name, |name| name.span);
    let (bytes, align) = match scope::parameter_size(parameter) {
        Some((bytes, align)) if bytes > 0 => (bytes, align),
        Some(_) => {
            return Err(lowerer.error(span, "parameters without a size are not supported yet"));
        }
        None if parameter.layout.ty.bytes().is_some() => {
            return Err(lowerer.error(span, "this parameter is larger than 2 GiB"));
        }
        None => {
            let ty = parameter.layout.ty;
            return Err(lowerer.error(
                span,
                format!("parameters of type `{ty}` are not supported yet"),
            ));
        }
    };
    let offset = end.next_multiple_of(align);
    *end = offset + bytes;
    if *end > MAX_FRAME {
        return Err(lowerer.error(span, "the parameters are larger than 16 MiB"));
    }
    Ok((offset as u32, bytes as u32))
}

/// The most bytes of local memory that one frame may have.
const MAX_FRAME: u64 = 16 << 20;

/// The body of a function while it is decoded.
pub(super) struct Body<'l, 'a> {
    pub(super) lowerer: &'l mut Lowerer<'a>,
    /// Whether the function is a kernel.
    pub(super) entry: bool,
    pub(super) scope: Scope<'a>,
    /// The registers used so far, by declaration and number.
    allocated: HashMap<(u32, u32), Reg>,
    next_register: u32,
    declarations: u32,
    /// Where the next local variable may lie.
    local: u64,
    local_bytes: u64,
    place: Place,
    /// Instruction numbers; `None` until the label is reached.
    labels: Vec<Option<u32>>,
    sink: Option<Reg>,
    dynamic_shared: bool,
    /// Offsets of the parameters that an instruction names.
    used_parameters: HashSet<u32>,
}

/// Decodes a function.
pub(super) fn function<'a>(lowerer: &mut Lowerer<'a>, function: &'a Function) -> Result<Decoded> {
    let start = lowerer.program.code.len() as u32;
    let first_table = lowerer.program.tables.len();
    let mut body = Body {
        lowerer,
        entry: function.entry,
        scope: Scope::default(),
        allocated: HashMap::new(),
        next_register: 0,
        declarations: 0,
        local: 0,
        local_bytes: 0,
        place: Place::default(),
        labels: Vec::new(),
        sink: None,
        dynamic_shared: false,
        used_parameters: HashSet::new(),
    };
    body.scope.open();
    let mut decoded = Decoded {
        name: function.name.value.clone(),
        entry: function.entry,
        ..Decoded::default()
    };
    if function.entry {
        body.entry_parameters(function, &mut decoded)?;
    } else {
        body.parameters(function)?;
    }
    if let Some(statements) = &function.body {
        body.statements(&statements.value)?;
        body.place.ptx_line = statements.span.end.line;
        body.push(Inst {
            guard: None,
            op: Op::Return,
        });
    }
    body.patch(start, first_table);
    decoded.code = start..body.lowerer.program.code.len() as u32;
    decoded.registers = body.next_register;
    decoded.local_bytes = body.local_bytes as u32;
    decoded.dynamic_shared = body.dynamic_shared;
    for param in &mut decoded.params {
        param.used = body.used_parameters.contains(&param.offset);
    }
    for directive in &function.directives {
        body.directive(directive, &mut decoded)?;
    }
    Ok(decoded)
}

impl<'a> Body<'_, 'a> {
    pub(super) fn push(&mut self, inst: Inst) {
        self.lowerer.program.push(inst, self.place);
    }

    /// Branches were given labels; gives them instruction numbers.
    fn patch(&mut self, start: u32, first_table: usize) {
        let end = self.lowerer.program.code.len() as u32;
        let number = |label: u32| self.labels[label as usize].unwrap_or(end);
        for inst in &mut self.lowerer.program.code[start as usize..] {
            if let Op::Branch { target } = &mut inst.op {
                *target = number(*target);
            }
        }
        for target in self.lowerer.program.tables[first_table..]
            .iter_mut()
            .flatten()
        {
            *target = number(*target);
        }
    }

    fn directive(&self, directive: &Directive, decoded: &mut Decoded) -> Result<()> {
        let dimensions = || -> Result<[u32; 3]> {
            let mut dimensions = [1; 3];
            for (dimension, value) in dimensions.iter_mut().zip(&directive.values) {
                *dimension = u32::try_from(*value).map_err(|_| {
                    let name = &directive.name;
                    self.lowerer
                        .error(name.span, format!("`.{name}` does not fit 32 bits"))
                })?;
            }
            Ok(dimensions)
        };
        match directive.name.as_str() {
            "reqntid" => decoded.reqntid = Some(dimensions()?),
            "maxntid" => decoded.maxntid = Some(dimensions()?),
            "reqnctapercluster" => decoded.cluster = Some(dimensions()?),
            _ => {}
        }
        Ok(())
    }

    fn entry_parameters(&mut self, function: &'a Function, decoded: &mut Decoded) -> Result<()> {
        let mut end = 0;
        for parameter in &function.parameters {
            let (offset, bytes) =
                place_parameter(self.lowerer, parameter, &mut end, function.name.span)?;
            let name = parameter.name.as_ref();
            if let Some(name) = name {
                self.declare(
                    name,
                    Meaning::Variable(Variable {
                        declared: StateSpace::Param,
                        space: SymbolSpace::Param,
                        offset,
                        bytes: u64::from(bytes),
                    }),
                )?;
            }
            decoded.params.push(Param {
                name: name.map_or("_".to_owned(), |name| name.value.clone()),
                offset,
                bytes,
                pointer: parameter.pointer.is_some(),
                used: false,
            });
        }
        decoded.param_bytes = end as u32;
        Ok(())
    }

    fn parameters(&mut self, function: &'a Function) -> Result<()> {
        let frame = Frame::new(
            self.lowerer,
            &function.returns,
            &function.parameters,
            function.name.span,
        )?;
        let slots = frame.returns.iter().chain(&frame.parameters);
        let parameters = function.returns.iter().chain(&function.parameters);
        for (slot, parameter) in slots.zip(parameters) {
            let Some(name) = &parameter.name else {
                continue;
            };
            match slot.storage {
                Storage::Local(offset) => self.declare(
                    name,
                    Meaning::Variable(Variable {
                        declared: StateSpace::Param,
                        space: SymbolSpace::Local,
                        offset,
                        bytes: u64::from(slot.bytes),
                    }),
                )?,
                Storage::Value(operand) => {
                    let register = self.new_declaration(&parameter.layout, None);
                    if let Operand::Reg(reg) = operand {
                        self.allocated.insert((register.declaration, 0), reg);
                    }
                    self.declare(name, Meaning::Register(register))?;
                }
            }
        }
        self.next_register = frame.registers;
        self.local = frame.local_bytes;
        self.local_bytes = frame.local_bytes;
        Ok(())
    }

    fn declare(&mut self, name: &'a Name, meaning: Meaning<'a>) -> Result<()> {
        self.scope
            .declare(&name.value, meaning, name.span)
            .map_err(|first| self.lowerer.twice(name, first))
    }

    fn new_declaration(&mut self, layout: &Layout, count: Option<u32>) -> Register {
        self.declarations += 1;
        Register {
            declaration: self.declarations,
            ty: layout.ty.value,
            components: layout.vector.unwrap_or(1),
            count,
        }
    }

    /// The register of a declaration with that number, or a component of it. Only registers that
    /// are used take room in the frame.
    pub(super) fn allocate(&mut self, register: &Register, number: u32, component: u32) -> Reg {
        let words = if register.ty == Type::B128 { 2 } else { 1 };
        let next = &mut self.next_register;
        let base = self
            .allocated
            .entry((register.declaration, number))
            .or_insert_with(|| {
                let reg = Reg(*next);
                *next += words * register.components;
                reg
            });
        Reg(base.0 + component * words)
    }

    /// A register that nobody reads; wide enough for 128 bits.
    pub(super) fn sink(&mut self) -> Reg {
        let next = &mut self.next_register;
        *self.sink.get_or_insert_with(|| {
            let reg = Reg(*next);
            *next += 2;
            reg
        })
    }

    /// A register of its own for a value between two operations.
    pub(super) fn temporary(&mut self) -> Reg {
        let reg = Reg(self.next_register);
        self.next_register += 1;
        reg
    }

    /// Takes note that the function uses `variable`.
    pub(super) fn touch(&mut self, variable: &Variable) {
        self.dynamic_shared |= variable.space == SymbolSpace::Shared && variable.bytes == 0;
        if variable.space == SymbolSpace::Param {
            self.used_parameters.insert(variable.offset);
        }
    }

    fn statements(&mut self, statements: &'a [Statement]) -> Result<()> {
        self.declare_labels(statements)?;
        for statement in statements {
            self.statement(statement)?;
        }
        Ok(())
    }

    /// Labels are visible in their whole block, also before their place.
    fn declare_labels(&mut self, statements: &'a [Statement]) -> Result<()> {
        for statement in statements {
            match statement {
                Statement::Label(name) => {
                    let label = self.labels.len();
                    self.labels.push(None);
                    self.declare(name, Meaning::Label(label))?;
                }
                Statement::BranchTargets { name, .. }
                | Statement::CallTargets { name, .. }
                | Statement::CallPrototype { name, .. } => {
                    self.declare(name, Meaning::List(statement))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<()> {
        match statement {
            Statement::Registers(registers) => self.declare_registers(registers),
            Statement::Variables(variables) => self.declare_variables(variables),
            Statement::Label(name) => {
                if let Some((Meaning::Label(label), _)) = self.scope.find(name) {
                    self.labels[label] = Some(self.lowerer.program.code.len() as u32);
                }
                Ok(())
            }
            Statement::Instruction(instruction) => {
                self.place.ptx_line = instruction.span.start.line;
                decode::instruction(self, instruction)
            }
            Statement::Block(block) => self.block(block),
            Statement::Location(location) => {
                self.locate(location);
                Ok(())
            }
            Statement::File(_)
            | Statement::Pragma(_)
            | Statement::BranchTargets { .. }
            | Statement::CallTargets { .. }
            | Statement::CallPrototype { .. } => Ok(()),
        }
    }

    fn block(&mut self, block: &'a Spanned<Vec<Statement>>) -> Result<()> {
        let local = self.local;
        self.scope.open();
        self.statements(&block.value)?;
        self.scope.close();
        // Variables of blocks that follow each other share their room.
        self.local = local;
        Ok(())
    }

    fn locate(&mut self, location: &Location) {
        let SourcePlace { file, line, column } = location.place;
        self.place.file = self.lowerer.files.get(&file).copied();
        self.place.line = line;
        self.place.column = column;
    }

    fn declare_registers(&mut self, registers: &'a Registers) -> Result<()> {
        let ty = registers.layout.ty;
        if ty.bytes().is_none() && ty.value != Type::Pred {
            return Err(self
                .lowerer
                .error(ty.span, format!("a register cannot have type `{ty}`")));
        }
        for (name, count) in &registers.names {
            let register = self.new_declaration(&registers.layout, *count);
            match count {
                None => self.declare(name, Meaning::Register(register))?,
                Some(_) => self
                    .scope
                    .declare_range(&name.value, register, name.span)
                    .map_err(|first| self.lowerer.twice(name, first))?,
            }
        }
        Ok(())
    }

    fn declare_variables(&mut self, variables: &'a Variables) -> Result<()> {
        let declared = variables.space.value;
        for variable in &variables.variables {
            let name = &variable.name;
            if matches!(
                declared,
                StateSpace::Shared | StateSpace::Global | StateSpace::Const
            ) {
                let inner = self.lowerer.inner.get(&name.span.start);
                if let Some(&inner) = inner {
                    self.declare(name, Meaning::Variable(inner))?;
                }
                continue;
            }
            if let Some(initial) = &variable.initial {
                return Err(self.lowerer.error(
                    initial.span,
                    format!("a `{}` variable has no initial value", variables.space),
                ));
            }
            let (bytes, align) = self.lowerer.variable_size(variables, variable)?;
            let offset = self.local.next_multiple_of(align);
            let end = offset + bytes;
            if bytes == 0 || end > MAX_FRAME {
                let what = if bytes == 0 {
                    "no size"
                } else {
                    "too large a size"
                };
                return Err(self
                    .lowerer
                    .error(name.span, format!("`{name}` has {what}"))
                    .with_help("local variables have from 1 byte to 16 MiB"));
            }
            self.local = end;
            self.local_bytes = self.local_bytes.max(end);
            self.declare(
                name,
                Meaning::Variable(Variable {
                    declared,
                    space: SymbolSpace::Local,
                    offset: offset as u32,
                    bytes,
                }),
            )?;
        }
        Ok(())
    }

    /// The label of that name.
    pub(super) fn label(&self, name: &str) -> Option<Label> {
        match self.scope.find(name) {
            Some((Meaning::Label(label), _)) => Some(label),
            _ => None,
        }
    }
}
