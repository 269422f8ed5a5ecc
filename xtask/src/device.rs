//! `cargo xtask device`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use gsan_device::{StateMemory, Variant};

use crate::cargo::root;

/// Build the device libraries that are kept in gsan-device/built
#[derive(clap::Args)]
pub(crate) struct Device {
    /// Only say whether they are what the sources give
    #[arg(long)]
    check: bool,
    /// Also link them into kernels of Triton 3.9.0, which pip installs if need be
    #[arg(long)]
    triton: bool,
}

impl Device {
    pub(crate) fn check() -> Device {
        Device {
            check: true,
            triton: true,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        for variant in Variant::ALL {
            let path = path(variant);
            let library = build(variant)?;
            if !self.check {
                std::fs::write(&path, library)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            } else if std::fs::read(&path).ok().as_ref() != Some(&library) {
                bail!(
                    "{} is not what the sources give with {}: run `cargo xtask device`",
                    path.display(),
                    first_line("clang-19", ["--version"])?
                );
            }
        }
        let path = root().join("gsan-device/built/steps.ptx");
        let steps = build_steps()?;
        if !self.check {
            std::fs::write(&path, steps)
                .with_context(|| format!("cannot write {}", path.display()))?;
        } else if std::fs::read(&path).ok().as_ref() != Some(&steps) {
            bail!(
                "{} is not what the sources give: run `cargo xtask device`",
                path.display()
            );
        }
        if self.triton {
            link_into_triton()?;
        }
        Ok(())
    }
}

fn path(variant: Variant) -> PathBuf {
    root().join("gsan-device/built").join(variant.file_name())
}

/// How device code is compiled.
const FLAGS: [&str; 13] = [
    "-x",
    "cuda",
    "--cuda-device-only",
    "--cuda-gpu-arch=sm_80",
    "-nocudainc",
    "-nocudalib",
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Igsan-device/include",
    "-Igsan-core/include",
];

/// LLVM bitcode of the library. Nothing in it depends on where the sources lie: the compiler sees
/// paths relative to the top of the workspace.
fn build(variant: Variant) -> Result<Vec<u8>> {
    let records = format!("-DGSAN_RECORDS={}", variant.records.count());
    let mut arguments = FLAGS.to_vec();
    arguments.push(&records);
    if variant.state == StateMemory::BySm {
        arguments.push("-DGSAN_STATE_BY_SM");
    }
    arguments.extend([
        "-emit-llvm",
        "-S",
        "gsan-device/device/triton.cu",
        "-o",
        "-",
    ]);
    let text = output("clang-19", arguments, &[])?;
    output("llvm-as-19", ["-", "-o", "-"], &without_flags(&text))
}

/// PTX of the kernel that does the host's own work in streams.
fn build_steps() -> Result<Vec<u8>> {
    let rest = ["-S", "gsan-device/device/steps.cu", "-o", "-"];
    output("clang-19", FLAGS.into_iter().chain(rest), &[])
}

/// The module without what would clash with the kernel's own: clang marks modules with
/// `nvvm-reflect-ftz` and its version.
fn without_flags(text: &[u8]) -> Vec<u8> {
    let clashes = |line: &[u8]| {
        let named: [&[u8]; 3] = [b"!llvm.module.flags", b"!llvm.ident", b"!nvvm"];
        named.iter().any(|name| line.starts_with(name))
    };
    text.split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !clashes(line))
        .flatten()
        .copied()
        .collect()
}

/// What a program writes when it is given `input`.
fn output<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!("cannot start {program}; on Debian: apt-get install clang-19 llvm-19")
        })?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input)?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{program} failed ({})", output.status);
    }
    Ok(output.stdout)
}

fn first_line<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String> {
    let text = output(program, arguments, &[])?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const TRITON: &str = "3.9.0";

/// Links every library into instrumented kernels, for each architecture, down to machine code.
fn link_into_triton() -> Result<()> {
    let python = python_with_triton()?;
    // A process for each: the compiler runs on one core.
    let link = |variant| {
        Command::new(&python)
            .arg("gsan-device/tests/link_triton.py")
            .arg(path(variant))
            .current_dir(root())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))
    };
    let linking = Variant::ALL.map(link);
    let mut failed = Vec::new();
    for (variant, child) in Variant::ALL.into_iter().zip(linking) {
        let status = child?.wait()?;
        if !status.success() {
            failed.push(variant.file_name());
        }
    }
    if !failed.is_empty() {
        bail!("not linked into Triton's kernels: {}", failed.join(", "));
    }
    Ok(())
}

/// A Python that can import Triton: the one on the path, or one in `target`.
fn python_with_triton() -> Result<PathBuf> {
    let program = format!("import triton; raise SystemExit(triton.__version__ != '{TRITON}')");
    let has_triton = |python: &PathBuf| {
        let mut command = Command::new(python);
        let status = command
            .args(["-c", &program])
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    let found = PathBuf::from("python3");
    if has_triton(&found) {
        return Ok(found);
    }
    let place = root().join("target/triton");
    let own = place.join("bin/python");
    if !has_triton(&own) {
        output(
            "python3",
            [OsStr::new("-m"), OsStr::new("venv"), place.as_os_str()],
            &[],
        )?;
        let package = format!("triton=={TRITON}");
        let pip = ["-m", "pip", "install", "--quiet", &package];
        output(&own.display().to_string(), pip, &[])?;
    }
    Ok(own)
}
