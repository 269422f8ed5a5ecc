//! The kernels that run on a GPU, on the CPU: their PTX in `gsan-ptx`, with the memory of a device as
//! the host lays it out. What the race ring holds at the end is what is to be found, under any
//! schedule.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../gpu/cases.rs"]
mod cases;
#[path = "../gpu/kernels.rs"]
mod kernels;
#[path = "../gpu/runtime.rs"]
mod runtime;
mod triton;

use std::collections::HashMap;

use cases::{Argument, Case, Size};
use gsan_core::address::{AddressSpace, Records};
use gsan_core::event::{Detector, Event, EventError};
use gsan_core::ids::{DeviceRank, StreamId};
use gsan_core::layout;
use gsan_core::loss::Losses;
use gsan_core::race::Race;
use gsan_core::race_ring::RaceRing;
use gsan_core::site_mirror::SiteMirror;
use gsan_device::{StateMemory, Variant};
use gsan_ptx::diagnostic::Source;
use gsan_ptx::exec::fault::{FaultKind, Finding};
use gsan_ptx::exec::launch::Launch;
use gsan_ptx::exec::memory::Image;
use gsan_ptx::exec::schedule::{Schedule, Strategy};
use gsan_ptx::exec::{Limits, Outcome, Setup};
use gsan_ptx::lower::lower;
use gsan_ptx::program::Program;
use gsan_ptx::program::symbols::FunctionId;
use gsan_ptx::syntax::ast::{Item, Module as Syntax};
use gsan_ptx::syntax::parse;
use kernels::Module;
use runtime::{Found, MIRROR_BYTES, Machine, Places, RING_BYTES, Runtime, TABLE_BYTES};

const RESERVE: u64 = 16 << 20;
const SPACE: u64 = 1 << 36;
const STATE: u64 = 1 << 38;
const RING: u64 = 1 << 40;
const TABLE: u64 = RING + (1 << 30);
const MIRROR: u64 = RING + (2 << 30);

/// The kernels are told to the library, not to a detector.
struct Silent;

impl Detector for Silent {
    fn on(&mut self, _: &Event) -> Result<(), EventError> {
        Ok(())
    }

    fn take_races(&mut self) -> Vec<Race> {
        Vec::new()
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// A module, decoded kernel by kernel.
struct Interpreter {
    variant: Variant,
    module: Module,
    text: String,
    syntax: Syntax,
    programs: HashMap<&'static str, Program>,
}

impl Interpreter {
    /// `None`, and a word about it, when there is no PTX and no compiler.
    fn new(module: Module, variant: Variant) -> Option<Interpreter> {
        let text = match module.ptx(variant) {
            Ok(text) => text,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        let source = Source {
            file: module.name(),
            text: &text,
        };
        let syntax = parse(&source).unwrap();
        Some(Interpreter {
            variant,
            module,
            text,
            syntax,
            programs: HashMap::new(),
        })
    }

    fn program(&mut self, kernel: &'static str) -> &Program {
        let source = Source {
            file: self.module.name(),
            text: &self.text,
        };
        let syntax = &self.syntax;
        self.programs.entry(kernel).or_insert_with(|| {
            let entry = syntax
                .items
                .iter()
                .find_map(|item| match item {
                    Item::Function(function) if function.name.as_str() == kernel => Some(function),
                    _ => None,
                })
                .unwrap();
            lower(source, syntax, &[entry]).unwrap_or_else(|error| panic!("{error:?}"))
        })
    }

    /// Runs `case`; what the library found, and whether the kernels came to the result they should.
    fn run(&mut self, case: &Case, schedule: Schedule, limits: Limits) -> Found {
        let found = self.run_with(0, case, schedule, limits);
        found.unwrap_or_else(|fault| panic!("{}: {fault:?}", case.name))
    }

    /// The same with flags of the state region. `Err` says what ended the kernel.
    fn run_with(
        &mut self,
        flags: u32,
        case: &Case,
        schedule: Schedule,
        limits: Limits,
    ) -> Result<Found, FaultKind> {
        let records = self.variant.records;
        assert_eq!(case.module, self.module);
        let (mut runtime, mut image) = device(records, limits.multiprocessors);
        runtime.global.flags = flags;
        image.write(STATE, bytemuck::bytes_of(&runtime.global));
        let places = runtime.places;
        let mut buffers = Vec::new();
        let mut next = places.space.real_base();
        for (number, &words) in case.buffers.iter().enumerate() {
            if case.ones == Some(number) {
                image.write(next, bytemuck::cast_slice(&vec![1u32; words as usize]));
            }
            buffers.push(next);
            next = (next + 4 * u64::from(words)).next_multiple_of(256);
        }
        let kernel = case.launches[0].kernel;
        let program = self.program(kernel);
        let entry = program
            .functions
            .iter()
            .position(|f| f.name == kernel)
            .unwrap();
        let function = &program.functions[entry];
        let mut launches = Vec::new();
        for launch in &case.launches {
            assert_eq!(launch.cluster, 1, "{}: clusters need a GPU", case.name);
            let announced = runtime.launch(case.module, launch.stream, launch.grid);
            image.write(announced.address, bytemuck::bytes_of(&announced.descriptor));
            let own = launch.arguments.iter().map(|argument| match *argument {
                Argument::Buffer(number) => buffers[number],
                Argument::Number(number) => number.into(),
            });
            let mut params = vec![0; function.param_bytes as usize];
            let arguments: Vec<u64> = own.chain(announced.arguments).collect();
            // A kernel without checks has not those behind its own.
            assert!(arguments.len() >= function.params.len());
            for (param, argument) in function.params.iter().zip(arguments) {
                let bytes = param.bytes as usize;
                params[param.offset as usize..][..bytes]
                    .copy_from_slice(&argument.to_le_bytes()[..bytes]);
            }
            launches.push(Launch {
                entry: FunctionId(entry as u32),
                grid: [launch.grid, 1, 1],
                block: [launch.block, 1, 1],
                dynamic_shared: 0,
                params,
                device: DeviceRank(0),
                stream: StreamId(launch.stream),
                programmatic: false,
                waits: vec![],
                record: None,
                // On a GPU the test waits as well: which of two streams comes first is to be known.
                sync: true,
            });
        }
        let setup = Setup::new(program, &image, &launches, limits).unwrap();
        let outcome = setup.run(schedule, &mut Silent);
        match outcome.finding {
            None => {}
            Some(Finding::Fault(fault)) => {
                println!("{:?}", program.place(fault.site));
                return Err(fault.kind);
            }
            Some(other) => panic!("{}: {other:?}", case.name),
        }
        let read = |address, into: &mut [u8]| outcome.memory.read(address, into);
        let words = |address, count: usize| {
            let mut words = vec![0u32; count];
            read(address, bytemuck::cast_slice_mut(&mut words));
            words
        };
        let gave_up = words(*buffers.last().unwrap(), 1);
        assert_eq!(gave_up, [0], "{}: a CTA gave up waiting", case.name);
        if let Some((buffer, expected)) = &case.result {
            let found = words(buffers[*buffer], expected.len());
            assert_eq!(found, *expected, "{}", case.name);
        }
        Ok(found(&runtime, &outcome))
    }
}

/// A device of `sms` SMs that has done nothing, and its memory.
fn device(records: Records, sms: u32) -> (Runtime, Image) {
    let places = Places {
        space: AddressSpace::new(SPACE, RESERVE, records).unwrap(),
        state: STATE,
        ring: RING,
        mirror: MIRROR,
        table: TABLE,
    };
    let machine = Machine {
        sms,
        slots_per_sm: 4,
        publications: 64,
        clock_bytes: 1 << 16,
    };
    let runtime = Runtime::new(&machine, places);
    let mut image = Image::default();
    image.place(SPACE, RESERVE).unwrap();
    image.place(STATE, 1 << 30).unwrap();
    image.place(RING, RING_BYTES).unwrap();
    image.place(TABLE, TABLE_BYTES).unwrap();
    image.place(MIRROR, MIRROR_BYTES).unwrap();
    image.write(STATE, bytemuck::bytes_of(&runtime.global));
    image.write(RING, bytemuck::cast_slice(&Runtime::empty_ring()));
    image.write(MIRROR, bytemuck::cast_slice(&Runtime::empty_mirror()));
    (runtime, image)
}

/// What the library told in a run.
fn found(runtime: &Runtime, outcome: &Outcome<'_>) -> Found {
    let read = |address, into: &mut [u8]| outcome.memory.read(address, into);
    let words = |address, bytes: u64| -> Vec<_> {
        let mut words = vec![0u64; bytes as usize / 8];
        read(address, bytemuck::cast_slice_mut(&mut words));
        words.into_iter().map(Into::into).collect()
    };
    let (ring, mirror) = (words(RING, RING_BYTES), words(MIRROR, MIRROR_BYTES));
    let mirror = SiteMirror::new(&mirror).unwrap();
    Found::read(runtime, RaceRing::new(&ring).unwrap(), mirror, read)
}

fn limits() -> Limits {
    Limits {
        multiprocessors: 4,
        ..Limits::default()
    }
}

fn schedules(seeds: u64) -> impl Iterator<Item = Schedule> {
    let seeded = |strategy| move |seed| Schedule { strategy, seed };
    let first = Schedule {
        strategy: Strategy::RoundRobin,
        seed: 0,
    };
    [first]
        .into_iter()
        .chain((0..seeds).map(seeded(Strategy::Random)))
        .chain((0..seeds).map(seeded(Strategy::Pct)))
}

/// Runs cases, each under a few schedules, with the state of CTAs in `memory` and cells of both sizes.
fn agree_in(memory: StateMemory, module: Module, cases: &[Case], limits: Limits) {
    let seeds = if std::env::var_os("GSAN_LONG").is_some() {
        10
    } else {
        1
    };
    let mut failures = Vec::new();
    for records in [Records::Four, Records::Two] {
        let Some(mut interpreter) = Interpreter::new(module, Variant::new(memory, records)) else {
            return;
        };
        for case in cases {
            let mut missed = Vec::new();
            let mut agreed = false;
            for schedule in schedules(seeds) {
                let found = interpreter.run(case, schedule, limits);
                match case.judge(&found) {
                    Ok(()) => agreed = true,
                    // Accesses at once to a cell may lose a record to each other.
                    Err(error) if found.told().next().is_none() => missed.push(error),
                    Err(error) => failures.push(format!("{records:?} {schedule:?}: {error}")),
                }
            }
            if !agreed {
                failures.extend(missed);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn agree(module: Module, cases: &[Case], limits: Limits) {
    agree_in(StateMemory::Shared, module, cases, limits);
}

#[test]
fn kinds() {
    agree(Module::Pairs, &cases::kinds(), limits());
}

#[test]
fn a_race_may_end_the_kernel() {
    let variant = Variant::new(StateMemory::Shared, Records::Four);
    let Some(mut interpreter) = Interpreter::new(Module::Pairs, variant) else {
        return;
    };
    for (case, expected) in cases::halts() {
        let cases::Expected::Exactly(told) = &case.expected else {
            panic!("{}: one race", case.name);
        };
        for schedule in schedules(1) {
            let halt = layout::limits::HALT_ON_RACE;
            let fault = interpreter.run_with(halt, &case, schedule, limits());
            let Err(FaultKind::Assert {
                message,
                file,
                line,
                ..
            }) = fault
            else {
                panic!("{}: {fault:?}", case.name);
            };
            assert_eq!((message.as_str(), line), (expected, told[0].lines[1]));
            assert!(file.ends_with("pairs.cu"), "{file}");
        }
    }
}

#[test]
fn messages() {
    agree(Module::Pairs, &cases::messages(), limits());
}

#[test]
fn the_state_of_a_cta_may_lie_in_the_state_region() {
    let all = [cases::kinds(), cases::messages()].concat();
    // Each CTA has an SM for itself, and one of many is enough here.
    let some: Vec<_> = all.into_iter().step_by(5).collect();
    agree_in(StateMemory::BySm, Module::Pairs, &some, limits());
}

#[test]
fn what_a_stranger_may_do() {
    agree(Module::Edges, &cases::edges(), limits());
}

#[test]
fn mbarriers_handed_round() {
    let cases = [true, false].map(|publishes| cases::mbarrier_ring(3, 3, publishes));
    agree(Module::Clusters, &cases, limits());
}

#[test]
fn copies_of_boxes() {
    agree(Module::Clusters, &cases::boxes(), limits());
}

#[test]
fn neighbours() {
    agree(Module::Pairs, &cases::neighbours(), limits());
}

#[test]
fn streams() {
    agree(Module::Pairs, &cases::streams(), limits());
}

#[test]
fn two_ctas_of_one_sm_at_once() {
    let cases = [false, true].map(|own| cases::same_sm(4, 2, true, own));
    agree(Module::Pairs, &cases, limits());
}

#[test]
fn two_ctas_of_one_sm_one_after_the_other() {
    let cases = [false, true].map(|own| cases::same_sm(4, 2, false, own));
    let one_at_a_time = Limits {
        resident_threads: 32,
        ..limits()
    };
    agree(Module::Pairs, &cases, one_at_a_time);
}

const SMALL: Size = Size { ctas: 4, rounds: 2 };

#[test]
fn correct_protocols_are_clean() {
    let cases: Vec<_> = cases::protocols(SMALL)
        .into_iter()
        .map(|p| p.correct)
        .collect();
    agree(Module::Protocols, &cases, limits());
}

#[test]
fn protocols_without_one_edge_are_found() {
    let cases: Vec<_> = cases::protocols(SMALL)
        .into_iter()
        .map(|p| p.broken)
        .collect();
    agree(Module::Protocols, &cases, limits());
}

/// Those that end as they began, with what earlier launches left in cells and sync words.
#[test]
fn protocols_are_clean_launch_after_launch() {
    let again = |mut case: Case, what: &str| {
        assert!(case.name.starts_with(what), "{}", case.name);
        case.launches = vec![case.launches[0].clone(); 4];
        case
    };
    let mut protocols = cases::protocols(SMALL);
    let split_k = again(protocols.remove(4).correct, "split-K");
    let mut lock = again(protocols.remove(0).correct, "spin lock");
    lock.result = Some((1, vec![4 * SMALL.ctas * SMALL.rounds]));
    agree(Module::Protocols, &[split_k, lock], limits());
}

/// More than the ring of publications holds.
#[test]
fn many_releases_are_clean() {
    agree(Module::Protocols, &[cases::releases(200)], limits());
}

#[test]
fn vector_add() {
    let checked = cases::vector_add(4096);
    agree(Module::VectorAdd, &[cases::bare(&checked)], limits());
    agree(Module::VectorAdd, &[checked], limits());
}
