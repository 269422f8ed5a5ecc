//! `cargo xtask ci`.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, cargo_with, root};
use crate::device::Device;
use crate::examples::Examples;
use crate::header::Header;
use crate::loom::Loom;
use crate::python::Python;
use crate::test::Test;

/// Check all that a change must pass: format, lints, Rust version, documentation, Python, header,
/// device libraries, tests, examples, models
#[derive(clap::Args)]
pub(crate) struct Ci {}

impl Ci {
    pub(crate) fn run(self) -> Result<()> {
        rust_version()?;
        cargo(["fmt", "--all", "--check"])?;
        cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])?;
        // What only runs where there is a GPU.
        cargo([
            "clippy",
            "--package",
            "gsan-device",
            "--features",
            "cuda",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])?;
        cargo_with(
            &[("RUSTDOCFLAGS", "-D warnings")],
            [
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
                "--quiet",
            ],
        )?;
        Python::all().run()?;
        Header::check().run()?;
        Device::check().run()?;
        Test::default().run()?;
        Examples::default().run()?;
        Loom::default().run()
    }
}

/// Checks that every member takes the minimum Rust version from the workspace, and says when the
/// toolchain is newer: what it accepts may then be too new for that version.
fn rust_version() -> Result<()> {
    let manifest = read("Cargo.toml")?;
    let minimum = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .map(|version| version.trim_matches('"').to_owned())
        .context("Cargo.toml states no rust-version")?;
    for entry in root().read_dir()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let member = name.starts_with("gsan-") || name == "xtask";
        if member && !read(&format!("{name}/Cargo.toml"))?.contains("rust-version.workspace = true")
        {
            bail!("{name}/Cargo.toml lacks `rust-version.workspace = true`");
        }
    }
    let output = Command::new("rustc")
        .arg("--version")
        .output()
        .context("cannot start rustc")?;
    let output = String::from_utf8_lossy(&output.stdout);
    let running = output.split(' ').nth(1).context("rustc names no version")?;
    if numbers(running) < numbers(&minimum) {
        bail!("rustc {running} is older than the stated minimum {minimum}");
    }
    if numbers(running)[..2] != numbers(&minimum)[..] {
        println!("note: rustc {running} does not prove that the minimum {minimum} is enough");
    }
    Ok(())
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

fn numbers(version: &str) -> Vec<u32> {
    version
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect()
}
