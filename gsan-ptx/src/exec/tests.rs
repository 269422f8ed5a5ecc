//! Whole programs, written as decoded operations.

use super::*;
use crate::alu::compare::{Compared, Comparison, Test};
use crate::alu::integer::{Bits, Int, IntBinary};
use crate::alu::{Binary, Rmw};
use crate::exec::fault::{FaultKind, Wait};
use crate::exec::schedule::Strategy;
use crate::program::ir::*;
use crate::program::operand::{Axis, Operand, Reg, Special, SymbolSpace};
use crate::program::symbols::{Function, FunctionId, Param, Place};
use gsan_core::event::{Action, Event, EventError, FenceKind, Meeting};
use gsan_core::ids::{DeviceRank, StreamId};
use gsan_core::loss::Losses;
use gsan_core::scope::{Order, Scope};

const U32: Int = Int {
    bits: Bits::B32,
    signed: false,
};
const U64: Int = Int {
    bits: Bits::B64,
    signed: false,
};

/// Keeps every event.
#[derive(Default)]
struct Recorder(Vec<Event>);

impl Detector for Recorder {
    fn on(&mut self, event: &Event) -> Result<(), EventError> {
        self.0.push(event.clone());
        Ok(())
    }

    fn take_races(&mut self) -> Vec<Race> {
        Vec::new()
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// A program with one entry whose only parameter is a pointer, loaded into register 0.
struct Asm {
    program: Program,
}

impl Asm {
    fn new() -> Asm {
        let mut asm = Asm {
            program: Program::default(),
        };
        let dst = asm.program.registers(&[Reg(0)]);
        asm.op(Op::Load {
            dst,
            address: Address {
                base: Operand::Symbol(SymbolSpace::Param, 0),
                offset: 0,
            },
            access: access(MemorySpace::Param, 8),
        });
        asm
    }

    fn op(&mut self, op: Op) -> u32 {
        self.program
            .push(Inst { guard: None, op }, Place::default())
    }

    fn guarded(&mut self, predicate: u32, negated: bool, op: Op) -> u32 {
        let guard = Some(Guard {
            predicate: Reg(predicate),
            negated,
        });
        self.program.push(Inst { guard, op }, Place::default())
    }

    fn here(&self) -> u32 {
        self.program.code.len() as u32
    }

    fn special(&mut self, dst: u32, special: Special) {
        self.op(Op::Move {
            dst: Reg(dst),
            src: Operand::Special(special),
        });
    }

    fn int(&mut self, f: IntBinary, int: Int, dst: u32, a: Operand, b: Operand) {
        self.op(Op::Binary {
            f: Binary::Int(f, int),
            dst: Reg(dst),
            a,
            b,
        });
    }

    fn set_if(&mut self, dst: u32, comparison: Comparison, a: Operand, b: u64) {
        let b = self.program.constant(b);
        self.op(Op::SetPredicate {
            test: Test {
                comparison,
                compared: Compared::Int(U32),
            },
            dst: Reg(dst),
            other: None,
            a,
            b,
            combine: None,
        });
    }

    fn load(&mut self, dst: u32, base: Operand, offset: i64, access: MemoryAccess) {
        let dst = self.program.registers(&[Reg(dst)]);
        self.op(Op::Load {
            dst,
            address: Address { base, offset },
            access,
        });
    }

    fn store(&mut self, source: Operand, base: Operand, offset: i64, access: MemoryAccess) {
        let sources = self.program.list(&[source]);
        self.op(Op::Store {
            sources,
            address: Address { base, offset },
            access,
        });
    }

    fn barrier(&mut self) {
        let id = self.program.constant(0);
        self.op(Op::Barrier {
            kind: BarrierKind::Sync,
            id,
            threads: None,
            aligned: true,
        });
    }

    fn finish(mut self, shared: u32) -> Program {
        self.op(Op::Return);
        let end = self.here();
        self.program.shared_bytes = shared;
        self.program.functions.push(Function {
            name: "k".to_owned(),
            entry: true,
            code: 0..end,
            registers: 16,
            params: vec![Param {
                name: "p".to_owned(),
                offset: 0,
                bytes: 8,
                pointer: true,
                used: true,
            }],
            param_bytes: 8,
            ..Function::default()
        });
        self.program
    }
}

fn r(register: u32) -> Operand {
    Operand::Reg(Reg(register))
}

fn access(space: MemorySpace, bytes: u8) -> MemoryAccess {
    MemoryAccess {
        space,
        element: Element {
            bytes,
            signed: false,
        },
        order: Order::Weak,
        scope: Scope::Cta,
    }
}

fn strong(order: Order) -> MemoryAccess {
    MemoryAccess {
        order,
        scope: Scope::Gpu,
        ..access(MemorySpace::Global, 4)
    }
}

fn launch(grid: u32, block: u32, pointer: u64) -> Launch {
    Launch {
        entry: FunctionId(0),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 0,
        params: pointer.to_le_bytes().to_vec(),
        device: DeviceRank(0),
        stream: StreamId(0),
        programmatic: false,
        waits: Vec::new(),
        record: None,
        sync: false,
    }
}

/// What a test looks at after a run.
struct Ran {
    finding: Option<Finding>,
    words: Vec<u32>,
    events: Vec<Event>,
}

fn run(program: &Program, grid: u32, block: u32, words: usize, schedule: Schedule) -> Ran {
    run_launches(program, words, schedule, |pointer| {
        vec![launch(grid, block, pointer)]
    })
}

fn run_launches(
    program: &Program,
    words: usize,
    schedule: Schedule,
    launches: impl Fn(u64) -> Vec<Launch>,
) -> Ran {
    let mut image = Image::default();
    let buffer = image.allocate(4 * words as u64).unwrap();
    let launches = launches(buffer);
    let limits = Limits {
        instructions: 1_000_000,
        ..Limits::default()
    };
    let setup = Setup::new(program, &image, &launches, limits).unwrap();
    let mut recorder = Recorder::default();
    let outcome = setup.run(schedule, &mut recorder);
    let mut bytes = vec![0; 4 * words];
    outcome.memory.read(buffer, &mut bytes);
    Ran {
        finding: outcome.finding,
        words: bytes
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        events: recorder.0,
    }
}

fn schedules() -> impl Iterator<Item = Schedule> {
    [Strategy::RoundRobin, Strategy::Random, Strategy::Pct]
        .into_iter()
        .flat_map(|strategy| (0..6).map(move |seed| Schedule { strategy, seed }))
}

const ROUND_ROBIN: Schedule = Schedule {
    strategy: Strategy::RoundRobin,
    seed: 0,
};

/// Register 1: the index in the grid; register 2: the address of that word.
fn own_word(asm: &mut Asm) {
    asm.special(3, Special::Ctaid(Axis::X));
    asm.special(4, Special::Ntid(Axis::X));
    asm.int(IntBinary::MulLow, U32, 3, r(3), r(4));
    asm.special(4, Special::Tid(Axis::X));
    asm.int(IntBinary::Add, U32, 1, r(3), r(4));
    let four = asm.program.constant(4);
    asm.int(IntBinary::MulWide, U32, 2, r(1), four);
    asm.int(IntBinary::Add, U64, 2, r(2), r(0));
}

#[test]
fn every_thread_of_every_cta_runs_once() {
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.store(r(1), r(2), 0, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 3, 40, 120, schedule);
        assert_eq!(ran.finding, None);
        assert_eq!(ran.words, (0..120).collect::<Vec<_>>());
        let exits = ran.events.iter().filter(|e| matches!(e, Event::CtaExit(_)));
        assert_eq!(exits.count(), 3);
    }
}

/// Each thread stores its index to shared memory, waits, and reads its neighbour's.
fn rotate() -> Program {
    let mut asm = Asm::new();
    own_word(&mut asm);
    let four = asm.program.constant(4);
    asm.int(IntBinary::MulLow, U32, 5, r(1), four);
    asm.store(r(1), r(5), 0, access(MemorySpace::Shared, 4));
    asm.barrier();
    let mask = asm.program.constant(63 * 4);
    asm.int(IntBinary::Add, U32, 5, r(5), four);
    asm.int(IntBinary::And, U32, 5, r(5), mask);
    asm.load(6, r(5), 0, access(MemorySpace::Shared, 4));
    asm.store(r(6), r(2), 0, access(MemorySpace::Global, 4));
    asm.finish(256)
}

#[test]
fn a_barrier_waits_for_all_threads() {
    let program = rotate();
    for schedule in schedules() {
        let ran = run(&program, 1, 64, 64, schedule);
        assert_eq!(ran.finding, None);
        let expected: Vec<u32> = (0..64).map(|i| (i + 1) % 64).collect();
        assert_eq!(ran.words, expected);
    }
}

#[test]
fn a_barrier_phase_is_all_arrivals_then_completion_then_all_departures() {
    let ran = run(&rotate(), 1, 64, 64, ROUND_ROBIN);
    let order: Vec<u8> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Arrive {
                at: Meeting::CtaBarrier { id: 0, .. },
                releases: true,
                ..
            } => Some(0),
            Event::PhaseComplete(Meeting::CtaBarrier { id: 0, .. }) => Some(1),
            Event::Leave { acquires: true, .. } => Some(2),
            _ => None,
        })
        .collect();
    let expected: Vec<u8> = [vec![0; 64], vec![1], vec![2; 64]].concat();
    assert_eq!(order, expected);
}

#[test]
fn reading_shared_memory_that_nobody_wrote_is_found() {
    let mut asm = Asm::new();
    let zero = asm.program.constant(0);
    asm.load(1, zero, 8, access(MemorySpace::Shared, 4));
    asm.store(r(1), r(0), 0, access(MemorySpace::Global, 4));
    let ran = run(&asm.finish(16), 1, 1, 1, ROUND_ROBIN);
    let Some(Finding::Fault(fault)) = ran.finding else {
        panic!("{:?}", ran.finding);
    };
    assert_eq!(
        fault.kind,
        FaultKind::UninitialisedShared {
            offset: 8,
            bytes: 4
        }
    );
    assert_eq!(fault.site.0, 2);
}

/// Every thread polls word 0 until it is set; thread 0 of CTA 0 sets it if `set`.
fn poll(set: bool) -> Program {
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.set_if(7, Comparison::Eq, r(1), 0);
    let one = asm.program.constant(1);
    let sources = asm.program.list(&[one]);
    if set {
        asm.guarded(
            7,
            false,
            Op::Store {
                sources,
                address: Address {
                    base: r(0),
                    offset: 0,
                },
                access: strong(Order::Release),
            },
        );
    }
    let head = asm.here();
    asm.load(8, r(0), 0, strong(Order::Acquire));
    asm.set_if(9, Comparison::Eq, r(8), 0);
    asm.guarded(9, false, Op::Branch { target: head });
    asm.finish(0)
}

#[test]
fn a_polling_thread_lets_the_one_it_waits_for_run() {
    let program = poll(true);
    for schedule in schedules() {
        let ran = run(&program, 4, 8, 1, schedule);
        assert_eq!(ran.finding, None, "{schedule:?}");
    }
}

#[test]
fn a_flag_that_nobody_sets_is_a_deadlock() {
    let program = poll(false);
    for schedule in schedules() {
        let ran = run(&program, 2, 8, 1, schedule);
        let Some(Finding::Deadlock(waiting)) = ran.finding else {
            panic!("{schedule:?}: {:?}", ran.finding);
        };
        assert_eq!(waiting.len(), 16);
        assert!(
            waiting
                .iter()
                .all(|w| matches!(w.wait, Wait::Polling { shared: false, .. }))
        );
    }
}

#[test]
fn a_bounded_number_of_polls_is_no_deadlock() {
    // Counts polls in a register, and gives up after 1000.
    let mut asm = Asm::new();
    let one = asm.program.constant(1);
    let head = asm.here();
    asm.load(8, r(0), 0, strong(Order::Relaxed));
    asm.int(IntBinary::Add, U32, 5, r(5), one);
    asm.set_if(9, Comparison::Lt, r(5), 1000);
    asm.guarded(9, false, Op::Branch { target: head });
    asm.store(r(5), r(0), 0, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 1, 1, schedule);
        assert_eq!(ran.finding, None);
        assert_eq!(ran.words, [1000]);
    }
}

#[test]
fn endless_computation_runs_out_of_budget() {
    let mut asm = Asm::new();
    let head = asm.here();
    asm.op(Op::Branch { target: head });
    let ran = run(&asm.finish(0), 1, 2, 1, ROUND_ROBIN);
    let Some(Finding::Budget(waiting)) = ran.finding else {
        panic!("{:?}", ran.finding);
    };
    assert_eq!(waiting.len(), 2);
    assert_eq!(waiting[0].wait, Wait::Running);
}

#[test]
fn a_barrier_that_some_threads_miss_is_a_deadlock() {
    // Warp 1 polls for what warp 0 would do after the barrier.
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.set_if(7, Comparison::Ge, r(1), 32);
    let branch = asm.guarded(7, false, Op::Branch { target: 0 });
    asm.barrier();
    let one = asm.program.constant(1);
    asm.store(one, r(0), 0, strong(Order::Relaxed));
    asm.op(Op::Exit);
    let head = asm.here();
    asm.program.code[branch as usize].op = Op::Branch { target: head };
    asm.load(8, r(0), 0, strong(Order::Relaxed));
    asm.set_if(9, Comparison::Eq, r(8), 0);
    asm.guarded(9, false, Op::Branch { target: head });
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 64, 1, schedule);
        let Some(Finding::Deadlock(waiting)) = ran.finding else {
            panic!("{schedule:?}: {:?}", ran.finding);
        };
        assert_eq!(
            waiting[0].wait,
            Wait::Barrier {
                id: 0,
                arrived: 32,
                needed: 64
            }
        );
        assert!(matches!(waiting[63].wait, Wait::Polling { .. }));
    }
}

#[test]
fn lanes_of_a_warp_at_two_aligned_barriers_diverge() {
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.set_if(7, Comparison::Ge, r(1), 16);
    let branch = asm.guarded(7, false, Op::Branch { target: 0 });
    asm.barrier();
    asm.op(Op::Exit);
    let other = asm.here();
    asm.program.code[branch as usize].op = Op::Branch { target: other };
    asm.barrier();
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 32, 32, schedule);
        let Some(Finding::Fault(fault)) = ran.finding else {
            panic!("{:?}", ran.finding);
        };
        assert_eq!(fault.kind, FaultKind::BarrierDivergence { id: 0 });
    }
}

#[test]
fn threads_that_exited_do_not_hold_up_a_barrier() {
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.set_if(7, Comparison::Ge, r(1), 40);
    asm.guarded(7, false, Op::Exit);
    asm.barrier();
    asm.store(r(1), r(2), 0, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 64, 64, schedule);
        assert_eq!(ran.finding, None);
        assert_eq!(ran.words[39], 39);
        assert_eq!(ran.words[40], 0);
    }
}

#[test]
fn atomics_of_all_threads_add_up() {
    let mut asm = Asm::new();
    let one = asm.program.constant(1);
    let (dst, sources) = (asm.program.registers(&[Reg(5)]), asm.program.list(&[one]));
    asm.op(Op::Atomic {
        rmw: Rmw::Add,
        dst,
        sources,
        address: Address {
            base: r(0),
            offset: 0,
        },
        access: strong(Order::Relaxed),
    });
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 4, 33, 1, schedule);
        assert_eq!(ran.words, [132]);
        let rmws = ran
            .events
            .iter()
            .filter(|event| matches!(event, Event::Access(access) if access.action == Action::Rmw));
        assert_eq!(rmws.count(), 132);
    }
}

#[test]
fn a_compare_and_swap_that_fails_only_reads() {
    let mut asm = Asm::new();
    let (five, nine) = (asm.program.constant(5), asm.program.constant(9));
    let dst = asm.program.registers(&[Reg(5)]);
    let sources = asm.program.list(&[five, nine]);
    asm.op(Op::Atomic {
        rmw: Rmw::CompareAndSwap,
        dst,
        sources,
        address: Address {
            base: r(0),
            offset: 0,
        },
        access: strong(Order::AcqRel),
    });
    let ran = run(&asm.finish(0), 1, 1, 1, ROUND_ROBIN);
    assert_eq!(ran.words, [0]);
    assert!(
        ran.events.iter().any(
            |event| matches!(event, Event::Access(access) if access.action == Action::FailedRmw)
        )
    );
}

fn first_fault(asm: Asm, words: usize) -> FaultKind {
    match run(&asm.finish(0), 1, 1, words, ROUND_ROBIN).finding {
        Some(Finding::Fault(fault)) => fault.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_accesses_are_faults_with_their_place() {
    let global = access(MemorySpace::Global, 4);
    let mut asm = Asm::new();
    asm.load(1, r(0), 4, global);
    assert!(matches!(
        first_fault(asm, 1),
        FaultKind::OutOfBounds {
            space: MemorySpace::Global,
            bytes: 4,
            write: false,
            nearest: Some((_, 4)),
            ..
        }
    ));
    let mut asm = Asm::new();
    asm.store(r(0), r(0), 2, global);
    assert!(matches!(
        first_fault(asm, 4),
        FaultKind::Misaligned {
            alignment: 4,
            write: true,
            ..
        }
    ));
    let mut asm = Asm::new();
    let zero = asm.program.constant(0);
    asm.load(1, zero, 0, access(MemorySpace::Shared, 4));
    assert!(matches!(
        first_fault(asm, 1),
        FaultKind::OutOfBounds {
            space: MemorySpace::Shared,
            ..
        }
    ));
    let mut asm = Asm::new();
    asm.int(IntBinary::Div, U32, 1, r(0), r(5));
    assert_eq!(first_fault(asm, 1), FaultKind::DivisionByZero);
    let mut asm = Asm::new();
    asm.op(Op::Trap);
    assert_eq!(first_fault(asm, 1), FaultKind::Trap);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let program = rotate();
    for schedule in schedules() {
        let first = run(&program, 2, 32, 64, schedule);
        let again = run(&program, 2, 32, 64, schedule);
        assert_eq!(first.events, again.events);
    }
}

#[test]
fn launches_on_one_stream_follow_each_other_and_streams_overlap() {
    // Each thread adds one to its word twice, not atomically.
    let mut asm = Asm::new();
    let one = asm.program.constant(1);
    let word = access(MemorySpace::Global, 4);
    for _ in 0..2 {
        asm.load(5, r(0), 0, word);
        asm.int(IntBinary::Add, U32, 5, r(5), one);
        asm.store(r(5), r(0), 0, word);
    }
    let program = asm.finish(0);
    let on_streams = |streams: [u32; 2]| {
        move |pointer| {
            streams
                .map(|stream| Launch {
                    stream: StreamId(stream),
                    ..launch(1, 1, pointer)
                })
                .to_vec()
        }
    };
    for schedule in schedules() {
        let ran = run_launches(&program, 1, schedule, on_streams([1, 1]));
        assert_eq!(ran.words, [4]);
    }
    let lost = schedules()
        .any(|schedule| run_launches(&program, 1, schedule, on_streams([1, 2])).words != [4]);
    assert!(lost, "no schedule overlapped the two streams");
    for schedule in schedules() {
        let ran = run_launches(&program, 1, schedule, |pointer| {
            let mut launches = on_streams([1, 2])(pointer);
            launches[0].record = Some(7);
            launches[1].waits = vec![7];
            launches
        });
        assert_eq!(ran.words, [4]);
        let ran = run_launches(&program, 1, schedule, |pointer| {
            let mut launches = on_streams([1, 2])(pointer);
            launches[0].sync = true;
            launches
        });
        assert_eq!(ran.words, [4]);
    }
}

#[test]
fn a_dependent_launch_starts_early_and_waits_when_it_says_so() {
    // The first kernel triggers, then polls word 1; the second sets word 1, waits for the first
    // to end, then copies word 0.
    let mut asm = Asm::new();
    let one = asm.program.constant(1);
    asm.special(5, Special::GridId);
    asm.set_if(7, Comparison::Eq, r(5), 1);
    let branch = asm.guarded(7, false, Op::Branch { target: 0 });
    asm.op(Op::LaunchDependents);
    let head = asm.here();
    asm.load(8, r(0), 4, strong(Order::Relaxed));
    asm.set_if(9, Comparison::Eq, r(8), 0);
    asm.guarded(9, false, Op::Branch { target: head });
    asm.store(one, r(0), 0, access(MemorySpace::Global, 4));
    asm.op(Op::Exit);
    let second = asm.here();
    asm.program.code[branch as usize].op = Op::Branch { target: second };
    asm.store(one, r(0), 4, strong(Order::Relaxed));
    asm.op(Op::GridDependencyWait);
    asm.load(8, r(0), 0, access(MemorySpace::Global, 4));
    asm.store(r(8), r(0), 8, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run_launches(&program, 3, schedule, |pointer| {
            let first = launch(2, 32, pointer);
            let second = Launch {
                programmatic: true,
                ..launch(1, 1, pointer)
            };
            vec![first, second]
        });
        assert_eq!(ran.finding, None, "{schedule:?}");
        assert_eq!(ran.words, [1, 1, 1]);
        let waits = ran
            .events
            .iter()
            .filter(|event| matches!(event, Event::GridDependencyWait(_)));
        assert_eq!(waits.count(), 1);
    }
}

#[test]
fn a_grid_larger_than_what_is_resident_at_once_may_wait_for_itself() {
    // A grid barrier: every CTA adds one and polls until all have.
    let mut asm = Asm::new();
    let one = asm.program.constant(1);
    let sources = asm.program.list(&[one]);
    let dst = asm.program.registers(&[]);
    asm.op(Op::Atomic {
        rmw: Rmw::Add,
        dst,
        sources,
        address: Address {
            base: r(0),
            offset: 0,
        },
        access: strong(Order::Relaxed),
    });
    let head = asm.here();
    asm.load(8, r(0), 0, strong(Order::Relaxed));
    asm.set_if(9, Comparison::Lt, r(8), 20);
    asm.guarded(9, false, Op::Branch { target: head });
    let program = asm.finish(0);
    let mut image = Image::default();
    let buffer = image.allocate(4).unwrap();
    let launches = [launch(20, 1, buffer)];
    let limits = Limits {
        resident_threads: 3,
        ..Limits::default()
    };
    let setup = Setup::new(&program, &image, &launches, limits).unwrap();
    for schedule in schedules() {
        let outcome = setup.run(schedule, &mut Recorder::default());
        assert_eq!(outcome.finding, None, "{schedule:?}");
    }
}

#[test]
fn events_name_fences_and_copies() {
    let mut asm = Asm::new();
    let zero = asm.program.constant(0);
    asm.op(Op::Fence {
        kind: FenceKind::AcqRel,
        scope: Scope::Gpu,
    });
    asm.op(Op::CopyAsync {
        to: Address {
            base: zero,
            offset: 0,
        },
        from: Address {
            base: r(0),
            offset: 0,
        },
        bytes: 16,
        source_bytes: None,
        ignore_source: None,
    });
    asm.op(Op::CommitGroup);
    asm.op(Op::CopyAsync {
        to: Address {
            base: zero,
            offset: 16,
        },
        from: Address {
            base: r(0),
            offset: 16,
        },
        bytes: 16,
        source_bytes: Some(zero),
        ignore_source: None,
    });
    asm.op(Op::CommitGroup);
    asm.op(Op::WaitGroup(1));
    asm.op(Op::WaitAll);
    let ran = run(&asm.finish(32), 1, 1, 4, ROUND_ROBIN);
    assert_eq!(ran.finding, None);
    let copies: Vec<String> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::AsyncIssue {
                id, reads, writes, ..
            } => Some(format!("issue {id} {} {}", reads.len(), writes.len())),
            Event::AsyncWait { id, .. } => Some(format!("wait {id}")),
            _ => None,
        })
        .collect();
    assert_eq!(copies, ["issue 0 1 1", "issue 1 0 1", "wait 0", "wait 1"]);
}

/// `barrier` number `id` for `threads` threads.
fn counted(asm: &mut Asm, kind: BarrierKind, id: u64, threads: u64) -> Op {
    let (id, threads) = (asm.program.constant(id), asm.program.constant(threads));
    Op::Barrier {
        kind,
        id,
        threads: Some(threads),
        aligned: true,
    }
}

#[test]
fn an_arrival_counts_for_its_whole_warp_even_after_lanes_exited() {
    // Warp 0 arrives for 64 and its lanes exit one by one; warp 1 comes later.
    let mut asm = Asm::new();
    own_word(&mut asm);
    asm.set_if(7, Comparison::Ge, r(1), 32);
    let branch = asm.guarded(7, false, Op::Branch { target: 0 });
    let one = asm.program.constant(1);
    asm.store(one, r(2), 0, access(MemorySpace::Global, 4));
    let arrive = counted(&mut asm, BarrierKind::Arrive, 1, 64);
    asm.op(arrive);
    asm.op(Op::Exit);
    let second = asm.here();
    asm.program.code[branch as usize].op = Op::Branch { target: second };
    let sync = counted(&mut asm, BarrierKind::Sync, 1, 64);
    asm.op(sync);
    asm.load(8, r(0), 0, access(MemorySpace::Global, 4));
    asm.store(r(8), r(2), 0, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 64, 64, schedule);
        assert_eq!(ran.finding, None, "{schedule:?}");
        assert_eq!(ran.words, [1; 64]);
    }
}

#[test]
fn a_barrier_for_more_threads_than_there_are_is_a_deadlock() {
    let mut asm = Asm::new();
    let sync = counted(&mut asm, BarrierKind::Sync, 1, 96);
    asm.op(sync);
    let ran = run(&asm.finish(0), 1, 64, 1, ROUND_ROBIN);
    let Some(Finding::Deadlock(waiting)) = ran.finding else {
        panic!("{:?}", ran.finding);
    };
    assert_eq!(
        waiting[0].wait,
        Wait::Barrier {
            id: 1,
            arrived: 64,
            needed: 96
        }
    );
}

#[test]
fn barrier_counts_that_cannot_be_are_faults() {
    for (id, threads) in [(1, 0), (1, 33)] {
        let mut asm = Asm::new();
        let sync = counted(&mut asm, BarrierKind::Sync, id, threads);
        asm.op(sync);
        assert!(matches!(
            first_fault(asm, 1),
            FaultKind::BarrierThreads { .. }
        ));
    }
    let mut asm = Asm::new();
    let sync = counted(&mut asm, BarrierKind::Sync, 16, 32);
    asm.op(sync);
    assert_eq!(first_fault(asm, 1), FaultKind::BadBarrier(16));
}

/// One collective operation of a whole warp; thread `i` contributes what `source` leaves in
/// register 5, and stores register 6.
fn collective(kind: Collective, source: impl Fn(&mut Asm) -> Vec<Operand>) -> Vec<u32> {
    let mut asm = Asm::new();
    own_word(&mut asm);
    let sources = source(&mut asm);
    let sources = asm.program.list(&sources);
    let dst = asm.program.registers(&[Reg(6), Reg(7)]);
    asm.op(Op::Collective { kind, dst, sources });
    asm.store(r(6), r(2), 0, access(MemorySpace::Global, 4));
    let program = asm.finish(0);
    let expected = run(&program, 1, 32, 32, ROUND_ROBIN).words;
    for schedule in schedules() {
        let ran = run(&program, 1, 32, 32, schedule);
        assert_eq!(ran.finding, None);
        assert_eq!(ran.words, expected);
    }
    expected
}

#[test]
fn shuffles_of_all_modes() {
    let shuffle = |mode, lane, clamp| {
        collective(Collective::Shuffle(mode), |asm| {
            let constants = [lane, clamp, 0xffff_ffff].map(|c| asm.program.constant(c));
            [vec![r(1)], constants.to_vec()].concat()
        })
    };
    let each = |f: &dyn Fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
    assert_eq!(
        shuffle(Shuffle::Up, 1, 0),
        each(&|i| if i == 0 { 0 } else { i - 1 })
    );
    assert_eq!(
        shuffle(Shuffle::Down, 4, 31),
        each(&|i| if i + 4 < 32 { i + 4 } else { i })
    );
    assert_eq!(shuffle(Shuffle::Butterfly, 16, 31), each(&|i| i ^ 16));
    assert_eq!(shuffle(Shuffle::Index, 5, 31), each(&|_| 5));
    // Segments of 8 lanes: the segment mask is 0x18.
    assert_eq!(shuffle(Shuffle::Index, 3, 0x181f), each(&|i| i / 8 * 8 + 3));
    assert_eq!(
        shuffle(Shuffle::Up, 2, 0x1800),
        each(&|i| if i % 8 < 2 { i } else { i - 2 })
    );
}

#[test]
fn votes_matches_and_reductions() {
    let odd = |asm: &mut Asm| {
        let one = asm.program.constant(1);
        asm.int(IntBinary::And, U32, 5, r(1), one);
        vec![r(5), asm.program.constant(0xffff_ffff)]
    };
    let vote = |vote, negated| collective(Collective::Vote { vote, negated }, odd)[0];
    assert_eq!(vote(Vote::Ballot, false), 0xaaaa_aaaa);
    assert_eq!(vote(Vote::Ballot, true), 0x5555_5555);
    assert_eq!(vote(Vote::Any, false), 1);
    assert_eq!(vote(Vote::All, false), 0);
    assert_eq!(vote(Vote::Uniform, false), 0);
    let matching = |all| collective(Collective::Match { all, wide: false }, odd);
    assert_eq!(matching(false)[..2], [0x5555_5555, 0xaaaa_aaaa]);
    assert_eq!(matching(true)[0], 0);
    let sum = collective(Collective::Redux(Rmw::Add), |asm| {
        vec![r(1), asm.program.constant(0xffff_ffff)]
    });
    assert_eq!(sum, [496; 32]);
    let leader = collective(Collective::Elect, |asm| {
        vec![asm.program.constant(0xffff_ffff)]
    });
    assert_eq!(leader, [0; 32]);
    assert_eq!(collective(Collective::ActiveMask, |_| Vec::new()).len(), 32);
}

#[test]
fn a_lane_outside_the_mask_is_a_fault() {
    let mut asm = Asm::new();
    let mask = asm.program.constant(2);
    let sources = asm.program.list(&[mask]);
    let dst = asm.program.registers(&[]);
    asm.op(Op::Collective {
        kind: Collective::WarpBarrier,
        dst,
        sources,
    });
    assert_eq!(
        first_fault(asm, 1),
        FaultKind::NotAMember { lane: 0, mask: 2 }
    );
}

#[test]
fn lanes_meet_at_different_instructions_of_one_kind() {
    // The halves of a warp execute two copies of the same shuffle.
    let mut asm = Asm::new();
    own_word(&mut asm);
    let constants = [16, 31, 0xffff_ffff].map(|c| asm.program.constant(c));
    let sources = asm.program.list(&[vec![r(1)], constants.to_vec()].concat());
    let dst = asm.program.registers(&[Reg(6)]);
    let kind = Collective::Shuffle(Shuffle::Butterfly);
    asm.set_if(7, Comparison::Ge, r(1), 16);
    let branch = asm.guarded(7, false, Op::Branch { target: 0 });
    for _ in 0..2 {
        let here = asm.here();
        asm.op(Op::Collective { kind, dst, sources });
        asm.store(r(6), r(2), 0, access(MemorySpace::Global, 4));
        asm.op(Op::Exit);
        asm.program.code[branch as usize].op = Op::Branch { target: here };
    }
    let program = asm.finish(0);
    for schedule in schedules() {
        let ran = run(&program, 1, 32, 32, schedule);
        assert_eq!(ran.finding, None);
        assert_eq!(ran.words, (0..32).map(|i| i ^ 16).collect::<Vec<u32>>());
    }
}
