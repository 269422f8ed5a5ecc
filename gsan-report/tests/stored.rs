//! Stored reports: written and read again, checked against their schemas, and made by strangers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod arbitrary;

use std::path::Path;
use std::time::{Duration, Instant};

use gsan_config::pattern::{Pattern, Suppression};
use gsan_report::builder::{Builder, Merged, Overlap};
use gsan_report::human::{self, Look};
use gsan_report::json::{self, ReadError};
use gsan_report::model::{Place, Report, Summary, Unchecked};
use gsan_report::sarif;
use gsan_report::source::Sources;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use uuid::Uuid;

fn validator(schema: &str) -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
}

fn assert_valid(validator: &jsonschema::Validator, text: &str) {
    let value: Value = serde_json::from_str(text).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_types() {
    expect_test::expect_file!["../report.schema.json"].assert_eq(&json::schema());
}

#[test]
fn what_is_written_and_read_again_is_equal_and_obeys_the_schema() {
    let schema = validator(&json::schema());
    proptest!(ProptestConfig::with_cases(64), |(report in arbitrary::report())| {
        let text = json::write(&report);
        prop_assert_eq!(json::read(text.as_bytes()).unwrap(), report);
        assert_valid(&schema, &text);
    });
}

#[test]
fn sarif_obeys_the_published_schema() {
    let schema = validator(include_str!("data/sarif-schema-2.1.0.json"));
    proptest!(ProptestConfig::with_cases(64), |(report in arbitrary::report())| {
        assert_valid(&schema, &sarif::write(&report, Path::new("/home/me")));
    });
}

/// How often anything was seen, kept or not.
fn occurrences(report: &Report) -> u64 {
    let races = report.races.iter().map(|race| race.times);
    let possible = report.possible_races.iter().map(|item| item.race.times);
    let faults = report.faults.iter().map(|fault| fault.times);
    let hidden = report.suppressions.iter().map(|rule| rule.times);
    let kept: u64 = races.chain(possible).chain(faults).chain(hidden).sum();
    kept + report.summary.not_kept
}

/// The report with counts that can be summed without saturating.
fn with_small_counts(mut report: Report) -> Report {
    let races = report.races.iter_mut().map(|race| &mut race.times);
    let possible = report
        .possible_races
        .iter_mut()
        .map(|item| &mut item.race.times);
    let faults = report.faults.iter_mut().map(|fault| &mut fault.times);
    let hidden = report.suppressions.iter_mut().map(|rule| &mut rule.times);
    races
        .chain(possible)
        .chain(faults)
        .chain(hidden)
        .for_each(|times| *times %= 1000);
    report.summary.not_kept %= 1000;
    report
}

#[test]
fn merging_loses_no_count() {
    proptest!(ProptestConfig::with_cases(64), |(
        one in arbitrary::report().prop_map(with_small_counts),
        other in arbitrary::report().prop_map(with_small_counts),
        limit in 0..4_usize,
        suppress in any::<bool>(),
    )| {
        let suppressions = suppress.then(suppression);
        let merge = |parts: [&Report; 2]| {
            let mut builder = Builder::new(limit, suppressions.as_slice());
            for part in parts {
                assert_eq!(builder.merge(part.clone()), Ok(Merged::Added));
            }
            builder.finish()
        };
        let (forth, back) = (merge([&one, &other]), merge([&other, &one]));
        prop_assert_eq!(occurrences(&forth), occurrences(&one) + occurrences(&other));
        prop_assert_eq!(occurrences(&back), occurrences(&forth));
        prop_assert_eq!(back.losses, forth.losses);
        prop_assert_eq!(back.summary.seeds, forth.summary.seeds);
        prop_assert!(forth.races.len() <= limit && forth.faults.len() <= limit);
    });
}

#[test]
fn merging_a_report_again_changes_nothing() {
    proptest!(ProptestConfig::with_cases(64), |(reports in vec(arbitrary::report(), 1..5))| {
        let mut builder = Builder::new(usize::MAX, &[]);
        for report in &reports {
            prop_assert_eq!(builder.merge(report.clone()), Ok(Merged::Added));
        }
        let once = builder.clone().finish();
        for report in reports.into_iter().filter(|report| !report.runs.is_empty()) {
            prop_assert_eq!(builder.merge(report), Ok(Merged::Known));
        }
        prop_assert_eq!(builder.merge(once.clone()).is_ok(), true);
        if !once.runs.is_empty() {
            prop_assert_eq!(builder.finish(), once);
        }
    });
}

#[test]
fn a_report_that_shares_some_runs_is_refused_and_adds_nothing() {
    let of_runs = |runs: &[u128]| Report {
        runs: runs.iter().copied().map(Uuid::from_u128).collect(),
        summary: Summary {
            processes: runs.len() as u64,
            ..Summary::default()
        },
        ..Report::default()
    };
    let mut builder = Builder::new(1, &[]);
    assert_eq!(builder.merge(of_runs(&[1, 2])), Ok(Merged::Added));
    assert_eq!(builder.merge(of_runs(&[2, 3])), Err(Overlap));
    assert_eq!(builder.merge(of_runs(&[1, 2, 3])), Err(Overlap));
    assert_eq!(builder.merge(of_runs(&[2])), Ok(Merged::Known));
    assert_eq!(builder.merge(of_runs(&[3])), Ok(Merged::Added));
    assert_eq!(builder.finish(), of_runs(&[1, 2, 3]));
}

#[test]
fn sarif_says_what_was_not_checked() {
    let whole = sarif_of(&Report::default());
    assert_eq!(whole["invocations"][0]["executionSuccessful"], true);
    let report = Report {
        unchecked: vec![
            Unchecked {
                file: "a.ptx".to_owned(),
                reason: "`wgmma` is not supported yet".to_owned(),
                place: Some(Place {
                    file: "a.ptx".to_owned(),
                    line: 7,
                    column: Some(3),
                    ptx: None,
                }),
                help: Some("use mma".to_owned()),
            },
            Unchecked {
                file: "b.ptx".to_owned(),
                reason: "no such file".to_owned(),
                place: None,
                help: None,
            },
        ],
        ..Report::default()
    };
    let invocation = &sarif_of(&report)["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let physical = |uri: &str| serde_json::json!({ "artifactLocation": { "uri": uri } });
    let mut first = physical("a.ptx");
    first["region"] = serde_json::json!({ "startLine": 7, "startColumn": 3 });
    let notification = |text: &str, location: Value| {
        serde_json::json!({
            "descriptor": { "id": "not-checked" },
            "level": "error",
            "message": { "text": text },
            "locations": [{ "physicalLocation": location }],
        })
    };
    assert_eq!(
        invocation["toolExecutionNotifications"],
        serde_json::json!([
            notification(
                "`a.ptx` was not checked: `wgmma` is not supported yet. Use mma.",
                first
            ),
            notification("`b.ptx` was not checked: no such file.", physical("b.ptx")),
        ])
    );
}

/// The one run of the report's SARIF log.
fn sarif_of(report: &Report) -> Value {
    let log: Value = serde_json::from_str(&sarif::write(report, Path::new("/"))).unwrap();
    log["runs"][0].clone()
}

#[test]
fn what_is_no_report_is_said_with_its_place() {
    let good = json::write(&Report::default());
    let with = |old: &str, new: &str| {
        assert!(good.contains(old), "{old} is not in {good}");
        good.replace(old, new)
    };
    for (text, line, expected) in [
        (String::new(), 1, "EOF while parsing a value"),
        ("[]".to_owned(), 1, "expected a JSON object"),
        ("{}".to_owned(), 1, "missing field `version`"),
        (
            with("\"version\": 2", "\"version\": 18446744073709551616"),
            2,
            "invalid type: floating point",
        ),
        (
            with("\"launches\": 0", "\"launches\": -1"),
            7,
            "invalid value: integer `-1`, expected u64",
        ),
        (
            with("\"launches\": 0", "\"launches\": 1e999"),
            7,
            "number out of range",
        ),
        (
            with("\"races\": []", "\"races\": [], \"racers\": []"),
            16,
            "unknown field `racers`, expected one of `version`, `tool`, `runs`, `summary`",
        ),
        (
            with(
                "\"losses\": []",
                "\"losses\": [{\"loss\": \"no-luck\", \"times\": 1}]",
            ),
            19,
            "unknown variant `no-luck`, expected one of `no-slot`",
        ),
    ] {
        match json::read(text.as_bytes()) {
            Err(ReadError::Malformed {
                line: found,
                message,
                ..
            }) => {
                assert_eq!(found, line, "{text}");
                assert!(message.starts_with(expected), "{text}: {message}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_foreign_version_is_refused_whatever_else_it_holds() {
    for (version, shape) in [
        (0, "{}"),
        (1, "[]"),
        (3, "{\"lanes\": [1]}"),
        (u64::MAX, "[[]]"),
    ] {
        let text = format!("{{\"races\": {shape}, \"version\": {version}}}");
        assert_eq!(
            json::read(text.as_bytes()).unwrap_err().to_string(),
            format!("this is version {version} of the report format; only version 2 can be read")
        );
    }
}

#[test]
fn a_truncated_report_is_an_error_wherever_it_ends() {
    let report = sample_reports(1, 4).pop().unwrap();
    let text = json::write(&report);
    let body = text.trim_end().len();
    for end in 0..body {
        assert!(json::read(&text.as_bytes()[..end]).is_err(), "cut at {end}");
    }
    assert_eq!(json::read(&text.as_bytes()[..body]).unwrap(), report);
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = "[".repeat(1_000_000);
    let inside =
        json::write(&Report::default()).replace("\"races\": []", &format!("\"races\": {deep}"));
    let unknown = format!("{{\"version\": 2, \"unknown\": {deep}");
    for text in [&deep, &inside, &unknown] {
        assert!(matches!(
            json::read(text.as_bytes()),
            Err(ReadError::Malformed { .. })
        ));
    }
}

/// Reports of every shape, the same for the same seed.
fn sample_reports(seed: u8, count: usize) -> Vec<Report> {
    let rng = proptest::test_runner::TestRng::from_seed(
        proptest::test_runner::RngAlgorithm::ChaCha,
        &[seed; 32],
    );
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    (0..count)
        .map(|_| arbitrary::report().new_tree(&mut runner).unwrap().current())
        .collect()
}

/// Text that has broken readers before.
const NASTY: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "-0.0",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
    "99999999999999999999999999999999999999999999",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u001b[2J\"",
    "\"/dev/stdin\"",
    "\"0x\"",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":",
    "\u{feff}",
    "\u{202e}",
    ",",
    "\"",
];

/// Changes some bytes, as a broken disk or a hostile author would.
fn mutate_bytes(bytes: &mut Vec<u8>, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        let end = (at + rng.random_range(0..32)).min(bytes.len());
        match rng.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copied = bytes[at..end].to_vec();
                let to = rng.random_range(0..=bytes.len());
                bytes.splice(to..to, copied);
            }
            3 => bytes.truncate(at),
            _ => {
                let nasty = NASTY.choose(rng).unwrap();
                bytes.splice(at..end, nasty.bytes());
            }
        }
    }
}

/// Changes some leaves of a JSON value to others that often still make a report.
fn mutate_value(value: &mut Value, rng: &mut StdRng) {
    match value {
        Value::Array(items) => {
            if !items.is_empty() && rng.random_ratio(1, 8) {
                let copied = items.choose(rng).unwrap().clone();
                items.push(copied);
            }
            items.iter_mut().for_each(|item| mutate_value(item, rng));
        }
        Value::Object(fields) => {
            if !fields.is_empty() && rng.random_ratio(1, 64) {
                let key = fields
                    .keys()
                    .nth(rng.random_range(0..fields.len()))
                    .unwrap()
                    .clone();
                fields.remove(&key);
            }
            fields.values_mut().for_each(|item| mutate_value(item, rng));
        }
        Value::Number(_) if rng.random_ratio(1, 4) => {
            *value = [
                0,
                1,
                2,
                7,
                u64::from(u16::MAX),
                u64::from(u32::MAX),
                u64::MAX,
            ]
            .choose(rng)
            .copied()
            .unwrap()
            .into();
        }
        Value::String(text) if rng.random_ratio(1, 8) => {
            *text = match rng.random_range(0..6) {
                0 => arbitrary::FILE.to_owned(),
                1 => "x".repeat(rng.random_range(0..5_000)),
                2 => "\u{9b}31m\u{85}\u{2028}\u{200f}\u{fe0f}漢字\u{301}".to_owned(),
                3 => format!("{text}\n{text}"),
                4 => format!("{:#x}", rng.random::<u64>()),
                _ => String::new(),
            };
        }
        _ => {}
    }
}

/// One that matches some of the findings of arbitrary reports.
fn suppression() -> Suppression {
    Suppression {
        kind: Some(Pattern::new("*-after-write").unwrap()),
        file: Some(Pattern::new("k*").unwrap()),
        kernel: None,
        reason: "known".to_owned(),
    }
}

/// Does with a stored report whatever can be done with one.
fn use_report(bytes: &[u8], sources: &mut Sources, rng: &mut StdRng) -> bool {
    let Ok(report) = json::read(bytes) else {
        return false;
    };
    let look = Look {
        color: rng.random(),
        width: rng.random_range(0..500),
        context_lines: *[0, 2, 100].choose(rng).unwrap(),
    };
    let text = human::report(&report, sources, &look);
    let obeyed = |character: char| character.is_control() && character != '\n';
    assert!(look.color || !text.contains(obeyed), "{text:?}");
    sarif::write(&report, Path::new("/"));
    assert_eq!(json::read(json::write(&report).as_bytes()).unwrap(), report);
    let suppressions = [suppression()];
    let suppressions = &suppressions[rng.random_range(0..=1)..];
    let mut builder = Builder::new(rng.random_range(0..4), suppressions);
    let nameless = report.runs.is_empty();
    assert_eq!(builder.merge(report.clone()), Ok(Merged::Added));
    let again = if nameless {
        Merged::Added
    } else {
        Merged::Known
    };
    assert_eq!(builder.merge(report), Ok(again));
    builder.finish();
    true
}

/// Runs for `GSAN_FUZZ_SECONDS`, else for a moment.
#[test]
fn hostile_reports_never_panic() {
    let seconds = std::env::var("GSAN_FUZZ_SECONDS").map_or(1, |text| {
        text.parse().expect("GSAN_FUZZ_SECONDS is a number")
    });
    let seed = match seconds {
        1 => 1,
        _ => rand::random(),
    };
    println!("seed {seed}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rng = StdRng::seed_from_u64(seed);
    let texts: Vec<String> = sample_reports(rng.random(), 64)
        .iter()
        .map(json::write)
        .collect();
    let mut sources = Sources::new("/nonexistent");
    let long = "x".repeat(100_000);
    sources.insert(
        arbitrary::FILE,
        format!("\tif a:\r\n\t\u{1b}b(ü, 漢字, \u{202e})\n\n{long}y = 1;{long}\n \u{9b}\u{301}\n\t\t\t\n"),
    );
    let (mut tried, mut read) = (0_u64, 0_u64);
    while Instant::now() < end {
        for text in &texts {
            let mut bytes = if rng.random() {
                let mut value: Value = serde_json::from_str(text).unwrap();
                mutate_value(&mut value, &mut rng);
                serde_json::to_vec(&value).unwrap()
            } else {
                text.clone().into_bytes()
            };
            if rng.random() {
                mutate_bytes(&mut bytes, &mut rng);
            }
            tried += 1;
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                use_report(&bytes, &mut sources, &mut rng)
            }));
            match result {
                Ok(was_read) => read += u64::from(was_read),
                Err(panic) => {
                    println!("{}", String::from_utf8_lossy(&bytes));
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    println!("{tried} reports tried, {read} of them readable");
    assert!(read > 0, "no mutated report could be read");
}
