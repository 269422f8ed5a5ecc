//! `gsan man`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::arguments;
use crate::failure::Failure;
use crate::output;

/// Print a man page
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gsan man > ~/.local/share/man/man1/gsan.1
  gsan man report | man -l -")]
pub(crate) struct Arguments {
    /// The subcommand whose page is printed; without it, the page of `gsan` itself
    command: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut root = arguments::Arguments::command();
    // Gives the subcommands the options of every command, and their full names.
    root.build();
    let command = match &arguments.command {
        None => root,
        Some(name) => match root.find_subcommand(name) {
            Some(found) => found.clone(),
            None => {
                let names: Vec<&str> = root
                    .get_subcommands()
                    .map(clap::Command::get_name)
                    .filter(|&name| name != "help")
                    .collect();
                return Err(Failure::usage(format!("there is no subcommand `{name}`"))
                    .help(format!("the subcommands are {}", names.join(", "))));
            }
        },
    };
    let mut page = Vec::new();
    // The pages of subcommands belong to the same program, and have no version of their own.
    Man::new(command)
        .source(concat!("gsan ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|error| Failure::other(format!("the man page could not be made: {error}")))?;
    output::bytes(&page)?;
    Ok(ExitCode::SUCCESS)
}
