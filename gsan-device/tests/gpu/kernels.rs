//! The kernels: their sources, the lines that are marked in them, and their PTX.

use std::path::{Path, PathBuf};
use std::process::Command;

use gsan_device::{StateMemory, Variant};

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Module {
    Clusters,
    Pairs,
    Protocols,
    VectorAdd,
    Edges,
}

impl Module {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Module::Clusters => "clusters",
            Module::Pairs => "pairs",
            Module::Protocols => "protocols",
            Module::VectorAdd => "vector_add",
            Module::Edges => "edges",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Module::Clusters => include_str!("kernels/clusters.cu"),
            Module::Pairs => include_str!("kernels/pairs.cu"),
            Module::Protocols => include_str!("kernels/protocols.cu"),
            Module::VectorAdd => include_str!("kernels/vector_add.cu"),
            Module::Edges => include_str!("kernels/edges.cu"),
        }
    }

    /// The line that ends with `@mark`.
    pub(crate) fn line(self, mark: &str) -> u32 {
        let lines = (1..).zip(self.source().lines());
        let mut marked = lines.filter(|(_, line)| line.ends_with(&format!("@{mark}")));
        match (marked.next(), marked.next()) {
            (Some((line, _)), None) => line,
            _ => panic!("{mark:?} does not mark one line of {}.cu", self.name()),
        }
    }

    /// Its PTX with a variant of the library: from the folder `kernels` beside this program, where
    /// `cargo xtask test-gpu` puts it, else compiled. `Err` says why there is none.
    pub(crate) fn ptx(self, variant: Variant) -> Result<String, String> {
        let library = Path::new(variant.file_name()).with_extension("ptx");
        let name = format!("{}-{}", self.name(), library.display());
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let beside = program.parent().unwrap_or(Path::new("."));
        if let Ok(text) = std::fs::read_to_string(beside.join("kernels").join(name)) {
            return Ok(text);
        }
        let mut compiler = Command::new("clang-19");
        compiler
            .arg("@gsan-device/tests/gpu/kernels/flags")
            .arg(format!("-DGSAN_RECORDS={}", variant.records.count()))
            .arg(format!("gsan-device/tests/gpu/kernels/{}.cu", self.name()))
            .args(["-o", "-"])
            .current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."));
        if variant.state == StateMemory::BySm {
            compiler.arg("-DGSAN_STATE_BY_SM");
        }
        if self == Module::Clusters {
            compiler.args(["--no-cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90"]);
        }
        let output = compiler
            .output()
            .map_err(|error| format!("clang-19 does not start: {error}"))?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).map_err(|error| error.to_string())
    }
}
