//! Compiling and running programs against the header and the library of this build.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]
#![allow(dead_code, reason = "each test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A compiler, and the language it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compiler {
    C(&'static str),
    Cpp(&'static str),
}

impl Compiler {
    pub(crate) const ALL: [Compiler; 4] = [
        Compiler::C("cc"),
        Compiler::Cpp("c++"),
        Compiler::C("clang-19"),
        Compiler::Cpp("clang++-19"),
    ];

    /// The compiler with all warnings as errors. Clang may be missing; the others must be there.
    pub(crate) fn command(self) -> Option<Command> {
        let (name, arguments) = match self {
            Compiler::C(name) => (name, ["-x", "c", "-std=c11"]),
            Compiler::Cpp(name) => (name, ["-x", "c++", "-std=c++17"]),
        };
        let mut command = Command::new(name);
        match Command::new(name).arg("--version").output() {
            Ok(_) => {}
            Err(_) if name.starts_with("clang") => {
                eprintln!("passed over: there is no {name}");
                return None;
            }
            Err(error) => panic!("this test needs a compiler named {name}: {error}"),
        }
        command.args(arguments);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
        for include in ["gsan-ffi/include", "gsan-core/include"] {
            command.arg("-I").arg(root().join(include));
        }
        Some(command)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// The folder in which this build's libgsan.so lies: beside the test.
pub(crate) fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_owned();
    assert!(folder.join("libgsan.so").exists(), "{}", folder.display());
    folder
}

/// Arguments that link a program with the library.
pub(crate) fn link(command: &mut Command) {
    let folder = library_folder();
    command.arg("-L").arg(&folder).arg("-lgsan");
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
}

/// A program that was compiled. It finds the library where it was linked, not where cargo says that
/// libraries are: one of an earlier build may lie there.
pub(crate) fn program(path: &Path) -> Command {
    let mut program = Command::new(path);
    program.env_remove("LD_LIBRARY_PATH");
    program
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
