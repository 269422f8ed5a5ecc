//! The process's session, and its errors as C gets them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gsan_runtime::{Error, Kind, Session};
use gsan_vmm::backend::Device;

use crate::status::{Failure, gsan_status};

/// The session, which the first call starts; `user` is the function that was called.
pub(crate) fn session(user: &'static str) -> Result<Arc<Session>, Failure> {
    Ok(Session::get_or_start(user)?)
}

/// The session and one of its devices.
pub(crate) fn session_with(
    user: &'static str,
    device: c_int,
) -> Result<(Arc<Session>, Device), Failure> {
    let session = session(user)?;
    let device = session.device(device)?;
    Ok((session, device))
}

/// Refuses a forked child: what it inherited is its parent's, locks that nobody will unlock included.
pub(crate) fn attached() -> Result<(), Failure> {
    match gsan_runtime::process::is_detached() {
        true => Err(Error::Detached.into()),
        false => Ok(()),
    }
}

/// The session if there is one; without there can be nothing that the call is about.
pub(crate) fn running() -> Result<Arc<Session>, Failure> {
    attached()?;
    gsan_runtime::process::running().ok_or_else(|| {
        Failure::new(
            gsan_status::GSAN_NOT_FOUND,
            "there is no session yet: nothing was allocated or launched",
        )
    })
}

/// A stream, as a number.
pub(crate) fn number(stream: *mut c_void) -> u64 {
    stream.addr() as u64
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error.kind() {
            Kind::InvalidArgument => gsan_status::GSAN_INVALID_ARGUMENT,
            Kind::Frozen => gsan_status::GSAN_FROZEN,
            Kind::Live => gsan_status::GSAN_LIVE,
            Kind::WrongOrder => gsan_status::GSAN_WRONG_ORDER,
            Kind::Unsupported => gsan_status::GSAN_UNSUPPORTED,
            Kind::OutOfMemory => gsan_status::GSAN_OUT_OF_MEMORY,
            Kind::Timeout => gsan_status::GSAN_TIMEOUT,
            Kind::NotFound => gsan_status::GSAN_NOT_FOUND,
            Kind::Device => gsan_status::GSAN_DEVICE,
            Kind::Io => gsan_status::GSAN_IO,
            Kind::Internal => gsan_status::GSAN_INTERNAL,
        };
        Failure::new(status, error.to_string())
    }
}
