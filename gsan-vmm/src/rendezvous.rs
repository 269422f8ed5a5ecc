//! Where the processes of a group meet, to hand descriptors to each other.
//!
//! The ranks of a group connect to each other over Unix sockets: each listens in a directory that
//! only its user can enter, and connects to all ranks below its own. Both ends check whose process
//! the other is (`SO_PEERCRED`, unix(7)), and the one that connects proves with a one-time token
//! that it answers this very connection; then it is held to its rank, the size of the group and
//! the host. What does not fit is refused, logged, and changes nothing: the true rank can still
//! come. Sockets leave the directory as soon as everybody who will connect has done so, and those
//! of ranks that died are swept up by the others.
//!
//! From then on [`Rendezvous::exchange`] is a collective: every rank gives one [`Parcel`] and gets
//! one of each. Every wait ends at the group's time limit, with an error that names the ranks
//! waited for; a rank that died is named at once. A [`Parcel`] carries one allocation, so sharing
//! several takes as many exchanges; an empty one ([`Parcel::default`]) makes an exchange a barrier.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::deadline;
use crate::share::Parcel;

mod directory;
mod handshake;
mod message;

use directory::Directory;
use message::{Connection, Message, Received};

pub use message::{MOST_DESCRIPTORS, MOST_NAME, MOST_TEXT};

/// A group of processes, as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What tells it from other groups of this user: any text that all members know, of at most
    /// [`MOST_NAME`] bytes.
    pub name: String,
    /// This process's rank.
    pub rank: u16,
    /// How many ranks there are.
    pub ranks: u16,
    /// The hosts of all ranks ([`host_id`]), as far as the launcher knows them; else empty.
    pub hosts: Vec<String>,
    /// Where sockets are made; by default `gsan` in `$XDG_RUNTIME_DIR`, else `/tmp/gsan-UID`. It
    /// is made if it is not there; otherwise it must be a directory that only this user can enter
    /// (mode 700). The same for all members.
    pub directory: Option<PathBuf>,
    /// The longest that joining, or an exchange, may take.
    pub limit: Duration,
}

/// Why ranks did not meet, or an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// The group is not one.
    #[error("rank {rank} of {ranks}: ranks are counted from 0, and there must be at least one")]
    BadGroup {
        /// The rank given.
        rank: u16,
        /// The number of ranks given.
        ranks: u16,
    },
    /// The group's name is too long.
    #[error("the group's name has {bytes} bytes: at most {MOST_NAME} can be sent")]
    NameTooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// A number of hosts that is not that of the ranks.
    #[error("{hosts} hosts were given for {ranks} ranks")]
    BadHosts {
        /// How many hosts were given.
        hosts: usize,
        /// The number of ranks.
        ranks: u16,
    },
    /// Descriptors cannot cross hosts.
    #[error(
        "rank {rank} runs on another host: memory is shared between hosts by fabric handle only \
         (sharing.handle_type = \"fabric\")"
    )]
    OtherHost {
        /// The rank.
        rank: u16,
    },
    /// The directory is not safe to meet in.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Another process listens as this rank.
    #[error(
        "rank {rank} of group {group:?} is taken by {}: give every process a rank of its own",
        pid.map_or("a process that is too busy to answer".into(), |pid| format!("process {pid}"))
    )]
    RankTaken {
        /// The rank.
        rank: u16,
        /// The group.
        group: String,
        /// The process that has it, unless it is too busy to answer.
        pid: Option<i32>,
    },
    /// Another rank refused this one.
    #[error("rank {rank} refused this process: {reason}")]
    Refused {
        /// The rank that refused.
        rank: u16,
        /// What it said.
        reason: String,
    },
    /// Ranks did not come, or did not send, in time.
    #[error(
        "waited {:.1} s for rank{} {}{}",
        limit.as_secs_f64(), if missing.len() == 1 { "" } else { "s" }, list(missing),
        last.as_ref().map(|last| format!("; last seen: {last}")).unwrap_or_default()
    )]
    TimedOut {
        /// The ranks.
        missing: Vec<u16>,
        /// The time limit.
        limit: Duration,
        /// The last thing that went wrong while waiting.
        last: Option<String>,
    },
    /// A rank's process ended, or closed the connection.
    #[error("rank {rank} (process {pid}) is gone")]
    PeerGone {
        /// The rank.
        rank: u16,
        /// Its process.
        pid: i32,
    },
    /// An earlier exchange failed, so that ranks may disagree about what was exchanged.
    #[error("the group is broken: {0}; form a new one")]
    Broken(String),
    /// What is to be sent is too large.
    #[error(
        "a parcel of {text} bytes and {descriptors} descriptors: at most {MOST_TEXT} bytes and \
         {MOST_DESCRIPTORS} descriptors can be sent"
    )]
    TooLarge {
        /// Its text's bytes.
        text: usize,
        /// Its descriptors.
        descriptors: usize,
    },
    /// There is no room for the descriptors of a message.
    #[error(
        "too many open files: the descriptors that another process sent are lost; raise the limit \
         (ulimit -n)"
    )]
    TooManyOpenFiles,
    /// The system refused a call.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: rustix::io::Errno,
    },
}

fn list(ranks: &[u16]) -> String {
    let ranks: Vec<_> = ranks.iter().map(u16::to_string).collect();
    ranks.join(", ")
}

/// An error of a system call.
fn system(call: &'static str) -> impl Fn(rustix::io::Errno) -> RendezvousError {
    move |source| RendezvousError::System { call, source }
}

/// What tells this host, since it was last started, from all others.
///
/// # Errors
/// When the system does not say.
pub fn host_id() -> std::io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// A process whose rank is known.
#[derive(Debug)]
struct Peer {
    rank: u16,
    connection: Connection,
}

/// A group whose ranks have met.
#[derive(Debug)]
pub struct Rendezvous {
    group: Group,
    peers: Vec<Peer>,
    round: u64,
    broken: Option<String>,
    /// Sweeps up after ranks that died, when this one leaves.
    _directory: Directory,
}

impl Rendezvous {
    /// Meets all other ranks of `group`.
    ///
    /// # Errors
    /// When the group is not one, its ranks are on several hosts, the directory is not safe, the
    /// rank is taken or refused, or not all others come in time.
    pub fn join(group: Group) -> Result<Rendezvous, RendezvousError> {
        let (rank, ranks) = (group.rank, group.ranks);
        if rank >= ranks {
            return Err(RendezvousError::BadGroup { rank, ranks });
        }
        let bytes = group.name.len();
        if bytes > MOST_NAME {
            return Err(RendezvousError::NameTooLong { bytes });
        }
        let host = host_id().map_err(|e| RendezvousError::System {
            call: "read(boot_id)",
            source: rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO),
        })?;
        if !group.hosts.is_empty() {
            if group.hosts.len() != usize::from(ranks) {
                return Err(RendezvousError::BadHosts {
                    hosts: group.hosts.len(),
                    ranks,
                });
            }
            if let Some(other) = group.hosts.iter().position(|theirs| *theirs != host) {
                let rank = other as u16;
                return Err(RendezvousError::OtherHost { rank });
            }
        }
        let deadline = deadline::after(group.limit);
        let mut directory = Directory::open(&group, deadline)?;
        let mut peers = handshake::meet(&group, &host, &mut directory, deadline)?;
        peers.sort_by_key(|peer| peer.rank);
        directory.stop_listening();
        tracing::debug!(group = group.name, rank, ranks, "all ranks have met");
        Ok(Rendezvous {
            group,
            peers,
            round: 0,
            broken: None,
            _directory: directory,
        })
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Gives `parcel` to every other rank and returns theirs, in the order of the ranks; this
    /// rank's place holds `None`. Collective: all ranks must call it, equally often.
    ///
    /// # Errors
    /// When the parcel is too large (nothing was sent then), when a rank is gone or sends nothing
    /// in time, and ever after such a failure.
    pub fn exchange(&mut self, parcel: &Parcel) -> Result<Vec<Option<Parcel>>, RendezvousError> {
        if let Some(reason) = &self.broken {
            return Err(RendezvousError::Broken(reason.clone()));
        }
        let (text, descriptors) = (parcel.text.len(), parcel.descriptors.len());
        if text > MOST_TEXT || descriptors > MOST_DESCRIPTORS {
            return Err(RendezvousError::TooLarge { text, descriptors });
        }
        let result = self.run_round(parcel);
        self.round += 1;
        if let Err(error) = &result {
            self.broken = Some(error.to_string());
        }
        result
    }

    fn run_round(&mut self, parcel: &Parcel) -> Result<Vec<Option<Parcel>>, RendezvousError> {
        let deadline = deadline::after(self.group.limit);
        let message = Message::Parcel {
            round: self.round,
            text: parcel.text.clone(),
            descriptors: parcel.descriptors.len(),
        };
        let mut unsent: Vec<usize> = (0..self.peers.len()).collect();
        let mut received: Vec<Option<Parcel>> = Vec::new();
        received.resize_with(usize::from(self.group.ranks), || None);
        let mut last = None;
        loop {
            let mut still_unsent = Vec::new();
            for index in unsent {
                let peer = &self.peers[index];
                if !peer.send(&message, &parcel.descriptors)? {
                    still_unsent.push(index);
                }
            }
            unsent = still_unsent;
            tracing::trace!(round = self.round, unsent = unsent.len(), "sent");
            for peer in &self.peers {
                let place = &mut received[usize::from(peer.rank)];
                // One message at a time, so that one who sends without end holds up nobody.
                if place.is_none() {
                    match peer.connection.receive().map_err(|e| peer.gone_or(e))? {
                        Received::Nothing => {}
                        Received::Closed => return Err(peer.gone()),
                        Received::Message(message, descriptors) => {
                            match accept_parcel(self.round, message, descriptors) {
                                Ok(parcel) => {
                                    tracing::trace!(rank = peer.rank, "received");
                                    *place = Some(parcel);
                                }
                                Err(reason) => last = Some(peer.refuse(reason)),
                            }
                        }
                        Received::Malformed(reason) => last = Some(peer.refuse(reason)),
                    }
                }
            }
            let waited_for = |peer: &&Peer| received[usize::from(peer.rank)].is_none();
            let missing: Vec<&Peer> = self.peers.iter().filter(waited_for).collect();
            if missing.is_empty() && unsent.is_empty() {
                return Ok(received);
            }
            if Instant::now() >= deadline {
                let unsent = unsent.iter().map(|&index| self.peers[index].rank);
                let mut missing: Vec<u16> = missing.iter().map(|peer| peer.rank).collect();
                missing.extend(unsent);
                missing.sort_unstable();
                missing.dedup();
                return Err(RendezvousError::TimedOut {
                    missing,
                    limit: self.group.limit,
                    last,
                });
            }
            let mut fds: Vec<PollFd<'_>> = missing
                .iter()
                .map(|peer| PollFd::new(&peer.connection, PollFlags::IN))
                .collect();
            let out = unsent.iter().map(|&index| &self.peers[index].connection);
            fds.extend(out.map(|connection| PollFd::new(connection, PollFlags::OUT)));
            poll(&mut fds, deadline)?;
        }
    }
}

impl Peer {
    fn gone(&self) -> RendezvousError {
        RendezvousError::PeerGone {
            rank: self.rank,
            pid: self.connection.pid(),
        }
    }

    fn gone_or(&self, error: RendezvousError) -> RendezvousError {
        use rustix::io::Errno;
        match error {
            RendezvousError::System {
                source: Errno::CONNRESET | Errno::PIPE,
                ..
            } => self.gone(),
            other => other,
        }
    }

    fn send(&self, message: &Message, descriptors: &[OwnedFd]) -> Result<bool, RendezvousError> {
        let sent = self.connection.send(message, descriptors);
        sent.map_err(|error| self.gone_or(error))
    }

    /// Logs a message that is left out of account; returns what was logged.
    fn refuse(&self, reason: String) -> String {
        let (rank, pid) = (self.rank, self.connection.pid());
        tracing::warn!(rank, pid, reason, "refused a message");
        format!("rank {rank} sent a message that was refused: {reason}")
    }
}

/// The parcel of `round`, or why the message is not that. Descriptors that came with a refused
/// message are closed.
fn accept_parcel(
    round: u64,
    message: Message,
    descriptors: Vec<OwnedFd>,
) -> Result<Parcel, String> {
    let Message::Parcel {
        round: theirs,
        text,
        descriptors: promised,
    } = message
    else {
        return Err(format!("{} is not expected here", message.name()));
    };
    if theirs < round {
        return Err(format!("the token of round {theirs} was used already"));
    }
    if theirs > round {
        return Err(format!("round {theirs} was sent, this is round {round}"));
    }
    if promised != descriptors.len() {
        let came = descriptors.len();
        return Err(format!("{promised} descriptors were promised, {came} came"));
    }
    Ok(Parcel { text, descriptors })
}

/// Waits until something can be done with one of `fds`, at most until `deadline`.
fn poll(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<(), RendezvousError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec::try_from(left).ok();
    match rustix::event::poll(fds, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(system("poll")(error)),
    }
}
