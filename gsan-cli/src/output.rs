//! Where text goes. Colours are dropped where they are not wanted (`--color`, `NO_COLOR`, no
//! terminal).

use std::io::{ErrorKind, Write};

use crate::failure::Failure;

/// Writes a result to standard output as it is.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    finish(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes a message to standard error. There is nowhere to tell when that fails.
pub(crate) fn complain(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "{text}");
}

fn finish(written: std::io::Result<()>) -> Result<(), Failure> {
    match written {
        // The reader has seen enough (`gsan report … | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::other(format!(
            "standard output cannot be written: {error}"
        ))),
        Ok(()) => Ok(()),
    }
}
