//! `cargo xtask python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::root;

/// What checks Python, by the names and versions that pip knows.
const TOOLS: [&str; 2] = ["ruff==0.17.6", "mypy==2.4.1"];

/// Check the Python sources: lints, format, types. pip installs the tools into target/python
#[derive(clap::Args)]
pub(crate) struct Python {}

impl Python {
    pub(crate) fn run(self) -> Result<()> {
        let sources = sources()?;
        let tools = tools()?;
        let ruff = tools.join("ruff");
        run(&ruff, &["check", "--quiet"], &sources)?;
        run(&ruff, &["format", "--check", "--quiet"], &sources)?;
        // One by one: files of the same name are not one module.
        for source in &sources {
            let options = ["--ignore-missing-imports", "--no-error-summary"];
            run(&tools.join("mypy"), &options, std::slice::from_ref(source))?;
        }
        Ok(())
    }
}

/// The Python files of the repository.
fn sources() -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "*.py"])
        .current_dir(root())
        .output()
        .context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.lines().map(PathBuf::from).collect())
}

/// The folder of programs of an environment that has the tools.
fn tools() -> Result<PathBuf> {
    let place = root().join("target/python");
    let programs = place.join("bin");
    let made = place.join(TOOLS.join(" "));
    if !made.exists() {
        let environment = [Path::new("-m"), Path::new("venv"), &place].map(Path::to_owned);
        run(Path::new("python3"), &[], &environment)?;
        let packages = TOOLS.map(PathBuf::from);
        let install = ["-m", "pip", "install", "--quiet"];
        run(&programs.join("python"), &install, &packages)?;
        std::fs::write(&made, "").with_context(|| format!("cannot write {}", made.display()))?;
    }
    Ok(programs)
}

fn run(program: &Path, options: &[&str], arguments: &[PathBuf]) -> Result<()> {
    let status = Command::new(program)
        .args(options)
        .args(arguments)
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        bail!(
            "{} {} failed ({status})",
            program.display(),
            options.join(" ")
        );
    }
    Ok(())
}
