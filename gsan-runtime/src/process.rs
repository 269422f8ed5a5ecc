//! The process's one session: configured, started at its first use, reset, finished, and left alone by
//! forked children.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gsan_config::{Inputs, Loaded};

use crate::error::{Error, Result};
use crate::lowest;
use crate::session::Session;

/// What the process has.
struct Process {
    /// The configuration, once somebody asked for it.
    loaded: Option<Loaded>,
    running: Option<Running>,
}

struct Running {
    session: Arc<Session>,
    /// What used it first.
    since: &'static str,
}

static PROCESS: RwLock<Process> = RwLock::new(Process {
    loaded: None,
    running: None,
});

/// Whether a forked child has been told that it is one.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that has a session. It must not touch what it inherited:
/// locks may be held by threads that it does not have.
pub fn is_detached() -> bool {
    lowest::is_forked()
}

fn attached() -> Result<()> {
    if !is_detached() {
        return Ok(());
    }
    if !TOLD.swap(true, Relaxed) {
        eprintln!("gsan: {}", Error::Detached);
    }
    Err(Error::Detached)
}

fn read() -> RwLockReadGuard<'static, Process> {
    // What a panic left is whole: every change is a single assignment.
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Process> {
    PROCESS.write().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// The configuration as environment and file say it, and then calls.
    fn loaded(&mut self) -> Result<&mut Loaded> {
        match &mut self.loaded {
            Some(loaded) => Ok(loaded),
            empty => {
                let inputs = Inputs::of_process(None, Vec::new())
                    .map_err(|error| Error::io("looking for gsan.toml", &error))?;
                Ok(empty.insert(Loaded::new(&inputs)?))
            }
        }
    }
}

/// Changes the configuration: `toml` has the keys of `gsan.toml`, and wins over environment and file.
/// `caller` is what errors call the text.
///
/// # Errors
/// When the session was started already, or something is wrong with the text, with the environment or
/// with `gsan.toml`.
pub fn configure(toml: &str, caller: &str) -> Result<()> {
    attached()?;
    let mut process = write();
    if let Some(running) = &process.running {
        return Err(Error::Frozen {
            since: running.since,
        });
    }
    let loaded = process.loaded()?;
    let mut changed = loaded.clone();
    changed.apply_file(Path::new(caller), toml)?;
    changed.check()?;
    *loaded = changed;
    Ok(())
}

/// The configuration that holds, as TOML, each value with its origin beside it.
///
/// # Errors
/// When something is wrong with it.
pub fn configuration() -> Result<String> {
    attached()?;
    Ok(gsan_config::text::effective(write().loaded()?))
}

/// Whether the session was started.
pub fn is_frozen() -> bool {
    !is_detached() && read().running.is_some()
}

/// The session, if it was started.
pub fn running() -> Option<Arc<Session>> {
    if is_detached() {
        return None;
    }
    let process = read();
    process
        .running
        .as_ref()
        .map(|running| Arc::clone(&running.session))
}

impl Session {
    /// The process's session, which the first call starts. `user` says who wants it, for those who
    /// want to change the configuration later.
    ///
    /// # Errors
    /// When something is wrong with the configuration, or the devices cannot be set up; the
    /// configuration can still be changed then. In a forked child always.
    pub fn get_or_start(user: &'static str) -> Result<Arc<Session>> {
        attached()?;
        if let Some(running) = &read().running {
            return Ok(Arc::clone(&running.session));
        }
        let mut process = write();
        if let Some(running) = &process.running {
            return Ok(Arc::clone(&running.session));
        }
        let loaded = process.loaded()?;
        let session = Arc::new(Session::start(loaded)?);
        lowest::watch_process();
        process.running = Some(Running {
            session: Arc::clone(&session),
            since: user,
        });
        Ok(session)
    }
}

/// Puts everything back to the start: the session is given up, and the configuration is that of
/// environment and file again. What was found stays found. Without a session only the latter.
///
/// # Errors
/// When allocations or graphs are live, or work is running. Nothing changes then.
pub fn reset() -> Result<()> {
    attached()?;
    let mut process = write();
    if let Some(running) = &process.running {
        running.session.close()?;
    }
    process.running = None;
    process.loaded = None;
    Ok(())
}

/// Takes in what was found, and writes this process's part of the report. May be called again.
///
/// # Errors
/// When it cannot be written.
pub fn finish() -> Result<()> {
    attached()?;
    match running() {
        Some(session) => session.finish(),
        None => Ok(()),
    }
}

/// What is done when the process exits.
pub(crate) fn at_exit() {
    if is_detached() {
        return;
    }
    // Whoever holds the lock now does not let go of it any more, or is this very thread.
    let Ok(process) = PROCESS.try_read() else {
        return;
    };
    let session = process
        .running
        .as_ref()
        .map(|running| Arc::clone(&running.session));
    drop(process);
    if let Some(session) = session
        && let Err(error) = session.finish()
    {
        eprintln!("gsan: {error}");
    }
}
