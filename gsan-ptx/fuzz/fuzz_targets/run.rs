//! PTX text that runs: whatever a kernel does, it ends within its budget and without a panic.
#![no_main]

use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{DeviceRank, StreamId};
use gsan_ptx::diagnostic::Source;
use gsan_ptx::exec::launch::Launch;
use gsan_ptx::exec::memory::Image;
use gsan_ptx::exec::schedule::{Schedule, Strategy};
use gsan_ptx::exec::{Limits, Setup};
use gsan_ptx::lower::{entries, lower};
use gsan_ptx::program::symbols::FunctionId;
use gsan_ptx::syntax::parse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let source = Source {
        file: "fuzz.ptx",
        text: &text,
    };
    let Ok(module) = parse(&source) else { return };
    let chosen: Vec<_> = entries(&module).take(1).collect();
    let Ok(program) = lower(source, &module, &chosen) else {
        return;
    };
    let Some(entry) = program.functions.first().filter(|function| function.entry) else {
        return;
    };
    let mut image = Image::default();
    let Ok(buffer) = image.allocate(4096) else { return };
    let words = (entry.param_bytes as usize).div_ceil(8);
    let mut params = buffer.to_le_bytes().repeat(words);
    params.truncate(entry.param_bytes as usize);
    let launches = [Launch {
        entry: FunctionId(0),
        grid: [2, 1, 1],
        block: entry.reqntid.unwrap_or([33, 1, 1]),
        dynamic_shared: 1024,
        params,
        device: DeviceRank(0),
        stream: StreamId(0),
        programmatic: false,
        waits: Vec::new(),
        record: None,
        sync: false,
    }];
    let limits = Limits {
        instructions: 20_000,
        resident_threads: 128,
        stack_bytes: 1 << 14,
        ..Limits::default()
    };
    let Ok(setup) = Setup::new(&program, &image, &launches, limits) else {
        return;
    };
    let schedule = Schedule {
        strategy: Strategy::Pct,
        seed: bytes.len() as u64,
    };
    setup.run(schedule, &mut Exact::new(Unit::Thread));
});
