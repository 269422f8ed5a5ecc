//! From a syntax tree back to text that [`super::parse`] reads as the same tree.

use std::fmt::{Display, Formatter, Result};

use crate::syntax::ast::{
    Address, AddressBase, Attribute, Component, Constant, Directive, Function, Index, Initializer,
    Instruction, Item, Layout, Linkage, Location, Module, Operand, Parameter, Registers,
    SourceFile, SourcePlace, Statement, Symbol, Variable, Variables,
};

/// Items with commas between them.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

struct Quoted<'a>(&'a [String]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, string) in self.0.iter().enumerate() {
            write!(f, "{}\"{string}\"", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

struct Dimensions<'a>(&'a [Option<u64>]);

impl Display for Dimensions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for dimension in self.0 {
            match dimension {
                Some(size) => write!(f, "[{}]", unsigned(*size))?,
                None => f.write_str("[]")?,
            }
        }
        Ok(())
    }
}

/// A body, indented.
struct Body<'a>(&'a [Statement], usize);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Body(statements, depth) = *self;
        f.write_str("{\n")?;
        for statement in statements {
            let depth = depth + usize::from(!matches!(statement, Statement::Label(_)));
            write!(f, "{:\t<depth$}", "")?;
            match statement {
                Statement::Block(block) => write!(f, "{}", Body(block, depth))?,
                statement => write!(f, "{statement}")?,
            }
            f.write_str("\n")?;
        }
        write!(f, "{:\t<depth$}}}", "")
    }
}

/// An integer whose type does not matter.
fn unsigned(bits: u64) -> Constant {
    Constant::Integer {
        bits,
        unsigned: i64::try_from(bits).is_err(),
    }
}

/// `+offset`, or nothing.
struct Offset(i64);

impl Display for Offset {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            0 => Ok(()),
            offset => write!(f, "+{}", Constant::signed(offset)),
        }
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (major, minor) = self.version;
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target {}", List(&self.targets))?;
        if let Some(size) = self.address_size {
            writeln!(f, ".address_size {size}")?;
        }
        for item in &self.items {
            writeln!(f, "{item}")?;
        }
        Ok(())
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Item::Function(function) => write!(f, "\n{function}"),
            Item::Variables(variables) => variables.fmt(f),
            Item::File(file) => file.fmt(f),
            Item::Pragma(strings) => write!(f, ".pragma {};", Quoted(strings)),
            Item::Alias { name, aliasee } => write!(f, ".alias {name}, {aliasee};"),
        }
    }
}

impl Display for SourceFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".file {} \"{}\"", self.index, self.path)?;
        match self.stamp {
            Some((time, size)) => write!(f, ", {}, {}", unsigned(time), unsigned(size)),
            None => Ok(()),
        }
    }
}

impl Display for Linkage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Linkage::Internal => "",
            Linkage::Visible => ".visible ",
            Linkage::Weak => ".weak ",
            Linkage::Common => ".common ",
            Linkage::Extern => ".extern ",
        })
    }
}

struct Attributes<'a>(&'a [Attribute]);

impl Display for Attributes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, ".attribute({}) ", List(self.0))
    }
}

impl Display for Attribute {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".{}", self.name)?;
        if self.arguments.is_empty() {
            return Ok(());
        }
        let arguments: Vec<Constant> = self.arguments.iter().copied().map(unsigned).collect();
        write!(f, "({})", List(&arguments))
    }
}

impl Display for Variables {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{}{} {}{} {};",
            self.linkage,
            self.space,
            Attributes(&self.attributes),
            self.layout,
            List(&self.variables)
        )
    }
}

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(align) = self.align {
            write!(f, ".align {align} ")?;
        }
        if let Some(width) = self.vector {
            write!(f, ".v{width} ")?;
        }
        self.ty.fmt(f)
    }
}

impl Display for Variable {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}{}", self.name, Dimensions(&self.dimensions))?;
        match &self.initial {
            Some(initial) => write!(f, " = {initial}"),
            None => Ok(()),
        }
    }
}

impl Display for Initializer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Initializer::Constant(constant) => constant.fmt(f),
            Initializer::Symbol {
                name,
                offset,
                generic,
                mask,
            } => match (mask, generic) {
                (Some(mask), _) => write!(f, "{mask:#x}({name}{})", Offset(*offset)),
                (None, true) => write!(f, "generic({name}){}", Offset(*offset)),
                (None, false) => write!(f, "{name}{}", Offset(*offset)),
            },
            Initializer::List(list) => write!(f, "{{{}}}", List(list)),
        }
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Constant::Integer {
                bits,
                unsigned: true,
            } => write!(f, "{bits}U"),
            Constant::Integer { bits, .. } => match bits as i64 {
                // Its magnitude alone does not fit .s64.
                i64::MIN => write!(f, "(.s64){bits}"),
                value => write!(f, "{value}"),
            },
            Constant::Single(bits) => write!(f, "0f{bits:08X}"),
            Constant::Double(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let keyword = if self.entry { ".entry" } else { ".func" };
        write!(
            f,
            "{}{keyword} {}",
            self.linkage,
            Attributes(&self.attributes)
        )?;
        if !self.returns.is_empty() {
            write!(f, "({}) ", List(&self.returns))?;
        }
        write!(f, "{}({})", self.name, List(&self.parameters))?;
        for directive in &self.directives {
            write!(f, " {directive}")?;
        }
        match &self.body {
            Some(body) => write!(f, "\n{}", Body(body, 0)),
            None => f.write_str(";"),
        }
    }
}

impl Display for Parameter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {}", self.space, self.layout)?;
        if let Some(pointer) = self.pointer {
            f.write_str(" .ptr")?;
            if let Some(space) = pointer.space {
                write!(f, " {space}")?;
            }
            if let Some(align) = pointer.align {
                write!(f, " .align {align}")?;
            }
        }
        let name = self.name.as_ref().map_or("_", |name| name.as_str());
        write!(f, " {name}{}", Dimensions(&self.dimensions))
    }
}

impl Display for Directive {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".{}", self.name)?;
        if !self.strings.is_empty() {
            return write!(f, " {};", Quoted(&self.strings));
        }
        let values: Vec<Constant> = self.values.iter().copied().map(unsigned).collect();
        if values.is_empty() {
            return Ok(());
        }
        write!(f, " {}", List(&values))
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Statement::Registers(registers) => registers.fmt(f),
            Statement::Variables(variables) => variables.fmt(f),
            Statement::Label(name) => write!(f, "{name}:"),
            Statement::Instruction(instruction) => instruction.fmt(f),
            Statement::Block(block) => Body(block, 0).fmt(f),
            Statement::Location(location) => location.fmt(f),
            Statement::File(file) => file.fmt(f),
            Statement::Pragma(strings) => write!(f, ".pragma {};", Quoted(strings)),
            Statement::BranchTargets { name, targets } => {
                write!(f, "{name}: .branchtargets {};", List(targets))
            }
            Statement::CallTargets { name, targets } => {
                write!(f, "{name}: .calltargets {};", List(targets))
            }
            Statement::CallPrototype {
                name,
                returns,
                parameters,
                directives,
            } => {
                write!(f, "{name}: .callprototype ")?;
                if !returns.is_empty() {
                    write!(f, "({}) ", List(returns))?;
                }
                write!(f, "_ ({})", List(parameters))?;
                for directive in directives {
                    write!(f, " {directive}")?;
                }
                f.write_str(";")
            }
        }
    }
}

impl Display for Registers {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".reg {}", self.layout)?;
        for (index, (name, count)) in self.names.iter().enumerate() {
            write!(f, "{} {name}", if index > 0 { "," } else { "" })?;
            if let Some(count) = count {
                write!(f, "<{count}>")?;
            }
        }
        f.write_str(";")
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".loc {}", self.place)?;
        if let Some(inlined) = &self.inlined {
            let (name, offset) = &inlined.function_name;
            let (offset, at) = (Offset(*offset), inlined.at);
            write!(f, ", function_name {name}{offset}, inlined_at {at}")?;
        }
        Ok(())
    }
}

impl Display for SourcePlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {} {}", self.file, self.line, self.column)
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(guard) = &self.guard {
            let not = if guard.negated { "!" } else { "" };
            write!(f, "@{not}{} ", guard.predicate)?;
        }
        self.opcode.fmt(f)?;
        for modifier in &self.modifiers {
            write!(f, ".{modifier}")?;
        }
        if !self.operands.is_empty() {
            write!(f, " {}", List(&self.operands))?;
        }
        f.write_str(";")
    }
}

impl Display for Symbol {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.name)?;
        match self.component {
            Some(component) => component.fmt(f),
            None => Ok(()),
        }
    }
}

impl Display for Component {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Component::X => ".x",
            Component::Y => ".y",
            Component::Z => ".z",
            Component::W => ".w",
        })
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Operand::Symbol(symbol) => symbol.fmt(f),
            Operand::Not(symbol) => write!(f, "!{symbol}"),
            Operand::Offset(name, offset) => write!(f, "{name}+{}", Constant::signed(*offset)),
            Operand::Constant(constant) => constant.fmt(f),
            Operand::Address(address) => address.fmt(f),
            Operand::Element(name, Index::Constant(index)) => {
                write!(f, "{name}[{}]", unsigned(*index))
            }
            Operand::Element(name, Index::Register(symbol, offset)) => {
                write!(f, "{name}[{symbol}{}]", Offset(*offset))
            }
            Operand::Vector(elements) => write!(f, "{{{}}}", List(elements)),
            Operand::Pair(pair) => write!(f, "{}|{}", pair.0, pair.1),
            Operand::Sink => f.write_str("_"),
            Operand::Group(operands) => write!(f, "({})", List(operands)),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.base {
            AddressBase::Symbol(symbol) => write!(f, "[{symbol}{}", Offset(self.offset))?,
            AddressBase::Absolute(address) => write!(f, "[{}", unsigned(*address))?,
        }
        if !self.coordinates.is_empty() {
            write!(f, ", {}", List(&self.coordinates))?;
        }
        f.write_str("]")
    }
}
