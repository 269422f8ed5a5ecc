//! Reading the files that a user names: whatever they turn out to be, reading them ends.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refuses.
    #[error("{}", said(.0))]
    System(#[from] io::Error),
    /// It is a directory.
    #[error("it is a directory")]
    Directory,
    /// A pipe in the file system: opening it would wait for a writer that may never come.
    #[error("it is a named pipe; only regular files and open pipes (`/dev/stdin`) are read")]
    NamedPipe,
    /// A device or a socket.
    #[error("it is not a regular file")]
    NotAFile,
    /// More bytes than such a file may have.
    #[error("it is larger than {} MiB, more than such a file may be", .limit >> 20)]
    TooLarge {
        /// How many bytes it may have.
        limit: u64,
    },
}

impl ReadError {
    /// Whether naming the file was the mistake: it is not there, or never could be read.
    pub fn is_wrong_name(&self) -> bool {
        match self {
            ReadError::System(error) => matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput
            ),
            ReadError::Directory | ReadError::NamedPipe | ReadError::NotAFile => true,
            ReadError::TooLarge { .. } => false,
        }
    }
}

/// What the operating system says, without the number of the error.
fn said(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// All bytes of a regular file or an open pipe, if they are at most `limit`.
///
/// # Errors
/// It cannot be read, is something else, or is larger.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    // Asked before opening: opening a pipe waits, and opening a device may do anything.
    let metadata = path.metadata()?;
    check(path, &metadata)?;
    let too_large = ReadError::TooLarge { limit };
    if metadata.len() > limit {
        return Err(too_large);
    }
    let mut bytes = Vec::new();
    // One byte more, so that what is too large is seen to be: a length of 0 says nothing of
    // pipes and of files that the kernel makes up.
    let mut file = File::open(path)?.take(limit.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large);
    }
    Ok(bytes)
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), ReadError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(())
    } else if kind.is_dir() {
        Err(ReadError::Directory)
    } else if !kind.is_fifo() {
        Err(ReadError::NotAFile)
    // An open pipe has a name below /proc only, which leads to no file.
    } else if path.canonicalize().is_ok() {
        Err(ReadError::NamedPipe)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"four").unwrap();
        assert_eq!(read(file.path(), 4).unwrap(), b"four");
        assert!(matches!(
            read(file.path(), 3),
            Err(ReadError::TooLarge { limit: 3 })
        ));
    }

    #[test]
    fn an_open_pipe_is_read_up_to_the_limit() {
        for (limit, fits) in [(4, true), (3, false)] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"four").unwrap();
            drop(writer);
            let name = format!("/dev/fd/{}", reader.as_raw_fd());
            assert_eq!(read(Path::new(&name), limit).is_ok(), fits);
        }
    }

    #[test]
    fn what_is_no_file_is_refused_without_opening_it() {
        let directory = tempfile::TempDir::new().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for (path, expected) in [
            (Path::new("/dev/zero"), "it is not a regular file"),
            (directory.path(), "it is a directory"),
            (
                &pipe,
                "it is a named pipe; only regular files and open pipes (`/dev/stdin`) are read",
            ),
            (Path::new("/nonexistent"), "no such file"),
            (Path::new("/dev/null/x"), "Not a directory (os error 20)"),
            (Path::new(""), "no such file"),
        ] {
            let error = read(path, 1 << 20).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.is_wrong_name(), "{error}");
        }
    }

    #[test]
    fn a_file_that_says_it_is_empty_may_still_be_too_large() {
        assert!(read(Path::new("/proc/self/status"), 1 << 20).unwrap().len() > 16);
        assert!(matches!(
            read(Path::new("/proc/self/status"), 16),
            Err(ReadError::TooLarge { limit: 16 })
        ));
    }
}
