//! Restarts, the fixed configuration, and the way back to the start.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gsan_core::atomics::{Native, words};
use gsan_core::ids::SiteId;
use gsan_core::site_mirror::{SiteMirror, SourceLine};
use gsan_sync::{Configuration, Edge, Error, HostKernels, Idle, LaunchInfo, Settings, StreamKind};
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Stream};
use gsan_vmm::{Allocator, Options};

use crate::gpu::Do::{Read, Write};
use crate::gpu::{GPU, Gpu, key, settings, unfinished};

fn eager() -> Settings {
    Settings {
        launches_between_looks: 0,
        ..settings()
    }
}

#[test]
fn worn_epochs_are_forgotten_with_everything_else_once_nothing_runs() {
    let gpu = Gpu::with(eager());
    let (a, b) = (gpu.open(1), gpu.open(2));
    for _ in 0..10 {
        gpu.launch(a, &[Write(0)]);
        gpu.launch(b, &[Write(1)]);
    }
    gpu.ordering.record_event(1, a).unwrap();
    assert_eq!(gpu.ordering.device_is_idle(GPU), Ok(Idle::Noted));
    gpu.wear(9_000_000);
    assert_eq!(gpu.ordering.is_half_worn(), Ok(true));
    assert_eq!(gpu.ordering.device_is_idle(GPU), Ok(Idle::Restarted));
    assert_eq!(gpu.ordering.is_half_worn(), Ok(false));
    assert_eq!(gpu.ordering.counts().restarts, 1);
    // What was there before is ordered before everything now.
    assert_eq!(gpu.ordering.wait_event(b, 1), Ok(Edge::Added));
    gpu.launch(a, &[Write(1)]);
    gpu.launch(b, &[Write(0)]);
    assert!(gpu.races().is_empty());
    // What comes now is not.
    gpu.launch(a, &[Write(0)]);
    assert_eq!(gpu.races().len(), 1);
}

/// Races name sites by number, before a restart and after it.
#[test]
fn sites_outlive_a_restart_and_the_device() {
    let count = SiteMirror::<Native>::DEVICE_WORDS as usize;
    let mirrors: [Vec<AtomicU64>; 2] = [(); 2].map(|()| words(count, 0));
    for mirror in &mirrors {
        SiteMirror::<Native>::format(mirror).unwrap();
    }
    let address = |mirror: &Vec<AtomicU64>| mirror.as_ptr().expose_provenance() as u64;
    let gpu = Gpu::with(Settings {
        device_ranks: [0, 1].map(gsan_core::ids::DeviceRank).to_vec(),
        devices: 2,
        site_mirrors: mirrors.iter().map(address).collect(),
        ..eager()
    });
    let (a, b) = (gpu.open(1), gpu.open(2));
    let mut races = Vec::new();
    for granule in [0, 1] {
        gpu.launch(a, &[Write(granule)]);
        gpu.launch(b, &[Read(granule)]);
        races.extend(gpu.told());
        gpu.wear(9_000_000);
        assert_eq!(gpu.ordering.device_is_idle(GPU), Ok(Idle::Restarted));
    }
    drop(gpu);
    let [mirror, other] = mirrors.each_ref().map(|mirror| {
        let mirror = SiteMirror::<Native>::new(mirror).unwrap();
        move |site| mirror.get(SiteId(u32::from(site)))
    });
    let place = |line| {
        let file = "kernel.py".to_owned();
        Some(SourceLine { file, line })
    };
    // The lines of a granule's read and write.
    let lines = races
        .iter()
        .map(|race| (mirror(race.earlier.site), mirror(race.later.site)));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [(place(2), place(1)), (place(4), place(3))]
    );
    assert_eq!(other(races[0].later.site), None);
}

#[test]
fn a_restart_waits_for_nothing() {
    let gpu = Gpu::with(eager());
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.backend.hold(true);
    gpu.launch(b, &[Write(0)]);
    gpu.wear(9_000_000);
    assert_eq!(gpu.ordering.restart(), Ok(Idle::NotYet));
    gpu.backend.run_all();
    let mut launch = gpu
        .ordering
        .begin_launch(a, &LaunchInfo::default())
        .unwrap();
    assert_eq!(gpu.ordering.restart(), Err(unfinished(a)));
    launch.finish(false).unwrap();
    assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
}

#[test]
fn threads_launch_and_restart_at_once() {
    let gpu = &Gpu::with(eager());
    let streams: Vec<_> = (1..5).map(|handle| gpu.open(handle)).collect();
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|&stream| {
                scope.spawn(move || {
                    for round in 0..500 {
                        gpu.launch(stream, &[Write(stream.handle as u32)]);
                        let before = gpu::other(stream.handle);
                        gpu.ordering.wait_stream(stream, key(before)).unwrap();
                        if round % 50 == 0 {
                            gpu.ordering.record_event(stream.handle, stream).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            loop {
                gpu.ordering.restart().unwrap();
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(gpu.races().is_empty());
    assert!(gpu.ordering.counts().restarts > 0);
    assert_eq!(gpu.ordering.counts().unchecked, 0);
}

mod gpu {
    /// Another stream of four.
    pub(super) fn other(handle: u64) -> u64 {
        handle % 4 + 1
    }
}

#[test]
fn the_configuration_is_fixed_at_its_first_use_and_a_reset_frees_it() {
    let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
    let allocator = Arc::new(allocator);
    let kernels = HostKernels::new(Arc::clone(&backend), Arc::clone(&allocator));
    let configuration = Configuration::new(settings(), Arc::clone(&allocator), Arc::new(kernels));
    configuration.change(|settings| settings.seed = 7).unwrap();
    assert_eq!(configuration.settings().seed, 7);
    let ordering = configuration.ordering("the first launch").unwrap();
    assert_eq!(ordering.settings().seed, 7);
    assert!(configuration.is_frozen());
    assert_eq!(
        configuration.change(|_| ()).unwrap_err().to_string(),
        "the configuration is fixed since its first use (the first launch): change it before, or \
         after a reset"
    );
    ordering
        .open_stream(key(1), Stream::host(1), StreamKind::NonBlocking)
        .unwrap();

    let memory = allocator.allocate(100, GPU).unwrap();
    assert_eq!(
        configuration.reset(),
        Err(Error::LiveAllocations {
            count: 1,
            bytes: 100,
            first: memory
        })
    );
    allocator.free(memory, None, Stream::DEFAULT).unwrap();
    let plan = ordering.begin_plan(GPU).unwrap().finish().unwrap();
    assert_eq!(
        configuration.reset(),
        Err(Error::LiveGraphs {
            graphs: 1,
            builders: 0
        })
    );
    plan.close().unwrap();
    backend.hold(true);
    backend.enqueue(GPU, Stream::host(1), || ()).unwrap();
    assert_eq!(configuration.reset(), Err(Error::StillRunning(key(1))));
    backend.hold(false);

    configuration.reset().unwrap();
    assert_eq!(configuration.settings(), settings());
    assert!(!configuration.is_frozen());
    let gone = ordering.begin_launch(key(1), &LaunchInfo::default());
    assert_eq!(gone.err(), Some(Error::UnknownStream(key(1))));
    let again = configuration.ordering("the second launch").unwrap();
    assert!(!again.knows_stream(key(1)));
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let small = HostOptions {
        granularity: 4096,
        ..HostOptions::default()
    };
    let backend = Arc::new(HostBackend::new(small).unwrap());
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
    let allocator = Arc::new(allocator);
    let kernels = Arc::new(HostKernels::new(backend, Arc::clone(&allocator)));
    let rank = gsan_core::ids::DeviceRank;
    let with = |ranks: &[u16], devices| Settings {
        device_ranks: ranks.iter().copied().map(rank).collect(),
        devices,
        ..settings()
    };
    let error = |settings| {
        let made = gsan_sync::Ordering::new(settings, &allocator, kernels.clone());
        made.err().unwrap().to_string()
    };
    assert_eq!(
        error(with(&[0, 0], 2)),
        "topology.device_ranks gives device 1 the rank 0, which is taken by another device; each \
         device needs a rank of its own below topology.num_devices = 2"
    );
    assert!(error(with(&[2], 2)).contains("outside the topology"));
    let tight = Settings {
        row_bytes: 1,
        ..settings()
    };
    assert!(error(tight).contains("are left for clock rows on device 0"));
    let mirrored = Settings {
        site_mirrors: vec![0, 0],
        ..settings()
    };
    assert_eq!(
        error(mirrored),
        "2 site mirrors for 1 devices: each needs its own, or 0"
    );
    // Nothing of that was left behind.
    assert!(allocator.state(rank(0)).is_none());
}

#[test]
fn a_read_of_a_graph_is_ordered_before_a_write_after_a_restart() {
    let gpu = Gpu::with(eager());
    let a = gpu.open(1);
    gpu.launch(a, &[Read(0)]);
    gpu.wear(9_000_000);
    assert_eq!(gpu.ordering.device_is_idle(GPU), Ok(Idle::Restarted));
    let b = gpu.open(2);
    gpu.launch(b, &[Write(0)]);
    assert!(gpu.races().is_empty());
}
