//! The Triton fixtures of `gsan-ptx`, instrumented by Triton, against the exact detector at the unit of the
//! CTA, which is told in the same run what the program itself does. The library tells no race that the
//! exact detector lacks; of fixtures in which few CTAs read any granule it tells all; of the others it tells
//! the race that they are there for. Passed over where Triton is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use gsan_core::address::{AddressSpace, Records, granules};
use gsan_core::event::{Detector, Event, EventError, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, DeviceRank, StreamId};
use gsan_core::layout::race_codes::WRITE_AFTER_WRITE;
use gsan_core::loss::Losses;
use gsan_core::race::{self, RaceKind};
use gsan_device::{StateMemory, Variant};
use gsan_ptx::check::argument::Argument;
use gsan_ptx::check::spec::Spec;
use gsan_ptx::diagnostic::Source;
use gsan_ptx::exec::Setup;
use gsan_ptx::exec::launch::Launch;
use gsan_ptx::exec::schedule::Schedule;
use gsan_ptx::lower::lower;
use gsan_ptx::program::symbols::FunctionId;
use gsan_ptx::syntax::ast::Item;
use gsan_ptx::syntax::parse;

use crate::kernels::Module;
use crate::{device, found, limits, schedules};

/// Those that two atomics at once make race, and nothing else: the end of each finds the record of the
/// other younger than its own beginning and leaves it alone, and who reads the value takes the other's
/// announcement away. So the race is lost.
const LOST: [&str; 1] = ["reduce_cta"];

/// Those that cells of two records lose: two CTAs read what one of them writes.
const LOST_IN_SMALL_CELLS: [&str; 1] = ["stencil_tensor_in_place"];

/// Those that do not run to their end, and those with a barrier that threads reach by chance. One of these
/// polls in inline assembly, which nobody reports.
const PASSED_OVER: [&str; 4] = [
    "checked",
    "vadd_no_mask",
    "persistent_plain",
    "streamk_volatile_poll",
];

/// Those that are run always; the others with `GSAN_LONG`.
const QUICK: [&str; 4] = [
    "vadd",
    "vadd_overlap",
    "splitk_relaxed",
    "stencil_tensor_in_place",
];

/// Whether both sides write, and their lines in ascending order: which one comes first depends on the
/// schedule.
type Pair = (bool, [u32; 2]);

fn pair(both_write: bool, mut lines: [u32; 2]) -> Pair {
    lines.sort_unstable();
    (both_write, lines)
}

/// What was found in a run.
struct Ran {
    told: BTreeSet<Pair>,
    exact: BTreeSet<Pair>,
    /// How many CTAs read a granule at most.
    readers: usize,
}

/// The exact detector, told of what the program itself does: the library's accesses go elsewhere, and
/// its fences are no fences of the program, which has none.
struct OwnEvents {
    exact: Exact,
    space: AddressSpace,
    /// Who read each granule.
    readers: BTreeMap<u64, BTreeSet<Cta>>,
}

impl OwnEvents {
    fn new(space: AddressSpace) -> OwnEvents {
        OwnEvents {
            exact: Exact::new(Unit::Cta),
            space,
            readers: BTreeMap::new(),
        }
    }

    fn most_readers(&self) -> usize {
        self.readers.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    fn is_own(&self, event: &Event) -> bool {
        match event {
            Event::Fence { .. } => false,
            Event::Access(access) | Event::AtomicBegin(access) | Event::AtomicEnd(access) => {
                access.range.space == Space::Global && self.space.is_managed(access.range.address)
            }
            _ => true,
        }
    }
}

impl Detector for OwnEvents {
    fn on(&mut self, event: &Event) -> Result<(), EventError> {
        if !self.is_own(event) {
            return Ok(());
        }
        let reads = match event {
            Event::Access(access) if access.action.reads() => &[access.range],
            Event::AsyncIssue { reads, .. } => reads.as_slice(),
            _ => &[],
        };
        let reader = match event {
            Event::Access(access) => Some(access.thread.cta),
            Event::AsyncIssue { thread, .. } => Some(thread.cta),
            _ => None,
        };
        for range in reads {
            for part in granules(range.address, range.bytes.into()) {
                let readers = self.readers.entry(part.granule).or_default();
                readers.extend(reader);
            }
        }
        self.exact.on(event)
    }

    fn take_races(&mut self) -> Vec<race::Race> {
        self.exact.take_races()
    }

    fn losses(&self) -> Losses {
        self.exact.losses()
    }
}

struct Fixture {
    name: String,
    folder: PathBuf,
    spec: Spec,
    source: String,
    /// Its table `[expect]`.
    expected: toml::Table,
}

impl Fixture {
    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsan-ptx/fixtures/triton")
    }

    /// All of them, in order.
    fn all() -> Vec<Fixture> {
        let files = Fixture::folder().read_dir().unwrap();
        let mut names: Vec<String> = files
            .filter_map(|file| {
                let name = file.unwrap().file_name().into_string().unwrap();
                name.strip_suffix(".toml").map(str::to_owned)
            })
            .filter(|name| !PASSED_OVER.contains(&name.as_str()))
            .collect();
        names.sort();
        names.into_iter().map(Fixture::read).collect()
    }

    fn read(name: String) -> Fixture {
        let folder = Fixture::folder();
        let text = std::fs::read_to_string(folder.join(&name).with_extension("toml")).unwrap();
        let (arguments, _) = text.split_once("\n[expect]").unwrap();
        let spec = Spec::from_toml(&Source {
            file: &name,
            text: arguments,
        });
        let spec = spec.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let expected = text.parse::<toml::Table>().unwrap()["expect"].clone();
        let toml::Value::Table(expected) = expected else {
            panic!("{name}: [expect] is a table");
        };
        let source = folder.join(expected["source"].as_str().unwrap());
        Fixture {
            spec,
            source: std::fs::read_to_string(source).unwrap(),
            name,
            folder,
            expected,
        }
    }

    /// Whether it says that few CTAs read any granule.
    fn has_few_readers(&self) -> bool {
        self.expected.get("few_readers") == Some(&toml::Value::Boolean(true))
    }

    fn is_racy(&self) -> bool {
        self.expected["verdict"].as_str() == Some("race")
    }

    /// The lines of the race that it is there for.
    fn lines(&self) -> [u32; 2] {
        let marks = self.expected["markers"].as_array().unwrap();
        let line = |index: usize| self.line(marks[index].as_str().unwrap());
        pair(false, [line(0), line(1)]).1
    }

    fn line(&self, mark: &str) -> u32 {
        let mark = format!("@{mark}");
        let mut lines = (1..).zip(self.source.lines());
        lines.find(|(_, line)| line.ends_with(&mark)).unwrap().0
    }

    /// Runs the instrumented kernel `text`.
    fn run(&self, text: &str, records: Records, schedules: &[Schedule]) -> Vec<Ran> {
        let source = Source {
            file: &self.name,
            text,
        };
        let module = parse(&source).unwrap();
        let mut entries = module.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.entry => Some(function),
            _ => None,
        });
        let entry = entries.next().unwrap();
        let program = lower(source, &module, &[entry])
            .unwrap_or_else(|error| panic!("{}: {error:?}", self.name));
        let number = program.functions.iter().position(|f| f.entry).unwrap();
        let function = &program.functions[number];
        let (mut runtime, mut image) = device(records, limits().multiprocessors);
        let mut next = runtime.places.space.real_base();
        let mut buffers = Vec::new();
        for (index, buffer) in self.spec.buffers.iter().enumerate() {
            let contents = &buffer.contents;
            let init = &contents.init;
            let init = init.contents(contents.ty, contents.bytes, index, &self.folder);
            image.write(next, &init.unwrap());
            buffers.push(next);
            next = (next + contents.bytes).next_multiple_of(256);
        }
        let mut launches = Vec::new();
        for launch in &self.spec.launches {
            let ctas = launch.grid.iter().product();
            let announced = runtime.launch(Module::Pairs, 0, ctas);
            image.write(announced.address, bytemuck::bytes_of(&announced.descriptor));
            let own = launch.arguments.iter().map(|argument| match argument {
                Argument::Buffer { buffer, offset } => {
                    (buffers[*buffer] + offset).to_le_bytes().to_vec()
                }
                Argument::Scalar { bytes, .. } | Argument::Bytes(bytes) => bytes.clone(),
            });
            let hidden = announced.arguments.map(|word| word.to_le_bytes().to_vec());
            let mut params = vec![0; function.param_bytes as usize];
            // Behind these come two pointers to scratch memory, which these kernels do not use.
            for (param, bytes) in function.params.iter().zip(own.chain(hidden)) {
                assert_eq!(bytes.len(), param.bytes as usize, "{}", self.name);
                params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            launches.push(Launch {
                entry: FunctionId(number as u32),
                grid: launch.grid,
                block: function.reqntid.unwrap(),
                dynamic_shared: if function.dynamic_shared {
                    128 << 10
                } else {
                    0
                },
                params,
                device: DeviceRank(0),
                stream: StreamId(0),
                programmatic: false,
                waits: vec![],
                record: None,
                sync: false,
            });
        }
        let setup = Setup::new(&program, &image, &launches, limits()).unwrap();
        let run = |&schedule: &Schedule| {
            let mut own = OwnEvents::new(runtime.places.space);
            let outcome = setup.run(schedule, &mut own);
            assert_eq!(outcome.finding, None, "{}", self.name);
            let exact = outcome.races.iter().map(|(race, _)| {
                let lines =
                    [race.earlier.site, race.later.site].map(|site| program.place(site).line);
                pair(race.kind == RaceKind::WriteAfterWrite, lines)
            });
            let races = found(&runtime, &outcome);
            let told = races
                .told()
                .map(|race| pair(race.kind == WRITE_AFTER_WRITE, race.lines));
            Ran {
                told: told.collect(),
                exact: exact.collect(),
                readers: own.most_readers(),
            }
        };
        schedules.iter().map(run).collect()
    }

    /// What is wrong with what was found in runs under different schedules.
    fn judge(&self, runs: &[Ran], records: Records) -> Result<(), String> {
        let name = self.name.as_str();
        let mut told: BTreeSet<Pair> = BTreeSet::new();
        let mut exact: BTreeSet<Pair> = BTreeSet::new();
        for ran in runs {
            told.extend(&ran.told);
            exact.extend(&ran.exact);
            if !ran.told.is_subset(&ran.exact) {
                return Err(format!("{:?} in a run with {:?}", ran.told, ran.exact));
            }
        }
        let readers = runs.iter().map(|ran| ran.readers).max().unwrap_or(0);
        if (readers <= 2) != self.has_few_readers() {
            return Err(format!("a granule has {readers} readers"));
        }
        let small = records == Records::Two;
        if LOST.contains(&name) || small && LOST_IN_SMALL_CELLS.contains(&name) {
            return Ok(());
        }
        // Half of a cell for readers.
        if readers <= records.count() / 2 && told != exact {
            return Err(format!("{told:?}, exactly {exact:?}"));
        }
        if self.is_racy() && !told.iter().any(|found| found.1 == self.lines()) {
            return Err(format!("{told:?}, not at {:?}", self.lines()));
        }
        Ok(())
    }
}

/// A Python that has Triton 3.9.0: the one on the path, or that of `cargo xtask device --triton`.
fn python_with_triton() -> Option<PathBuf> {
    let check = "import triton; raise SystemExit(triton.__version__ != '3.9.0')";
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pythons = [
        PathBuf::from("python3"),
        top.join("target/triton/bin/python"),
    ]
    .into_iter();
    pythons.find(|python| {
        let output = Command::new(python).args(["-c", check]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Compiles fixtures with a library into `folder`; false if there is no Triton 3.9.0.
fn compile(variant: Variant, fixtures: &[Fixture], folder: &Path) -> bool {
    let Some(python) = python_with_triton() else {
        println!("skipped: no Python has triton 3.9.0");
        return false;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("tests/instrumented.py"))
        .arg(here.join("built").join(variant.file_name()))
        .arg(folder)
        .args(fixtures.iter().map(|fixture| &fixture.name))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    true
}

fn agree(records: Records) {
    let long = std::env::var_os("GSAN_LONG").is_some();
    let mut fixtures = Fixture::all();
    fixtures.retain(|fixture| long || QUICK.contains(&fixture.name.as_str()));
    let folder = tempfile::tempdir().unwrap();
    let variant = Variant::new(StateMemory::Shared, records);
    if !compile(variant, &fixtures, folder.path()) {
        return;
    }
    // Round-robin, at random, by priorities.
    let schedules: Vec<_> = schedules(if long { 3 } else { 1 }).collect();
    let mut failures = Vec::new();
    let mut equal = [0, 0];
    for fixture in &fixtures {
        let path = folder.path().join(&fixture.name).with_extension("ptx");
        let text = std::fs::read_to_string(path).unwrap();
        let runs = fixture.run(&text, records, &schedules);
        if let Err(error) = fixture.judge(&runs, records) {
            failures.push(format!("{}: {error}", fixture.name));
        }
        equal[usize::from(fixture.is_racy())] += u32::from(fixture.has_few_readers());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        !long || equal[0] > 5 && equal[1] > 5,
        "few readers: {equal:?}"
    );
}

#[test]
fn instrumented_triton_kernels_agree_with_the_exact_detector() {
    agree(Records::Four);
}

#[test]
fn instrumented_triton_kernels_with_small_cells_agree_with_the_exact_detector() {
    agree(Records::Two);
}
