//! `gsan completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments;
use crate::failure::Failure;
use crate::output;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gsan completions bash > ~/.local/share/bash-completion/completions/gsan
  gsan completions zsh > ~/.zfunc/_gsan
  gsan completions fish > ~/.config/fish/completions/gsan.fish")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut command = arguments::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "gsan", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
