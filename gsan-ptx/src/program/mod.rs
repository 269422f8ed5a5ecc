//! The decoded program: what the interpreter executes.
//!
//! Decoding is done once per module. Names are gone: registers are numbers in a flat file per
//! call frame, branch targets are instruction numbers, symbols are offsets in their space.
//!
//! **Registers.** A register is one 64-bit word ([`operand::Reg`]), whatever its type; a `.b128`
//! register is two consecutive ones, low half first. An operation reads only as many low bits as
//! its type has, so what stands above them does not matter. Predicates are 0 or 1.
//!
//! **Frames.** Each call has registers `0..Function::registers` of its own and
//! `Function::local_bytes` bytes of local memory of its own. `.param` variables of device
//! functions and of call sequences are local memory of the frame that declares them.

pub mod ir;
pub mod operand;
pub mod symbols;

use crate::program::ir::{Call, Inst};
use crate::program::operand::{ConstId, List, Operand, Operands, Reg, Regs};
use crate::program::symbols::{Data, Function, Place};
use gsan_core::ids::SiteId;

/// One decoded module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Entries and device functions.
    pub functions: Vec<Function>,
    /// The instructions of all functions, one after the other.
    pub code: Vec<Inst>,
    /// Where each instruction of `code` comes from; as long as `code`.
    pub places: Vec<Place>,
    /// The source files that `.file` names, for [`Place::file`].
    pub files: Vec<String>,
    /// What [`Operand::Const`] refers to.
    pub constants: Vec<u64>,
    /// What [`Operands`] refers to.
    pub operands: Vec<Operand>,
    /// What [`Regs`] refers to.
    pub registers: Vec<Reg>,
    /// What [`ir::Op::Call`] refers to.
    pub calls: Vec<Call>,
    /// What [`ir::Op::BranchTable`] refers to: instruction numbers.
    pub tables: Vec<Vec<u32>>,
    /// The `.global` and `.const` variables; every device has a copy of them.
    pub data: Data,
    /// The bytes of static shared memory of a CTA, all variables of the module together.
    /// Dynamic shared memory begins at the next multiple of 16.
    pub shared_bytes: u32,
}

impl Program {
    /// The function of that name, which must be an entry.
    pub fn entry(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.entry && f.name == name)
    }

    /// Appends an instruction and returns its number.
    pub fn push(&mut self, inst: Inst, place: Place) -> u32 {
        let number = self.code.len() as u32;
        self.code.push(inst);
        self.places.push(place);
        number
    }

    /// The operand for a constant.
    pub fn constant(&mut self, value: u64) -> Operand {
        let index = match self.constants.iter().rposition(|&c| c == value) {
            Some(index) => index,
            None => {
                self.constants.push(value);
                self.constants.len() - 1
            }
        };
        Operand::Const(ConstId(index as u32))
    }

    /// Stores a list of operands.
    pub fn list(&mut self, operands: &[Operand]) -> Operands {
        let start = self.operands.len() as u32;
        self.operands.extend_from_slice(operands);
        Operands(List::new(start, operands.len() as u32))
    }

    /// Stores a list of registers.
    pub fn registers(&mut self, registers: &[Reg]) -> Regs {
        let start = self.registers.len() as u32;
        self.registers.extend_from_slice(registers);
        Regs(List::new(start, registers.len() as u32))
    }

    /// The operands of a list.
    pub fn operands_of(&self, list: Operands) -> &[Operand] {
        &self.operands[list.0.range()]
    }

    /// The registers of a list.
    pub fn registers_of(&self, list: Regs) -> &[Reg] {
        &self.registers[list.0.range()]
    }

    /// The offset in shared memory at which the dynamic part begins.
    pub fn dynamic_shared_offset(&self) -> u32 {
        self.shared_bytes.next_multiple_of(16)
    }

    /// The site of an instruction: its number plus one, since 0 is the unknown site.
    pub fn site(&self, instruction: u32) -> SiteId {
        SiteId(instruction + 1)
    }

    /// The place of a site that [`Program::site`] made; the default place for any other.
    pub fn place(&self, site: SiteId) -> Place {
        site.0
            .checked_sub(1)
            .and_then(|instruction| self.places.get(instruction as usize))
            .copied()
            .unwrap_or_default()
    }

    /// The function whose code contains an instruction.
    pub fn function_of(&self, instruction: u32) -> Option<&Function> {
        self.functions
            .iter()
            .find(|f| f.code.contains(&instruction))
    }
}
