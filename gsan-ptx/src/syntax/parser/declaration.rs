//! Variables, parameters and functions.

use super::{Parser, Result};
use crate::syntax::ast::{
    Attribute, Constant, Directive, Function, Initializer, Layout, Linkage, Name, Parameter,
    Pointee, Registers, SourceFile, Variable, Variables,
};
use crate::syntax::lexer::Kind;
use crate::syntax::span::Spanned;
use crate::syntax::types::{StateSpace, Type};

/// Directives between the head of a function and its body, and how many numbers follow each.
const DIRECTIVES: &[(&str, usize, usize)] = &[
    (".abi_preserve", 1, 1),
    (".abi_preserve_control", 1, 1),
    (".blocksareclusters", 0, 0),
    (".explicitcluster", 0, 0),
    (".maxclusterrank", 1, 1),
    (".maxnctapersm", 1, 1),
    (".maxnreg", 1, 1),
    (".maxntid", 1, 3),
    (".minnctapersm", 1, 1),
    (".noreturn", 0, 0),
    (".pragma", 0, 0),
    (".reqnctapercluster", 1, 3),
    (".reqntid", 1, 3),
];

impl Parser<'_, '_> {
    /// `.file index "name" [, time, size]`
    pub(super) fn source_file(&mut self) -> Result<SourceFile> {
        self.bump();
        let index = self.number_of("the number of a source file", |_| true)?;
        let path = self.string("the name of a source file, in quotes")?;
        let stamp = if self.eat(",") {
            let time = self.number_of("a time stamp", |_| true)?;
            self.expect(",", "between time stamp and size")?;
            Some((time, self.number_of("a size in bytes", |_| true)?))
        } else {
            None
        };
        Ok(SourceFile { index, path, stamp })
    }

    /// `.pragma "a", "b";`
    pub(super) fn pragma(&mut self) -> Result<Vec<String>> {
        self.bump();
        let strings = self.list(|p| p.string("a string"))?;
        self.expect(";", "after a pragma")?;
        Ok(strings)
    }

    /// What follows the state space of a declaration.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        space: Spanned<StateSpace>,
    ) -> Result<Variables> {
        let attributes = self.attributes()?;
        let layout = self.layout()?;
        let variables = self.list(Self::variable)?;
        self.expect(";", "after a variable")?;
        Ok(Variables {
            linkage,
            space,
            attributes,
            layout,
            variables,
        })
    }

    fn variable(&mut self) -> Result<Variable> {
        let name = self.name("the name of a variable")?;
        let dimensions = self.dimensions()?;
        let initial = if self.eat("=") {
            Some(self.initializer()?)
        } else {
            None
        };
        Ok(Variable {
            name,
            dimensions,
            initial,
        })
    }

    fn initializer(&mut self) -> Result<Spanned<Initializer>> {
        let start = self.peek();
        let initializer = match start.kind {
            Kind::Word if start.text == "generic" && self.ahead(1).text == "(" => {
                self.bump();
                self.bump();
                let name = self.name("the name of a variable or function")?;
                self.expect(")", "after the name")?;
                self.symbol_initializer(name, true, None)?
            }
            Kind::Word if start.text != "WARP_SZ" => {
                let name = self.name("a name")?;
                self.symbol_initializer(name, false, None)?
            }
            Kind::Number(Constant::Integer { bits, .. }) if self.ahead(1).text == "(" => {
                self.bump();
                self.bump();
                let name = self.name("the name of a variable or function")?;
                let initializer = self.symbol_initializer(name, false, Some(bits))?;
                self.expect(")", "after the address that the mask selects from")?;
                initializer
            }
            _ if self.is("{") => {
                self.bump();
                let list = if self.is("}") {
                    Vec::new()
                } else {
                    self.nested(|p| p.list(Self::initializer))?
                };
                self.expect("}", "after a list of values")?;
                Initializer::List(list)
            }
            _ => Initializer::Constant(self.expression()?),
        };
        Ok(Spanned::new(initializer, start.span.to(self.last_span())))
    }

    fn symbol_initializer(
        &mut self,
        name: Name,
        generic: bool,
        mask: Option<u64>,
    ) -> Result<Initializer> {
        let offset = match self.peek().text {
            "+" => {
                self.bump();
                self.integer()? as i64
            }
            "-" => {
                self.bump();
                (self.integer()? as i64).wrapping_neg()
            }
            _ => 0,
        };
        Ok(Initializer::Symbol {
            name: name.value,
            offset,
            generic,
            mask,
        })
    }

    fn attributes(&mut self) -> Result<Vec<Attribute>> {
        let mut attributes = Vec::new();
        if !self.eat(".attribute") {
            return Ok(attributes);
        }
        self.expect("(", "after `.attribute`")?;
        loop {
            let token = self.peek();
            if token.kind != Kind::Dotted {
                return Err(self.unexpected("an attribute, such as `.managed`"));
            }
            self.bump();
            let arguments = if self.eat("(") {
                let arguments = self.list(Self::integer)?;
                self.expect(")", "after the arguments of an attribute")?;
                arguments
            } else {
                Vec::new()
            };
            attributes.push(Attribute {
                name: Spanned::new(token.text[1..].to_owned(), token.span),
                arguments,
            });
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")", "after the attributes")?;
        Ok(attributes)
    }

    fn align(&mut self) -> Result<Option<u32>> {
        if !self.eat(".align") {
            return Ok(None);
        }
        let align = self.number_of("an alignment: a power of two", u32::is_power_of_two)?;
        Ok(Some(align))
    }

    /// `[.align N] [.vN] .type`
    pub(super) fn layout(&mut self) -> Result<Layout> {
        let align = self.align()?;
        let vector = match self.peek().text {
            ".v2" => Some(2),
            ".v4" => Some(4),
            ".v8" => Some(8),
            _ => None,
        };
        if vector.is_some() {
            self.bump();
        }
        let ty = self.ty()?;
        Ok(Layout { align, vector, ty })
    }

    fn ty(&mut self) -> Result<Spanned<Type>> {
        let token = self.peek();
        match token.text.strip_prefix('.').and_then(Type::from_word) {
            Some(ty) => {
                self.bump();
                Ok(Spanned::new(ty, token.span))
            }
            None => {
                let words: Vec<String> = Type::ALL.iter().map(Type::to_string).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                Err(self.unexpected_word("a type, such as `.b32`", &words))
            }
        }
    }

    fn dimensions(&mut self) -> Result<Vec<Option<u64>>> {
        let mut dimensions = Vec::new();
        while self.eat("[") {
            if self.eat("]") {
                dimensions.push(None);
            } else {
                dimensions.push(Some(self.integer()?));
                self.expect("]", "after the size of an array")?;
            }
        }
        Ok(dimensions)
    }

    /// `.reg .b32 %r<4>, x;`
    pub(super) fn registers(&mut self) -> Result<Registers> {
        self.bump();
        let layout = self.layout()?;
        let names = self.list(|p| {
            let name = p.name("the name of a register")?;
            let count = if p.eat("<") {
                let count = p.number_of("how many registers the range has", |_| true)?;
                p.expect(">", "after the number of registers")?;
                Some(count)
            } else {
                None
            };
            Ok((name, count))
        })?;
        self.expect(";", "after the names of registers")?;
        Ok(Registers { layout, names })
    }

    /// What follows `.entry` or `.func`, these included.
    pub(super) fn function(&mut self, linkage: Linkage, entry: bool) -> Result<Function> {
        self.bump();
        let attributes = self.attributes()?;
        let returns = if !entry && self.is("(") {
            self.parameters()?
        } else {
            Vec::new()
        };
        let name = self.name("the name of the function")?;
        let parameters = if self.is("(") {
            self.parameters()?
        } else {
            Vec::new()
        };
        let directives = self.directives()?;
        let body = if self.eat(";") {
            None
        } else if self.is("{") {
            Some(self.block()?)
        } else {
            let words: Vec<&str> = DIRECTIVES.iter().map(|(word, ..)| *word).collect();
            return Err(self.unexpected_word(
                "`{`, `;` or a directive after the head of a function",
                &words,
            ));
        };
        Ok(Function {
            linkage,
            entry,
            attributes,
            returns,
            name,
            parameters,
            directives,
            body,
        })
    }

    pub(super) fn directives(&mut self) -> Result<Vec<Directive>> {
        let mut directives = Vec::new();
        loop {
            let token = self.peek();
            let Some(&(word, least, most)) =
                DIRECTIVES.iter().find(|(word, ..)| *word == token.text)
            else {
                return Ok(directives);
            };
            let (values, strings) = if word == ".pragma" {
                (Vec::new(), self.pragma()?)
            } else {
                self.bump();
                let values = if most == 0 {
                    Vec::new()
                } else {
                    self.list(|p| p.number_of("a number", |_: u64| true))?
                };
                if !(least..=most).contains(&values.len()) {
                    return Err(self.source.error(
                        token.span.to(self.last_span()),
                        format!(
                            "`{word}` takes at most {most} numbers, found {}",
                            values.len()
                        ),
                    ));
                }
                (values, Vec::new())
            };
            directives.push(Directive {
                name: Spanned::new(word[1..].to_owned(), token.span),
                values,
                strings,
            });
        }
    }

    /// `(parameter, …)`
    pub(super) fn parameters(&mut self) -> Result<Vec<Parameter>> {
        self.expect("(", "before parameters")?;
        if self.eat(")") {
            return Ok(Vec::new());
        }
        let parameters = self.list(Self::parameter)?;
        self.expect(")", "after the parameters")?;
        Ok(parameters)
    }

    fn parameter(&mut self) -> Result<Parameter> {
        let token = self.peek();
        let space = match token.text {
            ".param" => StateSpace::Param,
            ".reg" => StateSpace::Reg,
            _ => {
                return Err(
                    self.unexpected_word("a parameter: `.param` or `.reg`", &[".param", ".reg"])
                );
            }
        };
        self.bump();
        let layout = self.layout()?;
        let pointer = if self.eat(".ptr") {
            let space = self.state_space().map(|space| space.value);
            let align = self.align()?;
            Some(Pointee { space, align })
        } else {
            None
        };
        let name = self.name("the name of a parameter, or `_`")?;
        let dimensions = self.dimensions()?;
        Ok(Parameter {
            space: Spanned::new(space, token.span),
            layout,
            pointer,
            name: Some(name).filter(|name| name.value != "_"),
            dimensions,
        })
    }
}
