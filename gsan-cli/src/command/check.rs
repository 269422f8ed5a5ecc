//! `gsan check`.

mod files;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gsan_ptx::check::explore::{Explored, Plan, explore};
use gsan_ptx::check::prepare::prepare;
use gsan_ptx::check::spec::{Launch, Spec, dimensions};
use gsan_ptx::check::{Error, Problem};
use gsan_ptx::diagnostic::{Diagnostic, Source};
use gsan_ptx::exec::Limits;
use gsan_ptx::exec::schedule::Strategy;
use gsan_report::builder::{Builder, Merged};
use gsan_report::source::Sources;
use gsan_report::{human, json, sarif};

use crate::arguments::Shared;
use crate::failure::Failure;
use crate::forms::{self, Destination, Form};
use crate::{configuration, output, shell};

/// Run a PTX kernel on the CPU and report its races
#[derive(Debug, Args)]
#[command(after_help = "\
Arguments of a kernel (--arg, once for each, in order):
  buf:BYTES[:TYPE[=INIT]]  a new buffer; its address is passed. INIT: 0, rand, rand:LO:HI, iota,
                           a number, file:PATH
  TYPE:VALUE               a number; TYPE: u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64
  bytes:HEX                a structure

Without --arg and --args, the arguments come from FILE.toml beside FILE.ptx. Directories and
several files are checked one after the other, each with its own FILE.toml:

  [[buffer]]
  name = \"x\"
  elements = 1024             # or bytes = 4096
  type = \"f32\"
  init = \"rand\"             # as INIT above, or a list of numbers
  [[launch]]
  grid = [8, 2]
  block = 128
  args = [\"buf:x\", \"buf:x+64\", \"i32:1024\"]

Exit codes: 66 (`report.exit_code`) if anything was found; 0 if not; 2 if the command, the
configuration or the arguments are wrong; 1 if a kernel is not supported.

Examples:
  gsan check examples/splitk_relaxed.ptx
  gsan check splitk.ptx --entry splitk --grid 16,8 --block 128 --arg buf:131072:f32=rand \\
      --arg buf:131072 --arg buf:16384 --arg buf:64 --arg i32:256 --schedules 100 --seed 1
  gsan check kernels/ --schedules 50 --format sarif -o races.sarif")]
pub(crate) struct Arguments {
    /// PTX files, or directories of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The kernel [default: the only one of the module]
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// CTAs in x, y and z
    #[arg(long, value_name = "X,Y,Z", value_parser = size)]
    grid: Option<Size>,

    /// Threads of a CTA in x, y and z [default: .reqntid]
    #[arg(long, value_name = "X,Y,Z", value_parser = size)]
    block: Option<Size>,

    /// CTAs of a cluster in x, y and z
    #[arg(long, value_name = "X,Y,Z", value_parser = size)]
    cluster: Option<Size>,

    /// An argument of the kernel, as said below; pointers at the end that are left out are null
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    arguments: Vec<String>,

    /// Read launches, buffers and arguments from this file
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["arguments", "entry", "grid", "block", "cluster"])]
    args: Option<PathBuf>,

    /// Dynamic shared memory [default: what the target allows]
    #[arg(long, value_name = "BYTES")]
    shared: Option<u32>,

    /// How many schedules are run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,

    /// The seed of the first schedule; each further one has the next number
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// How turns are given to threads
    #[arg(long, value_enum, default_value_t = StrategyName::Pct)]
    strategy: StrategyName,

    /// Run all schedules, also after one has shown something
    #[arg(long)]
    all: bool,

    /// How many schedules run at once [default: one on each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Instructions after which a schedule is given up
    #[arg(long, value_name = "N", default_value_t = Limits::default().instructions, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,

    /// The form of the report, instead of those in `report.formats` and of the ending of OUT [default: human]
    #[arg(long, value_enum)]
    format: Option<Form>,

    /// Write the report to this file instead of standard output or `report.path`
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StrategyName {
    /// Random priorities with few change points
    Pct,
    /// Any thread, all equally likely
    Random,
    /// Every thread in order
    RoundRobin,
}

/// A size as it was written, and as numbers.
#[derive(Clone, Debug)]
struct Size {
    text: String,
    dimensions: [u32; 3],
}

fn size(text: &str) -> Result<Size, String> {
    let dimensions = dimensions(text).map_err(|problem| problem.to_string())?;
    Ok(Size {
        text: text.to_owned(),
        dimensions,
    })
}

pub(crate) fn run(arguments: &Arguments, shared: &Shared) -> Result<ExitCode, Failure> {
    let files = files::find(&arguments.files)?;
    let several = files.len() > 1 || arguments.files.iter().any(|path| path.is_dir());
    if several && (arguments.says_what_to_launch() || arguments.shared.is_some()) {
        return Err(Failure::usage(
            "arguments are given for one kernel, but several files are checked",
        )
        .help("each file takes its arguments from the FILE.toml beside it"));
    }
    let loaded = configuration::load(shared)?;
    let config = &loaded.config.report;
    let destinations = forms::of_run(arguments.format, arguments.output.as_deref(), config);
    for output in destinations.iter().filter_map(|to| to.file.as_deref()) {
        let launches = files.iter().filter_map(|file| arguments.launches(file));
        let launches: Vec<PathBuf> = launches.collect();
        let contents: Vec<PathBuf> = files.iter().flat_map(|f| arguments.contents(f)).collect();
        let inputs = (files.iter().chain(&launches).chain(&contents)).chain(&loaded.file);
        output::check_file(output, inputs.map(PathBuf::as_path))?;
    }
    let human_file = destinations
        .iter()
        .any(|to| to.form == Form::Human && to.file.is_some());
    let look = output::look(human_file, config.context_lines);
    let here = std::env::current_dir().unwrap_or_default();
    let mut sources = Sources::new(&here);
    // What each file's own report keeps is kept; suppressions are applied there.
    let mut total = Builder::new(usize::MAX, &[]);
    total.start_run();
    let mut text = String::new();
    let (mut clean, mut faulty, mut refused) = (0usize, 0usize, 0usize);
    let mut wrong_usage = false;
    for file in &files {
        let builder = Builder::new(config.limit as usize, &config.suppress);
        let explored = match arguments.check(file, builder, shared, several, &mut sources) {
            Ok(explored) => explored,
            Err(failure) => {
                output::complain(&failure.render());
                total.unchecked(failure.unchecked(file.display().to_string()));
                wrong_usage |= failure.is_usage();
                refused += 1;
                continue;
            }
        };
        if !explored.printed.is_empty() && !shared.quiet {
            output::complain(explored.printed.trim_end_matches('\n'));
        }
        if explored.report.has_findings(config.strict) {
            faulty += 1;
            text.push_str(&human::findings(&explored.report, &mut sources, &look));
        } else {
            clean += 1;
        }
        let _: Merged = total
            .merge(explored.report)
            .expect("the report of one file names no run");
    }
    let report = total.finish();
    if several {
        text.push_str(&tally(clean, faulty, refused));
    }
    text.push_str(&human::rest(&report, &look));
    for Destination { form, file } in &destinations {
        let converted = match form {
            // All that there is to say was said on standard error.
            Form::Human if file.is_none() && refused > 0 && !several => continue,
            Form::Human => &text,
            Form::Json => &json::write(&report),
            Form::Sarif => &sarif::write(&report, &here),
        };
        match file {
            None => output::bytes(converted.as_bytes())?,
            Some(file) => {
                output::to_file(file, converted)?;
                let shown = file.display();
                output::note(
                    shared,
                    &format!("wrote `{shown}`: {}", human::verdict(&report)),
                );
            }
        }
    }
    Ok(if report.has_findings(config.strict) {
        config.exit_code.into()
    } else if wrong_usage {
        Failure::usage("").exit_code()
    } else if refused > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// One line about all files.
fn tally(clean: usize, faulty: usize, refused: usize) -> String {
    let files = match clean + faulty + refused {
        1 => "1 file".to_owned(),
        number => format!("{number} files"),
    };
    let mut line = format!("{files}: {clean} clean, {faulty} with findings");
    if refused > 0 {
        line.push_str(&format!(", {refused} not checked"));
    }
    line.push_str("\n\n");
    line
}

impl Arguments {
    fn says_what_to_launch(&self) -> bool {
        self.args.is_some()
            || self.entry.is_some()
            || self.grid.is_some()
            || self.block.is_some()
            || self.cluster.is_some()
            || !self.arguments.is_empty()
    }

    /// Checks one file.
    fn check(
        &self,
        file: &Path,
        builder: Builder,
        shared: &Shared,
        several: bool,
        sources: &mut Sources,
    ) -> Result<Explored, Failure> {
        let name = file.display().to_string();
        if file
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let kernel = file.with_extension("ptx");
            return Err(
                Failure::usage(format!("`{name}` says what is launched and is no kernel")).help(
                    format!("did you mean `gsan check {}`?", shell::file(&kernel)),
                ),
            );
        }
        let text = files::read(file)?;
        let (spec, base) = self.spec(file)?;
        let source = Source {
            file: &name,
            text: &text,
        };
        let prepared = prepare(source, &spec, &base).map_err(|error| {
            let failure = failure(error);
            let beside = file.with_extension("toml");
            let shown = beside.display();
            if !failure.is_usage() || self.launches(file).is_some() {
                failure
            } else if beside.is_file() {
                failure.note("note", format!("options replace all of `{shown}`"))
            } else if !self.says_what_to_launch() {
                failure.note(
                    "note",
                    format!("say what is launched with options, as `gsan check --help` shows, or in `{shown}`"),
                )
            } else {
                failure
            }
        })?;
        for note in &prepared.notes {
            match several {
                true => output::note(shared, &format!("{name}: {note}")),
                false => output::note(shared, note),
            }
        }
        for launch in &prepared.launches {
            tracing::info!(
                "{name}: `{}`, grid {:?}, block {:?}, {} bytes of dynamic shared memory",
                prepared.program.functions[launch.entry.0 as usize].name,
                launch.grid,
                launch.block,
                launch.dynamic_shared
            );
        }
        sources.insert(name.clone(), text.clone());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let plan = Plan {
            strategy: self.strategy.strategy(),
            schedules: self.schedules,
            seed: self.seed,
            all: self.all,
            threads: self.jobs.map_or(cores, usize::from),
            limits: Limits {
                instructions: self.budget,
                ..Limits::default()
            },
        };
        let shows_progress = std::io::stderr().is_terminal() && !shared.quiet;
        let shown = output::printable(&name);
        let progress = |done: u64| {
            if shows_progress {
                let _ = write!(
                    std::io::stderr(),
                    "\r{shown}: schedule {done} of {}\x1b[K",
                    plan.schedules
                );
            }
        };
        let replay = |seed| self.replay(file, seed);
        let explored = explore(&prepared, &plan, builder, &replay, &progress).map_err(failure);
        if shows_progress {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        explored
    }

    /// The file that says what is launched, if one does.
    fn launches(&self, file: &Path) -> Option<PathBuf> {
        if self.args.is_some() || self.says_what_to_launch() {
            return self.args.clone();
        }
        Some(file.with_extension("toml")).filter(|beside| beside.is_file())
    }

    /// The files that fill the buffers of `file`. None if it will be refused.
    fn contents(&self, file: &Path) -> Vec<PathBuf> {
        let Ok((spec, base)) = self.spec(file) else {
            return Vec::new();
        };
        let buffers = spec.buffers.iter();
        let files = buffers.filter_map(|buffer| buffer.contents.init.file());
        files.map(|file| base.join(file)).collect()
    }

    /// What is launched, and the directory that its files are relative to.
    fn spec(&self, file: &Path) -> Result<(Spec, PathBuf), Failure> {
        if let Some(path) = self.launches(file) {
            let name = path.display().to_string();
            let text = files::read(&path)?;
            let source = Source {
                file: &name,
                text: &text,
            };
            let mut spec = Spec::from_toml(&source).map_err(failure)?;
            spec.shared = self.shared.or(spec.shared);
            return Ok((spec, directory(&path)));
        }
        let dimensions = |size: &Option<Size>| size.as_ref().map(|size| size.dimensions);
        let launch = Launch {
            entry: self.entry.clone(),
            grid: dimensions(&self.grid).unwrap_or([1; 3]),
            block: dimensions(&self.block),
            cluster: dimensions(&self.cluster).unwrap_or([1; 3]),
            ..Launch::default()
        };
        let mut spec = Spec::from_words(&self.arguments, launch).map_err(usage)?;
        spec.shared = self.shared;
        Ok((spec, directory(file)))
    }

    /// The command that runs one schedule of `file`.
    fn replay(&self, file: &Path, seed: u64) -> String {
        let mut words = vec!["gsan".to_owned(), "check".to_owned(), shell::file(file)];
        if let Some(path) = &self.args {
            words.extend(["--args".to_owned(), shell::file(path)]);
        }
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([format!("--{name}"), shell::quoted(value.as_ref())]);
            }
        };
        let size = |size: &Option<Size>| size.as_ref().map(|size| size.text.clone());
        option("entry", self.entry.clone());
        option("grid", size(&self.grid));
        option("block", size(&self.block));
        option("cluster", size(&self.cluster));
        for argument in &self.arguments {
            option("arg", Some(argument.clone()));
        }
        option("shared", self.shared.map(|bytes| bytes.to_string()));
        let strategy = self.strategy.to_possible_value();
        option(
            "strategy",
            strategy
                .filter(|_| self.strategy != StrategyName::Pct)
                .map(|value| value.get_name().to_owned()),
        );
        let budget = Some(self.budget).filter(|&budget| budget != Limits::default().instructions);
        option("budget", budget.map(|budget| budget.to_string()));
        option("schedules", Some("1".to_owned()));
        option("seed", Some(seed.to_string()));
        words.join(" ")
    }
}

impl StrategyName {
    fn strategy(self) -> Strategy {
        match self {
            StrategyName::Pct => Strategy::Pct,
            StrategyName::Random => Strategy::Random,
            StrategyName::RoundRobin => Strategy::RoundRobin,
        }
    }
}

fn directory(file: &Path) -> PathBuf {
    file.parent().map(Path::to_path_buf).unwrap_or_default()
}

fn usage(problem: Problem) -> Failure {
    with_help(Failure::usage(problem.message), problem.help)
}

fn with_help(failure: Failure, help: Option<String>) -> Failure {
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

fn failure(error: Error) -> Failure {
    let shown = |failure: Failure, diagnostic: Box<Diagnostic>| {
        let span = diagnostic.bytes_of_line();
        let line = diagnostic.span.start.line.max(1) as usize;
        let failure = failure
            .at(diagnostic.file, Some(line))
            .showing(diagnostic.line, span, None);
        with_help(failure, diagnostic.help)
    };
    match error {
        Error::Ptx(diagnostic) => shown(Failure::other(diagnostic.message.clone()), diagnostic),
        Error::ArgumentFile(diagnostic) => {
            shown(Failure::usage(diagnostic.message.clone()), diagnostic)
        }
        Error::Arguments(problem) => usage(problem),
        error @ Error::Internal(_) => Failure::other(error.to_string()),
    }
}
