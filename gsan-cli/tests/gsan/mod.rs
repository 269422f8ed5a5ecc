//! Runs the built `gsan` in an empty directory, with nothing of the surrounding environment.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A directory to run `gsan` in, and the environment it gets.
pub(crate) struct Gsan {
    directory: TempDir,
    environment: Vec<(String, String)>,
}

/// What came of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Fails the test unless the run ended with 0.
    pub(crate) fn succeeds(self) -> Run {
        assert_eq!(self.code, 0, "stderr: {}", self.stderr);
        self
    }
}

impl Gsan {
    pub(crate) fn new() -> Gsan {
        Gsan {
            directory: TempDir::new().unwrap(),
            environment: Vec::new(),
        }
    }

    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Gsan {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a file to the directory, which may lie in others.
    pub(crate) fn file(self, name: &str, text: &str) -> Gsan {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds a file whose name need not be text.
    pub(crate) fn file_of(self, name: &OsStr, text: &str) -> Gsan {
        fs::write(self.directory.path().join(name), text).unwrap();
        self
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The text of a file of the directory.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        self.run_of(&arguments)
    }

    /// Runs with arguments that need not be text.
    pub(crate) fn run_of(&self, arguments: &[&OsStr]) -> Run {
        Gsan::ended(self.command(arguments))
    }

    /// Runs a command line that names `gsan`.
    pub(crate) fn shell(&self, line: &str) -> Run {
        let gsan = Path::new(env!("CARGO_BIN_EXE_gsan"));
        let mut command = Command::new("/bin/bash");
        command
            .args(["-c", line])
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", gsan.parent().unwrap());
        Gsan::ended(command)
    }

    fn ended(mut command: Command) -> Run {
        let output = command.output().unwrap();
        Run {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs with a standard output that nobody reads.
    pub(crate) fn run_with_closed_output(&self, arguments: &[&str]) -> Run {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let child = self
            .command(&arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        Run {
            code: output.status.code().unwrap(),
            stdout: String::new(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A command that is not started yet.
    pub(crate) fn prepared(&self, arguments: &[&str]) -> Command {
        self.prepared_with(env!("CARGO_BIN_EXE_gsan"), arguments)
    }

    /// Another program, where `gsan` would run.
    pub(crate) fn prepared_with(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a command whose output can be read.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.prepared(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gsan"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
