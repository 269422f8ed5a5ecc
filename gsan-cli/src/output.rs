//! Where text goes. Colours are dropped where they are not wanted (`--color`, `NO_COLOR`, no
//! terminal).

use std::fs::Metadata;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anstream::ColorChoice;
use gsan_report::human::Look;
use gsan_runtime::whole_file;

use crate::arguments::Shared;
use crate::failure::Failure;

/// Writes a result to standard output as it is.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader has seen enough (`gsan report … | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(unwritable(&error)),
    }
}

/// Standard output could not be written.
pub(crate) fn unwritable(error: &std::io::Error) -> Failure {
    Failure::other(format!("standard output cannot be written: {error}"))
}

/// Writes a result to a file, which appears as a whole.
pub(crate) fn to_file(file: &Path, text: &str) -> Result<(), Failure> {
    let name = file.display().to_string();
    whole_file::write(file, text.as_bytes()).map_err(|error| Failure::unwritable(&name, &error))?;
    tracing::info!("wrote {name}");
    Ok(())
}

/// Refuses a file that cannot be written, or is one of the inputs: before hours of work, not after.
pub(crate) fn check_file<'a>(
    file: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let name = file.display().to_string();
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let unwritable = |kind: ErrorKind| Err(Failure::unwritable(&name, &kind.into()));
    match directory.metadata() {
        Ok(metadata) if !metadata.is_dir() => return unwritable(ErrorKind::NotADirectory),
        Ok(_) => {}
        Err(error) => return unwritable(error.kind()),
    }
    let Ok(metadata) = file.metadata() else {
        return Ok(());
    };
    if metadata.is_dir() {
        return unwritable(ErrorKind::IsADirectory);
    }
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_output = |input: &&Path| {
        let input = input.metadata();
        input.is_ok_and(|input| input.is_file() && identity(&input) == identity(&metadata))
    };
    match inputs.into_iter().find(is_output) {
        Some(input) => Err(Failure::usage(format!(
            "the report would overwrite the input `{}`",
            input.display()
        ))
        .help("name another file with -o")),
        None => Ok(()),
    }
}

/// Text of strangers, such as the name of a file, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Says something that is worth knowing and no error, unless `-q` was given.
pub(crate) fn note(shared: &Shared, text: &str) {
    if !shared.quiet {
        complain(&format!("note: {}", printable(text)));
    }
}

/// Writes a message to standard error. There is nowhere to tell when that fails.
pub(crate) fn complain(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "{text}");
}

/// Writes a result to standard error, as it is.
pub(crate) fn errors(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// How a report looks on standard error.
pub(crate) fn look_of_errors(context_lines: u32) -> Look {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    let width = terminal_size::terminal_size_of(std::io::stderr());
    Look {
        color: choice != ColorChoice::Never,
        width: width.map_or(Look::default().width, |(width, _)| width.0.into()),
        context_lines,
    }
}

/// How a report looks on standard output, or in a file.
pub(crate) fn look(in_file: bool, context_lines: u32) -> Look {
    let color = match anstream::AutoStream::choice(&std::io::stdout()) {
        ColorChoice::Never => false,
        // `--color always` is about the terminal, not about files.
        _ => !in_file,
    };
    let width = terminal_size::terminal_size_of(std::io::stdout());
    Look {
        color,
        width: width.map_or(Look::default().width, |(width, _)| width.0.into()),
        context_lines,
    }
}
