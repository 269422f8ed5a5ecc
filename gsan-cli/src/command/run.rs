//! `gsan run`.

mod child;
mod environment;
mod progress;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gsan_report::human::{self, Look};
use gsan_report::model::Report;
use gsan_report::source::Sources;
use gsan_report::{json, sarif};
use gsan_runtime::run::Run;
use gsan_runtime::run_directory::RunDirectory;
use gsan_runtime::telling::News;
use signal_hook::low_level::signal_name;

pub(crate) use self::environment::package;

use self::child::{Child, Ended};
use self::progress::Progress;
use crate::arguments::Shared;
use crate::failure::Failure;
use crate::forms::{self, Form};
use crate::{configuration, output, shell};

/// Run a program and report the races of it and of every process that it starts
#[derive(Debug, Args)]
#[command(after_help = "\
Races are printed on standard error as they are found, and a summary at the end: standard output
belongs to the program. With `--format json` or `sarif` the report goes to standard output, or to
the file named with -o, once the program has ended.

Examples:
  gsan run -- python train.py
  gsan run -- torchrun --nproc-per-node=8 train.py
  gsan run -c report.on_race=halt -- ./program --fast
  gsan run --format sarif -o gsan.sarif -- python -m pytest

Exit codes:
  66     races were found (`report.exit_code`), whatever the program's own code is
  2      the program, or the directory of a report, is not there; wrong usage or configuration
  1      the program cannot be started, or a report cannot be written
  other  the program's own; 128 plus the number of the signal that ended it")]
pub(crate) struct Arguments {
    /// The form of the report; in place of `report.formats` and of the ending of FILE
    #[arg(long, value_enum)]
    format: Option<Form>,

    /// Write the report to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The program, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

const STILL_RUNS: &str = "still runs; what it has found up to now is in the report";
const ENDED_SILENTLY: &str = "ended without a word; all that it had found is in the report, its last \
                              second may be missing in what was checked";

/// How long new findings wait to be looked for.
const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    let loaded = configuration::load(shared)?;
    let config = &loaded.config.report;
    let destinations = forms::of_run(arguments.format, arguments.output.as_deref(), config);
    for file in destinations.iter().filter_map(|to| to.file.as_deref()) {
        output::check_file(file, [])?;
    }
    let directory = RunDirectory::new().map_err(|error| {
        Failure::other(format!(
            "no directory for what the program's processes find: {error}"
        ))
        .help("make room in /dev/shm, or make it writable")
    })?;
    let mut run = Run::new(directory.path(), config.limit as usize, &config.suppress);
    let environment = environment::of_run(directory.path(), &loaded);

    let here = std::env::current_dir().unwrap_or_default();
    let look = output::look_of_errors(config.context_lines);
    let to_people = |to: &forms::Destination| to.form == Form::Human && to.file.is_none();
    let mut teller = Teller {
        sources: Sources::new(&here),
        look,
        tells: destinations.iter().any(to_people),
        progress: Progress::new(shared),
    };
    let mut child = Child::start(&arguments.command, &environment)?;
    let ended = loop {
        let ended = child.wait(INTERVAL);
        teller.tell(&run.poll());
        match ended {
            Some(ended) => break ended,
            None => teller.progress.show(&run.status()),
        }
    };
    teller.tell(&run.settle());
    teller.progress.clear();
    if let Ended::Signal(signal) = ended {
        // Shells say so of what they start themselves, which is `gsan run`.
        let name = signal_name(signal.into()).map_or(String::new(), |name| format!(" ({name})"));
        let text = format!("the program was ended by signal {signal}{name}");
        output::note(shared, &text);
    }
    for ending in run.endings() {
        let what = if ending.running {
            STILL_RUNS
        } else {
            ENDED_SILENTLY
        };
        output::note(shared, &format!("{} {what}", ending.name));
    }
    let program = shell::quoted(&arguments.command[0]);
    let report = run.finish(&program);
    let reports = destinations
        .iter()
        .map(|to| write(to, &report, &mut teller, &here))
        .fold(Ok(()), Result::and);
    drop(directory);
    let found = report.has_findings(config.strict);
    match (found, reports) {
        (true, reports) => {
            // Races are the news, even if the report cannot be written.
            if let Err(failure) = reports {
                output::complain(&failure.render());
            }
            Ok(config.exit_code.into())
        }
        (false, reports) => reports.map(|()| ended.code()),
    }
}

fn write(
    to: &forms::Destination,
    report: &Report,
    teller: &mut Teller,
    here: &Path,
) -> Result<(), Failure> {
    let text = match (to.form, &to.file) {
        (Form::Human, None) => {
            output::errors(&human::rest(report, &teller.look));
            return Ok(());
        }
        (Form::Human, Some(_)) => {
            let look = Look {
                color: false,
                ..teller.look
            };
            human::report(report, &mut teller.sources, &look)
        }
        (Form::Json, _) => json::write(report),
        (Form::Sarif, _) => sarif::write(report, here),
    };
    match &to.file {
        Some(file) => output::to_file(file, &text),
        None => output::bytes(text.as_bytes()),
    }
}

/// Tells people of findings.
struct Teller {
    sources: Sources,
    look: Look,
    tells: bool,
    progress: Progress,
}

impl Teller {
    fn tell(&mut self, news: &[News]) {
        if news.is_empty() || !self.tells {
            return;
        }
        let mut text = String::new();
        for item in news {
            text.push_str(&match item {
                News::Race(race) => human::race(race, &mut self.sources, &self.look),
                News::Possible(race) => human::possible_race(race, &mut self.sources, &self.look),
                News::Fault(fault) => human::fault(fault, &mut self.sources, &self.look),
            });
        }
        self.progress.clear();
        // In one piece, so that the program's own messages come before or after it.
        output::errors(&text);
    }
}

impl Ended {
    fn code(self) -> ExitCode {
        match self {
            Ended::Code(code) => code.into(),
            Ended::Signal(signal) => signal.saturating_add(128).into(),
        }
    }
}
