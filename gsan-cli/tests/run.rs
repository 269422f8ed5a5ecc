//! `gsan run`: what it gives programs, what it says, and what is left when they are killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod gsan;
#[path = "run/program.rs"]
mod program;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gsan::{Gsan, Run};
use gsan_report::model::Report;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// `gsan` where a program finds what programs need.
fn gsan() -> Gsan {
    Gsan::new().with("PATH", &std::env::var("PATH").unwrap())
}

/// Runs the test program, which does what `deed` says.
fn run_program(gsan: &Gsan, options: &[&str], deed: &str) -> Run {
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.push("--");
    let program = program::command(deed);
    arguments.extend(program.iter().map(String::as_str));
    let mut run = gsan.run(&arguments);
    // The program is a test, and says so.
    run.stdout = run.stdout.replace("\nrunning 1 test\n", "");
    run
}

/// What differs from run to run, taken out.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    for line in text.lines() {
        let line = match line.split_once("process ") {
            Some((before, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                let end = rest.rfind(") ").map_or(rest, |end| &rest[end + 2..]);
                format!("{before}process N (PROGRAM) {end}")
            }
            _ => line.to_owned(),
        };
        steady.push_str(&line);
        steady.push('\n');
    }
    steady
}

fn directories() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten();
    all.map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("gsan-run-"))
        .collect()
}

#[test]
fn a_race_is_printed_and_decides_the_exit_code() {
    let gsan = gsan().file("kernel.py", program::SOURCE);
    let run = run_program(&gsan, &[], "race");
    assert_eq!(run.code, 66, "{}", run.stderr);
    assert_eq!(run.stdout, "the program's own words\n");
    insta::assert_snapshot!(run.stderr);
}

#[test]
fn the_exit_code_is_the_programs_own_if_nothing_was_found() {
    for (deed, code) in [
        ("nothing", 0),
        ("code 7", 7),
        ("possible", 0),
        ("abort", 134),
    ] {
        let run = run_program(&gsan(), &[], deed);
        assert_eq!(run.code, code, "{deed}: {}", run.stderr);
    }
    let strict = run_program(&gsan(), &["-c", "report.strict=true"], "possible");
    assert_eq!(strict.code, 66);
    let own = run_program(&gsan(), &["-c", "report.exit_code=9"], "race");
    assert_eq!(own.code, 9);
    // A signal is 128 and its number; a race wins over everything.
    let shell = |script: &str| gsan().run(&["run", "sh", "-c", script]).code;
    assert_eq!(shell("kill -TERM $$"), 128 + 15);
    assert_eq!(shell("exit 3"), 3);
}

#[test]
fn the_signal_that_ended_the_program_is_named_unless_quiet() {
    for (signal, name) in [
        ("TERM", "signal 15 (SIGTERM)"),
        ("KILL", "signal 9 (SIGKILL)"),
    ] {
        let script = format!("kill -{signal} $$");
        let run = gsan().run(&["run", "sh", "-c", &script]);
        let note = format!("note: the program was ended by {name}\n");
        assert!(run.stderr.starts_with(&note), "{}", run.stderr);
        let quiet = gsan().run(&["run", "-q", "sh", "-c", &script]);
        assert!(!quiet.stderr.contains("signal"), "{}", quiet.stderr);
    }
    let own = gsan().run(&["run", "sh", "-c", "exit 143"]);
    assert!(!own.stderr.contains("signal"), "{}", own.stderr);
}

#[test]
fn a_run_in_which_nobody_used_gsan_says_so() {
    let run = gsan().run(&["run", "--", "sh", "-c", "echo hello; exit 3"]);
    assert_eq!((run.code, run.stdout.as_str()), (3, "hello\n"));
    insta::assert_snapshot!(run.stderr, @r"
    warning: 1 input was not checked
     |
     = input: sh: no process of this run used GSan: nothing was checked
     = help: GSan is used by Python programs that launch Triton kernels, and by programs that call the functions of gsan.h

    gsan: nothing was checked, 1 input not checked
     |
     = checked: 0 accesses in 0 launches
     = memory: 0 B covered
    ");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let here = gsan()
        .file("text", "no program")
        .file("script", "echo\n")
        .file("orphan", "#!/nowhere/interpreter\n");
    for script in ["script", "orphan"] {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(here.path().join(script), mode).unwrap();
    }
    let mut texts = String::new();
    for (program, code) in [
        ("no-such-program", 2),
        ("./nowhere/x", 2),
        ("./text", 1),
        ("./", 1),
        ("./script", 1),
        ("./orphan", 1),
    ] {
        let run = here.run(&["run", "--", program, "-x"]);
        assert_eq!(run.code, code, "{program}: {}", run.stderr);
        texts.push_str(&run.stderr);
    }
    insta::assert_snapshot!(texts);
    assert_eq!(here.run(&["run"]).code, 2);
    assert_eq!(here.run(&["run", "--"]).code, 2);
}

#[test]
fn the_program_gets_the_configuration_and_finds_the_package() {
    let gsan = gsan()
        .with("PYTHONPATH", "/elsewhere")
        .with("TRITON_INSTRUMENTATION_MODE", "other")
        .file("gsan.toml", "[shadow]\nrecords = 2\n")
        .file("package/_inject/sitecustomize.py", "");
    let root = std::fs::canonicalize(gsan.path()).unwrap();
    let gsan = gsan.with("GSAN_PYTHON_PACKAGE", "package");
    let set = ["-c", "report.on_race=halt", "-c", "sampling.seed=5"];
    let script = "cd /; for name in GSAN_RUN GSAN_CONFIG GSAN_REPORT_ON_RACE GSAN_SAMPLING_SEED \
                  PYTHONPATH TRITON_INSTRUMENTATION_MODE TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER; \
                  do eval echo \\$name=\\$$name; done; test -d $GSAN_RUN";
    let mut arguments = vec!["run"];
    arguments.extend(set);
    arguments.extend(["sh", "-c", script]);
    let run = gsan.run(&arguments).succeeds();
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[0].starts_with("GSAN_RUN=/dev/shm/gsan-run-"),
        "{lines:?}"
    );
    let root = root.display();
    assert_eq!(
        lines[1..],
        [
            format!("GSAN_CONFIG={root}/gsan.toml").as_str(),
            "GSAN_REPORT_ON_RACE=\"halt\"",
            "GSAN_SAMPLING_SEED=5",
            format!("PYTHONPATH={root}/package/_inject:/elsewhere").as_str(),
            "TRITON_INSTRUMENTATION_MODE=other,gsan",
            "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER=0",
        ]
    );
    // What a child reads of it is what was said.
    let child = gsan.run(&[
        "run",
        "-c",
        "report.on_race=halt",
        "--",
        env!("CARGO_BIN_EXE_gsan"),
        "config",
    ]);
    assert!(
        child.stdout.contains("on_race = \"halt\""),
        "{}",
        child.stdout
    );
}

#[test]
fn reports_are_written_as_the_configuration_says() {
    let gsan = gsan();
    let formats = "report.formats=human,json,sarif";
    let run = run_program(&gsan, &["-c", formats], "race");
    assert_eq!(run.code, 66);
    let stored: Report = gsan_report::json::read(gsan.read("gsan-report.json").as_bytes()).unwrap();
    assert_eq!((stored.races.len(), stored.races[0].times), (1, 3));
    assert!(gsan.read("gsan-report.sarif").contains("\"2.1.0\""));
    assert!(run.stderr.contains("error[read-after-write]"));

    let run = run_program(&gsan, &["--format", "json"], "race");
    let (own, report) = run.stdout.split_once('\n').unwrap();
    assert_eq!(own, "the program's own words");
    let shown = gsan_report::json::read(report.as_bytes()).unwrap();
    assert_eq!(shown.races, stored.races);
    assert_eq!(run.stderr, "");

    let run = run_program(&gsan, &["-o", "out.txt"], "race");
    assert_eq!(run.stderr, "");
    assert!(gsan.read("out.txt").contains("error[read-after-write]"));
    let run = run_program(&gsan, &["-o", "nowhere/out.txt"], "race");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
}

#[test]
fn suppressed_races_are_counted() {
    let gsan = gsan().file(
        "gsan.toml",
        "[[report.suppress]]\nkernel = \"split*\"\nreason = \"known\"\n",
    );
    let run = run_program(&gsan, &[], "race");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("3 by kernel \"split*\" (known)"),
        "{}",
        run.stderr
    );
}

#[test]
fn every_process_of_a_run_is_heard() {
    let run = run_program(&gsan(), &["--format", "json"], "family 5");
    let report = run.stdout.split_once('{').unwrap().1;
    let report = gsan_report::json::read(format!("{{{report}").as_bytes()).unwrap();
    assert_eq!(report.summary.processes, 6, "{}", run.stderr);
    // The same lines of the same kernel: one race.
    assert_eq!((report.races.len(), report.races[0].times), (1, 18));
}

#[test]
fn a_run_inside_a_run_is_heard_by_both() {
    let gsan = gsan().file("kernel.py", program::SOURCE);
    let inner = env!("CARGO_BIN_EXE_gsan");
    let program = program::command("race");
    let mut arguments = vec!["run", "-q", "--format", "json", "-o", "outer.json", "--"];
    arguments.extend([inner, "run", "--"]);
    arguments.extend(program.iter().map(String::as_str));
    let run = gsan.run(&arguments);
    assert_eq!(run.code, 66);
    // Printed once, by the inner one.
    assert_eq!(run.stderr.matches("error[").count(), 1, "{}", run.stderr);
    let outer = gsan_report::json::read(gsan.read("outer.json").as_bytes()).unwrap();
    assert_eq!((outer.races.len(), outer.races[0].times), (1, 3));
}

/// Starts `gsan run` with the test program, waits until the program says something, and returns the
/// process, with the directory of the run.
fn start(gsan: &Gsan, options: &[&str], deed: &str) -> (std::process::Child, PathBuf) {
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.push("--");
    let program = program::command(deed);
    arguments.extend(program.iter().map(String::as_str));
    let mut child = gsan.start(&arguments);
    let directory = program::first_line(&mut child);
    (child, PathBuf::from(directory))
}

#[test]
fn signals_reach_the_program_and_the_directory_goes() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::USR1, 138),
    ] {
        let (child, directory) = start(&gsan(), &[], "wait");
        assert!(directory.is_dir());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal:?}");
        assert!(!directory.exists());
    }
}

#[test]
fn a_program_may_take_a_signal_as_it_likes() {
    let script = "trap 'exit 5' TERM; echo $GSAN_RUN; while :; do sleep 0.05; done";
    let gsan = gsan();
    let mut child = gsan.start(&["run", "sh", "-c", script]);
    program::first_line(&mut child);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn what_the_terminal_sends_to_the_group_arrives_once() {
    // The terminal's signals come from the kernel. Those of a member of the group come from inside.
    let script = "trap 'echo got it >> got' INT; echo $GSAN_RUN; kill -INT 0; sleep 0.3; exit 4";
    let gsan = gsan();
    let mut command = gsan.prepared(&["run", "sh", "-c", script]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let status = command.status().unwrap();
    assert_eq!(status.code(), Some(4));
    assert_eq!(gsan.read("got"), "got it\n");
}

#[test]
fn a_program_that_is_interrupted_at_a_terminal_is_so_once() {
    let terminal = "/usr/bin/script";
    if !Path::new(terminal).exists() {
        println!("passed over: no script(1) here");
        return;
    }
    let gsan = gsan().file(
        "program.sh",
        "trap 'echo got it >> got' INT\necho ready > ready\nwhile [ ! -e got ]; do sleep 0.05; done\n\
         sleep 0.3\nexit 4\n",
    );
    let line = format!("exec {} run sh program.sh", env!("CARGO_BIN_EXE_gsan"));
    let mut child = gsan
        .prepared_with(terminal, &["-qec", &line, "/dev/null"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !gsan.path().join("ready").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut keys = child.stdin.take().unwrap();
    // Control and C.
    std::io::Write::write_all(&mut keys, b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(gsan.read("got"), "got it\n");
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_program() {
    let program = program::command("race");
    let words: Vec<String> = program.iter().map(|word| format!("'{word}'")).collect();
    for blocks in [16, 40_000] {
        let script = format!("ulimit -f {blocks}; exec {}", words.join(" "));
        let run = gsan().run(&["run", "bash", "-c", &script]);
        // Without room for a part there is none, which is an error and no signal.
        let told = run.stderr.contains("error[read-after-write]");
        let code = if told { 66 } else { 101 };
        assert_eq!(run.code, code, "{blocks}: {}", run.stderr);
        assert_eq!(told, blocks > 16);
    }
}

#[test]
fn a_group_that_is_killed_leaves_a_directory_that_the_next_run_removes() {
    let gsan = gsan();
    let mut command = gsan.prepared(&["run", "sh", "-c", "echo $GSAN_RUN; sleep 100"]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let left = PathBuf::from(program::first_line(&mut child));
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(left.is_dir());
    program::age(&left.join("run"));
    gsan.run(&["run", "true"]).succeeds();
    assert!(!left.exists());
    assert!(!directories().contains(&left));
}

/// All races that the killed programs had told are printed and written.
fn assert_all_told(gsan: &Gsan, run: &Run, processes: u64, least: usize) {
    let stored = gsan_report::json::read(gsan.read("gsan-report.json").as_bytes()).unwrap();
    assert_eq!(run.code, 66);
    assert_eq!(stored.summary.processes, processes, "{}", run.stderr);
    assert!(stored.races.len() >= least, "{}", stored.races.len());
    let printed = run.stderr.matches("error[read-after-write]").count();
    assert_eq!(printed, stored.races.len());
    let told: u64 = stored.races.iter().map(|race| race.times).sum();
    let lost = stored.unchecked.len() as u64;
    // Each process notes how many it has told, right after each.
    let noted = program::noted(gsan.path());
    assert_eq!(noted.len() as u64, processes);
    let noted: u64 = noted.iter().sum();
    assert!(
        (noted..=noted + processes).contains(&(told + lost)),
        "{told} and {lost} of {noted}"
    );
}

const MANY: [&str; 14] = [
    "-c",
    "report.limit=20000",
    "-c",
    "report.formats=human,json",
    "-c",
    "topology.backend=host",
    "-c",
    "shadow.reserve=1GiB",
    "-c",
    "clock.publications=1024",
    "-c",
    "clock.snapshot_memory=4MiB",
    "-c",
    "clock.private_memory=4MiB",
];

#[test]
fn races_of_a_process_that_is_killed_are_printed_and_written() {
    for death in ["SIGKILL", "SIGSEGV", "abort", "_exit"] {
        let gsan = gsan();
        let run = run_program(&gsan, &MANY, &format!("die {death}"));
        assert_all_told(&gsan, &run, 1, 5000);
    }
}

#[test]
fn races_of_kernels_of_a_process_that_is_killed_are_printed_and_written() {
    for death in ["SIGKILL", "SIGSEGV", "abort", "_exit"] {
        let gsan = gsan();
        let run = run_program(&gsan, &MANY, &format!("launch {death}"));
        assert_all_told(&gsan, &run, 1, 5000);
    }
}

#[test]
fn races_of_kernels_of_eight_processes_that_are_killed_are_printed_and_written() {
    let gsan = gsan();
    let run = run_program(&gsan, &MANY, "eight launch SIGKILL");
    assert_all_told(&gsan, &run, 8, 5000);
}

#[test]
fn races_of_eight_processes_that_are_killed_are_printed_and_written() {
    let deaths = ["SIGKILL", "SIGSEGV", "abort", "_exit"];
    let long = std::env::var_os("GSAN_LONG").is_some();
    for death in &deaths[..if long { deaths.len() } else { 1 }] {
        let gsan = gsan();
        let run = run_program(&gsan, &MANY, &format!("eight die {death}"));
        // The one that starts them has no part.
        assert_all_told(&gsan, &run, 8, 5000);
    }
}

#[test]
fn a_process_that_is_killed_is_said_to_have_been() {
    let gsan = gsan().file("kernel.py", program::SOURCE);
    let run = run_program(&gsan, &[], "one and die");
    assert_eq!(run.code, 66);
    insta::assert_snapshot!(steady(&run.stderr));
}

#[test]
fn races_are_printed_while_the_program_runs() {
    let gsan = gsan();
    let (mut child, _) = start(&gsan, &[], "race and wait");
    let start = Instant::now();
    let line = program::first_error(&mut child);
    assert!(line.contains("error[read-after-write]"), "{line}");
    println!("printed after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(child.try_wait().unwrap().is_none(), "it runs");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(66));
}

#[test]
fn a_process_for_which_there_is_no_room_is_named() {
    let words = program::command("nothing");
    let program: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("echo $$; ulimit -f 8; exec {}", program.join(" "));
    let run = gsan().run(&["run", "sh", "-c", &line]);
    let pid = run.stdout.lines().next().unwrap();
    let said = format!("process {pid}: what it found is not in this report");
    assert!(run.stderr.contains(&said), "{}", run.stderr);
    assert!(!run.stderr.contains("no process of this run used GSan"));
}

#[test]
fn a_process_that_cannot_reach_its_run_says_so() {
    let words = program::command("nothing");
    let program: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("GSAN_RUN=/nowhere/run; exec {}", program.join(" "));
    let said = "GSAN_RUN names /nowhere/run, which is no directory here";
    let run = gsan().run(&["run", "sh", "-c", &line]).succeeds();
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    // So does a run inside of it.
    let run = gsan().with("GSAN_RUN", "/nowhere/run");
    let run = run.run(&["run", "true"]).succeeds();
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
}

#[test]
fn what_nohup_has_ignored_stays_ignored() {
    let run = gsan().run(&["run", "sh", "-c", "grep SigIgn /proc/self/status"]);
    let without = u64::from_str_radix(run.stdout.split_whitespace().last().unwrap(), 16).unwrap();
    let run = gsan().run(&["run", "true"]);
    assert_eq!(run.code, 0);
    let output = gsan()
        .prepared_with(
            "sh",
            &[
                "-c",
                &format!(
                    "trap '' HUP; exec {} run sh -c 'grep SigIgn /proc/self/status'",
                    env!("CARGO_BIN_EXE_gsan")
                ),
            ],
        )
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let with = u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!((without & 1, with & 1), (0, 1));
}

#[test]
fn the_line_on_a_terminal_gives_way_to_races() {
    let gsan = gsan();
    let words = program::command("race slowly");
    let program: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let program = program.join(" ");
    let line = format!("{} run -- {program}", env!("CARGO_BIN_EXE_gsan"));
    let terminal = Path::new("/usr/bin/script");
    if !terminal.exists() {
        println!("passed over: no script(1) here");
        return;
    }
    let output = gsan
        .prepared_with("/usr/bin/script", &["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(66), "{text}");
    let shown = text.find("gsan: 1 process, 2 launches checked, 0 findings\r");
    let race = text.find("read-after-write");
    assert!(shown.is_some() && shown < race, "{text:?}");
    // The line is gone before the race is told.
    let before = &text[..race.unwrap()];
    let cleared = before.rfind("\r\u{1b}[2K").unwrap();
    assert!(!before[cleared..].contains("launches"), "{text:?}");
}
