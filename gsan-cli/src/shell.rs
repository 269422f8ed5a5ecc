//! Words as a shell takes them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A word that a shell reads as it is: quoted if it must be. What has bytes that text cannot hold,
/// or that terminals do not show, is written as `$'…'` (POSIX.1-2024, bash, zsh).
pub(crate) fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=+,@%".contains(c);
    let shown = |c: char| c.is_alphanumeric() || c == ' ' || c.is_ascii_graphic();
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if text.chars().all(shown) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let escaped = word.as_bytes().iter().map(|&byte| match byte {
                b'\'' | b'\\' => format!("\\{}", byte as char),
                b' '..=b'~' => (byte as char).to_string(),
                // Three octal digits: more could not be told from a digit that follows.
                _ => format!("\\{byte:03o}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// A file that is not taken for an option.
pub(crate) fn file(path: &Path) -> String {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        quoted(Path::new(".").join(path).as_os_str())
    } else {
        quoted(path.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_when_a_shell_would_not_take_them_as_they_are() {
        for (word, expected) in [
            ("buf:64:f32=rand:-1:1", "buf:64:f32=rand:-1:1"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("", "''"),
            ("ü.ptx", "ü.ptx"),
            ("a\nb", r"$'a\012b'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), expected);
        }
    }

    #[test]
    fn a_shell_reads_any_word_back() {
        let words: [&[u8]; 8] = [
            b"plain.ptx",
            b"a b",
            b"it's \\ $HOME `x` \"y\" !",
            b"caf\xe9.ptx",
            b"\xff1\xfe'\\",
            b"a\nb\t",
            "\u{202e}gpj.ptx".as_bytes(),
            b"*?[a]~",
        ];
        for word in words {
            let script = format!("printf %s {}", quoted(OsStr::from_bytes(word)));
            let output = std::process::Command::new("bash")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(output.stdout, word, "{script}");
        }
    }

    #[test]
    fn a_file_is_never_an_option() {
        assert_eq!(file(Path::new("-o.ptx")), "./-o.ptx");
        assert_eq!(file(Path::new("a/-o.ptx")), "a/-o.ptx");
        assert_eq!(file(Path::new("--x y")), "'./--x y'");
    }
}
