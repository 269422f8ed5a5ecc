//! `cargo xtask dist`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gsan_device::Variant;

use crate::cargo::{build, root, strip};

/// Lay out what is installed: headers, libgsan.so, the command, the device library
///
/// include/gsan.h, include/gsan (for kernels in CUDA C++), lib/libgsan.so, lib/pkgconfig/gsan.pc,
/// lib/gsan (LLVM bitcode for Triton), bin/gsan, and the licences in share/doc/gsan. The folder may lie
/// anywhere, and be moved.
#[derive(clap::Args)]
pub(crate) struct Dist {
    /// Where to
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The profile to build with
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Where pkg-config finds the rest: beside the file itself.
const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
Name: gsan
Description: Finds data races in GPU global memory
Version: @VERSION@
Cflags: -I${prefix}/include
Libs: -L${prefix}/lib -lgsan
";

impl Dist {
    pub(crate) fn new(folder: &Path, profile: &str) -> Dist {
        Dist {
            folder: folder.to_owned(),
            profile: profile.to_owned(),
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        let folder = |name: &str| -> Result<PathBuf> {
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            Ok(folder)
        };
        let (include, lib) = (folder("include")?, folder("lib")?);
        let headers = folder("include/gsan")?;
        copy(&root().join("gsan-ffi/include/gsan.h"), &include)?;
        copy(&root().join("gsan-core/include/gsan/layout.h"), &headers)?;
        for header in fs::read_dir(root().join("gsan-device/include/gsan"))? {
            let header = header?.path();
            // The others are for the host build.
            if header
                .extension()
                .is_some_and(|extension| extension == "cuh")
            {
                copy(&header, &headers)?;
            }
        }

        // By one command, so that both are made from the same builds of all others.
        let packages = ["--package", "gsan-ffi", "--package", "gsan-cli"];
        let profile = ["--profile", &self.profile];
        let built = build(["build"].into_iter().chain(packages).chain(profile))?;
        let copy_of_library = lib.join("libgsan.so");
        strip(
            built.library("gsan")?,
            &copy_of_library,
            &["--strip-unneeded"],
        )?;
        strip(built.program("gsan")?, &folder("bin")?.join("gsan"), &[])?;

        let libraries = folder("lib/gsan")?;
        for variant in Variant::ALL {
            for (name, content) in variant.files().all() {
                let file = libraries.join(name);
                fs::write(&file, content)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        let description = PKG_CONFIG.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(folder("lib/pkgconfig")?.join("gsan.pc"), description)?;
        let documents = folder("share/doc/gsan")?;
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            copy(&root().join(licence), &documents)?;
        }
        Ok(())
    }
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().context("a file has a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}
