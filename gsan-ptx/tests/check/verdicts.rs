//! What schedules show, and that it is the same every time.

use std::path::Path;

use gsan_ptx::check::explore::{Explored, Plan, explore};
use gsan_ptx::check::prepare::{Prepared, prepare};
use gsan_ptx::check::spec::{Launch, Spec};
use gsan_ptx::diagnostic::Source;
use gsan_ptx::exec::Limits;
use gsan_ptx::exec::schedule::Strategy;
use gsan_report::builder::Builder;
use gsan_report::model::{FaultKind, RaceKind};

/// Two CTAs of one warp; thread 0 of each executes `statements`. `%rd1` is a buffer of 16 bytes.
fn kernel(statements: &str) -> Prepared {
    kernel_with("", statements)
}

/// The same kernel in a module with these items.
fn kernel_with(items: &str, statements: &str) -> Prepared {
    let ptx = format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n\
         .global .b8 text[3] = {{104, 105, 0}}; {items}\n\
         .entry k(.param .u64 .ptr p) .reqntid 32 {{\n\
         .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 0;\n\
         mov.u32 %r2, %ctaid.x;\n@%p1 ret;\n{statements}\nret;\n}}\n"
    );
    let launch = Launch {
        grid: [2, 1, 1],
        ..Launch::default()
    };
    let spec = Spec::from_words(&["buf:16:u32".to_owned()], launch).expect("the words are right");
    let source = Source {
        file: "k.ptx",
        text: &ptx,
    };
    prepare(source, &spec, Path::new(".")).unwrap_or_else(|error| panic!("{error}"))
}

const PLAN: Plan = Plan {
    strategy: Strategy::Pct,
    schedules: 20,
    seed: 3,
    all: false,
    threads: 2,
    limits: Limits {
        instructions: 100_000,
        multiprocessors: 4,
        resident_threads: 1024,
        stack_bytes: 1 << 16,
    },
};

fn run(prepared: &Prepared, plan: Plan) -> Explored {
    let replay = |seed| format!("again {seed}");
    explore(prepared, &plan, Builder::new(100, &[]), &replay, &|_| {})
        .unwrap_or_else(|error| panic!("{error}"))
}

const RACE: &str = "st.global.u32 [%rd1], %r2;";

#[test]
fn a_race_stops_the_search_and_says_how_to_see_it_again() {
    let explored = run(&kernel(RACE), PLAN);
    let report = explored.report;
    assert_eq!(report.summary.schedules, 1);
    let [race] = &report.races[..] else {
        panic!("{report:?}");
    };
    assert_eq!(race.kind, RaceKind::WriteAfterWrite);
    assert_eq!(race.range.allocation.as_ref().unwrap().bytes, 16);
    let replay = race.replay.as_ref().unwrap();
    assert_eq!((replay.seed, replay.command.as_str()), (3, "again 3"));
    let place = race.later.place.as_ref().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("k.ptx", 13));
}

#[test]
fn all_schedules_are_run_when_asked() {
    let report = run(&kernel(RACE), Plan { all: true, ..PLAN }).report;
    assert_eq!(report.summary.schedules, 20);
    assert_eq!(report.races.len(), 1);
    assert_eq!(report.races[0].times, 20);
}

#[test]
fn a_correct_kernel_is_clean_in_every_schedule() {
    let report = run(&kernel("atom.global.add.u32 %r3, [%rd1], 1;"), PLAN).report;
    assert!(!report.has_findings(true), "{report:?}");
    assert_eq!(report.summary.schedules, 20);
    assert_eq!(report.summary.launches, 20);
    // Two threads, each with one access, in every schedule.
    assert_eq!(report.summary.accesses, 40);
}

#[test]
fn what_is_reported_does_not_depend_on_how_many_run_at_once() {
    // A race only if CTA 1 comes first.
    let prepared = kernel(
        "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra ZERO;\natom.global.add.u32 %r3, [%rd1], 1;\n\
         setp.ne.u32 %p3, %r3, 0;\n@%p3 ret;\nst.global.u32 [%rd1+4], 1;\nret;\nZERO:\n\
         atom.global.add.u32 %r3, [%rd1], 1;\nld.global.u32 %r4, [%rd1+4];",
    );
    let one = run(&prepared, Plan { threads: 1, ..PLAN }).report;
    assert!(one.has_findings(false));
    for _ in 0..5 {
        assert_eq!(run(&prepared, Plan { threads: 8, ..PLAN }).report, one);
    }
    let seed = one.races[0].replay.as_ref().unwrap().seed;
    let again = run(
        &prepared,
        Plan {
            seed,
            schedules: 1,
            ..PLAN
        },
    );
    assert_eq!(again.report.races, one.races);
}

#[test]
fn faults_have_a_kind_a_place_and_the_bytes() {
    for (statements, kind) in [
        ("st.global.u32 [%rd1+16], 1;", FaultKind::OutOfBounds),
        ("st.global.u32 [%rd1+2], 1;", FaultKind::Misaligned),
        ("trap;", FaultKind::Trap),
        ("div.u32 %r3, %r1, 0;", FaultKind::DivisionByZero),
        ("bar.sync 16;", FaultKind::InvalidOperand),
    ] {
        let report = run(&kernel(statements), PLAN).report;
        let [fault] = &report.faults[..] else {
            panic!("{statements}: {report:?}");
        };
        assert_eq!(fault.kind, kind, "{statements}");
        assert_eq!(fault.place.as_ref().unwrap().line, 13, "{statements}");
        assert!(fault.replay.is_some(), "{statements}");
    }
}

#[test]
fn a_deadlock_says_who_waits_where() {
    let report = run(
        &kernel("L:\nld.volatile.global.u32 %r3, [%rd1+8];\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra L;"),
        PLAN,
    )
    .report;
    let [fault] = &report.faults[..] else {
        panic!("{report:?}");
    };
    assert_eq!(fault.kind, FaultKind::Deadlock);
    let [waiting] = &fault.waiting[..] else {
        panic!("{fault:?}");
    };
    assert_eq!(waiting.threads, 2);
    assert_eq!(waiting.what, "a change of byte 8 of `argument 0`");
}

#[test]
fn a_worn_budget_says_how_to_raise_it() {
    let report = run(
        &kernel(".shared .b32 s;\nL:\nadd.u32 %r3, %r3, 1;\nst.shared.u32 [s], %r3;\nbra L;"),
        PLAN,
    )
    .report;
    assert_eq!(report.faults[0].kind, FaultKind::Budget);
    assert!(report.faults[0].notes[0].contains("--budget"));
}

#[test]
fn what_a_kernel_prints_comes_back() {
    let explored = run(
        &kernel(
            "{ .param .b64 f; .param .b64 a; .param .b32 r; .reg .b64 x; mov.u64 x, text;\n\
             st.param.b64 [f], x; st.param.b64 [a], 0; call (r), vprintf, (f, a); }",
        ),
        PLAN,
    );
    assert_eq!(explored.printed, "hihi");
}

#[test]
fn endless_output_uses_the_budget_up_and_is_kept_up_to_the_size_of_a_printf_buffer() {
    let long = format!(".global .b8 long[60001] = {{{}0}};", "97, ".repeat(60_000));
    let print = "{ .param .b64 f; .param .b64 a; .param .b32 r; .reg .b64 x; mov.u64 x, long;\n\
                 st.param.b64 [f], x; st.param.b64 [a], 0; call (r), vprintf, (f, a); }";
    let explored = run(
        &kernel_with(&long, &format!("L: add.u32 %r3, %r3, 1;\n{print}\nbra L;")),
        Plan {
            schedules: 1,
            limits: Limits {
                instructions: 2_000_000,
                ..PLAN.limits
            },
            ..PLAN
        },
    );
    assert_eq!(explored.report.faults[0].kind, FaultKind::Budget);
    let rest = explored.printed.trim_start_matches('a');
    assert_eq!(explored.printed.len() - rest.len(), 1 << 20);
    assert!(rest.ends_with(" more bytes were printed]\n"), "{rest}");
}

/// The kernel with an mbarrier `[bar]` beside it.
fn with_mbarrier(statements: &str) -> Prepared {
    kernel(&format!(
        ".shared .align 8 .b64 bar;\n.reg .b64 %s;\n{statements}"
    ))
}

#[test]
fn a_wait_for_an_mbarrier_says_what_is_missing() {
    for (test, wait) in [
        (
            "mbarrier.arrive.shared.b64 %s, [bar];\n\
             W: mbarrier.test_wait.shared.b64 %p2, [bar], %s;",
            "phase 0 of the mbarrier at 0x0 in shared memory (1 of 3 arrivals)",
        ),
        (
            "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;",
            "phase 0 of the mbarrier at 0x0 in shared memory (0 of 3 arrivals)",
        ),
        (
            "mbarrier.arrive.shared.b64 %s, [bar], 3;\n\
             mbarrier.expect_tx.shared.b64 [bar], 16;\n\
             W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 1;",
            "phase 1 of the mbarrier at 0x0 in shared memory (0 of 3 arrivals, 16 transactions pending)",
        ),
    ] {
        let kernel = with_mbarrier(&format!(
            "mbarrier.init.shared.b64 [bar], 3;\n{test}\n@!%p2 bra W;"
        ));
        let report = run(&kernel, PLAN).report;
        let [fault] = &report.faults[..] else {
            panic!("{report:?}");
        };
        assert_eq!(fault.kind, FaultKind::Deadlock);
        assert_eq!(fault.waiting[0].what, wait);
    }
}

#[test]
fn wrong_uses_of_an_mbarrier_are_said_in_words() {
    for (statements, message) in [
        (
            "mbarrier.inval.shared.b64 [bar];",
            "there is none: no `mbarrier.init` came before, or `mbarrier.inval` did",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %s, [bar], 0;",
            "a count of 0 arrivals; it must be 1 to 1048575",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive_drop.shared.b64 %s, [bar], 3;",
            "an arrival that counts for 3 at a phase that waits for 2 more",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n\
             mbarrier.arrive_drop.shared.b64 %s, [bar]; mbarrier.arrive.shared.b64 %s, [bar];",
            "an arrival that counts for 1 at a phase that waits for 0 more",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1048575; cp.async.mbarrier.arrive.shared.b64 [bar];",
            "a count of 1048576 arrivals; it must be 1 to 1048575",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.expect_tx.shared.b64 [bar], 1048575;\n\
             mbarrier.expect_tx.shared.b64 [bar], 1;",
            "1048576 pending transactions; there can be at most 1048575",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1;\n\
             mbarrier.complete_tx.shared.b64 [bar], 0xffffffff;",
            "-4294967295 pending transactions; there can be at most 1048575",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [bar], 1;",
            "`mbarrier.init` without `mbarrier.inval` of the one that is there",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2;\n\
             mbarrier.arrive.noComplete.shared.b64 %s, [bar], 2;",
            "an arrival with `.noComplete` completes the phase",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2;\n\
             mbarrier.test_wait.parity.shared.b64 %p2, [bar], 2;",
            "a wait for parity 2; a parity is 0 or 1",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %s, [bar];\n\
             mbarrier.arrive.shared.b64 _, [bar]; mbarrier.test_wait.shared.b64 %p2, [bar], %s;",
            "a wait with a state that is too old; it must come from the running phase or the one before",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mov.b64 %s, 0x100000;\n\
             mbarrier.test_wait.shared.b64 %p2, [bar], %s;",
            "a wait with the state of an arrival at another mbarrier",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; atom.shared.add.u32 %r3, [bar+4], 1;",
            "a write that is no mbarrier operation; `mbarrier.inval` it first",
        ),
    ] {
        let report = run(&with_mbarrier(statements), PLAN).report;
        let [fault] = &report.faults[..] else {
            panic!("{statements}: {report:?}");
        };
        let expected = format!("mbarrier at 0x0 in shared memory: {message}");
        assert_eq!(fault.message, expected, "{statements}");
    }
}

/// Faults that need more than an instruction.
#[test]
fn what_no_kernel_may_do_is_said_in_words() {
    for (items, statements, kind, message) in [
        (
            ".const .b32 c = 1;",
            "mov.u64 %rd2, c; cvta.const.u64 %rd2, %rd2; st.global.u32 [%rd2], 1;",
            FaultKind::OutOfBounds,
            "write of 4 bytes at 0x700000000004 to read-only memory",
        ),
        (
            "",
            "mov.b64 %rd2, p; cvta.param.u64 %rd2, %rd2; st.u32 [%rd2], 1;",
            FaultKind::OutOfBounds,
            "write of 4 bytes at 0x0 to read-only memory",
        ),
        ("", "brkpt;", FaultKind::Trap, "breakpoint"),
        (
            "",
            "T: .branchtargets A, A; add.u32 %r3, %r2, 2; brx.idx %r3, T; A:",
            FaultKind::InvalidOperand,
            "branch index 2 is beyond its table of 2",
        ),
        (
            ".func f() { ret; }",
            "P: .callprototype _ (); mov.u64 %rd2, f; add.u64 %rd2, %rd2, 1; call %rd2, P;",
            FaultKind::InvalidOperand,
            "call of 0x7c0000000011, which is none of the functions it may be",
        ),
        (
            ".func f() { .local .b64 a[100]; .reg .b64 %rd<2>; mov.u64 %rd1, a; call f; ret; }",
            "call f;",
            FaultKind::OutOfBounds,
            "call frames need more than the 65536 bytes a thread has",
        ),
        (
            ".shared .align 16 .b8 s[16];",
            "mov.u32 %r3, s; mov.u32 %r4, 17;\n\
             cp.async.ca.shared.global [%r3], [%rd1], 16, %r4;",
            FaultKind::InvalidOperand,
            "asynchronous copy reads 17 bytes but writes 16",
        ),
        (
            "",
            "mbarrier.init.b64 [%rd1], 1;",
            FaultKind::InvalidOperand,
            "an mbarrier lies in shared memory, but 0x1000000000 is an address of global memory",
        ),
        (
            ".shared .align 8 .b8 s[16];",
            "mov.u32 %r3, s; mbarrier.init.shared.b64 [%r3+4], 1;",
            FaultKind::Misaligned,
            "write at 0x4 in shared memory is not aligned to 8 bytes",
        ),
        (
            ".shared .align 8 .b8 s[16];",
            "mov.u32 %r3, s; mbarrier.inval.shared.b64 [%r3+16];",
            FaultKind::OutOfBounds,
            "write of 8 bytes at 0x10 in shared memory is out of bounds",
        ),
    ] {
        let report = run(&kernel_with(items, statements), PLAN).report;
        let [fault] = &report.faults[..] else {
            panic!("{statements}: {report:?}");
        };
        assert_eq!((fault.kind, fault.message.as_str()), (kind, message));
    }
}
