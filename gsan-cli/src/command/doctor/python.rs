//! The Python part of `gsan doctor`, which the Python package says itself.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Check;
use crate::command::run::package;

const SUBJECT: &str = "python";

/// What the Python that a program is started with says.
pub(super) fn checks() -> Vec<Check> {
    let Some(package) = package() else {
        return vec![Check::missing(
            "Python package",
            "not beside this program",
            "pip install . in the repository of GSan, or say in GSAN_PYTHON_PACKAGE where it is",
        )];
    };
    let python = ["python", "python3"].into_iter().find(|name| on_path(name));
    let Some(python) = python else {
        return vec![Check::missing(
            SUBJECT,
            "not on the PATH",
            "install Python 3.10 or later to check Triton's kernels",
        )];
    };
    match ask(python, &package) {
        Ok(checks) => checks,
        Err(why) => vec![Check::missing(
            SUBJECT,
            format!("`{python} -m gsan doctor` {why}"),
            "see what that command prints",
        )],
    }
}

/// Whether a program of that name is in a directory of `PATH`.
fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

fn ask(python: &str, package: &Path) -> Result<Vec<Check>, String> {
    let mut path = OsString::from(package.parent().unwrap_or(Path::new(".")));
    if let Some(rest) = env::var_os("PYTHONPATH").filter(|rest| !rest.is_empty()) {
        // Behind what is there: the directory may hold another environment's packages.
        path = [rest, ":".into(), path].into_iter().collect();
    }
    let output = Command::new(python)
        .args(["-m", "gsan", "doctor", "--json"])
        .env("PYTHONPATH", path)
        .output()
        .map_err(|error| format!("cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("failed ({})", output.status));
    }
    parse(&output.stdout).ok_or_else(|| "printed what is no list of checks".to_owned())
}

/// The checks in a list of objects with `subject`, and either `found` or `why` and `cure`.
fn parse(json: &[u8]) -> Option<Vec<Check>> {
    let list: Vec<Value> = serde_json::from_slice(json).ok()?;
    list.iter().map(check).collect()
}

fn check(value: &Value) -> Option<Check> {
    let text = |key: &str| value.get(key)?.as_str();
    let subject = text("subject")?;
    Some(match text("found") {
        Some(found) => Check::present(subject, found),
        None => Check::missing(subject, text("why")?, text("cure")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_package_says_becomes_lines() {
        let json = br#"[
            {"subject": "torch", "found": "2.11.0", "why": null, "cure": null},
            {"subject": "triton", "found": null, "why": "not installed", "cure": "install it"}
        ]"#;
        let expected = vec![
            Check::present("torch", "2.11.0"),
            Check::missing("triton", "not installed", "install it"),
        ];
        assert_eq!(parse(json), Some(expected));
    }

    #[test]
    fn what_is_no_list_of_checks_is_refused() {
        for json in ["", "{}", "[1]", r#"[{"subject": "torch"}]"#] {
            assert_eq!(parse(json.as_bytes()), None, "{json}");
        }
    }
}
