//! What was found. All of these but gsan_on_race() wait for the devices first, and take in what they say.

use std::cell::Cell;
use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gsan_config::Config;
use gsan_config::value::Format;
use gsan_report::model::Report;
use gsan_runtime::telling::News;
use gsan_runtime::{process, written};

use crate::arguments::{c_text, optional_output, text, text_room};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::told::{Told, User};
use crate::types::{gsan_race, gsan_race_callback, gsan_race_visitor};

/// How many distinct races were found, wrong uses of write-once memory among them, and how many possible
/// races; those that are kept, so at most `report.limit` of each. Either may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_race_count(races: *mut u64, possible: *mut u64) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let outputs = unsafe {
            (
                optional_output(races, "races")?,
                optional_output(possible, "possible")?,
            )
        };
        let (races, possible) = process::race_count()?;
        for (output, count) in [(outputs.0, races), (outputs.1, possible)] {
            if let Some(output) = output {
                output.set(count as u64);
            }
        }
        Ok(())
    })
}

/// Calls back with each distinct race, then with wrong uses of write-once memory, then with possible
/// races, until the callback returns other than 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_races(callback: gsan_race_visitor, user: *mut c_void) -> gsan_status {
    status(|| {
        let callback = callback.ok_or_else(|| Failure::invalid("callback is null"))?;
        let report = process::report()?;
        let races = report.races.iter().map(|race| Told::race(race, false));
        let faults = report.faults.iter().filter_map(Told::fault);
        let possible = report.possible_races.iter();
        let possible = possible.map(|possible| Told::race(&possible.race, true));
        for told in races.chain(faults).chain(possible) {
            // SAFETY: C says that it is such a function.
            if unsafe { callback(told.as_ptr(), user) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Calls back with each distinct race when it is first seen, from whichever thread takes it in; null: no
/// more. When this returns, the callback from before is not running and will not run any more, but for the
/// one that calls this. The callback may call GSan, but must not wait for a thread that does: that thread
/// may be waiting for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_on_race(
    callback: gsan_race_callback,
    user: *mut c_void,
) -> gsan_status {
    status(|| {
        let slot = callback.map(|callback| {
            Arc::new(Slot {
                callback,
                user: User::new(user),
                state: Mutex::default(),
                idle: Condvar::new(),
            })
        });
        let called = slot.clone();
        process::on_race(called.map(|slot| -> gsan_runtime::findings::Callback {
            Arc::new(move |news| slot.call(news))
        }));
        let before = std::mem::replace(&mut *lock(&SLOT), slot);
        if let Some(before) = before {
            before.retire();
        }
        Ok(())
    })
}

/// The callback that is called now.
static SLOT: Mutex<Option<Arc<Slot>>> = Mutex::new(None);

thread_local! {
    /// How many callbacks this thread is inside of.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// A callback of the program.
struct Slot {
    callback: unsafe extern "C-unwind" fn(*const gsan_race, *mut c_void),
    user: User,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    retired: bool,
    running: usize,
}

impl Slot {
    fn call(&self, news: &News) {
        let told = match news {
            News::Race(race) => Some(Told::race(race, false)),
            News::Possible(possible) => Some(Told::race(&possible.race, true)),
            News::Fault(fault) => Told::fault(fault),
        };
        let Some(told) = told else { return };
        {
            let mut state = lock(&self.state);
            if state.retired {
                return;
            }
            state.running += 1;
        }
        INSIDE.set(INSIDE.get() + 1);
        // SAFETY: C says that it is such a function.
        unsafe { (self.callback)(told.as_ptr(), self.user.pointer()) };
        INSIDE.set(INSIDE.get() - 1);
        lock(&self.state).running -= 1;
        self.idle.notify_all();
    }

    /// Returns when it is not running, but for this thread, and never will.
    fn retire(&self) {
        let mut state = lock(&self.state);
        state.retired = true;
        let own = INSIDE.get();
        let idle = self.idle.wait_while(state, |state| state.running > own);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the devices, and takes in what they found.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_drain() -> gsan_status {
    status(|| Ok(process::drain()?))
}

/// Forgets the races that were found so far: they are not counted, shown or reported any more.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_forget_races() -> gsan_status {
    status(|| Ok(process::forget_races()?))
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
        let (format, room) = unsafe { (format_of(format)?, text_room(text, bytes)?) };
        let (report, config) = report()?;
        room.write(&written::text(&report, format, &config.report))
    })
}

/// Writes the report so far to a file, which appears as a whole. One that is there keeps its mode;
/// symbolic links are followed; what is no ordinary file, such as "/dev/stdout", is written to.
/// `path` need not be UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_write_report(
    format: *const c_char,
    path: *const c_char,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (format, path) = unsafe { (format_of(format)?, c_text(path, "path")?) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let (report, config) = report()?;
        Ok(written::write(&report, format, &config.report, path)?)
    })
}

/// Takes in what was found and, unless `gsan run` does so, writes the files that the configuration asks
/// for. Done at exit, too; may be called again.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_finish() -> gsan_status {
    status(|| Ok(process::finish()?))
}

/// The report so far, and the configuration that says how it looks.
fn report() -> Result<(Report, Config), Failure> {
    let report = process::report()?;
    let config = process::running().map(|session| session.config().clone());
    Ok((report, config.unwrap_or_default()))
}

/// # Safety
/// As for [`text`].
unsafe fn format_of(format: *const c_char) -> Result<Format, Failure> {
    // SAFETY: as the caller says.
    match unsafe { text(format, "format") }? {
        "human" => Ok(Format::Human),
        "json" => Ok(Format::Json),
        "sarif" => Ok(Format::Sarif),
        other => Err(Failure::invalid(format!(
            "format is \"{other}\", which is not \"human\", \"json\" or \"sarif\""
        ))),
    }
}
