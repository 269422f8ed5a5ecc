//! `cargo xtask header`.

use anyhow::{Context, Result, bail};
use gsan_core::layout::header::header;

use crate::cargo::root;

/// Write the C header that device code includes
#[derive(clap::Args)]
pub(crate) struct Header {
    /// Only say whether the header is up to date
    #[arg(long)]
    check: bool,
}

impl Header {
    pub(crate) fn check() -> Header {
        Header { check: true }
    }

    pub(crate) fn run(self) -> Result<()> {
        let path = root().join("gsan-core/include/gsan/layout.h");
        if !self.check {
            return std::fs::write(&path, header())
                .with_context(|| format!("cannot write {}", path.display()));
        }
        let written = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if written != header() {
            bail!(
                "{} is out of date: run `cargo xtask header`",
                path.display()
            );
        }
        Ok(())
    }
}
