//! One line on the terminal that says what is going on.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use gsan_runtime::run::Status;

use crate::arguments::Shared;

/// How often the line changes, at most.
const INTERVAL: Duration = Duration::from_millis(500);

/// The line. It stands where the program's next output goes, and gives way to it: the cursor stays at
/// its start. It is written only when there is news, so that a prompt of the program is left alone.
pub(crate) struct Progress {
    wanted: bool,
    shown: Option<Status>,
    at: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(shared: &Shared) -> Progress {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Progress {
            wanted: !shared.quiet && !dumb && std::io::stderr().is_terminal(),
            shown: None,
            at: None,
        }
    }

    /// Shows what is going on, if it is something else than before.
    pub(crate) fn show(&mut self, status: &Status) {
        let recently = self.at.is_some_and(|at| at.elapsed() < INTERVAL);
        if !self.wanted || recently || status.processes == 0 || self.shown == Some(*status) {
            return;
        }
        // The text behind it, if the program prints less, is erased by the next one.
        print(&format!("\r\x1b[2K{}\r", line(status)));
        self.shown = Some(*status);
        self.at = Some(Instant::now());
    }

    /// Makes room for other text.
    pub(crate) fn clear(&mut self) {
        if self.shown.take().is_some() {
            print("\r\x1b[2K");
        }
    }
}

fn print(text: &str) {
    let mut out = std::io::stderr().lock();
    // There is nowhere to tell when that fails.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn line(status: &Status) -> String {
    let count = |number: u64, one: &str, many: &str| {
        format!("{number} {}", if number == 1 { one } else { many })
    };
    format!(
        "gsan: {}, {} checked, {}",
        count(status.processes as u64, "process", "processes"),
        count(status.launches, "launch", "launches"),
        count(status.findings as u64, "finding", "findings"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_processes_launches_and_findings() {
        let status = Status {
            processes: 1,
            launches: 1200,
            findings: 0,
        };
        assert_eq!(
            line(&status),
            "gsan: 1 process, 1200 launches checked, 0 findings"
        );
    }
}
