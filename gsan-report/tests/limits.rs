//! `docs/limits.md` describes every loss of coverage, in the words of the reports.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the page fails")]

use std::path::Path;

use gsan_core::loss::Loss;
use gsan_report::loss::LossName;

/// The page, by its sections about counters: name and text with single spaces.
fn sections() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, counters) = text.split_once("\n## Counters\n").unwrap();
    let (counters, _) = counters.split_once("\n## ").unwrap();
    let sections = counters.split("\n### `").skip(1).map(|section| {
        let (name, text) = section.split_once("`\n").unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        (name.to_owned(), words.join(" "))
    });
    sections.collect()
}

#[test]
fn every_counter_has_a_section_in_the_order_of_their_numbers() {
    let named: Vec<String> = sections().into_iter().map(|(name, _)| name).collect();
    let known: Vec<&str> = Loss::ALL.iter().map(|loss| loss.name()).collect();
    assert_eq!(named, known);
}

#[test]
fn each_section_says_what_reports_say_and_whether_races_are_hidden() {
    for (loss, (name, text)) in Loss::ALL.into_iter().zip(sections()) {
        let meaning = LossName(loss).meaning(2).replacen("2 ", "N ", 1);
        assert!(
            text.starts_with(&format!("{meaning}.")),
            "{name}: {meaning}"
        );
        let cure = LossName(loss).cure();
        assert!(
            text.contains(&format!("What to do: {cure}")),
            "{name}: {cure}"
        );
        for part in ["- When: ", "- Hides races: "] {
            assert!(text.contains(part), "{name}: {part}");
        }
    }
}
