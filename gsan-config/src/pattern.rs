//! Suppressions and their patterns.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

/// The kinds of findings that a suppression can name.
pub const KINDS: &[&str] = &[
    "read-after-write",
    "write-after-read",
    "write-after-write",
    "deadlock",
    "budget",
    "out-of-bounds",
    "misaligned",
    "uninitialised",
    "trap",
    "assertion",
    "division-by-zero",
    "barrier-divergence",
    "invalid-operand",
    "write-once-written-twice",
    "write-once-read-unwritten",
    "write-once-atomic",
];

/// A pattern in the manner of the shell: `*` matches any text, `/` included, `?` one character,
/// `[ab]` one of several, `{a,b}` one of several texts.
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobMatcher,
}

impl Pattern {
    /// Understands a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn new(text: &str) -> Result<Pattern, String> {
        GlobBuilder::new(text)
            .build()
            .map(|glob| Pattern {
                matcher: glob.compile_matcher(),
            })
            .map_err(|error| error.kind().to_string())
    }

    /// Whether all of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.matcher.is_match(text)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        self.matcher.glob().glob()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Findings that are not reported: those that match all given patterns, of which there is at least
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// The kind.
    pub kind: Option<Pattern>,
    /// The file of either side.
    pub file: Option<Pattern>,
    /// The kernel of either side.
    pub kernel: Option<Pattern>,
    /// Why it is there, for people; empty: nobody says.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_across_directories() {
        let pattern = Pattern::new("*/third_party/*").unwrap();
        assert!(pattern.matches("/src/third_party/a/b.py"));
        assert!(!pattern.matches("third_party/b.py"));
        let pattern = Pattern::new("histogram_*").unwrap();
        assert!(pattern.matches("histogram_i32"));
        assert!(!pattern.matches("my_histogram_i32"));
    }

    #[test]
    fn a_broken_pattern_says_what_is_wrong() {
        for text in ["[a", "{a", "a\\", "[z-a]"] {
            assert!(!Pattern::new(text).unwrap_err().is_empty(), "{text}");
        }
    }
}
