//! Messages, and a connection that carries them with descriptors.
//!
//! The sockets keep messages apart (`SOCK_SEQPACKET`), so a message that is cut short is seen to
//! be. It is JSON: an unknown kind or field is an error of its own.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use super::{RendezvousError, system};

/// The longest text of a parcel, in bytes.
pub const MOST_TEXT: usize = 32 << 10;
/// The most descriptors of a parcel.
pub const MOST_DESCRIPTORS: usize = 16;
/// The longest name of a group, in bytes.
pub const MOST_NAME: usize = 4 << 10;
/// The longest message in bytes: a text in which every byte is escaped, and its frame.
const MOST_BYTES: usize = 6 * MOST_TEXT + 256;

/// The version of these messages. It changes when their fields do.
pub(super) const VERSION: u32 = 1;

/// What ranks say to each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Message {
    /// The one that listens: who it is, and a token that the answer must repeat.
    Challenge { version: u32, rank: u16, token: u64 },
    /// The one that connects: who it is.
    Hello {
        version: u32,
        token: u64,
        group: String,
        rank: u16,
        ranks: u16,
        host: String,
    },
    /// The one that listens: the other is who it says.
    Welcome,
    /// The one that listens: the other may not join.
    Refused { reason: String },
    /// What a rank gives in an exchange.
    Parcel {
        round: u64,
        text: String,
        descriptors: usize,
    },
}

impl Message {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Message::Challenge { .. } => "a challenge",
            Message::Hello { .. } => "a hello",
            Message::Welcome => "a welcome",
            Message::Refused { .. } => "a refusal",
            Message::Parcel { .. } => "a parcel",
        }
    }
}

/// What was there to receive.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// The end of the connection.
    Closed,
    Message(Message, Vec<OwnedFd>),
    /// Something that is no message; its descriptors are closed.
    Malformed(String),
}

/// A connection to a process of this user. Neither sending nor receiving waits.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pid: i32,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Takes a connected, non-blocking socket, if a process of this user is at its other end;
    /// otherwise says who is.
    pub(super) fn new(socket: OwnedFd) -> Result<Result<Connection, String>, RendezvousError> {
        let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(system("getsockopt"))?;
        let pid = peer.pid.as_raw_pid();
        let own = rustix::process::geteuid();
        if peer.uid != own {
            return Ok(Err(format!(
                "process {pid} belongs to user {}, not to user {}",
                peer.uid.as_raw(),
                own.as_raw()
            )));
        }
        Ok(Ok(Connection { socket, pid }))
    }

    /// The process at the other end.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a message; `false` if there is no room for it now.
    pub(super) fn send(
        &self,
        message: &Message,
        descriptors: &[OwnedFd],
    ) -> Result<bool, RendezvousError> {
        let bytes = serde_json::to_vec(message).expect("its keys are strings");
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(system("sendmsg")(error)),
        }
    }

    /// Receives what is there.
    pub(super) fn receive(&self) -> Result<Received, RendezvousError> {
        let mut bytes = vec![0; MOST_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
            Ok(got) => got,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(error) => return Err(system("recvmsg")(error)),
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if got.bytes == 0 && descriptors.is_empty() {
            return Ok(Received::Closed);
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            let reason = format!("it has more than {MOST_BYTES} bytes");
            return Ok(Received::Malformed(reason));
        }
        if got.flags.contains(ReturnFlags::CTRUNC) && descriptors.len() < MOST_DESCRIPTORS {
            // The rest is lost, and the message with it.
            return Err(RendezvousError::TooManyOpenFiles);
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            let reason = format!("it has more than {MOST_DESCRIPTORS} descriptors");
            return Ok(Received::Malformed(reason));
        }
        Ok(match serde_json::from_slice(&bytes[..got.bytes]) {
            Ok(message) => Received::Message(message, descriptors),
            Err(error) => Received::Malformed(format!("it is no message: {error}")),
        })
    }
}
