//! `cargo xtask device`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use gsan_device::{StateMemory, Variant};

use crate::cargo::root;

mod parts;

use parts::Parts;

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
            let files = variant.files();
            let text = compile(variant)?;
            let whole = output("llvm-as-19", ["-", "-o", "-"], &without_flags(&text))?;
            self.keep(files.whole.0, &whole)?;
            let parts = Parts::of(text)?;
            self.keep(files.in_kernel.0, &parts.in_kernel()?)?;
            self.keep(files.once.0, &compressed(&parts.once()?)?)?;
        }
        self.keep("steps.ptx", &build_steps()?)?;
        if self.triton {
            link_into_triton()?;
        }
        Ok(())
    }

    /// Writes a built file, or finds that it is what is kept.
    fn keep(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = path(name);
        if !self.check {
            return std::fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()));
        }
        if std::fs::read(&path).ok().as_deref() != Some(content) {
            bail!(
                "{} is not what the sources give with {}: run `cargo xtask device`",
                path.display(),
                first_line("clang-19", ["--version"])?
            );
        }
        Ok(())
    }
}

fn path(file: &str) -> PathBuf {
    root().join("gsan-device/built").join(file)
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

/// LLVM assembly of the library. Nothing in it depends on where the sources lie: the compiler sees
/// paths relative to the top of the workspace.
fn compile(variant: Variant) -> Result<Vec<u8>> {
    let records = format!("-DGSAN_RECORDS={}", variant.records.count());
    let mut arguments = FLAGS.to_vec();
    arguments.push(&records);
    if variant.state == StateMemory::BySm {
        arguments.push("-DGSAN_STATE_BY_SM");
    }
    let rest = [
        "-emit-llvm",
        "-S",
        "gsan-device/device/triton.cu",
        "-o",
        "-",
    ];
    arguments.extend(rest);
    output("clang-19", arguments, &[])
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

/// Compressed by gzip, the same bytes at any time.
fn compressed(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

fn first_line<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String> {
    let text = output(program, arguments, &[])?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const TRITON: &str = "3.9.0";
/// The first nvJitLink that links what all of Triton's assemblers make.
const LINKER: (u32, u32) = (13, 4);

/// Links every library into instrumented kernels, for each architecture, down to machine code.
fn link_into_triton() -> Result<()> {
    let python = python_with_triton()?;
    // A process for each: the compiler runs on one core.
    let link = |variant: Variant| {
        Command::new(&python)
            .arg("gsan-device/tests/link_triton.py")
            .arg(path(variant.file_name()))
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

/// A Python that has Triton and nvJitLink: the one on the path, or one in `target`.
fn python_with_triton() -> Result<PathBuf> {
    let program = format!(
        "import triton; from importlib.metadata import version; \
         linker = tuple(map(int, version('nvidia-nvjitlink').split('.')[:2])); \
         raise SystemExit(triton.__version__ != '{TRITON}' or linker < {LINKER:?})"
    );
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
        let packages = [
            format!("triton=={TRITON}"),
            format!("nvidia-nvjitlink>={}.{}", LINKER.0, LINKER.1),
        ];
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            &packages[0],
            &packages[1],
        ];
        output(&own.display().to_string(), pip, &[])?;
    }
    Ok(own)
}
