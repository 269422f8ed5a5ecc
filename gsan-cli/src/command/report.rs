//! `gsan report`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gsan_report::builder::Builder;
use gsan_report::json::{self, ReadError};
use gsan_report::model::Report;
use gsan_report::source::Sources;
use gsan_report::{human, sarif};

use crate::arguments::Shared;
use crate::failure::Failure;
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

    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// End with `report.exit_code` if anything was found
    #[arg(long)]
    fail: bool,
}

/// The forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text with source lines
    Human,
    /// JSON, as `gsan run` writes it
    Json,
    /// SARIF 2.1.0, for code hosts
    Sarif,
}

pub(crate) fn run(arguments: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    let config = configuration::load(shared)?.config.report;
    // The runs that wrote the files kept to their limits already.
    let mut builder = Builder::new(usize::MAX, &config.suppress);
    for file in &arguments.files {
        builder.merge(read(file)?);
    }
    let report = builder.finish();

    let here = std::env::current_dir().unwrap_or_default();
    let text = match arguments.format {
        Format::Human => {
            let look = output::look(arguments.output.is_some(), config.context_lines);
            human::report(&report, &mut Sources::new(here), &look)
        }
        Format::Json => json::write(&report),
        Format::Sarif => sarif::write(&report, &here),
    };
    match &arguments.output {
        Some(file) => output::to_file(file, &text)?,
        None => output::bytes(text.as_bytes())?,
    }
    let failed = arguments.fail && report.has_findings(config.strict);
    Ok(if failed { config.exit_code } else { 0 }.into())
}

/// Lines longer than this are not shown: some programs write JSON as one line.
const MAX_LINE: usize = 1000;

fn read(file: &Path) -> Result<Report, Failure> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    File::open(file)
        // One byte more, so that what is too large is seen to be.
        .and_then(|file| {
            file.take(json::MAX_BYTES as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(|error| Failure::other(format!("`{name}` cannot be read: {error}")))?;
    json::read(&bytes).map_err(|error| match error {
        ReadError::Malformed {
            line,
            column,
            message,
        } => {
            let failure = Failure::other(format!("`{name}` is not a report: {message}"))
                .at(name, Some(line))
                .help("reports are written by `gsan run` and by `gsan report --format json`");
            let text = bytes.split(|&byte| byte == b'\n').nth(line - 1);
            let text = String::from_utf8_lossy(text.unwrap_or_default());
            if text.len() > MAX_LINE {
                return failure;
            }
            // The column is that of the last byte that was read.
            let at = text.floor_char_boundary(column.saturating_sub(1));
            failure.showing(text, at..at, None)
        }
        ReadError::Version { .. } => Failure::other(format!("`{name}` cannot be read: {error}"))
            .help("use the version of GSan that wrote it"),
        ReadError::TooLarge => Failure::other(format!("`{name}` cannot be read: {error}")),
    })
}
