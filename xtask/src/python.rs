//! `cargo xtask python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::root;

/// What checks Python, by the names and versions that pip knows.
const TOOLS: [&str; 2] = ["ruff==0.17.6", "mypy==2.4.1"];

/// The package, whose modules are checked together.
const PACKAGE: &str = "python/gsan";

/// Check the Python sources: lints, format, types; build the wheel and test it in a new environment
///
/// pip installs the tools into target/python. The tests need neither torch nor Triton nor a GPU; where
/// Triton 3.9 is on PYTHONPATH, they compile a kernel with it.
#[derive(clap::Args)]
pub(crate) struct Python {
    /// Only lints, format and types
    #[arg(long)]
    lint: bool,
}

impl Python {
    /// All of it.
    pub(crate) fn all() -> Python {
        Python { lint: false }
    }

    pub(crate) fn run(self) -> Result<()> {
        let sources = sources()?;
        let tools = tools()?;
        let ruff = tools.join("ruff");
        run(&ruff, &["check", "--quiet"], &sources)?;
        run(&ruff, &["format", "--check", "--quiet"], &sources)?;
        let mypy = |source: &PathBuf| {
            let options = ["--ignore-missing-imports", "--no-error-summary"];
            run(&tools.join("mypy"), &options, std::slice::from_ref(source))
        };
        mypy(&PathBuf::from(PACKAGE))?;
        // The others one by one: files of the same name are not one module.
        let others = sources.iter().filter(|source| !source.starts_with(PACKAGE));
        others.into_iter().try_for_each(mypy)?;
        if self.lint {
            return Ok(());
        }
        test_wheel()
    }
}

/// Builds the wheel without optimisation, installs it where nothing else is, and runs its tests.
fn test_wheel() -> Result<()> {
    let place = root().join("target/wheel");
    if place.exists() {
        std::fs::remove_dir_all(&place)
            .with_context(|| format!("cannot remove {}", place.display()))?;
    }
    let environment = place.join("environment");
    run(
        Path::new("python3"),
        &["-m", "venv"],
        std::slice::from_ref(&environment),
    )?;
    let python = environment.join("bin/python");
    let build = Command::new(&python)
        .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "-w"])
        .arg(&place)
        .arg(".")
        .env("GSAN_WHEEL_PROFILE", "dev")
        .current_dir(root())
        .status()
        .context("cannot start pip")?;
    ensure!(build.success(), "the wheel cannot be built ({build})");
    let wheel = std::fs::read_dir(&place)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip made no wheel")?;
    let packages = [wheel, PathBuf::from("pytest")];
    run(&python, &["-m", "pip", "install", "--quiet"], &packages)?;
    let options = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider"];
    run(&python, &options, &[PathBuf::from("python/tests")])
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
