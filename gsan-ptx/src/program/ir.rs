//! Decoded operations.

use crate::alu::compare::{Combine, SetResult, Test};
use crate::alu::integer::CarryOp;
use crate::alu::matrix::{LoadMatrix, Mma};
use crate::alu::{Binary, Quaternary, Rmw, Ternary, Unary};
use crate::program::operand::{Operand, Operands, Reg, Regs};
use crate::program::symbols::FunctionId;
use gsan_core::event::FenceKind;
use gsan_core::scope::{Order, Scope};

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inst {
    /// The predicate it is executed under, if any.
    pub guard: Option<Guard>,
    /// What it does.
    pub op: Op,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub predicate: Reg,
    /// `@!p`.
    pub negated: bool,
}

/// A predicate used as a source, `p` or `!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredicateOperand {
    /// The predicate.
    pub operand: Operand,
    /// `!p`.
    pub negated: bool,
}

/// The state space of a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemorySpace {
    /// None was written: the address says which one it is.
    Generic,
    /// `.global`
    Global,
    /// `.shared` (`.shared::cta`; `.shared::cluster` without clusters is the same)
    Shared,
    /// `.local`, and `.param` of device functions and call sequences
    Local,
    /// `.const`
    Const,
    /// `.param` of the entry
    Param,
}

/// How an element of memory is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// Its size: 1, 2, 4, 8 or 16 bytes.
    pub bytes: u8,
    /// Loads extend the sign.
    pub signed: bool,
}

/// The memory side of a load, store or atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// Where.
    pub space: MemorySpace,
    /// Each element; a vector has several, one after the other.
    pub element: Element,
    /// Weak, or strong with an order.
    pub order: Order,
    /// The scope of a strong access.
    pub scope: Scope,
}

/// `[base + offset]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A register, a symbol, or a constant.
    pub base: Operand,
    /// Added to it, wrapping.
    pub offset: i64,
}

/// An operation; each variant names its PTX instructions.
///
/// Instructions without an effect here (`prefetch`, `discard`, `pragma`, `setmaxnreg`,
/// `applypriority`, ...) are [`Op::Nop`]; `createpolicy` is a move of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing.
    Nop,
    /// `mov` of one register (also predicates and 64-bit words), `cvta.to.global`, `cvta.global`
    /// and `cvta.const`: generic and global addresses are the same.
    Move {
        /// Where to.
        dst: Reg,
        /// From where.
        src: Operand,
    },
    /// A function of one operand.
    Unary {
        /// Which function.
        f: Unary,
        /// The result.
        dst: Reg,
        /// The operand.
        a: Operand,
    },
    /// A function of two operands. Integer division by zero is a fault.
    Binary {
        /// Which function.
        f: Binary,
        /// The result.
        dst: Reg,
        /// The first operand.
        a: Operand,
        /// The second operand.
        b: Operand,
    },
    /// A function of three operands.
    Ternary {
        /// Which function.
        f: Ternary,
        /// The result.
        dst: Reg,
        /// The first operand.
        a: Operand,
        /// The second operand.
        b: Operand,
        /// The third operand.
        c: Operand,
    },
    /// A function of four operands.
    Quaternary {
        /// Which function.
        f: Quaternary,
        /// The result.
        dst: Reg,
        /// The four operands.
        sources: Operands,
    },
    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: integers with the carry flag.
    Carry {
        /// Which one.
        f: CarryOp,
        /// The result.
        dst: Reg,
        /// The first operand.
        a: Operand,
        /// The second operand.
        b: Operand,
        /// The addend of `mad`; not read otherwise.
        c: Operand,
    },
    /// `mov` that packs several registers of `bits` bits into one, low first.
    Pack {
        /// The result; two registers for 128 bits.
        dst: Regs,
        /// The width of each source.
        bits: u8,
        /// The sources.
        sources: Operands,
    },
    /// `mov` that unpacks one register into several of `bits` bits, low first.
    Unpack {
        /// The results; a register that nobody reads stands for `_`.
        dst: Regs,
        /// The width of each result.
        bits: u8,
        /// The source: one operand, two for 128 bits.
        source: Operands,
    },
    /// `setp`
    SetPredicate {
        /// The comparison.
        test: Test,
        /// `p`; for packed types the result of the low half.
        dst: Reg,
        /// `q`: the complement, combined likewise; for packed types the result of the high half.
        other: Option<Reg>,
        /// The first operand.
        a: Operand,
        /// The second operand.
        b: Operand,
        /// `.and`, `.or`, `.xor` with a predicate.
        combine: Option<(Combine, PredicateOperand)>,
    },
    /// `set`
    Set {
        /// The comparison.
        test: Test,
        /// How true and false are written.
        result: SetResult,
        /// The result.
        dst: Reg,
        /// The first operand.
        a: Operand,
        /// The second operand.
        b: Operand,
        /// `.and`, `.or`, `.xor` with a predicate.
        combine: Option<(Combine, PredicateOperand)>,
    },
    /// `selp`
    Select {
        /// The result.
        dst: Reg,
        /// Taken when the predicate is true.
        a: Operand,
        /// Taken when it is false.
        b: Operand,
        /// The predicate.
        predicate: Operand,
    },
    /// `cvta.shared`, `cvta.local`, `cvta.param`, and back
    ConvertAddress {
        /// The result.
        dst: Reg,
        /// The address.
        a: Operand,
        /// The space it is, or will be, in.
        space: MemorySpace,
        /// `cvta.to`: from generic to the space.
        to_space: bool,
    },
    /// `isspacep`
    IsSpace {
        /// The predicate.
        dst: Reg,
        /// A generic address.
        a: Operand,
        /// The space asked for.
        space: MemorySpace,
    },
    /// `bra`
    Branch {
        /// The number of the next instruction.
        target: u32,
    },
    /// `brx.idx`
    BranchTable {
        /// The position in the table; beyond its end is a fault.
        index: Operand,
        /// The position in [`Program::tables`](super::Program::tables).
        table: u32,
    },
    /// `call`; the position in [`Program::calls`](super::Program::calls).
    Call(u32),
    /// `ret`; from an entry the thread exits.
    Return,
    /// `exit`
    Exit,
    /// `trap`
    Trap,
    /// `brkpt`
    Breakpoint,
    /// `nanosleep`: lets others run.
    Sleep,
    /// `ld`, `ldu`, `ld.param`, `ld.const`
    Load {
        /// One register for each element (two for 16-byte elements).
        dst: Regs,
        /// Where from.
        address: Address,
        /// How.
        access: MemoryAccess,
    },
    /// `st`, `st.param`
    Store {
        /// One operand for each element (two for 16-byte elements).
        sources: Operands,
        /// Where to.
        address: Address,
        /// How.
        access: MemoryAccess,
    },
    /// `atom` and `red`; a vector form is one atomic for each element.
    Atomic {
        /// What is done to each element.
        rmw: Rmw,
        /// Where the old values go; empty for `red`.
        dst: Regs,
        /// One operand for each element; for compare-and-swap the comparand, then the new value;
        /// 16-byte elements take two operands each.
        sources: Operands,
        /// Where.
        address: Address,
        /// How.
        access: MemoryAccess,
    },
    /// `fence`, `membar`
    Fence {
        /// What it orders.
        kind: FenceKind,
        /// How far it reaches.
        scope: Scope,
    },
    /// `bar{.cta}`, `barrier{.cta}`
    Barrier {
        /// What is done there.
        kind: BarrierKind,
        /// The barrier's number.
        id: Operand,
        /// How many threads take part; all threads of the CTA without it.
        threads: Option<Operand>,
        /// All threads of a warp execute it together.
        aligned: bool,
    },
    /// `barrier.cluster`; a cluster of one CTA.
    ClusterBarrier {
        /// `.arrive` only.
        arrives: bool,
        /// `.wait` only; both for neither qualifier.
        waits: bool,
        /// Not `.relaxed`.
        releases: bool,
    },
    /// An operation that lanes of a warp do together.
    Collective {
        /// What they do.
        kind: Collective,
        /// The results; see each kind.
        dst: Regs,
        /// The sources; see each kind.
        sources: Operands,
    },
    /// `cp.async.ca/cg.shared.global`
    CopyAsync {
        /// In shared memory.
        to: Address,
        /// In global memory.
        from: Address,
        /// How many bytes are written: 4, 8 or 16.
        bytes: u8,
        /// How many bytes are read; the rest is 0.
        source_bytes: Option<Operand>,
        /// `ignore-src`: nothing is read.
        ignore_source: Option<Operand>,
    },
    /// `mbarrier`, and `cp.async.mbarrier.arrive`
    Mbarrier {
        /// What is done to the object.
        action: MbarrierAction,
        /// Where the object is.
        address: Address,
        /// `Shared`, or `Generic`.
        space: MemorySpace,
    },
    /// `mbarrier.pending_count`
    PendingCount {
        /// The result.
        dst: Reg,
        /// What an arrival returned.
        state: Operand,
    },
    /// `cp.async.commit_group`
    CommitGroup,
    /// `cp.async.wait_group N`: all but the newest `N` groups.
    WaitGroup(u32),
    /// `cp.async.wait_all`
    WaitAll,
    /// `griddepcontrol.launch_dependents`
    LaunchDependents,
    /// `griddepcontrol.wait`
    GridDependencyWait,
}

/// What is done to an mbarrier object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierAction {
    /// `.init`
    Init {
        /// The arrivals that a phase needs.
        count: Operand,
    },
    /// `.inval`
    Invalidate,
    /// `.expect_tx`
    ExpectTx {
        /// Transactions that the running phase waits for in addition.
        transactions: Operand,
    },
    /// `.complete_tx`
    CompleteTx {
        /// Transactions that are done.
        transactions: Operand,
    },
    /// `.arrive`, `.arrive_drop`
    Arrive {
        /// Where the state before the arrival goes.
        state: Reg,
        /// How many arrivals it stands for, or transactions to expect before one arrival.
        amount: Operand,
        /// Which arrival.
        kind: Arrival,
        /// `.arrive_drop`: later phases need as many arrivals fewer.
        drops: bool,
        /// Not `.relaxed`.
        releases: bool,
    },
    /// `.test_wait`, `.try_wait`
    Wait {
        /// Whether the phase is complete.
        done: Reg,
        /// The phase: its parity, or what an arrival at it returned.
        phase: Operand,
        /// `.parity`
        parity: bool,
        /// Not `.relaxed`.
        acquires: bool,
    },
    /// `cp.async.mbarrier.arrive`
    CopyArrive {
        /// Without `.noinc`: one more arrival is pending before.
        increments: bool,
    },
}

/// The forms of `mbarrier.arrive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// The amount is a count.
    Counted,
    /// `.noComplete`: counted, and must not complete the phase.
    NoComplete,
    /// `.expect_tx`: the amount is of transactions.
    ExpectTx,
}

/// What a thread does at a CTA barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// `.sync`
    Sync,
    /// `.arrive`
    Arrive,
    /// `.red`
    Reduce {
        /// How predicates are combined.
        op: BarrierReduction,
        /// The result.
        dst: Reg,
        /// What this thread contributes.
        predicate: PredicateOperand,
    },
}

/// The operation of `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierReduction {
    /// `.popc`: how many are true.
    Count,
    /// `.and`
    And,
    /// `.or`
    Or,
}

/// What lanes of a warp do together. Where there is a member mask it is the last source. All
/// lanes named by it must execute the same kind with the same mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// `bar.warp.sync`; sources: mask.
    WarpBarrier,
    /// `shfl.sync`; results: value, and optionally a predicate; sources: value, lane, clamp, mask.
    Shuffle(Shuffle),
    /// `vote.sync`; result; sources: predicate, mask.
    Vote {
        /// Which vote.
        vote: Vote,
        /// The source is `!p`.
        negated: bool,
    },
    /// `match.any.sync`, `match.all.sync`; results: mask, and optionally a predicate; sources:
    /// value, mask.
    Match {
        /// `.all` rather than `.any`.
        all: bool,
        /// `.b64` rather than `.b32`.
        wide: bool,
    },
    /// `activemask`; result: mask.
    ActiveMask,
    /// `elect.sync`; results: leader's lane, predicate; sources: mask.
    Elect,
    /// `redux.sync`; result; sources: value, mask.
    Redux(Rmw),
    /// `mma.sync`; results: D; sources: A, B, C. All lanes take part.
    Mma(Mma),
    /// `ldmatrix`; results: 1, 2 or 4 registers; sources: base and constant offset of the row's
    /// address. All lanes take part.
    LoadMatrix(LoadMatrix),
    /// `stmatrix`; sources: base and constant offset of the row's address, then 1, 2 or 4
    /// registers. All lanes take part.
    StoreMatrix(LoadMatrix),
    /// `movmatrix.sync.aligned.m8n8.trans.b16`; result; source. All lanes take part.
    MoveMatrix,
}

/// The mode of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// `.up`
    Up,
    /// `.down`
    Down,
    /// `.bfly`
    Butterfly,
    /// `.idx`
    Index,
}

/// The mode of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// `.all`
    All,
    /// `.any`
    Any,
    /// `.uni`: all alike
    Uniform,
    /// `.ballot`: one bit for each lane
    Ballot,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who is called.
    pub callee: Callee,
    /// From the caller's frame to the callee's. For a builtin each is one argument, in order, and
    /// its `to` is not used.
    pub arguments: Vec<Transfer>,
    /// From the callee's frame to the caller's. For a builtin `from` is not used.
    pub results: Vec<Transfer>,
}

/// Who is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A device function.
    Direct(FunctionId),
    /// A device function through a register that holds its address. Its frame must place
    /// parameters where the call's transfers say; functions of one prototype do.
    Indirect {
        /// The address.
        pointer: Operand,
        /// The functions it may be.
        candidates: Vec<FunctionId>,
    },
    /// A function that the system provides.
    Builtin(Builtin),
}

/// A function that the system provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `vprintf(format, arguments)`, both generic addresses.
    Vprintf,
    /// `__assertfail(message, file, line, function, char size)`.
    AssertFail,
}

/// Bytes that go from one frame to another in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where from.
    pub from: Storage,
    /// Where to.
    pub to: Storage,
    /// How many bytes; at most 8 where a register takes part.
    pub bytes: u32,
}

/// A place in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A register; as a source also any other operand.
    Value(Operand),
    /// Local memory, from the start of the frame's.
    Local(u32),
}
