//! The `gsan` command.
//!
//! **Owns** the command line: its grammar, help, completions and man pages; what is printed where;
//! the exit codes.
//!
//! **Must never know** how anything is detected, parsed or rendered: each subcommand is one module
//! under [`command`] that translates its arguments into calls of a library crate and what comes back
//! into text and an exit code.
//!
//! **Invariants**
//! - Results go to standard output, everything else to standard error. Under `gsan run` standard output
//!   belongs to the program.
//! - Exit codes: 0 clean, 66 (`report.exit_code`) findings, 2 wrong usage or configuration,
//!   1 anything else.
//! - A failure says what was wrong, where, and what would be right ([`failure::Failure`]).
//! - A reader that closes the pipe early ends the program quietly.

mod arguments;
mod command;
mod configuration;
mod failure;
mod forms;
mod logging;
mod output;
mod shell;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => return explain(&message),
    };
    arguments.shared.color.write_global();
    logging::start(&arguments.shared);
    match arguments.command.run(&arguments.shared) {
        Ok(code) => code,
        Err(failure) => {
            output::complain(&failure.render());
            failure.exit_code()
        }
    }
}

/// Prints the help or the version that was asked for, or what is wrong with the command line.
fn explain(message: &clap::Error) -> ExitCode {
    match message.print() {
        Err(error) if !message.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            output::complain(&output::unwritable(&error).render());
            ExitCode::FAILURE
        }
        _ => ExitCode::from(message.exit_code() as u8),
    }
}
