//! What a program's calls cost its host thread, on the host backend, with the shape of an H200.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gsan_sync::{HostKernels, LaunchInfo, Ordering, Settings, StreamKey, StreamKind};
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device, Stream};
use gsan_vmm::{Allocator, Options};

const GPU: Device = Device(0);

const INFO: LaunchInfo = LaunchInfo {
    kernel: 1,
    grid: [132, 1, 1],
    programmatic: false,
    opaque: false,
};

/// An ordering with `streams` non-blocking streams, and what it stands on.
fn ordering_of(streams: u64) -> (Ordering, Arc<Allocator>, Vec<StreamKey>) {
    let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
    let allocator = Arc::new(allocator);
    let kernels = HostKernels::new(backend, Arc::clone(&allocator));
    let ordering = Ordering::new(Settings::default(), &allocator, Arc::new(kernels)).unwrap();
    let open = |handle| {
        let key = StreamKey {
            device: GPU,
            handle,
        };
        let kind = StreamKind::NonBlocking;
        ordering
            .open_stream(key, Stream::host(handle), kind)
            .unwrap();
        key
    };
    let keys = (1..=streams).map(open).collect();
    (ordering, allocator, keys)
}

fn launch(ordering: &Ordering, stream: StreamKey, info: &LaunchInfo) {
    let mut launch = ordering.begin_launch(stream, info).unwrap();
    black_box((launch.table(), launch.index()));
    launch.finish(true).unwrap();
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ordering");

    let (ordering, _allocator, keys) = ordering_of(1);
    group.bench_function("launch on a single stream", |b| {
        b.iter(|| launch(&ordering, keys[0], &INFO));
    });
    let dependent = LaunchInfo {
        programmatic: true,
        ..INFO
    };
    group.bench_function("dependent launch behind a normal one", |b| {
        b.iter(|| {
            launch(&ordering, keys[0], &INFO);
            launch(&ordering, keys[0], &dependent);
        });
    });
    group.bench_function("launch and record", |b| {
        b.iter(|| {
            launch(&ordering, keys[0], &INFO);
            ordering.record_event(1, keys[0]).unwrap();
        });
    });
    group.bench_function("record without a launch in between", |b| {
        b.iter(|| ordering.record_event(1, keys[0]).unwrap());
    });
    group.bench_function("launch and synchronise", |b| {
        b.iter(|| {
            launch(&ordering, keys[0], &INFO);
            ordering.synchronize_stream(keys[0]).unwrap();
        });
    });

    let (ordering, _allocator, keys) = ordering_of(2);
    group.bench_function("launch, record, wait and launch on two streams", |b| {
        b.iter(|| {
            launch(&ordering, keys[0], &INFO);
            ordering.record_event(1, keys[0]).unwrap();
            ordering.wait_event(keys[1], 1).unwrap();
            launch(&ordering, keys[1], &INFO);
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
