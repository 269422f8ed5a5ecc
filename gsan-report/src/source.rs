//! The source files that reports show.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Files larger than this are not shown.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Source files, read when they are first asked for.
///
/// A report comes from another program, maybe from another machine: its file names may lead
/// nowhere, to devices, or to files that have changed. Only regular files are read.
#[derive(Debug, Default)]
pub struct Sources {
    base: PathBuf,
    files: HashMap<String, Result<Text, String>>,
}

#[derive(Debug)]
struct Text {
    text: String,
    /// The bytes of each line, without its end.
    lines: Vec<Range<usize>>,
}

impl Text {
    fn new(text: String) -> Text {
        let start = text.as_ptr() as usize;
        let lines = text
            .lines()
            .map(|line| {
                let from = line.as_ptr() as usize - start;
                from..from + line.len()
            })
            .collect();
        Text { text, lines }
    }
}

impl Sources {
    /// Sources whose relative names are relative to `base`.
    pub fn new(base: impl Into<PathBuf>) -> Sources {
        Sources {
            base: base.into(),
            files: HashMap::new(),
        }
    }

    /// Gives the text of a file, instead of what is on the disk.
    pub fn insert(&mut self, file: impl Into<String>, text: impl Into<String>) {
        self.files.insert(file.into(), Ok(Text::new(text.into())));
    }

    /// Line `number` of `file`, counted from 1, without its end; or why it cannot be shown.
    pub fn line(&mut self, file: &str, number: u32) -> Result<&str, String> {
        if !self.files.contains_key(file) {
            let text = read(&self.base.join(file)).map(Text::new);
            self.files.insert(file.to_owned(), text);
        }
        let Text { text, lines } = self.files[file].as_ref().map_err(Clone::clone)?;
        (number as usize)
            .checked_sub(1)
            .and_then(|index| lines.get(index))
            .map(|range| &text[range.clone()])
            .ok_or_else(|| match lines.len() {
                1 => "it has 1 line now".to_owned(),
                count => format!("it has {count} lines now"),
            })
    }
}

fn read(path: &Path) -> Result<String, String> {
    let say = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    // Asked before opening: opening a pipe would wait for its writer.
    let metadata = path.metadata().map_err(say)?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{} bytes are too many to show", metadata.len()));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(say)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_either_kind_of_newline_or_none() {
        let mut sources = Sources::default();
        sources.insert("a", "one\r\ntwo\nthree");
        assert_eq!(sources.line("a", 1).unwrap(), "one");
        assert_eq!(sources.line("a", 2).unwrap(), "two");
        assert_eq!(sources.line("a", 3).unwrap(), "three");
    }

    #[test]
    fn a_line_that_is_not_there_is_said_with_the_number_of_lines() {
        let mut sources = Sources::default();
        sources.insert("a", "one\n");
        for number in [0, 2, u32::MAX] {
            assert_eq!(sources.line("a", number).unwrap_err(), "it has 1 line now");
        }
        sources.insert("empty", "");
        assert_eq!(sources.line("empty", 1).unwrap_err(), "it has 0 lines now");
    }

    #[test]
    fn what_is_no_readable_file_is_said() {
        let directory = tempfile::TempDir::new().unwrap();
        std::fs::write(directory.path().join("latin1"), b"caf\xe9\n").unwrap();
        let mut sources = Sources::new(directory.path());
        assert_eq!(sources.line("latin1", 1).unwrap(), "caf\u{fffd}");
        assert_eq!(sources.line("missing", 1).unwrap_err(), "no such file");
        assert_eq!(sources.line("", 1).unwrap_err(), "not a regular file");
        assert_eq!(
            sources.line("/dev/zero", 1).unwrap_err(),
            "not a regular file"
        );
        assert!(sources.line("nul\0byte", 1).is_err());
        assert!(sources.line(&"x".repeat(10_000), 1).is_err());
    }
}
