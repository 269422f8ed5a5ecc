//! The syntax tree of a PTX module.
//!
//! It keeps what was written, with places, and gives it no meaning: an opcode is a word, a symbol
//! a name. Constant expressions are the exception; they are folded while parsing. Debug sections
//! and comments are not part of the tree.

use crate::syntax::span::Spanned;
use crate::syntax::types::{StateSpace, Type};

/// A name as it was written, `%` and `$` included.
pub type Name = Spanned<String>;

/// A whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// `.version`: major and minor number.
    pub version: (u32, u32),
    /// `.target`: the architecture first, then options.
    pub targets: Vec<Name>,
    /// `.address_size`, if it was written: 32 or 64.
    pub address_size: Option<u32>,
    /// Everything else, in the order of the file.
    pub items: Vec<Item>,
}

/// Something at the outermost level of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `.entry` or `.func`, with or without a body.
    Function(Function),
    /// Variables declared in one statement.
    Variables(Variables),
    /// `.file`: names a source file.
    File(SourceFile),
    /// `.pragma`.
    Pragma(Vec<String>),
    /// `.alias name, aliasee;`
    Alias {
        /// The new name.
        name: Name,
        /// The function it stands for.
        aliasee: Name,
    },
}

/// `.file index "name", time, size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The number that `.loc` uses.
    pub index: u32,
    /// The path between the quotes, as written.
    pub path: String,
    /// Modification time and size, if given.
    pub stamp: Option<(u64, u64)>,
}

/// How a name is seen by other modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Linkage {
    /// Not at all.
    Internal,
    /// `.visible`
    Visible,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
    /// `.extern`: defined elsewhere.
    Extern,
}

/// `.attribute(.name(arguments))`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The name, without its dot.
    pub name: Name,
    /// The numbers in parentheses.
    pub arguments: Vec<u64>,
}

/// Variables of one type in one state space (`.global .align 4 .u32 a, b[3] = {1, 2};`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// How other modules see them.
    pub linkage: Linkage,
    /// Where they live.
    pub space: Spanned<StateSpace>,
    /// `.attribute(…)`.
    pub attributes: Vec<Attribute>,
    /// What they are made of.
    pub layout: Layout,
    /// The names with their dimensions and initial values.
    pub variables: Vec<Variable>,
}

/// `.align`, vector width and type of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `.align`, in bytes.
    pub align: Option<u32>,
    /// `.v2`, `.v4`, `.v8`.
    pub vector: Option<u32>,
    /// The type of one element.
    pub ty: Spanned<Type>,
}

/// One variable of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: Name,
    /// Array dimensions, outermost first; `None` is `[]`.
    pub dimensions: Vec<Option<u64>>,
    /// The initial value.
    pub initial: Option<Spanned<Initializer>>,
}

/// The initial value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initializer {
    /// A number.
    Constant(Constant),
    /// An address, or one byte of it.
    Symbol {
        /// The variable, function or label.
        name: String,
        /// Added to its address.
        offset: i64,
        /// `generic(name)`: the generic address rather than the one in its state space.
        generic: bool,
        /// `0xff00(name)`: the byte of the address that the mask selects.
        mask: Option<u64>,
    },
    /// `{…}`
    List(Vec<Spanned<Initializer>>),
}

/// A number, folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// An integer: 64 bits, and whether its type is `.u64` rather than `.s64`.
    Integer {
        /// The bits.
        bits: u64,
        /// Whether it is unsigned.
        unsigned: bool,
    },
    /// `0fXXXXXXXX`: the bits of an f32.
    Single(u32),
    /// `0dXXXXXXXXXXXXXXXX` or a decimal number: the bits of an f64.
    Double(u64),
}

impl Constant {
    /// A signed integer.
    pub const fn signed(value: i64) -> Constant {
        Constant::Integer {
            bits: value as u64,
            unsigned: false,
        }
    }
}

/// `.entry` or `.func`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// How other modules see it.
    pub linkage: Linkage,
    /// Whether it is a kernel (`.entry`).
    pub entry: bool,
    /// `.attribute(…)`.
    pub attributes: Vec<Attribute>,
    /// What it returns (`.func` only).
    pub returns: Vec<Parameter>,
    /// Its name.
    pub name: Name,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// `.reqntid`, `.noreturn` and the like.
    pub directives: Vec<Directive>,
    /// The body; `None` for a declaration.
    pub body: Option<Spanned<Vec<Statement>>>,
}

/// A parameter or return value of a function or prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// `.param` or `.reg`.
    pub space: Spanned<StateSpace>,
    /// What it is made of.
    pub layout: Layout,
    /// `.ptr`: what the pointer points to.
    pub pointer: Option<Pointee>,
    /// Its name; `None` is `_`.
    pub name: Option<Name>,
    /// Array dimensions, outermost first; `None` is `[]`.
    pub dimensions: Vec<Option<u64>>,
}

/// `.ptr .global .align 16`: what a pointer parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointee {
    /// The state space; `None` is generic.
    pub space: Option<StateSpace>,
    /// The alignment in bytes.
    pub align: Option<u32>,
}

/// A performance-tuning or cluster directive of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its name, without the dot.
    pub name: Name,
    /// The numbers that follow.
    pub values: Vec<u64>,
    /// The strings that follow (`.pragma`).
    pub strings: Vec<String>,
}

/// Something in the body of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `.reg …;`
    Registers(Registers),
    /// `.shared`, `.local`, `.param`, `.global` or `.const …;`
    Variables(Variables),
    /// `name:`
    Label(Name),
    /// An instruction, from its guard to its semicolon.
    Instruction(Spanned<Instruction>),
    /// `{…}`: names declared in it are its own.
    Block(Spanned<Vec<Statement>>),
    /// `.loc`
    Location(Location),
    /// `.file`
    File(SourceFile),
    /// `.pragma`
    Pragma(Vec<String>),
    /// `name: .branchtargets a, b;`
    BranchTargets {
        /// The name of the list.
        name: Name,
        /// The labels.
        targets: Vec<Name>,
    },
    /// `name: .calltargets f, g;`
    CallTargets {
        /// The name of the list.
        name: Name,
        /// The functions.
        targets: Vec<Name>,
    },
    /// `name: .callprototype (returns) _ (parameters);`
    CallPrototype {
        /// The name of the prototype.
        name: Name,
        /// What such a function returns.
        returns: Vec<Parameter>,
        /// What it takes.
        parameters: Vec<Parameter>,
        /// `.noreturn` and the like.
        directives: Vec<Directive>,
    },
}

/// `.reg .b32 %r<4>, x;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The type, and the vector width.
    pub layout: Layout,
    /// The names, each with the number of registers if it is a range: `%r<4>` is `%r0` to `%r3`.
    pub names: Vec<(Name, Option<u32>)>,
}

/// `.loc file line column, function_name label, inlined_at file line column`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The place of the instructions that follow.
    pub place: SourcePlace,
    /// Where the function they are in was inlined.
    pub inlined: Option<Inlined>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourcePlace {
    /// The file's number in `.file`.
    pub file: u32,
    /// The line, from 1; 0 is unknown.
    pub line: u32,
    /// The column, from 1; 0 is unknown.
    pub column: u32,
}

/// Where and from what function code was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The label of the function's name in the debug strings, and an offset to it.
    pub function_name: (Name, i64),
    /// The call.
    pub at: SourcePlace,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// The word before the first dot.
    pub opcode: Name,
    /// The words after the dots, as written.
    pub modifiers: Vec<Name>,
    /// The operands, in order.
    pub operands: Vec<Spanned<Operand>>,
}

/// `@p` or `@!p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// `@!`
    pub negated: bool,
    /// The predicate register.
    pub predicate: Name,
}

/// One element of a vector register, or one dimension of a special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// `.x` or `.r`
    X,
    /// `.y` or `.g`
    Y,
    /// `.z` or `.b`
    Z,
    /// `.w` or `.a`
    W,
}

/// A name, or one component of what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// A register, variable, function or label.
    pub name: String,
    /// `.x` and the like.
    pub component: Option<Component>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `%r1`, `%tid.x`, `g`, `L1`
    Symbol(Symbol),
    /// `!%p1`
    Not(Symbol),
    /// `g+4`: an address.
    Offset(String, i64),
    /// `5`
    Constant(Constant),
    /// `[%rd1+4]`, `[g]`, `[map, {%r1, %r2}]`
    Address(Address),
    /// `g[2]`, `g[%rd1+4]`: an element of an array.
    Element(String, Index),
    /// `{a, b}`
    Vector(Vec<Spanned<Operand>>),
    /// `d|p`: two destinations.
    Pair(Box<(Spanned<Operand>, Spanned<Operand>)>),
    /// `_`: a destination nobody reads.
    Sink,
    /// `(a, b)`: the arguments or results of a call.
    Group(Vec<Spanned<Operand>>),
}

/// What stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What the address starts from.
    pub base: AddressBase,
    /// Bytes added to it.
    pub offset: i64,
    /// What follows after commas: coordinates of tensors and textures.
    pub coordinates: Vec<Spanned<Operand>>,
}

/// What an address starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressBase {
    /// A register that holds an address, or a variable.
    Symbol(Symbol),
    /// A number.
    Absolute(u64),
}

/// What selects an element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// A number.
    Constant(u64),
    /// A register, and a number added to it.
    Register(Symbol, i64),
}
