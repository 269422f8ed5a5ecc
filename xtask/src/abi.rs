//! What programs that were built against `gsan.h` rely on, kept in `gsan-ffi/abi` for each version.

use anyhow::{Context, Result, bail};

/// The version that a header says it has.
pub(crate) fn version(header: &str) -> Result<u32> {
    header
        .lines()
        .find_map(|line| line.strip_prefix("#define GSAN_ABI_VERSION "))
        .and_then(|version| version.trim().parse().ok())
        .context("gsan.h does not define GSAN_ABI_VERSION")
}

/// Every declaration of a header, a line each, in any order it likes.
pub(crate) fn description(header: &str) -> String {
    let mut lines = Vec::new();
    let mut code = String::new();
    for line in without_comments(header).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["#define", "GSAN_H"] | ["extern", "\"C\"", "{"] => {}
            ["#define", ..] => lines.push(words.join(" ")),
            [first, ..] if first.starts_with('#') => {}
            _ => {
                code.push_str(line);
                code.push(' ');
            }
        }
    }
    let mut depth = 0;
    let mut declaration = String::new();
    for letter in code.chars() {
        match letter {
            '{' => depth += 1,
            // One more closes `extern "C"`.
            '}' if depth > 0 => depth -= 1,
            '}' => continue,
            ';' if depth == 0 => {
                lines.push(normal(&declaration));
                declaration.clear();
                continue;
            }
            _ => {}
        }
        declaration.push(letter);
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Refuses what a program could notice: a declaration that is gone, or is another one.
pub(crate) fn refuse_changes(recorded: &str, description: &str) -> Result<()> {
    let has = |text: &str, line: &str| text.lines().any(|other| other == line);
    let mut gone = recorded.lines().filter(|line| !has(description, line));
    let Some(first) = gone.next() else {
        return Ok(());
    };
    let more = gone.count();
    bail!(
        "the interface of libgsan.so was changed, so programs that use it would break; {} \
         declarations are gone or different, the first is `{first}`. Raise GSAN_ABI_VERSION, or, if \
         nobody has this version yet, run `cargo xtask header --redefine-abi`",
        more + 1
    );
}

fn normal(declaration: &str) -> String {
    declaration.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut code = String::new();
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        let comment = &rest[start..];
        rest = comment.find("*/").map_or("", |end| &comment[end + 2..]);
    }
    code.push_str(rest);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
/* Top; of a {file}. */
#ifndef GSAN_H
#define GSAN_H
#include <stdint.h>
#define GSAN_ABI_VERSION 3
/* A thing. */
typedef struct gsan_thing {
    uint32_t first; /* with ; and } */
    uint32_t second;
} gsan_thing;
#ifdef __cplusplus
extern \"C\" {
#endif // __cplusplus
int gsan_do(const gsan_thing *thing,
            int how);
#ifdef __cplusplus
}
#endif
#endif
";

    const DESCRIPTION: &str = "\
#define GSAN_ABI_VERSION 3
typedef struct gsan_thing { uint32_t first; uint32_t second; } gsan_thing
int gsan_do(const gsan_thing *thing, int how)
";

    #[test]
    fn a_header_is_described_by_its_declarations() {
        assert_eq!(description(HEADER), DESCRIPTION);
        assert_eq!(version(HEADER).unwrap(), 3);
    }

    #[test]
    fn comments_spaces_and_order_may_change() {
        let mut lines: Vec<&str> = DESCRIPTION.lines().collect();
        lines.reverse();
        let other = description(
            &HEADER
                .replace("A thing.", "Another one.")
                .replace("    ", " "),
        );
        refuse_changes(&lines.join("\n"), &other).unwrap();
    }

    #[test]
    fn declarations_may_be_added() {
        let more = HEADER.replace("int gsan_do", "int gsan_more(void);\nint gsan_do");
        refuse_changes(DESCRIPTION, &description(&more)).unwrap();
    }

    #[test]
    fn structures_signatures_and_constants_may_not_change() {
        for (from, to) in [
            ("uint32_t second", "uint64_t second"),
            ("    uint32_t second;\n", ""),
            ("uint32_t second;", "uint32_t second; uint32_t third;"),
            ("int how", "long how"),
            ("int gsan_do", "int gsan_did"),
        ] {
            let changed = HEADER.replace(from, to);
            assert_ne!(changed, HEADER, "{from}");
            let error = refuse_changes(DESCRIPTION, &description(&changed)).unwrap_err();
            assert!(
                error.to_string().contains("Raise GSAN_ABI_VERSION"),
                "{from}"
            );
        }
    }
}
