//! The host's own work in streams: steps that a small kernel does.

/// Kinds of steps.
pub mod step_codes {
    constants! { "GSAN_STEP_":
        /// Merges `count` clock entries from `source` into `target`.
        pub const MERGE: u32 = 0;
        /// Copies `count` words of 64 bits.
        pub const COPY: u32 = 1;
        /// Zeroes `count` words of 32 bits.
        pub const ZERO: u32 = 2;
        /// Counts up from `value` in `count` words of 32 bits, `stride` bytes apart.
        pub const COUNT: u32 = 3;
        /// Stores `value`, a u32, after everything before: a system-scope release.
        pub const ARRIVE: u32 = 4;
        /// Waits for `count` ranks: at `source` there are pairs of u64, a rank and the address of its
        /// u32. Ranks that have not come to `value` after `limit` get a bit in the u32 at `target`,
        /// and the steps after this one are left out.
        pub const AWAIT: u32 = 5;
    }
}

structure! {
    /// One step. In pinned memory.
    pub struct Step = "gsan_step", size 64, align 64 {
        /// `GSAN_STEP_*`.
        pub kind: u32,
        /// How many words or entries.
        pub count: u32,
        /// What is written.
        pub target: u64,
        /// What is read.
        pub source: u64,
        /// A u32 that is 0 while the source is empty; 0: there is none.
        pub source_filled: u64,
        /// A u32 that becomes 1 when an entry was merged; 0: there is none.
        pub target_filled: u64,
        /// A number.
        pub value: u32,
        /// Bytes from one word to the next.
        pub stride: u32,
        /// A time limit in nanoseconds.
        pub limit: u64,
        /// 0.
        pub reserved: u64,
    }
}
