//! Loads, stores, atomics and asynchronous copies of one thread.

use crate::alu::Rmw;
use crate::exec::fault::{Fault, FaultKind};
use crate::exec::interpret::{Runner, Stop};
use crate::exec::memory::{Refusal, from_generic};
use crate::exec::pages::copy;
use crate::exec::printf::{Answer, Request};
use crate::exec::thread::{Polled, site};
use crate::program::ir::{Address, MemoryAccess, MemorySpace};
use crate::program::operand::{Operand, Operands, Regs};
use gsan_core::event::{Access, Action, Completion, Detector, Event, Proxy, Range, Space};
use gsan_core::ids::AsyncId;
use gsan_core::scope::{Order, Scope};

/// The longest string that is read from memory, its end included.
const LONGEST_STRING: u64 = 1 << 16;

/// Bytes that exist, and where.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) space: MemorySpace,
    pub(super) address: u64,
}

impl Target {
    /// One element of a vector of elements of `size` bytes that begins here.
    #[inline]
    fn element(self, index: usize, size: usize) -> Target {
        Target {
            address: self.address + (index * size) as u64,
            ..self
        }
    }
}

impl<D: Detector> Runner<'_, '_, '_, D> {
    pub(super) fn address(&self, address: Address) -> u64 {
        self.value(address.base).wrapping_add(address.offset as u64)
    }

    /// Checks an access of `bytes` bytes that must be aligned to `alignment`, and is no mbarrier
    /// operation.
    #[inline]
    pub(super) fn target(
        &mut self,
        space: MemorySpace,
        address: u64,
        bytes: u32,
        alignment: u32,
        write: bool,
    ) -> Result<Target, FaultKind> {
        let target = self.locate(space, address, bytes, alignment, write)?;
        if write && target.space == MemorySpace::Shared {
            self.shared
                .mbarriers
                .check_overwrite(target.address, bytes.into())?;
        }
        Ok(target)
    }

    /// Checks an access to `count` elements, one after the other.
    #[inline]
    fn vector(
        &mut self,
        address: Address,
        access: MemoryAccess,
        count: usize,
        write: bool,
    ) -> Result<Target, FaultKind> {
        let size = usize::from(access.element.bytes);
        let total = (count * size) as u32;
        let alignment = alignment(total, size);
        let address = self.address(address);
        self.target(access.space, address, total, alignment, write)
    }

    /// Checks that bytes exist and are aligned to `alignment`.
    #[inline]
    pub(super) fn locate(
        &mut self,
        space: MemorySpace,
        address: u64,
        bytes: u32,
        alignment: u32,
        write: bool,
    ) -> Result<Target, FaultKind> {
        let (space, address) = match space {
            MemorySpace::Generic => from_generic(address),
            MemorySpace::Const => (MemorySpace::Global, address),
            // Addresses of these spaces are 32 bits; what stands above them is not read.
            MemorySpace::Shared | MemorySpace::Local | MemorySpace::Param => {
                (space, address & 0xffff_ffff)
            }
            MemorySpace::Global => (space, address),
        };
        let length = u64::from(bytes);
        if address % u64::from(alignment) != 0 {
            return Err(FaultKind::Misaligned {
                space,
                address,
                alignment,
                write,
            });
        }
        let within = |size: usize| address < size as u64 && length <= size as u64 - address;
        let checked = match space {
            MemorySpace::Shared if self.shared.contains(address, length) => Ok(()),
            MemorySpace::Local if within(self.thread.local.len()) => Ok(()),
            MemorySpace::Param if within(self.info.launch.params.len()) => {
                if write {
                    Err(Refusal::ReadOnly)
                } else {
                    Ok(())
                }
            }
            MemorySpace::Global => self.env.memory.check(address, length, write),
            _ => Err(Refusal::OutOfBounds { nearest: None }),
        };
        match checked {
            Ok(()) => Ok(Target { space, address }),
            Err(Refusal::ReadOnly) => Err(FaultKind::ReadOnly { address, bytes }),
            Err(Refusal::OutOfBounds { nearest }) => Err(FaultKind::OutOfBounds {
                space,
                address,
                bytes,
                write,
                nearest,
            }),
        }
    }

    /// The space as the detector knows it; `None` for memory that only one thread can reach.
    #[inline]
    fn detector_space(&self, target: Target) -> Option<Space> {
        match target.space {
            MemorySpace::Global => Some(Space::Global),
            MemorySpace::Shared => Some(Space::Shared(self.info.id)),
            _ => None,
        }
    }

    /// Tells the detector of an access.
    #[inline]
    pub(super) fn tell(
        &mut self,
        target: Target,
        bytes: u32,
        action: Action,
        order: Order,
        scope: Scope,
    ) -> Result<(), Stop> {
        if let Some(event) = self.event(target, bytes, action, order, scope) {
            self.env.detector.on(&event)?;
        }
        Ok(())
    }

    /// The event of an access, unless only this thread can reach the memory.
    #[inline]
    fn event(
        &self,
        target: Target,
        bytes: u32,
        action: Action,
        order: Order,
        scope: Scope,
    ) -> Option<Event> {
        Some(Event::Access(Access {
            thread: self.thread.id,
            range: Range {
                space: self.detector_space(target)?,
                address: target.address,
                bytes,
            },
            action,
            order,
            scope,
            site: site(self.thread.pc),
        }))
    }

    /// Reads bytes that exist.
    #[inline]
    fn read(&mut self, target: Target, into: &mut [u8]) {
        let start = target.address as usize;
        match target.space {
            MemorySpace::Shared => {
                let bytes = into.len() as u64;
                if !self.shared.initialised(target.address, bytes) {
                    self.env.uninitialised.get_or_insert(Fault {
                        thread: self.thread.id,
                        site: site(self.thread.pc),
                        kind: FaultKind::UninitialisedShared {
                            offset: target.address,
                            bytes: bytes as u32,
                        },
                    });
                }
                self.shared.read(target.address, into);
            }
            MemorySpace::Local => {
                self.thread.local.read(start, into);
            }
            MemorySpace::Param => {
                into.copy_from_slice(&self.info.launch.params[start..start + into.len()]);
            }
            _ => self.env.memory.read(target.address, into),
        }
    }

    /// Writes bytes that exist over `old`, what is there now.
    #[inline]
    fn write(&mut self, target: Target, bytes: &[u8], old: &[u8]) {
        let start = target.address as usize;
        match target.space {
            MemorySpace::Local => {
                self.thread.local.write(start, bytes);
                self.thread
                    .spin
                    .read(target.address, digest(bytes), Polled::Global);
                return;
            }
            MemorySpace::Shared => {
                self.shared.write(target.address, bytes);
            }
            _ => self.env.memory.write(target.address, bytes),
        }
        if bytes == old {
            self.thread
                .spin
                .read(target.address, digest(bytes), target.space.into());
        } else {
            self.thread.spin.change();
            self.env.generation += 1;
        }
    }

    /// The bytes that a write replaces.
    fn old(&self, target: Target, into: &mut [u8]) {
        match target.space {
            MemorySpace::Shared => self.shared.read(target.address, into),
            MemorySpace::Global => self.env.memory.read(target.address, into),
            _ => {}
        }
    }

    pub(super) fn load(
        &mut self,
        dst: Regs,
        address: Address,
        access: MemoryAccess,
    ) -> Result<(), Stop> {
        let program = self.env.program;
        let registers = program.registers_of(dst);
        let size = usize::from(access.element.bytes);
        let per_element = size.div_ceil(8);
        let count = registers.len() / per_element;
        let first = self.vector(address, access, count, false)?;
        for (index, registers) in registers.chunks_exact(per_element).enumerate() {
            let target = first.element(index, size);
            if access.space != MemorySpace::Const {
                self.tell(
                    target,
                    size as u32,
                    Action::Read,
                    access.order,
                    access.scope,
                )?;
            }
            let mut bytes = [0; 16];
            self.read(target, &mut bytes[..size]);
            let value = u128::from_le_bytes(bytes);
            if matches!(target.space, MemorySpace::Global | MemorySpace::Shared) {
                self.thread
                    .spin
                    .read(target.address, digest(&bytes[..size]), target.space.into());
            }
            match *registers {
                [low, high] => {
                    self.set(low, value as u64);
                    self.set(high, (value >> 64) as u64);
                }
                [register] if access.element.signed => {
                    let shift = 64 - 8 * size as u32;
                    self.set(register, (((value as u64) << shift) as i64 >> shift) as u64);
                }
                [register] => self.set(register, value as u64),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        sources: Operands,
        address: Address,
        access: MemoryAccess,
    ) -> Result<(), Stop> {
        let program = self.env.program;
        let operands = program.operands_of(sources);
        let size = usize::from(access.element.bytes);
        let per_element = size.div_ceil(8);
        let count = operands.len() / per_element;
        let first = self.vector(address, access, count, true)?;
        for (index, operands) in operands.chunks_exact(per_element).enumerate() {
            let target = first.element(index, size);
            let value = self.wide_value(operands).to_le_bytes();
            let mut old = [0; 16];
            self.old(target, &mut old[..size]);
            let (order, scope) = (access.order, access.scope);
            let event = self.event(target, size as u32, Action::Write, order, scope);
            if let Some(event) = event {
                if target.space == MemorySpace::Shared && old[..size] == value[..size] {
                    self.env.detector.on_same_value(&event)?;
                } else {
                    self.env.detector.on(&event)?;
                }
            }
            self.write(target, &value[..size], &old[..size]);
        }
        Ok(())
    }

    /// The value of one operand, or of two that are the halves of a 128-bit one.
    fn wide_value(&self, operands: &[Operand]) -> u128 {
        operands.iter().rev().fold(0, |wide, &operand| {
            wide << 64 | u128::from(self.value(operand))
        })
    }

    pub(super) fn atomic(
        &mut self,
        rmw: Rmw,
        dst: Regs,
        sources: Operands,
        address: Address,
        access: MemoryAccess,
    ) -> Result<(), Stop> {
        let program = self.env.program;
        let operands = program.operands_of(sources);
        let registers = program.registers_of(dst);
        let size = usize::from(access.element.bytes);
        let per_element = size.div_ceil(8);
        let swaps = rmw == Rmw::CompareAndSwap;
        let per_operation = if swaps { 2 * per_element } else { per_element };
        let count = operands.len() / per_operation;
        let first = self.vector(address, access, count, true)?;
        for (index, operands) in operands.chunks_exact(per_operation).enumerate() {
            let target = first.element(index, size);
            let mut bytes = [0; 16];
            self.read(target, &mut bytes[..size]);
            let old = u128::from_le_bytes(bytes);
            let mask = if size == 16 {
                u128::MAX
            } else {
                (1 << (8 * size)) - 1
            };
            let operand = self.wide_value(&operands[..per_element]) & mask;
            let (new, action) = if swaps {
                if old == operand {
                    (
                        self.wide_value(&operands[per_element..]) & mask,
                        Action::Rmw,
                    )
                } else {
                    (old, Action::FailedRmw)
                }
            } else {
                let new = match rmw {
                    Rmw::Exchange => operand,
                    _ => u128::from(rmw.eval(size as u8, old as u64, operand as u64)),
                };
                let action = if registers.is_empty() {
                    Action::Red
                } else {
                    Action::Rmw
                };
                (new, action)
            };
            self.tell(target, size as u32, action, access.order, access.scope)?;
            if action == Action::FailedRmw {
                self.thread
                    .spin
                    .read(target.address, digest(&bytes[..size]), target.space.into());
            } else {
                self.write(target, &new.to_le_bytes()[..size], &bytes[..size]);
            }
            let results = registers.iter().skip(index * per_element).take(per_element);
            for (half, &register) in results.enumerate() {
                self.set(register, (old >> (64 * half)) as u64);
            }
        }
        Ok(())
    }

    pub(super) fn copy_async(
        &mut self,
        to: Address,
        from: Address,
        bytes: u8,
        source_bytes: Option<Operand>,
        ignore_source: Option<Operand>,
    ) -> Result<(), Stop> {
        let size = u32::from(bytes);
        let ignored = ignore_source.is_some_and(|p| self.value(p) & 1 != 0);
        let source = match source_bytes {
            _ if ignored => 0,
            Some(operand) => self.value(operand) & 0xffff_ffff,
            None => u64::from(bytes),
        };
        if source > u64::from(bytes) {
            return Err(FaultKind::CopySize {
                source_bytes: source,
                bytes: size,
            }
            .into());
        }
        let source = source as usize;
        let to = self.target(MemorySpace::Shared, self.address(to), size, size, true)?;
        let mut data = [0; 16];
        let mut reads = Vec::new();
        if source > 0 {
            let address = self.address(from);
            let from = self.target(MemorySpace::Generic, address, source as u32, 1, false)?;
            if !address.is_multiple_of(u64::from(bytes)) {
                return Err(FaultKind::Misaligned {
                    space: MemorySpace::Global,
                    address,
                    alignment: size,
                    write: false,
                }
                .into());
            }
            self.read(from, &mut data[..source]);
            reads.extend(self.detector_space(from).map(|space| Range {
                space,
                address: from.address,
                bytes: source as u32,
            }));
        }
        let id = AsyncId(self.env.next_copy);
        self.env.next_copy += 1;
        self.env.detector.on(&Event::AsyncIssue {
            thread: self.thread.id,
            id,
            reads,
            writes: vec![Range {
                space: Space::Shared(self.info.id),
                address: to.address,
                bytes: size,
            }],
            proxy: Proxy::Generic,
            site: site(self.thread.pc),
        })?;
        let mut old = [0; 16];
        self.old(to, &mut old[..usize::from(bytes)]);
        self.write(to, &data[..usize::from(bytes)], &old[..usize::from(bytes)]);
        self.thread.copies.open.push(id);
        Ok(())
    }

    pub(super) fn commit_group(&mut self) {
        let group = std::mem::take(&mut self.thread.copies.open);
        self.thread.copies.groups.push_back(group);
    }

    pub(super) fn wait_group(&mut self, newest: usize) -> Result<(), Stop> {
        while self.thread.copies.groups.len() > newest {
            for id in self.thread.copies.groups.pop_front().into_iter().flatten() {
                self.thread.copies.done.push(id);
                self.env.detector.on(&Event::AsyncWait {
                    thread: self.thread.id,
                    id,
                    completion: Completion::Full,
                })?;
            }
        }
        Ok(())
    }

    /// Reads a row of a matrix.
    pub(super) fn read_row(&mut self, space: MemorySpace, address: u64) -> Result<[u8; 16], Stop> {
        let row = self.target(space, address, 16, 16, false)?;
        self.tell(row, 16, Action::Read, Order::Weak, Scope::Cta)?;
        let mut bytes = [0; 16];
        self.read(row, &mut bytes);
        self.thread
            .spin
            .read(row.address, digest(&bytes), row.space.into());
        Ok(bytes)
    }

    /// Writes a row of a matrix.
    pub(super) fn write_row(
        &mut self,
        space: MemorySpace,
        address: u64,
        bytes: &[u8; 16],
    ) -> Result<(), Stop> {
        let row = self.target(space, address, 16, 16, true)?;
        self.tell(row, 16, Action::Write, Order::Weak, Scope::Cta)?;
        let mut old = [0; 16];
        self.old(row, &mut old);
        self.write(row, bytes, &old);
        Ok(())
    }

    /// Reads bytes that the system needs, at a generic address, without telling the detector.
    fn system_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Stop> {
        let bytes = into.len() as u32;
        let target = self.target(MemorySpace::Generic, address, bytes, 1, false)?;
        self.read(target, into);
        Ok(())
    }

    /// Reads a string that ends in 0.
    pub(super) fn string(&mut self, address: u64) -> Result<String, Stop> {
        let mut bytes = Vec::new();
        for offset in 0..LONGEST_STRING {
            let mut byte = [0];
            self.system_read(address.wrapping_add(offset), &mut byte)?;
            if byte[0] == 0 {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            bytes.push(byte[0]);
        }
        Err(FaultKind::Format("or string is longer than 65536 bytes").into())
    }

    /// What `vprintf` asks for; its values are at generic address `values`.
    pub(super) fn printf_argument(
        &mut self,
        values: u64,
        request: Request,
    ) -> Result<Answer, Stop> {
        match request {
            Request::Word { offset, bytes } => {
                let mut word = [0; 8];
                self.system_read(values.wrapping_add(offset), &mut word[..usize::from(bytes)])?;
                Ok(Answer::Word(u64::from_le_bytes(word)))
            }
            Request::String(address) => Ok(Answer::Text(self.string(address)?)),
        }
    }
}

/// The alignment of an access: its whole size (PTX ISA, "Addresses as Operands"), or that of an
/// element where the size is no power of two.
fn alignment(total: u32, element: usize) -> u32 {
    if total.is_power_of_two() {
        total
    } else {
        element as u32
    }
}

/// Up to 16 bytes as one word, to tell whether they changed.
#[inline]
fn digest(bytes: &[u8]) -> u64 {
    let mut word = [0; 16];
    copy(&mut word[..bytes.len()], bytes);
    let wide = u128::from_le_bytes(word);
    wide as u64 ^ ((wide >> 64) as u64).rotate_left(17)
}
