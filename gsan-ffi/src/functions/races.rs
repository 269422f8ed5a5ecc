//! What was found. All of these but gsan_on_race() wait for the devices first, and take in what they say.

use std::ffi::{c_char, c_void};

use crate::arguments::{output, text, text_room};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_race_callback, gsan_race_visitor};

/// How many distinct races were found, and how many possible ones. Either may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_race_count(races: *mut u64, possible: *mut u64) -> gsan_status {
    status(|| {
        let _ = (races, possible);
        Err(Failure::not_yet())
    })
}

/// Calls back with each distinct race, the possible ones last, until the callback returns other than 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_races(callback: gsan_race_visitor, user: *mut c_void) -> gsan_status {
    status(|| {
        let _ = (callback, user);
        Err(Failure::not_yet())
    })
}

/// Calls back with each distinct race when it is first seen, from a thread of GSan; null: no more. When
/// this returns, the callback from before is not running and will not run any more, unless it is the
/// callback itself that calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_on_race(
    callback: gsan_race_callback,
    user: *mut c_void,
) -> gsan_status {
    status(|| {
        let _ = (callback, user);
        Err(Failure::not_yet())
    })
}

/// Waits for the devices, and takes in what they found.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_drain() -> gsan_status {
    status(|| Err(Failure::not_yet()))
}

/// Forgets the races that were found so far: they are not counted, shown or reported any more.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_forget_races() -> gsan_status {
    status(|| Err(Failure::not_yet()))
}

/// The report so far. `format`: "human", "json" or "sarif". For the form of `text` and `bytes` see
/// gsan_configuration(); between two calls the report may grow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_report(
    format: *const c_char,
    text: *mut c_char,
    bytes: *mut usize,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (self::text(format, "format")?, text_room(text, bytes)?) };
        Err(Failure::not_yet())
    })
}

/// Writes the report so far to a file, which appears as a whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_write_report(
    format: *const c_char,
    path: *const c_char,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let _arguments = unsafe { (text(format, "format")?, text(path, "path")?) };
        Err(Failure::not_yet())
    })
}

/// Takes in what was found and writes this process's part of the report, as the configuration says. Done
/// at exit, too; may be called again.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_finish() -> gsan_status {
    status(|| Ok(gsan_runtime::process::finish()?))
}
