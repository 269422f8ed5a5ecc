//! The grammar of the command line. Help, completions and man pages are made from it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::command::{check, completions, config, doctor, man, report, run};
use crate::configuration;
use crate::failure::Failure;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXAMPLES: &str = "\
Examples:
  gsan run -- python train.py                a program, on its GPUs
  gsan check examples/splitk_relaxed.ptx     a race, without a GPU
  gsan report gsan-report.json --fail        a stored report; 66 if anything was found
  gsan config --init                         a gsan.toml with every key and its default
  gsan doctor                                what of this machine works

Exit codes:
  0   clean
  66  races or other findings (`report.exit_code`)
  2   wrong usage or configuration, or a file that is not there
  1   anything else: an input that is not supported, a file that cannot be read or written";

/// Find data races in GPU memory.
#[derive(Debug, Parser)]
#[command(name = "gsan", version, styles = STYLES, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every subcommand takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Shared {
    /// Read this configuration file [default: GSAN_CONFIG, else gsan.toml here or above]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Set one configuration value, for example `-c report.limit=10`; may be given many times
    #[arg(short = 'c', long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Say more on standard error; twice: everything
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,

    /// Say nothing but errors on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) color: colorchoice_clap::Color,
}

impl Shared {
    /// What is asked for must be right, even where it is not needed.
    fn names_a_configuration(&self) -> bool {
        self.config.is_some() || !self.set.is_empty()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Check(Box<check::Arguments>),
    Report(report::Arguments),
    Config(config::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Command {
    /// Those that do not would work beside any `gsan.toml`, however broken.
    fn reads_the_configuration(&self) -> bool {
        match self {
            Command::Run(_) | Command::Check(_) | Command::Report(_) | Command::Doctor(_) => true,
            Command::Config(arguments) => !arguments.writes_a_file(),
            Command::Completions(_) | Command::Man(_) => false,
        }
    }

    /// Runs the subcommand. The code is the program's exit code.
    pub(crate) fn run(&self, shared: &Shared) -> Result<ExitCode, Failure> {
        if !self.reads_the_configuration() && shared.names_a_configuration() {
            configuration::load(shared)?;
        }
        match self {
            Command::Run(arguments) => run::run(arguments, shared),
            Command::Check(arguments) => check::run(arguments, shared),
            Command::Report(arguments) => report::run(arguments, shared),
            Command::Config(arguments) => config::run(arguments, shared),
            Command::Doctor(arguments) => doctor::run(arguments, shared),
            Command::Completions(arguments) => completions::run(arguments),
            Command::Man(arguments) => man::run(arguments),
        }
    }
}
