//! The program: started in the foreground, in the process group of `gsan run`, so that the terminal
//! treats both as one.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::failure::Failure;
use crate::shell;

/// Signals that the program gets when `gsan run` does.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The running program.
pub(crate) struct Child {
    ended: Receiver<std::io::Result<ExitStatus>>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(u8),
    Signal(u8),
}

impl Child {
    /// Starts a program.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<Child, Failure> {
        let name = &command[0];
        // Before it runs, so that no signal goes astray.
        let signals = SignalsInfo::with_exfiltrator(caught(), WithOrigin::default())
            .map_err(|error| Failure::other(format!("signals cannot be caught: {error}")))?;
        let mut child = Command::new(name)
            .args(&command[1..])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .spawn()
            .map_err(|error| unstartable(name, &error))?;
        let pid = Pid::from_child(&child);
        // What has the number of a program that ended is not sent signals.
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(program) => forward(signals, program, pid),
            Err(error) => tracing::warn!("signals are not forwarded: {error}"),
        }
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            // Nobody listens any more when `gsan run` is about to end.
            let _ = sender.send(child.wait());
        });
        Ok(Child { ended })
    }

    /// Waits for the program to end, but not longer than `time`.
    pub(crate) fn wait(&mut self, time: Duration) -> Option<Ended> {
        match self.ended.recv_timeout(time) {
            Ok(Ok(status)) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => Ended::Code(code as u8),
                (None, signal) => Ended::Signal(signal.unwrap_or(0) as u8),
            }),
            Err(RecvTimeoutError::Timeout) => None,
            // Somebody else has taken note of its end, which is not how it ended.
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Some(Ended::Code(1)),
        }
    }
}

fn unstartable(name: &OsString, error: &std::io::Error) -> Failure {
    let shown = shell::quoted(name);
    let path = Path::new(name);
    // execve(2) says of an interpreter that is missing what it says of a program.
    let is_there = name.as_bytes().contains(&b'/') && path.exists();
    match error.kind() {
        ErrorKind::NotFound if is_there => Failure::other(format!(
            "{shown} cannot be run: the interpreter or loader that it names is not there"
        ))
        .help("correct its first line (`#!`), or name the interpreter before it: `python`, `sh`"),
        ErrorKind::NotFound => Failure::usage(format!("there is no program {shown}"))
            .help("name a file, or a program that is in one of the directories of PATH"),
        ErrorKind::PermissionDenied if path.is_dir() => {
            Failure::other(format!("{shown} cannot be run: it is a directory"))
                .help("name a program in it")
        }
        ErrorKind::PermissionDenied => Failure::other(format!("{shown} cannot be run: {error}"))
            .help("make it executable, or name the interpreter before it: `python`, `sh`"),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            Failure::other(format!("{shown} cannot be run: {error}")).help(
                "begin a script with `#!` and its interpreter, or name the interpreter before it: \
                 `python`, `sh`; a binary must be one of this machine",
            )
        }
        _ => Failure::other(format!("{shown} cannot be run: {error}")),
    }
}

/// The signals that are not ignored: what `nohup` has `gsan run` ignore, the program ignores as well.
fn caught() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    FORWARDED
        .into_iter()
        .filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Hands signals on, in a thread of its own.
fn forward(mut signals: SignalsInfo<WithOrigin>, program: OwnedFd, pid: Pid) {
    std::thread::spawn(move || {
        for origin in &mut signals {
            // The terminal sends its own to the whole group. So does a program that sends one to its
            // group; it has got its own then.
            let Some(sender) = origin.process else {
                continue;
            };
            if is_inside(sender.pid, pid) {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(origin.signal) {
                // It has ended, or belongs to somebody else by now.
                let _ = pidfd_send_signal(&program, signal);
            }
        }
    });
}

/// Whether a process is the program, or was started by it.
fn is_inside(mut process: i32, program: Pid) -> bool {
    const DEEPEST: usize = 64;
    for _ in 0..DEEPEST {
        if process == program.as_raw_nonzero().get() {
            return true;
        }
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
            return false;
        };
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        match parent {
            Some(parent) if parent > 1 => process = parent,
            _ => return false,
        }
    }
    false
}
