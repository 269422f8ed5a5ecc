//! The report of a process that nobody else reports for.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gsan_config::keys;
use gsan_config::value::Format;
use gsan_report::human::Look;
use gsan_report::model::Report;
use gsan_report::source::Sources;
use gsan_report::{human, json, sarif};

use crate::error::{Error, Result};
use crate::whole_file;

/// The report in a form.
pub fn text(report: &Report, format: Format, config: &keys::Report) -> String {
    match format {
        Format::Human => {
            let mut sources = Sources::new(".");
            let look = Look {
                context_lines: config.context_lines,
                ..Look::default()
            };
            human::report(report, &mut sources, &look)
        }
        Format::Json => json::write(report),
        Format::Sarif => {
            let root = std::env::current_dir().unwrap_or_else(|_| ".".into());
            sarif::write(report, &root)
        }
    }
}

/// Writes a report to a file, which appears as a whole. One that is there keeps its mode; symbolic links are
/// followed; what is no ordinary file, such as `/dev/stdout`, is written to.
///
/// # Errors
/// When it cannot be written.
pub fn write(report: &Report, format: Format, config: &keys::Report, path: &Path) -> Result<()> {
    let text = text(report, format, config);
    whole_file::write(path, text.as_bytes()).map_err(|error| {
        Error::io(
            format!("the report cannot be written to {}", path.display()),
            &no_directory(error),
        )
    })
}

/// Says what is missing.
fn no_directory(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ ErrorKind::NotFound => io::Error::new(kind, "there is no such directory"),
        kind @ ErrorKind::NotADirectory => io::Error::new(kind, "it is below a file"),
        _ => error,
    }
}

/// The files that the configuration asks for.
fn files(config: &keys::Report) -> Vec<(Format, PathBuf)> {
    let wants = |format| config.formats.contains(&format);
    let both = wants(Format::Json) && wants(Format::Sarif);
    let path = &config.path;
    let mut files = Vec::new();
    if wants(Format::Json) {
        let moved = both && path.extension().is_some_and(|end| end == "sarif");
        let json = if moved {
            path.with_extension("json")
        } else {
            path.clone()
        };
        files.push((Format::Json, json));
    }
    if wants(Format::Sarif) {
        let sarif = if both {
            path.with_extension("sarif")
        } else {
            path.clone()
        };
        files.push((Format::Sarif, sarif));
    }
    files
}

/// Writes the files that the configuration asks for.
pub(crate) fn write_files(report: &Report, config: &keys::Report) -> Result<()> {
    for (format, path) in files(config) {
        write(report, format, config, &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_below_no_directory_is_refused_by_its_own_name() {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("file"), "").unwrap();
        for (name, why) in [
            ("nowhere/a.json", "there is no such directory"),
            ("file/a.json", "it is below a file"),
        ] {
            let path = here.path().join(name);
            let config = gsan_config::Config::default().report;
            let error = write(&Report::default(), Format::Json, &config, &path).unwrap_err();
            let path = path.display();
            let expected = format!("the report cannot be written to {path}: {why}");
            assert_eq!(error.to_string(), expected);
        }
    }

    /// Nobody asked for the temporary file.
    #[test]
    fn a_directory_that_must_not_be_written_is_refused_by_the_name_of_the_report() {
        let config = gsan_config::Config::default().report;
        let path = Path::new("/sys/a.json");
        let error = write(&Report::default(), Format::Json, &config, path).unwrap_err();
        let error = error.to_string();
        let expected = "the report cannot be written to /sys/a.json: ";
        assert!(
            error.starts_with(expected) && !error.contains("tmp"),
            "{error}"
        );
    }

    #[test]
    fn forms_have_files_of_their_own() {
        let files = |formats: &[Format], path: &str| {
            let config = keys::Report {
                formats: formats.to_vec(),
                path: path.into(),
                ..gsan_config::Config::default().report
            };
            let files = files(&config).into_iter();
            files
                .map(|(_, path)| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(files(&[Format::Human], "a.json"), [""; 0]);
        assert_eq!(files(&[Format::Sarif], "a.json"), ["a.json"]);
        let both = [Format::Json, Format::Sarif];
        assert_eq!(files(&both, "a.json"), ["a.json", "a.sarif"]);
        assert_eq!(files(&both, "a.sarif"), ["a.json", "a.sarif"]);
    }
}
