//! Meeting, and who is kept out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gsan_vmm::rendezvous::{Group, MOST_DESCRIPTORS, MOST_TEXT, Rendezvous, RendezvousError};
use gsan_vmm::share::Parcel;
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) fn group(directory: &Path, rank: u16, ranks: u16) -> Group {
    Group {
        name: "test".into(),
        rank,
        ranks,
        hosts: Vec::new(),
        directory: Some(directory.to_owned()),
        limit: Duration::from_secs(20),
    }
}

/// A directory that only this user can enter.
pub(crate) fn private() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
    directory
}

/// Joins on a thread; its log lines are added to `log`.
pub(crate) fn joining(group: Group, log: &Log) -> JoinHandle<Result<Rendezvous, RendezvousError>> {
    let log = log.clone();
    std::thread::spawn(move || log.during(|| Rendezvous::join(group)))
}

/// What was logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(self.clone())
            .with_ansi(false);
        tracing::subscriber::with_default(subscriber.finish(), run)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits until `part` has been logged.
    pub(crate) fn wait_for(&self, part: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.text().contains(part) {
            assert!(
                Instant::now() < deadline,
                "{part:?} was not logged:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

/// The socket of a rank, once it is there.
pub(crate) fn socket_of(directory: &Path, rank: u16) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        for group in std::fs::read_dir(directory).unwrap() {
            let socket = group.unwrap().path().join(format!("{rank}.sock"));
            if socket.exists() {
                return socket;
            }
        }
        assert!(Instant::now() < deadline, "rank {rank} does not listen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that speaks the protocol by hand.
pub(crate) struct Hand(pub(crate) OwnedFd);

impl Hand {
    pub(crate) fn connect(path: &Path) -> Hand {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.unwrap();
        let address = SocketAddrUnix::new(path).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = rustix::net::connect(&socket, &address) {
            assert!(Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        Hand(socket)
    }

    pub(crate) fn send(&self, text: &str) {
        rustix::net::send(&self.0, text.as_bytes(), SendFlags::empty()).unwrap();
    }

    fn send_with(&self, text: &str, descriptors: &[OwnedFd]) {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
        let parts = [IoSlice::new(text.as_bytes())];
        rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::empty()).unwrap();
    }

    /// The next message; empty at the end of the connection.
    pub(crate) fn receive(&self) -> String {
        let mut bytes = vec![0; 1 << 20];
        let mut ancillary = RecvAncillaryBuffer::default();
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::empty();
        let got = rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, flags).unwrap();
        bytes.truncate(got.bytes);
        String::from_utf8(bytes).unwrap()
    }

    /// The token of the challenge that comes first.
    pub(crate) fn token(&self) -> u64 {
        let challenge: serde_json::Value = serde_json::from_str(&self.receive()).unwrap();
        assert_eq!(challenge["message"], "challenge");
        challenge["token"].as_u64().unwrap()
    }

    /// Becomes rank 1 of 2.
    pub(crate) fn join(&self) {
        self.send(&hello(self.token()).to_string());
        assert_eq!(self.receive(), r#"{"message":"welcome"}"#);
    }
}

/// What rank 1 of 2 says.
pub(crate) fn hello(token: u64) -> serde_json::Value {
    serde_json::json!({
        "message": "hello", "version": 1, "token": token, "group": "test", "rank": 1, "ranks": 2,
        "host": gsan_vmm::rendezvous::host_id().unwrap(),
    })
}

/// How many descriptors this process has open for sockets or memory.
fn descriptors() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets
        .filter(|path| path.to_string_lossy().contains("socket:"))
        .count()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn every_rank_gets_a_parcel_of_every_other() {
    let directory = private();
    let ranks = 4u16;
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let group = group(directory.path(), rank, ranks);
            scope.spawn(move || {
                let mut rendezvous = Rendezvous::join(group).unwrap();
                for round in 0..20 {
                    let parcel = Parcel {
                        text: format!("{rank} in {round}"),
                        descriptors: vec![std::fs::File::open("/dev/null").unwrap().into()],
                    };
                    let parcels = rendezvous.exchange(&parcel).unwrap();
                    for (other, parcel) in (0..).zip(parcels) {
                        let text = parcel.as_ref().map(|parcel| parcel.text.clone());
                        let expected = (other != rank).then(|| format!("{other} in {round}"));
                        assert_eq!(text, expected);
                        assert!(parcel.is_none_or(|parcel| parcel.descriptors.len() == 1));
                    }
                }
            });
        }
    });
    assert!(is_empty(directory.path()));
}

#[test]
fn sockets_are_gone_as_soon_as_all_have_met() {
    let directory = private();
    let other = joining(group(directory.path(), 1, 2), &Log::default());
    let _first = Rendezvous::join(group(directory.path(), 0, 2)).unwrap();
    let _second = other.join().unwrap().unwrap();
    for group in std::fs::read_dir(directory.path()).unwrap() {
        assert!(is_empty(&group.unwrap().path()));
    }
}

#[test]
fn a_group_of_one_needs_nobody() {
    let directory = private();
    let patient = Group {
        limit: Duration::MAX,
        ..group(directory.path(), 0, 1)
    };
    let mut alone = Rendezvous::join(patient).unwrap();
    assert!(alone.exchange(&Parcel::default()).unwrap()[0].is_none());
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let directory = private();
    let refused = |change: fn(&mut Group)| {
        let mut group = group(directory.path(), 1, 2);
        change(&mut group);
        Rendezvous::join(group).unwrap_err().to_string()
    };
    assert_eq!(
        refused(|group| group.rank = 2),
        "rank 2 of 2: ranks are counted from 0, and there must be at least one"
    );
    assert!(refused(|group| group.ranks = 0).starts_with("rank 1 of 0"));
    assert_eq!(
        refused(|group| group.hosts = vec!["a".into()]),
        "1 hosts were given for 2 ranks"
    );
    assert_eq!(
        refused(|group| {
            group.hosts = vec!["elsewhere".into(), gsan_vmm::rendezvous::host_id().unwrap()];
        }),
        "rank 0 runs on another host: memory is shared between hosts by fabric handle only \
         (sharing.handle_type = \"fabric\")"
    );
    assert!(is_empty(directory.path()));
}

#[test]
fn directories_that_others_can_enter_are_refused() {
    let directory = private();
    let refused = |path: PathBuf| {
        let group = Group {
            directory: Some(path),
            ..group(directory.path(), 0, 2)
        };
        Rendezvous::join(group).unwrap_err().to_string()
    };
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(
        refused(open).ends_with("others can enter it (mode 750); only its user may: chmod 700")
    );
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    assert!(refused(link).contains("cannot be opened as a directory"));
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refused(file).contains("cannot be opened as a directory"));
    assert!(refused(directory.path().join("a/b")).contains("it cannot be made"));
    if rustix::process::geteuid().is_root() {
        let foreign = directory.path().join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(65534), None).unwrap();
        assert!(refused(foreign).ends_with("it belongs to user 65534, not to user 0"));
    }
}

#[test]
fn the_directory_is_made_for_its_user_alone() {
    let directory = private();
    let path = directory.path().join("new");
    Rendezvous::join(group(&path, 0, 1)).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_rank_that_does_not_come_is_named_when_the_time_is_up() {
    let directory = private();
    let alone = Group {
        limit: Duration::from_millis(50),
        ..group(directory.path(), 1, 4)
    };
    let error = Rendezvous::join(alone).unwrap_err();
    assert_eq!(error.to_string(), "waited 0.1 s for ranks 0, 2, 3");
    assert!(is_empty(directory.path()));
}

#[test]
fn a_rank_that_is_taken_is_refused() {
    let directory = private();
    let first = joining(group(directory.path(), 0, 2), &Log::default());
    socket_of(directory.path(), 0);
    let error = Rendezvous::join(group(directory.path(), 0, 2)).unwrap_err();
    let pid = std::process::id();
    assert_eq!(
        error.to_string(),
        format!(
            "rank 0 of group \"test\" is taken by process {pid}: give every process a rank of \
             its own"
        )
    );
    let _second = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
    first.join().unwrap().unwrap();
}

#[test]
fn a_dead_ranks_socket_is_taken_over() {
    let directory = private();
    let first = joining(group(directory.path(), 0, 2), &Log::default());
    let socket = socket_of(directory.path(), 0);
    let second = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
    first.join().unwrap().unwrap();
    drop(second);
    // A socket that nobody listens on, as a process that was killed leaves it.
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    std::fs::set_permissions(socket.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let first = joining(group(directory.path(), 0, 2), &Log::default());
    let second = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
    drop((first.join().unwrap().unwrap(), second));
    assert!(is_empty(directory.path()));
}

#[test]
fn strangers_are_refused_and_logged_and_the_true_rank_still_comes() {
    let directory = private();
    let log = Log::default();
    let before = descriptors();
    let rank = joining(group(directory.path(), 0, 2), &log);
    let socket = socket_of(directory.path(), 0);
    let host = gsan_vmm::rendezvous::host_id().unwrap();
    let changed = |key: &'static str, value: serde_json::Value| {
        move |token| {
            let mut hello = hello(token);
            hello[key] = value.clone();
            hello.to_string()
        }
    };
    type Say<'a> = Box<dyn Fn(u64) -> String + 'a>;
    let cases: Vec<(Say<'_>, &str)> = vec![
        (
            Box::new(changed("rank", 0.into())),
            "it says it is rank 0 of 2; only higher ranks",
        ),
        (
            Box::new(changed("rank", 2.into())),
            "it says it is rank 2 of 2",
        ),
        (Box::new(changed("rank", 70000.into())), "it is no message"),
        (
            Box::new(changed("ranks", 3.into())),
            "it counts 3 ranks in the group, there are 2",
        ),
        (
            Box::new(changed("group", "other".into())),
            "it belongs to group",
        ),
        (
            Box::new(changed("host", "elsewhere".into())),
            "fabric handle only",
        ),
        (
            Box::new(changed("version", 2.into())),
            "it speaks version 2, this process 1",
        ),
        (
            Box::new(changed("message", "good day".into())),
            "it is no message",
        ),
        (Box::new(changed("extra", 1.into())), "it is no message"),
        (
            Box::new(|token| hello(token ^ 1).to_string()),
            "its token is not the one",
        ),
        (
            Box::new(|token| hello(token).to_string()[..40].into()),
            "it is no message",
        ),
        (Box::new(|_| "\0".into()), "it is no message"),
        (
            Box::new(|_| r#"{"message":"welcome"}"#.into()),
            "a welcome is not expected here",
        ),
        (Box::new(|_| "x".repeat(200_000)), "it has more than"),
    ];
    let mut tokens = Vec::new();
    for (say, expected) in cases {
        let hand = Hand::connect(&socket);
        let token = hand.token();
        tokens.push(token);
        hand.send(&say(token));
        let refusal = hand.receive();
        assert!(
            refusal.contains("refused") && refusal.contains(expected),
            "{refusal}"
        );
        assert_eq!(hand.receive(), "");
        log.wait_for(expected);
    }
    // A token of an earlier connection.
    let hand = Hand::connect(&socket);
    hand.token();
    hand.send(&hello(tokens[0]).to_string());
    assert!(hand.receive().contains("it was used before"));
    // Somebody who says nothing holds up nobody.
    let _silent = Hand::connect(&socket);
    let other = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
    let rank = rank.join().unwrap().unwrap();
    assert!(log.text().contains("WARN"));
    assert!(!log.text().contains(&host), "the log tells no secrets");
    drop((other, rank, _silent, hand));
    assert_eq!(descriptors(), before);
    assert!(is_empty(directory.path()));
}

/// Runs `run` on a thread that belongs to another user, which only root can do.
fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return None;
    }
    std::thread::scope(|scope| {
        let nobody = scope.spawn(|| {
            let user = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_uid(user).unwrap();
            run()
        });
        Some(nobody.join().unwrap())
    })
}

#[test]
fn a_process_of_another_user_that_connects_is_refused_and_logged() {
    let directory = private();
    let log = Log::default();
    let rank = joining(group(directory.path(), 0, 2), &log);
    let socket = socket_of(directory.path(), 0);
    // The directory keeps others out; here somebody got hold of the socket all the same.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
    let open = rustix::fs::open(&socket, OFlags::PATH, Mode::empty()).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    if let Some(heard) = as_nobody(|| Hand::connect(&path).receive()) {
        assert_eq!(heard, "", "the connection is closed at once");
        log.wait_for("belongs to user 65534, not to user 0");
    }
    let _other = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
    rank.join().unwrap().unwrap();
}

#[test]
fn a_process_of_another_user_that_listens_is_refused_and_logged() {
    let directory = private();
    let log = Log::default();
    let waiting = Group {
        limit: Duration::from_millis(300),
        ..group(directory.path(), 1, 2)
    };
    // A socket in the place of rank 0, on which another user listens.
    let group_directory = {
        let first = joining(group(directory.path(), 0, 2), &Log::default());
        let path = socket_of(directory.path(), 0).parent().unwrap().to_owned();
        let _second = Rendezvous::join(group(directory.path(), 1, 2)).unwrap();
        first.join().unwrap().unwrap();
        path
    };
    std::fs::create_dir(&group_directory).unwrap();
    std::fs::set_permissions(&group_directory, PermissionsExt::from_mode(0o700)).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let address = SocketAddrUnix::new(group_directory.join("0.sock")).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    if as_nobody(|| rustix::net::listen(&listener, 8).unwrap()).is_some() {
        let error = log
            .during(|| Rendezvous::join(waiting))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("waited 0.3 s for rank 0; last seen: rank 0: process"),
            "{error}"
        );
        assert!(
            log.text().contains("belongs to user 65534, not to user 0"),
            "{}",
            log.text()
        );
    }
}

#[test]
fn a_rank_that_was_refused_says_why() {
    let directory = private();
    let first = joining(group(directory.path(), 0, 2), &Log::default());
    let socket = socket_of(directory.path(), 0);
    let wrong = Group {
        ranks: 3,
        ..group(directory.path(), 2, 3)
    };
    let error = Rendezvous::join(wrong).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 0 refused this process: it counts 3 ranks in the group, there are 2"
    );
    let hand = Hand::connect(&socket);
    hand.join();
    first.join().unwrap().unwrap();
}

#[test]
fn a_rank_is_welcomed_once() {
    let directory = private();
    let first = joining(group(directory.path(), 0, 3), &Log::default());
    let socket = socket_of(directory.path(), 0);
    let say = |hand: &Hand, rank: u16| {
        let mut hello = hello(hand.token());
        hello["ranks"] = 3.into();
        hello["rank"] = rank.into();
        hand.send(&hello.to_string());
        hand.receive()
    };
    let (one, again, two) = (
        Hand::connect(&socket),
        Hand::connect(&socket),
        Hand::connect(&socket),
    );
    assert!(say(&one, 1).contains("welcome"));
    let pid = std::process::id();
    assert!(say(&again, 1).contains(&format!("rank 1 is process {pid} already")));
    assert!(say(&two, 2).contains("welcome"));
    first.join().unwrap().unwrap();
}

#[test]
fn bad_messages_in_an_exchange_are_refused_and_logged_and_the_true_one_still_counts() {
    let directory = private();
    let log = Log::default();
    let exchanging = {
        let (log, group) = (log.clone(), group(directory.path(), 0, 2));
        std::thread::spawn(move || {
            log.during(|| {
                let mut rendezvous = Rendezvous::join(group).unwrap();
                (0..2)
                    .map(|_| {
                        let parcels = rendezvous.exchange(&Parcel::default()).unwrap();
                        let parcel = parcels.into_iter().nth(1).flatten().unwrap();
                        (parcel.text, parcel.descriptors.len())
                    })
                    .collect::<Vec<_>>()
            })
        })
    };
    let hand = Hand::connect(&socket_of(directory.path(), 0));
    hand.join();
    let parcel = |round: u64, descriptors: usize| {
        format!(
            r#"{{"message":"parcel","round":{round},"text":"of {round}","descriptors":{descriptors}}}"#
        )
    };
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let sockets = |count| {
        let pairs = (0..count).map(|_| std::os::unix::net::UnixDatagram::unbound().unwrap().into());
        pairs.collect::<Vec<OwnedFd>>()
    };
    hand.send(&parcel(0, 0)[..30]);
    log.wait_for("it is no message");
    let before = descriptors();
    hand.send(&"x".repeat(200_000));
    log.wait_for("it has more than");
    hand.send_with(&parcel(0, 1), &sockets(2));
    log.wait_for("1 descriptors were promised, 2 came");
    hand.send(&parcel(0, 1));
    log.wait_for("1 descriptors were promised, 0 came");
    hand.send_with(&parcel(0, 40), &sockets(40));
    log.wait_for("it has more than 16 descriptors");
    hand.send(&parcel(1, 0));
    log.wait_for("round 1 was sent, this is round 0");
    hand.send(&hello(0).to_string());
    log.wait_for("a hello is not expected here");
    assert_eq!(
        descriptors(),
        before,
        "descriptors of refused messages are closed"
    );
    hand.send_with(&parcel(0, 1), &[null()]);
    hand.receive();
    hand.send(&parcel(0, 0));
    log.wait_for("the token of round 0 was used already");
    hand.send(&parcel(1, 0));
    let received = exchanging.join().unwrap();
    assert_eq!(received, [("of 0".into(), 1), ("of 1".into(), 0)]);
}

#[test]
fn parcels_that_are_too_large_are_refused_before_anything_is_sent() {
    let directory = private();
    let other = joining(group(directory.path(), 1, 2), &Log::default());
    let mut first = Rendezvous::join(group(directory.path(), 0, 2)).unwrap();
    let mut second = other.join().unwrap().unwrap();
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let text = Parcel {
        text: "x".repeat(MOST_TEXT + 1),
        descriptors: Vec::new(),
    };
    assert!(matches!(
        first.exchange(&text),
        Err(RendezvousError::TooLarge { .. })
    ));
    let descriptors = Parcel {
        text: String::new(),
        descriptors: (0..=MOST_DESCRIPTORS).map(|_| null()).collect(),
    };
    assert!(matches!(
        first.exchange(&descriptors),
        Err(RendezvousError::TooLarge { .. })
    ));
    // The largest that can be sent arrives, whatever is in it.
    let largest = Parcel {
        text: "\u{1}".repeat(MOST_TEXT),
        descriptors: (0..MOST_DESCRIPTORS).map(|_| null()).collect(),
    };
    let receiving = std::thread::spawn(move || second.exchange(&Parcel::default()).unwrap());
    first.exchange(&largest).unwrap();
    let received = receiving
        .join()
        .unwrap()
        .into_iter()
        .next()
        .flatten()
        .unwrap();
    assert_eq!(received.text, largest.text);
    assert_eq!(received.descriptors.len(), MOST_DESCRIPTORS);
}

#[test]
fn a_rank_that_leaves_or_is_silent_is_named() {
    let directory = private();
    let meet = |limit| {
        let group = Group {
            limit,
            ..group(directory.path(), 0, 2)
        };
        let joining = joining(group, &Log::default());
        let hand = Hand::connect(&socket_of(directory.path(), 0));
        hand.join();
        (joining.join().unwrap().unwrap(), hand)
    };
    let (mut rank, hand) = meet(Duration::from_secs(20));
    drop(hand);
    let pid = std::process::id();
    let error = rank.exchange(&Parcel::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("rank 1 (process {pid}) is gone"));
    let error = rank.exchange(&Parcel::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the group is broken: rank 1 (process {pid}) is gone; form a new one")
    );
    drop(rank);
    let (mut rank, hand) = meet(Duration::from_millis(200));
    hand.send("nonsense");
    let error = rank.exchange(&Parcel::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("waited 0.2 s for rank 1; last seen: rank 1 sent"),
        "{error}"
    );
}
