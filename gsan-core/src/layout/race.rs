//! Races on their way to the host, and the texts that name them.

/// Numbers in a race entry.
pub mod race_codes {
    constants! { "GSAN_RACE_":
        /// Kind: the later access reads what the earlier one wrote.
        pub const READ_AFTER_WRITE: u32 = 0;
        /// Kind: the later access writes what the earlier one read.
        pub const WRITE_AFTER_READ: u32 = 1;
        /// Kind: both write.
        pub const WRITE_AFTER_WRITE: u32 = 2;
        /// Kind: a second write to write-once memory.
        pub const WRITTEN_TWICE: u32 = 3;
        /// Kind: a read of write-once memory before its first write.
        pub const READ_UNWRITTEN: u32 = 4;
        /// Kind: an atomic on write-once memory.
        pub const WRITE_ONCE_ATOMIC: u32 = 5;
        /// Flag of an entry: an opaque launch may have ordered the two.
        pub const POSSIBLE: u32 = 1;
        /// Flag of a side: launch and CTA are not known any more.
        pub const FORGOTTEN: u32 = 1;
        /// Flag of a side: an asynchronous copy.
        pub const ASYNCHRONOUS: u32 = 2;
        /// Action of a side: it read.
        pub const READ: u32 = 1;
        /// Action of a side: it wrote. With `GSAN_RACE_READ`: an atomic that does both.
        pub const WRITE: u32 = 2;
    }
}

/// Numbers of a site.
pub mod site_codes {
    constants! { "GSAN_SITE_":
        /// Flag: clusters copied tensors here, whose parts any CTA of the cluster may have moved.
        pub const CLUSTER_COPY: u32 = 1;
    }
}

structure! {
    /// One side of a race.
    pub struct RaceSide = "gsan_race_side", size 20, align 4 {
        /// The number of the launch on the device.
        pub launch: u32,
        /// The position of the CTA in the grid.
        pub cta: u32,
        /// The epoch of the access.
        pub epoch: u32,
        /// The thread id.
        pub thread: u16,
        /// The site, in the table of the side's device; 0: unknown.
        pub site: u16,
        /// The device rank.
        pub device: u8,
        /// Read, write or both.
        pub action: u8,
        /// Scope of an atomic, as in a record.
        pub scope: u8,
        /// `GSAN_RACE_FORGOTTEN`, `GSAN_RACE_ASYNCHRONOUS`.
        pub flags: u8,
    }
}

structure! {
    /// One race. The device takes a place in the ring, fills it, and writes `stamp` last.
    pub struct RaceEntry = "gsan_race_entry", size 64, align 64 {
        /// The index of the entry plus 1, never taken modulo; anything else: not there yet.
        pub stamp: u64,
        /// The first byte that both sides touched.
        pub address: u64,
        /// The granule's bytes that both sides touched.
        pub mask: u8,
        /// What happened.
        pub kind: u8,
        /// `GSAN_RACE_POSSIBLE`.
        pub flags: u16,
        /// How many more of its kind the device saw since it last told of one.
        pub repeats: u32,
        /// What was found in the cell.
        pub earlier: RaceSide,
        /// The access that found it.
        pub later: RaceSide,
    }
}

structure! {
    /// The head of the race ring; its entries follow. In memory of the host.
    pub struct RaceRing = "gsan_race_ring", size 256, align 128 {
        /// How many places devices have taken.
        pub head: u64,
        /// How many races found the ring full.
        pub dropped: u64,
        /// How many entries there are, a power of two.
        pub capacity: u64,
        /// 0.
        pub reserved: [u64; 13],
        /// How many entries the host has read; a line of its own, since the host writes it.
        pub tail: u64,
        /// 0.
        pub reserved_tail: [u64; 15],
    }
}

structure! {
    /// A source location. The table is open-addressed by `key`; an entry's place is its number.
    pub struct Site = "gsan_site", size 32, align 32 {
        /// A hash of file and line, never 0; 0: free. Claimed by compare-and-swap.
        pub key: u64,
        /// Where the file's name starts in the site texts.
        pub text: u32,
        /// How many bytes it has.
        pub bytes: u32,
        /// The line, from 1; 0 if unknown.
        pub line: u32,
        /// 1 once the other fields are there.
        pub ready: u32,
        /// `GSAN_SITE_CLUSTER_COPY`. In the device's own table only.
        pub flags: u32,
        /// 0.
        pub reserved: u32,
    }
}

structure! {
    /// The head of a copy of a device's site table in memory of the host, which outlives the device's
    /// context. `sites` entries of [`Site`] follow, by number, then the file names, `text_bytes` bytes.
    /// The device copies each site that it adds to its own table: name, entry, and `ready` last, released
    /// at system scope. It reads nothing here but this head.
    pub struct SiteMirror = "gsan_site_mirror", size 128, align 128 {
        /// `GSAN_STATE_MAGIC`, written last when the host sets it up.
        pub magic: u32,
        /// `GSAN_STATE_VERSION`.
        pub version: u32,
        /// How many sites there is room for, the unknown site 0 included.
        pub sites: u32,
        /// How many bytes of file names there is room for.
        pub text_bytes: u32,
        /// 0.
        pub reserved: [u64; 14],
    }
}

structure! {
    /// The name of a kernel, by its number.
    pub struct KernelName = "gsan_kernel_name", size 16, align 16 {
        /// Where the name starts in the kernel texts.
        pub text: u32,
        /// How many bytes it has; 0: no such kernel.
        pub bytes: u32,
        /// `GSAN_LAUNCH_OPAQUE` if its code contains synchronisation nobody reports.
        pub flags: u32,
        /// 0.
        pub reserved: u32,
    }
}
