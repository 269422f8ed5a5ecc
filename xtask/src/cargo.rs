//! Starting cargo, and where things are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The top of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies inside the workspace")
}

/// Runs cargo at the top of the workspace.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
    cargo_with(&[], arguments)
}

/// Runs cargo at the top of the workspace with some environment variables set.
pub(crate) fn cargo_with<'a>(
    environment: &[(&str, &str)],
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    let arguments: Vec<&str> = arguments.into_iter().collect();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(&arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start cargo {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// Runs cargo at the top of the workspace and returns what it prints.
pub(crate) fn cargo_output<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let arguments: Vec<&str> = arguments.into_iter().collect();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(&arguments)
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start cargo {}", arguments.join(" ")))?;
    if !output.status.success() {
        bail!("cargo {} failed ({})", arguments.join(" "), output.status);
    }
    String::from_utf8(output.stdout).context("cargo's output is not UTF-8")
}

/// The part of cargo's build messages that is used here.
#[derive(Deserialize)]
struct Message {
    target: Option<Built>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Built {
    name: String,
}

/// What a cargo command built.
pub(crate) struct Artifacts(Vec<Message>);

/// Builds with a cargo command.
pub(crate) fn build<'a>(command: impl IntoIterator<Item = &'a str>) -> Result<Artifacts> {
    let more = ["--message-format", "json-render-diagnostics"];
    let messages = cargo_output(command.into_iter().chain(more))?;
    let messages = messages.lines().map(serde_json::from_str);
    let messages: Result<_, _> = messages.collect();
    Ok(Artifacts(messages.context("cargo's build messages")?))
}

impl Artifacts {
    fn named(&self, name: &str) -> impl Iterator<Item = &Message> {
        let is_of = move |message: &&Message| {
            let target = message.target.as_ref();
            target.is_some_and(|target| target.name == name)
        };
        self.0.iter().filter(is_of)
    }

    /// Where a program is.
    pub(crate) fn program(&self, name: &str) -> Result<&Path> {
        let found = self
            .named(name)
            .find_map(|message| message.executable.as_deref());
        found.with_context(|| format!("cargo built no program {name}"))
    }

    /// Where a shared library is.
    pub(crate) fn library(&self, name: &str) -> Result<&Path> {
        let files = self.named(name).flat_map(|message| &message.filenames);
        let mut libraries =
            files.filter(|file| file.extension().is_some_and(|extension| extension == "so"));
        let found = libraries.next().map(PathBuf::as_path);
        found.with_context(|| format!("cargo built no library {name}"))
    }
}

/// Copies a program or library without its symbols, and returns the size of the copy.
pub(crate) fn strip(program: &Path, copy: &Path, options: &[&str]) -> Result<u64> {
    let stripped = Command::new("strip")
        .args(options)
        .arg("-o")
        .args([copy, program])
        .status()
        .context("cannot start strip (of binutils)")?;
    ensure!(stripped.success(), "strip failed on {}", program.display());
    Ok(fs::metadata(copy)?.len())
}
