//! `cargo xtask test-gpu`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use gsan_core::address::Records;
use gsan_device::{StateMemory, Variant};
use serde::Deserialize;

use crate::cargo::{build, cargo_output, root, strip};
use crate::dist::Dist;
use crate::examples;

/// What a bundle may weigh, so that it can be sent anywhere.
const MOST_BYTES: u64 = 32 << 20;

/// Run the tests that need a GPU; without a driver each says so and passes
///
/// They are the test targets named `gpu` of all packages, the kernels that those of gsan-device and
/// gsan-sync run, which clang 19 compiles, and the C++ example with its kernels.
#[derive(clap::Args)]
pub(crate) struct TestGpu {
    /// Make a folder of stripped binaries (the tests, and `gsan`), a run.sh that needs no cargo, the
    /// Python package, and a triton.sh that runs Triton programs with it, instead of running here
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,

    /// With --bundle: only what triton.sh needs
    #[arg(long, requires = "bundle")]
    triton: bool,

    /// With --bundle: build library and command with optimisation, for what is measured there
    #[arg(long, requires = "bundle")]
    release: bool,
}

/// The kernels that are run with the state of CTAs in the state region, too.
const BY_SM: &str = "pairs";

/// The kernels that need sm_90.
const SM_90: &str = "clusters";

/// The part of `cargo metadata` that is used here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    #[serde(default, rename = "required-features")]
    features: Vec<String>,
}

impl TestGpu {
    pub(crate) fn run(self) -> Result<()> {
        let folder = match &self.bundle {
            Some(folder) => folder.clone(),
            None => root().join("target/gpu-tests"),
        };
        let profile = if self.release { "release" } else { "dev" };
        bundle(&folder, self.triton, profile)?;
        if self.bundle.is_some() {
            let script = if self.triton { "triton.sh" } else { "run.sh" };
            println!(
                "run {} on the machine with the GPU",
                folder.join(script).display()
            );
            return Ok(());
        }
        let status = Command::new(folder.join("run.sh"))
            .status()
            .context("run.sh")?;
        ensure!(status.success(), "GPU tests failed");
        Ok(())
    }
}

/// Fills `folder` with what a machine with a GPU needs: for everything, or for Triton programs.
fn bundle(folder: &Path, triton: bool, profile: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let prefix = root().join("target/dist");
    Dist::new(&prefix, profile).run()?;
    let mut bytes =
        fs::copy(prefix.join("bin/gsan"), folder.join("gsan")).context("the command")?;
    bytes += python(folder, &prefix)?;
    if !triton {
        bytes += tests(folder)?;
        bytes += examples::build_for_gpu(&prefix, Path::new(LIBRARIES), folder)?;
    }
    let mebibytes = bytes.div_ceil(1 << 20);
    ensure!(
        bytes <= MOST_BYTES,
        "the binaries and kernels have {mebibytes} MiB, more than {}",
        MOST_BYTES >> 20
    );
    println!(
        "{} has {mebibytes} MiB of binaries and kernels",
        folder.display()
    );
    Ok(())
}

/// Adds the stripped test binaries, their kernels, and the script that runs them.
fn tests(folder: &Path) -> Result<u64> {
    let metadata = cargo_output(["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let mut bytes = 0;
    for package in metadata.packages {
        let is_gpu = |target: &&Target| target.name == "gpu" && target.kind == ["test"];
        let Some(target) = package.targets.iter().find(is_gpu) else {
            continue;
        };
        let features = target.features.join(",");
        let test = ["test", "--no-run", "--package", &package.name];
        let gpu = ["--features", &features, "--test", "gpu"];
        let built = build(test.into_iter().chain(gpu))?;
        let copy = folder.join(format!("{}.test", package.name));
        bytes += strip(built.program("gpu")?, &copy, &[])?;
    }
    let kernels = folder.join("kernels");
    bytes += compile_kernels("gsan-device", &Variant::ALL, &kernels)?;
    let one = Variant::new(StateMemory::Shared, Records::Four);
    bytes += compile_kernels("gsan-sync", &[one], &kernels)?;
    let script = folder.join("run.sh");
    fs::write(&script, include_str!("gpu/run.sh"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(bytes)
}

/// Where the bundle has libgsan.so.
const LIBRARIES: &str = "python/gsan/_lib";

/// Copies the Python package with what its wheel has, the Triton programs, and the bench, and returns the
/// size of all.
pub(crate) fn python(folder: &Path, prefix: &Path) -> Result<u64> {
    let package = folder.join("python/gsan");
    let mut bytes = copy_tracked("python/gsan", &package)?;
    let files = folder.join(LIBRARIES);
    fs::create_dir_all(&files)?;
    let library = prefix.join("lib/libgsan.so");
    bytes += fs::copy(library, files.join("libgsan.so")).context("the library")?;
    for variant in Variant::ALL {
        for (name, _) in variant.files().all() {
            let built = root().join("gsan-device/built").join(name);
            bytes += fs::copy(built, files.join(name))?;
        }
    }
    bytes += copy_tracked("tests/triton", &folder.join("tests/triton"))?;
    bytes += copy_tracked("bench", &folder.join("bench"))?;
    for script in ["triton.sh", "unpack.sh"] {
        bytes += fs::copy(
            root().join("tests/triton/machine").join(script),
            folder.join(script),
        )?;
    }
    Ok(bytes)
}

/// Copies the files of a folder that git knows, and returns their size.
fn copy_tracked(from: &str, to: &Path) -> Result<u64> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    let output = Command::new("git")
        .args(["ls-files", "-z", from])
        .current_dir(root())
        .output()
        .context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut bytes = 0;
    for name in names.split_terminator('\0') {
        let target = to.join(Path::new(name).strip_prefix(from)?);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        bytes += fs::copy(root().join(name), target)?;
    }
    Ok(bytes)
}

/// Compiles the kernels of a crate's tests to PTX, with each of the variants of the library, and
/// returns the size of all.
fn compile_kernels(package: &str, variants: &[Variant], folder: &Path) -> Result<u64> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = fs::canonicalize(folder)?;
    let sources = Path::new(package).join("tests/gpu/kernels");
    let mut bytes = 0;
    for entry in fs::read_dir(root().join(&sources))? {
        let source = sources.join(entry?.file_name());
        if source.extension().is_none_or(|extension| extension != "cu") {
            continue;
        }
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        for &variant in variants {
            if variant.state == StateMemory::BySm && name != BY_SM {
                continue;
            }
            let library = Path::new(variant.file_name()).with_extension("ptx");
            let target = folder.join(format!("{name}-{}", library.display()));
            let mut compiler = Command::new("clang-19");
            compiler
                .arg(format!("@{}", sources.join("flags").display()))
                .arg(format!("-DGSAN_RECORDS={}", variant.records.count()))
                .arg(&source)
                .arg("-o")
                .arg(&target)
                .current_dir(root());
            if variant.state == StateMemory::BySm {
                compiler.arg("-DGSAN_STATE_BY_SM");
            }
            if name == SM_90 {
                compiler.args(["--no-cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90"]);
            }
            let status = compiler
                .status()
                .context("cannot start clang-19; on Debian: apt-get install clang-19 llvm-19")?;
            ensure!(status.success(), "clang-19 failed on {}", source.display());
            bytes += fs::metadata(target)?.len();
        }
    }
    Ok(bytes)
}
