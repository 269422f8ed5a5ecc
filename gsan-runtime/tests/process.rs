//! The process's one session. Each test has a process of its own (`cargo nextest`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_runtime::host::HostCta;
use gsan_runtime::process;
use gsan_runtime::session::{KernelLaunch, Meeting};
use gsan_runtime::telling::News;
use gsan_runtime::{Kind, Session};
use gsan_vmm::backend::Device;
use rustix::fs::{FlockOperation, flock};

const GPU: Device = Device(0);

const SMALL: &str = r#"
[topology]
backend = "host"
[shadow]
reserve = "1GiB"
[clock]
publications = 1024
snapshot_memory = "4MiB"
private_memory = "4MiB"
"#;

fn configure(more: &str) {
    for text in [SMALL, more] {
        process::configure(text, "test").unwrap();
    }
}

/// Two CTAs that write the same word, at a line of their own.
fn race(session: &Session, kernel: &'static str, line: u32) {
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let launch = KernelLaunch {
        kernel,
        grid: [2, 1, 1],
        block: [1, 1, 1],
        ..KernelLaunch::default()
    };
    let body = move |cta: &HostCta<'_>, _: [u32; 3]| {
        cta.write(memory, &[0; 4], c"race.cu", line).unwrap();
    };
    session.launch_on_host(GPU, 0, &launch, body).unwrap();
    session.stream_synchronized(GPU, 0).unwrap();
    session.free(memory, 4096, GPU, 0).unwrap();
}

#[test]
fn the_configuration_is_fixed_at_first_use_and_free_after_a_reset() {
    configure("[launch]\nslots_per_sm = 3\n");
    assert!(!process::is_frozen());
    assert!(process::running().is_none());
    let text = process::configuration().unwrap();
    assert!(text.contains("slots_per_sm = 3"), "{text}");
    let session = Session::get_or_start("gsanMalloc").unwrap();
    assert!(process::is_frozen());
    let error = process::configure("[sampling]\nseed = 3\n", "test").unwrap_err();
    assert_eq!(error.kind(), Kind::Frozen);
    assert!(error.to_string().contains("gsanMalloc"), "{error}");
    assert!(Arc::ptr_eq(
        &session,
        &Session::get_or_start("again").unwrap()
    ));

    let memory = session.allocate(100, GPU, 0).unwrap();
    let error = process::reset().unwrap_err();
    assert_eq!(error.kind(), Kind::Live);
    assert!(
        error
            .to_string()
            .contains("1 allocation is live, 100 bytes"),
        "{error}"
    );
    session.free(memory, 100, GPU, 0).unwrap();
    let graph = session.begin_graph(GPU).unwrap().finish().unwrap();
    let error = process::reset().unwrap_err();
    assert_eq!(error.kind(), Kind::Live);
    assert!(
        error.to_string().contains("1 graph is not closed"),
        "{error}"
    );
    assert!(process::is_frozen());
    graph.close().unwrap();
    let builder = session.begin_graph(GPU).unwrap();
    let error = process::reset().unwrap_err();
    assert_eq!(error.kind(), Kind::Live);
    assert!(
        error.to_string().contains("1 graph is being built"),
        "{error}"
    );
    drop(builder);
    drop(graph);

    race(&session, "first", 1);
    drop(session);
    process::reset().unwrap();
    assert!(!process::is_frozen());
    let text = process::configuration().unwrap();
    assert!(text.contains("slots_per_sm = 16"), "{text}");
    // What was found stays found.
    assert_eq!(process::race_count().unwrap(), (1, 0));

    configure("[shadow]\nrecords = 2\n");
    let session = Session::get_or_start("test").unwrap();
    assert_eq!(session.allocator().space().records().count(), 2);
    race(&session, "second", 2);
    assert_eq!(process::race_count().unwrap(), (2, 0));
    let report = process::report().unwrap();
    let kernels = report
        .races
        .iter()
        .map(|race| race.later.who.kernel.as_deref());
    assert_eq!(kernels.collect::<Vec<_>>(), [Some("first"), Some("second")]);
    assert_eq!(report.summary.launches, 2);
    process::forget_races().unwrap();
    assert_eq!(process::race_count().unwrap(), (0, 0));
    race(&session, "third", 3);
    assert_eq!(process::race_count().unwrap(), (1, 0));
    process::forget_races().unwrap();
    let mut told = Vec::new();
    for _ in 0..2 {
        let launches = process::report().unwrap().summary.launches;
        race(&session, "third", 3);
        let report = process::report().unwrap();
        let [race] = &report.races[..] else {
            panic!("it is found anew once it was forgotten: {report:?}")
        };
        let newest = race.later.who.launch;
        assert_eq!((race.times, newest), (1, race.earlier.who.launch));
        assert_eq!(report.summary.launches, launches + 1);
        told.push(newest.unwrap());
        process::forget_races().unwrap();
    }
    assert!(told[0] < told[1], "{told:?}");
}

#[test]
fn a_wrong_configuration_is_refused_and_changes_nothing() {
    configure("");
    for (text, word) in [
        ("[shadow]\nrecrds = 4\n", "shadow.records"),
        ("[shadow]\nrecords = 3\n", "2 or 4"),
        ("[sampling]\nseed = 1\n[launch]\nslots_per_sm = 99\n", "32"),
        (
            "[topology]\nnum_devices = 1\ndevice_ranks = { 0 = 1 }\n",
            "topology.num_devices",
        ),
        ("this is no TOML", "TOML"),
    ] {
        let error = process::configure(text, "gsan_configure").unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        let said = error.to_string();
        assert!(said.contains(word), "{said}");
        assert!(said.contains("gsan_configure"), "{said}");
    }
    let text = process::configuration().unwrap();
    assert!(
        text.contains("records = 4") && text.contains("seed = 0 "),
        "{text}"
    );
}

#[test]
fn a_session_that_cannot_start_leaves_the_configuration_free() {
    configure("[clock]\nsnapshot_memory = \"900MiB\"\nprivate_memory = \"900MiB\"\n");
    let error = Session::get_or_start("test").err().unwrap();
    assert_eq!(error.kind(), Kind::InvalidArgument);
    assert!(!process::is_frozen());
    configure("");
    Session::get_or_start("test").unwrap();
}

#[test]
fn each_race_is_told_once_from_a_thread_of_its_own() {
    configure("");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let here = std::thread::current().id();
    process::on_race(Some(Arc::new(move |news: &News| {
        let News::Race(race) = news else {
            panic!("{news:?}");
        };
        let line = race.later.place.as_ref().unwrap().line;
        // A callback may ask for more.
        let _ = process::is_frozen();
        tell.lock()
            .unwrap()
            .push((line, std::thread::current().id() == here));
    })));
    let session = Session::get_or_start("test").unwrap();
    for line in [7, 8, 7, 7] {
        race(&session, "again", line);
    }
    let start = std::time::Instant::now();
    while told.lock().unwrap().len() < 2 && start.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut lines = told.lock().unwrap().clone();
    lines.sort_unstable();
    assert_eq!(lines, [(7, false), (8, false)]);
    process::on_race(None);
    race(&session, "again", 9);
    process::drain().unwrap();
    assert_eq!(told.lock().unwrap().len(), 2);
    assert_eq!(process::race_count().unwrap(), (3, 0));
}

#[test]
fn what_was_found_is_written_as_the_configuration_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let formats = "formats = [\"json\", \"sarif\"]";
    configure(&format!(
        "[report]\n{formats}\npath = \"{}\"\n",
        path.display()
    ));
    let session = Session::get_or_start("test").unwrap();
    race(&session, "writes", 5);
    process::finish().unwrap();
    let stored = gsan_report::json::read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(stored.races.len(), 1);
    assert!(
        std::fs::read(path.with_extension("sarif"))
            .unwrap()
            .starts_with(b"{")
    );
    // It may be called again.
    race(&session, "writes", 6);
    process::finish().unwrap();
    let stored = gsan_report::json::read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(stored.races.len(), 2);
    drop(directory);
    let error = process::finish().unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().contains("report.json"), "{error}");
}

#[test]
#[allow(unsafe_code, reason = "processes are forked")]
fn a_child_that_is_forked_while_the_session_starts_does_not_wait_for_it() {
    configure("");
    let starting = std::thread::spawn(|| Session::get_or_start("test").unwrap());
    while !starting.is_finished() {
        // SAFETY: the child calls what only looks at the process's lock, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: neither takes an argument that could be wrong.
            unsafe {
                libc::alarm(10);
                libc::_exit(i32::from(process::is_frozen()));
            }
        }
        let mut status = 0;
        // SAFETY: the pointer is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "ended by a signal: {status:#x}");
    }
    starting.join().unwrap();
}

#[test]
#[allow(unsafe_code, reason = "a process is forked")]
fn a_forked_child_leaves_its_parents_session_alone() {
    configure("");
    let session = Session::get_or_start("test").unwrap();
    race(&session, "parent", 1);
    // SAFETY: the child calls what does not lock, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = |kind| kind == Kind::Unsupported;
        let all = process::is_detached()
            && !process::is_frozen()
            && process::running().is_none()
            && Session::get_or_start("child").is_err_and(|error| refused(error.kind()))
            && process::report().is_err_and(|error| refused(error.kind()))
            && process::reset().is_err_and(|error| refused(error.kind()))
            && process::finish().is_err_and(|error| refused(error.kind()));
        // SAFETY: it takes no argument that could be wrong.
        unsafe { libc::_exit(if all { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(!process::is_detached());
    race(&session, "parent", 2);
    assert_eq!(process::race_count().unwrap(), (2, 0));
}

const ROLE: &str = "GSAN_TEST_ROLE";
const LIMIT: Duration = Duration::from_secs(30);

/// A process of a group: configured, and joined.
fn member(name: &str, rank: u16, topology: &str) -> Result<Meeting, gsan_runtime::Error> {
    configure(&format!("[topology]\n{topology}\n"));
    process::join(name, rank, 2, LIMIT)
}

/// Not a test: the second process of a group.
#[test]
fn second_process() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    if name.starts_with("agree") {
        let mut meeting = member(&name, 1, "num_devices = 2").unwrap();
        let session = Session::get_or_start("test").unwrap();
        let other = Device(1);
        let memory = session.allocate(4096, other, 0).unwrap();
        let addresses = meeting.share(&session, memory, other).unwrap();
        let ranks = [DeviceRank(0), DeviceRank(1)];
        let group = session.open_group(other, &ranks).unwrap();
        group.barrier(0, LIMIT).unwrap();
        // Rank 0 wrote it before the barrier.
        let word = addresses[0];
        let check = KernelLaunch {
            kernel: "check",
            grid: [1, 1, 1],
            block: [1, 1, 1],
            ..KernelLaunch::default()
        };
        let body = move |cta: &HostCta<'_>, _: [u32; 3]| {
            let mut read = [0; 4];
            cta.read(word, &mut read, c"check.cu", 1).unwrap();
            assert_eq!(read, [7; 4]);
        };
        session.launch_on_host(other, 0, &check, body).unwrap();
        session.stream_synchronized(other, 0).unwrap();
        assert_eq!(process::race_count().unwrap(), (0, 0));
        meeting.exchange(&[]).unwrap();
    } else if name.starts_with("same") {
        let mut meeting = member(&name, 1, "num_devices = 2").unwrap();
        let session = Session::get_or_start("test").unwrap();
        // Each shares a device of its own, but this process has used the other one's.
        race(&session, "elsewhere", 1);
        let other = Device(1);
        let memory = session.allocate(4096, other, 0).unwrap();
        let error = meeting.share(&session, memory, other).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
    } else {
        configure("[topology]\ndevice_ranks = { 1 = 0 }\n");
        Session::get_or_start("test").unwrap();
        let error = process::join(&name, 1, 2, LIMIT).err().unwrap();
        assert_eq!(error.kind(), Kind::InvalidArgument);
    }
}

/// Runs the second process of a group beside the first one.
fn with_second(role: &str, first: impl FnOnce(&str)) {
    let name = format!("{role} {}", std::process::id());
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "second_process", "--nocapture"])
        .env(ROLE, &name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    first(&name);
    assert!(second.wait().unwrap().success());
}

#[test]
fn processes_that_meet_first_agree_on_ranks() {
    with_second("agree", |name| {
        let mut meeting = member(name, 0, "num_devices = 2").unwrap();
        let text = process::configuration().unwrap();
        assert!(text.contains("gsan_rendezvous_join"), "{text}");
        let session = Session::get_or_start("test").unwrap();
        let ranks = [DeviceRank(0), DeviceRank(1)];
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let addresses = meeting.share(&session, memory, GPU).unwrap();
        assert_eq!(addresses[0], memory);
        let group = session.open_group(GPU, &ranks).unwrap();
        let fill = KernelLaunch {
            kernel: "fill",
            grid: [1, 1, 1],
            block: [1, 1, 1],
            ..KernelLaunch::default()
        };
        let body = move |cta: &HostCta<'_>, _: [u32; 3]| {
            cta.write(memory, &[7; 4], c"fill.cu", 1).unwrap();
        };
        session.launch_on_host(GPU, 0, &fill, body).unwrap();
        group.barrier(0, LIMIT).unwrap();
        meeting.exchange(&[]).unwrap();
    });
}

#[test]
fn two_processes_that_use_one_gpu_without_ranks_of_their_own_are_refused() {
    with_second("same", |name| {
        let mut meeting = member(name, 0, "num_devices = 2").unwrap();
        let session = Session::get_or_start("test").unwrap();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let error = meeting.share(&session, memory, GPU).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        let error = error.to_string();
        assert!(error.contains("are the same GPU"), "{error}");
        assert!(error.contains("topology.device_ranks"), "{error}");
    });
}

#[test]
fn two_processes_that_have_used_the_same_rank_are_refused_when_they_meet() {
    with_second("claimed", |name| {
        configure("");
        Session::get_or_start("test").unwrap();
        let error = process::join(name, 0, 2, LIMIT).err().unwrap();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        let error = error.to_string();
        assert!(error.contains("both claim device rank 0"), "{error}");
    });
}

#[test]
fn a_session_that_has_begun_keeps_its_ranks() {
    configure("[topology]\ndevice_ranks = { 0 = 3 }\n");
    let session = Session::get_or_start("test").unwrap();
    let name = format!("alone {}", std::process::id());
    process::join(&name, 0, 1, LIMIT).unwrap();
    assert_eq!(session.device_rank(GPU).unwrap(), DeviceRank(3));
    let limit = Duration::from_millis(50);
    let error = process::join(&format!("{name} ?"), 0, 2, limit)
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
}

/// Not a test: a program of a run, which waits until it may end.
#[test]
fn program_of_a_run() {
    if std::env::var(ROLE).as_deref() != Ok("program") {
        return;
    }
    configure("");
    let session = Session::get_or_start("test").unwrap();
    race(&session, "orphan", 9);
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // As a C program ends: the test runner does not come back.
    std::process::exit(0);
}

/// What such a program says at its end, if the lock of its run's directory is held until then or not.
fn said_in_run(prepare: impl FnOnce(&Path) -> Option<File>, killed: bool) -> String {
    let base = tempfile::tempdir().unwrap();
    let run = base.path().join("gsan-run-test");
    std::fs::create_dir(&run).unwrap();
    let lock = prepare(&run);
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program_of_a_run", "--nocapture"])
        .env(ROLE, "program")
        .env("GSAN_RUN", &run)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let ready = lines.any(|line| line.unwrap().contains("ready"));
    assert!(ready, "it has started");
    if killed {
        drop(lock);
    }
    drop(program.stdin.take());
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn lock(run: &Path) -> Option<File> {
    let lock = File::create_new(run.join("run")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    Some(lock)
}

#[test]
fn a_program_reports_itself_when_its_run_was_killed() {
    let said = said_in_run(lock, true);
    assert!(said.contains("race.cu:9"), "{said}");
}

#[test]
fn a_program_leaves_the_report_to_its_run() {
    assert_eq!(said_in_run(lock, false), "");
}

#[test]
fn a_directory_that_is_no_run_is_said_to_be_none() {
    let said = said_in_run(|_| None, false);
    assert!(said.contains("which no `gsan run` has made"), "{said}");
    assert!(
        said.contains("race.cu:9"),
        "the program reports itself: {said}"
    );
    let said = said_in_run(|run| lock(run).and(None), false);
    assert!(said.contains("whose `gsan run` has ended"), "{said}");
    assert!(said.contains("race.cu:9"), "{said}");
}
