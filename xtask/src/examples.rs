//! `cargo xtask examples`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::root;
use crate::dist::Dist;

/// Install into target/dist, and build and run the examples in C and C++ against that
///
/// Each must find its race when it is asked to have one, alone and under `gsan run`; as it should be it
/// must be clean. They run on the host backend.
#[derive(clap::Args, Default)]
pub(crate) struct Examples {}

/// An example: what builds it, and what it says.
struct Example {
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// The argument with which it has a race.
    wrong: &'static str,
    /// The beginnings of the two lines that race, as they are in the source.
    lines: [&'static str; 2],
}

const EXAMPLES: [Example; 2] = [
    Example {
        source: "examples/c/splitk.c",
        compiler: "cc",
        flags: &["-std=c11"],
        wrong: "relaxed",
        lines: ["READ(cta, of->parts", "WRITE(cta, of->parts"],
    },
    Example {
        source: "examples/cpp/pipeline.cpp",
        compiler: "c++",
        flags: &["-std=c++17"],
        wrong: "racy",
        lines: ["gsan_host_read(cta, values", "gsan_host_write(cta, values"],
    },
];

impl Examples {
    pub(crate) fn run(self) -> Result<()> {
        let prefix = root().join("target/dist");
        Dist::new(&prefix, "dev").run()?;
        for example in EXAMPLES {
            let program = example.build(&prefix, &prefix.join("lib"), &prefix)?;
            example.check(&program, &prefix.join("bin/gsan"))?;
        }
        Ok(())
    }
}

/// Builds the example that runs on GPUs, too, and its kernels into a folder that has the library in
/// `libraries`, and returns the size of both.
pub(crate) fn build_for_gpu(prefix: &Path, libraries: &Path, folder: &Path) -> Result<u64> {
    let [_, pipeline] = EXAMPLES;
    let program = pipeline.build(prefix, &Path::new("$ORIGIN").join(libraries), folder)?;
    let kernels = std::path::absolute(folder)?.join("kernels.ptx");
    let include = prefix.join("include");
    let compiled = Command::new("clang-19")
        .args(["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80"])
        .args(["-nocudainc", "-nocudalib", "-std=c++17", "-O2"])
        .args(["-Wall", "-Wextra", "-Werror", "-S", "-I"])
        .arg(include)
        .args(["examples/cpp/kernels.cu", "-o"])
        .arg(&kernels)
        .current_dir(root())
        .status()
        .context("cannot start clang-19; on Debian: apt-get install clang-19")?;
    ensure!(
        compiled.success(),
        "clang-19 failed on examples/cpp/kernels.cu"
    );
    Ok(fs::metadata(program)?.len() + fs::metadata(kernels)?.len())
}

impl Example {
    /// Compiles it against what is installed at `prefix`, into a folder. It finds the library at `runtime`.
    fn build(&self, prefix: &Path, runtime: &Path, folder: &Path) -> Result<PathBuf> {
        let stem = Path::new(self.source)
            .file_stem()
            .context("a source has a name")?;
        let program = std::path::absolute(folder)?.join(stem);
        let compiled = Command::new(self.compiler)
            .args(self.flags)
            .args([
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-O1",
                "-g",
                "-I",
            ])
            .arg(prefix.join("include"))
            .arg(self.source)
            .arg("-L")
            .arg(prefix.join("lib"))
            .args(["-lgsan", "-ldl"])
            .arg(format!("-Wl,-rpath,{}", runtime.display()))
            .arg("-o")
            .arg(&program)
            .current_dir(root())
            .status()
            .with_context(|| format!("cannot start {}", self.compiler))?;
        ensure!(
            compiled.success(),
            "{} failed on {}",
            self.compiler,
            self.source
        );
        Ok(program)
    }

    /// Runs it both ways, alone and under `gsan run`.
    fn check(&self, program: &Path, gsan: &Path) -> Result<()> {
        let run = |under_gsan: bool, arguments: &[&str]| -> Result<(Option<i32>, String)> {
            let mut command = Command::new(if under_gsan { gsan } else { program });
            if under_gsan {
                command.args(["run", "--"]).arg(program);
            }
            let output = command
                .args(arguments)
                .current_dir(root())
                .env_remove("LD_LIBRARY_PATH")
                .output()
                .with_context(|| format!("cannot start {}", program.display()))?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            Ok((output.status.code(), said))
        };
        for (under_gsan, wanted) in [(false, 1), (true, 66)] {
            let (code, said) = run(under_gsan, &[])?;
            let clean = code == Some(0) && !said.contains("data race");
            ensure!(clean, "{} is not clean: {code:?}\n{said}", self.source);
            let (code, said) = run(under_gsan, &[self.wrong])?;
            ensure!(
                code == Some(wanted),
                "{} {}: {code:?}, not {wanted}\n{said}",
                self.source,
                self.wrong
            );
            for line in self.lines {
                let place = format!("{}:{}", self.source, self.number_of(line)?);
                ensure!(said.contains(&place), "{place} has no race\n{said}");
            }
        }
        println!(
            "{}: clean, and with {} its race is found",
            self.source, self.wrong
        );
        Ok(())
    }

    fn number_of(&self, line: &str) -> Result<usize> {
        let source = fs::read_to_string(root().join(self.source))?;
        let place = source
            .lines()
            .position(|other| other.trim_start().starts_with(line));
        Ok(place.with_context(|| format!("{} has no line {line}", self.source))? + 1)
    }
}
