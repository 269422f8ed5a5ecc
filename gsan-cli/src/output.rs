//! Where text goes. Colours are dropped where they are not wanted (`--color`, `NO_COLOR`, no
//! terminal).

use std::io::{ErrorKind, Write};
use std::path::Path;

use anstream::ColorChoice;
use gsan_report::human::Look;

use crate::failure::Failure;

/// Writes a result to standard output as it is.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader has seen enough (`gsan report … | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::other(format!(
            "standard output cannot be written: {error}"
        ))),
    }
}

/// Writes a result to a file.
pub(crate) fn to_file(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::other(format!("`{}` cannot be written: {error}", file.display())))
}

/// Writes a message to standard error. There is nowhere to tell when that fails.
pub(crate) fn complain(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "{text}");
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
