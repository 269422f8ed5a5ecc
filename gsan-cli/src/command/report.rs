//! `gsan report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gsan_config::bounded;
use gsan_report::builder::{Builder, Merged, Overlap};
use gsan_report::json::{self, ReadError};
use gsan_report::model::Report;
use gsan_report::source::Sources;
use gsan_report::{human, sarif};

use crate::arguments::Shared;
use crate::failure::Failure;
use crate::forms::Form;
use crate::{configuration, output};

/// Show or convert stored reports; several become one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gsan report gsan-report.json
  gsan report rank0.json rank1.json --format json -o all.json
  gsan report gsan-report.json --format sarif -o gsan.sarif
  gsan report gsan-report.json --fail")]
pub(crate) struct Arguments {
    /// Stored reports
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The form of the output [default: what the ending of OUT says, .json or .sarif, else human]
    #[arg(long, value_enum)]
    format: Option<Form>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// End with `report.exit_code` if anything was found, else with 1 if an input was not checked
    #[arg(long)]
    fail: bool,
}

pub(crate) fn run(arguments: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    let config = configuration::load(shared)?.config.report;
    // The runs that wrote the files kept to their limits already.
    let mut builder = Builder::new(usize::MAX, &config.suppress);
    if let Some(output) = &arguments.output {
        let inputs = arguments.files.iter().map(PathBuf::as_path);
        output::check_file(output, inputs)?;
    }
    for file in &arguments.files {
        let shown = file.display();
        match builder.merge(read(file)?) {
            Ok(Merged::Added) => {}
            Ok(Merged::Known) => output::note(
                shared,
                &format!("`{shown}` is left out: its runs are in the files before it"),
            ),
            Err(Overlap) => {
                return Err(Failure::usage(format!(
                    "`{shown}` holds some of the runs of the files before it, and others"
                ))
                .help("give merged reports alone, or the reports that they were merged from"));
            }
        }
    }
    let report = builder.finish();

    let here = std::env::current_dir().unwrap_or_default();
    let output = arguments.output.as_deref();
    let form = arguments.format.or(output.map(Form::of_file));
    let text = match form.unwrap_or(Form::Human) {
        Form::Human => {
            let look = output::look(arguments.output.is_some(), config.context_lines);
            human::report(&report, &mut Sources::new(here), &look)
        }
        Form::Json => json::write(&report),
        Form::Sarif => sarif::write(&report, &here),
    };
    match &arguments.output {
        Some(file) => output::to_file(file, &text)?,
        None => output::bytes(text.as_bytes())?,
    }
    Ok(if !arguments.fail {
        ExitCode::SUCCESS
    } else if report.has_findings(config.strict) {
        config.exit_code.into()
    } else if report.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Lines longer than this are not shown: some programs write JSON as one line.
const MAX_LINE: usize = 1000;
/// How much of such a line is shown before the place in question, in characters.
const MAX_BEFORE: usize = 60;

fn read(file: &Path) -> Result<Report, Failure> {
    let name = file.display().to_string();
    let bytes = bounded::read(file, json::MAX_BYTES as u64)
        .map_err(|error| Failure::unreadable(&name, &error))?;
    json::read(&bytes).map_err(|error| match error {
        ReadError::Malformed {
            line,
            column,
            message,
        } => malformed(&name, &bytes, (line, column), &message)
            .help("reports are what `gsan run`, `gsan check` and `gsan report` write with `--format json`"),
        ReadError::Version { .. } => Failure::other(format!("`{name}` cannot be read: {error}"))
            .help("use the version of GSan that wrote it"),
        ReadError::TooLarge => Failure::other(format!("`{name}` cannot be read: {error}")),
    })
}

fn malformed(name: &str, bytes: &[u8], (line, column): (usize, usize), message: &str) -> Failure {
    let failure =
        Failure::other(format!("`{name}` is not a report: {message}")).at(name, Some(line));
    let text = bytes.split(|&byte| byte == b'\n').nth(line - 1);
    let text = text.unwrap_or_default();
    // The column is that of the last byte that was read.
    let at = column.saturating_sub(1).min(text.len());
    if text.len() <= MAX_LINE {
        let text = String::from_utf8_lossy(text);
        let at = text.floor_char_boundary(at);
        return failure.showing(text, at..at, None);
    }
    let before = String::from_utf8_lossy(&text[..at]);
    let characters = before.chars().count();
    let shown: String = before
        .chars()
        .skip(characters.saturating_sub(MAX_BEFORE))
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    failure
        .column(characters + 1)
        .note("after", format!("...{shown}"))
}
