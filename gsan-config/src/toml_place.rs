//! Places in TOML text.

use std::ops::Range;
use std::path::Path;

use crate::error::Excerpt;
use crate::origin::Origin;

/// The line and column of byte `offset` of the file, and the line itself with `span` marked.
pub(crate) fn locate(path: &Path, text: &str, span: Range<usize>) -> (Origin, Excerpt) {
    let start = text.floor_char_boundary(span.start);
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let from = (start - line_start).min(line.len());
    let to = (text.floor_char_boundary(span.end.max(start)) - line_start).min(line.len());
    let origin = Origin::File {
        path: path.to_owned(),
        line: 1 + text[..line_start].matches('\n').count(),
        column: 1 + line[..from].chars().count(),
    };
    let excerpt = Excerpt {
        text: line.to_owned(),
        span: from..to.max(from),
    };
    (origin, excerpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_1() {
        let text = "a = 1\r\n# ü\r\n\"ü\" = xyz\r\n";
        let at = text.find("xyz").unwrap();
        let (origin, excerpt) = locate(Path::new("f"), text, at..at + 3);
        assert_eq!(
            origin,
            Origin::File {
                path: "f".into(),
                line: 3,
                column: 7
            }
        );
        assert_eq!(excerpt.text, "\"ü\" = xyz");
        assert_eq!(&excerpt.text[excerpt.span], "xyz");
    }

    #[test]
    fn any_span_has_a_place() {
        for text in ["", "\n", "ü", "a\nb"] {
            for start in 0..6 {
                for end in 0..6 {
                    let (_, Excerpt { text, span }) = locate(Path::new("f"), text, start..end);
                    assert!(text.get(span).is_some());
                }
            }
        }
    }
}
