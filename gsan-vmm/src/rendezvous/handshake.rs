//! How ranks get to know each other.
//!
//! ```text
//! listens (lower rank)                 connects (higher rank)
//!    check credentials                    check credentials
//!    Challenge { rank, token }  ------>
//!                               <------   Hello { token, group, rank, ranks, host }
//!    Welcome | Refused          ------>
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::directory::{Connected, Directory};
use super::message::{Connection, Message, Received, VERSION};
use super::{Group, Peer, RendezvousError, poll, system};

/// How often lower ranks that do not listen yet are tried.
const RETRY: Duration = Duration::from_millis(5);
/// How long a lower rank that was not believed is left alone: from, to.
const DISTRUST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// The most connections that may wait for their hello. A true rank says it at once, so the one
/// that has been silent for longest makes room for another.
const MOST_STRANGERS: usize = 256;

/// Somebody who connected to this rank and has not said who it is.
struct Stranger {
    connection: Connection,
    token: u64,
}

/// A lower rank that this one has connected to.
struct Lower {
    peer: Peer,
    /// Whether the challenge has been answered.
    answered: bool,
}

/// The handshakes of one rank with all others.
struct Meeting<'a> {
    group: &'a Group,
    host: &'a str,
    strangers: VecDeque<Stranger>,
    lower: Vec<Lower>,
    /// Lower ranks that were not believed: when to try again, and how long to wait after that.
    distrusted: HashMap<u16, (Instant, Duration)>,
    met: Vec<Peer>,
    /// The last thing that went wrong and may explain who is missing.
    last: Option<String>,
}

/// Meets all other ranks.
pub(super) fn meet(
    group: &Group,
    host: &str,
    directory: &mut Directory,
    deadline: Instant,
) -> Result<Vec<Peer>, RendezvousError> {
    let mut meeting = Meeting {
        group,
        host,
        strangers: VecDeque::new(),
        lower: Vec::new(),
        distrusted: HashMap::new(),
        met: Vec::new(),
        last: None,
    };
    loop {
        meeting.connect(directory)?;
        meeting.accept(directory)?;
        meeting.hear_strangers()?;
        meeting.hear_lower()?;
        let missing = meeting.missing();
        if missing.is_empty() {
            return Ok(meeting.met);
        }
        meeting.watch_met()?;
        let now = Instant::now();
        if now >= deadline {
            return Err(RendezvousError::TimedOut {
                missing,
                limit: group.limit,
                last: meeting.last,
            });
        }
        // Lower ranks that do not listen yet give no sign when they begin to.
        let connecting = meeting.unconnected().next().is_some();
        let until = if connecting {
            deadline.min(now + RETRY)
        } else {
            deadline
        };
        let lower = meeting.lower.iter().map(|lower| &lower.peer.connection);
        let strangers = meeting
            .strangers
            .iter()
            .map(|stranger| &stranger.connection);
        let met = meeting.met.iter().map(|peer| &peer.connection);
        let mut fds: Vec<PollFd<'_>> = lower
            .chain(strangers)
            .map(|connection| PollFd::new(connection, PollFlags::IN))
            // Of those met, only the end is of interest: what they send is for the first round.
            .chain(met.map(|connection| PollFd::new(connection, PollFlags::RDHUP)))
            .chain(
                directory
                    .listener()
                    .map(|socket| PollFd::new(socket, PollFlags::IN)),
            )
            .collect();
        poll(&mut fds, until)?;
    }
}

impl Meeting<'_> {
    fn missing(&self) -> Vec<u16> {
        let met = |rank: &u16| self.met.iter().any(|peer| peer.rank == *rank);
        let others = (0..self.group.ranks).filter(|&rank| rank != self.group.rank);
        others.filter(|rank| !met(rank)).collect()
    }

    fn unconnected(&self) -> impl Iterator<Item = u16> {
        let missing = self
            .missing()
            .into_iter()
            .filter(|&rank| rank < self.group.rank);
        missing.filter(|rank| !self.lower.iter().any(|lower| lower.peer.rank == *rank))
    }

    fn connect(&mut self, directory: &Directory) -> Result<(), RendezvousError> {
        let ranks: Vec<u16> = self.unconnected().collect();
        let now = Instant::now();
        for rank in ranks {
            let distrusted = self.distrusted.get(&rank);
            if distrusted.is_some_and(|&(until, _)| now < until) {
                continue;
            }
            let Connected::To(socket) = directory.connect(rank)? else {
                continue;
            };
            match Connection::new(socket)? {
                Ok(connection) => {
                    tracing::trace!(rank, "connected");
                    self.lower.push(Lower {
                        peer: Peer { rank, connection },
                        answered: false,
                    });
                }
                Err(reason) => self.distrust(rank, &reason),
            }
        }
        Ok(())
    }

    fn accept(&mut self, directory: &Directory) -> Result<(), RendezvousError> {
        let Some(listener) = directory.listener() else {
            return Ok(());
        };
        // Not without end: others wait to be heard.
        for _ in 0..MOST_STRANGERS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => break,
                Err(Errno::MFILE) if self.evict() => continue,
                Err(error) => return Err(system("accept")(error)),
            };
            let connection = match Connection::new(socket)? {
                Ok(connection) => connection,
                Err(reason) => {
                    self.refuse(reason);
                    continue;
                }
            };
            let token = random()?;
            let challenge = Message::Challenge {
                version: VERSION,
                rank: self.group.rank,
                token,
            };
            // Fails only if the other end is gone already.
            if connection.send(&challenge, &[]).is_ok_and(|sent| sent) {
                if self.strangers.len() >= MOST_STRANGERS {
                    self.evict();
                }
                self.strangers.push_back(Stranger { connection, token });
            }
        }
        Ok(())
    }

    /// Closes the connection that has waited longest for its hello, if there is one.
    fn evict(&mut self) -> bool {
        let silent = self.strangers.pop_front();
        if let Some(stranger) = &silent {
            let pid = stranger.connection.pid();
            tracing::debug!(pid, "a silent connection makes room for others");
        }
        silent.is_some()
    }

    /// Hears what those who connected say they are.
    fn hear_strangers(&mut self) -> Result<(), RendezvousError> {
        for stranger in std::mem::take(&mut self.strangers) {
            let verdict = match stranger.connection.receive() {
                Ok(Received::Nothing) => {
                    self.strangers.push_back(stranger);
                    continue;
                }
                Ok(Received::Message(message, _)) => self.check_hello(&message, stranger.token),
                Ok(Received::Malformed(reason)) => Err(reason),
                Ok(Received::Closed) | Err(_) => {
                    let pid = stranger.connection.pid();
                    tracing::debug!(pid, "a connection was closed before its hello");
                    continue;
                }
            };
            let connection = stranger.connection;
            match verdict {
                Ok(rank) => {
                    if connection
                        .send(&Message::Welcome, &[])
                        .is_ok_and(|sent| sent)
                    {
                        tracing::trace!(rank, "welcomed");
                        self.met.push(Peer { rank, connection });
                    }
                }
                Err(reason) => {
                    let pid = connection.pid();
                    let told = Message::Refused {
                        reason: reason.clone(),
                    };
                    // It is told if it still listens.
                    let _ = connection.send(&told, &[]);
                    self.refuse(format!("process {pid}: {reason}"));
                }
            }
        }
        Ok(())
    }

    /// The rank of the one that says hello, or why it may not join.
    fn check_hello(&self, message: &Message, expected: u64) -> Result<u16, String> {
        let Message::Hello {
            version,
            token,
            group,
            rank,
            ranks,
            host,
        } = message
        else {
            return Err(format!("{} is not expected here", message.name()));
        };
        let (rank, ranks) = (*rank, *ranks);
        let own = self.group;
        if *version != VERSION {
            return Err(format!(
                "it speaks version {version}, this process {VERSION}"
            ));
        }
        if *token != expected {
            return Err("its token is not the one of this connection: it was used before".into());
        }
        if *group != own.name {
            return Err(format!(
                "it belongs to group {group:?}, not to {:?}",
                own.name
            ));
        }
        if ranks != own.ranks {
            let have = own.ranks;
            return Err(format!(
                "it counts {ranks} ranks in the group, there are {have}"
            ));
        }
        if rank <= own.rank || rank >= ranks {
            let own = own.rank;
            return Err(format!(
                "it says it is rank {rank} of {ranks}; only higher ranks connect to rank {own}"
            ));
        }
        if host != self.host {
            return Err(format!(
                "rank {rank} runs on another host: memory is shared between hosts by fabric \
                 handle only (sharing.handle_type = \"fabric\")"
            ));
        }
        if let Some(peer) = self.met.iter().find(|peer| peer.rank == rank) {
            let pid = peer.connection.pid();
            return Err(format!("rank {rank} is process {pid} already"));
        }
        Ok(rank)
    }

    /// Hears what the ranks this one connected to say.
    fn hear_lower(&mut self) -> Result<(), RendezvousError> {
        for mut lower in std::mem::take(&mut self.lower) {
            let rank = lower.peer.rank;
            match lower.peer.connection.receive() {
                Ok(Received::Nothing) => self.lower.push(lower),
                Ok(Received::Message(
                    Message::Challenge {
                        version,
                        rank: theirs,
                        token,
                    },
                    _,
                )) if !lower.answered && theirs == rank && version == VERSION => {
                    let hello = Message::Hello {
                        version: VERSION,
                        token,
                        group: self.group.name.clone(),
                        rank: self.group.rank,
                        ranks: self.group.ranks,
                        host: self.host.to_owned(),
                    };
                    lower.answered = lower
                        .peer
                        .connection
                        .send(&hello, &[])
                        .is_ok_and(|sent| sent);
                    if lower.answered {
                        tracing::trace!(rank, "said hello");
                        self.lower.push(lower);
                    }
                }
                Ok(Received::Message(Message::Welcome, _)) if lower.answered => {
                    tracing::trace!(rank, "met");
                    self.met.push(lower.peer);
                }
                Ok(Received::Message(Message::Challenge { version, .. }, _))
                    if version != VERSION =>
                {
                    let reason = format!("it speaks version {version}, this process {VERSION}");
                    self.distrust(rank, &reason);
                }
                Ok(Received::Message(Message::Refused { reason }, _)) => {
                    return Err(RendezvousError::Refused { rank, reason });
                }
                Ok(Received::Message(other, _)) => {
                    let reason = format!("{} is not expected here", other.name());
                    self.distrust(rank, &reason);
                }
                Ok(Received::Malformed(reason)) => self.distrust(rank, &reason),
                // It may have died, and may be started again.
                Ok(Received::Closed) | Err(_) => {
                    let pid = lower.peer.connection.pid();
                    self.last = Some(format!("rank {rank} (process {pid}) is gone"));
                }
            }
        }
        Ok(())
    }

    /// Fails if a rank that was met is gone: the group will never be whole.
    fn watch_met(&self) -> Result<(), RendezvousError> {
        for peer in &self.met {
            let mut fds = [PollFd::new(&peer.connection, PollFlags::RDHUP)];
            poll(&mut fds, Instant::now())?;
            let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            if fds[0].revents().intersects(ended) {
                return Err(peer.gone());
            }
        }
        Ok(())
    }

    /// Logs that a lower rank was not believed, and leaves it alone for a while, longer each time.
    fn distrust(&mut self, rank: u16, reason: &str) {
        self.refuse(format!("rank {rank}: {reason}"));
        let (from, to) = DISTRUST;
        let pause = self.distrusted.get(&rank).map_or(from, |&(_, pause)| pause);
        let entry = (Instant::now() + pause, to.min(2 * pause));
        self.distrusted.insert(rank, entry);
    }

    /// Logs that somebody was not let in, or not believed.
    fn refuse(&mut self, reason: String) {
        tracing::warn!(rank = self.group.rank, reason, "refused a connection");
        self.last = Some(reason);
    }
}

/// A number that nobody can know beforehand.
fn random() -> Result<u64, RendezvousError> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Reads of up to 256 bytes are never cut short (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, flags).map_err(system("getrandom"))?;
    Ok(u64::from_le_bytes(bytes))
}
