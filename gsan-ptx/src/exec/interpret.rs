//! One turn of one thread.

use crate::exec::Limits;
use crate::exec::cta::CtaState;
use crate::exec::fault::Fault;
use crate::exec::fault::FaultKind;
use crate::exec::launch::Launch;
use crate::exec::mbarrier::pending_count;
use crate::exec::memory::{Memory, from_generic, function_address, to_generic};
use crate::exec::printf::{self, Printed};
use crate::exec::shared::Shared;
use crate::exec::thread::{Frame, Round, ThreadState};
use crate::exec::watch::Watch;
use crate::program::Program;
use crate::program::ir::{
    Builtin, Call, Callee, MemorySpace, Op, PredicateOperand, Storage, Transfer,
};
use crate::program::operand::{Axis, Operand, Operands, Reg, Regs, Special, SymbolSpace};
use gsan_core::event::{Detector, Event, EventError};
use gsan_core::ids::Cta;

/// What all threads share.
pub(super) struct Env<'a, 'd, D> {
    pub(super) program: &'a Program,
    pub(super) limits: Limits,
    pub(super) memory: Memory<'a>,
    pub(super) detector: Watch<'d, D>,
    /// Instructions executed by all threads.
    pub(super) instructions: u64,
    /// Counts changes of global and shared memory.
    pub(super) generation: u64,
    pub(super) printed: Printed,
    /// The number of the next asynchronous copy.
    pub(super) next_copy: u64,
    /// The first read of shared memory that nobody had written.
    pub(super) uninitialised: Option<Fault>,
}

/// What all threads of a CTA share and cannot change.
#[derive(Clone, Copy)]
pub(super) struct CtaInfo<'a> {
    pub(super) id: Cta,
    pub(super) ctaid: [u32; 3],
    pub(super) sm: u32,
    pub(super) multiprocessors: u32,
    pub(super) launch: &'a Launch,
    pub(super) shared_bytes: u32,
    /// Where the module's variables are on the device.
    pub(super) data_base: u64,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next operation is one that others can notice.
    Ready,
    /// The thread computed for long without such an operation, or sleeps.
    Yielded,
    /// A round of a polling loop ended.
    Polled {
        /// Nothing can change for this thread while memory stays as it is.
        stuck: bool,
    },
    /// It is at [`Op::Barrier`].
    Barrier,
    /// It is at [`Op::Collective`].
    Collective,
    /// It is at [`Op::GridDependencyWait`].
    GridWait,
    /// It executed [`Op::LaunchDependents`].
    LaunchDependents,
    /// It is done.
    Exit,
}

/// Why a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Fault(FaultKind),
    Detector(EventError),
}

impl From<FaultKind> for Stop {
    fn from(fault: FaultKind) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<EventError> for Stop {
    fn from(error: EventError) -> Stop {
        Stop::Detector(error)
    }
}

/// Private instructions in a row after which a thread lets others run.
const LONGEST_TURN: u64 = 4096;

/// The value of an operand.
#[inline(always)]
pub(super) fn value(
    program: &Program,
    info: &CtaInfo,
    thread: &ThreadState,
    operand: Operand,
) -> u64 {
    match operand {
        Operand::Reg(reg) => thread.registers[thread.register_base + reg.0 as usize],
        Operand::Const(constant) => program.constants[constant.0 as usize],
        Operand::Symbol(space, offset) => symbol(info, thread, space, offset),
        Operand::Special(special) => special_value(info, thread, special),
    }
}

#[inline(always)]
pub(super) fn set(thread: &mut ThreadState, reg: Reg, value: u64) {
    thread.registers[thread.register_base + reg.0 as usize] = value;
}

fn symbol(info: &CtaInfo, thread: &ThreadState, space: SymbolSpace, offset: u32) -> u64 {
    match space {
        SymbolSpace::Global => info.data_base + u64::from(offset),
        SymbolSpace::Shared | SymbolSpace::Param => u64::from(offset),
        SymbolSpace::Local => thread.local_base as u64 + u64::from(offset),
        SymbolSpace::Function => function_address(offset),
    }
}

fn axis(dims: [u32; 3], axis: Axis) -> u64 {
    u64::from(dims[axis as usize])
}

fn special_value(info: &CtaInfo, thread: &ThreadState, special: Special) -> u64 {
    let lane = thread.lane();
    let block = info.launch.block;
    let ones = [1, 1, 1];
    match special {
        Special::Tid(a) => axis(thread.tid, a),
        Special::Ntid(a) => axis(block, a),
        Special::Ctaid(a) | Special::ClusterId(a) => axis(info.ctaid, a),
        Special::Nctaid(a) | Special::NClusterId(a) => axis(info.launch.grid, a),
        Special::ClusterNctaid(a) => axis(ones, a),
        Special::ClusterNctarank => 1,
        Special::LaneId => u64::from(lane),
        Special::WarpId => u64::from(thread.id.warp()),
        Special::NWarpId => u64::from(info.launch.threads().div_ceil(32)),
        Special::SmId => u64::from(info.sm),
        Special::NSmId => u64::from(info.multiprocessors),
        Special::GridId => u64::from(info.id.launch.0),
        Special::LanemaskEq => 1 << lane,
        Special::LanemaskLe => (2u64 << lane) - 1,
        Special::LanemaskLt => (1u64 << lane) - 1,
        Special::LanemaskGe => u64::from(u32::MAX << lane),
        Special::LanemaskGt => u64::from(((u64::from(u32::MAX)) << (lane + 1)) as u32),
        Special::TotalSmemSize | Special::AggrSmemSize => u64::from(info.shared_bytes),
        Special::DynamicSmemSize => u64::from(info.launch.dynamic_shared),
        Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::GlobalTimer
        | Special::GlobalTimerLo
        | Special::GlobalTimerHi
        | Special::ClusterCtaid(_)
        | Special::ClusterCtarank
        | Special::IsExplicitCluster
        | Special::Zero => 0,
    }
}

/// What a clock register reads; one instruction of any thread is one cycle and one nanosecond.
fn clock(special: Special, now: u64) -> Option<u64> {
    match special {
        Special::Clock | Special::GlobalTimerLo => Some(now & 0xffff_ffff),
        Special::ClockHi | Special::GlobalTimerHi => Some(now >> 32),
        Special::Clock64 | Special::GlobalTimer => Some(now),
        _ => None,
    }
}

/// Runs a thread until just before its next operation that others can notice. If it is at such an
/// operation, that one is done first, except those that need more than the thread itself: these
/// are left to the caller, the thread still at them.
///
/// It has `turns` such turns, one after the other. Also returns how many it had before the one
/// that ended with the step.
pub(super) fn turn<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    index: u32,
    turns: u32,
) -> (Result<Step, Stop>, u32) {
    let Some(mut runner) = Runner::of(env, cta, index) else {
        return (Ok(Step::Exit), 0);
    };
    let mut left = turns;
    let step = runner.run(&mut left);
    let executed = runner.executed;
    env.instructions += executed;
    (step, (turns - left).saturating_sub(1))
}

/// A thread and all that its operations reach.
pub(super) struct Runner<'r, 'a, 'd, D> {
    pub(super) env: &'r mut Env<'a, 'd, D>,
    pub(super) info: &'r CtaInfo<'a>,
    pub(super) shared: &'r mut Shared,
    pub(super) thread: &'r mut ThreadState,
    executed: u64,
}

impl<'r, 'a, 'd, D: Detector> Runner<'r, 'a, 'd, D> {
    /// For an operation of a thread of a CTA; `None` if there is no such thread.
    pub(super) fn of(
        env: &'r mut Env<'a, 'd, D>,
        cta: &'r mut CtaState<'a>,
        index: u32,
    ) -> Option<Runner<'r, 'a, 'd, D>> {
        Some(Runner {
            env,
            info: &cta.info,
            shared: &mut cta.shared,
            thread: cta.threads.get_mut(index as usize)?,
            executed: 0,
        })
    }

    #[inline(always)]
    pub(super) fn value(&self, operand: Operand) -> u64 {
        value(self.env.program, self.info, self.thread, operand)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, reg: Reg, value: u64) {
        set(self.thread, reg, value);
    }

    fn predicate(&self, predicate: PredicateOperand) -> bool {
        (self.value(predicate.operand) & 1 != 0) != predicate.negated
    }

    fn run(&mut self, turns: &mut u32) -> Result<Step, Stop> {
        let program = self.env.program;
        let mut turn_began = self.executed;
        loop {
            let pc = self.thread.pc;
            let Some(inst) = program.code.get(pc as usize) else {
                return Ok(Step::Exit);
            };
            if let Some(guard) = inst.guard {
                let predicate = self.value(Operand::Reg(guard.predicate)) & 1 != 0;
                if predicate == guard.negated {
                    self.executed += 1;
                    self.thread.pc += 1;
                    continue;
                }
            }
            if is_visible(&inst.op) {
                if *turns == 0 {
                    return Ok(Step::Ready);
                }
                *turns -= 1;
                turn_began = self.executed;
            } else if self.executed - turn_began >= LONGEST_TURN {
                return Ok(Step::Yielded);
            }
            self.executed += 1;
            match inst.op {
                Op::Nop => {}
                Op::Move { dst, src } => {
                    let value = match src {
                        Operand::Special(special) => {
                            clock(special, self.env.instructions + self.executed)
                                .unwrap_or_else(|| self.value(src))
                        }
                        _ => self.value(src),
                    };
                    self.set(dst, value);
                }
                Op::Unary { f, dst, a } => {
                    let value = f.eval(self.value(a));
                    self.set(dst, value);
                }
                Op::Binary { f, dst, a, b } => {
                    let (a, b) = (self.value(a), self.value(b));
                    if f.divides_by_zero(b) {
                        return Err(FaultKind::DivisionByZero.into());
                    }
                    self.set(dst, f.eval(a, b));
                }
                Op::Ternary { f, dst, a, b, c } => {
                    let value = f.eval(self.value(a), self.value(b), self.value(c));
                    self.set(dst, value);
                }
                Op::Quaternary { f, dst, sources } => {
                    if let [a, b, c, d] = *program.operands_of(sources) {
                        let value =
                            f.eval(self.value(a), self.value(b), self.value(c), self.value(d));
                        self.set(dst, value);
                    }
                }
                Op::Carry { f, dst, a, b, c } => {
                    let carry = self.thread.carry;
                    let (value, flag) = f.eval(self.value(a), self.value(b), self.value(c), carry);
                    self.thread.carry = flag;
                    self.set(dst, value);
                }
                Op::Pack { dst, bits, sources } => self.pack(dst, bits, sources),
                Op::Unpack { dst, bits, source } => self.unpack(dst, bits, source),
                Op::SetPredicate {
                    test,
                    dst,
                    other,
                    a,
                    b,
                    combine,
                } => {
                    let (mut p, mut q) = test.eval(self.value(a), self.value(b));
                    if let Some((combine, predicate)) = combine {
                        let with = self.predicate(predicate);
                        p = combine.eval(p, with);
                        q = combine.eval(q, with);
                    }
                    self.set(dst, u64::from(p));
                    if let Some(other) = other {
                        self.set(other, u64::from(q));
                    }
                }
                Op::Set {
                    test,
                    result,
                    dst,
                    a,
                    b,
                    combine,
                } => {
                    let (mut p, mut q) = test.eval(self.value(a), self.value(b));
                    if let Some((combine, predicate)) = combine {
                        let with = self.predicate(predicate);
                        p = combine.eval(p, with);
                        q = combine.eval(q, with);
                    }
                    self.set(dst, result.encode(p, q));
                }
                Op::Select {
                    dst,
                    a,
                    b,
                    predicate,
                } => {
                    let chosen = if self.value(predicate) & 1 != 0 { a } else { b };
                    let value = self.value(chosen);
                    self.set(dst, value);
                }
                Op::ConvertAddress {
                    dst,
                    a,
                    space,
                    to_space,
                } => {
                    let address = self.value(a);
                    let converted = if to_space {
                        address.wrapping_sub(to_generic(space, 0))
                    } else {
                        to_generic(space, address)
                    };
                    self.set(dst, converted);
                }
                Op::IsSpace { dst, a, space } => {
                    let (actual, address) = from_generic(self.value(a));
                    let constant =
                        actual == MemorySpace::Global && self.env.memory.is_read_only(address);
                    let holds = match space {
                        MemorySpace::Const => constant,
                        MemorySpace::Global => actual == MemorySpace::Global && !constant,
                        _ => actual == space,
                    };
                    self.set(dst, u64::from(holds));
                }
                Op::Branch { target } => {
                    self.thread.pc = target;
                    if target <= pc
                        && let Some(step) = self.branched_back(target)
                    {
                        return Ok(step);
                    }
                    continue;
                }
                Op::BranchTable { index, table } => {
                    let table = &program.tables[table as usize];
                    let index = self.value(index) & 0xffff_ffff;
                    let Some(&target) = table.get(index as usize) else {
                        return Err(FaultKind::BranchIndex {
                            index,
                            len: table.len(),
                        }
                        .into());
                    };
                    self.thread.pc = target;
                    if target <= pc
                        && let Some(step) = self.branched_back(target)
                    {
                        return Ok(step);
                    }
                    continue;
                }
                Op::Call(call) => {
                    self.call(call)?;
                    continue;
                }
                Op::Return => {
                    if !self.return_() {
                        return Ok(Step::Exit);
                    }
                    continue;
                }
                Op::Exit => return Ok(Step::Exit),
                Op::Trap => return Err(FaultKind::Trap.into()),
                Op::Breakpoint => return Err(FaultKind::Breakpoint.into()),
                Op::Sleep => {
                    self.thread.pc += 1;
                    return Ok(Step::Yielded);
                }
                Op::Load {
                    dst,
                    address,
                    access,
                } => self.load(dst, address, access)?,
                Op::Store {
                    sources,
                    address,
                    access,
                } => self.store(sources, address, access)?,
                Op::Atomic {
                    rmw,
                    dst,
                    sources,
                    address,
                    access,
                } => self.atomic(rmw, dst, sources, address, access)?,
                Op::Fence { kind, scope } => self.env.detector.on(&Event::Fence {
                    thread: self.thread.id,
                    kind,
                    scope,
                })?,
                Op::Barrier { .. } | Op::ClusterBarrier { .. } => return Ok(Step::Barrier),
                Op::Collective { .. } => return Ok(Step::Collective),
                Op::CopyAsync {
                    to,
                    from,
                    bytes,
                    source_bytes,
                    ignore_source,
                } => self.copy_async(to, from, bytes, source_bytes, ignore_source)?,
                Op::Mbarrier {
                    action,
                    address,
                    space,
                } => self.mbarrier(action, address, space)?,
                Op::PendingCount { dst, state } => {
                    let count = pending_count(self.value(state));
                    self.set(dst, count);
                }
                Op::CommitGroup => self.commit_group(),
                Op::WaitGroup(newest) => self.wait_group(newest as usize)?,
                Op::WaitAll => {
                    self.commit_group();
                    self.wait_group(0)?;
                }
                Op::LaunchDependents => {
                    self.thread.pc += 1;
                    return Ok(Step::LaunchDependents);
                }
                Op::GridDependencyWait => return Ok(Step::GridWait),
            }
            self.thread.pc += 1;
        }
    }

    /// Ends the turn after a round of a loop that polls.
    fn branched_back(&mut self, target: u32) -> Option<Step> {
        match self.thread.spin.back(target) {
            Round::Progress => None,
            Round::Alike => {
                let digest = self.thread.digest();
                Some(Step::Polled {
                    stuck: self.thread.spin.round(digest, self.env.generation),
                })
            }
        }
    }

    fn pack(&mut self, dst: Regs, bits: u8, sources: Operands) {
        let program = self.env.program;
        let mut packed = 0u128;
        for (index, &source) in program.operands_of(sources).iter().enumerate() {
            let part = u128::from(self.value(source)) & low_bits(bits);
            packed |= part
                .checked_shl(index as u32 * u32::from(bits))
                .unwrap_or(0);
        }
        for (index, &reg) in program.registers_of(dst).iter().take(2).enumerate() {
            self.set(reg, (packed >> (64 * index)) as u64);
        }
    }

    fn unpack(&mut self, dst: Regs, bits: u8, source: Operands) {
        let program = self.env.program;
        let mut packed = 0u128;
        for (index, &source) in program.operands_of(source).iter().take(2).enumerate() {
            packed |= u128::from(self.value(source)) << (64 * index);
        }
        for (index, &reg) in program.registers_of(dst).iter().enumerate() {
            let part = packed
                .checked_shr(index as u32 * u32::from(bits))
                .unwrap_or(0);
            self.set(reg, (part & low_bits(bits)) as u64);
        }
    }

    fn call(&mut self, number: u32) -> Result<(), Stop> {
        let program = self.env.program;
        let call = &program.calls[number as usize];
        let callee = match &call.callee {
            Callee::Direct(function) => *function,
            Callee::Indirect {
                pointer,
                candidates,
            } => {
                let address = self.value(*pointer);
                *candidates
                    .iter()
                    .find(|f| function_address(f.0) == address)
                    .ok_or(FaultKind::BadCallee(address))?
            }
            Callee::Builtin(builtin) => {
                self.builtin(*builtin, call)?;
                self.thread.pc += 1;
                return Ok(());
            }
        };
        let function = &program.functions[callee.0 as usize];
        let thread = &mut *self.thread;
        let registers = thread.registers.len();
        let local = thread.local.len().next_multiple_of(16);
        let needed = (registers + function.registers as usize) * 8
            + local
            + function.local_bytes as usize
            + thread.frames.len() * 32;
        let limit = self.env.limits.stack_bytes;
        if needed > limit as usize {
            return Err(FaultKind::StackOverflow(limit).into());
        }
        thread
            .registers
            .resize(registers + function.registers as usize, 0);
        thread.local.resize(local + function.local_bytes as usize);
        for transfer in &call.arguments {
            self.transfer(*transfer, (registers, local));
        }
        let thread = &mut *self.thread;
        thread.frames.push(Frame {
            pc: thread.pc + 1,
            call: number,
            registers: thread.register_base,
            local: thread.local_base,
        });
        thread.register_base = registers;
        thread.local_base = local;
        thread.pc = function.code.start;
        Ok(())
    }

    /// Moves bytes from the running frame to the one whose registers and local memory begin at
    /// `to`.
    fn transfer(&mut self, transfer: Transfer, (registers, local): (usize, usize)) {
        let bytes = transfer.bytes as usize;
        match (transfer.from, transfer.to) {
            (Storage::Local(from), Storage::Local(to)) => {
                let from = self.thread.local_base + from as usize;
                let to = local + to as usize;
                let memory = &mut self.thread.local;
                if memory.contains(from, bytes) && memory.contains(to, bytes) {
                    memory.copy(from, to, bytes);
                }
            }
            (from, to) => {
                let word = self.storage(from, bytes);
                self.put(to, word, bytes, (registers, local));
            }
        }
    }

    /// Writes a word to a place in the frame whose registers and local memory begin as given.
    fn put(&mut self, to: Storage, word: u64, bytes: usize, (registers, local): (usize, usize)) {
        match to {
            Storage::Local(offset) => {
                let start = local + offset as usize;
                let bytes = bytes.min(8);
                if self.thread.local.contains(start, bytes) {
                    self.thread.local.write(start, &word.to_le_bytes()[..bytes]);
                }
            }
            Storage::Value(Operand::Reg(reg)) => {
                self.thread.registers[registers + reg.0 as usize] = word;
            }
            Storage::Value(_) => {}
        }
    }

    /// The value of a place in the running frame.
    fn storage(&self, storage: Storage, bytes: usize) -> u64 {
        match storage {
            Storage::Value(operand) => self.value(operand),
            Storage::Local(offset) => {
                let start = self.thread.local_base + offset as usize;
                let mut word = [0; 8];
                let bytes = bytes.min(8);
                if self.thread.local.contains(start, bytes) {
                    self.thread.local.read(start, &mut word[..bytes]);
                }
                u64::from_le_bytes(word)
            }
        }
    }

    /// Returns to the caller; false if there is none.
    fn return_(&mut self) -> bool {
        let Some(frame) = self.thread.frames.pop() else {
            return false;
        };
        for transfer in &self.env.program.calls[frame.call as usize].results {
            self.transfer(*transfer, (frame.registers, frame.local));
        }
        let thread = &mut *self.thread;
        thread.registers.truncate(thread.register_base);
        thread.local.resize(thread.local_base);
        thread.register_base = frame.registers;
        thread.local_base = frame.local;
        thread.pc = frame.pc;
        true
    }

    fn builtin(&mut self, builtin: Builtin, call: &Call) -> Result<(), Stop> {
        let argument = |runner: &Self, index: usize| {
            call.arguments
                .get(index)
                .map_or(0, |t| runner.storage(t.from, t.bytes as usize))
        };
        match builtin {
            Builtin::Vprintf => {
                let format = self.string(argument(self, 0))?;
                let values = argument(self, 1);
                let mut printed = Printed::default();
                let conversions = printf::print(&format, &mut printed, &mut |request| {
                    self.printf_argument(values, request)
                })?;
                // A byte of text is at least an instruction's work, which the budget must end.
                self.executed += printed.bytes();
                self.env.printed.append(&printed);
                let frame = (self.thread.register_base, self.thread.local_base);
                for result in &call.results {
                    self.put(result.to, conversions, result.bytes as usize, frame);
                }
                Ok(())
            }
            Builtin::AssertFail => Err(FaultKind::Assert {
                message: self.string(argument(self, 0))?,
                file: self.string(argument(self, 1))?,
                line: argument(self, 2) as u32,
                function: self.string(argument(self, 3))?,
            }
            .into()),
        }
    }
}

fn low_bits(bits: u8) -> u128 {
    if bits >= 128 {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}

/// Whether other threads can notice the operation, or notice when it is done.
fn is_visible(op: &Op) -> bool {
    match op {
        Op::Load { access, .. } | Op::Store { access, .. } | Op::Atomic { access, .. } => matches!(
            access.space,
            MemorySpace::Generic | MemorySpace::Global | MemorySpace::Shared
        ),
        Op::Fence { .. }
        | Op::Barrier { .. }
        | Op::ClusterBarrier { .. }
        | Op::Collective { .. }
        | Op::CopyAsync { .. }
        | Op::Mbarrier { .. }
        | Op::WaitGroup(_)
        | Op::WaitAll
        | Op::LaunchDependents
        | Op::GridDependencyWait => true,
        _ => false,
    }
}
