//! The process's one session: configured, started at its first use, reset, finished, and left alone by
//! forked children.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use gsan_config::keys;
use gsan_config::value::Format;
use gsan_config::{Inputs, Loaded};
use gsan_report::builder::Builder;
use gsan_report::model::Report;
use gsan_sync::ranks::Claims;

use crate::error::{Error, Result};
use crate::findings::{Callback, Findings};
use crate::session::{Meeting, Session, open_claims};
use crate::{lowest, run_directory, written};

/// What the process has.
struct Process {
    /// The configuration, once somebody asked for it.
    loaded: Option<Loaded>,
    running: Option<Running>,
    /// What was found, over all sessions; from the first one on.
    findings: Option<Arc<Findings>>,
    /// How it is reported: as the last session's configuration says.
    reporting: Option<Reporting>,
    /// Who is told of new findings.
    callback: Option<Callback>,
}

struct Running {
    session: Arc<Session>,
    /// What used it first.
    since: &'static str,
}

#[derive(Clone)]
struct Reporting {
    config: keys::Report,
    /// Where a run reads it.
    run: Option<PathBuf>,
}

impl Reporting {
    /// Whether somebody else reports what this process finds. A run may have been killed.
    fn is_in_run(&self) -> bool {
        self.run.as_deref().is_some_and(run_directory::is_read)
    }
}

static PROCESS: RwLock<Process> = RwLock::new(Process {
    loaded: None,
    running: None,
    findings: None,
    reporting: None,
    callback: None,
});

/// Whether the program has asked what was found.
static ASKED: AtomicBool = AtomicBool::new(false);

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

impl Process {
    /// What was found so far.
    fn findings(&mut self, loaded: &Loaded) -> Arc<Findings> {
        let callback = self.callback.clone();
        let findings = self.findings.get_or_insert_with(|| {
            let report = &loaded.config.report;
            let findings = Findings::new(report.limit as usize, &report.suppress);
            findings.on_new(callback);
            Arc::new(findings)
        });
        Arc::clone(findings)
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

/// Meets the other processes of the group `name` on this host, and agrees with them on the ranks of devices. What
/// is not configured and not used yet follows from the UUIDs of all GPUs that they see. A `limit` of zero is
/// ten minutes; it holds for each later exchange, too.
///
/// # Errors
/// When the rank is none of the group or taken, ranks do not come in time, two GPUs claim one device rank or
/// topologies do not go together, or the session was started meanwhile with other ranks.
pub fn join(name: &str, rank: u16, ranks: u16, limit: Duration) -> Result<Meeting> {
    attached()?;
    // There is something that a child must not share, though there need not be a session yet.
    lowest::watch_forks();
    let own = claims()?;
    let mut meeting = Meeting::join(name, rank, ranks, limit)?;
    let agreed = meeting.agree(&own)?;
    let given = agreed.of.get(usize::from(rank)).into_iter().flatten();
    let own = own.gpus.iter().zip(given);
    let own: Vec<(u32, u16)> = own.map(|(claim, rank)| (claim.device, rank.0)).collect();
    take_ranks(&own, agreed.devices)?;
    Ok(meeting)
}

/// What this process says of its devices.
fn claims() -> Result<Claims> {
    if let Some(session) = running() {
        return Ok(session.claims());
    }
    let config = write().loaded()?.config.clone();
    open_claims(&config)
}

/// Takes over what was agreed: devices and their ranks, and how many devices there are over all.
fn take_ranks(own: &[(u32, u16)], devices: u32) -> Result<()> {
    let given: Vec<String> = own
        .iter()
        .map(|(at, rank)| format!("{at} = {rank}"))
        .collect();
    let (given, devices) = (given.join(", "), format!("num_devices = {devices}"));
    let toml = format!("[topology]\ndevice_ranks = {{ {given} }}\n{devices}\n");
    match configure(&toml, "gsan_rendezvous_join") {
        Err(Error::Frozen { since }) => {
            let has = running().map(|session| session.claims());
            let has = has.iter().flat_map(|claims| &claims.gpus);
            let has = has.filter_map(|claim| Some((claim.device, claim.rank?.0)));
            match has.eq(own.iter().copied()) {
                true => Ok(()),
                false => Err(Error::Frozen { since }),
            }
        }
        other => other,
    }
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
        lowest::watch_forks();
        let mut process = write();
        if let Some(running) = &process.running {
            return Ok(Arc::clone(&running.session));
        }
        let loaded = process.loaded()?.clone();
        let findings = process.findings(&loaded);
        let session = Arc::new(Session::start_with(&loaded, findings)?);
        lowest::watch_exit();
        process.reporting = Some(Reporting {
            config: session.config().report.clone(),
            run: session.run_directory(),
        });
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
    let mut news = Vec::new();
    let mut process = write();
    let session = process.running.as_ref();
    let session = session.map(|running| Arc::clone(&running.session));
    let closed = match &session {
        Some(session) => session.close_quietly(&mut news),
        None => Ok(()),
    };
    if closed.is_ok() {
        process.running = None;
        process.loaded = None;
    }
    // Callbacks, of this thread and of the session's own, may want the lock.
    drop(process);
    if let Some(session) = session {
        session.announce(&news);
        if closed.is_ok() {
            session.stop();
        }
    }
    closed
}

/// Waits for all devices and takes in what they told.
///
/// # Errors
/// In a forked child, and on the host backend when a kernel waits.
pub fn drain() -> Result<()> {
    attached()?;
    running().map_or(Ok(()), |session| session.drain())
}

/// How many races and how many possible ones were found, each distinct one once, in all sessions.
///
/// # Errors
/// The same as of [`drain`].
pub fn race_count() -> Result<(usize, usize)> {
    let report = report()?;
    Ok((
        report.races.len() + report.faults.len(),
        report.possible_races.len(),
    ))
}

/// The report so far, over all sessions.
///
/// # Errors
/// The same as of [`drain`].
pub fn report() -> Result<Report> {
    attached()?;
    ASKED.store(true, Relaxed);
    report_so_far()
}

fn report_so_far() -> Result<Report> {
    if let Some(session) = running() {
        return session.report();
    }
    let findings = read().findings.clone();
    Ok(match findings {
        Some(findings) => findings.report(),
        None => Builder::new(1, &[]).finish(),
    })
}

/// Forgets what was found so far.
///
/// # Errors
/// The same as of [`drain`].
pub fn forget_races() -> Result<()> {
    attached()?;
    if let Some(session) = running() {
        return session.forget_races();
    }
    let findings = read().findings.clone();
    if let Some(findings) = findings {
        findings.forget();
    }
    Ok(())
}

/// From now on `callback` is called for each finding that is new, from a thread of GSan; `None`: nobody is.
pub fn on_race(callback: Option<Callback>) {
    if is_detached() {
        return;
    }
    let mut process = write();
    process.callback.clone_from(&callback);
    let findings = process.findings.clone();
    drop(process);
    if let Some(findings) = findings {
        findings.on_new(callback);
    }
}

/// Takes in what was found. If nobody else reports it, it is written as the configuration says: files for
/// "json" and "sarif". May be called again.
///
/// # Errors
/// When a file cannot be written; in a forked child.
pub fn finish() -> Result<()> {
    attached()?;
    if let Some(session) = running() {
        session.finish()?;
    }
    match reporting() {
        Some(to) if !to.is_in_run() => written::write_files(&report_so_far()?, &to.config),
        _ => Ok(()),
    }
}

fn reporting() -> Option<Reporting> {
    read().reporting.clone()
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
    drop(process);
    if let Err(error) = report_at_exit() {
        eprintln!("gsan: {error}");
    }
}

/// Writes files like [`finish`], and shows what was found and nobody asked for.
fn report_at_exit() -> Result<()> {
    let report = match running() {
        Some(session) => session.report_at_exit(),
        None => report_so_far()?,
    };
    let Some(reporting) = reporting() else {
        return Ok(());
    };
    if reporting.is_in_run() {
        return Ok(());
    }
    let config = reporting.config;
    written::write_files(&report, &config)?;
    let human = config.formats.contains(&Format::Human);
    if human && !ASKED.load(Relaxed) && report.has_findings(true) {
        eprint!("{}", written::text(&report, Format::Human, &config));
    }
    Ok(())
}
