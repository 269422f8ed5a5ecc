//! Two processes with a GPU each, whose kernels write each other's memory.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gsan_core::ids::DeviceRank;
use gsan_core::layout::RaceEntry;
use gsan_sync::{Error, Group, Settings, StreamKey, StreamKind};
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::{Backend, Device};
use gsan_vmm::rendezvous::{self, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};

use crate::machine::Do::{Acquire, Look, Read, Relaxed, Release, Write};
use crate::machine::{Do, Gpu, Scope, line, on_gpus};

const DIRECTORY: &str = "GSAN_TEST_DIRECTORY";
const ROLE: &str = "GSAN_TEST_ROLE";
const LONG: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(150);

fn both() -> [DeviceRank; 2] {
    [DeviceRank(0), DeviceRank(1)]
}

/// One of two processes, which have exchanged their states and the first one's memory. Process 0 uses
/// device 0 as rank 0, process 1 device 1 as rank 1; the other device of each has a rank that nobody
/// uses.
struct Member {
    gpu: Gpu,
    rendezvous: Rendezvous,
    group: Group,
    stream: StreamKey,
    rank: u16,
}

impl Member {
    fn join(backend: &Arc<CudaBackend>, directory: &Path, rank: u16) -> Member {
        let device = Device(u32::from(rank));
        let ranks = match rank {
            0 => [0, 2],
            _ => [3, 1],
        };
        let settings = Settings {
            device_ranks: ranks.map(DeviceRank).to_vec(),
            devices: 4,
            publications: 4096,
            snapshot_bytes: 32 << 20,
            private_bytes: 32 << 20,
            row_bytes: 256 << 20,
            ..Settings::default()
        };
        let mut gpu = Gpu::new(backend, device, settings);
        let mut rendezvous = Rendezvous::join(rendezvous::Group {
            name: "gpus".into(),
            rank,
            ranks: 2,
            hosts: Vec::new(),
            directory: Some(directory.to_owned()),
            limit: LONG,
        })
        .unwrap();
        let mut exchange = |parcel: Parcel| -> Parcel {
            let parcels = rendezvous.exchange(&parcel).unwrap();
            parcels.into_iter().flatten().next().unwrap()
        };
        let allocator = &gpu.allocator;
        let own = allocator.export_state(DeviceRank(rank)).unwrap();
        let state = SharedState::from_parcel(exchange(own.into_parcel())).unwrap();
        allocator.import_state(state, device).unwrap();
        let own = allocator.export(gpu.memory()).unwrap().0;
        let shared = SharedAllocation::from_parcel(exchange(own.into_parcel())).unwrap();
        if rank == 1 {
            let memory = allocator.import(shared, device).unwrap();
            gpu.use_memory(memory);
        }
        let stream = gpu.stream(StreamKind::NonBlocking);
        let group = gpu.ordering.group(device, &both()).unwrap();
        Member {
            gpu,
            rendezvous,
            group,
            stream,
            rank,
        }
    }

    /// Nobody goes on before both are here. The ordering is not told.
    fn meet(&mut self) {
        self.tell(String::new());
    }

    /// The same, and each tells the other something.
    fn tell(&mut self, text: String) -> String {
        let parcel = Parcel {
            text,
            ..Parcel::default()
        };
        let told = self.rendezvous.exchange(&parcel).unwrap();
        told.into_iter().flatten().next().unwrap().text
    }

    /// How far each rank's count of meetings has come.
    fn counts(&self) -> Vec<(DeviceRank, u32)> {
        self.group.counts().unwrap()
    }

    /// Runs a kernel on one rank while the other one waits.
    fn on(&mut self, rank: u16, what: &[Do]) {
        if self.rank == rank {
            self.gpu.launch(self.stream, what);
        }
        self.meet();
    }

    fn barrier(&self, limit: Duration) -> Result<(), Error> {
        self.group.barrier(self.stream, limit).unwrap().wait()
    }

    /// A write of rank 0 and a read of rank 1 were found by rank 1, and by nobody else.
    fn is_found(&self, granule: u32) {
        let races = self.gpu.races();
        if self.rank == 0 {
            assert!(races.is_empty(), "{races:?}");
            return;
        }
        let at = |race: &&RaceEntry| race.address == self.gpu.memory() + 8 * u64::from(granule);
        let race = races.iter().find(at).unwrap_or_else(|| panic!("{races:?}"));
        let (earlier, later) = (&race.earlier, &race.later);
        assert_eq!((earlier.device, later.device), (0, 1));
        let lines = [(0, earlier.site), (1, later.site)]
            .map(|(rank, site)| self.gpu.line_of(DeviceRank(rank), site));
        assert_eq!(lines, [line("write"), line("read")]);
        assert_ne!(earlier.launch, 0, "the other process's launch is known");
    }

    fn is_clean(&self) {
        let races = self.gpu.races();
        assert!(races.is_empty(), "{races:?}");
    }

    fn run(&mut self) {
        // A launch whose number is not 0.
        self.on(0, &[]);
        self.on(0, &[Write(5)]);
        self.on(1, &[Read(5)]);
        self.is_found(5);
        self.on(0, &[Write(0)]);
        self.barrier(LONG).unwrap();
        self.on(1, &[Read(0), Write(1)]);
        self.is_clean();
        self.meet();
        // Messages at system scope order, one after the other and while both run.
        self.on(0, &[Write(2), Release(20, Scope::System)]);
        self.on(1, &[Acquire(20, Scope::System), Read(2)]);
        self.is_clean();
        self.meet();
        let what: &[Do] = match self.rank {
            0 => &[Write(6), Release(24, Scope::System)],
            _ => &[Acquire(24, Scope::System), Read(6)],
        };
        self.gpu.launch(self.stream, what);
        self.meet();
        self.is_clean();
        self.meet();
        // At the scope of one GPU, or relaxed, they do not.
        self.on(0, &[Write(3), Release(21, Scope::Gpu)]);
        self.on(1, &[Acquire(21, Scope::Gpu), Read(3)]);
        self.is_found(3);
        self.meet();
        self.on(0, &[Write(7), Relaxed(22)]);
        self.on(1, &[Look(22), Read(7)]);
        self.is_found(7);
        self.meet();
        // A collective: the exchange stands for what the program's library does.
        self.on(0, &[Write(4)]);
        self.group.before_collective(self.stream).unwrap();
        self.gpu.settle();
        self.meet();
        self.group.after_collective(self.stream).unwrap();
        self.on(1, &[Read(4), Write(4)]);
        self.is_clean();
        let start = Instant::now();
        for _ in 0..100 {
            self.barrier(LONG).unwrap();
        }
        println!("{:?} a barrier", start.elapsed() / 100);
        self.on(0, &[Write(4)]);
        self.is_clean();
        self.meet();
    }
}

/// Not a test: what the second process runs.
#[test]
fn second_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    on_gpus(2, LIMIT, |backend| {
        let mut member = Member::join(backend, Path::new(&directory), 1);
        match std::env::var(ROLE).as_deref() {
            // Its stream does not get to the barrier that it was given.
            Ok("before") => {
                member.gpu.stop(member.stream, 1);
                let arrival = member.group.barrier(member.stream, LONG).unwrap();
                member.tell(format!("{:?}", arrival.is_over()));
                std::thread::sleep(LONG);
            }
            // Its stream waits in the barrier.
            Ok("inside") => {
                let arrival = member.group.barrier(member.stream, LONG).unwrap();
                let start = Instant::now();
                while !member.counts().contains(&(DeviceRank(1), 1)) && start.elapsed() < LONG {
                    std::thread::sleep(Duration::from_millis(1));
                }
                member.tell(format!("{:?}", arrival.is_over()));
                std::thread::sleep(LONG);
            }
            _ => member.run(),
        }
    });
}

fn start(directory: &Path, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::second_process", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROLE, role)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn private() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
    directory
}

/// Whether two GPUs reach each other; says so if not.
fn reach(backend: &CudaBackend) -> bool {
    let reach = backend.reaches(Device(0), Device(1)) && backend.reaches(Device(1), Device(0));
    if !reach {
        println!("skipped: the two GPUs have no peer link");
    }
    reach
}

#[test]
fn two_gpus_are_ordered_by_barriers_collectives_and_system_scope() {
    on_gpus(2, LIMIT, |backend| {
        if !reach(backend) {
            return;
        }
        let directory = private();
        let mut child = start(directory.path(), "run");
        Member::join(backend, directory.path(), 0).run();
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_process_that_is_killed_in_a_barrier_is_named_within_the_time_limit() {
    for role in ["before", "inside"] {
        on_gpus(2, LIMIT, |backend| {
            if !reach(backend) {
                return;
            }
            let directory = private();
            let mut child = start(directory.path(), role);
            let mut member = Member::join(backend, directory.path(), 0);
            // Where the other one's stream is, says it, and says its count, which outlives it.
            assert_eq!(member.tell(String::new()), "Ok(false)", "{role}");
            let arrived = u32::from(role == "inside");
            let counts = [(DeviceRank(0), 0), (DeviceRank(1), arrived)];
            assert_eq!(member.counts(), counts, "{role}");
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert!(!status.success());
            assert_eq!(member.counts(), counts, "{role}, killed: {status}");
            if role == "inside" {
                member.barrier(LONG).unwrap();
            }
            let limit = Duration::from_secs(2);
            let start = Instant::now();
            let result = member.barrier(limit);
            let took = start.elapsed();
            let counts = member.counts();
            assert_eq!(
                result,
                Err(Error::BarrierTimeout {
                    missing: vec![DeviceRank(1)],
                    limit
                }),
                "{role}: after {took:?}, {status}, counts {counts:?}"
            );
            assert!(took < 5 * limit, "{role}: {took:?}, counts {counts:?}");
            println!("{role}: left after {took:?}, counts {counts:?}");
        });
    }
}
