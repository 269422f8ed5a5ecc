//! The files that `gsan check` is given.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gsan_config::bounded;

use crate::failure::Failure;

/// The PTX files that `paths` stand for: files as they are, directories with all that is in them.
/// What is found in a directory is in the order of the names.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            search(path, &mut files)?;
            if files.len() == before {
                return Err(Failure::usage(format!(
                    "there is no .ptx file under {}",
                    path.display()
                )));
            }
        } else {
            files.push(path.clone());
        }
    }
    // A file that is named twice, or lies in two of the directories, is checked once.
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
    Ok(files)
}

/// Links to directories are not followed: they might lead in circles.
fn search(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut waiting = vec![directory.to_path_buf()];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let unreadable =
            |error| Failure::other(format!("{} cannot be read: {error}", directory.display()));
        for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            if entry.file_type().map_err(unreadable)?.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ptx") {
                found.push(path);
            }
        }
    }
    found.sort();
    files.extend(found);
    Ok(())
}

const TAKE_PTX: &str = "take the PTX: nvcc --ptx -lineinfo, clang --cuda-device-only -S, or \
     kernel.asm[\"ptx\"] in Triton";

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let bytes = bounded::read(path, MAX_BYTES)
        .map_err(|error| Failure::unreadable(&name.to_string(), &error))?;
    if bytes.starts_with(b"\x7fELF") {
        return Err(Failure::other(format!("{name} is machine code, not text")).help(TAKE_PTX));
    }
    // Comments and paths may be in any encoding; everything else is ASCII.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let extension = path.extension().and_then(|extension| extension.to_str());
    let source = matches!(extension, Some("cu" | "cuh" | "cpp" | "cc" | "c" | "py"));
    if source && !text.contains(".version") {
        return Err(Failure::usage(format!("{name} is source, not PTX")).help(TAKE_PTX));
    }
    Ok(text)
}
