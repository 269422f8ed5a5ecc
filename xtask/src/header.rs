//! `cargo xtask header`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use gsan_core::layout::header::header;

use crate::abi;
use crate::cargo::root;

/// Write the C headers: the layout that device code includes, and the interface of libgsan.so
#[derive(clap::Args)]
pub(crate) struct Header {
    /// Only say whether the headers are up to date
    #[arg(long)]
    check: bool,
    /// Let declarations that the version of the ABI has already be changed: nobody uses it yet
    #[arg(long)]
    redefine_abi: bool,
}

impl Header {
    pub(crate) fn check() -> Header {
        Header {
            check: true,
            redefine_abi: false,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        let interface = interface()?;
        let description = abi::description(&interface);
        let recorded = format!("gsan-ffi/abi/{}.txt", abi::version(&interface)?);
        let recorded = root().join(recorded);
        if recorded.exists() && !self.redefine_abi {
            abi::refuse_changes(&read(&recorded)?, &description)?;
        }
        let written = [
            (root().join("gsan-core/include/gsan/layout.h"), header()),
            (root().join("gsan-ffi/include/gsan.h"), interface),
            (recorded, description),
        ];
        for (path, text) in written {
            if !self.check {
                std::fs::write(&path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                continue;
            }
            if read(&path)? != text {
                bail!(
                    "{} is out of date: run `cargo xtask header`",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The text of `gsan.h`.
fn interface() -> Result<String> {
    let package = root().join("gsan-ffi");
    let settings = cbindgen::Config::from_file(package.join("cbindgen.toml"))
        .map_err(anyhow::Error::msg)
        .context("gsan-ffi/cbindgen.toml")?;
    let bindings = cbindgen::Builder::new()
        .with_crate(&package)
        .with_config(settings)
        .generate()
        .context("gsan-ffi cannot be described in C")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).context("the header is not UTF-8")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_and_the_recorded_abi_are_those_of_the_sources() {
        Header::check().run().unwrap();
    }
}
