//! The directory in which ranks listen: only its user can enter, and nothing stays in it.
//!
//! Below a base directory that is checked once and then held open, a group has a directory of its
//! own. Whoever makes or removes something there holds the base directory's lock (flock(2)), so
//! that nobody takes a socket that does not listen yet for one whose process died.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Group, RendezvousError, system};

/// How often the lock is tried.
const RETRY: Duration = Duration::from_millis(2);

/// The group's directory, and this rank's socket in it.
#[derive(Debug)]
pub(super) struct Directory {
    base: OwnedFd,
    group: OwnedFd,
    /// The group directory's name in the base directory.
    name: String,
    rank: u16,
    ranks: u16,
    listener: Option<OwnedFd>,
}

/// What came of connecting to a rank.
pub(super) enum Connected {
    To(OwnedFd),
    /// It does not listen.
    Absent,
    /// There is a socket, and nobody listens on it: its process died.
    Dead,
    /// It listens, and more wait to be let in than it has room for.
    Busy,
}

impl Directory {
    /// Opens the group's directory and listens in it, unless there is nobody else. The highest
    /// rank listens too, to whom nobody will connect: its socket keeps the directory from being
    /// removed when others leave.
    pub(super) fn open(group: &Group, deadline: Instant) -> Result<Directory, RendezvousError> {
        let (base, path) = open_base(group)?;
        let _locked = Lock::take(&base, deadline).map_err(|error| match error {
            Errno::AGAIN => RendezvousError::Directory {
                path: path.clone(),
                reason: format!(
                    "another process has held its lock for {:.1} s: is one stopped?",
                    group.limit.as_secs_f64()
                ),
            },
            error => system("flock")(error),
        })?;
        let name = directory_name(&group.name);
        let made = rustix::fs::mkdirat(&base, &name, Mode::RWXU);
        made.or_else(ignore(Errno::EXIST))
            .map_err(system("mkdir"))?;
        let own = open_private(&base, &name).map_err(|reason| RendezvousError::Directory {
            path: path.join(&name),
            reason,
        })?;
        let mut directory = Directory {
            base,
            group: own,
            name,
            rank: group.rank,
            ranks: group.ranks,
            listener: None,
        };
        if group.ranks > 1 {
            directory.listen(group)?;
        }
        Ok(directory)
    }

    /// The socket on which this rank listens.
    pub(super) fn listener(&self) -> Option<&OwnedFd> {
        self.listener.as_ref()
    }

    /// Removes this rank's socket: everybody has come, or this rank gives up.
    pub(super) fn stop_listening(&mut self) {
        if self.listener.take().is_some() {
            let removed =
                rustix::fs::unlinkat(&self.group, socket_name(self.rank), AtFlags::empty());
            if let Err(error) = removed.or_else(ignore(Errno::NOENT)) {
                tracing::warn!(%error, rank = self.rank, "the rank's socket stays behind");
            }
        }
    }

    /// Connects to a rank.
    pub(super) fn connect(&self, rank: u16) -> Result<Connected, RendezvousError> {
        let socket = new_socket()?;
        let address = self.address(rank)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Connected::To(socket)),
            Err(Errno::NOENT) => Ok(Connected::Absent),
            Err(Errno::CONNREFUSED) => Ok(Connected::Dead),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Connected::Busy),
            Err(error) => Err(system("connect")(error)),
        }
    }

    fn listen(&mut self, group: &Group) -> Result<(), RendezvousError> {
        let taken = |pid| RendezvousError::RankTaken {
            rank: self.rank,
            group: group.name.clone(),
            pid,
        };
        match self.connect(self.rank)? {
            Connected::To(other) => {
                let peer = rustix::net::sockopt::socket_peercred(&other);
                return Err(taken(peer.ok().map(|peer| peer.pid.as_raw_pid())));
            }
            Connected::Busy => return Err(taken(None)),
            Connected::Absent | Connected::Dead => {}
        }
        // What is there now belonged to a process that died.
        rustix::fs::unlinkat(&self.group, socket_name(self.rank), AtFlags::empty())
            .or_else(ignore(Errno::NOENT))
            .map_err(system("unlink"))?;
        let socket = new_socket()?;
        rustix::net::bind(&socket, &self.address(self.rank)?).map_err(system("bind"))?;
        tracing::trace!(rank = self.rank, "bound");
        // From here on the socket is removed when `self` goes.
        let listener = self.listener.insert(socket);
        rustix::net::listen(listener, i32::from(group.ranks)).map_err(system("listen"))?;
        tracing::trace!(rank = self.rank, "listening");
        Ok(())
    }

    /// A rank's socket, by way of the open directory: so it is the directory that was checked, and
    /// its path may be longer than a socket's address.
    fn address(&self, rank: u16) -> Result<SocketAddrUnix, RendezvousError> {
        let directory = self.group.as_fd().as_raw_fd();
        SocketAddrUnix::new(format!("/proc/self/fd/{directory}/{}", socket_name(rank)))
            .map_err(system("bind"))
    }

    /// Removes the sockets of ranks that died, and the group's directory if it is empty.
    fn sweep(&self) -> Result<(), RendezvousError> {
        for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
            if matches!(self.connect(rank)?, Connected::Dead) {
                tracing::debug!(rank, "removing the socket of a rank that died");
                rustix::fs::unlinkat(&self.group, socket_name(rank), AtFlags::empty())
                    .or_else(ignore(Errno::NOENT))
                    .map_err(system("unlink"))?;
            }
        }
        rustix::fs::unlinkat(&self.base, &self.name, AtFlags::REMOVEDIR)
            .or_else(ignore(Errno::NOTEMPTY))
            .or_else(ignore(Errno::NOENT))
            .map_err(system("rmdir"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.stop_listening();
        let deadline = Instant::now() + Duration::from_secs(1);
        let locked = Lock::take(&self.base, deadline).map_err(system("flock"));
        if let Err(error) = locked.and_then(|_locked| self.sweep()) {
            tracing::warn!(%error, "the group's directory may stay behind");
        }
    }
}

/// The base directory's lock, through a duplicate of its descriptor.
struct Lock(OwnedFd);

impl Lock {
    fn take(base: &OwnedFd, deadline: Instant) -> Result<Lock, Errno> {
        let base = rustix::io::fcntl_dupfd_cloexec(base, 0)?;
        loop {
            match rustix::fs::flock(&base, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(base)),
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let unlocked = rustix::fs::flock(&self.0, FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok());
    }
}

/// The base directory, made if it is not there, and its path.
fn open_base(group: &Group) -> Result<(OwnedFd, PathBuf), RendezvousError> {
    let path = group.directory.clone().unwrap_or_else(|| {
        let user = rustix::process::geteuid().as_raw();
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("gsan"),
            _ => PathBuf::from(format!("/tmp/gsan-{user}")),
        }
    });
    let made = rustix::fs::mkdir(&path, Mode::RWXU).or_else(ignore(Errno::EXIST));
    let opened = match made {
        Ok(()) => open_private(rustix::fs::CWD, &path),
        Err(error) => Err(format!("it cannot be made: {error}")),
    };
    match opened {
        Ok(base) => Ok((base, path)),
        Err(reason) => Err(RendezvousError::Directory { path, reason }),
    }
}

/// Opens a directory that only this user can enter.
fn open_private(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(at, path, flags, Mode::empty());
    let directory =
        opened.map_err(|error| format!("it cannot be opened as a directory: {error}"))?;
    let stat = rustix::fs::fstat(&directory).map_err(|error| error.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        let owner = stat.st_uid;
        return Err(format!("it belongs to user {owner}, not to user {user}"));
    }
    if stat.st_mode & 0o077 != 0 {
        let mode = stat.st_mode & 0o777;
        return Err(format!(
            "others can enter it (mode {mode:o}); only its user may: chmod 700"
        ));
    }
    Ok(directory)
}

/// A name for any text: short, and different for different texts.
fn directory_name(group: &str) -> String {
    // FNV-1a, 128 bits (Fowler, Noll, Vo): the same in every process and version.
    let hash = group
        .bytes()
        .fold(0x6c62272e07bb014262b821756295c58du128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000000001000000000000000000013b)
        });
    format!("group-{hash:032x}")
}

fn socket_name(rank: u16) -> String {
    format!("{rank}.sock")
}

fn new_socket() -> Result<OwnedFd, RendezvousError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(system("socket"))
}

/// Takes one error for success.
fn ignore(expected: Errno) -> impl Fn(Errno) -> Result<(), Errno> {
    move |error| match error {
        error if error == expected => Ok(()),
        error => Err(error),
    }
}
