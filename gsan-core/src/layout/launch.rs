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
        /// Of the rows carried over: the frontier's.
        pub const FRONTIER_CARRIED: u32 = 1 << 31;
        /// In `cluster`: all CTAs of the launch count as one cluster.
        pub const ONE_CLUSTER: u32 = u32::MAX;
        /// In the launch index that a kernel is given, the lowest bit of the launch's number plus
        /// 1, or of 0 where it is not known beforehand (graphs); below lies the entry of the table
        /// of descriptors.
        pub const INDEX_NUMBER_SHIFT: u32 = 32;
    }
}

structure! {
    /// What the host says of a launch. In pinned memory: a CTA copies it once, at its start, as one
    /// line, from [`LaunchState`] if the launch's first CTA has left a copy there. Addresses are those of the
    /// launching process; 0 means none.
    pub struct LaunchDescriptor = "gsan_launch_descriptor", size 128, align 128 {
        /// The frontier's row of the own bank.
        pub own_row: u64,
        /// The frontier's row over all ids: what earlier launches of the stream acquired.
        pub foreign_row: u64,
        /// The frontier's rows of other banks: a table of addresses by bank, counted over all devices.
        pub named_rows: u64,
        /// The completion row of the own bank.
        pub own_done: u64,
        /// The completion row over all ids.
        pub foreign_done: u64,
        /// [`Overtaken`]: the launches that this one may overtake.
        pub overtaken: u64,
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
        /// The kernel's number in the table of names; 0: it has none.
        pub kernel: u32,
        /// The own bank, counted over all devices.
        pub bank: u32,
        /// The first thread id of the own bank.
        pub bank_first: u32,
        /// How many launches may be overtaken, at most 16.
        pub overtaken_count: u32,
        /// Which of them `griddepcontrol.wait` waits for, plus 1; 0: none.
        pub waits_for: u32,
        /// The restart generation it was launched in.
        pub generation: u32,
        /// The stream, as numbered by the host.
        pub stream: u32,
        /// The grid, in CTAs.
        pub grid: [u32; 3],
        /// 0.
        pub reserved: [u32; 3],
    }
}

structure! {
    /// A launch of the same stream that a dependent launch may overtake.
    pub struct Overtaken = "gsan_overtaken", size 32, align 32 {
        /// Its completion row of the own bank.
        pub own_row: u64,
        /// Its completion row over all ids.
        pub foreign_row: u64,
        /// Its [`LaunchState`].
        pub state: u64,
        /// How many CTAs its grid has.
        pub ctas: u32,
        /// 0.
        pub reserved: u32,
    }
}

structure! {
    /// What the CTAs of a launch tell each other. In device memory.
    pub struct LaunchState = "gsan_launch_state", size 256, align 128 {
        /// CTAs that started before the first one passed the descriptor on.
        pub started: u32,
        /// CTAs that exited. When it reaches the number of CTAs the completion rows are final.
        pub exited: u32,
        /// Which rows were carried over to the completion: a bit for each launch overtaken, and
        /// `GSAN_LAUNCH_FRONTIER_CARRIED`.
        pub carried: u32,
        /// The launch whose descriptor is copied below: its number plus 1, written last, by the CTA that
        /// started first.
        pub copied: u32,
        /// The snapshot of the starting frontier, once the first publisher has made it, as in
        /// [`ThreadState`].
        pub frontier: u64,
        /// CTAs that ran unchecked because no slot was free.
        pub unchecked: u32,
        /// How many CTAs, one after the other in the grid, a cluster has, once one has copied a tensor;
        /// `GSAN_LAUNCH_ONE_CLUSTER` if they do not lie so; 0: none has.
        pub cluster: u32,
        /// 0.
        pub reserved: [u32; 24],
        /// A copy of the descriptor.
        pub descriptor: LaunchDescriptor,
    }
}

/// Flags of a resident CTA.
pub mod thread_flags {
    constants! { "GSAN_THREAD_":
        /// It found no slot and runs unchecked.
        pub const NO_SLOT: u32 = 1;
        /// Everything counts as ordered before it until it exits.
        pub const EVERYTHING: u32 = 2;
        /// It waited for the predecessor of its launch.
        pub const WAITED: u32 = 4;
        /// Its clock changed since its last snapshot.
        pub const CHANGED: u32 = 8;
        /// It saw more sync words than are kept.
        pub const OVERFLOWED: u32 = 16;
        /// It made a fence that is not followed: whatever it writes by atomics releases.
        pub const FENCED: u32 = 32;
        /// How many sync words are kept that were acquired.
        pub const ACQUIRED: u32 = 4;
        /// How many sync words are kept that relaxed reads saw.
        pub const SEEN: u32 = 8;
        /// How many entries are kept that were looked up beyond the own bank's row of the frontier.
        pub const KNOWN: u32 = 4;
        /// In `published`: there is a publication.
        pub const PUBLISHED: u64 = 1 << 61;
        /// In `published`: the publication stands in the ring.
        pub const PUBLISHED_SAID: u64 = 1 << 62;
        /// Lowest bit of the epoch in `published`; the token lies below.
        pub const PUBLISHED_EPOCH_SHIFT: u32 = 37;
        /// In the snapshot of a frontier: it was made; the low bits of its index lie below, 0 if
        /// nothing is in it.
        pub const FRONTIER_MADE: u64 = 1 << 32;
        /// Lowest bit, in the snapshot of a frontier, of the launches overtaken that it includes.
        pub const FRONTIER_TAKEN_SHIFT: u32 = 33;
        /// In `acquired`: there is an entry. It lies at its publisher, modulo.
        pub const ACQUIRED_VALID: u64 = 1 << 63;
        /// In `acquired`: the publication stood in the ring, and is not joined, or there are no other devices.
        pub const ACQUIRED_PLAIN: u64 = 1 << 62;
        /// Lowest bit of the token in `acquired`; the publisher lies below.
        pub const ACQUIRED_TOKEN_SHIFT: u32 = 16;
    }
}

structure! {
    /// A resident CTA. In its shared memory, or in the state region by SM in kernels that need all
    /// shared memory for themselves. The first line is what accesses and releases look at.
    pub struct ThreadState = "gsan_thread_state", size 384, align 128 {
        /// The frontier's row of the own bank; if there is none, some other place.
        pub own_row: u64,
        /// The frontier's foreign row; 0: nothing is in it.
        pub foreign_row: u64,
        /// The frontier's rows of other banks; 0: there are none.
        pub named_rows: u64,
        /// The private clock; 0: it knows no more than the frontier.
        pub private_clock: u64,
        /// `E`: the epoch of its accesses.
        pub epoch: u32,
        /// `S`: the epoch at which it started.
        pub start: u32,
        /// Its thread id plus 1; 0: it has no slot.
        pub id: u32,
        /// Its bank, counted over all devices.
        pub bank: u32,
        /// The first thread id of its bank.
        pub bank_first: u32,
        /// How many slots its bank's row has; 0: there is no row.
        pub slots: u32,
        /// `GSAN_THREAD_*`.
        pub flags: u32,
        /// Which launches overtaken it knows to be complete, a bit each.
        pub taken: u32,
        /// The newest epoch at which an access was made or the clock changed.
        pub touched: u32,
        /// Taken, once per warp, to merge into, make, switch or publish a clock.
        pub lock: u32,
        /// Its newest snapshot: the low bits of the index; 0: none.
        pub snapshot: u32,
        /// Accesses checked; added to the device's count at exit.
        pub accesses: u32,
        /// The name of the checkpoint that is part of its clock; 0: none is.
        pub checkpoint: u32,
        /// Where its newest atomic load was, as a fingerprint of the position; 0: nowhere.
        pub load_position: u32,
        /// Its newest publication, as `GSAN_THREAD_PUBLISHED` says; 0: none.
        pub published: u64,
        /// The snapshot of its frontier with the launches overtaken that it knows to be complete.
        pub frontier: u64,
        /// The [`LaunchState`]; 0: the launch is not known, and nothing is checked.
        pub state: u64,
        /// Where an atomic announced itself in vain, address and position as a fingerprint, above the epoch;
        /// 0: nowhere.
        pub in_vain: u64,
        /// The sync words it acquired last, so as not to merge them again.
        pub acquired: [u64; 4],
        /// Its position in the grid: `x + y * grid.x + z * grid.x * grid.y`.
        pub coordinates: u64,
        /// Which rows it carries over to the completion, as in [`LaunchState`].
        pub carries: u32,
        /// Reads not kept because their cell was full; added to the device's losses at exit.
        pub not_sampled: u32,
        /// Records evicted because their cell was full; the same.
        pub evicted: u32,
        /// Where it made an atomic load as well as another atomic, as a fingerprint; 0: nowhere.
        pub mixed_position: u32,
        /// The newest strong read that left its cell as it was, and that cell, as a fingerprint; 0: it
        /// may do otherwise now.
        pub settled: u64,
        /// Whether it knows more than its own epochs and the row of its bank.
        pub more: u32,
        /// The seed of sampling.
        pub seed: u32,
        /// What it found last when it looked beyond its own bank's row of the frontier: the thread id
        /// above the entry.
        pub known: [u64; 4],
        /// Where the reservation, and with it shadow memory, begins.
        pub shadow_base: u64,
        /// Where real memory begins.
        pub real_base: u64,
        /// How many bytes of real memory have shadow.
        pub usable: u64,
        /// How many of them come before write-once memory.
        pub ordinary: u64,
        /// The launch.
        pub launch: LaunchDescriptor,
    }
}

/// Numbers in the history.
pub mod history {
    constants! { "GSAN_HISTORY_":
        /// Lowest bit of the launch's number, below the epoch.
        pub const LAUNCH_SHIFT: u32 = 8;
        /// The position in the grid, below the epoch.
        pub const COORDINATES_MASK: u64 = (1 << 40) - 1;
        /// Lowest bit of the epoch of the start.
        pub const START_SHIFT: u32 = 40;
    }
}

structure! {
    /// One start of a CTA. Each thread id has a ring of them, which the holder of the slot alone writes: an
    /// access at epoch `e` was made by the CTA with the newest start not after `e`. Both words have the
    /// epoch of the start; they are of one entry if it is the same.
    pub struct HistoryEntry = "gsan_history_entry", size 16, align 16 {
        /// The epoch and the launch's number; 0: none.
        pub start: u64,
        /// The epoch and the low bits of the position in the grid, as in [`ThreadState`].
        pub coordinates: u64,
    }
}
