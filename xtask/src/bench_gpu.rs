//! `cargo xtask bench-gpu`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::root;
use crate::dist::Dist;
use crate::gpu;

/// Time kernels on this machine's GPU: bare, under Triton's own GSan, and under this one
///
/// Prints tables of bench/kernels.py: times, first launches, memory, host time, and what grows with slots
/// and streams. The Python that runs it must have torch and Triton 3.9. For a machine without cargo make a
/// bundle: `cargo xtask test-gpu --bundle DIR --triton --release`.
#[derive(clap::Args)]
pub(crate) struct BenchGpu {
    /// The Python that runs it
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,

    /// Arguments for bench/kernels.py, such as `--parts times,host` or the name of a kernel
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl BenchGpu {
    pub(crate) fn run(self) -> Result<()> {
        // Before anything is built: the script says what is missing.
        self.script(
            &root().join("bench/kernels.py"),
            &["--check".to_owned()],
            None,
        )?;
        let folder = root().join("target/gpu-bench");
        let prefix = folder.join("dist");
        Dist::new(&prefix, "release").run()?;
        gpu::python(&folder, &prefix)?;
        let script = folder.join("bench/kernels.py");
        self.script(&script, &self.arguments, Some(&folder.join("python")))
    }

    /// Runs the script, with `package` first on Python's path.
    fn script(&self, script: &Path, arguments: &[String], package: Option<&Path>) -> Result<()> {
        let mut command = Command::new(&self.python);
        command.arg(script).args(arguments);
        if let Some(package) = package {
            let mut path = OsString::from(package);
            if let Some(others) = std::env::var_os("PYTHONPATH") {
                path.push(":");
                path.push(others);
            }
            command.env("PYTHONPATH", path);
        }
        let status = command
            .status()
            .with_context(|| format!("cannot start {}", self.python.display()))?;
        ensure!(status.success(), "bench/kernels.py failed ({status})");
        Ok(())
    }
}
