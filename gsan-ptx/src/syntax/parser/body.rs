//! Statements, instructions and operands.

use super::{Parser, Result};
use crate::syntax::ast::{
    Address, AddressBase, Component, Guard, Index, Inlined, Instruction, Location, Name, Operand,
    SourcePlace, Statement, Symbol,
};
use crate::syntax::lexer::Kind;
use crate::syntax::span::Spanned;

const STATEMENTS: &[&str] = &[
    ".branchtargets",
    ".callprototype",
    ".calltargets",
    ".const",
    ".file",
    ".global",
    ".loc",
    ".local",
    ".param",
    ".pragma",
    ".reg",
    ".shared",
];

impl Parser<'_, '_> {
    /// `{ statement… }`
    pub(super) fn block(&mut self) -> Result<Spanned<Vec<Statement>>> {
        let open = self.expect("{", "before a block")?;
        let statements = self.nested(|p| {
            let mut statements = Vec::new();
            while !p.is("}") {
                if p.peek().kind == Kind::End {
                    return Err(p
                        .source
                        .error(open, "this block is never closed")
                        .with_help("close it with `}`"));
                }
                if p.is(".loc") {
                    statements.extend(p.location()?.map(Statement::Location));
                } else {
                    statements.push(p.statement()?);
                }
            }
            Ok(statements)
        })?;
        let close = self.bump().span;
        Ok(Spanned::new(statements, open.to(close)))
    }

    fn statement(&mut self) -> Result<Statement> {
        let token = self.peek();
        match token.kind {
            Kind::Word if self.ahead(1).text == ":" => self.labelled(),
            Kind::Word => self.instruction().map(Statement::Instruction),
            Kind::Punctuation if token.text == "@" => {
                self.instruction().map(Statement::Instruction)
            }
            Kind::Punctuation if token.text == "{" => self.block().map(Statement::Block),
            Kind::Dotted => match token.text {
                ".reg" => self.registers().map(Statement::Registers),
                ".file" => self.source_file().map(Statement::File),
                ".pragma" => self.pragma().map(Statement::Pragma),
                ".branchtargets" | ".calltargets" | ".callprototype" => Err(self
                    .source
                    .error(token.span, format!("`{}` has no name", token.text))
                    .with_help(format!("write `name: {} …;`", token.text))),
                _ => {
                    let linkage = self.linkage();
                    match self.state_space() {
                        Some(space) => self.variables(linkage, space).map(Statement::Variables),
                        None => {
                            Err(self.unexpected_word("an instruction or a declaration", STATEMENTS))
                        }
                    }
                }
            },
            _ => Err(self.unexpected("an instruction, a label, a declaration or `}`")),
        }
    }

    fn labelled(&mut self) -> Result<Statement> {
        let name = self.name("a label")?;
        self.expect(":", "after a label")?;
        let statement = match self.peek().text {
            ".branchtargets" => {
                self.bump();
                let targets = self.list(|p| p.name("a label"))?;
                Statement::BranchTargets { name, targets }
            }
            ".calltargets" => {
                self.bump();
                let targets = self.list(|p| p.name("the name of a function"))?;
                Statement::CallTargets { name, targets }
            }
            ".callprototype" => {
                self.bump();
                let returns = if self.is("(") {
                    self.parameters()?
                } else {
                    Vec::new()
                };
                self.name("`_` in place of the function's name")?;
                let parameters = if self.is("(") {
                    self.parameters()?
                } else {
                    Vec::new()
                };
                Statement::CallPrototype {
                    name,
                    returns,
                    parameters,
                    directives: self.directives()?,
                }
            }
            _ => return Ok(Statement::Label(name)),
        };
        self.expect(";", "at the end of the list")?;
        Ok(statement)
    }

    fn place(&mut self) -> Result<SourcePlace> {
        Ok(SourcePlace {
            file: self.number_of("the number of a source file", |_| true)?,
            line: self.number_of("the number of a line", |_| true)?,
            column: self.number_of("the number of a column", |_| true)?,
        })
    }

    /// `.loc 1 2 3 [, function_name label [+ offset], inlined_at 1 2 3]`
    ///
    /// Inside inline assembly LLVM counts on with the lines of the assembly's text and writes a
    /// `.loc` for each. Only the first is a line of the source; `None` for the others.
    fn location(&mut self) -> Result<Option<Location>> {
        let assembly = self.bump().assembly;
        let counted = assembly != 0 && std::mem::replace(&mut self.located, assembly) == assembly;
        let place = self.place()?;
        let inlined = if self.eat(",") {
            self.keyword("function_name")?;
            let name = self.name("the label of a function's name")?;
            let offset = if self.eat("+") {
                self.integer()? as i64
            } else {
                0
            };
            self.expect(",", "before `inlined_at`")?;
            self.keyword("inlined_at")?;
            Some(Inlined {
                function_name: (name, offset),
                at: self.place()?,
            })
        } else {
            None
        };
        Ok((!counted).then_some(Location { place, inlined }))
    }

    fn keyword(&mut self, word: &str) -> Result<()> {
        if self.peek().text == word {
            self.bump();
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{word}`")))
        }
    }

    fn instruction(&mut self) -> Result<Spanned<Instruction>> {
        let start = self.peek().span;
        let guard = if self.eat("@") {
            let negated = self.eat("!");
            let predicate = self.name("a predicate register after `@`")?;
            Some(Guard { negated, predicate })
        } else {
            None
        };
        let opcode = self.name("an instruction after its predicate")?;
        let mut modifiers: Vec<Name> = Vec::new();
        while self.peek().kind == Kind::Dotted {
            let token = self.bump();
            modifiers.push(Spanned::new(token.text[1..].to_owned(), token.span));
        }
        let call = opcode.value == "call";
        let mut operands = Vec::new();
        if !self.is(";") {
            operands = self.list(|p| {
                if call && p.is("(") {
                    p.group()
                } else {
                    p.operand()
                }
            })?;
        }
        if !self.is(";") {
            return Err(self.unterminated(&opcode, operands.last()));
        }
        let end = self.bump().span;
        let instruction = Instruction {
            guard,
            opcode,
            modifiers,
            operands,
        };
        Ok(Spanned::new(instruction, start.to(end)))
    }

    /// Neither a comma nor a semicolon follows an operand.
    fn unterminated(
        &self,
        opcode: &Name,
        last: Option<&Spanned<Operand>>,
    ) -> Box<crate::diagnostic::Diagnostic> {
        let help = match last.map(|operand| &operand.value) {
            Some(Operand::Symbol(_)) if self.is("-") => {
                Some("write a negative offset as `+-4`".to_owned())
            }
            _ => None,
        };
        self.unexpected(&format!("`,` or `;` after an operand of `{opcode}`"))
            .with_help_if(help)
    }

    /// `(a, b)` of a call.
    fn group(&mut self) -> Result<Spanned<Operand>> {
        let open = self.bump().span;
        let operands = if self.is(")") {
            Vec::new()
        } else {
            self.list(Self::operand)?
        };
        let close = self.expect(")", "after the operands of a call")?;
        Ok(Spanned::new(Operand::Group(operands), open.to(close)))
    }

    fn operand(&mut self) -> Result<Spanned<Operand>> {
        let start = self.peek();
        let operand = match (start.kind, start.text) {
            (Kind::Word, "WARP_SZ") => Operand::Constant(self.expression()?),
            (Kind::Word, _) => self.symbol_operand()?,
            (Kind::Punctuation, "!") if self.ahead(1).kind == Kind::Word => {
                self.bump();
                Operand::Not(self.symbol()?)
            }
            (Kind::Punctuation, "[") => Operand::Address(self.address()?),
            (Kind::Punctuation, "{") => {
                self.bump();
                let elements = self.nested(|p| p.list(Self::operand))?;
                self.expect("}", "after the elements of a vector")?;
                Operand::Vector(elements)
            }
            (Kind::Number(_), _) | (Kind::Punctuation, "-" | "+" | "~" | "!" | "(") => {
                Operand::Constant(self.expression()?)
            }
            _ => return Err(self.unexpected("an operand")),
        };
        let first = Spanned::new(operand, start.span.to(self.last_span()));
        let pairs = matches!(
            first.value,
            Operand::Symbol(_) | Operand::Sink | Operand::Vector(_)
        );
        if !(pairs && self.eat("|")) {
            return Ok(first);
        }
        let token = self.peek();
        let second = match token.text {
            "_" => {
                self.bump();
                Operand::Sink
            }
            _ => Operand::Symbol(self.symbol()?),
        };
        let span = start.span.to(self.last_span());
        let second = Spanned::new(second, token.span.to(self.last_span()));
        Ok(Spanned::new(Operand::Pair(Box::new((first, second))), span))
    }

    /// An operand that starts with a name.
    fn symbol_operand(&mut self) -> Result<Operand> {
        if self.peek().text == "_" {
            self.bump();
            return Ok(Operand::Sink);
        }
        let symbol = self.symbol()?;
        if symbol.component.is_some() {
            return Ok(Operand::Symbol(symbol));
        }
        if self.eat("+") {
            return Ok(Operand::Offset(symbol.name, self.integer()? as i64));
        }
        if self.eat("[") {
            let index = if self.peek().kind == Kind::Word && self.peek().text != "WARP_SZ" {
                Index::Register(self.symbol()?, self.offset()?)
            } else {
                Index::Constant(self.integer()?)
            };
            self.expect("]", "after the index of an element")?;
            return Ok(Operand::Element(symbol.name, index));
        }
        Ok(Operand::Symbol(symbol))
    }

    fn symbol(&mut self) -> Result<Symbol> {
        let name = self.name("a name")?.value;
        let component = match self.peek().text {
            ".x" | ".r" => Component::X,
            ".y" | ".g" => Component::Y,
            ".z" | ".b" => Component::Z,
            ".w" | ".a" => Component::W,
            _ => {
                return Ok(Symbol {
                    name,
                    component: None,
                });
            }
        };
        self.bump();
        Ok(Symbol {
            name,
            component: Some(component),
        })
    }

    /// `+ number`, or nothing.
    fn offset(&mut self) -> Result<i64> {
        if self.eat("+") {
            Ok(self.integer()? as i64)
        } else {
            Ok(0)
        }
    }

    /// `[base + offset, coordinates…]`
    fn address(&mut self) -> Result<Address> {
        self.bump();
        let (base, offset) = if self.peek().kind == Kind::Word && self.peek().text != "WARP_SZ" {
            let symbol = self.symbol()?;
            (AddressBase::Symbol(symbol), self.offset()?)
        } else {
            (AddressBase::Absolute(self.integer()?), 0)
        };
        let coordinates = if self.eat(",") {
            self.nested(|p| p.list(Self::operand))?
        } else {
            Vec::new()
        };
        if self.is("-") {
            return Err(self
                .unexpected("`]` after an address")
                .with_help("write a negative offset as `+-4`"));
        }
        self.expect("]", "after an address")?;
        Ok(Address {
            base,
            offset,
            coordinates,
        })
    }
}
