//! `gsan check` as a person meets it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod gsan;

use std::fs;
use std::path::PathBuf;

use gsan::Gsan;

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples");
    fs::read_to_string(path.join(name)).unwrap()
}

fn with_example() -> Gsan {
    ["splitk_relaxed.ptx", "splitk_relaxed.toml", "splitk.py"]
        .into_iter()
        .fold(Gsan::new(), |gsan, name| gsan.file(name, &example(name)))
}

/// Each thread adds 1 to the same word, atomically if so said.
fn counter(atomic: bool) -> String {
    let add = if atomic {
        "red.global.add.u32 [%rd1], 1;"
    } else {
        "ld.global.u32 %r1, [%rd1];\n  add.u32 %r1, %r1, 1;\n  st.global.u32 [%rd1], %r1;"
    };
    format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n\
         .visible .entry counter(.param .u64 .ptr .global word, .param .u64 .ptr .global scratch)\n\
         .reqntid 1\n{{\n  .reg .b32 %r<2>;\n  .reg .b64 %rd<2>;\n  \
         ld.param.u64 %rd1, [word];\n  {add}\n  ret;\n}}\n"
    )
}

const LAUNCH: &str = "[[buffer]]\nname = \"word\"\nelements = 1\ntype = \"u32\"\n\
    [[launch]]\ngrid = 2\nargs = [\"buf:word\"]\n";

#[test]
fn the_example_shows_a_race_with_both_source_lines() {
    let run = with_example().run(&["check", "splitk_relaxed.ptx"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    let later = run.stdout.find("sum += tl.load(").unwrap();
    assert!(
        run.stdout[later..].contains("tl.store(parts"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout
            .contains("gsan check splitk_relaxed.ptx --schedules 1 --seed ")
    );
}

#[test]
fn one_source_line_in_two_files_is_two_races() {
    let gsan = with_example()
        .file("variant.ptx", &example("splitk_relaxed.ptx"))
        .file("variant.toml", &example("splitk_relaxed.toml"));
    let run = gsan.run(&["check", "splitk_relaxed.ptx", "variant.ptx"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    assert!(run.stdout.contains("gsan: 2 races"), "{}", run.stdout);
    let run = gsan.run(&[
        "check",
        "splitk_relaxed.ptx",
        "variant.ptx",
        "--format",
        "json",
    ]);
    for file in ["splitk_relaxed.ptx", "variant.ptx"] {
        let replay = format!("gsan check {file} --schedules 1");
        assert!(run.stdout.contains(&replay), "{}", run.stdout);
    }
}

#[test]
fn shared_memory_may_be_said_beside_the_file_of_arguments() {
    let run = with_example().run(&["check", "splitk_relaxed.ptx", "--shared", "1024"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
}

#[test]
fn an_event_that_no_launch_records_is_refused() {
    let launch = format!(
        "{LAUNCH}wait = [\"dome\"]\n{}",
        &LAUNCH[LAUNCH.find("[[launch").unwrap()..]
    );
    let gsan = Gsan::new()
        .file("counter.ptx", &counter(true))
        .file("counter.toml", &format!("{launch}record = \"done\"\n"));
    let run = gsan.run(&["check", "counter.ptx"]);
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert!(
        run.stderr.contains("no launch records the event `dome`"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("`done`"), "{}", run.stderr);
}

#[test]
fn the_printed_command_shows_the_same_again() {
    let gsan = with_example();
    let findings = |text: &str| text.split("= again:").next().unwrap().to_owned();
    let first = gsan
        .run(&["check", "splitk_relaxed.ptx", "--strategy", "random"])
        .stdout;
    let command = first
        .lines()
        .find_map(|line| line.split_once("gsan check ").map(|(_, rest)| rest))
        .unwrap();
    let words: Vec<&str> = ["check"]
        .into_iter()
        .chain(command.split_whitespace())
        .collect();
    assert!(words.contains(&"random"), "{command}");
    let again = gsan.run(&words);
    assert_eq!(again.code, 66);
    assert_eq!(findings(&again.stdout), findings(&first));
}

#[test]
fn a_race_of_a_kernel_given_by_options() {
    let gsan = Gsan::new().file("counter.ptx", &counter(false));
    let run = gsan.run(&["check", "counter.ptx", "--grid", "2", "--arg", "buf:4:u32"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn a_correct_kernel_is_clean() {
    let gsan = Gsan::new().file("counter.ptx", &counter(true));
    let run = gsan.run(&["check", "counter.ptx", "--grid", "2", "--arg", "buf:4:u32"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    insta::assert_snapshot!(run.stdout);
}

/// [`counter`], but the kernel also reads its second parameter.
fn counter_with_scratch() -> String {
    counter(true).replace("  ret;", "  ld.param.u64 %rd1, [scratch];\n  ret;")
}

#[test]
fn pointers_that_are_not_given_are_said_to_be_null_unless_quiet() {
    let gsan = Gsan::new()
        .file("a.ptx", &counter_with_scratch())
        .file("a.toml", LAUNCH);
    let note = "pointer `scratch` of kernel `counter` is not given and is null\n";
    let run = gsan.run(&["check", "a.ptx"]).succeeds();
    assert_eq!(run.stderr, format!("note: {note}"));
    let run = gsan.run(&["check", "."]).succeeds();
    assert_eq!(run.stderr, format!("note: ./a.ptx: {note}"));
    assert_eq!(gsan.run(&["check", "-q", "a.ptx"]).succeeds().stderr, "");
}

#[test]
fn nothing_is_said_of_pointers_that_the_kernel_does_not_use() {
    let gsan = Gsan::new()
        .file("a.ptx", &counter(true))
        .file("a.toml", LAUNCH);
    assert_eq!(gsan.run(&["check", "a.ptx"]).succeeds().stderr, "");
}

#[test]
fn a_report_that_goes_to_a_file_is_summed_up_on_standard_error_unless_quiet() {
    let gsan = Gsan::new()
        .file("clean.ptx", &counter(true))
        .file("clean.toml", LAUNCH)
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH);
    let shown = gsan.run(&["check", "racy.ptx"]).stdout;
    let races = shown.lines().find_map(|line| line.strip_prefix("gsan: "));
    for (form, file) in [("json", "r.json"), ("sarif", "r.sarif"), ("human", "r.txt")] {
        let words = |kernel| ["check", kernel, "--format", form, "-o", file];
        let run = gsan.run(&words("racy.ptx"));
        assert_eq!((run.code, run.stdout.as_str()), (66, ""), "{}", run.stderr);
        let expected = format!("note: wrote `{file}`: {}\n", races.unwrap());
        assert_eq!(run.stderr, expected);
        let run = gsan.run(&words("clean.ptx")).succeeds();
        assert_eq!(run.stderr, format!("note: wrote `{file}`: no races\n"));
        let quiet = gsan.run(&[&words("racy.ptx")[..], &["-q"]].concat());
        assert_eq!((quiet.code, quiet.stderr.as_str()), (66, ""));
    }
}

#[test]
fn verbose_says_what_is_launched() {
    let gsan = Gsan::new()
        .file("a.ptx", &counter(true))
        .file("a.toml", LAUNCH);
    let run = gsan.run(&["check", "-v", "a.ptx"]).succeeds();
    let said = "a.ptx: `counter`, grid [2, 1, 1], block [1, 1, 1]";
    assert!(run.stderr.contains(said), "{}", run.stderr);
}

#[test]
fn source_is_not_taken_for_ptx() {
    let gsan = Gsan::new()
        .file("k.cu", "__global__ void k() {}\n")
        .file("k.py", "import triton\n");
    for file in ["k.cu", "k.py"] {
        let run = gsan.run(&["check", file]);
        assert_eq!(run.code, 2, "{}", run.stderr);
        let said = [
            format!("{file} is source, not PTX"),
            "nvcc --ptx".to_owned(),
        ];
        for said in said {
            assert!(run.stderr.contains(&said), "{}", run.stderr);
        }
    }
}

#[test]
fn a_kernel_without_arguments_is_told_what_it_takes_and_where_from() {
    let ptx = counter_with_scratch().replace(".ptr .global word", "word");
    let gsan = Gsan::new().file("k.ptx", &ptx);
    let run = gsan.run(&["check", "k.ptx"]);
    assert_eq!(run.code, 2);
    insta::assert_snapshot!(run.stderr, @r"
    error: kernel `counter`: 0 arguments are given, it has 2 parameters
     |
     = help: it takes `word` (8 bytes), `scratch` (a pointer); only what is marked as a pointer may be left out, at the end
     = note: say what is launched with options, as `gsan check --help` shows, or in `k.toml`
    ");
}

#[test]
fn an_access_out_of_bounds_names_the_buffer_before_it() {
    let gsan = Gsan::new()
        .file("k.ptx", &counter(true).replace("[%rd1], 1", "[%rd1+40], 1"))
        .file("k.toml", LAUNCH);
    let run = gsan.run(&["check", "k.ptx"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    let said = "note: it begins 36 bytes beyond the end of `word`";
    assert!(run.stdout.contains(said), "{}", run.stdout);
}

#[test]
fn threads_that_run_out_of_budget_wait_for_a_turn() {
    let gsan = Gsan::new()
        .file("k.ptx", &counter(true))
        .file("k.toml", LAUNCH);
    let run = gsan.run(&["check", "k.ptx", "--budget", "1"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    assert!(run.stdout.contains("for a turn to go on"), "{}", run.stdout);
}

#[test]
fn several_files_take_their_arguments_from_beside_them_and_have_one_summary() {
    let gsan = Gsan::new()
        .file("clean.ptx", &counter(true))
        .file("clean.toml", LAUNCH)
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH);
    let run = gsan.run(&["check", "."]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    assert!(
        run.stdout.contains("2 files: 1 clean, 1 with findings"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("./racy.ptx"), "{}", run.stdout);
    assert!(!run.stdout.contains("./clean.ptx"), "{}", run.stdout);
}

#[test]
fn a_file_that_cannot_be_checked_does_not_stop_the_others() {
    let gsan = Gsan::new()
        .file("a.ptx", "nonsense")
        .file("b.ptx", &counter(true))
        .file("b.toml", LAUNCH);
    let run = gsan.run(&["check", "a.ptx", "b.ptx"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let told = "2 files: 1 clean, 0 with findings, 1 not checked\n\n\
        warning: 1 input was not checked\n |\n = input: a.ptx:1: expected";
    assert!(run.stdout.contains(told), "{}", run.stdout);
    assert!(run.stderr.contains("found `nonsense`"), "{}", run.stderr);
    let headline = "gsan: no races in what was checked, 1 input not checked\n";
    assert!(run.stdout.contains(headline), "{}", run.stdout);
}

#[test]
fn a_file_that_is_named_twice_is_checked_once() {
    let gsan = Gsan::new()
        .file("a.ptx", &counter(true))
        .file("a.toml", LAUNCH);
    let once = gsan.run(&["check", "a.ptx"]).succeeds().stdout;
    assert_eq!(gsan.run(&["check", "a.ptx", "./a.ptx"]).stdout, once);
    let both = gsan.run(&["check", ".", "a.ptx"]).stdout;
    assert!(both.starts_with("1 file: 1 clean, "), "{both}");
}

#[test]
fn every_form_says_what_was_not_checked() {
    let gsan = Gsan::new()
        .file("a.ptx", "nonsense")
        .file("b.ptx", &counter(true))
        .file("b.toml", "[[launch]]\ngird = 1\n");
    for (files, code) in [
        (&["a.ptx"][..], 1),
        (&["b.ptx"], 2),
        (&["a.ptx", "b.ptx"], 2),
        (&["c.ptx"], 2),
    ] {
        let run = gsan.run(&[&["check", "--format", "json"], files].concat());
        assert_eq!(run.code, code, "{files:?}: {}", run.stderr);
        let report = gsan_report::json::read(run.stdout.as_bytes()).unwrap();
        let named: Vec<&str> = report.unchecked.iter().map(|u| u.file.as_str()).collect();
        assert_eq!(named, files);
        let run = gsan.run(&[&["check", "--format", "sarif"], files].concat());
        assert_eq!(run.code, code, "{files:?}: {}", run.stderr);
        let log: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let invocation = &log["runs"][0]["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], false);
        let notifications = &invocation["toolExecutionNotifications"];
        assert_eq!(notifications.as_array().unwrap().len(), files.len());
        let run = gsan.run(&[&["check", "-o", "report.txt"], files].concat());
        assert_eq!((run.code, run.stdout.as_str()), (code, ""));
        let text = gsan.read("report.txt");
        assert!(text.contains("gsan: nothing was checked, "), "{text}");
        assert!(!text.contains("no races"), "{text}");
    }
    let run = gsan.run(&["check", "--format", "json", "b.ptx"]);
    let report = gsan_report::json::read(run.stdout.as_bytes()).unwrap();
    let place = report.unchecked[0].place.as_ref().unwrap();
    assert_eq!(
        (place.file.as_str(), place.line, place.column),
        ("b.toml", 2, Some(1))
    );
    assert!(report.unchecked[0].help.as_ref().unwrap().contains("grid"));
}

#[test]
fn a_report_never_overwrites_an_input() {
    let config = "[report]\nformats = [\"human\", \"json\"]\npath = \"k.toml\"\n";
    let filled = LAUNCH.replacen("elements", "init = \"file:init.bin\"\nelements", 1);
    let gsan = Gsan::new()
        .file("k.ptx", &counter(true))
        .file("k.toml", LAUNCH)
        .file("other.toml", LAUNCH)
        .file("conf.toml", config)
        .file("gsan.toml", "")
        .file("init.bin", "\u{1}\u{2}\u{3}\u{4}")
        .file("filled.ptx", &counter(true))
        .file("filled.toml", &filled);
    let inputs = [
        "k.ptx",
        "k.toml",
        "other.toml",
        "conf.toml",
        "gsan.toml",
        "init.bin",
        "filled.ptx",
        "filled.toml",
    ];
    let before = inputs.map(|f| gsan.read(f));
    for words in [
        &["k.ptx", "-o", "k.ptx"][..],
        &["k.ptx", "-o", "./k.ptx", "--format", "json"],
        &["k.ptx", "-o", "k.toml"],
        &["k.ptx", "-o", "gsan.toml"],
        &["k.ptx", "--config", "conf.toml"],
        &["k.ptx", "--config", "conf.toml", "-o", "conf.toml"],
        &["k.ptx", "--args", "other.toml", "-o", "other.toml"],
        &[".", "-o", "k.ptx"],
        &["filled.ptx", "-o", "init.bin"],
        &["k.ptx", "--args", "filled.toml", "-o", "init.bin"],
        &[
            "k.ptx",
            "--arg",
            "buf:64:u8=file:init.bin",
            "-o",
            "init.bin",
        ],
        &[".", "-o", "init.bin"],
        &["k.ptx", "-o", "no/such/directory"],
        &["k.ptx", "-o", "."],
    ] {
        let run = gsan.run(&[&["check"], words].concat());
        assert_eq!(run.code, 2, "{words:?}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains("writ"), "{words:?}: {}", run.stderr);
    }
    let after = inputs.map(|f| gsan.read(f));
    assert_eq!(after, before);
}

#[test]
fn forms_and_file_of_the_report_come_from_the_configuration() {
    let config = "[report]\nformats = [\"human\", \"json\", \"sarif\"]\npath = \"out.json\"\n";
    let gsan = Gsan::new()
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH)
        .file("gsan.toml", config);
    let run = gsan.run(&["check", "racy.ptx"]);
    assert_eq!(run.code, 66, "{}", run.stderr);
    assert!(run.stdout.contains("gsan: 2 races"), "{}", run.stdout);
    gsan_report::json::read(gsan.read("out.json").as_bytes()).unwrap();
    assert!(gsan.read("out.sarif").contains("\"2.1.0\""));
    let run = gsan.run(&["check", "racy.ptx", "-c", "report.formats=sarif"]);
    assert_eq!((run.code, run.stdout.as_str()), (66, ""));
    assert!(gsan.read("out.json").contains("\"2.1.0\""));
    let run = gsan.run(&["check", "racy.ptx", "--format", "json", "-o", "mine.json"]);
    assert_eq!((run.code, run.stdout.as_str()), (66, ""));
    gsan_report::json::read(gsan.read("mine.json").as_bytes()).unwrap();
    assert!(gsan.read("out.json").contains("\"2.1.0\""));
}

#[test]
fn the_command_printed_for_any_name_shows_the_same_again() {
    use std::os::unix::ffi::OsStrExt;
    for name in [
        &b"-k.ptx"[..],
        b"--help.ptx",
        b"a b'c$.ptx",
        b"caf\xe9.ptx",
        b"line\nbreak.ptx",
        "\u{202e}k.ptx".as_bytes(),
    ] {
        let name = std::ffi::OsStr::from_bytes(name);
        let gsan = Gsan::new().file_of(name, &counter(false));
        let given = std::path::Path::new(".").join(name);
        let words = ["--grid", "2", "--arg", "buf:4:u32"].map(std::ffi::OsStr::new);
        let words: Vec<_> = ["check".as_ref(), given.as_os_str()]
            .into_iter()
            .chain(words)
            .collect();
        let first = gsan.run_of(&words);
        assert_eq!(first.code, 66, "{name:?}: {}", first.stderr);
        let command = first
            .stdout
            .lines()
            .find_map(|line| line.split_once("= replay: "));
        let again = gsan.shell(command.unwrap().1);
        assert_eq!(again.code, 66, "{command:?}: {}", again.stderr);
        let race = |text: &str| text.split("= seed").next().unwrap().to_owned();
        assert_eq!(race(&again.stdout), race(&first.stdout));
        // As people type it.
        if name.as_bytes().starts_with(b"-") {
            let words = [
                &["check", "--grid=2", "--arg=buf:4:u32", "--"].map(std::ffi::OsStr::new)[..],
                &[name],
            ];
            let typed = gsan.run_of(&words.concat());
            assert!(
                typed.stdout.contains("= replay: gsan check ./-"),
                "{}",
                typed.stdout
            );
        }
    }
}

#[test]
fn reports_are_written_in_every_form() {
    let gsan = Gsan::new()
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH);
    let run = gsan.run(&["check", "racy.ptx", "--format", "json", "-o", "out.json"]);
    assert_eq!((run.code, run.stdout.as_str()), (66, ""));
    let report = gsan_report::json::read(gsan.read("out.json").as_bytes()).unwrap();
    assert!(report.has_findings(false));
    let run = gsan.run(&["check", "racy.ptx", "--format", "sarif"]);
    assert!(run.stdout.contains("\"2.1.0\""), "{}", run.stdout);
}

#[test]
fn suppressed_races_do_not_count() {
    let gsan = Gsan::new()
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH)
        .file(
            "gsan.toml",
            "[[report.suppress]]\nkernel = \"counter\"\nreason = \"only a statistic\"\n",
        );
    let run = gsan.run(&["check", "racy.ptx"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("only a statistic"), "{}", run.stdout);
}

/// A benign race must not hide that others come later.
#[test]
fn a_suppressed_race_does_not_end_the_search() {
    let gsan = Gsan::new()
        .file("racy.ptx", &counter(false))
        .file("racy.toml", LAUNCH);
    let hidden = "report.suppress=[{kernel = 'counter', reason = 'a statistic'}]";
    let run = gsan.run(&["check", "racy.ptx", "-c", hidden]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("of 20 schedules"), "{}", run.stdout);
    let half = "report.suppress=[{kind = 'read-*'}, {kind = 'write-after-read'}]";
    let run = gsan.run(&["check", "racy.ptx", "-c", half]);
    assert_eq!(run.code, 66, "{}{}", run.stdout, run.stderr);
}

#[test]
fn the_file_of_launches_that_the_help_shows_is_right() {
    let help = Gsan::new().run(&["check", "--help"]).succeeds().stdout;
    let start = help.find("  [[buffer]]").unwrap();
    let end = start + help[start..].find("\n\n").unwrap();
    let kernel = "\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) { ret; }
";
    let gsan = Gsan::new()
        .file("k.ptx", kernel)
        .file("k.toml", &help[start..end]);
    let run = gsan.run(&["check", "k.ptx"]).succeeds();
    assert!(
        run.stdout.contains("= memory: 4 KiB covered"),
        "{}",
        run.stdout
    );
}

#[test]
fn options_that_replace_a_file_of_launches_are_said_to() {
    let gsan = Gsan::new()
        .file("racy.ptx", &counter(false).replace(".ptr .global", ""))
        .file("racy.toml", LAUNCH);
    let run = gsan.run(&["check", "racy.ptx", "--grid", "2"]);
    assert_eq!(run.code, 2, "{}", run.stdout);
    let note = "= note: options replace all of `racy.toml`";
    assert!(run.stderr.contains(note), "{}", run.stderr);
}

#[test]
fn what_is_wrong_is_said_with_the_right_exit_code() {
    let gsan = Gsan::new()
        .file("counter.ptx", &counter(true))
        .file("other.ptx", &counter(true))
        .file(
            "future.ptx",
            ".version 8.7\n.target sm_90a\n.entry k() .reqntid 1 {\n  wgmma.fence.sync.aligned;\n}\n",
        )
        .file("wrong.toml", "[[launch]]\ngird = 1\n")
        .file(
            "wide.ptx",
            ".version 8.7\n.target sm_80\n.entry k() {\n  ret;\n}\n",
        )
        .file(
            "banana.ptx",
            ".version 8.7\n.target sm_banana\n.entry k() {\n  ret;\n}\n",
        )
        .file("machine.ptx", "\x7fELF...");
    let cases: &[(&[&str], i32)] = &[
        (&["future.ptx"], 1),
        (&["machine.ptx"], 1),
        (&["missing.ptx"], 2),
        (&["/dev/zero"], 2),
        (&["banana.ptx"], 1),
        (&["wrong.toml"], 2),
        (&["counter.ptx", "--arg", "buf:"], 2),
        (&["counter.ptx", "--arg", "buf:4:u32=file:"], 2),
        (&["wide.ptx", "--grid", "2147483647", "--block", "1024"], 2),
        (
            &["wide.ptx", "--grid", "2147483647,2", "--block", "1024"],
            2,
        ),
        (&["wide.ptx", "--grid", "4294967296"], 2),
        (&["wide.ptx", "--block", "1025"], 2),
        (&["counter.ptx", "--arg", "u64:99999999999999999999"], 2),
        (&["counter.ptx", "--arg", "buf:99999999999999999999"], 2),
        (&["counter.ptx", "--arg", "buf:8:u64=-1"], 2),
        (&["counter.ptx", "--arg", "i32:1"], 2),
        (&["counter.ptx", "--arg", "buf:4:u31"], 2),
        (&["counter.ptx", "--entry", "conter"], 2),
        (&["counter.ptx", "--args", "wrong.toml"], 2),
        (&["counter.ptx", "--args", "missing.toml"], 2),
        (&["counter.ptx", "--args", "/dev/zero"], 2),
        (&["counter.ptx", "other.ptx", "--arg", "buf:4"], 2),
        (&["counter.ptx", "--arg", "buf:4", "--cluster", "2"], 2),
        (&["counter.ptx", "--arg", "tensormap:x"], 2),
    ];
    let mut messages = Vec::new();
    for (words, code) in cases {
        let run = gsan.run(&[&["check"], *words].concat());
        assert_eq!(run.code, *code, "{words:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{words:?}");
        messages.push(format!("$ gsan check {}\n{}", words.join(" "), run.stderr));
    }
    insta::assert_snapshot!(messages.join("\n"));
    for words in [
        &["check"][..],
        &["check", "counter.ptx", "--grid", "0"],
        &["check", "counter.ptx", "--schedules", "0"],
        &["check", "counter.ptx", "--budget", "0"],
        &["check", "counter.ptx", "--args", "a.toml", "--arg", "i32:1"],
    ] {
        assert_eq!(gsan.run(words).code, 2, "{words:?}");
    }
}

#[test]
fn a_directory_without_ptx_is_wrong_usage() {
    let run = Gsan::new().run(&["check", "."]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("there is no .ptx file under ."),
        "{}",
        run.stderr
    );
}
