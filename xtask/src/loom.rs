//! `cargo xtask loom`.

use anyhow::Result;

use crate::cargo::cargo_with;

/// Explore every interleaving of the lock-free protocols
#[derive(clap::Args, Default)]
pub(crate) struct Loom {
    /// Arguments for the test binary, such as `--skip NAME`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Loom {
    pub(crate) fn run(self) -> Result<()> {
        // Its own target directory: the flag would make cargo build everything else anew, here and
        // again at the next ordinary build.
        let environment = [
            ("RUSTFLAGS", "--cfg loom"),
            ("CARGO_TARGET_DIR", "target/loom"),
        ];
        let arguments = self.arguments.iter().map(String::as_str);
        cargo_with(
            &environment,
            [
                "test",
                "--package",
                "gsan-core",
                "--release",
                "--lib",
                "--",
                "models::",
            ]
            .into_iter()
            .chain(arguments),
        )
    }
}
