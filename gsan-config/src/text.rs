//! The configuration as text: the template, the effective values, the documentation.

use std::fmt::Write as _;

use crate::keys::{KEYS, Key, SECTIONS, Section};
use crate::load::Loaded;
use crate::origin::Origin;

const SUPPRESSION: &str = "\
# [[report.suppress]]
# kind = \"write-after-write\"
# file = \"*/third_party/*\"
# kernel = \"histogram_*\"
# reason = \"benign: idempotent writes\"
";

fn keys_of(section: &Section) -> impl Iterator<Item = &'static Key> {
    let name = section.name;
    KEYS.iter().filter(move |key| key.section == name)
}

/// A file with every key, its meaning and its default.
pub fn template() -> String {
    let mut text = String::from(
        "# Configuration of GSan. Every value here is the default.\n\
         # Environment variables (GSAN_SECTION_KEY) and `-c section.key=value` win over this file.\n",
    );
    for section in SECTIONS {
        push(
            &mut text,
            format_args!("\n# {}\n[{}]\n", section.doc, section.name),
        );
        for key in keys_of(section) {
            for line in key.doc.lines() {
                push(&mut text, format_args!("# {}\n", line.trim()));
            }
            push(&mut text, format_args!("# Takes {}.\n", key.expected()));
            // A list of tables is written as tables, which cannot stand beside a value.
            if key.name == "suppress" {
                text.push_str(SUPPRESSION);
            } else {
                push(&mut text, format_args!("{} = {}\n", key.name, key.default));
            }
        }
    }
    text
}

/// The effective values, as TOML, each with its origin beside it.
pub fn effective(loaded: &Loaded) -> String {
    let lines: Vec<(&Key, &Origin, String)> = loaded
        .origins()
        .map(|(key, origin)| {
            let line = format!("{} = {}", key.name, key.show(&loaded.config));
            (key, origin, line)
        })
        .collect();
    /// Longer lines do not push the others' comments away.
    const WIDEST: usize = 40;
    let width = lines
        .iter()
        .map(|(_, _, line)| line.chars().count())
        .filter(|&width| width <= WIDEST)
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for section in SECTIONS {
        if !text.is_empty() {
            text.push('\n');
        }
        push(&mut text, format_args!("[{}]\n", section.name));
        for (_, origin, line) in lines.iter().filter(|(key, ..)| key.section == section.name) {
            let origin = origin.to_string().replace(char::is_control, "?");
            push(&mut text, format_args!("{line:width$}  # {origin}\n"));
        }
    }
    text
}

/// The documentation of every key, as Markdown.
pub fn documentation() -> String {
    let mut text = String::from(
        "# Configuration\n\
         \n\
         A value comes from the command line (`-c section.key=value`), else from the environment\n\
         (`GSAN_SECTION_KEY`), else from the configuration file, else it is the default. The file is the one that\n\
         `--config` names, else the one that the environment variable `GSAN_CONFIG` names, else `gsan.toml` in the\n\
         working directory or in one above it. `gsan config` prints the effective values and where each came from;\n\
         `gsan config --init` writes a file with every key and its default.\n\
         \n\
         In the environment and on the command line, text needs no quotation marks, and a list of texts may be written\n\
         with commas: `-c report.formats=human,json`. An empty variable counts as not set. Sizes are whole numbers with\n\
         a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB`, `PiB`.\n",
    );
    for section in SECTIONS {
        push(
            &mut text,
            format_args!("\n## `[{}]`\n\n{}\n", section.name, section.doc),
        );
        for key in keys_of(section) {
            let doc: Vec<&str> = key.doc.lines().map(str::trim).collect();
            push(
                &mut text,
                format_args!("\n### `{}`\n\n{}\n\n", key.path(), doc.join("\n")),
            );
            push(&mut text, format_args!("- Takes {}.\n", key.expected()));
            push(&mut text, format_args!("- Default: `{}`\n", key.default));
            push(
                &mut text,
                format_args!("- Environment: `{}`", key.variable()),
            );
            for foreign in key.foreign_variables {
                push(&mut text, format_args!(", else `{foreign}`"));
            }
            text.push('\n');
            if key.name == "suppress" {
                let example = SUPPRESSION.replace("# ", "");
                push(&mut text, format_args!("\n```toml\n{example}```\n"));
            }
        }
    }
    text
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a String does not fail");
}
