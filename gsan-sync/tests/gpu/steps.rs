//! The ordering's own kernel on a GPU, against the function that does the same on the host backend.
//! Without a driver each test says so and passes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gsan_core::ids::DeviceRank;
use gsan_sync::{CudaKernels, HostKernels, Kernels, Step};
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device, Stream};
use gsan_vmm::{Allocator, Options};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const GPU: Device = Device(0);
const BYTES: usize = 1 << 20;

/// A state region and who takes steps in it.
struct Machine {
    backend: Arc<dyn Backend>,
    kernels: Arc<dyn Kernels>,
    /// After what works on its memory.
    _allocator: Arc<Allocator>,
    base: u64,
}

impl Machine {
    fn host() -> Machine {
        let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
        let allocator = allocator(Arc::clone(&backend) as Arc<dyn Backend>);
        let kernels = HostKernels::new(Arc::clone(&backend), Arc::clone(&allocator));
        Machine::new(backend, Arc::new(kernels), allocator)
    }

    fn gpu() -> Option<Machine> {
        let backend = match CudaBackend::new() {
            Ok(backend) => Arc::new(backend),
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        let allocator = allocator(Arc::clone(&backend) as Arc<dyn Backend>);
        let kernels = CudaKernels::new(Arc::clone(&backend));
        Some(Machine::new(backend, Arc::new(kernels), allocator))
    }

    fn new(
        backend: Arc<dyn Backend>,
        kernels: Arc<dyn Kernels>,
        allocator: Arc<Allocator>,
    ) -> Machine {
        let base = allocator
            .create_state(DeviceRank(0), GPU, BYTES as u64)
            .unwrap();
        Machine {
            backend,
            kernels,
            _allocator: allocator,
            base,
        }
    }

    fn run(&self, steps: Vec<Step>) {
        self.kernels.run(GPU, Stream::DEFAULT, steps).unwrap();
        self.backend.synchronize(GPU).unwrap();
    }

    fn read(&self, words: usize) -> Vec<u32> {
        let mut memory = vec![0u32; words];
        let target = bytemuck::cast_slice_mut(&mut memory);
        self.backend.read(GPU, self.base, target).unwrap();
        memory
    }
}

fn allocator(backend: Arc<dyn Backend>) -> Arc<Allocator> {
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    Arc::new(Allocator::new(backend, options).unwrap())
}

/// Random steps in a region that starts at `base`.
fn steps(base: u64, random: &mut Xoshiro256PlusPlus) -> Vec<Step> {
    let words = BYTES as u64 / 4;
    (0..random.random_range(1..12))
        .map(|_| {
            let entries = random.random_range(1..5000u32);
            let mut place =
                || base + 8 * random.random_range(0..(words - u64::from(entries) - 64) / 2);
            let (target, source, filled) = (place(), place(), place());
            match random.random_range(0..5) {
                0 | 1 => Step::Merge {
                    target,
                    source,
                    entries,
                    source_filled: if entries % 3 == 0 { filled } else { 0 },
                    target_filled: if entries % 2 == 0 { filled } else { 0 },
                },
                2 => Step::Words {
                    address: target,
                    words: (0..entries % 32).map(u64::from).collect(),
                },
                3 => Step::Zero {
                    address: target,
                    bytes: 8 * u64::from(entries % 100),
                },
                _ => Step::Count {
                    address: target,
                    stride: 128,
                    words: entries % 8,
                    first: entries,
                },
            }
        })
        .collect()
}

#[test]
fn steps_on_a_gpu_do_what_they_do_on_the_host() {
    let Some(gpu) = Machine::gpu() else { return };
    let host = Machine::host();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let memory: Vec<u32> = (0..BYTES / 4)
        .map(|_| if random.random() { random.random() } else { 0 })
        .collect();
    for machine in [&gpu, &host] {
        let bytes = bytemuck::cast_slice(&memory);
        machine.backend.write(GPU, machine.base, bytes).unwrap();
    }
    for round in 0..200 {
        // The same steps, each at its own machine's addresses. A source that overlaps its target is
        // read while it changes, so merges keep apart.
        let of = |machine: &Machine| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(round);
            let apart = |step: &Step| match *step {
                Step::Merge {
                    target,
                    source,
                    entries,
                    source_filled,
                    target_filled,
                } => {
                    let bytes = 4 * u64::from(entries);
                    let inside = |at: u64| {
                        (source..source + bytes).contains(&at)
                            || (target..target + bytes).contains(&at)
                    };
                    let crossed = target < source + bytes && source < target + bytes;
                    !crossed && !inside(source_filled) && !inside(target_filled)
                }
                _ => true,
            };
            let mut steps = steps(machine.base, &mut random);
            steps.retain(apart);
            steps
        };
        gpu.run(of(&gpu));
        host.run(of(&host));
        assert_eq!(gpu.read(BYTES / 4), host.read(BYTES / 4), "round {round}");
    }
}

#[test]
fn ranks_that_do_not_come_are_named_within_the_time_limit() {
    for machine in Machine::gpu().into_iter().chain([Machine::host()]) {
        let base = machine.base;
        let wait = |value| {
            vec![
                Step::Arrive { count: base, value },
                Step::Await {
                    counts: Box::new([(0, base), (3, base + 128)]),
                    value,
                    limit: 50_000_000,
                    missing: base + 256,
                },
                Step::Count {
                    address: base + 384,
                    stride: 4,
                    words: 1,
                    first: value,
                },
            ]
        };
        let start = Instant::now();
        machine.run(wait(7));
        assert!(start.elapsed() >= Duration::from_millis(50));
        let words = machine.read(128);
        assert_eq!((words[0], words[64], words[96]), (7, 1 << 3, 0));
        machine.run(vec![Step::Arrive {
            count: base + 128,
            value: 9,
        }]);
        machine.run(wait(8));
        assert_eq!(machine.read(128)[96], 8);
    }
}
