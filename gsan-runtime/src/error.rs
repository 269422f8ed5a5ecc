//! What can go wrong between a program's calls and the session.

use std::sync::Arc;

use gsan_sync::ranks::RanksError;
use gsan_vmm::backend::{BackendError, Failure};
use gsan_vmm::rendezvous::RendezvousError;

use crate::part::{Damaged, PartError};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that was refused. Nothing has changed then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error("{}", with_help(.0))]
    Configuration(Box<gsan_config::Error>),
    /// The configuration was used already.
    #[error(
        "the configuration is fixed since its first use ({since}): change it before, or after a reset"
    )]
    Frozen {
        /// What used it first.
        since: &'static str,
    },
    /// The process was forked from one that has a session.
    #[error(
        "this process was forked from one that GSan watches: it cannot use its parent's session, and \
         is not checked. Start new processes with `exec` (for Python: multiprocessing with \"spawn\")"
    )]
    Detached,
    /// An argument is wrong; the text says which, why, and what would be right.
    #[error("{0}")]
    Argument(String),
    /// What the call is about is not there.
    #[error("{0}")]
    NotFound(String),
    /// Something else comes first.
    #[error("{0}")]
    WrongOrder(String),
    /// This machine or this backend cannot do that.
    #[error("{0}")]
    Unsupported(String),
    /// It took too long.
    #[error("{0}")]
    Timeout(String),
    /// A file could not be written or read.
    #[error("{what}: {why}")]
    Io {
        /// What was done with which file.
        what: String,
        /// What the system says.
        why: String,
    },
    /// Memory could not be had, freed or shared.
    #[error(transparent)]
    Memory(#[from] gsan_vmm::Error),
    /// The ordering refused.
    #[error(transparent)]
    Order(#[from] gsan_sync::Error),
    /// The driver, or the host's memory system, failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Processes did not meet.
    #[error(transparent)]
    Rendezvous(Arc<RendezvousError>),
    /// Processes cannot have the device ranks that they want.
    #[error(transparent)]
    Ranks(Arc<RanksError>),
    /// There is no memory for what this process reports.
    #[error(transparent)]
    Part(Arc<PartError>),
    /// What this process reports cannot be read.
    #[error("this process's own part of the report: {0}")]
    Damaged(Arc<Damaged>),
    /// A bug of GSan.
    #[error("internal error of GSan: {0}")]
    Internal(String),
}

/// What kind of failure an [`Error`] is: what callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An argument is wrong.
    InvalidArgument,
    /// The configuration is fixed.
    Frozen,
    /// Allocations, graphs or work are live.
    Live,
    /// Something else comes first.
    WrongOrder,
    /// Not here.
    Unsupported,
    /// No memory, or no addresses.
    OutOfMemory,
    /// It took too long.
    Timeout,
    /// What the call is about is not there.
    NotFound,
    /// The driver failed.
    Device,
    /// A file could not be used.
    Io,
    /// A bug of GSan.
    Internal,
}

impl Error {
    /// Which kind of failure it is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Configuration(_) | Error::Argument(_) => Kind::InvalidArgument,
            Error::Frozen { .. } => Kind::Frozen,
            Error::Detached | Error::Unsupported(_) => Kind::Unsupported,
            Error::NotFound(_) => Kind::NotFound,
            Error::WrongOrder(_) => Kind::WrongOrder,
            Error::Timeout(_) => Kind::Timeout,
            Error::Io { .. } => Kind::Io,
            Error::Memory(error) => of_memory(error),
            Error::Order(error) => of_order(error),
            Error::Backend(error) => of_backend(error),
            Error::Rendezvous(error) => of_rendezvous(error),
            Error::Ranks(error) => match &**error {
                RanksError::Rendezvous(error) => of_rendezvous(error),
                RanksError::Said { .. } => Kind::Io,
                _ => Kind::InvalidArgument,
            },
            Error::Part(error) => match **error {
                PartError::Devices(_) => Kind::InvalidArgument,
                PartError::Memory(_) => Kind::OutOfMemory,
            },
            Error::Damaged(_) => Kind::Io,
            Error::Internal(_) => Kind::Internal,
        }
    }

    /// A file could not be used: `what` was done with it.
    pub(crate) fn io(what: impl Into<String>, error: &std::io::Error) -> Error {
        Error::Io {
            what: what.into(),
            why: error.to_string(),
        }
    }
}

impl From<gsan_config::Error> for Error {
    fn from(error: gsan_config::Error) -> Error {
        Error::Configuration(Box::new(error))
    }
}

impl From<RanksError> for Error {
    fn from(error: RanksError) -> Error {
        Error::Ranks(Arc::new(error))
    }
}

impl From<RendezvousError> for Error {
    fn from(error: RendezvousError) -> Error {
        Error::Rendezvous(Arc::new(error))
    }
}

impl From<PartError> for Error {
    fn from(error: PartError) -> Error {
        Error::Part(Arc::new(error))
    }
}

impl From<Damaged> for Error {
    fn from(error: Damaged) -> Error {
        Error::Damaged(Arc::new(error))
    }
}

fn with_help(error: &gsan_config::Error) -> String {
    format!(
        "{}: {}; {}",
        error.origin,
        error.problem,
        error.problem.help()
    )
}

fn of_backend(error: &BackendError) -> Kind {
    match error.failure {
        Failure::OutOfMemory | Failure::OutOfHandles => Kind::OutOfMemory,
        Failure::NoSuchHandle => Kind::NotFound,
        Failure::InvalidArgument => Kind::InvalidArgument,
        Failure::NotSupported => Kind::Unsupported,
        Failure::Other => Kind::Device,
    }
}

fn of_memory(error: &gsan_vmm::Error) -> Kind {
    use gsan_vmm::Error as E;
    match error {
        E::ReserveRefused { .. }
        | E::OutOfMemory { .. }
        | E::OutOfAddressSpace { .. }
        | E::TooLarge { .. } => Kind::OutOfMemory,
        E::NotLive { .. } | E::NoState(_) => Kind::NotFound,
        E::RankTaken(_) => Kind::WrongOrder,
        E::Unreachable { .. } | E::NoSharing { .. } => Kind::Unsupported,
        E::Backend(error) => of_backend(error),
        _ => Kind::InvalidArgument,
    }
}

fn of_order(error: &gsan_sync::Error) -> Kind {
    use gsan_sync::Error as E;
    match error {
        E::UnknownStream(_) => Kind::NotFound,
        E::StreamHeld {
            why: gsan_sync::Held::TooLong(_),
            ..
        } => Kind::Timeout,
        E::LaunchUnfinished { .. }
        | E::StreamHeld { .. }
        | E::LaunchFinished { .. }
        | E::RankMissing(_)
        | E::GroupExists(_)
        | E::GraphGone(_)
        | E::ReplayFinished => Kind::WrongOrder,
        E::BarrierTimeout { .. } => Kind::Timeout,
        E::Frozen { .. } => Kind::Frozen,
        E::LiveAllocations { .. }
        | E::LiveGraphs { .. }
        | E::OpenGroups(_)
        | E::ReplayUnfinished { .. }
        | E::StillRunning(_)
        | E::GraphInFlight => Kind::Live,
        E::GraphElsewhere { .. } => Kind::InvalidArgument,
        E::NoRoomForGraph { .. } | E::NoRoomForRows { .. } => Kind::OutOfMemory,
        E::Memory(error) => of_memory(error),
        E::Backend(error) => of_backend(error),
        _ => Kind::InvalidArgument,
    }
}

fn of_rendezvous(error: &RendezvousError) -> Kind {
    match error {
        RendezvousError::BadGroup { .. }
        | RendezvousError::NameTooLong { .. }
        | RendezvousError::BadHosts { .. }
        | RendezvousError::RankTaken { .. }
        | RendezvousError::TooLarge { .. } => Kind::InvalidArgument,
        RendezvousError::TimedOut { .. } => Kind::Timeout,
        _ => Kind::Io,
    }
}
