//! From tokens to a syntax tree.

mod body;
mod declaration;
mod expression;

use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::syntax::ast::{Item, Linkage, Module, Name};
use crate::syntax::lexer::{self, Kind, Token};
use crate::syntax::span::{Span, Spanned};
use crate::syntax::types::StateSpace;

type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// How deep blocks, lists and parentheses may lie inside each other. Bounds the stack that
/// parsing, printing, comparing and dropping a tree take.
pub const MAX_NESTING: u32 = 64;

/// Parses a module.
///
/// # Errors
/// The first thing that ptxas would not read either.
pub fn parse(source: &Source<'_>) -> Result<Module> {
    let mut parser = Parser {
        source,
        tokens: lexer::tokens(source)?,
        at: 0,
        nesting: 0,
        located: 0,
    };
    parser.module()
}

struct Parser<'s, 'a> {
    source: &'s Source<'a>,
    /// Ends with [`Kind::End`].
    tokens: Vec<Token<'a>>,
    at: usize,
    nesting: u32,
    /// The last piece of inline assembly that had a `.loc`.
    located: u32,
}

const ITEMS: &[&str] = &[
    ".alias", ".common", ".const", ".entry", ".extern", ".file", ".func", ".global", ".pragma",
    ".section", ".shared", ".visible", ".weak",
];

impl<'a> Parser<'_, 'a> {
    fn ahead(&self, tokens: usize) -> Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens[(self.at + tokens).min(last)]
    }

    fn peek(&self) -> Token<'a> {
        self.ahead(0)
    }

    fn bump(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// The place of the last token taken.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn is(&self, text: &str) -> bool {
        let token = self.peek();
        matches!(token.kind, Kind::Punctuation | Kind::Dotted) && token.text == text
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.is(text);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, text: &str, place: &str) -> Result<Span> {
        if self.is(text) {
            Ok(self.bump().span)
        } else {
            Err(self.unexpected(&format!("`{text}` {place}")))
        }
    }

    /// Expected `what`, and something else is there.
    fn unexpected(&self, what: &str) -> Box<Diagnostic> {
        let token = self.peek();
        self.source.error(
            token.span,
            format!("expected {what}, found {}", token.describe()),
        )
    }

    /// Like [`Self::unexpected`], with the one of `words` that was probably meant.
    fn unexpected_word(&self, what: &str, words: &[&str]) -> Box<Diagnostic> {
        let help = nearest(self.peek().text, words.iter().copied())
            .map(|word| format!("did you mean `{word}`?"));
        self.unexpected(what).with_help_if(help)
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == MAX_NESTING {
            return Err(self.source.error(
                self.peek().span,
                format!("nested more than {MAX_NESTING} levels deep"),
            ));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    /// `one {, one}`
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut list = vec![one(self)?];
        while self.eat(",") {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn name(&mut self, what: &str) -> Result<Name> {
        let token = self.peek();
        if token.kind != Kind::Word {
            return Err(self.unexpected(what));
        }
        self.bump();
        Ok(Spanned::new(token.text.to_owned(), token.span))
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let token = self.peek();
        if token.kind != Kind::String {
            return Err(self.unexpected(what));
        }
        self.bump();
        Ok(token.text[1..token.text.len() - 1].to_owned())
    }

    fn module(&mut self) -> Result<Module> {
        let version = self.version()?;
        self.expect(".target", "after the version, such as `.target sm_80`")?;
        let targets = self.list(|p| p.name("an architecture, such as `sm_80`"))?;
        let address_size = if self.eat(".address_size") {
            Some(self.number_of("32 or 64", |size| matches!(size, 32 | 64))?)
        } else {
            None
        };
        let mut items = Vec::new();
        while self.peek().kind != Kind::End {
            self.item(&mut items)?;
        }
        Ok(Module {
            version,
            targets,
            address_size,
            items,
        })
    }

    fn version(&mut self) -> Result<(u32, u32)> {
        self.expect(
            ".version",
            "at the start of the file, such as `.version 8.7`",
        )?;
        let token = self.peek();
        let version = token
            .text
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match version {
            Some(version) if matches!(token.kind, Kind::Number(_)) => {
                self.bump();
                Ok(version)
            }
            _ => Err(self.unexpected("a version, such as `8.7`")),
        }
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Result<()> {
        let token = self.peek();
        if token.kind != Kind::Dotted {
            return Err(self.unexpected("a function, a variable or a directive"));
        }
        match token.text {
            ".file" => items.push(Item::File(self.source_file()?)),
            ".pragma" => items.push(Item::Pragma(self.pragma()?)),
            ".section" => self.skip_section()?,
            ".alias" => {
                self.bump();
                let name = self.name("the new name of a function")?;
                self.expect(",", "between the names of an alias")?;
                let aliasee = self.name("the name of a function")?;
                self.expect(";", "after an alias")?;
                items.push(Item::Alias { name, aliasee });
            }
            _ => {
                let linkage = self.linkage();
                items.push(match self.peek().text {
                    ".entry" => Item::Function(self.function(linkage, true)?),
                    ".func" => Item::Function(self.function(linkage, false)?),
                    _ => match self.state_space() {
                        Some(space) => Item::Variables(self.variables(linkage, space)?),
                        None => {
                            return Err(self
                                .unexpected_word("a function, a variable or a directive", ITEMS));
                        }
                    },
                });
            }
        }
        Ok(())
    }

    fn linkage(&mut self) -> Linkage {
        let linkage = match self.peek().text {
            ".visible" => Linkage::Visible,
            ".weak" => Linkage::Weak,
            ".common" => Linkage::Common,
            ".extern" => Linkage::Extern,
            _ => return Linkage::Internal,
        };
        self.bump();
        linkage
    }

    /// The state space that a variable declaration starts with, if one starts here.
    fn state_space(&mut self) -> Option<Spanned<StateSpace>> {
        let token = self.peek();
        let word = token.text.strip_prefix('.')?;
        let space = StateSpace::from_word(word).filter(|space| *space != StateSpace::Reg)?;
        self.bump();
        Some(Spanned::new(space, token.span))
    }

    /// Debug sections say nothing that an execution needs.
    fn skip_section(&mut self) -> Result<()> {
        let section = self.bump().span;
        while !self.is("{") {
            if self.peek().kind == Kind::End {
                return Err(self.unexpected("`{` after the name of a section"));
            }
            self.bump();
        }
        let mut open = 0u32;
        loop {
            match self.bump() {
                token if token.kind == Kind::End => {
                    return Err(self
                        .source
                        .error(section, "this section is never closed")
                        .with_help("close it with `}`"));
                }
                Token { text: "{", .. } => open += 1,
                Token { text: "}", .. } => {
                    open -= 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
}
