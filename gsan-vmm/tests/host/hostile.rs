//! Meeting among processes that mean no good, are of another version, or are out of descriptors.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gsan_vmm::rendezvous::{Group, MOST_DESCRIPTORS, MOST_NAME, Rendezvous, RendezvousError};
use gsan_vmm::share::Parcel;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, acceptfrom, bind, connect,
    listen, send, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::rendezvous::{Hand, Log, group, joining, private, socket_of};

fn brief(milliseconds: u64, group: Group) -> Group {
    Group {
        limit: Duration::from_millis(milliseconds),
        ..group
    }
}

/// How long this thread has computed.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn socket(flags: SocketFlags) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | flags;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// Listens as rank 0 of the group, whose directory it makes.
fn listening(directory: &Path, backlog: i32) -> (OwnedFd, PathBuf) {
    use std::os::unix::fs::DirBuilderExt;
    let rank = joining(brief(300, group(directory, 0, 2)), &Log::default());
    let path = socket_of(directory, 0);
    rank.join().unwrap().unwrap_err();
    let made = std::fs::DirBuilder::new();
    { made }.mode(0o700).create(path.parent().unwrap()).unwrap();
    let socket = socket(SocketFlags::empty());
    bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&socket, backlog).unwrap();
    (socket, path)
}

/// Runs the test `name` in a process of its own, whose limits it may change. Says whether this is
/// that process.
pub(crate) fn alone(name: &str) -> bool {
    const ALONE: &str = "GSAN_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(this);
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    false
}

/// Lets this process have `more` descriptors than it has now.
pub(crate) fn leave_descriptors(more: usize) -> Rlimit {
    let old = getrlimit(Resource::Nofile);
    // Numbers that are free below the highest count, too: take them.
    let highest = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let highest = std::os::fd::AsRawFd::as_raw_fd(&highest) as u64;
    let current = Some(highest + more as u64);
    setrlimit(Resource::Nofile, Rlimit { current, ..old }).unwrap();
    old
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out_and_cost_no_time() {
    let directory = private();
    let waiting = {
        let group = group(directory.path(), 0, 2);
        std::thread::spawn(move || (Rendezvous::join(group), computed()))
    };
    let socket = socket_of(directory.path(), 0);
    let silent: Vec<Hand> = (0..1000).map(|_| Hand::connect(&socket)).collect();
    std::thread::sleep(Duration::from_secs(1));
    let second = Rendezvous::join(brief(5_000, group(directory.path(), 1, 2)));
    let second = second.unwrap();
    let (first, computed) = waiting.join().unwrap();
    first.unwrap();
    assert!(computed < Duration::from_millis(500), "{computed:?}");
    drop((second, silent));
}

#[test]
fn a_rank_that_is_too_busy_to_answer_keeps_its_place() {
    let directory = private();
    let (_listener, path) = listening(directory.path(), 0);
    let address = SocketAddrUnix::new(&path).unwrap();
    let mut queued = Vec::new();
    loop {
        let socket = socket(SocketFlags::NONBLOCK);
        match connect(&socket, &address) {
            Ok(()) => queued.push(socket),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                break;
            }
        }
    }
    let error = Rendezvous::join(brief(500, group(directory.path(), 0, 2))).unwrap_err();
    assert!(matches!(error, RendezvousError::RankTaken { rank: 0, .. }));
    assert_eq!(
        error.to_string(),
        "rank 0 of group \"test\" is taken by a process that is too busy to answer: give every \
         process a rank of its own"
    );
    assert!(path.exists());
}

#[test]
fn a_rank_that_floods_an_exchange_does_not_outlast_the_limit() {
    let directory = private();
    let first = joining(brief(500, group(directory.path(), 0, 2)), &Log::default());
    let hand = Hand::connect(&socket_of(directory.path(), 0));
    hand.join();
    let mut first = first.join().unwrap().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    if send(&hand.0, b"x", SendFlags::NOSIGNAL).is_err() {
                        break;
                    }
                }
            });
        }
        let start = Instant::now();
        let error = first.exchange(&Parcel::default()).unwrap_err();
        let took = start.elapsed();
        stop.store(true, Relaxed);
        drop(first);
        assert!(took < Duration::from_secs(5), "{took:?}");
        let error = error.to_string();
        assert!(error.contains("rank 1"), "{error}");
    });
}

#[test]
fn a_rank_of_another_version_is_named_and_asked_a_few_times_only() {
    let directory = private();
    let (listener, path) = listening(directory.path(), 100);
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let log = Log::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let (other, _) = acceptfrom(&listener).unwrap();
                asked.fetch_add(1, Relaxed);
                let text = br#"{"message":"challenge","version":2,"rank":0,"token":7}"#;
                let _ = send(&other, text, SendFlags::NOSIGNAL);
                // Until the other end has had enough.
                let mut bytes = [0; 1];
                let _ = rustix::net::recv(&other, &mut bytes, rustix::net::RecvFlags::empty());
            }
        });
        let rank = brief(1000, group(directory.path(), 1, 2));
        let error = joining(rank, &log).join().unwrap().unwrap_err().to_string();
        stop.store(true, Relaxed);
        let _ = connect(
            socket(SocketFlags::NONBLOCK),
            &SocketAddrUnix::new(&path).unwrap(),
        );
        assert!(
            error.contains("rank 0: it speaks version 2, this process 1"),
            "{error}"
        );
    });
    let asked = asked.load(Relaxed);
    assert!((2..30).contains(&asked), "{asked} times");
}

#[test]
fn an_earlier_run_that_leaves_does_not_take_the_place_to_meet_along() {
    let directory = private();
    let join = |rank| {
        let group = brief(5_000, group(directory.path(), rank, 2));
        joining(group, &Log::default())
    };
    let earlier = [0, 1].map(join).map(|rank| rank.join().unwrap().unwrap());
    let waiting = joining(group(directory.path(), 1, 2), &Log::default());
    std::thread::sleep(Duration::from_millis(200));
    drop(earlier);
    join(0).join().unwrap().unwrap();
    waiting.join().unwrap().unwrap();
    assert!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_process_without_descriptors_for_a_parcel_says_so_at_once() {
    if !alone("hostile::a_process_without_descriptors_for_a_parcel_says_so_at_once") {
        return;
    }
    let directory = private();
    let second = joining(group(directory.path(), 1, 2), &Log::default());
    let mut first = Rendezvous::join(group(directory.path(), 0, 2)).unwrap();
    let mut second = second.join().unwrap().unwrap();
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let parcel = Parcel {
        text: String::new(),
        descriptors: (0..MOST_DESCRIPTORS).map(|_| null()).collect(),
    };
    let sending = std::thread::spawn(move || {
        let result = second.exchange(&parcel);
        drop(second);
        (result, parcel)
    });
    let old = leave_descriptors(3);
    let start = Instant::now();
    let error = first.exchange(&Parcel::default()).unwrap_err().to_string();
    setrlimit(Resource::Nofile, old).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(error.contains("too many open files"), "{error}");
    assert!(error.contains("ulimit -n"), "{error}");
    sending.join().unwrap().0.unwrap();
}

#[test]
fn names_that_no_message_has_room_for_are_refused() {
    let directory = private();
    let named = |bytes: usize| Group {
        name: "\u{1}".repeat(bytes),
        ..group(directory.path(), 0, 2)
    };
    let error = Rendezvous::join(named(MOST_NAME + 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the group's name has 4097 bytes: at most 4096 can be sent"
    );
    for bytes in [0, MOST_NAME] {
        let first = joining(named(bytes), &Log::default());
        let second = Group {
            rank: 1,
            ..named(bytes)
        };
        Rendezvous::join(second).unwrap();
        first.join().unwrap().unwrap();
    }
}

#[test]
fn a_directory_that_stays_locked_is_named() {
    let directory = private();
    let held = std::fs::File::open(directory.path()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = Rendezvous::join(brief(100, group(directory.path(), 0, 2))).unwrap_err();
    let path = directory.path().display();
    assert_eq!(
        error.to_string(),
        format!("{path}: another process has held its lock for 0.1 s: is one stopped?")
    );
}
