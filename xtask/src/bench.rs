//! `cargo xtask bench`.

use anyhow::Result;

use crate::cargo::cargo;

/// Run the benchmarks
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Arguments for criterion, such as a part of a benchmark's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let arguments = self.arguments.iter().map(String::as_str);
        cargo(
            ["bench", "--workspace", "--benches", "--"]
                .into_iter()
                .chain(arguments),
        )
    }
}
