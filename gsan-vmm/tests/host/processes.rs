//! Two real processes: what they share, and what is left when one of them is killed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::host::HostBackend;
use gsan_vmm::backend::{Backend, Stream};
use gsan_vmm::rendezvous::{Group, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};
use gsan_vmm::{Allocator, STATE_STRIDE};
use tracing::{Event, Metadata, Subscriber, span};

use super::faulty::Faulty;
use super::rendezvous::{group, private};
use super::{GPU, PAGE, allocator, pages};

/// For the second process: the directory to meet in, its rank, and the step to die at.
const DIRECTORY: &str = "GSAN_TEST_DIRECTORY";
const RANK: &str = "GSAN_TEST_RANK";
const STEP: &str = "GSAN_TEST_STEP";

type Failed = Box<dyn std::error::Error>;

/// What each of the two does: shares an allocation and its runtime state, and sees what the other
/// has in its own.
fn share(
    backend: &Arc<Faulty<HostBackend>>,
    allocator: &Allocator,
    group: Group,
) -> Result<(), Failed> {
    let rank = group.rank;
    let other = 1 - rank;
    let (mine, theirs) = (rank as u8 + 1, other as u8 + 1);
    let size = 2 * PAGE + 100;
    let address = allocator.allocate(size, GPU)?;
    backend.write(GPU, address, &[mine; 64])?;
    backend.write(GPU, allocator.space().shadow(address), &[mine + 10; 32])?;
    let state = allocator.create_state(DeviceRank(rank), GPU, PAGE)?;
    backend.write(GPU, state, &[mine + 20; 8])?;

    let mut rendezvous = Rendezvous::join(group)?;
    let mut exchange = |parcel: &Parcel| -> Result<Parcel, Failed> {
        let parcels = rendezvous.exchange(parcel)?;
        Ok(parcels
            .into_iter()
            .flatten()
            .next()
            .expect("there is one other"))
    };
    let parcel = exchange(&allocator.export(address)?.0.into_parcel())?;
    let import = allocator.import(SharedAllocation::from_parcel(parcel)?, GPU)?;
    let parcel = exchange(&allocator.export_state(DeviceRank(rank))?.into_parcel())?;
    let state_import = allocator.import_state(SharedState::from_parcel(parcel)?, GPU)?;
    assert_eq!(
        state_import,
        allocator.state_base() + u64::from(other) * STATE_STRIDE
    );

    let check = |address, expected: &[u8]| {
        let mut bytes = vec![0; expected.len()];
        backend.read(GPU, address, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    };
    let import_shadow = allocator.space().shadow(import);
    check(import, &[theirs; 64]);
    check(import_shadow, &[theirs + 10; 32]);
    check(state_import, &[theirs + 20; 8]);
    // Nobody writes before both have read.
    exchange(&Parcel::default())?;
    backend.write(GPU, import + size - 4, &[mine + 30; 4])?;
    backend.write(GPU, import_shadow, &[mine + 40; 32])?;
    exchange(&Parcel::default())?;
    check(address + size - 4, &[theirs + 30; 4]);
    check(allocator.space().shadow(address), &[theirs + 40; 32]);

    allocator.free(import, None, Stream::DEFAULT)?;
    allocator.release_state(DeviceRank(other))?;
    allocator.flush();
    // Freeing the import has left the owner's memory alone.
    exchange(&Parcel::default())?;
    check(address, &[mine; 64]);
    Ok(())
}

/// Kills the process at a step. Steps are what `gsan_vmm` logs and each call of the backend.
struct Executioner {
    steps: AtomicUsize,
    last: usize,
}

impl Subscriber for Executioner {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && !metadata.target().starts_with("rustix")
    }

    fn event(&self, _: &Event<'_>) {
        if self.steps.fetch_add(1, Relaxed) == self.last {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            // The signal may come to another thread first.
            std::thread::sleep(Duration::from_secs(60));
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Not a test: what the second process runs.
#[test]
fn second_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let executioner = Executioner {
        steps: AtomicUsize::new(0),
        last: number(STEP),
    };
    tracing::subscriber::set_global_default(executioner).unwrap();
    let backend = Arc::new(Faulty::new(backend()));
    let allocator = allocator(&backend, 1 << 30);
    let group = group(Path::new(&directory), number(RANK) as u16, 2);
    share(&backend, &allocator, group).unwrap();
}

fn backend() -> HostBackend {
    Arc::into_inner(pages(1, 1 << 30)).unwrap()
}

/// Starts a second process that dies at `step`.
fn start(directory: &Path, rank: u16, step: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::second_process"])
        .env(DIRECTORY, directory)
        .env(RANK, rank.to_string())
        .env(STEP, step.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sockets and memory files that this process has open or mapped.
fn holdings() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let mut held: Vec<_> = open
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    held.retain(|target| target.contains("socket:") || target.contains("memfd:gsan"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    held.extend(
        maps.lines()
            .filter(|line| line.contains("memfd:gsan"))
            .map(str::to_owned),
    );
    held
}

/// Shares with a process that dies at `step`, and returns how it ended and what came of it here.
fn survive(other: u16, step: usize, limit: Duration) -> (ExitStatus, Result<(), String>) {
    let directory = private();
    let before = holdings();
    let mut child = start(directory.path(), other, step);
    let backend = Arc::new(Faulty::new(backend()));
    let allocator = allocator(&backend, 1 << 30);
    let group = Group {
        limit,
        ..group(directory.path(), 1 - other, 2)
    };
    let shared = share(&backend, &allocator, group).map_err(|error| error.to_string());
    let ended = child.wait().unwrap();
    // This process works on: its memory is there, and there is more.
    let address = allocator.allocate(PAGE, GPU).unwrap();
    backend.write(GPU, address, &[1; 8]).unwrap();
    drop(allocator);
    backend.assert_nothing_left();
    drop(backend);
    assert_eq!(holdings(), before, "at step {step}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "at step {step}: {left:?}");
    (ended, shared)
}

#[test]
fn two_processes_see_each_others_memory_shadow_and_state() {
    for other in [1, 0] {
        let (ended, shared) = survive(other, usize::MAX, Duration::from_secs(30));
        assert_eq!(shared, Ok(()));
        assert!(ended.success());
    }
}

/// Kills the process of rank `other` at each step in turn.
fn kill_at_each_step(other: u16) {
    let mut killed = 0;
    let mut limit = Duration::from_millis(200);
    for step in 0.. {
        let (ended, shared) = loop {
            let (ended, shared) = survive(other, step, limit);
            let came = ended.signal() == Some(9) || ended.success();
            if came || limit > Duration::from_secs(10) {
                break (ended, shared);
            }
            // On a busy machine the limit was too short even for one that lives.
            limit *= 4;
        };
        if ended.success() {
            assert_eq!(shared, Ok(()));
            break;
        }
        assert_eq!(ended.signal(), Some(9), "at step {step}");
        killed += 1;
        if let Err(error) = shared {
            assert!(
                error.contains(&format!("rank {other}")),
                "at step {step}: {error}"
            );
        }
    }
    assert!(killed > 40, "there were only {killed} steps");
}

#[test]
fn a_listening_process_killed_at_any_step_leaves_the_other_working() {
    kill_at_each_step(0);
}

#[test]
fn a_connecting_process_killed_at_any_step_leaves_the_other_working() {
    kill_at_each_step(1);
}
