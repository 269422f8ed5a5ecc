//! Starting cargo, and where things are.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

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
