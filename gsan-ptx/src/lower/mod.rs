//! From the syntax tree to the decoded program.
//!
//! Every name is resolved, every operand is checked against the type of its instruction, and what
//! cannot be executed is refused here, before anything runs. Only the entries asked for, and the
//! functions they may call, are decoded: a module may contain others that are not supported.

mod arithmetic;
mod body;
mod control;
mod convert;
mod data;
mod decode;
mod instruction;
mod mbarrier;
mod memory;
mod scope;
mod special;
mod types;
mod warp;
mod words;

use std::collections::{HashMap, HashSet};

use crate::diagnostic::{Diagnostic, Source};
use crate::lower::scope::Variable;
use crate::program::Program;
use crate::program::operand::{Operand, SymbolSpace};
use crate::program::symbols::FunctionId;
use crate::syntax::ast::{Function, Item, Linkage, Module, Name, SourceFile, Statement, Variables};
use crate::syntax::span::{Position, Span};
use crate::syntax::types::StateSpace;

type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// The kernels that a module defines.
pub fn entries(module: &Module) -> impl Iterator<Item = &Function> {
    module.items.iter().filter_map(|item| match item {
        Item::Function(function) if function.entry && function.body.is_some() => Some(function),
        _ => None,
    })
}

/// Decodes `entries` of `module`, which was read from `source`, and what they need.
///
/// # Errors
/// The first thing that is wrong or not supported, with its place.
pub fn lower(source: Source<'_>, module: &Module, entries: &[&Function]) -> Result<Program> {
    let mut lowerer = Lowerer {
        source,
        program: Program::default(),
        functions: HashMap::new(),
        ids: HashMap::new(),
        queue: Vec::new(),
        variables: HashMap::new(),
        inner: HashMap::new(),
        external: HashSet::new(),
        dynamic_shared: Vec::new(),
        dynamic_align: 1,
        files: HashMap::new(),
        constants: HashMap::new(),
        indirect: Vec::new(),
    };
    lowerer.declare(module)?;
    let wanted = |name: &Name| entries.iter().any(|entry| entry.name == *name);
    for item in &module.items {
        if let Item::Function(function) = item
            && function.body.is_some()
            && wanted(&function.name)
        {
            lowerer.function_id(&function.name);
        }
    }
    lowerer.initialise(module)?;
    let mut next = 0;
    while let Some(&function) = lowerer.queue.get(next) {
        let decoded = body::function(&mut lowerer, function)?;
        lowerer.program.functions.push(decoded);
        next += 1;
    }
    lowerer.finish_indirect_calls()?;
    Ok(lowerer.program)
}

/// A call through a register, whose candidates are known when everything is decoded.
struct IndirectCall {
    /// Its position in [`Program::calls`].
    call: usize,
    /// The shape of the functions it may call.
    frame: body::Frame,
}

struct Lowerer<'a> {
    source: Source<'a>,
    program: Program,
    /// By name; the definition where there is one.
    functions: HashMap<&'a str, &'a Function>,
    ids: HashMap<&'a str, FunctionId>,
    /// By [`FunctionId`]: what is to be decoded.
    queue: Vec<&'a Function>,
    /// The variables of the module.
    variables: HashMap<&'a str, Variable>,
    /// `.shared`, `.global` and `.const` variables of functions, by the place of their name.
    inner: HashMap<Position, Variable>,
    /// Variables that are declared `.extern`.
    external: HashSet<&'a str>,
    /// The unsized `.extern .shared` arrays.
    dynamic_shared: Vec<&'a str>,
    /// The largest alignment of these.
    dynamic_align: u32,
    /// The number in `.file` to the position in [`Program::files`].
    files: HashMap<u32, u32>,
    constants: HashMap<u64, Operand>,
    indirect: Vec<IndirectCall>,
}

impl<'a> Lowerer<'a> {
    fn error(&self, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        self.source.error(span, message)
    }

    fn constant(&mut self, value: u64) -> Operand {
        let program = &mut self.program;
        *self
            .constants
            .entry(value)
            .or_insert_with(|| program.constant(value))
    }

    /// The number of a function that is defined; it will be decoded.
    fn function_id(&mut self, name: &str) -> Option<FunctionId> {
        let (&name, &function) = self.functions.get_key_value(name)?;
        function.body.as_ref()?;
        let queue = &mut self.queue;
        Some(*self.ids.entry(name).or_insert_with(|| {
            queue.push(function);
            FunctionId(queue.len() as u32 - 1)
        }))
    }

    /// Takes note of all names of the module and lays out its variables.
    fn declare(&mut self, module: &'a Module) -> Result<()> {
        if module.address_size == Some(32) {
            let span = module.targets[0].span;
            return Err(self
                .error(span, "modules with 32-bit addresses are not supported")
                .with_help("compile for 64-bit addresses (`.address_size 64`)"));
        }
        let mut aliases = Vec::new();
        for item in &module.items {
            match item {
                Item::Function(function) => self.declare_function(function)?,
                Item::Variables(variables) => self.declare_variables(variables, true)?,
                Item::File(file) => self.declare_file(file),
                Item::Alias { name, aliasee } => aliases.push((name, aliasee)),
                Item::Pragma(_) => {}
            }
        }
        for (name, aliasee) in aliases {
            match self.functions.get(aliasee.as_str()) {
                Some(&function) => {
                    self.functions.insert(name.as_str(), function);
                }
                None => {
                    return Err(self.error(
                        aliasee.span,
                        format!("function `{aliasee}` is not declared"),
                    ));
                }
            }
        }
        // The dynamic part begins behind all static variables, wherever those are declared.
        let shared_bytes = &mut self.program.shared_bytes;
        *shared_bytes = shared_bytes.next_multiple_of(self.dynamic_align);
        let start = self.program.dynamic_shared_offset();
        for name in &self.dynamic_shared {
            if let Some(variable) = self.variables.get_mut(name) {
                variable.offset = start;
            }
        }
        Ok(())
    }

    fn declare_file(&mut self, file: &SourceFile) {
        let position = self.program.files.len() as u32;
        self.files.entry(file.index).or_insert(position);
        self.program.files.push(file.path.clone());
    }

    fn declare_function(&mut self, function: &'a Function) -> Result<()> {
        let name = function.name.as_str();
        match self.functions.get(name) {
            Some(first) if first.body.is_some() && function.body.is_some() => {
                return Err(self.twice(&function.name, first.name.span));
            }
            Some(first) if first.body.is_some() => {}
            _ => {
                self.functions.insert(name, function);
            }
        }
        if let Some(body) = &function.body {
            self.declare_inner(&body.value)?;
        }
        Ok(())
    }

    fn twice(&self, name: &Name, first: Span) -> Box<Diagnostic> {
        self.error(
            name.span,
            format!(
                "`{name}` is defined twice; the first time in line {}",
                first.start.line
            ),
        )
    }

    /// Variables of functions that live as long as the CTA or the module.
    fn declare_inner(&mut self, statements: &'a [Statement]) -> Result<()> {
        for statement in statements {
            match statement {
                Statement::Block(block) => self.declare_inner(&block.value)?,
                Statement::Variables(variables) => self.declare_variables(variables, false)?,
                Statement::File(file) => self.declare_file(file),
                _ => {}
            }
        }
        Ok(())
    }

    fn declare_variables(&mut self, variables: &'a Variables, outer: bool) -> Result<()> {
        let space = match variables.space.value {
            StateSpace::Global | StateSpace::Const => SymbolSpace::Global,
            StateSpace::Shared => SymbolSpace::Shared,
            StateSpace::Local | StateSpace::Param | StateSpace::Reg if outer => {
                return Err(self
                    .error(
                        variables.space.span,
                        format!("a `{}` variable outside a function", variables.space),
                    )
                    .with_help("declare it in the function that uses it"));
            }
            StateSpace::Local | StateSpace::Param | StateSpace::Reg => return Ok(()),
        };
        let external = variables.linkage == Linkage::Extern;
        for variable in &variables.variables {
            let name = &variable.name;
            let (bytes, align) = self.variable_size(variables, variable)?;
            let unsized_array = bytes == 0;
            if external && !(space == SymbolSpace::Shared && unsized_array) {
                // Its definition may follow; a use without one is an error.
                self.external.insert(name.as_str());
                continue;
            }
            let start = match space {
                SymbolSpace::Shared => u64::from(self.program.shared_bytes),
                _ => self.program.data.bytes,
            };
            let offset = start.next_multiple_of(align);
            let end = self.within_limits(offset + bytes, name)?;
            match space {
                SymbolSpace::Shared => self.program.shared_bytes = end,
                _ => self.program.data.bytes = u64::from(end),
            }
            if unsized_array && space == SymbolSpace::Shared {
                self.dynamic_shared.push(name.as_str());
                self.dynamic_align = self.dynamic_align.max(align as u32);
            }
            let offset = offset as u32;
            let declared = Variable {
                declared: variables.space.value,
                space,
                offset,
                bytes,
            };
            if outer {
                if self.variables.insert(name.as_str(), declared).is_some() {
                    return Err(self.error(name.span, format!("`{name}` is defined twice")));
                }
            } else {
                self.inner.insert(name.span.start, declared);
            }
        }
        Ok(())
    }

    fn within_limits(&self, end: u64, name: &Name) -> Result<u32> {
        match u32::try_from(end) {
            Ok(end) if u64::from(end) <= scope::LARGEST => Ok(end),
            _ => Err(self.error(
                name.span,
                format!("with `{name}` the variables of the module exceed 2 GiB"),
            )),
        }
    }
}
