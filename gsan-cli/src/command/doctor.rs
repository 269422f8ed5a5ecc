//! `gsan doctor`.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use gsan_vmm::backend::cuda;

use crate::arguments::Shared;
use crate::failure::Failure;
use crate::{configuration, output};

mod gpu;
mod python;

/// Say what of this machine works with GSan
///
/// Each line says what is there, or what is missing, why, and what to do about it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gsan doctor
  gsan doctor | grep -A1 missing")]
pub(crate) struct Arguments {}

/// One thing that was looked for.
#[derive(Debug, PartialEq, Eq)]
struct Check {
    /// Its name.
    subject: String,
    /// What was found, or what to do.
    finding: Finding,
}

#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// It is there.
    Present(String),
    /// It is not: why, and what to do.
    Missing { why: String, cure: String },
}

impl Check {
    fn present(subject: impl Into<String>, found: impl Into<String>) -> Check {
        Check {
            subject: subject.into(),
            finding: Finding::Present(found.into()),
        }
    }

    fn missing(
        subject: impl Into<String>,
        why: impl Into<String>,
        cure: impl Into<String>,
    ) -> Check {
        Check {
            subject: subject.into(),
            finding: Finding::Missing {
                why: why.into(),
                cure: cure.into(),
            },
        }
    }
}

/// What is not checked even where everything works.
const SCOPE: &str = "\
Checked are the accesses of instrumented kernels to memory of GSan's allocator. Other kernels,
copies and library calls are not checked; they carry order, like any launch.
";

pub(crate) fn run(_: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    configuration::load(shared)?;
    let mut checks = gpu::checks(&cuda::probe());
    checks.extend(python::checks());
    let text = format!("{}\n{SCOPE}", show(&checks));
    output::bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The lines, with the subjects in one column.
fn show(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.subject.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let subject = &check.subject;
        let written = match &check.finding {
            Finding::Present(found) => writeln!(text, "ok       {subject:width$}  {found}"),
            Finding::Missing { why, cure } => {
                let indent = 9 + width + 2;
                writeln!(
                    text,
                    "missing  {subject:width$}  {why}\n{:indent$}help: {cure}",
                    ""
                )
            }
        };
        written.expect("a String takes everything");
    }
    text
}
