//! Reports as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), which code hosts show
//! on the lines that races happened on.

use std::path::{Component, Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::model::{
    Fault, FaultKind, Place, PossibleRace, Race, RaceKind, Report, Side, Unchecked, Who,
};
use crate::words;

/// Where the published schema is.
const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/\
                      sarif-schema-2.1.0.json";

/// What need not be escaped in a path (RFC 3986, "unreserved", and the separator).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// The report as SARIF, indented, with a newline at the end.
///
/// Files under `root` are named relative to it, as code hosts want them.
pub fn write(report: &Report, root: &Path) -> String {
    let log = Log { root }.log(report);
    let mut text = serde_json::to_string_pretty(&log).expect("a JSON value always serializes");
    text.push('\n');
    text
}

struct Log<'a> {
    root: &'a Path,
}

impl Log<'_> {
    fn log(&self, report: &Report) -> Value {
        let races = report.races.iter().map(|race| self.race(race));
        let faults = report.faults.iter().map(|fault| self.fault(fault));
        let possible = report
            .possible_races
            .iter()
            .map(|possible| self.possible_race(possible));
        let results: Vec<Value> = races.chain(faults).chain(possible).collect();
        json!({
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [{
                "tool": {
                    "driver": {
                        "name": "GSan",
                        "version": report.tool,
                        "rules": rules(),
                    },
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{
                    "executionSuccessful": report.is_complete(),
                    "toolExecutionNotifications": self.notifications(report),
                }],
                "results": results,
            }],
        })
    }

    fn race(&self, race: &Race) -> Value {
        self.any_race(race, "error", words::title(race), None)
    }

    fn possible_race(&self, PossibleRace { reason, race }: &PossibleRace) -> Value {
        let title = format!("possible {}", words::title(race));
        self.any_race(race, "note", title, Some(reason))
    }

    fn any_race(&self, race: &Race, level: &str, title: String, reason: Option<&str>) -> Value {
        let later = words::later(race);
        let earlier = format!("earlier {}", words::earlier(race));
        let mut text = format!("{title}: {later}; {earlier}.");
        let allocation = race.range.allocation.as_ref().map(words::allocation);
        for sentence in [allocation, words::atomics(race)].into_iter().flatten() {
            text.push_str(&format!(" {}.", capitalized(&sentence)));
        }
        if let Some(reason) = reason {
            text.push_str(&format!(" Not certain, because {reason}."));
        }
        let side = |side: &Side, label: String| {
            self.location(side.place.as_ref(), Some(&side.who), Some(label))
        };
        let related: Vec<Value> = side(&race.earlier, earlier).into_iter().collect();
        let primary: Vec<Value> = side(&race.later, later).into_iter().collect();
        result(Finding {
            rule: race.kind.name(),
            level,
            text,
            primary,
            related,
            times: race.times,
            replay: race.replay.as_ref().map(|replay| replay.command.as_str()),
        })
    }

    fn fault(&self, fault: &Fault) -> Value {
        let mut text = format!("{}.", words::fault(fault));
        if let Some(who) = &fault.who {
            text.push_str(&format!(" By {}.", words::who(who, true)));
        }
        for sentence in fault.waiting.iter().map(words::waiting) {
            text.push_str(&format!(" {}.", capitalized(&sentence)));
        }
        for note in &fault.notes {
            text.push_str(&format!(" {}.", capitalized(note.trim_end_matches('.'))));
        }
        let mut waiting = fault.waiting.iter().filter_map(|waiting| {
            self.location(
                waiting.place.as_ref(),
                Some(&waiting.who),
                Some(words::waiting(waiting)),
            )
        });
        // A deadlock has no place of its own: the first of those who wait stands for it.
        let primary = self
            .location(fault.place.as_ref(), fault.who.as_ref(), None)
            .or_else(|| waiting.next());
        result(Finding {
            rule: fault.kind.name(),
            level: "error",
            text,
            primary: primary.into_iter().collect(),
            related: waiting.collect(),
            times: fault.times,
            replay: fault.replay.as_ref().map(|replay| replay.command.as_str()),
        })
    }

    /// What was not checked, and what may have been missed.
    fn notifications(&self, report: &Report) -> Vec<Value> {
        let unchecked = report.unchecked.iter().map(|input| self.unchecked(input));
        let losses = report.losses.iter().map(|loss| {
            let meaning = loss.loss.meaning(loss.times);
            let (level, what) = match loss.loss.is_usual() {
                true => ("note", capitalized(&meaning)),
                false => ("warning", format!("Coverage lost: {meaning}")),
            };
            let text = format!("{what}. {}.", capitalized(loss.loss.cure()));
            json!({
                "descriptor": { "id": loss.loss.0.name() },
                "level": level,
                "message": { "text": text },
            })
        });
        unchecked.chain(losses).collect()
    }

    fn unchecked(&self, input: &Unchecked) -> Value {
        let Unchecked {
            file,
            reason,
            place,
            help,
        } = input;
        let mut text = format!("`{file}` was not checked: {reason}.");
        if let Some(help) = help {
            text.push_str(&format!(" {}.", capitalized(help)));
        }
        let location = match place {
            Some(place) => self.physical(place),
            None => json!({ "artifactLocation": { "uri": self.uri(file) } }),
        };
        json!({
            "descriptor": { "id": "not-checked" },
            "level": "error",
            "message": { "text": text },
            "locations": [{ "physicalLocation": location }],
        })
    }

    /// A location, if anything is known of it.
    fn location(
        &self,
        place: Option<&Place>,
        who: Option<&Who>,
        message: Option<String>,
    ) -> Option<Value> {
        let kernel = who.and_then(|who| who.kernel.as_deref());
        if place.is_none() && kernel.is_none() {
            return None;
        }
        let mut location = Map::new();
        if let Some(place) = place {
            location.insert("physicalLocation".to_owned(), self.physical(place));
        }
        if let Some(kernel) = kernel {
            let logical = json!([{ "fullyQualifiedName": kernel, "kind": "function" }]);
            location.insert("logicalLocations".to_owned(), logical);
        }
        if let Some(text) = message {
            location.insert("message".to_owned(), json!({ "text": text }));
        }
        Some(location.into())
    }

    fn physical(&self, place: &Place) -> Value {
        let mut physical = json!({ "artifactLocation": { "uri": self.uri(&place.file) } });
        // SARIF counts from 1; 0 comes from compilers that do not know.
        if place.line > 0 {
            physical["region"] = json!({ "startLine": place.line });
            if let Some(column) = place.column.filter(|&column| column > 0) {
                physical["region"]["startColumn"] = column.into();
            }
        }
        physical
    }

    fn uri(&self, file: &str) -> String {
        let path = Path::new(file);
        let relative = path.strip_prefix(self.root).ok().filter(|rest| {
            path.is_absolute() && !rest.components().any(|part| part == Component::ParentDir)
        });
        let (scheme, path) = match relative.and_then(Path::to_str) {
            Some(inside) => ("", inside),
            None if path.is_absolute() => ("file://", file),
            None => ("", file),
        };
        format!("{scheme}{}", utf8_percent_encode(path, ESCAPED))
    }
}

struct Finding<'a> {
    rule: &'static str,
    level: &'a str,
    text: String,
    primary: Vec<Value>,
    related: Vec<Value>,
    times: u64,
    replay: Option<&'a str>,
}

fn result(finding: Finding<'_>) -> Value {
    let Finding {
        rule,
        level,
        text,
        primary,
        related,
        times,
        replay,
    } = finding;
    let mut result = json!({
        "ruleId": rule,
        "level": level,
        "message": { "text": text },
        "locations": primary,
        "relatedLocations": related,
        "occurrenceCount": times.max(1),
    });
    if let Some(command) = replay {
        result["properties"] = json!({ "replay": command });
    }
    result
}

fn rules() -> Vec<Value> {
    let races = RaceKind::ALL.iter().map(|&kind| {
        let text = match kind {
            RaceKind::ReadAfterWrite => "A read and an earlier write that nothing orders",
            RaceKind::WriteAfterRead => "A write and an earlier read that nothing orders",
            RaceKind::WriteAfterWrite => "Two writes that nothing orders",
        };
        (kind.name(), text)
    });
    let faults = FaultKind::ALL
        .iter()
        .map(|kind| (kind.name(), kind.sentence()));
    races
        .chain(faults)
        .map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } }))
        .collect()
}

fn capitalized(sentence: &str) -> String {
    let mut characters = sentence.chars();
    characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(characters)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_under_the_root_are_named_relative_to_it() {
        let log = Log {
            root: Path::new("/home/me/project"),
        };
        for (file, uri) in [
            ("kernels/splitk.py", "kernels/splitk.py"),
            ("/home/me/project/kernels/splitk.py", "kernels/splitk.py"),
            (
                "/home/me/project/../other/a.py",
                "file:///home/me/project/../other/a.py",
            ),
            ("/usr/lib/a b.py", "file:///usr/lib/a%20b.py"),
            ("a:b/ü.py", "a%3Ab/%C3%BC.py"),
            ("<unknown>", "%3Cunknown%3E"),
        ] {
            assert_eq!(log.uri(file), uri);
        }
    }
}
