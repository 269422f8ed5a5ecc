//! `gsan config`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gsan_config::load::FILE_NAME;
use gsan_config::text;

use crate::arguments::Shared;
use crate::failure::Failure;
use crate::{configuration, output};

/// Print the effective configuration and where each value came from
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gsan config
  gsan config -c report.limit=10
  GSAN_REPORT_STRICT=true gsan config
  gsan config --init
  gsan config --init ci/gsan.toml")]
pub(crate) struct Arguments {
    /// Write a commented file with every key and its default instead; an existing file is left
    /// alone
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = FILE_NAME)]
    init: Option<PathBuf>,
}

impl Arguments {
    /// Whether the configuration is written, not read.
    pub(crate) fn writes_a_file(&self) -> bool {
        self.init.is_some()
    }
}

pub(crate) fn run(arguments: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    match &arguments.init {
        None => {
            let loaded = configuration::load(shared)?;
            output::bytes(text::effective(&loaded).as_bytes())?;
        }
        Some(file) => {
            let shown = file.display();
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(file)
                .and_then(|mut file| file.write_all(text::template().as_bytes()))
                .map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => Failure::other(format!("`{shown}` exists already"))
                        .help("remove it first, or name another file: `gsan config --init FILE`"),
                    _ => Failure::unwritable(&shown.to_string(), &error),
                })?;
            output::note(shared, &format!("wrote `{shown}`"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
