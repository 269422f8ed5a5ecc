//! Registers, constants, symbols and special registers as operands.

use std::ops::Range;

/// A register: its number in the frame of the function it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u32);

/// A constant: its position in [`Program::constants`](super::Program::constants).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConstId(pub u32);

/// The space whose base a symbol's offset is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolSpace {
    /// `.global` and `.const` variables: the device's copy of
    /// [`Program::data`](super::Program::data).
    Global,
    /// The shared memory of the CTA.
    Shared,
    /// The local memory of the frame.
    Local,
    /// The parameters of the entry.
    Param,
    /// The address of a function; the offset is its number in
    /// [`Program::functions`](super::Program::functions).
    Function,
}

/// A component of a three-dimensional special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// The first.
    X,
    /// The second.
    Y,
    /// The third.
    Z,
}

/// A special register (PTX ISA, "Special Registers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Special {
    /// `%tid`
    Tid(Axis),
    /// `%ntid`
    Ntid(Axis),
    /// `%ctaid`
    Ctaid(Axis),
    /// `%nctaid`
    Nctaid(Axis),
    /// `%laneid`
    LaneId,
    /// `%warpid`
    WarpId,
    /// `%nwarpid`
    NWarpId,
    /// `%smid`
    SmId,
    /// `%nsmid`
    NSmId,
    /// `%gridid`
    GridId,
    /// `%is_explicit_cluster`
    IsExplicitCluster,
    /// `%clusterid`
    ClusterId(Axis),
    /// `%nclusterid`
    NClusterId(Axis),
    /// `%cluster_ctaid`
    ClusterCtaid(Axis),
    /// `%cluster_nctaid`
    ClusterNctaid(Axis),
    /// `%cluster_ctarank`
    ClusterCtarank,
    /// `%cluster_nctarank`
    ClusterNctarank,
    /// `%lanemask_eq`
    LanemaskEq,
    /// `%lanemask_le`
    LanemaskLe,
    /// `%lanemask_lt`
    LanemaskLt,
    /// `%lanemask_ge`
    LanemaskGe,
    /// `%lanemask_gt`
    LanemaskGt,
    /// `%clock`, the low half of `%clock64`
    Clock,
    /// `%clock_hi`
    ClockHi,
    /// `%clock64`
    Clock64,
    /// `%globaltimer`
    GlobalTimer,
    /// `%globaltimer_lo`
    GlobalTimerLo,
    /// `%globaltimer_hi`
    GlobalTimerHi,
    /// `%total_smem_size`
    TotalSmemSize,
    /// `%dynamic_smem_size`
    DynamicSmemSize,
    /// `%aggr_smem_size`
    AggrSmemSize,
    /// `%reserved_smem_offset_begin` and its like, `%envreg`, `%pm`, `%current_graph_exec`: what
    /// reads as 0 here.
    Zero,
}

/// A source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant.
    Const(ConstId),
    /// The address of a variable in its own space, as an offset from the start of the space.
    Symbol(SymbolSpace, u32),
    /// A special register.
    Special(Special),
}

/// A stretch of one of the program's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct List {
    start: u32,
    len: u32,
}

impl List {
    /// `len` elements from `start`.
    pub(super) fn new(start: u32, len: u32) -> List {
        List { start, len }
    }

    /// The positions in the table.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// How many elements there are.
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A list of source operands, kept in [`Program::operands`](super::Program::operands).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operands(pub List);

/// A list of destination registers, kept in [`Program::registers`](super::Program::registers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Regs(pub List);
