//! Instructions and checked accesses a second on one core.
//!
//! `arithmetic` is straight-line integer and floating arithmetic in a loop; `global` and `shared`
//! are loads and stores of 4 bytes by each thread to words of its own. Each access kernel runs
//! with the exact detector and, beside it, with none. The unit of `arithmetic` is an instruction,
//! that of the others an access. Time is that of the processor, where the system tells it, so that
//! other programs on the machine matter less.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gsan_core::event::{Detector, Event, EventError};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{DeviceRank, StreamId};
use gsan_core::loss::Losses;
use gsan_core::race::Race;
use gsan_ptx::diagnostic::Source;
use gsan_ptx::exec::launch::Launch;
use gsan_ptx::exec::memory::Image;
use gsan_ptx::exec::schedule::{Schedule, Strategy};
use gsan_ptx::exec::{Limits, Setup};
use gsan_ptx::lower::{entries, lower};
use gsan_ptx::program::Program;
use gsan_ptx::program::symbols::FunctionId;
use gsan_ptx::syntax::parse;

/// A detector that looks at nothing.
struct Off;

impl Detector for Off {
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

const THREADS: u32 = 64;

/// How long this thread has run on a processor; `None` where the system does not tell.
fn processor_time() -> Option<Duration> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = times.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The time that `times` runs take.
fn timed<T>(times: u64, mut run: impl FnMut() -> T) -> Duration {
    let (start, before) = (Instant::now(), processor_time());
    for _ in 0..times {
        black_box(run());
    }
    match (before, processor_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => start.elapsed(),
    }
}

/// A kernel that executes `body` `rounds` times. `%rd1` is the thread's word in a buffer, `%r3`
/// its offset in shared memory.
fn program(body: &str, rounds: u32) -> Program {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 p) {{\n\
         .reg .pred %p<2>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %rd<4>;\n\
         .shared .align 16 .b8 s[4096];\n\
         ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;\n\
         add.s64 %rd1, %rd1, %rd2; shl.b32 %r3, %r1, 2; mov.u32 %r4, s; add.s32 %r3, %r3, %r4;\n\
         mov.u32 %r2, 0; st.shared.u32 [%r3], %r1;\n\
         LOOP:\n{body}\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {rounds};\n\
         @%p1 bra LOOP;\nret;\n}}\n"
    );
    let source = Source {
        file: "bench.ptx",
        text: &text,
    };
    let module = parse(&source).expect("the text is correct PTX");
    let chosen: Vec<_> = entries(&module).collect();
    lower(source, &module, &chosen).expect("every instruction is supported")
}

/// Runs a program under one schedule; returns instructions and accesses.
fn run<D: Detector>(program: &Program, strategy: Strategy, mut detector: D) -> (u64, u64) {
    let mut image = Image::default();
    let buffer = image.allocate(4096).expect("there is room");
    let launches = [Launch {
        entry: FunctionId(0),
        grid: [1; 3],
        block: [THREADS, 1, 1],
        dynamic_shared: 0,
        params: buffer.to_le_bytes().to_vec(),
        device: DeviceRank(0),
        stream: StreamId(0),
        programmatic: false,
        waits: Vec::new(),
        record: None,
        sync: false,
    }];
    let setup = Setup::new(program, &image, &launches, Limits::default())
        .expect("the launch fits the kernel");
    let outcome = setup.run(Schedule { strategy, seed: 1 }, &mut detector);
    assert!(outcome.finding.is_none(), "{:?}", outcome.finding);
    (outcome.instructions, outcome.accesses)
}

fn arithmetic(c: &mut Criterion) {
    let body = "add.s32 %r5, %r2, %r1; mad.lo.s32 %r6, %r5, 7, %r5; xor.b32 %r7, %r6, %r5;\n\
                shl.b32 %r8, %r7, 3; sub.s32 %r9, %r8, %r6; and.b32 %r10, %r9, 255;\n\
                cvt.rn.f32.s32 %f1, %r10; fma.rn.f32 %f2, %f1, %f1, %f2;\n\
                add.f32 %f3, %f2, %f1; mul.f32 %f4, %f3, %f1; max.f32 %f5, %f4, %f3;\n\
                mov.b32 %r11, %f5; shr.u32 %r12, %r11, 4; min.s32 %r13, %r12, %r10;\n"
        .repeat(4);
    let program = program(&body, 200);
    let (instructions, _) = run(&program, Strategy::RoundRobin, Off);
    let mut group = c.benchmark_group("arithmetic");
    group.throughput(Throughput::Elements(instructions));
    group.bench_function("instructions", |b| {
        b.iter_custom(|times| {
            timed(times, || {
                run(black_box(&program), Strategy::RoundRobin, Off)
            })
        });
    });
    group.finish();
}

fn accesses(c: &mut Criterion) {
    for (name, address) in [
        ("global", "global.u32 [%rd1]"),
        ("shared", "shared.u32 [%r3]"),
    ] {
        let load = address.replace("u32 ", "u32 %r5, ");
        let body = format!("ld.{load};\nadd.u32 %r5, %r5, %r2;\nst.{address}, %r5;\n").repeat(4);
        let program = program(&body, 100);
        for strategy in [Strategy::Pct, Strategy::Random] {
            let (_, accesses) = run(&program, strategy, Off);
            let mut group = c.benchmark_group(format!("{name}/{strategy:?}"));
            group.throughput(Throughput::Elements(accesses));
            group.bench_function("detector off", |b| {
                b.iter_custom(|times| timed(times, || run(black_box(&program), strategy, Off)));
            });
            group.bench_function("checked", |b| {
                let exact = || Exact::new(Unit::Thread);
                b.iter_custom(|times| timed(times, || run(black_box(&program), strategy, exact())));
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = arithmetic, accesses
}
criterion_main!(benches);
