//! The Triton fixtures of `gsan-ptx`, instrumented by Triton, against the exact detector on what Triton
//! makes of them without: the library tells no race that the exact detector lacks, and it tells the
//! race that a fixture is there for. Passed over where Triton is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gsan_core::address::Records;
use gsan_core::event::Space;
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{DeviceRank, StreamId};
use gsan_core::layout::race_codes::WRITE_AFTER_WRITE;
use gsan_core::race::RaceKind;
use gsan_device::{StateMemory, Variant};
use gsan_ptx::check::argument::Argument;
use gsan_ptx::check::prepare::prepare;
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
use crate::{Silent, device, found, limits, schedules};

/// What is to be told.
#[derive(Clone, Copy)]
enum Verdict {
    Clean,
    /// A race between the lines with these marks, at least.
    Race(&'static str, &'static str),
    /// A race that is lost: atomics at `cta` scope that acquire and release join the sequence that they
    /// find to their own, which is as wide as the CTAs are apart, and so count as ordered.
    Lost,
}
use Verdict::{Clean, Lost, Race};

/// Those that are quick enough. The first few are run always, the others with `GSAN_LONG`.
const FIXTURES: [(&str, Verdict); 20] = [
    ("vadd", Clean),
    ("splitk_relaxed", Race("store", "load")),
    ("splitk", Clean),
    ("vadd_overlap", Race("store", "store")),
    ("splitk_acquire", Race("store", "load")),
    ("splitk_release", Race("store", "load")),
    ("splitk_cta", Lost),
    ("vadd_f16", Clean),
    ("softmax", Clean),
    ("softmax_no_mask", Race("store", "store")),
    ("reduce_f32", Clean),
    ("reduce_plain", Race("add", "add")),
    ("reduce_cta", Lost),
    ("lock_tensor", Clean),
    ("lock_tensor_relaxed", Race("update", "update")),
    ("scan_chained", Clean),
    ("scan_chained_relaxed", Race("store", "load")),
    ("streamk", Clean),
    ("streamk_relaxed", Race("store", "load")),
    ("transpose_tensor", Clean),
];
const ALWAYS: usize = 2;

/// Whether both sides write, and their lines in ascending order: which one comes first depends on the
/// schedule.
type Pair = (bool, [u32; 2]);

fn pair(both_write: bool, mut lines: [u32; 2]) -> Pair {
    lines.sort_unstable();
    (both_write, lines)
}

struct Fixture {
    name: &'static str,
    folder: PathBuf,
    spec: Spec,
    source: String,
}

impl Fixture {
    fn read(name: &'static str) -> Fixture {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsan-ptx/fixtures/triton");
        let text = std::fs::read_to_string(folder.join(name).with_extension("toml")).unwrap();
        let (arguments, expected) = text.split_once("\n[expect]").unwrap();
        let spec = Spec::from_toml(&Source {
            file: name,
            text: arguments,
        });
        let source = expected
            .lines()
            .find_map(|line| line.strip_prefix("source = "));
        let source = folder.join(source.unwrap().trim_matches('"'));
        Fixture {
            name,
            spec: spec.unwrap_or_else(|error| panic!("{name}: {error:?}")),
            source: std::fs::read_to_string(source).unwrap(),
            folder,
        }
    }

    fn line(&self, mark: &str) -> u32 {
        let mark = format!("@{mark}");
        let mut lines = (1..).zip(self.source.lines());
        lines.find(|(_, line)| line.ends_with(&mark)).unwrap().0
    }

    /// What the exact detector finds, with CTAs as the unit.
    fn exact(&self, schedule: Schedule) -> BTreeSet<Pair> {
        let path = self.folder.join(self.name).with_extension("ptx");
        let text = std::fs::read_to_string(path).unwrap();
        let source = Source {
            file: self.name,
            text: &text,
        };
        let prepared = prepare(source, &self.spec, &self.folder).unwrap();
        let setup = prepared.setup(limits()).unwrap();
        let outcome = setup.run(schedule, &mut Exact::new(Unit::Cta));
        assert_eq!(outcome.finding, None, "{}", self.name);
        let races = outcome.races.iter().map(|(race, _)| race);
        races
            .filter(|race| race.space == Space::Global)
            .map(|race| {
                let lines = [race.earlier.site, race.later.site]
                    .map(|site| prepared.program.place(site).line);
                pair(race.kind == RaceKind::WriteAfterWrite, lines)
            })
            .collect()
    }

    /// What the library tells in the instrumented kernel `text`.
    fn told(&self, text: &str, records: Records, schedules: &[Schedule]) -> BTreeSet<Pair> {
        let source = Source {
            file: self.name,
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
        let mut told = BTreeSet::new();
        for &schedule in schedules {
            let outcome = setup.run(schedule, &mut Silent);
            assert_eq!(outcome.finding, None, "{}", self.name);
            let races = found(&runtime, &outcome);
            told.extend(
                races
                    .told()
                    .map(|race| pair(race.kind == WRITE_AFTER_WRITE, race.lines)),
            );
        }
        told
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
fn compile(variant: Variant, fixtures: &[(&str, Verdict)], folder: &Path) -> bool {
    let Some(python) = python_with_triton() else {
        println!("skipped: no Python has triton 3.9.0");
        return false;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("tests/instrumented.py"))
        .arg(here.join("built").join(variant.file_name()))
        .arg(folder)
        .args(fixtures.iter().map(|(name, _)| name))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    true
}

#[test]
fn instrumented_triton_kernels_agree_with_the_exact_detector() {
    let long = std::env::var_os("GSAN_LONG").is_some();
    let fixtures = if long {
        &FIXTURES[..]
    } else {
        &FIXTURES[..ALWAYS]
    };
    let schedules: Vec<_> = schedules(2).take(if long { 5 } else { 1 }).collect();
    let mut failures = Vec::new();
    for records in [Records::Four, Records::Two] {
        let folder = tempfile::tempdir().unwrap();
        let variant = Variant::new(StateMemory::Shared, records);
        if !compile(variant, fixtures, folder.path()) {
            return;
        }
        for &(name, verdict) in fixtures {
            let fixture = Fixture::read(name);
            let path = folder.path().join(name).with_extension("ptx");
            let told = fixture.told(&std::fs::read_to_string(path).unwrap(), records, &schedules);
            let exact = schedules.iter().map(|&schedule| fixture.exact(schedule));
            let exact: BTreeSet<Pair> = exact.flatten().collect();
            let holds = match verdict {
                Clean | Lost => told.is_empty(),
                Race(first, second) => {
                    let lines = pair(false, [first, second].map(|mark| fixture.line(mark))).1;
                    told.iter().any(|found| found.1 == lines)
                }
            };
            if !holds || !told.is_subset(&exact) {
                failures.push(format!("{name}, {records:?}: {told:?}, exactly {exact:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
