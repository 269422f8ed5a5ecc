//! Ranks that share memory: in one process, and in two.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gsan_core::ids::DeviceRank;
use gsan_sync::{Error, Group, Idle, Settings, StreamKey, StreamKind};
use gsan_vmm::backend::Device;
use gsan_vmm::rendezvous::{self, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};

use crate::gpu::Do::{Acquire, AddSystem, Read, Release, Write};
use crate::gpu::{GPU, Gpu, settings};

const DIRECTORY: &str = "GSAN_TEST_DIRECTORY";
const ROLE: &str = "GSAN_TEST_ROLE";
const LONG: Duration = Duration::from_secs(20);

fn both() -> [DeviceRank; 2] {
    [DeviceRank(0), DeviceRank(1)]
}

#[test]
fn what_comes_before_a_barrier_on_one_rank_is_ordered_before_what_comes_after_it_on_others() {
    for meets in [true, false] {
        let gpu = &Gpu::with(Settings {
            device_ranks: both().to_vec(),
            devices: 2,
            ..settings()
        });
        let streams =
            [0, 1].map(|at| gpu.open_as(Device(at), u64::from(at) + 1, StreamKind::NonBlocking));
        let groups = [0, 1].map(|at| gpu.ordering.group(Device(at), &both()).unwrap());
        let other = gpu.open(7);
        gpu.launch(other, &[Write(2)]);
        gpu.ordering.wait_stream(streams[0], other).unwrap();
        gpu.launch(streams[0], &[Write(0)]);
        gpu.launch(streams[1], &[Write(1)]);
        for _ in 0..3 {
            if !meets {
                break;
            }
            std::thread::scope(|scope| {
                for (group, &stream) in groups.iter().zip(&streams) {
                    scope.spawn(move || {
                        group.barrier(stream, LONG).unwrap().wait().unwrap();
                    });
                }
            });
        }
        gpu.launch(streams[0], &[Read(1), Write(3)]);
        gpu.launch(streams[1], &[Read(0), Read(2), Read(3)]);
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        let expected: &[u32] = if meets { &[3] } else { &[0, 1, 2, 3] };
        let mut sorted = granules;
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
    }
}

#[test]
fn collectives_that_overlap_are_each_an_edge() {
    let gpu = &Gpu::with(Settings {
        device_ranks: both().to_vec(),
        devices: 2,
        ..settings()
    });
    let open = |at, stream| gpu.open_as(Device(at), stream, StreamKind::NonBlocking);
    let (a, other, b) = (open(0, 1), open(0, 2), open(1, 3));
    let groups = [0, 1].map(|at| gpu.ordering.group(Device(at), &both()).unwrap());
    gpu.launch(a, &[Write(0)]);
    groups[0].before_collective(a).unwrap();
    groups[1].before_collective(b).unwrap();
    gpu.launch(a, &[Write(1)]);
    gpu.launch(other, &[Write(2)]);
    groups[0].before_collective(other).unwrap();
    groups[1].before_collective(b).unwrap();
    groups[1].after_collective(b).unwrap();
    gpu.launch(b, &[Read(0), Read(1)]);
    groups[1].after_collective(b).unwrap();
    gpu.launch(b, &[Read(2)]);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, [1], "what came after both began");
}

#[test]
fn whoever_is_missing_is_named_and_the_stream_goes_on() {
    let gpu = Gpu::with(Settings {
        device_ranks: both().to_vec(),
        devices: 2,
        ..settings()
    });
    let a = gpu.open(1);
    let group = gpu.ordering.group(GPU, &both()).unwrap();
    gpu.launch(a, &[Write(0)]);
    let start = Instant::now();
    let limit = Duration::from_millis(50);
    let arrival = group.barrier(a, limit).unwrap();
    assert_eq!(
        arrival.wait(),
        Err(Error::BarrierTimeout {
            missing: vec![DeviceRank(1)],
            limit
        })
    );
    assert_eq!(
        arrival.is_over().unwrap_err().to_string(),
        "a barrier was left after 50ms: rank 1 did not come"
    );
    assert!(start.elapsed() < Duration::from_secs(10));
    let counts = [(DeviceRank(0), 1), (DeviceRank(1), 0)];
    assert_eq!(group.counts().unwrap(), counts);
    gpu.launch(a, &[Read(0)]);
    assert!(
        gpu.races().is_empty(),
        "what the stream knew is still known"
    );
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let gpu = Gpu::with(Settings {
        devices: 2,
        ..settings()
    });
    let error = |ranks: &[DeviceRank]| gpu.ordering.group(GPU, ranks).err().unwrap();
    assert_eq!(
        error(&both()).to_string(),
        "device rank 1 has no state in this process: exchange states with its process first"
    );
    assert_eq!(
        error(&[DeviceRank(1)]).to_string(),
        "rank 0 of device 0 is not among the ranks of the group"
    );
    let alone = gpu.ordering.group(GPU, &[DeviceRank(0)]).unwrap();
    assert_eq!(
        error(&[DeviceRank(0)]).to_string(),
        "device 0 is in a group already"
    );
    let a = gpu.open(1);
    alone.barrier(a, LONG).unwrap().wait().unwrap();
    drop(alone);
    assert!(gpu.ordering.group(GPU, &[DeviceRank(0)]).is_ok());
}

#[test]
fn a_process_whose_only_device_is_a_later_one_meets_others() {
    let gpu = Gpu::with(Settings {
        device_ranks: vec![DeviceRank(1)],
        local_devices: vec![Device(1)],
        devices: 2,
        ..settings()
    });
    let stream = gpu.open_as(Device(1), 1, StreamKind::NonBlocking);
    let group = gpu.ordering.group(Device(1), &[DeviceRank(1)]).unwrap();
    group.barrier(stream, LONG).unwrap().wait().unwrap();
    assert_eq!(
        gpu.ordering.group(Device(1), &[DeviceRank(1)]).err(),
        Some(Error::GroupExists(Device(1)))
    );
}

/// One of two processes, which have exchanged their states and the first one's memory.
struct Member {
    gpu: Gpu,
    rendezvous: Rendezvous,
    group: Group,
    stream: StreamKey,
    rank: u16,
}

impl Member {
    fn join(directory: &Path, rank: u16) -> Member {
        let mut gpu = Gpu::with(Settings {
            device_ranks: vec![DeviceRank(rank)],
            devices: 2,
            launches_between_looks: 0,
            ..settings()
        });
        let mut rendezvous = Rendezvous::join(rendezvous::Group {
            name: "test".into(),
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
        allocator.import_state(state, GPU).unwrap();
        let own = allocator.export(gpu.memory()).unwrap().0;
        let shared = SharedAllocation::from_parcel(exchange(own.into_parcel())).unwrap();
        if rank == 1 {
            let memory = allocator.import(shared, GPU).unwrap();
            gpu.use_memory(memory);
        }
        let stream = gpu.open(1);
        let group = gpu.ordering.group(GPU, &both()).unwrap();
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
        self.rendezvous.exchange(&Parcel::default()).unwrap();
    }

    /// Launches a kernel on one rank while the other one waits.
    fn on(&mut self, rank: u16, what: &[crate::gpu::Do]) {
        if self.rank == rank {
            self.gpu.launch(self.stream, what);
        }
        self.meet();
    }

    fn granules(&self) -> Vec<u32> {
        self.gpu.races().iter().map(|race| race.granule).collect()
    }

    fn barrier(&self, limit: Duration) -> Result<(), Error> {
        self.group.barrier(self.stream, limit).unwrap().wait()
    }

    fn run(&mut self) {
        self.on(0, &[Write(5)]);
        self.on(1, &[Read(5)]);
        let expected: &[u32] = if self.rank == 1 { &[5] } else { &[] };
        assert_eq!(self.granules(), expected);
        self.on(0, &[Write(0)]);
        self.barrier(LONG).unwrap();
        self.on(1, &[Read(0), Write(1)]);
        assert!(self.granules().is_empty());
        // Nothing orders this one.
        self.on(0, &[Read(1)]);
        let expected: &[u32] = if self.rank == 0 { &[1] } else { &[] };
        assert_eq!(self.granules(), expected);
        // A release and an acquire at system scope do.
        self.on(0, &[Write(2), AddSystem(20)]);
        self.on(1, &[AddSystem(20), Read(2)]);
        assert!(self.granules().is_empty());
        // At the scope of one GPU they do not, and both sides are named.
        self.on(0, &[Write(3), Release(21)]);
        self.on(1, &[Acquire(21), Read(3)]);
        let told = self.gpu.told();
        let sides = told
            .iter()
            .map(|race| (race.earlier.device, race.later.device));
        if self.rank == 1 {
            assert_eq!(sides.collect::<Vec<_>>(), [(0, 1), (0, 1)]);
        } else {
            assert!(told.is_empty());
        }
        // A collective: the exchange stands for what the program's library does.
        self.on(0, &[Write(4)]);
        self.group.before_collective(self.stream).unwrap();
        self.meet();
        self.group.after_collective(self.stream).unwrap();
        self.on(1, &[Read(4), Write(4)]);
        assert!(self.granules().is_empty());
        for _ in 0..20 {
            self.barrier(LONG).unwrap();
        }
        self.on(0, &[Write(4)]);
        assert!(self.granules().is_empty());
    }
}

impl Member {
    fn restart(&mut self) {
        let restarts = |member: &Member| member.gpu.ordering.counts().restarts;
        for round in 0..5 {
            self.on(0, &[Write(0), Write(1)]);
            // The other one has not said that it is idle.
            if self.rank == 0 {
                assert_eq!(self.gpu.ordering.restart(), Ok(Idle::NotYet));
            }
            self.meet();
            // A launch does not wait for it, and takes that back.
            self.on(0, &[Write(2)]);
            if self.rank == 1 {
                assert_eq!(self.gpu.ordering.restart(), Ok(Idle::NotYet));
            }
            assert_eq!(restarts(self), round);
            self.meet();
            if self.rank == 0 {
                assert_eq!(self.gpu.ordering.restart(), Ok(Idle::Restarted));
            }
            self.meet();
            // Rank 1 has done nothing; its next launch would join, and meanwhile it was joined for it.
            self.on(1, &[Write(0), Read(1), Read(2)]);
            assert!(self.granules().is_empty(), "what came before is forgotten");
            assert_eq!(restarts(self), round + 1);
            self.on(0, &[Read(0)]);
            let expected: &[u32] = if self.rank == 0 { &[0] } else { &[] };
            assert_eq!(self.granules(), expected, "what came after is not");
            self.barrier(LONG).unwrap();
            self.on(0, &[Write(0), Write(1), Write(2)]);
            assert!(self.granules().is_empty());
            self.barrier(LONG).unwrap();
        }
        // By themselves, when something is worn.
        if self.rank == 0 {
            self.gpu.wear(9_000_000);
            assert_eq!(self.gpu.ordering.device_is_idle(GPU), Ok(Idle::NotYet));
        }
        self.meet();
        if self.rank == 1 {
            assert_eq!(self.gpu.ordering.device_is_idle(GPU), Ok(Idle::Restarted));
        }
        self.meet();
        self.on(0, &[Write(0)]);
        self.barrier(LONG).unwrap();
        self.on(1, &[Read(0)]);
        assert!(self.granules().is_empty());
        assert_eq!(restarts(self), 6);
        // Launches and restarts as they come.
        for _ in 0..50 {
            self.gpu.launch(self.stream, &[AddSystem(30)]);
            let restarted = self.gpu.ordering.restart().unwrap();
            assert_ne!(restarted, Idle::Noted);
        }
        self.meet();
        assert!(self.granules().is_empty());
        self.barrier(LONG).unwrap();
    }
}

#[test]
fn processes_that_share_memory_restart_together() {
    let directory = private();
    let mut child = start(directory.path(), "restarts");
    let mut member = Member::join(directory.path(), 0);
    member.restart();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_process_that_died_while_it_was_idle_does_not_keep_others() {
    let directory = private();
    let mut child = start(directory.path(), "idle");
    let mut member = Member::join(directory.path(), 0);
    member.meet();
    assert!(!child.wait().unwrap().success());
    member.gpu.launch(member.stream, &[Write(0)]);
    assert_eq!(member.gpu.ordering.restart(), Ok(Idle::Restarted));
    let start = Instant::now();
    member.gpu.launch(member.stream, &[Write(0)]);
    assert!(start.elapsed() < Duration::from_secs(20));
    member.gpu.launch(member.stream, &[Write(0)]);
    assert!(member.granules().is_empty());
}

#[test]
fn ranks_of_one_process_restart_together() {
    let gpu = Gpu::with(Settings {
        device_ranks: both().to_vec(),
        devices: 2,
        ..settings()
    });
    let streams =
        [0, 1].map(|at| gpu.open_as(Device(at), u64::from(at) + 1, StreamKind::NonBlocking));
    let groups = [0, 1].map(|at| gpu.ordering.group(Device(at), &both()).unwrap());
    for _ in 0..3 {
        gpu.launch(streams[0], &[Write(0)]);
        // That with the write of the round before.
        gpu.races();
        assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
        gpu.launch(streams[1], &[Write(0)]);
        assert!(gpu.races().is_empty());
    }
    drop(groups);
    assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
}

/// Not a test: what the second process runs.
#[test]
fn second_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let mut member = Member::join(Path::new(&directory), 1);
    match std::env::var(ROLE).as_deref() {
        Ok("between barriers") => {
            member.barrier(LONG).unwrap();
            member.meet();
        }
        // The barrier was given to its stream, which has not come to it.
        Ok("before the barrier") => {
            member.gpu.backend.hold(true);
            let arrival = member.group.barrier(member.stream, LONG).unwrap();
            assert_eq!(arrival.is_over(), Ok(false));
            member.meet();
            std::thread::sleep(LONG);
        }
        // Its stream has arrived, and waits for the other one.
        Ok("inside the barrier") => {
            let (group, stream) = (&member.group, member.stream);
            let rendezvous = &mut member.rendezvous;
            std::thread::scope(|scope| {
                // On the host backend the thread that gives a barrier to its stream waits in it.
                scope.spawn(move || drop(group.barrier(stream, LONG)));
                std::thread::sleep(Duration::from_millis(300));
                rendezvous.exchange(&Parcel::default()).unwrap();
                std::thread::sleep(LONG);
            });
        }
        Ok("restarts") => return member.restart(),
        Ok("idle") => {
            assert_eq!(member.gpu.ordering.restart(), Ok(Idle::NotYet));
            member.meet();
        }
        _ => return member.run(),
    }
    std::process::abort();
}

fn start(directory: &Path, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "group::second_process", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROLE, role)
        .stdout(Stdio::null());
    if role == "between barriers" || role == "idle" {
        command.stderr(Stdio::null());
    }
    command.spawn().unwrap()
}

pub(crate) fn private() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
    directory
}

#[test]
fn two_processes_are_ordered_by_barriers_collectives_and_system_scope() {
    let directory = private();
    let mut child = start(directory.path(), "run");
    let mut member = Member::join(directory.path(), 0);
    member.run();
    assert!(child.wait().unwrap().success());
}

#[test]
fn when_a_process_dies_the_other_one_is_told_within_the_time_limit() {
    for role in [
        "between barriers",
        "before the barrier",
        "inside the barrier",
    ] {
        let directory = private();
        let mut child = start(directory.path(), role);
        let mut member = Member::join(directory.path(), 0);
        if role == "between barriers" {
            member.barrier(LONG).unwrap();
        }
        member.meet();
        if role != "between barriers" {
            child.kill().unwrap();
        }
        assert!(!child.wait().unwrap().success());
        if role == "inside the barrier" {
            // It had arrived, so that what it did before is known.
            member.barrier(LONG).unwrap();
        }
        let limit = Duration::from_millis(100);
        let start = Instant::now();
        assert_eq!(
            member.barrier(limit),
            Err(Error::BarrierTimeout {
                missing: vec![DeviceRank(1)],
                limit
            }),
            "{role}"
        );
        assert!(start.elapsed() < Duration::from_secs(10));
        // The stream goes on.
        member.gpu.launch(member.stream, &[Write(0)]);
    }
}
