//! The command line as a person meets it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod gsan;

use gsan::Gsan;

#[test]
fn help_says_the_exit_codes() {
    let help = Gsan::new().run(&["--help"]).succeeds().stdout;
    assert!(help.contains("Exit codes:\n  0   clean\n  66"), "{help}");
}

#[test]
fn every_subcommand_has_help_with_examples() {
    for name in ["run", "check", "report", "config", "completions", "man"] {
        let help = Gsan::new().run(&[name, "--help"]).succeeds().stdout;
        assert!(help.contains("Examples:\n  gsan "), "{name}: {help}");
    }
}

#[test]
fn version_is_the_package_version() {
    let version = Gsan::new().run(&["--version"]).succeeds().stdout;
    assert_eq!(version, format!("gsan {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&["--frob"][..], &["frobnicate"], &["-q", "-v", "man"], &[]] {
        let run = Gsan::new().run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Gsan::new().run(&["completions", shell]).succeeds().stdout;
        assert!(script.contains("completions"), "{shell}: {script}");
    }
}

#[test]
fn man_pages_are_named_after_the_command() {
    let page = Gsan::new().run(&["man"]).succeeds().stdout;
    assert!(page.contains(".TH gsan 1"), "{page}");
    let page = Gsan::new().run(&["man", "completions"]).succeeds().stdout;
    assert!(page.contains(".TH gsan-completions 1"), "{page}");
}

#[test]
fn man_of_an_unknown_subcommand_names_the_known_ones() {
    let run = Gsan::new().run(&["man", "frob"]);
    assert_eq!(run.code, 2);
    insta::assert_snapshot!(run.stderr, @r"
    error: there is no subcommand `frob`
     |
     = help: the subcommands are run, check, report, config, doctor, completions, man
    ");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let run = Gsan::new().run_with_closed_output(&["completions", "zsh"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

/// A report with one race in line 2 of `k.py`, and one possible race, of a run of its own.
fn report(kernel: &str) -> String {
    report_of_run(kernel, kernel.len())
}

fn report_of_run(kernel: &str, run: usize) -> String {
    let race = format!(
        r#"{{
          "kind": "read-after-write",
          "range": {{ "space": "global", "address": "0x1000", "bytes": 4 }},
          "earlier": {{
            "who": {{ "cta": [0, 0, 0], "kernel": "{kernel}", "launch": 1, "device": 0 }},
            "action": "write", "order": "weak", "asynchronous": false,
            "place": {{ "file": "k.py", "line": 1 }}
          }},
          "later": {{
            "who": {{ "cta": [1, 0, 0], "kernel": "{kernel}", "launch": 1, "device": 0 }},
            "action": "read", "order": "weak", "asynchronous": false,
            "place": {{ "file": "k.py", "line": 2 }}
          }},
          "times": 3
        }}"#
    );
    format!(
        r#"{{
          "version": 2, "tool": "0.1.0",
          "runs": ["00000000-0000-4000-8000-{run:012}"],
          "summary": {{
            "processes": 1, "launches": 1, "schedules": 0, "accesses": 10,
            "covered_bytes": 1024, "uncovered_bytes": 0, "not_kept": 0, "seeds": [7]
          }},
          "unchecked": [], "races": [{race}], "possible_races": [{{ "reason": "of fences", "race": {race} }}],
          "faults": [], "losses": [], "suppressions": []
        }}"#
    )
}

fn with_reports() -> Gsan {
    Gsan::new()
        .file("k.py", "tl.store(p, v)\nx = tl.load(p)\n")
        .file("a.json", &report("one"))
        .file("b.json", &report_of_run("two", 1))
        .file("c.json", &report_of_run("one", 2))
}

#[test]
fn a_report_is_shown_with_source_lines() {
    let run = with_reports().run(&["report", "a.json"]).succeeds();
    assert_eq!(run.stderr, "");
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn several_reports_become_one() {
    let gsan = with_reports();
    gsan.run(&[
        "report", "a.json", "b.json", "c.json", "--format", "json", "-o", "all.json",
    ])
    .succeeds();
    let merged: serde_json::Value = serde_json::from_str(&gsan.read("all.json")).unwrap();
    let times: Vec<&serde_json::Value> = merged["races"]
        .as_array()
        .unwrap()
        .iter()
        .map(|race| &race["times"])
        .collect();
    assert_eq!(times, [6, 3]);
    assert_eq!(merged["summary"]["processes"], 3);
}

#[test]
fn who_reads_the_report_that_was_there_reads_it_to_its_end() {
    let gsan = with_reports();
    let path = gsan.path().join("out.txt");
    std::fs::write(&path, "what was there before").unwrap();
    let before = std::fs::File::open(&path).unwrap();
    gsan.run(&["report", "a.json", "-o", "out.txt"]).succeeds();
    assert_eq!(
        std::io::read_to_string(before).unwrap(),
        "what was there before"
    );
    assert_ne!(gsan.read("out.txt"), "what was there before");
}

#[test]
fn a_run_that_is_given_twice_counts_once_and_it_is_said() {
    let gsan = with_reports();
    gsan.run(&[
        "report", "a.json", "b.json", "--format", "json", "-o", "ab.json",
    ])
    .succeeds();
    for files in [&["a.json", "a.json"][..], &["ab.json", "a.json"]] {
        let run = gsan.run(&[&["report"], files].concat()).succeeds();
        assert_eq!(
            run.stderr,
            "note: `a.json` is left out: its runs are in the files before it\n"
        );
        assert!(run.stdout.contains("= seen: 3 times"), "{}", run.stdout);
        assert!(!run.stdout.contains("= seen: 6 times"), "{}", run.stdout);
        let quiet = gsan.run(&[&["report", "-q"], files].concat()).succeeds();
        assert_eq!(quiet.stderr, "");
    }
    let run = gsan.run(&["report", "a.json", "ab.json"]);
    assert_eq!(run.code, 2);
    insta::assert_snapshot!(run.stderr, @r"
    error: `ab.json` holds some of the runs of the files before it, and others
     |
     = help: give merged reports alone, or the reports that they were merged from
    ");
}

#[test]
fn an_incomplete_report_fails_when_asked_to() {
    let mut value: serde_json::Value = serde_json::from_str(&report("one")).unwrap();
    value["races"] = serde_json::json!([]);
    value["unchecked"] = serde_json::json!([{ "file": "k.ptx", "reason": "no" }]);
    let gsan = with_reports().file("part.json", &value.to_string());
    assert_eq!(gsan.run(&["report", "part.json"]).code, 0);
    assert_eq!(gsan.run(&["report", "part.json", "--fail"]).code, 1);
    let both = gsan.run(&["report", "part.json", "b.json", "--fail"]);
    assert_eq!(both.code, 66);
    assert!(
        both.stdout.contains("= input: k.ptx: no"),
        "{}",
        both.stdout
    );
}

#[test]
fn sarif_names_files_relative_to_the_working_directory() {
    let run = with_reports()
        .run(&["report", "a.json", "--format", "sarif"])
        .succeeds();
    let log: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let levels: Vec<&serde_json::Value> = results.iter().map(|result| &result["level"]).collect();
    assert_eq!(levels, ["error", "note"]);
    assert_eq!(
        results[0]["locations"][0]["physicalLocation"],
        serde_json::json!({
            "artifactLocation": { "uri": "k.py" },
            "region": { "startLine": 2 },
        })
    );
}

#[test]
fn fail_decides_the_exit_code_by_the_findings() {
    let clean = report("one").replace("\"races\": [{", "\"ignored\": [{");
    let possible_only = {
        let mut value: serde_json::Value = serde_json::from_str(&report("one")).unwrap();
        value["races"] = serde_json::json!([]);
        value.to_string()
    };
    let gsan = with_reports()
        .file("possible.json", &possible_only)
        .file("broken.json", &clean);
    for (arguments, code) in [
        (&["report", "a.json"][..], 0),
        (&["report", "a.json", "--fail"], 66),
        (
            &["report", "a.json", "--fail", "-c", "report.exit_code=3"],
            3,
        ),
        (&["report", "possible.json", "--fail"], 0),
        (
            &[
                "report",
                "possible.json",
                "--fail",
                "-c",
                "report.strict=true",
            ],
            66,
        ),
        (
            &[
                "report",
                "a.json",
                "--fail",
                "-c",
                "report.suppress=[{kernel = 'one'}]",
            ],
            0,
        ),
        (&["report", "broken.json"], 1),
        (&["report", "missing.json"], 2),
        (&["report", "/dev/zero"], 2),
        (&["report", "."], 2),
        (&["report", "a.json", "-o", "no/such/directory"], 2),
        (&["report", "a.json", "-o", "."], 2),
        (&["report", "a.json", "-o", "a.json/b"], 2),
        (&["report", "a.json", "-o", "a.json"], 2),
        (
            &["report", "a.json", "-o", "./a.json", "--format", "json"],
            2,
        ),
        (&["report", "a.json", "-o", "/dev/full"], 1),
        (&["report"], 2),
        (&["report", "a.json", "--format", "xml"], 2),
        (&["report", "a.json", "-c", "report.frob=1"], 2),
    ] {
        let run = gsan.run(arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn nothing_that_was_asked_for_is_lost_in_silence() {
    let gsan = Gsan::new();
    for line in [
        "gsan --help",
        "gsan --version",
        "gsan help check",
        "gsan check --help",
        "gsan config",
        "gsan completions bash",
        "gsan man",
    ] {
        let full = gsan.shell(&format!("{line} >/dev/full"));
        assert_eq!(full.code, 1, "{line}: {}", full.stderr);
        assert!(full.stderr.contains("cannot be written"), "{line}");
        let closed = gsan.shell(&format!("set -o pipefail; {line} | true"));
        assert_eq!(closed.code, 0, "{line}: {}", closed.stderr);
        assert_eq!(closed.stderr, "", "{line}");
    }
}

#[test]
fn what_is_wrong_with_a_stored_report_is_shown() {
    let gsan = Gsan::new()
        .file("broken.json", "{\n  \"version\": 2,\n  \"tool\": 7\n}\n")
        .file("foreign.json", "{ \"version\": 3 }")
        .file(
            "long.json",
            &format!("{{ \"version\": 2{}", " ".repeat(2000)),
        )
        .file(
            "wide.json",
            &format!(
                "{{ \"version\": 2, \"tool\": \"{}\", \"runs\": 7, \"races\": [] }}",
                "ü".repeat(2000)
            ),
        );
    let texts: String = [
        "broken.json",
        "foreign.json",
        "long.json",
        "wide.json",
        "missing.json",
        "/dev/zero",
    ]
    .into_iter()
    .map(|file| gsan.run(&["report", file]).stderr)
    .collect();
    insta::assert_snapshot!(texts);
}

#[test]
fn what_is_wrong_with_the_configuration_is_shown() {
    let file = Gsan::new().file("gsan.toml", "[report]\nlimits = 5\n");
    let value = Gsan::new().file("gsan.toml", "[report]\n  on_race = \"hatl\"\n");
    let toml = Gsan::new().file("gsan.toml", "[report\n");
    let variable = Gsan::new().with("GSAN_REPORT_LIMIT", "many");
    let misspelt = Gsan::new().with("GSAN_REPORT_LIMITS", "1");
    let mut texts: Vec<String> = [file, value, toml, variable, misspelt]
        .iter()
        .map(|gsan| gsan.run(&["config"]).stderr)
        .collect();
    let gsan = Gsan::new();
    for arguments in [
        &["config", "-c", "report.limit=0"][..],
        &["config", "-c", "report.limit"],
        &["config", "--config", "none.toml"],
        &["config", "--config", "/dev/zero"],
    ] {
        let run = gsan.run(arguments);
        assert_eq!(run.code, 2);
        texts.push(run.stderr);
    }
    // The temporary directory has another name each time.
    let texts = texts.concat();
    let texts: Vec<String> = texts.lines().map(without_directory).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

fn without_directory(line: &str) -> String {
    match (line.find("/tmp"), line.find("gsan.toml")) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &line[..start], &line[end..]),
        _ => line.to_owned(),
    }
}

#[test]
fn a_configuration_that_is_asked_for_must_be_right_for_every_command() {
    let gsan = with_reports();
    for command in [
        &["check", "k.ptx"][..],
        &["report", "a.json"],
        &["config"],
        &["config", "--init", "new.toml"],
        &["doctor"],
        &["completions", "bash"],
        &["man"],
    ] {
        for wrong in [
            ["--config", "/nonexistent"],
            ["--config", "/dev/zero"],
            ["-c", "report.limt=1"],
        ] {
            let run = gsan.run(&[command, &wrong].concat());
            assert_eq!(run.code, 2, "{command:?} {wrong:?}: {}", run.stderr);
            assert_eq!(run.stdout, "", "{command:?} {wrong:?}");
        }
    }
}

#[test]
fn what_needs_no_configuration_works_beside_a_broken_one() {
    let gsan = Gsan::new().file("gsan.toml", "[report\n");
    for command in [
        &["config", "--init", "new.toml"][..],
        &["completions", "bash"],
        &["man"],
    ] {
        gsan.run(command).succeeds();
    }
    assert_eq!(gsan.run(&["doctor"]).code, 2);
}

#[test]
fn the_page_of_a_subcommand_names_the_program_and_its_version() {
    let head = format!(".TH gsan-check 1  \"gsan {}\"", env!("CARGO_PKG_VERSION"));
    let page = Gsan::new().run(&["man", "check"]).succeeds().stdout;
    assert!(page.lines().any(|line| line.starts_with(&head)), "{page}");
}

#[test]
fn the_effective_configuration_names_every_origin() {
    let gsan = Gsan::new()
        .file("gsan.toml", "[report]\nlimit = 5\n")
        .with("TRITON_GSAN_SEED", "7");
    let run = gsan.run(&["config", "-c", "report.strict=true"]).succeeds();
    let shown: Vec<String> = run.stdout.lines().map(without_directory).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn the_template_is_written_once_and_has_the_defaults() {
    let gsan = Gsan::new();
    let first = gsan.run(&["config", "--init"]).succeeds();
    assert_eq!(first.stderr, "note: wrote `gsan.toml`\n");
    let written = gsan.read("gsan.toml");
    let shown = gsan.run(&["config"]).succeeds().stdout;
    // Suppressions are the one key that the template has only in comments.
    assert_eq!(shown.matches("# default").count(), 1, "{shown}");
    assert!(
        shown.contains("suppress = []               # default"),
        "{shown}"
    );
    let again = gsan.run(&["config", "--init"]);
    assert_eq!(again.code, 1);
    assert!(
        again.stderr.contains("`gsan.toml` exists already"),
        "{}",
        again.stderr
    );
    assert_eq!(gsan.read("gsan.toml"), written);
    gsan.run(&["config", "--init", "other.toml"]).succeeds();
    assert_eq!(gsan.read("other.toml"), written);
}

#[test]
fn verbose_says_which_file_was_read_and_quiet_says_nothing() {
    let gsan = Gsan::new();
    let run = gsan.run(&["config", "-v"]).succeeds();
    assert!(
        run.stderr.contains("no configuration file"),
        "{}",
        run.stderr
    );
    assert_eq!(gsan.run(&["config", "-q"]).succeeds().stderr, "");
}

#[test]
fn colours_follow_the_option_then_no_color_then_the_terminal() {
    let colored = |gsan: Gsan, arguments: &[&str]| {
        let run = gsan.run(&[&["report", "a.json"], arguments].concat());
        run.stdout.contains('\u{1b}')
    };
    assert!(!colored(with_reports(), &[]), "no terminal");
    assert!(colored(with_reports(), &["--color", "always"]));
    assert!(!colored(with_reports(), &["--color", "never"]));
    assert!(!colored(with_reports().with("NO_COLOR", "1"), &[]));
    let forced = with_reports().with("CLICOLOR_FORCE", "1");
    assert!(colored(forced, &[]));
    let both = with_reports()
        .with("CLICOLOR_FORCE", "1")
        .with("NO_COLOR", "1");
    assert!(!colored(both, &[]));
}

#[test]
fn converting_a_report_keeps_all_that_it_holds() {
    let mut value: serde_json::Value = serde_json::from_str(&report("one")).unwrap();
    let race = value["races"][0].clone();
    let races = (0..150).map(|line| {
        let mut race = race.clone();
        race["later"]["place"]["line"] = line.into();
        race
    });
    value["races"] = races.collect();
    let gsan = Gsan::new().file("many.json", &value.to_string());
    let run = gsan
        .run(&["report", "many.json", "--format", "json"])
        .succeeds();
    let converted: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(converted, value);
}
