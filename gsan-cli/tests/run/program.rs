//! The program that is run: this very test, which does what its environment says. It tells of races as
//! a device would.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Zeroable;
use gsan_core::ids::{DeviceRank, SiteId};
use gsan_core::launch_log::LaunchRecord;
use gsan_core::layout::{RaceEntry, RaceSide, race_codes};
use gsan_core::scope::{Order, Scope};
use gsan_runtime::Session;
use gsan_runtime::drain::Drainer;
use gsan_runtime::findings::Findings;
use gsan_runtime::host::{AtomicOperation, HostCta};
use gsan_runtime::part::{Checked, Part};
use gsan_runtime::run_directory;
use gsan_runtime::session::KernelLaunch;
use gsan_vmm::backend::Device;
use rustix::process::{Signal, getpid, kill_process};

/// The source of the kernel whose races are told.
pub(crate) const SOURCE: &str =
    "@jit\ndef splitk(part, acc):\n    store(part, 1)\n    acc += load(part)\n";

const DEED: &str = "GSAN_TEST_DEED";
/// Lines of either side of the races of those who die, so that there are 10,000 distinct ones.
const LINES: u32 = 100;
/// Where they note how many races they have told.
const NOTES: &str = "told-";

/// The command that does `deed`.
pub(crate) fn command(deed: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    [
        "env",
        &format!("{DEED}={deed}"),
        program.to_str().unwrap(),
        "--exact",
        "program::program",
        "--nocapture",
        "--test-threads=1",
        "-q",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Not a test, but the program.
#[test]
fn program() {
    if let Ok(deed) = std::env::var(DEED) {
        std::process::exit(run(&deed));
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").unwrap();
    out.flush().unwrap();
}

fn run(deed: &str) -> i32 {
    let (what, argument) = deed.split_once(' ').unwrap_or((deed, ""));
    match what {
        "nothing" => drop(drainer()),
        "code" => {
            drainer();
            return argument.parse().unwrap();
        }
        "race" => match argument {
            "" => {
                say("the program's own words");
                tell_and_finish();
            }
            "and wait" => {
                let drainer = drainer();
                say(&directory());
                tell(drainer.part(), 3);
                std::thread::sleep(Duration::from_secs(100));
            }
            _ => {
                let drainer = drainer();
                std::thread::sleep(Duration::from_millis(2500));
                tell(drainer.part(), 3);
                drainer.finish();
            }
        },
        "possible" => {
            let drainer = drainer();
            let mut entry = race(3, 4);
            entry.flags = race_codes::POSSIBLE as u16;
            drainer.part().ring().append(&entry);
            drainer.finish();
        }
        "abort" => {
            drainer().finish();
            std::process::abort();
        }
        "wait" => {
            say(&directory());
            std::thread::sleep(Duration::from_secs(100));
        }
        "one" => {
            let drainer = drainer();
            tell(drainer.part(), 1);
            die("SIGKILL");
        }
        "family" => {
            let count: usize = argument.parse().unwrap();
            let children: Vec<Child> = (0..count).map(|_| child("race")).collect();
            tell_and_finish();
            children.into_iter().for_each(|mut child| {
                assert!(child.wait().unwrap().success());
            });
        }
        "die" => tell_until_death(argument),
        "launch" => launch_until_death(argument),
        "eight" => {
            let children: Vec<Child> = (0..8).map(|_| child(argument)).collect();
            children.into_iter().for_each(|mut child| {
                assert!(!child.wait().unwrap().success());
            });
        }
        _ => panic!("{deed}"),
    }
    0
}

fn child(deed: &str) -> Child {
    let command = command(deed);
    Command::new(&command[0])
        .args(&command[1..])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn directory() -> String {
    std::env::var(run_directory::VARIABLE).unwrap()
}

fn drainer() -> Drainer {
    let directory = run_directory::of_process();
    let part = Part::new(directory.as_deref(), &[DeviceRank(0)]).unwrap();
    part.name_kernel(1, "splitk", None);
    part.launches(0).unwrap().enter(&LaunchRecord {
        number: 12,
        kernel: 1,
        stream: 0,
        grid: [4, 8, 1],
        opaque: false,
    });
    for line in 1..=2 * LINES {
        let mirror = part.site_mirror(0).unwrap();
        assert!(mirror.add(SiteId(line), 64 * line, "kernel.py", line));
    }
    part.allocated(0x8200_0000_0000, 131_072);
    let checked = Checked {
        launches: 2,
        accesses: 1000,
        covered_bytes: 131_072,
        seed: 7,
        ..Checked::default()
    };
    let findings = Arc::new(Findings::new(100_000, &[]));
    let ask = Box::new(move || Some(checked));
    let drainer = Drainer::start(Arc::new(part), findings, ask, None).unwrap();
    drainer.part().set_checked(&checked);
    drainer
}

fn side(line: u32, cta: u32, action: u32) -> RaceSide {
    RaceSide {
        launch: 12,
        cta,
        epoch: 1,
        thread: 0,
        site: line as u16,
        device: 0,
        action: action as u8,
        scope: 0,
        flags: 0,
    }
}

fn race(earlier: u32, later: u32) -> RaceEntry {
    RaceEntry {
        address: 0x8200_0000_1000,
        mask: 0x0f,
        kind: race_codes::READ_AFTER_WRITE as u8,
        earlier: side(earlier, 7, race_codes::WRITE),
        later: side(later, 31, race_codes::READ),
        ..RaceEntry::zeroed()
    }
}

/// Tells of the race of [`SOURCE`] some times, at once.
fn tell(part: &Part, times: u32) {
    let entry = RaceEntry {
        repeats: times - 1,
        ..race(3, 4)
    };
    assert!(part.ring().append(&entry));
}

fn tell_and_finish() {
    let drainer = drainer();
    tell(drainer.part(), 3);
    drainer.finish();
}

fn die(death: &str) -> ! {
    match death {
        "SIGKILL" => kill_process(getpid(), Signal::KILL).unwrap(),
        "abort" => std::process::abort(),
        // SAFETY: nothing is needed any more.
        "_exit" => unsafe { libc::_exit(7) },
        _ => {
            let nowhere = std::ptr::without_provenance_mut::<u8>(64);
            // SAFETY: it is not safe, which is the point.
            unsafe { nowhere.write_volatile(1) }
        }
    }
    unreachable!()
}

/// Tells of 10,000 races, each another one, and dies in the middle, while they are drained.
fn tell_until_death(death: &str) {
    let drainer = drainer();
    let note = format!("{NOTES}{}", std::process::id());
    let note = std::fs::File::create(note).unwrap();
    for number in 0..10_000u32 {
        if number == 5000 + std::process::id() % 1000 {
            die(death);
        }
        let entry = race(1 + number / LINES, 1 + LINES + number % LINES);
        assert!(drainer.part().ring().append(&entry));
        let told = u64::from(number) + 1;
        std::os::unix::fs::FileExt::write_all_at(&note, &told.to_le_bytes(), 0).unwrap();
    }
}

/// The same with a session, on the host's memory: a CTA reads what another one has written, each granule
/// from another pair of lines, and dies in the middle.
fn launch_until_death(death: &str) {
    let session = Session::get_or_start("a test").unwrap();
    let memory = session.allocate(80_000 + 64, GPU, 0).unwrap();
    let note = format!("{NOTES}{}", std::process::id());
    let note = std::fs::File::create(note).unwrap();
    let death = death.to_owned();
    let info = KernelLaunch {
        kernel: "splitk",
        grid: [2, 1, 1],
        block: [1, 1, 1],
        ..KernelLaunch::default()
    };
    let flag = memory + 80_000;
    let body = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
        let atomic = |operation| {
            let (order, scope) = (Order::Relaxed, Scope::Gpu);
            cta.atomic(operation, flag, 4, 1, 0, order, scope, FILE, 1000)
                .unwrap()
        };
        for number in 0..10_000u32 {
            let address = memory + 8 * u64::from(number);
            if x == 0 {
                let line = 1 + number / LINES;
                cta.write(address, &[1; 8], FILE, line).unwrap();
                continue;
            }
            while number == 0 && atomic(AtomicOperation::Load) == 0 {}
            if number == 5000 + std::process::id() % 1000 {
                die(&death);
            }
            let line = 1 + LINES + number % LINES;
            cta.read(address, &mut [0; 8], FILE, line).unwrap();
            let told = u64::from(number) + 1;
            std::os::unix::fs::FileExt::write_all_at(&note, &told.to_le_bytes(), 0).unwrap();
        }
        atomic(AtomicOperation::Store);
    };
    session.launch_on_host(GPU, 0, &info, body).unwrap();
    session.settle().unwrap();
}

const FILE: &std::ffi::CStr = c"kernel.py";
const GPU: Device = Device(0);

/// How many races each process that died had told, as they noted in `directory`.
pub(crate) fn noted(directory: &Path) -> Vec<u64> {
    let notes = std::fs::read_dir(directory).unwrap().flatten();
    notes
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(NOTES))
        .map(|entry| u64::from_le_bytes(std::fs::read(entry.path()).unwrap().try_into().unwrap()))
        .collect()
}

/// The first line that names a directory, of what a process says.
pub(crate) fn first_line(child: &mut Child) -> String {
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = out.lines().map_while(Result::ok);
    lines.find(|line| line.starts_with('/')).unwrap()
}

/// The first line that names an error.
pub(crate) fn first_error(child: &mut Child) -> String {
    let out = BufReader::new(child.stderr.take().unwrap());
    let mut lines = out.lines().map_while(Result::ok);
    lines.find(|line| line.contains("error")).unwrap()
}

/// Makes a file look older than it is.
pub(crate) fn age(path: &Path) {
    let past = std::time::SystemTime::now() - Duration::from_secs(60);
    let file = std::fs::File::open(path).unwrap();
    file.set_modified(past).unwrap();
}
