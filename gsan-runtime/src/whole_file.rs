//! Files that appear as a whole, where the system lets them.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// How many symbolic links are followed, as many as Linux follows.
const LINKS: u32 = 40;

/// Writes a file. A new one gets the mode that files get; one that is there keeps mode and owner, and is not
/// written if it must not be. Symbolic links stay; what is no ordinary file, or is open as a descriptor
/// (`/dev/stdout`), is written to.
///
/// # Errors
/// When it cannot be written; what was there is then still there, unless it can only be written to.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    // At the end: what went to standard output before stays.
    let mut there = match OpenOptions::new().append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return create(path, contents),
        Err(error) => return Err(error),
    };
    let before = there.metadata()?;
    let Some(place) = behind_links(path).filter(|_| before.is_file()) else {
        return there.write_all(contents);
    };
    if replace(&place, &before, contents)? {
        return Ok(());
    }
    there.set_len(0)?;
    there.write_all(contents)
}

fn create(path: &Path, contents: &[u8]) -> io::Result<()> {
    let place = behind_links(path).ok_or(ErrorKind::NotFound)?;
    // The umask is taken off.
    let mut file = temporary(&place, Permissions::from_mode(0o666))?;
    file.as_file_mut().write_all(contents)?;
    file.persist(&place)?;
    Ok(())
}

/// Puts another file in the place of one that is there. Returns false where that would not be the same file
/// to others, or cannot be done.
fn replace(place: &Path, before: &Metadata, contents: &[u8]) -> io::Result<bool> {
    let mut file = match temporary(place, Permissions::from_mode(0o600)) {
        Ok(file) => file,
        Err(error) => return kept(error),
    };
    let owner = |of: &Metadata| (of.uid(), of.gid());
    if before.nlink() > 1 || owner(&file.as_file().metadata()?) != owner(before) {
        return Ok(false);
    }
    file.as_file_mut().write_all(contents)?;
    file.as_file().set_permissions(before.permissions())?;
    match file.persist(place) {
        Ok(_) => Ok(true),
        Err(error) => kept(error.error),
    }
}

/// A file beside `place`. Errors do not name it: nobody asked for it.
fn temporary(place: &Path, mode: Permissions) -> io::Result<NamedTempFile> {
    let made = tempfile::Builder::new()
        .permissions(mode)
        .tempfile_in(directory(place));
    made.map_err(|error| error.kind().into())
}

/// Not an error where a directory must not be written, or a file is mounted.
fn kept(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy => {
            Ok(false)
        }
        _ => Err(error),
    }
}

/// What a path names behind symbolic links; `None` for a descriptor of a process.
fn behind_links(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(link) = path.read_link() else {
            break;
        };
        let directory = directory(&path);
        // Its links need not be paths.
        if directory
            .canonicalize()
            .is_ok_and(|at| at.starts_with("/proc"))
        {
            return None;
        }
        path = directory.join(link);
    }
    Some(path)
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use rustix::process::{geteuid, umask};
    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// A directory whose only contents in the end are those of `names`.
    struct Place(TempDir);

    impl Place {
        fn new() -> Place {
            Place(tempfile::tempdir().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_new_file_has_the_mode_that_files_get() {
        let place = Place::new();
        for (mask, expected) in [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)] {
            umask(Mode::from_raw_mode(mask));
            let path = place.at(&format!("{mask:o}"));
            write(&path, b"new").unwrap();
            assert_eq!(mode(&path), expected);
        }
        assert_eq!(place.names().len(), 3);
    }

    #[test]
    fn a_file_that_is_there_keeps_its_mode_and_appears_as_a_whole() {
        let place = Place::new();
        let path = place.at("report");
        for kept in [0o600, 0o664, 0o640] {
            fs::write(&path, "what was there before").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            let reader = File::open(&path).unwrap();
            write(&path, b"new").unwrap();
            assert_eq!(
                (mode(&path), fs::read(&path).unwrap()),
                (kept, b"new".to_vec())
            );
            // Who reads the old one reads all of it.
            assert_eq!(io::read_to_string(reader).unwrap(), "what was there before");
        }
        assert_eq!(place.names(), ["report"]);
    }

    #[test]
    fn symbolic_links_stay() {
        let place = Place::new();
        fs::create_dir(place.at("deep")).unwrap();
        symlink("deep/second", place.at("first")).unwrap();
        symlink("file", place.at("deep/second")).unwrap();
        for contents in ["to a file that is not there", "to one that is"] {
            write(&place.at("first"), contents.as_bytes()).unwrap();
            assert!(place.at("first").is_symlink() && place.at("deep/second").is_symlink());
            assert_eq!(fs::read_to_string(place.at("deep/file")).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(place.at("deep")).unwrap().count(), 2);
        symlink("loop", place.at("loop")).unwrap();
        let error = write(&place.at("loop"), b"").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn all_names_of_a_file_stay_names_of_it() {
        let place = Place::new();
        fs::write(place.at("one"), "what was there before").unwrap();
        fs::hard_link(place.at("one"), place.at("other")).unwrap();
        write(&place.at("one"), b"new").unwrap();
        assert_eq!(fs::read(place.at("other")).unwrap(), b"new");
        assert_eq!(place.names(), ["one", "other"]);
    }

    #[test]
    fn a_pipe_is_written_to() {
        let place = Place::new();
        let pipe = place.at("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let end = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let end = File::from(end.unwrap());
        write(&pipe, b"new").unwrap();
        assert_eq!(io::read_to_string(end).unwrap(), "new");
        assert_eq!(place.names(), ["pipe"]);
        write(Path::new("/dev/null"), b"new").unwrap();
    }

    #[test]
    fn what_went_to_a_descriptor_before_stays() {
        let place = Place::new();
        fs::write(place.at("log"), "before ").unwrap();
        let log = OpenOptions::new()
            .append(true)
            .open(place.at("log"))
            .unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&log);
        write(Path::new(&format!("/dev/fd/{number}")), b"new ").unwrap();
        symlink(format!("/proc/self/fd/{number}"), place.at("link")).unwrap();
        write(&place.at("link"), b"again").unwrap();
        assert_eq!(
            fs::read_to_string(place.at("log")).unwrap(),
            "before new again"
        );
        fs::remove_file(place.at("log")).unwrap();
        write(&place.at("link"), b" and again").unwrap();
        assert_eq!(place.names(), ["link"]);
    }

    #[test]
    fn a_file_of_somebody_else_stays_theirs() {
        if !geteuid().is_root() {
            return;
        }
        let place = Place::new();
        let path = place.at("report");
        fs::write(&path, "what was there before").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(567)).unwrap();
        write(&path, b"new").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.uid(), after.gid()), (1234, 567));
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn what_must_not_be_written_is_not() {
        let place = Place::new();
        let error = write(place.0.path(), b"new").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        if geteuid().is_root() {
            return;
        }
        for name in ["closed", "open"] {
            fs::write(place.at(name), "what was there before").unwrap();
        }
        fs::set_permissions(place.at("closed"), Permissions::from_mode(0o444)).unwrap();
        let refused = |name| write(&place.at(name), b"new").unwrap_err().kind();
        assert_eq!(refused("closed"), ErrorKind::PermissionDenied);
        // In a directory that must not be written, files may.
        fs::set_permissions(place.0.path(), Permissions::from_mode(0o555)).unwrap();
        assert_eq!(refused("new"), ErrorKind::PermissionDenied);
        write(&place.at("open"), b"new").unwrap();
        assert_eq!(fs::read(place.at("open")).unwrap(), b"new");
        fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(place.names(), ["closed", "open"]);
    }
}
