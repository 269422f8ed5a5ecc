//! Launches, the CTAs that run, and the history of those that ran.

/// Flags of a launch.
pub mod launch_flags {
    constants! { "GSAN_LAUNCH_":
        /// Launched with the programmatic attribute: it starts with its predecessor's own
        /// starting frontier.
        pub const DEPENDENT: u32 = 1;
        /// Its kernel contains synchronisation nobody reports.
        pub const OPAQUE: u32 = 2;
        /// Its bank is shared with another stream.
        pub const SHARED_BANK: u32 = 4;
        /// Part of a graph.
        pub const GRAPH: u32 = 8;
    }
}

structure! {
    /// What the host says of a launch. In pinned memory: a CTA reads it once, at its start, as one
    /// line, from [`LaunchState`] if another CTA has left a copy there. Addresses are those of the
    /// launching process; 0 means none.
    pub struct LaunchDescriptor = "gsan_launch_descriptor", size 128, align 128 {
        /// The frontier's row of the own bank.
        pub own_row: u64,
        /// The frontier's row over all ids: what earlier launches of the stream acquired.
        pub foreign_row: u64,
        /// The frontier's rows of other banks: an address for every block of
        /// `GSAN_STATE_BLOCK` thread ids, each of a row whose entries start at the block.
        pub row_table: u64,
        /// The completion row of the own bank.
        pub own_done: u64,
        /// The completion row over all ids.
        pub foreign_done: u64,
        /// The own-bank row to use after `griddepcontrol.wait`: the predecessor's completion.
        pub waited_own: u64,
        /// The foreign row to use after `griddepcontrol.wait`.
        pub waited_foreign: u64,
        /// The descriptor of the launch before, if this one or that one is dependent.
        pub previous: u64,
        /// The [`LaunchState`], in device memory.
        pub state: u64,
        /// The slot masks of the bank, one u32 per SM.
        pub slot_masks: u64,
        /// The number of the launch on its device; never reused between restarts.
        pub number: u32,
        /// How many CTAs the grid has.
        pub ctas: u32,
        /// `GSAN_LAUNCH_*`.
        pub flags: u32,
        /// The kernel's number in the table of names.
        pub kernel: u32,
        /// The first thread id of the own bank.
        pub bank_first: u16,
        /// The number of the own bank.
        pub bank: u16,
        /// How many slots the bank has: slots per SM times SMs.
        pub slots: u32,
        /// How many slots an SM has.
        pub slots_per_sm: u32,
        /// The restart generation it was launched in.
        pub generation: u32,
        /// The stream, as numbered by the host.
        pub stream: u32,
        /// 0.
        pub reserved: [u32; 3],
    }
}

structure! {
    /// What the CTAs of a launch tell each other. In device memory.
    pub struct LaunchState = "gsan_launch_state", size 256, align 128 {
        /// CTAs that started.
        pub started: u32,
        /// CTAs that exited. When it reaches the number of CTAs the completion rows are final.
        pub exited: u32,
        /// 1 once a CTA has taken on to carry the frontier's rows over to the completion.
        pub carried: u32,
        /// 1 once a CTA has waited for the predecessor and carries the waited rows over.
        pub waited: u32,
        /// The snapshot of the launch's frontier: its index plus 2 when it is made, 1 while the
        /// first publisher makes it, 0 before.
        pub frontier_snapshot: u64,
        /// The launch whose descriptor is copied below: its number plus 1, written last.
        pub copied: u32,
        /// CTAs that ran unchecked because no slot was free.
        pub unchecked: u32,
        /// 0.
        pub reserved: [u64; 12],
        /// A copy of the descriptor.
        pub descriptor: LaunchDescriptor,
    }
}

/// Flags of a resident CTA, and special values of its fields.
pub mod thread_flags {
    constants! { "GSAN_THREAD_":
        /// It found no slot and runs unchecked.
        pub const NO_SLOT: u32 = 1;
        /// Everything counts as ordered before it until it exits.
        pub const EVERYTHING: u32 = 2;
        /// It waited for the predecessor of its launch.
        pub const WAITED: u32 = 4;
        /// It made an access since its last publication that is no part of it.
        pub const DIRTY: u32 = 8;
        /// It is at the last epoch: its accesses count as ordered.
        pub const WORN: u32 = 16;
        /// How many starts the history keeps of each thread id.
        pub const HISTORY: u32 = 64;
    }
}

structure! {
    /// A resident CTA. In its shared memory, or in the state region by SM in kernels that need all
    /// shared memory for themselves.
    pub struct ThreadState = "gsan_thread_state", size 128, align 128 {
        /// The frontier's row of the own bank, or the waited one.
        pub own_row: u64,
        /// The private clock, an address; 0: it knows no more than the frontier.
        pub private_clock: u64,
        /// The frontier's foreign row, or the waited one; 0: nothing is in it.
        pub foreign_row: u64,
        /// The frontier's rows of other banks; 0: there are none.
        pub row_table: u64,
        /// `E`: the epoch of its accesses.
        pub epoch: u32,
        /// `S`: the epoch at which it started.
        pub start: u32,
        /// Its thread id.
        pub thread: u16,
        /// The first thread id of its bank.
        pub bank_first: u16,
        /// How many slots its bank has.
        pub slots: u32,
        /// `GSAN_THREAD_*`.
        pub flags: u32,
        /// Taken, once per warp, to merge into, make or switch a clock.
        pub lock: u32,
        /// How often the private clock has changed.
        pub clock_changes: u32,
        /// The value of `clock_changes` in the last snapshot.
        pub snapshot_changes: u32,
        /// Its last publication: the token plus 1.
        pub last_token: u64,
        /// Its last snapshot: the index plus 1.
        pub last_snapshot: u64,
        /// The launch descriptor.
        pub descriptor: u64,
        /// The [`LaunchState`].
        pub state: u64,
        /// The number of the launch.
        pub launch: u32,
        /// The position of the CTA in the grid.
        pub cta: u32,
        /// Accesses checked; added to the device's count at exit.
        pub accesses: u32,
        /// Warps that are inside an exit call.
        pub exiting: u32,
        /// 0.
        pub reserved: [u64; 2],
    }
}

structure! {
    /// One start of a CTA. Each thread id has a ring of `GSAN_THREAD_HISTORY` of them, which its owner
    /// alone writes: an access at epoch `e` was made by the CTA with the newest start not after `e`.
    pub struct HistoryEntry = "gsan_history_entry", size 16, align 16 {
        /// The epoch at which it started; 0: none.
        pub epoch: u32,
        /// The number of its launch.
        pub launch: u32,
        /// Its position in the grid.
        pub cta: u32,
        /// How many CTAs started on this thread id before.
        pub index: u32,
    }
}
