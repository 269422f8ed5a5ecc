//! What the documents say: links lead somewhere, keys exist, commands print what is shown.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read the documents fails"
)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The repository.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::canonicalize(root).unwrap()
}

/// The documents, by their paths in the repository.
fn documents() -> Vec<PathBuf> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        names.collect::<Vec<_>>()
    };
    let mut all = [in_folder(""), in_folder("docs")].concat();
    all.retain(|path| path.extension().is_some_and(|end| end == "md"));
    all.sort();
    assert!(all.len() > 8, "{all:?}");
    all
}

fn text(document: &Path) -> String {
    fs::read_to_string(root().join(document)).unwrap()
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Where links lead: what is in `](…)`.
fn links(text: &str) -> Vec<String> {
    let of_line = |line: &str| {
        // Without code in the line, which may look like a link.
        let words: String = line.split('`').step_by(2).collect();
        let parts = words.split("](").skip(1);
        let ends = parts.filter_map(|part| part.split(')').next());
        ends.map(str::to_owned).collect::<Vec<_>>()
    };
    prose(text).flat_map(of_line).collect()
}

/// The names that headings can be linked by, as code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut wrong = Vec::new();
    for document in documents() {
        let own = text(&document);
        for link in links(&own) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => root().join(&document),
                _ => root().join(document.parent().unwrap()).join(file),
            };
            let found = match heading {
                "" => target.exists(),
                _ => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading)),
            };
            if !found {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_readme_links_every_page() {
    let linked = links(&text(Path::new("README.md")));
    for page in documents().iter().filter(|page| page.starts_with("docs")) {
        let name = page.to_str().unwrap();
        assert!(linked.iter().any(|link| link == name), "{name}");
    }
}

#[test]
fn keys_that_documents_name_exist() {
    let keys: BTreeSet<String> = gsan_config::keys::KEYS
        .iter()
        .map(|key| key.path())
        .collect();
    let sections = gsan_config::keys::SECTIONS
        .iter()
        .map(|section| section.name);
    let sections: BTreeSet<&str> = sections.collect();
    // Names of files, which look like keys.
    let files = [".rs", ".json", ".toml", ".md"];
    let mut wrong = Vec::new();
    for document in documents() {
        let text = text(&document);
        for quoted in text.split('`').skip(1).step_by(2) {
            let word = quoted.split([' ', '=', ')', '"']).next().unwrap_or("");
            let (section, key) = word.split_once('.').unwrap_or_default();
            let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if plain
                && sections.contains(section)
                && !keys.contains(word)
                && !files.iter().any(|end| word.ends_with(end))
            {
                wrong.push(format!("{}: {word}", document.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The sources of what programs print, each as one line, with the pieces of a text joined.
fn sources() -> String {
    let mut all = String::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "tests", ".git", "fixtures", "fuzz"].contains(&&*name) {
                folders.push(path);
            } else if [".rs", ".py"].iter().any(|end| name.ends_with(end)) {
                all.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let lines: Vec<&str> = all.lines().map(str::trim).collect();
    let joined = lines.join("\n").replace("\\\n", "").replace("\\\"", "\"");
    joined.replace("\"\nf\"", "").replace("\"\n\"", "")
}

#[test]
fn messages_that_need_an_explanation_exist() {
    let sources = sources();
    let page = text(Path::new("docs/troubleshooting.md"));
    let (mut wrong, mut count) = (Vec::new(), 0);
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    for message in rows.flat_map(|row| {
        let first = row.split(" | ").next().unwrap();
        first.split('`').skip(1).step_by(2).collect::<Vec<_>>()
    }) {
        for piece in message.split('…').map(str::trim) {
            // Short ones are everywhere, and names of counters have a page of their own.
            if piece.len() > 8 && !piece.contains("warning[") && !sources.contains(piece) {
                wrong.push(piece.to_owned());
            }
        }
        count += 1;
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count > 50, "{count}");
}

/// A kernel that pages show an error for.
const KERNEL: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
 wgmma.fence.sync.aligned;
 ret;
}
";

/// A command of a page, and what it is said to print.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The commands in the blocks of a page that are marked `console`.
fn shown(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut indent = None;
    for line in text.lines() {
        let unindented = line.trim_start();
        match indent {
            None if unindented == "```console" => indent = Some(line.len() - unindented.len()),
            None => {}
            Some(_) if unindented == "```" => indent = None,
            Some(spaces) => {
                let line = line.get(spaces..).unwrap_or("");
                match (line.strip_prefix("$ "), all.last_mut()) {
                    (Some(command), _) => all.push(Shown {
                        command: command.to_owned(),
                        output: Vec::new(),
                    }),
                    (None, Some(last)) => last.output.push(line.to_owned()),
                    (None, None) => panic!("output without a command: {line}"),
                }
            }
        }
    }
    all
}

/// Whether lines are as shown, where `…` stands for any number of them.
fn matches(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => match printed.split_first() {
            Some((line, others)) => first == line && matches(rest, others),
            None => false,
        },
    }
}

#[test]
fn commands_print_what_pages_show() {
    let mut count = 0;
    for document in documents() {
        let place = TempDir::new().unwrap();
        let examples = place.path().join("examples");
        std::os::unix::fs::symlink(root().join("examples"), examples).unwrap();
        fs::write(place.path().join("kernel.ptx"), KERNEL).unwrap();
        let mut code = String::new();
        for Shown { command, output } in shown(&text(&document)) {
            let printed = if command == "echo $?" {
                code.clone()
            } else {
                let Some(arguments) = command.strip_prefix("gsan ") else {
                    panic!("{}: `{command}` is not tried", document.display());
                };
                let file = place.path().join("printed");
                let to = File::create(&file).unwrap();
                let status = Command::new(env!("CARGO_BIN_EXE_gsan"))
                    .args(arguments.split_whitespace())
                    .current_dir(place.path())
                    .env_clear()
                    .env("PATH", "/usr/bin:/bin")
                    .stdin(Stdio::null())
                    .stderr(to.try_clone().unwrap())
                    .stdout(to)
                    .status()
                    .unwrap();
                code = format!("{}\n", status.code().unwrap());
                fs::read_to_string(file).unwrap()
            };
            let printed: Vec<&str> = printed.trim_end().lines().collect();
            let shown: Vec<String> = output
                .join("\n")
                .trim_end()
                .lines()
                .map(str::to_owned)
                .collect();
            assert!(
                matches(&shown, &printed),
                "{}: `{command}` prints\n{}\nshown is\n{}",
                document.display(),
                printed.join("\n"),
                shown.join("\n")
            );
            count += 1;
        }
    }
    assert!(count > 8);
}
