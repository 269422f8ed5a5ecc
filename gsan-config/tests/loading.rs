//! Values from every source, and what is said of wrong ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use gsan_config::error::Problem;
use gsan_config::keys::KEYS;
use gsan_config::size::Size;
use gsan_config::value::{Format, OnRace};
use gsan_config::{Config, Error, Inputs, Loaded, Origin, text};
use proptest::prelude::*;
use tempfile::TempDir;

/// Inputs with a file of the given text.
fn file(text: &str) -> (TempDir, Inputs) {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("gsan.toml"), text).unwrap();
    let inputs = Inputs {
        directory: directory.path().to_owned(),
        ..Inputs::default()
    };
    (directory, inputs)
}

fn environment(pairs: &[(&str, &str)]) -> Inputs {
    Inputs {
        directory: "/nonexistent".into(),
        environment: pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..Inputs::default()
    }
}

fn command_line(assignments: &[&str]) -> Inputs {
    Inputs {
        directory: "/nonexistent".into(),
        assignments: assignments.iter().map(ToString::to_string).collect(),
        ..Inputs::default()
    }
}

fn load(inputs: &Inputs) -> Loaded {
    Loaded::new(inputs).unwrap_or_else(|error| panic!("{error}"))
}

fn origin_of(loaded: &Loaded, path: &str) -> Origin {
    let (_, origin) = loaded
        .origins()
        .find(|(key, _)| key.path() == path)
        .unwrap();
    origin.clone()
}

/// The error for a file of the given text, its path left out.
fn file_error(text: &str) -> String {
    let mut loaded = Loaded::default();
    let error = loaded.apply_file(Path::new("gsan.toml"), text).unwrap_err();
    let excerpt = error.excerpt.as_ref().unwrap();
    assert!(excerpt.text.get(excerpt.span.clone()).is_some());
    error.to_string()
}

#[test]
fn without_any_source_values_are_the_defaults() {
    let loaded = load(&command_line(&[]));
    assert_eq!(loaded.config, Config::default());
    assert!(
        loaded
            .origins()
            .all(|(_, origin)| *origin == Origin::Default)
    );
    assert_eq!(loaded.file, None);
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = Config::default();
    assert_eq!(config.shadow.reserve.bytes(), 8 << 40);
    assert_eq!(config.clock.publications, 65_536);
    assert_eq!(config.clock.snapshot_memory, Size(256 << 20));
    assert_eq!(config.launch.slots_per_sm, 16);
    assert_eq!(config.report.limit, 100);
    assert_eq!(config.report.exit_code, 66);
    assert_eq!(config.report.formats, [Format::Human]);
    assert!(!config.report.strict);
}

#[test]
fn the_template_parses_to_the_defaults() {
    let (_directory, inputs) = file(&text::template());
    assert_eq!(load(&inputs).config, Config::default());
}

#[test]
fn the_examples_of_the_template_are_valid() {
    let template = text::template();
    let start = template.find("# [[report.suppress]]").unwrap();
    let example = template[start..].replace("# ", "");
    let (_directory, inputs) = file(&example);
    let suppressions = load(&inputs).config.report.suppress;
    assert_eq!(suppressions.len(), 1);
    assert_eq!(suppressions[0].reason, "benign: idempotent writes");
}

#[test]
fn the_documentation_in_the_repository_is_current() {
    expect_test::expect_file!["../../docs/configuration.md"].assert_eq(&text::documentation());
}

#[test]
fn the_command_line_wins_over_the_environment_over_the_file() {
    let (directory, mut inputs) =
        file("[report]\nlimit = 1\nexit_code = 2\nstrict = true\n[sampling]\nseed = 3\n");
    inputs.environment = vec![
        ("GSAN_REPORT_LIMIT".into(), "10".into()),
        ("GSAN_REPORT_EXIT_CODE".into(), "20".into()),
    ];
    inputs.assignments = vec!["report.limit=100".into(), "report.limit=200".into()];
    let loaded = load(&inputs);
    let report = &loaded.config.report;
    assert_eq!(
        (report.limit, report.exit_code, report.strict),
        (200, 20, true)
    );
    assert_eq!(origin_of(&loaded, "report.limit"), Origin::CommandLine);
    assert_eq!(
        origin_of(&loaded, "report.exit_code").to_string(),
        "environment variable GSAN_REPORT_EXIT_CODE"
    );
    assert_eq!(
        origin_of(&loaded, "report.strict"),
        Origin::File {
            path: directory.path().join("gsan.toml"),
            line: 4,
            column: 1
        }
    );
    assert_eq!(origin_of(&loaded, "report.path"), Origin::Default);
}

#[test]
fn variables_of_triton_count_below_our_own() {
    let triton = [
        ("TRITON_GSAN_SEED", "7"),
        ("TRITON_GSAN_CLOCK_BUFFER_SIZE", "1024"),
    ];
    let loaded = load(&environment(&triton));
    assert_eq!(loaded.config.sampling.seed, 7);
    assert_eq!(loaded.config.clock.publications, 1024);
    assert_eq!(
        origin_of(&loaded, "sampling.seed").to_string(),
        "environment variable TRITON_GSAN_SEED"
    );
    let both = [triton[0], ("GSAN_SAMPLING_SEED", "8")];
    assert_eq!(load(&environment(&both)).config.sampling.seed, 8);
}

#[test]
fn an_empty_variable_says_nothing() {
    let loaded = load(&environment(&[
        ("GSAN_SAMPLING_SEED", ""),
        ("TRITON_GSAN_SEED", "7"),
        ("GSAN_CONFIG", ""),
    ]));
    assert_eq!(loaded.config.sampling.seed, 7);
}

#[test]
fn plain_text_needs_no_quotation_marks() {
    let config = load(&command_line(&[
        "report.path=out dir/r.json",
        "report.formats=human,json",
        "report.on_race=halt",
        "shadow.reserve=1TiB",
        "clock.private_memory=1048576",
        "topology.device_ranks={0 = 3, 1 = 2}",
        "sampling.seed=18446744073709551615",
        "report.suppress=[{kind = '*-after-write', reason = 'known'}]",
    ]))
    .config;
    assert_eq!(config.report.path, Path::new("out dir/r.json"));
    assert_eq!(config.report.formats, [Format::Human, Format::Json]);
    assert_eq!(config.report.on_race, OnRace::Halt);
    assert_eq!(config.shadow.reserve.bytes(), 1 << 40);
    assert_eq!(config.clock.private_memory, Size(1 << 20));
    assert_eq!(config.topology.device_ranks, [(0, 3), (1, 2)].into());
    assert_eq!(config.sampling.seed, u64::MAX);
    assert_eq!(config.report.suppress.len(), 1);
    let quoted = load(&command_line(&[
        "report.path=\"a\\tb\"",
        "report.formats=[\"sarif\"]",
    ]))
    .config;
    assert_eq!(quoted.report.path, Path::new("a\tb"));
    assert_eq!(quoted.report.formats, [Format::Sarif]);
}

#[test]
fn the_file_is_found_in_a_directory_above() {
    let (directory, mut inputs) = file("[report]\nlimit = 5\n");
    let below = directory.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    inputs.directory = below.clone();
    assert_eq!(load(&inputs).config.report.limit, 5);
    fs::write(below.join("gsan.toml"), "[report]\nlimit = 6\n").unwrap();
    assert_eq!(load(&inputs).config.report.limit, 6);
    inputs.environment = vec![("GSAN_CONFIG".into(), "../../gsan.toml".into())];
    assert_eq!(load(&inputs).config.report.limit, 5);
    inputs.file = Some(below.join("gsan.toml"));
    assert_eq!(load(&inputs).config.report.limit, 6);
}

#[test]
fn a_file_that_was_asked_for_must_exist() {
    for inputs in [
        Inputs {
            file: Some("/nonexistent/gsan.toml".into()),
            ..Inputs::default()
        },
        environment(&[("GSAN_CONFIG", "/nonexistent/gsan.toml")]),
    ] {
        let Error { problem, .. } = Loaded::new(&inputs).unwrap_err();
        assert!(matches!(*problem, Problem::Unreadable { .. }), "{problem}");
    }
}

#[test]
fn a_file_that_cannot_be_one_is_refused_and_who_named_it_is_said() {
    let directory = TempDir::new().unwrap();
    let latin = directory.path().join("latin.toml");
    fs::write(&latin, b"[report]\n# caf\xe9\n").unwrap();
    for (file, why) in [
        (Path::new("/dev/zero"), "it is not a regular file"),
        (directory.path(), "it is a directory"),
        (&latin, "line 2 is not UTF-8"),
    ] {
        let asked = Inputs {
            file: Some(file.to_owned()),
            ..Inputs::default()
        };
        let variable = environment(&[("GSAN_CONFIG", file.to_str().unwrap())]);
        for (inputs, origin) in [
            (asked, Origin::CommandLine),
            (
                variable,
                Origin::Environment {
                    name: "GSAN_CONFIG".to_owned(),
                },
            ),
        ] {
            let error = Loaded::new(&inputs).unwrap_err();
            assert_eq!(error.origin, origin);
            let message = error.problem.to_string();
            assert!(
                message.ends_with(&format!("cannot be read: {why}")),
                "{message}"
            );
        }
    }
}

#[test]
fn errors_of_a_file_name_place_key_and_what_would_be_right() {
    for (text, expected) in [
        (
            "[report]\nlimits = 5\n",
            "gsan.toml:2:1: there is no key `report.limits` (the nearest key is `report.limit`)",
        ),
        (
            "[report]\nstrict = false\n  limit = 0\n",
            "gsan.toml:3:11: `report.limit` cannot be 0 (expected a whole number from 1 to 1000000)",
        ),
        (
            "[raport]\nlimit = 5\n",
            "gsan.toml:1:2: there is no section `raport` (the nearest section is `report`)",
        ),
        (
            "limit = 5\n",
            "gsan.toml:1:1: there is no section `limit` (the nearest key is `report.limit`)",
        ),
        (
            "zzz.limit = 5\n",
            "gsan.toml:1:1: there is no section `zzz` (the sections are `topology`, `shadow`, \
             `clock`, `sampling`, `launch`, `sharing`, `report`)",
        ),
        (
            "sampling.zzzzzzzz = 5\n",
            "gsan.toml:1:10: there is no key `sampling.zzzzzzzz` (the keys of `sampling` are \
             `seed`)",
        ),
        (
            "sampling = 5\n",
            "gsan.toml:1:1: `sampling` is a section: it holds keys and has no value of its own \
             (the keys of `sampling` are `seed`)",
        ),
        (
            "[report]\non_race = \"hatl\"\n",
            "gsan.toml:2:11: `report.on_race` cannot be \"hatl\" (expected \"continue\" or \
             \"halt\"; the nearest is \"halt\")",
        ),
        (
            "[report]\nformats = [\"human\", \"jason\"]\n",
            "gsan.toml:2:21: `report.formats` cannot be \"jason\" (expected a list of \"human\", \
             \"json\" or \"sarif\"; the nearest is \"json\")",
        ),
        (
            "[shadow]\nreserve = \"3TiB\"\n",
            "gsan.toml:2:11: `shadow.reserve` cannot be \"3TiB\": it is not a power of two \
             (expected a power of two from 16MiB to 64TiB, like \"8TiB\"; the nearest is \"2TiB\")",
        ),
        (
            "[clock]\nprivate_memory = \"1GB\"\n",
            "gsan.toml:2:18: `clock.private_memory` cannot be \"1GB\": the units are B, KiB, MiB, \
             GiB, TiB and PiB (expected a size from 64KiB to 64GiB, like \"256MiB\")",
        ),
        (
            "[shadow]\nrecords = 3\n",
            "gsan.toml:2:11: `shadow.records` cannot be 3 (expected 2 or 4)",
        ),
        (
            "[report]\nstrict = \"yes\"\n",
            "gsan.toml:2:10: `report.strict` cannot be \"yes\" (expected true or false)",
        ),
        (
            "[topology]\ndevice_ranks = { 0 = 1, 1 = 1 }\n",
            "gsan.toml:2:29: `topology.device_ranks` cannot be 1: device 0 has that rank already \
             (expected a table of device indices and ranks from 0 to 31, like { 0 = 2, 1 = 3 })",
        ),
        (
            "[topology]\ndevice_ranks = { 0 = 1, 00 = 2 }\n",
            "gsan.toml:2:25: `topology.device_ranks` cannot be \"00\": device 0 has a rank already",
        ),
        (
            "[topology.device_ranks]\n1 = 0\n\"+1\" = 2\n",
            "gsan.toml:3:1: `topology.device_ranks` cannot be \"+1\": device 1 has a rank already",
        ),
        ("[report]\nlimit = \n", "gsan.toml:2:9: this is not TOML: "),
        (
            "[report]\nlimit = 1\nlimit = 2\n",
            "gsan.toml:3:1: this is not TOML: duplicate key",
        ),
        (
            "[[report.suppress]]\nkind = \"write-after-wrtie\"\n",
            "gsan.toml:2:8: `report.suppress` cannot be \"write-after-wrtie\": it matches no kind \
             of finding (expected a pattern of the kinds \"read-after-write\", \
             \"write-after-read\", \"write-after-write\", \"deadlock\", \"budget\", \
             \"out-of-bounds\", \"misaligned\", \"uninitialised\", \"trap\", \"assertion\", \
             \"division-by-zero\", \"barrier-divergence\", \"invalid-operand\", \
             \"write-once-written-twice\", \"write-once-read-unwritten\" or \
             \"write-once-atomic\"; the nearest is \"write-after-write\")",
        ),
        (
            "[[report.suppress]]\nfile = \"*\"\nkernal = \"k\"\n",
            "gsan.toml:3:1: `report.suppress` cannot be a table with the key `kernal` (expected \
             tables with at least one of the patterns `kind`, `file` and `kernel`, \
             best with a `reason`; the nearest is `kernel`)",
        ),
        (
            "[[report.suppress]]\nreason = \"all of it\"\n",
            "gsan.toml:1:1: `report.suppress` cannot be a table: it would hide everything",
        ),
        (
            "[[report.suppress]]\nfile = \"[a\"\n",
            "gsan.toml:2:8: `report.suppress` cannot be \"[a\": unclosed character class",
        ),
    ] {
        let found = file_error(text);
        assert!(
            found.starts_with(expected),
            "{text}\nfound    {found}\nexpected {expected}"
        );
    }
}

#[test]
fn errors_of_the_environment_name_the_variable() {
    for (name, value, expected) in [
        (
            "GSAN_REPORT_LIMIT",
            "many",
            "environment variable GSAN_REPORT_LIMIT: `report.limit` cannot be \"many\" (expected a \
             whole number from 1 to 1000000)",
        ),
        (
            "TRITON_GSAN_SEED",
            "-1",
            "environment variable TRITON_GSAN_SEED: `sampling.seed` cannot be -1 (expected a whole \
             number from 0 to 18446744073709551615)",
        ),
        (
            "GSAN_REPORT_LIMITS",
            "1",
            "environment variable GSAN_REPORT_LIMITS: the environment variable \
             `GSAN_REPORT_LIMITS` means nothing (the nearest variable is `GSAN_REPORT_LIMIT`)",
        ),
        (
            "GSAN_REPROT_LIMIT",
            "1",
            "environment variable GSAN_REPROT_LIMIT: the environment variable \
             `GSAN_REPROT_LIMIT` means nothing (the nearest variable is `GSAN_REPORT_LIMIT`)",
        ),
    ] {
        let error = Loaded::new(&environment(&[(name, value)])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn every_variable_that_is_read_is_known_when_misspelt() {
    for (name, meant) in [
        ("GSAN_CONFG", "GSAN_CONFIG"),
        ("GSAN_CONFIGS", "GSAN_CONFIG"),
        ("GSAN_COFNIG", "GSAN_CONFIG"),
        ("TRITON_GSAN_SEEDS", "TRITON_GSAN_SEED"),
        (
            "TRITON_GSAN_CLOCK_BUFER_SIZE",
            "TRITON_GSAN_CLOCK_BUFFER_SIZE",
        ),
        ("GSAN_SAMPLING_SED", "GSAN_SAMPLING_SEED"),
    ] {
        for value in ["1", ""] {
            let error = Loaded::new(&environment(&[(name, value)])).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "environment variable {name}: the environment variable `{name}` means \
                     nothing (the nearest variable is `{meant}`)"
                )
            );
        }
    }
}

#[test]
fn other_variables_are_none_of_ours() {
    load(&environment(&[
        ("GSAN_LONG", "1"),
        ("GSAN_FUZZ_SECONDS", "60"),
        ("GSAN_TEST_RANK", "1"),
        ("TRITON_GSAN_FUTURE", "1"),
        ("GSANITY", "1"),
        ("REPORT_LIMIT", "x"),
    ]));
}

#[test]
fn errors_of_the_command_line_show_the_argument() {
    for (argument, expected, wrong) in [
        (
            "report.limit",
            "command line: `report.limit` sets nothing (write `-c section.key=value`)",
            "report.limit",
        ),
        (
            "report.limt=5",
            "command line: there is no key `report.limt` (the nearest key is `report.limit`)",
            "report.limt",
        ),
        (
            "sampling=5",
            "command line: `sampling` is a section: it holds keys and has no value of its own (the \
             keys of `sampling` are `seed`)",
            "sampling",
        ),
        (
            "report.limit=1e3",
            "command line: `report.limit` cannot be 1e3 (expected a whole number from 1 to 1000000)",
            "1e3",
        ),
        (
            "report.limit=",
            "command line: `report.limit` cannot be \"\" (expected a whole number from 1 to 1000000)",
            "",
        ),
    ] {
        let error = Loaded::new(&command_line(&[argument])).unwrap_err();
        assert_eq!(error.to_string(), expected);
        let excerpt = error.excerpt.unwrap();
        assert_eq!(excerpt.text, argument);
        assert_eq!(&excerpt.text[excerpt.span], wrong);
    }
}

#[test]
fn a_rank_outside_the_topology_is_refused_at_its_origin() {
    let error = Loaded::new(&command_line(&[
        "topology.num_devices=2",
        "topology.device_ranks={ 0 = 1, 1 = 2 }",
    ]))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "command line: `topology.device_ranks` cannot be { 0 = 1, 1 = 2 }: device 1 has rank 2 \
         (expected ranks below `topology.num_devices`, which is 2)"
    );
}

#[test]
fn the_effective_configuration_says_every_origin_and_parses_to_itself() {
    let (directory, mut inputs) =
        file("[report]\nlimit = 5\n\n[[report.suppress]]\nfile = \"a\"\n");
    inputs.environment = vec![("GSAN_SAMPLING_SEED".into(), "7".into())];
    inputs.assignments = vec!["report.formats=json,sarif".into()];
    let loaded = load(&inputs);
    let shown = text::effective(&loaded);
    let path = directory.path().join("gsan.toml");
    for line in [
        format!(
            "limit = 5                                # {}:2",
            path.display()
        ),
        "seed = 7                                 # environment variable GSAN_SAMPLING_SEED".into(),
        "formats = [\"json\", \"sarif\"]              # command line".into(),
        "records = 4                              # default".into(),
        format!(
            "suppress = [{{ file = \"a\" }}]            # {}:4",
            path.display()
        ),
    ] {
        let tail = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown
                .lines()
                .any(|shown| shown.split_whitespace().collect::<Vec<_>>().join(" ") == tail),
            "{line} is not in\n{shown}"
        );
    }
    let (_directory, again) = file(&shown);
    assert_eq!(load(&again).config, loaded.config);
}

#[test]
fn every_key_can_be_set_from_every_source() {
    for key in KEYS {
        let assignment = format!("{}={}", key.path(), key.default);
        let loaded = load(&command_line(&[&assignment]));
        assert_eq!(origin_of(&loaded, &key.path()), Origin::CommandLine);
        let loaded = load(&environment(&[(&key.variable(), key.default)]));
        assert_ne!(origin_of(&loaded, &key.path()), Origin::Default);
        let (_directory, inputs) = file(&format!(
            "[{}]\n{} = {}\n",
            key.section, key.name, key.default
        ));
        let loaded = load(&inputs);
        assert_ne!(origin_of(&loaded, &key.path()), Origin::Default);
        assert_eq!(loaded.config, Config::default());
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), at in any::<prop::sample::Index>()) {
        let template = text::template();
        let at = template.floor_char_boundary(at.index(template.len()));
        let spliced = format!("{}{text}{}", &template[..at], &template[at..]);
        for text in [&text, &spliced] {
            let result = Loaded::default().apply_file(Path::new("gsan.toml"), text);
            if let Err(Error { excerpt: Some(excerpt), .. }) = result {
                prop_assert!(excerpt.text.get(excerpt.span).is_some());
            }
        }
        for key in KEYS {
            let argument = format!("{}={text}", key.path());
            let result = Loaded::default().apply_assignment(&argument);
            if let Err(Error { excerpt: Some(excerpt), .. }) = result {
                prop_assert!(excerpt.text.get(excerpt.span).is_some());
            }
        }
    }
}
