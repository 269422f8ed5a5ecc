//! Version, errors, configuration.

use std::ffi::{CStr, c_char, c_int};

use crate::arguments::{output, text, text_room, versioned};
use crate::call::{last_error, status};
use crate::status::{Failure, gsan_status};
use crate::types::{GSAN_ABI_VERSION, gsan_config};

/// The version of this interface that the library has. A program that was built with another
/// GSAN_ABI_VERSION than this does not go with it.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_abi_version() -> u32 {
    GSAN_ABI_VERSION
}

/// The version of GSan, as text.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Why this thread's last call failed: what was wrong, where, and what would be right. An empty text if
/// it did not. It lives until this thread's next call; this function, gsan_version() and
/// gsan_abi_version() do not count.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_last_error() -> *const c_char {
    last_error()
}

/// Configures by numbers. Calls win over the environment (GSAN_SECTION_KEY), which wins over gsan.toml,
/// which wins over the defaults; of several calls the last one wins, key by key. Refused as a whole if
/// anything in it is wrong. GSAN_FROZEN after the first use of anything but configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configure(config: *const gsan_config) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _config = unsafe { versioned(config, "config") }?;
        Err(Failure::not_yet())
    })
}

/// Configures by text: TOML with the keys of gsan.toml.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configure_toml(toml: *const c_char) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _toml = unsafe { text(toml, "toml") }?;
        Err(Failure::not_yet())
    })
}

/// The configuration that holds, as TOML, with the origin of each value in a comment.
///
/// Texts are returned so: `*bytes` says how much room there is at `text`, and after the call how many
/// bytes are needed, the zero byte included. With `text` null nothing is written, and the call only
/// asks. GSAN_INVALID_ARGUMENT if there is too little room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configuration(text: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _room = unsafe { text_room(text, bytes) }?;
        Err(Failure::not_yet())
    })
}

/// Starts the session, which fixes the configuration. Any use does it, too.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_freeze() -> gsan_status {
    status(|| Err(Failure::not_yet()))
}

/// Whether the configuration is fixed: `*frozen` is 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_is_frozen(frozen: *mut c_int) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let frozen = unsafe { output(frozen, "frozen") }?;
        frozen.set(0);
        Err(Failure::not_yet())
    })
}

/// Puts everything back to the start: no session, the configuration that of environment and file. Races
/// that were found stay found. GSAN_LIVE with allocations, graphs or running work, which the text names;
/// nothing changes then.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_reset() -> gsan_status {
    status(|| Err(Failure::not_yet()))
}
