//! Build, test and release chores: `cargo xtask --help`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Build, test and release chores of GSan")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every test that needs no GPU
    Test {
        /// Arguments for `cargo nextest run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Format, lints, tests, documentation
    Ci,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test { arguments } => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            cargo(&[&["nextest", "run", "--workspace"], &arguments[..]].concat())?;
            cargo(&["test", "--doc", "--workspace", "--quiet"])
        }
        Task::Ci => {
            cargo(&["fmt", "--all", "--check"])?;
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])?;
            run(Task::Test {
                arguments: Vec::new(),
            })
        }
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot start cargo {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
