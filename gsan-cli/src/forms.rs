//! In which forms a report is written, and where to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use gsan_config::keys;
use gsan_config::value::Format;

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Text with source lines
    Human,
    /// The stored form, which `gsan report` reads
    Json,
    /// SARIF 2.1.0, for code hosts
    Sarif,
}

impl Form {
    /// The form that the ending of a file's name says, human if none.
    pub(crate) fn of_file(file: &Path) -> Form {
        match file.extension().and_then(OsStr::to_str) {
            Some("json") => Form::Json,
            Some("sarif") => Form::Sarif,
            _ => Form::Human,
        }
    }
}

impl From<Format> for Form {
    fn from(format: Format) -> Form {
        match format {
            Format::Human => Form::Human,
            Format::Json => Form::Json,
            Format::Sarif => Form::Sarif,
        }
    }
}

/// A form, and the file it is written to; without one, standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) form: Form,
    pub(crate) file: Option<PathBuf>,
}

/// What a run writes. `form` and `output` are what the command line says (`--format`, `-o`); the
/// rest is up to `report.formats` and `report.path`. Where these ask for text alone, the ending of `output` may
/// ask for another form.
pub(crate) fn of_run(
    form: Option<Form>,
    output: Option<&Path>,
    config: &keys::Report,
) -> Vec<Destination> {
    let forms: Vec<Form> = config.formats.iter().copied().map(Form::from).collect();
    let one = match (form, forms.as_slice()) {
        (Some(form), _) => Some(form),
        (None, [only]) => output.map(|file| match only {
            Form::Human => Form::of_file(file),
            chosen => *chosen,
        }),
        _ => None,
    };
    if let Some(form) = one {
        let file = output.map(Path::to_path_buf);
        return vec![Destination { form, file }];
    }
    let path = output.unwrap_or(&config.path);
    let both = forms.contains(&Form::Json) && forms.contains(&Form::Sarif);
    let file = |form| match form {
        Form::Human => None,
        Form::Json if both && path.extension().is_some_and(|end| end == "sarif") => {
            Some(path.with_extension("json"))
        }
        Form::Sarif if both => Some(path.with_extension("sarif")),
        Form::Json | Form::Sarif => Some(path.to_path_buf()),
    };
    forms
        .into_iter()
        .map(|form| Destination {
            form,
            file: file(form),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Option<Form>, output: Option<&str>, formats: &[Format]) -> Vec<String> {
        let config = keys::Report {
            formats: formats.to_vec(),
            ..gsan_config::Config::default().report
        };
        of_run(form, output.map(Path::new), &config)
            .into_iter()
            .map(|Destination { form, file }| match file {
                Some(file) => format!("{form:?} to {}", file.display()),
                None => format!("{form:?}"),
            })
            .collect()
    }

    #[test]
    fn the_configuration_says_forms_and_file() {
        use Format::{Human, Json, Sarif};
        assert_eq!(written(None, None, &[Human]), ["Human"]);
        assert_eq!(written(None, None, &[]), Vec::<String>::new());
        assert_eq!(written(None, None, &[Sarif]), ["Sarif to gsan-report.json"]);
        assert_eq!(
            written(None, None, &[Human, Json, Sarif]),
            [
                "Human",
                "Json to gsan-report.json",
                "Sarif to gsan-report.sarif"
            ]
        );
    }

    #[test]
    fn the_command_line_wins() {
        use Format::{Human, Json};
        let form = Some(Form::Sarif);
        assert_eq!(written(form, None, &[Human, Json]), ["Sarif"]);
        assert_eq!(written(form, Some("a"), &[Human, Json]), ["Sarif to a"]);
        assert_eq!(written(None, Some("a"), &[Human]), ["Human to a"]);
        assert_eq!(written(None, Some("a"), &[Json]), ["Json to a"]);
        assert_eq!(written(None, Some("a.sarif"), &[Json]), ["Json to a.sarif"]);
        assert_eq!(written(form, Some("a.json"), &[Human]), ["Sarif to a.json"]);
        assert_eq!(
            written(None, Some("a.json"), &[Human, Json]),
            ["Human", "Json to a.json"]
        );
    }

    #[test]
    fn the_ending_of_a_file_says_what_nothing_else_says() {
        use Format::Human;
        for (name, expected) in [
            ("a.json", "Json to a.json"),
            ("a.sarif", "Sarif to a.sarif"),
            ("a.txt", "Human to a.txt"),
            ("json", "Human to json"),
        ] {
            assert_eq!(written(None, Some(name), &[Human]), [expected]);
        }
    }

    #[test]
    fn two_forms_never_share_a_file() {
        use Format::{Json, Sarif};
        for (path, expected) in [
            ("a.json", ["Json to a.json", "Sarif to a.sarif"]),
            ("a.sarif", ["Json to a.json", "Sarif to a.sarif"]),
            ("a", ["Json to a", "Sarif to a.sarif"]),
        ] {
            assert_eq!(written(None, Some(path), &[Json, Sarif]), expected);
        }
    }
}
