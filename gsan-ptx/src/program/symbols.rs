//! Functions, parameters, module variables and source places.

use std::ops::Range;

/// The number of a function in [`Program::functions`](super::Program::functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// An entry or a device function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its name, as in the module.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Its instructions. Every path must end in `ret`, `exit` or a branch; running off the end is
    /// a return.
    pub code: Range<u32>,
    /// How many registers its frame has.
    pub registers: u32,
    /// How many bytes of local memory its frame has.
    pub local_bytes: u32,
    /// The parameters of an entry, in order; empty for device functions.
    pub params: Vec<Param>,
    /// The size of the entry's parameter space in bytes.
    pub param_bytes: u32,
    /// `.reqntid`, filled up with 1.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`, filled up with 1.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqnctapercluster` or the explicit cluster size.
    pub cluster: Option<[u32; 3]>,
    /// Whether it uses dynamic shared memory (an unsized `.extern .shared` array).
    pub dynamic_shared: bool,
}

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Where it lies in the parameter space.
    pub offset: u32,
    /// How many bytes it has.
    pub bytes: u32,
    /// Marked `.ptr`, or otherwise known to hold an address.
    pub pointer: bool,
    /// Whether an instruction of the kernel names it.
    pub used: bool,
}

/// The initial contents of a module's `.global` and `.const` variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The size of all variables in bytes, padding included.
    pub bytes: u64,
    /// The variables, by ascending offset, not overlapping.
    pub variables: Vec<Variable>,
    /// Words that hold addresses, to be filled in when the addresses are known.
    pub relocations: Vec<Relocation>,
}

/// A `.global` or `.const` variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lies, from the start of the data.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its first bytes; the rest is 0.
    pub init: Vec<u8>,
    /// `.const`: it cannot be written.
    pub constant: bool,
}

/// A word of the data that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where the 8-byte word lies, from the start of the data.
    pub at: u64,
    /// What it points to.
    pub target: RelocationTarget,
}

/// What a word of the data points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationTarget {
    /// The data, that many bytes from its start.
    Data(u64),
    /// A function.
    Function(FunctionId),
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line of the PTX file, from 1; 0 is unknown.
    pub ptx_line: u32,
    /// The position of the source file in [`Program::files`](super::Program::files), from
    /// `.loc`; the innermost one where code was inlined.
    pub file: Option<u32>,
    /// The line of the source file, from 1; 0 is unknown.
    pub line: u32,
    /// The column of the source file, from 1; 0 is unknown.
    pub column: u32,
}
