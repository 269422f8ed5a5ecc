//! What the program's processes find in their environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use gsan_config::load::FILE_VARIABLE;
use gsan_config::{Loaded, Origin};
use gsan_runtime::run_directory;

/// Says where the Python package is, if it is not where it was installed.
const PACKAGE: &str = "GSAN_PYTHON_PACKAGE";
/// The directory of the package that goes first on `PYTHONPATH`.
const INJECTED: &str = "_inject";

/// The variables that are set for the program.
pub(crate) fn of_run(directory: &Path, loaded: &Loaded) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> =
        vec![(run_directory::VARIABLE.into(), directory.into())];
    if let Some(file) = &loaded.file {
        // Processes may work in other directories.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        variables.push((FILE_VARIABLE.into(), file.into()));
    }
    for (key, origin) in loaded.origins() {
        if *origin == Origin::CommandLine {
            variables.push((key.variable().into(), key.show(&loaded.config).into()));
        }
    }
    match package() {
        Some(package) => {
            let path = first("PYTHONPATH", package.join(INJECTED).as_os_str(), ":");
            variables.push(("PYTHONPATH".into(), path));
        }
        None => tracing::info!(
            "the Python package is not beside this program: Python programs must call \
             gsan.install() themselves (or say in {PACKAGE} where it is)"
        ),
    }
    variables.push(("TRITON_INSTRUMENTATION_MODE".into(), instrumentation()));
    // The other launcher would not hand kernels what they need.
    variables.push(("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER".into(), "0".into()));
    for (name, value) in &variables {
        tracing::debug!("{}={}", name.display(), value.display());
    }
    variables
}

/// `item`, then what the variable has already.
fn first(variable: &str, item: &OsStr, separator: &str) -> OsString {
    let mut value = item.to_owned();
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(separator);
        value.push(rest);
    }
    value
}

/// The modes that are set already, and `gsan`.
fn instrumentation() -> OsString {
    let modes = env::var("TRITON_INSTRUMENTATION_MODE").unwrap_or_default();
    with_mode(&modes).into()
}

fn with_mode(modes: &str) -> String {
    let mut modes: Vec<&str> = modes
        .split(',')
        .map(str::trim)
        .filter(|mode| !mode.is_empty())
        .collect();
    if !modes.contains(&"gsan") {
        modes.push("gsan");
    }
    modes.join(",")
}

/// The directory of the Python package.
pub(crate) fn package() -> Option<PathBuf> {
    let is_package = |path: &PathBuf| path.join(INJECTED).join("sitecustomize.py").is_file();
    if let Some(named) = env::var_os(PACKAGE).filter(|named| !named.is_empty()) {
        let named = std::path::absolute(named).ok()?;
        if !is_package(&named) {
            tracing::warn!(
                "{PACKAGE} names {}, which is not the package",
                named.display()
            );
            return None;
        }
        return Some(named);
    }
    let program = env::current_exe().ok()?;
    beside(&program).into_iter().find(is_package)
}

/// Where the package may be, if this program was installed with it, or built in its repository.
fn beside(program: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for directory in program.ancestors().skip(1) {
        // Inside the package itself, and in the repository.
        places.push(directory.to_path_buf());
        places.push(directory.join("python/gsan"));
        // In an environment, whose `bin` this program is in.
        let library = directory.join("lib");
        for python in library.read_dir().into_iter().flatten().flatten() {
            if python.file_name().to_string_lossy().starts_with("python3") {
                for packages in ["site-packages/gsan", "dist-packages/gsan"] {
                    places.push(python.path().join(packages));
                }
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_are_set_stay() {
        for (modes, expected) in [
            ("", "gsan"),
            ("gsan", "gsan"),
            ("proton", "proton,gsan"),
            (" a, gsan ,", "a,gsan"),
        ] {
            assert_eq!(with_mode(modes), expected);
        }
    }
}
