//! Reports as JSON.

use serde::Deserialize;

use crate::model::{Report, VERSION};

/// The largest stored report that is read, in bytes.
pub const MAX_BYTES: usize = 256 << 20;

/// What is wrong with a stored report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not JSON, or not the JSON of a report.
    #[error("line {line}, column {column}: {message}")]
    Malformed {
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1; 0 before the first.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Another version of the format.
    #[error("this is version {found} of the report format; only version {VERSION} can be read")]
    Version {
        /// The version of the file.
        found: u64,
    },
    /// More than [`MAX_BYTES`].
    #[error("it is larger than a report may be ({MAX_BYTES} bytes)")]
    TooLarge,
}

impl From<serde_json::Error> for ReadError {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // serde_json says the place at the end of the message; it is said apart here.
        let place = format!(" at line {} column {}", error.line(), error.column());
        ReadError::Malformed {
            line: error.line().max(1),
            column: error.column(),
            message: text.strip_suffix(&place).unwrap_or(&text).to_owned(),
        }
    }
}

/// Reads a stored report.
pub fn read(bytes: &[u8]) -> Result<Report, ReadError> {
    /// Just enough to tell a foreign version from a broken file.
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }

    if bytes.len() > MAX_BYTES {
        return Err(ReadError::TooLarge);
    }
    // serde takes a list of the fields' values for an object; a report is never that.
    if let Some(&first) = bytes.trim_ascii_start().first()
        && first != b'{'
    {
        return Err(ReadError::Malformed {
            line: 1,
            column: 1,
            message: "expected a JSON object".to_owned(),
        });
    }
    let Versioned { version } = serde_json::from_slice(bytes)?;
    if version != u64::from(VERSION) {
        return Err(ReadError::Version { found: version });
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Writes a report, indented, with a newline at the end.
pub fn write(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report)
        .expect("maps have text keys and no type of the model fails to serialize");
    text.push('\n');
    text
}

/// The JSON Schema of the stored format.
pub fn schema() -> String {
    let mut text = serde_json::to_string_pretty(&schemars::schema_for!(Report))
        .expect("a schema is a JSON value");
    text.push('\n');
    text
}
