//! What a function returns, and errors on their way to it.

/// What a function has to say. Every value but GSAN_OK comes with a text: gsan_last_error().
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names are those of C")]
pub enum gsan_status {
    /// Done.
    GSAN_OK = 0,
    /// An argument is null, misaligned, out of range, of an unknown size, or stale. Nothing was done.
    GSAN_INVALID_ARGUMENT = 1,
    /// The configuration is fixed since its first use.
    GSAN_FROZEN = 2,
    /// Allocations, graphs or work are live, which the text names.
    GSAN_LIVE = 3,
    /// Another call must come first, or this one came already.
    GSAN_WRONG_ORDER = 4,
    /// This machine, backend or build cannot do it.
    GSAN_UNSUPPORTED = 5,
    /// Out of memory or out of addresses.
    GSAN_OUT_OF_MEMORY = 6,
    /// Somebody did not come in time.
    GSAN_TIMEOUT = 7,
    /// There is no such thing.
    GSAN_NOT_FOUND = 8,
    /// The driver refused or failed.
    GSAN_DEVICE = 9,
    /// A file or socket could not be used.
    GSAN_IO = 10,
    /// A fault of GSan.
    GSAN_INTERNAL = 11,
}

/// A call that failed: what C gets, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: gsan_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: gsan_status, message: impl Into<String>) -> Failure {
        Failure {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(gsan_status::GSAN_INVALID_ARGUMENT, message)
    }
}
