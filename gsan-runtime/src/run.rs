//! The processes of a run, as `gsan run` sees them: their parts, read while they run and after they
//! are gone, become one report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gsan_config::pattern::Suppression;
use gsan_core::ids::SiteId;
use gsan_core::site_mirror::SourceLine;
use gsan_report::builder::Builder;
use gsan_report::model::{Report, Unchecked};

use crate::part::{self, Damaged, PartReader};
use crate::run_directory;
use crate::telling::{Follower, KnownLaunch, News, Others, process_name};

/// What is going on in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Processes that use GSan.
    pub processes: usize,
    /// Launches that were checked.
    pub launches: u64,
    /// Distinct findings.
    pub findings: usize,
}

/// A process of a run, at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Its number and its command line.
    pub name: String,
    /// Whether it still runs.
    pub running: bool,
}

/// Follows the processes of a run.
pub struct Run {
    directory: PathBuf,
    parts: BTreeMap<PathBuf, Member>,
    /// Processes for whose parts there was no room.
    unseen: BTreeSet<PathBuf>,
    builder: Builder,
}

struct Member {
    follower: Follower,
    /// It belongs to a run inside this one, which tells of it itself.
    nested: bool,
    gone: bool,
    damaged: bool,
}

impl Run {
    /// Follows those that leave their parts in `directory`. At most `limit` distinct findings of each
    /// kind are kept, and none that is suppressed.
    pub fn new(directory: &Path, limit: usize, suppressions: &[Suppression]) -> Run {
        let mut builder = Builder::new(limit, suppressions);
        builder.start_run();
        Run {
            directory: directory.to_path_buf(),
            parts: BTreeMap::new(),
            unseen: BTreeSet::new(),
            builder,
        }
    }

    /// Looks for findings that are new, and tells of those that no run inside this one tells of.
    pub fn poll(&mut self) -> Vec<News> {
        self.take_in(false)
    }

    /// Takes in everything that there is, of running processes what they have told up to now.
    pub fn settle(&mut self) -> Vec<News> {
        self.take_in(true)
    }

    fn take_in(&mut self, all: bool) -> Vec<News> {
        self.find_new();
        self.find_unseen();
        let paths: Vec<PathBuf> = self.parts.keys().cloned().collect();
        let mut news = Vec::new();
        for path in paths {
            let Some(mut member) = self.parts.remove(&path) else {
                continue;
            };
            let nested = member.nested;
            let found = self.take_in_one(&mut member, all);
            self.parts.insert(path, member);
            if !nested {
                news.extend(found);
            }
        }
        news
    }

    fn take_in_one(&mut self, member: &mut Member, all: bool) -> Vec<News> {
        if member.damaged || member.gone && !all {
            return Vec::new();
        }
        let mut others = Neighbours {
            of: member.follower.reader().lifetime(),
            parts: &mut self.parts,
        };
        // In this order: what it told before it went is there then.
        member.gone = !member.follower.reader().is_running();
        let (builder, follower) = (&mut self.builder, &mut member.follower);
        let found = if all || member.gone {
            follower.settle(builder, &mut others, member.gone)
        } else {
            follower.follow(builder, &mut others)
        };
        found.unwrap_or_else(|error| {
            member.damaged = true;
            let name = process_name(member.follower.reader());
            self.damaged(name, &error);
            Vec::new()
        })
    }

    fn find_new(&mut self) {
        for (path, nested) in run_directory::files(&self.directory, part::EXTENSION) {
            if self.parts.contains_key(&path) {
                continue;
            }
            match Follower::open(&path) {
                Ok(follower) => {
                    let member = Member {
                        follower,
                        nested,
                        gone: false,
                        damaged: false,
                    };
                    self.parts.insert(path, member);
                }
                Err(error) => {
                    self.damaged(process_of(&path), &error);
                    // It is complained of once.
                    let aside = path.with_extension("damaged");
                    if let Err(error) = std::fs::rename(&path, aside) {
                        tracing::warn!("{}: {error}", path.display());
                    }
                }
            }
        }
    }

    fn find_unseen(&mut self) {
        for (path, _) in run_directory::files(&self.directory, part::UNSEEN) {
            if self.unseen.contains(&path) {
                continue;
            }
            self.builder.unchecked(Unchecked {
                file: process_of(&path),
                reason: "what it found is not in this report: there was no room for it in the \
                         directory of the run"
                    .to_owned(),
                place: None,
                help: Some(
                    "make room in /dev/shm, or raise the limit on the size of files (`ulimit -f`); \
                     containers have little unless told otherwise (`docker run --shm-size=1g`)"
                        .to_owned(),
                ),
            });
            self.unseen.insert(path);
        }
    }

    fn damaged(&mut self, name: String, error: &Damaged) {
        let help = match error {
            Damaged::Version { .. } => {
                "use one version of GSan for `gsan run` and for the programs that it runs"
            }
            _ => "see whether the program writes to memory that is not its own",
        };
        self.builder.unchecked(Unchecked {
            file: name,
            reason: format!("what it found is lost, at least in part: {error}"),
            place: None,
            help: Some(help.to_owned()),
        });
    }

    /// The processes that left parts: one whose session was reset has left several.
    fn processes(&self) -> BTreeSet<(u32, u64)> {
        let process = |member: &Member| member.follower.reader().process();
        self.parts.values().map(process).collect()
    }

    /// What is going on.
    pub fn status(&self) -> Status {
        let launches = |member: &Member| member.follower.reader().checked().launches;
        let report = self.builder.so_far();
        Status {
            processes: self.processes().len(),
            launches: self.parts.values().map(launches).sum(),
            findings: report.races.len() + report.faults.len() + report.possible_races.len(),
        }
    }

    /// Processes that ended without having told everything, and those that still run.
    pub fn endings(&self) -> Vec<Ending> {
        let ending = |member: &Member| {
            let reader = member.follower.reader();
            let ending = Ending {
                name: process_name(reader),
                running: !member.gone,
            };
            (ending.running || !reader.has_finished()).then_some(ending)
        };
        self.parts.values().filter_map(ending).collect()
    }

    /// The report. `program` is what was run; if no process used GSan, the report says so of it.
    pub fn finish(mut self, program: &str) -> Report {
        for member in self.parts.values() {
            member.follower.sum_up(&mut self.builder);
        }
        self.builder.summary().processes = self.processes().len() as u64;
        let heard = !self.parts.is_empty() || !self.builder.so_far().unchecked.is_empty();
        if !heard {
            self.builder.unchecked(Unchecked {
                file: program.to_owned(),
                reason: "no process of this run used GSan: nothing was checked".to_owned(),
                place: None,
                help: Some(
                    "GSan is used by Python programs that launch Triton kernels, and by programs \
                     that call the functions of gsan.h"
                        .to_owned(),
                ),
            });
        }
        self.builder.finish()
    }
}

/// The process that left a file, by the file's name.
fn process_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let pid = name.split(['-', '.']).next().unwrap_or_default();
    format!("process {pid}")
}

/// The processes beside one: those that ran while it did.
struct Neighbours<'a> {
    of: (u64, Option<u64>),
    parts: &'a mut BTreeMap<PathBuf, Member>,
}

impl Neighbours<'_> {
    /// The one process that has the device. If several have, which one is meant is not known.
    fn owner(&mut self, rank: u8) -> Option<&mut PartReader> {
        let (made, ended) = self.of;
        let together = |reader: &PartReader| {
            let (other_made, other_ended) = reader.lifetime();
            ended.is_none_or(|ended| other_made < ended)
                && other_ended.is_none_or(|other_ended| made < other_ended)
        };
        let mut owners = self.parts.values_mut().filter_map(|member| {
            let reader = member.follower.reader();
            (!member.damaged && reader.has_device(rank) && together(reader))
                .then(|| member.follower.reader_mut())
        });
        let owner = owners.next()?;
        owners.next().is_none().then_some(owner)
    }
}

impl Others for Neighbours<'_> {
    fn site(&mut self, rank: u8, site: SiteId) -> Option<SourceLine> {
        let owner = self.owner(rank)?;
        owner.refresh().ok()?;
        owner.site(rank, site)
    }

    fn launch(&mut self, rank: u8, number: u32) -> Option<KnownLaunch> {
        self.owner(rank)?.known_launch(rank, number)
    }
}
