//! The directory in which the processes of one `gsan run` leave their parts.
//!
//! It lies in `/dev/shm`: the driver makes such memory accessible to devices, and it stays when a
//! process dies. A lock that `gsan run` holds tells directories of dead runs apart; whoever makes a new
//! one removes them. A `gsan run` inside another one makes its directory inside the other's, and leaves
//! it there for the other to read.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

/// The environment variable that names the directory to the processes of a run.
pub const VARIABLE: &str = "GSAN_RUN";

/// Where directories are made.
const BASE: &str = "/dev/shm";
const PREFIX: &str = "gsan-run-";
/// The file whose lock says that the run goes on.
const LOCK: &str = "run";
/// A directory that is younger may be about to be locked.
const YOUNG: Duration = Duration::from_secs(10);
/// How deep runs lie inside runs, at most.
const MAX_DEPTH: usize = 8;
/// How many processes of a run are followed, at most.
const MAX_PARTS: usize = 1 << 14;

/// The directory of a run. Dropping it removes it, unless it lies inside another run's.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    nested: bool,
    _lock: File,
}

impl RunDirectory {
    /// Makes the directory of a new run, inside that of the run that this process belongs to if there
    /// is one. Directories that dead runs left are removed.
    ///
    /// # Errors
    /// When no directory can be made.
    pub fn new() -> io::Result<RunDirectory> {
        if let Some(outer) = of_process() {
            match RunDirectory::inside(&outer, true) {
                Ok(directory) => return Ok(directory),
                Err(error) => tracing::warn!(
                    "the run that this one belongs to will not see it: {}: {error}",
                    outer.display()
                ),
            }
        }
        let base = Path::new(BASE);
        remove_dead(base);
        RunDirectory::inside(base, false).or_else(|error| {
            let other = std::env::temp_dir();
            tracing::warn!(
                "{BASE}: {error}; using {}, which devices may not be able to write to",
                other.display()
            );
            remove_dead(&other);
            RunDirectory::inside(&other, false)
        })
    }

    fn inside(base: &Path, nested: bool) -> io::Result<RunDirectory> {
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(base)?;
        let lock = File::create_new(made.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(RunDirectory {
            path: made.keep(),
            nested,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it lies inside the directory of another run, which reads it as well.
    pub const fn is_nested(&self) -> bool {
        self.nested
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if self.nested {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}

/// The directory of the run that this process belongs to, as its environment says. If it is not there, as
/// in a container with a `/dev/shm` of its own, or nobody reads it, that is said once: nobody else will.
pub fn of_process() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let named = std::env::var_os(VARIABLE).filter(|named| !named.is_empty())?;
    let path = PathBuf::from(named);
    let why = if !(path.is_absolute() && path.is_dir()) {
        ", which is no directory here: the `gsan run` that set it does not see"
    } else if !path.join(LOCK).exists() {
        ", which no `gsan run` has made (nothing else should set it): nobody but the process itself reports"
    } else if !is_read(&path) {
        ", whose `gsan run` has ended: nobody but the process itself reports"
    } else {
        return Some(path);
    };
    SAID.call_once(|| {
        let pid = std::process::id();
        eprintln!(
            "gsan: {VARIABLE} names {}{why} process {pid}",
            path.display()
        );
    });
    None
}

/// Whether a `gsan run` reads what processes leave in a directory: the one that made it, or one that this one
/// is inside of.
pub(crate) fn is_read(directory: &Path) -> bool {
    let runs = directory.ancestors().take(MAX_DEPTH);
    let mut runs = runs.take_while(|run| {
        let name = run.file_name().unwrap_or_default();
        *run == directory || name.to_string_lossy().starts_with(PREFIX)
    });
    runs.any(|run| match open_lock(run) {
        // Who shares it with others does not keep a run from anything.
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

fn open_lock(directory: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(directory.join(LOCK))
}

/// The files of a run's processes whose names end in `extension`, each with whether it belongs to a run
/// inside this one.
pub(crate) fn files(directory: &Path, extension: &str) -> Vec<(PathBuf, bool)> {
    let mut parts = Vec::new();
    let mut directories = vec![(directory.to_path_buf(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < MAX_DEPTH {
                directories.push((path, depth + 1));
            } else if kind.is_file()
                && path.extension().is_some_and(|end| end == extension)
                && parts.len() < MAX_PARTS
            {
                parts.push((path, depth > 0));
            }
        }
    }
    parts.sort();
    parts
}

/// Removes the directories that dead runs of this user left in `base`.
fn remove_dead(base: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if is_ours && is_dead(&entry.path()) {
            let path = entry.path();
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!("removed {}, which a dead run left", path.display()),
                Err(error) => tracing::info!("{} cannot be removed: {error}", path.display()),
            }
        }
    }
}

/// Whether nobody holds the lock of a run's directory.
fn is_dead(directory: &Path) -> bool {
    let old = |metadata: Metadata| {
        let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age > YOUNG)
    };
    match open_lock(directory) {
        Ok(lock) => {
            lock.metadata().is_ok_and(old)
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        }
        Err(_) => directory.metadata().is_ok_and(old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(path: &Path) {
        let past = std::time::SystemTime::now() - 2 * YOUNG;
        File::open(path).unwrap().set_modified(past).unwrap();
    }

    #[test]
    fn directories_of_dead_runs_are_removed_and_those_of_others_stay() {
        let base = tempfile::tempdir().unwrap();
        let running = RunDirectory::inside(base.path(), false).unwrap();
        age(&running.path().join(LOCK));
        let dead = RunDirectory::inside(base.path(), true).unwrap();
        fs::write(dead.path().join("1-x.part"), "left").unwrap();
        let (dead_path, starting) = (dead.path().to_path_buf(), base.path().join("gsan-run-new"));
        age(&dead.path().join(LOCK));
        drop(dead);
        fs::create_dir(&starting).unwrap();
        let other = base.path().join("somebody-else");
        fs::create_dir(&other).unwrap();
        remove_dead(base.path());
        assert!(!dead_path.exists());
        assert!(running.path().exists() && starting.exists() && other.exists());
        // Whoever made it never came to lock it.
        age(&starting);
        remove_dead(base.path());
        assert!(!starting.exists() && running.path().exists());
        let path = running.path().to_path_buf();
        drop(running);
        assert!(!path.exists());
    }

    #[test]
    fn a_run_is_read_while_its_lock_or_that_of_one_around_it_is_held() {
        let base = tempfile::tempdir().unwrap();
        assert!(!is_read(base.path()), "no run has made it");
        let outer = RunDirectory::inside(base.path(), true).unwrap();
        let inner = RunDirectory::inside(outer.path(), true).unwrap();
        let path = inner.path().to_path_buf();
        assert!(is_read(&path) && is_read(outer.path()));
        drop(inner);
        assert!(is_read(&path), "the outer one reads it");
        let outer_path = outer.path().to_path_buf();
        drop(outer);
        assert!(!is_read(&path) && !is_read(&outer_path));
    }

    #[test]
    fn parts_of_runs_inside_are_found() {
        let base = tempfile::tempdir().unwrap();
        let inner = RunDirectory::inside(base.path(), true).unwrap();
        for path in [base.path(), inner.path()] {
            fs::write(path.join("7-a.part"), "").unwrap();
            fs::write(path.join("8-b.new"), "").unwrap();
        }
        let found = files(base.path(), crate::part::EXTENSION);
        let nested: Vec<bool> = found.iter().map(|(_, nested)| *nested).collect();
        assert_eq!(nested, [false, true]);
        // Only who made the outermost one removes it.
        let path = inner.path().to_path_buf();
        drop(inner);
        assert!(path.exists());
    }

    #[test]
    fn the_directory_is_this_users_alone() {
        let base = tempfile::tempdir().unwrap();
        let made = RunDirectory::inside(base.path(), false).unwrap();
        let mode = made.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
