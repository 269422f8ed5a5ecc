//! What a program's calls cost its host thread, on the host backend, with the shape of an H200.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gsan_config::Loaded;
use gsan_runtime::session::KernelLaunch;
use gsan_runtime::{Session, process};
use gsan_vmm::backend::Device;

const GPU: Device = Device(0);

const LAUNCH: KernelLaunch<'_> = KernelLaunch {
    kernel: "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>",
    grid: [132, 1, 1],
    block: [128, 1, 1],
    programmatic: false,
    opaque: false,
};

fn session() -> Arc<Session> {
    let mut loaded = Loaded::default();
    let text = "[topology]\nbackend = \"host\"\n";
    loaded.apply_file(Path::new("bench"), text).unwrap();
    Arc::new(Session::start(&loaded).unwrap())
}

fn launch(session: &Session, stream: u64) {
    let mut launch = session.begin_launch(GPU, stream, &LAUNCH).unwrap();
    black_box((launch.table(), launch.index()));
    launch.finish(true).unwrap();
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("session");

    let own = session();
    let stream = own.create_host_stream(GPU, false).unwrap();
    group.bench_function("launch of a known kernel on a known stream", |b| {
        b.iter(|| launch(&own, stream));
    });
    let event = own.create_host_event().unwrap();
    group.bench_function("record of an event", |b| {
        b.iter(|| own.event_recorded(event, GPU, stream).unwrap());
    });
    group.bench_function("find of an allocation", |b| {
        let memory = own.allocate(1 << 20, GPU, stream).unwrap();
        b.iter(|| own.find_allocation(black_box(memory + 4096)).unwrap());
    });

    process::configure("[topology]\nbackend = \"host\"\n", "bench").unwrap();
    let shared = Session::get_or_start("bench").unwrap();
    let stream = shared.create_host_stream(GPU, false).unwrap();
    group.bench_function("launch, with the process's session looked up", |b| {
        b.iter(|| launch(&Session::get_or_start("bench").unwrap(), stream));
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
