//! The device sources as a program of the host: built once, fed with commands.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gsan_core::address::{AddressSpace, Records};

/// Commands for the program, in order; it reads them all, then its answers are taken.
pub(crate) struct Driver {
    records: Records,
    lanes: u32,
    sanitized: bool,
    commands: Vec<u64>,
}

impl Driver {
    /// The build whose cells have `records` records.
    pub(crate) fn new(records: Records) -> Driver {
        Self::with_lanes(records, 1)
    }

    /// The build whose warps have `lanes` lanes: 1 or 32.
    pub(crate) fn with_lanes(records: Records, lanes: u32) -> Driver {
        Driver {
            records,
            lanes,
            sanitized: false,
            commands: Vec::new(),
        }
    }

    /// Whether there is a compiler for [`Driver::sanitized`].
    pub(crate) fn can_be_sanitized() -> bool {
        let place = tempfile::NamedTempFile::new().unwrap();
        Command::new("clang++-19")
            .args(["-fsanitize=thread", "-x", "c++", "-", "-o"])
            .arg(place.path())
            .stdin(Stdio::from({
                let mut source = tempfile::tempfile().unwrap();
                source.write_all(b"int main() { return 0; }\n").unwrap();
                std::io::Seek::rewind(&mut source).unwrap();
                source
            }))
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// The build in which ThreadSanitizer watches.
    pub(crate) fn sanitized(records: Records) -> Driver {
        Driver {
            sanitized: true,
            ..Self::new(records)
        }
    }

    /// How many records its cells have.
    pub(crate) const fn records(&self) -> Records {
        self.records
    }

    fn push(&mut self, command: u64, arguments: &[u64]) -> &mut Self {
        self.commands.push(command);
        self.commands.extend(arguments);
        self
    }

    /// Maps `bytes` zeroes at `address`.
    pub(crate) fn map(&mut self, address: u64, bytes: u64) -> &mut Self {
        self.push(0, &[address, bytes])
    }

    pub(crate) fn write(&mut self, address: u64, words: &[u64]) -> &mut Self {
        self.push(1, &[address, words.len() as u64]);
        self.commands.extend(words);
        self
    }

    /// Answers with `words` words at `address`.
    pub(crate) fn read(&mut self, address: u64, words: u64) -> &mut Self {
        self.push(2, &[address, words])
    }

    /// Answers with the words of the cells of `granules` granules from `real` on.
    pub(crate) fn read_cells(
        &mut self,
        space: &AddressSpace,
        real: u64,
        granules: u64,
    ) -> &mut Self {
        for granule in 0..granules {
            for pair in 0..space.records().count() / 2 {
                self.read(space.word(real + 8 * granule, 2 * pair), 2);
            }
        }
        self
    }

    /// Sets the words of the cell of the granule at `real`.
    pub(crate) fn write_cell(
        &mut self,
        space: &AddressSpace,
        real: u64,
        words: &[u64],
    ) -> &mut Self {
        for (pair, words) in words.chunks(2).enumerate() {
            self.write(space.word(real, 2 * pair), words);
        }
        self
    }

    pub(crate) fn covers(&mut self, entry: u32, epoch: u32) -> &mut Self {
        self.push(3, &[entry.into(), epoch.into()])
    }

    pub(crate) fn hull(&mut self, a: u32, b: u32) -> &mut Self {
        self.push(4, &[a.into(), b.into()])
    }

    pub(crate) fn number(&mut self, seed: u32, granule: u64, record: u64) -> &mut Self {
        self.push(5, &[seed.into(), granule, record])
    }

    /// One access to one cell. Answers with the words it races with, the limit met, the cell.
    pub(crate) fn cell(
        &mut self,
        (seed, granule): (u32, u64),
        (record, action): (u64, u32),
        known: &[(u16, u32)],
        words: &[u64],
    ) -> &mut Self {
        let count = known.len() as u64;
        self.push(6, &[seed.into(), granule, record, action.into(), count]);
        for &(thread, entry) in known {
            self.commands.extend([u64::from(thread), u64::from(entry)]);
        }
        self.commands.extend(words);
        self
    }

    /// A load or a store of elements of `bytes` bytes.
    pub(crate) fn tensor(
        &mut self,
        globals: u64,
        write: bool,
        (file, line): (u64, u32),
        bytes: u32,
        elements: &[(u64, bool)],
    ) -> &mut Self {
        let count = elements.len() as u64;
        self.push(
            7,
            &[
                write.into(),
                globals,
                file,
                line.into(),
                bytes.into(),
                count,
            ],
        );
        self.commands
            .extend(elements.iter().map(|element| element.0));
        for masks in elements.chunks(8) {
            let mut bytes = [0; 8];
            for (byte, element) in bytes.iter_mut().zip(masks) {
                *byte = element.1.into();
            }
            self.commands.push(u64::from_le_bytes(bytes));
        }
        self
    }

    /// What follows runs on SM `sm`, as the CTA at `index` of its grid.
    pub(crate) fn place(&mut self, sm: u32, index: u64) -> &mut Self {
        self.push(8, &[sm.into(), index])
    }

    /// The CTAs that follow begin at warp `warp` of their SM.
    pub(crate) fn warp_of_sm(&mut self, warp: u32) -> &mut Self {
        self.push(33, &[warp.into()])
    }

    pub(crate) fn init(&mut self, globals: u64, table: u64, index: u64) -> &mut Self {
        self.push(9, &[globals, table, index])
    }

    pub(crate) fn exit(&mut self, globals: u64) -> &mut Self {
        self.push(10, &[globals])
    }

    pub(crate) fn wait(&mut self, globals: u64) -> &mut Self {
        self.push(11, &[globals])
    }

    /// An atomic begins whose event is number `event`; `order` is Triton's memory order and scope.
    pub(crate) fn begin(
        &mut self,
        event: u64,
        globals: u64,
        (address, bytes): (u64, u32),
        reads: bool,
        order: (u32, u32),
        (file, line): (u64, u32),
    ) -> &mut Self {
        let (sem, scope) = (order.0.into(), order.1.into());
        self.push(
            12,
            &[
                event,
                globals,
                address,
                bytes.into(),
                reads.into(),
                sem,
                scope,
                file,
                line.into(),
            ],
        )
    }

    /// The atomic ends.
    pub(crate) fn end(
        &mut self,
        event: u64,
        (wrote, is_rmw): (bool, bool),
        order: (u32, u32),
        (file, line): (u64, u32),
    ) -> &mut Self {
        let (sem, scope) = (order.0.into(), order.1.into());
        self.push(
            13,
            &[
                event,
                wrote.into(),
                is_rmw.into(),
                sem,
                scope,
                file,
                line.into(),
            ],
        )
    }

    /// What follows is done by the thread at `index` of its CTA.
    pub(crate) fn thread(&mut self, index: u32) -> &mut Self {
        self.push(14, &[index.into()])
    }

    /// Adds the foreign row of a completion to the rows of a frontier of `bank`.
    pub(crate) fn add_completion(
        &mut self,
        globals: u64,
        bank: u32,
        [own, foreign]: [u64; 2],
        completed: u64,
    ) -> &mut Self {
        self.push(15, &[globals, bank.into(), own, foreign, completed])
    }

    /// Adds a row of `slots` entries to another one.
    pub(crate) fn add_row(&mut self, target: u64, source: u64, slots: u32) -> &mut Self {
        self.push(16, &[target, source, slots.into()])
    }

    /// Every lane of a warp begins an atomic at its address, if it has one. Events are counted from
    /// `event` on. 32 lanes only, as the next three.
    pub(crate) fn warp_begin(
        &mut self,
        event: u64,
        globals: u64,
        (bytes, reads): (u32, bool),
        (sem, scope): (u32, u32),
        (file, line): (u64, u32),
        addresses: &[Option<u64>; 32],
    ) -> &mut Self {
        let mask = lanes(addresses);
        self.push(17, &[globals, bytes.into(), reads.into()]);
        let rest = [sem.into(), scope.into(), file, line.into(), mask.into()];
        self.commands.extend(rest);
        self.commands.extend(addresses.iter().flatten());
        self.commands.push(event);
        self
    }

    /// The atomics of the lanes of `mask` end; those of `wrote` wrote.
    pub(crate) fn warp_end(
        &mut self,
        event: u64,
        (mask, wrote, is_rmw): (u32, u32, bool),
        (sem, scope): (u32, u32),
        (file, line): (u64, u32),
    ) -> &mut Self {
        self.push(18, &[is_rmw.into(), sem.into(), scope.into(), file]);
        self.commands.extend([line, mask, wrote].map(u64::from));
        self.commands.push(event);
        self
    }

    /// Every lane of a warp loads or stores one of consecutive elements, if it has an address.
    pub(crate) fn warp_tensor(
        &mut self,
        globals: u64,
        write: bool,
        (file, line): (u64, u32),
        bytes: u32,
        addresses: &[Option<u64>; 32],
    ) -> &mut Self {
        let mask = lanes(addresses);
        self.push(19, &[write.into(), globals, file]);
        self.commands.extend([line, bytes, mask].map(u64::from));
        // Lanes whose element is masked off have an address, too.
        let first = |(lane, address): (usize, &Option<u64>)| {
            address.map(|address| address - lane as u64 * u64::from(bytes))
        };
        let first = addresses.iter().enumerate().find_map(first).unwrap_or(0);
        self.commands
            .extend((0..32).map(|lane| first + lane * u64::from(bytes)));
        self
    }

    /// `count` host threads that are CTAs of one launch take the lock at `lock` `rounds` times each, add to
    /// the 32 bytes at `data`, and unlock with Triton's order `unlocks`; `mixed`: with atomics and
    /// ordinary accesses on the 32 bytes at `words` in between.
    pub(crate) fn threads(
        &mut self,
        globals: u64,
        (table, index): (u64, u64),
        file: u64,
        [lock, words, data]: [u64; 3],
        unlocks: u32,
        (count, rounds, mixed): (u32, u32, bool),
    ) -> &mut Self {
        self.push(21, &[globals, table, index, file, lock, words, data]);
        self.commands
            .extend([unlocks, count, rounds, mixed.into()].map(u64::from));
        self
    }

    /// Answers with what happened since it was last asked: fences that reach beyond the CTA, and
    /// accesses to global memory whose result is waited for.
    pub(crate) fn costs(&mut self) -> &mut Self {
        self.push(22, &[])
    }

    /// The CTAs of a cluster, each an SM and a position in the grid, meet `times` times. With lanes, in an
    /// order that `seed` decides unless it is 0.
    pub(crate) fn cluster_sync(
        &mut self,
        globals: u64,
        scratch: u64,
        (times, seed): (u64, u32),
        ctas: &[(u32, u64)],
    ) -> &mut Self {
        self.push(23, &[globals, scratch, times, seed.into()]);
        self.places(ctas)
    }

    fn places(&mut self, ctas: &[(u32, u64)]) -> &mut Self {
        self.commands.push(ctas.len() as u64);
        let places = ctas.iter().flat_map(|&(sm, index)| [sm.into(), index]);
        self.commands.extend(places);
        self
    }

    pub(crate) fn mbarrier_table_init(&mut self, table: u64, capacity: u32) -> &mut Self {
        self.push(24, &[table, capacity.into()])
    }

    /// The mbarrier at `offset` of the CTA of rank `owner` expects `expected` arrivals.
    pub(crate) fn mbarrier_init(
        &mut self,
        table: u64,
        (offset, owner): (u32, u32),
        expected: u32,
    ) -> &mut Self {
        self.push(25, &[table, offset.into(), owner.into(), expected.into()])
    }

    /// `count` arrivals at the mbarriers of the CTAs in `recipients`.
    pub(crate) fn mbarrier_arrive(
        &mut self,
        globals: u64,
        table: u64,
        (offset, recipients): (u32, u32),
        (count, publishes): (u32, bool),
    ) -> &mut Self {
        self.push(26, &[globals, table, offset.into(), recipients.into()]);
        self.commands.extend([count.into(), u64::from(publishes)]);
        self
    }

    /// A wait for the phase of parity `phase` has returned.
    pub(crate) fn mbarrier_wait(
        &mut self,
        globals: u64,
        table: u64,
        (offset, owner): (u32, u32),
        phase: u32,
    ) -> &mut Self {
        self.push(
            27,
            &[globals, table, offset.into(), owner.into(), phase.into()],
        )
    }

    /// CTAs write to the granule at `data` one after the other, `rounds` times, handing it over through an
    /// mbarrier each.
    pub(crate) fn ring_of_mbarriers(
        &mut self,
        globals: u64,
        table: u64,
        (data, file): (u64, u64),
        rounds: u64,
        ctas: &[(u32, u64)],
    ) -> &mut Self {
        self.push(28, &[globals, table, data, file, rounds]);
        self.places(ctas)
    }

    /// The copy of a box by all `warps` warps of each of `ctas`, which are a cluster if there are several.
    pub(crate) fn copy_box(
        &mut self,
        kind: Copy,
        [globals, map]: [u64; 2],
        (file, line): (u64, u32),
        (bytes, warps): (u32, u32),
        (coordinates, shape): (&[i32], &[u16]),
        ctas: &[(u32, u64)],
    ) -> &mut Self {
        self.push(29, &[kind as u64, globals, map, file, line.into()]);
        self.commands
            .extend([bytes.into(), warps.into(), shape.len() as u64]);
        self.commands
            .extend(coordinates.iter().map(|&index| i64::from(index) as u64));
        self.commands
            .extend(shape.iter().map(|&size| u64::from(size)));
        self.places(ctas)
    }

    /// A gather or a scatter of `columns` elements from column `first` on, of some rows, by one warp.
    pub(crate) fn copy_rows(
        &mut self,
        stores: bool,
        [globals, map]: [u64; 2],
        (file, line): (u64, u32),
        bytes: u32,
        (first, columns): (i32, u32),
        rows: &[i32],
    ) -> &mut Self {
        self.push(30, &[stores.into(), globals, map, file, line.into()]);
        self.commands
            .extend([bytes.into(), i64::from(first) as u64, columns.into()]);
        self.commands.push(rows.len() as u64);
        self.commands
            .extend(rows.iter().map(|&row| i64::from(row) as u64));
        self
    }

    /// `warps` warps of a partition store a word a thread at `data` in line 2, if `waits` after having waited
    /// for the predecessor of the launch, while the default group, of one warp, stores before it. In an
    /// order that follows from the seed. 32 lanes only.
    pub(crate) fn partition(
        &mut self,
        globals: u64,
        (data, file): (u64, u64),
        waits: bool,
        (warps, seed): (u32, u32),
    ) -> &mut Self {
        self.push(31, &[globals, data, file, waits.into()]);
        self.commands.extend([warps, seed].map(u64::from));
        self
    }

    /// In each of `rounds` rounds one warp of each CTA stores at the same time as the others: the CTA of a grid
    /// of `grid` on SM `i` an element of `bytes` bytes for each lane of `lanes`, side by side from `first[i]`
    /// on. A round has memory of its own, 512 bytes on, and an order that follows from its number. Answers
    /// in how many rounds a race was told. 32 lanes only.
    pub(crate) fn stores_at_once(
        &mut self,
        globals: u64,
        file: u64,
        (grid, rounds): (u64, u32),
        (bytes, lanes): (u32, u32),
        first: &[u64],
    ) -> &mut Self {
        self.push(32, &[globals, file, grid]);
        self.commands.extend([rounds, bytes, lanes].map(u64::from));
        self.commands.push(first.len() as u64);
        self.commands.extend(first);
        self
    }

    /// From now on lanes are parted at random.
    pub(crate) fn split_warps(&mut self, seed: u32) -> &mut Self {
        self.push(20, &[seed.into()])
    }

    /// Runs the commands.
    pub(crate) fn answers(&self) -> Vec<u64> {
        let mut input = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = self.commands.iter().flat_map(|w| w.to_le_bytes()).collect();
        input.write_all(&bytes).unwrap();
        std::io::Seek::rewind(&mut input).unwrap();
        let output = Command::new(program(self.records, self.lanes, self.sanitized))
            .stdin(Stdio::from(input))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        output.stdout.chunks_exact(8).map(word).collect()
    }
}

/// What a copy of a box does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Load = 0,
    Store = 1,
    Reduce = 2,
}

/// The lanes that have an address.
pub(crate) fn lanes(addresses: &[Option<u64>; 32]) -> u32 {
    let lanes = addresses.iter().enumerate();
    lanes.fold(0, |mask, (lane, address)| {
        mask | u32::from(address.is_some()) << lane
    })
}

/// The program, compiled unless a build of the same sources is there.
fn program(records: Records, lanes: u32, sanitized: bool) -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = [top.join("include"), top.join("../gsan-core/include")];
    let driver = top.join("tests/host/driver.cc");
    let warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"];
    let mut arguments = ["-std=c++17", "-O1", "-pthread"].map(String::from).to_vec();
    arguments.extend(warnings.map(String::from));
    arguments.push("-DGSAN_HOST".into());
    arguments.push(format!("-DGSAN_RECORDS={}", records.count()));
    arguments.push(format!("-DGSAN_LANES={lanes}"));
    if sanitized {
        arguments.extend(["-fsanitize=thread", "-g"].map(String::from));
    }
    for path in &include {
        arguments.extend(["-I".into(), path.display().to_string()]);
    }
    arguments.push(driver.display().to_string());

    let mut hasher = DefaultHasher::new();
    arguments.hash(&mut hasher);
    let mut sources = vec![driver, top.join("device/triton.cu")];
    for path in &include {
        let files = path.join("gsan").read_dir().unwrap();
        sources.extend(files.map(|file| file.unwrap().path()));
    }
    sources.sort();
    for source in sources {
        std::fs::read(source).unwrap().hash(&mut hasher);
    }

    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = place.join(format!("driver-{:016x}", hasher.finish()));
    if !program.exists() {
        // Tests are processes of their own and may build at the same time.
        let new = tempfile::NamedTempFile::new_in(place)
            .unwrap()
            .into_temp_path();
        // Of the compilers that know ThreadSanitizer, the one that builds the device libraries.
        let compiler = if sanitized { "clang++-19" } else { "c++" };
        let output = Command::new(compiler)
            .args(&arguments)
            .arg("-o")
            .arg(&new)
            .output()
            .unwrap_or_else(|error| panic!("{compiler} is needed: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        new.persist(&program).unwrap();
    }
    program
}
