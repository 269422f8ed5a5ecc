//! One session: devices, memory, streams and their ordering, from the configuration.
//!
//! `machine` chooses GPUs or the host's own memory, `topology` turns the configuration into the settings
//! of the layers below. The rest is one file for each group of calls: `memory`, `streams`, `launches`,
//! `host_kernels`, `order` (events, waits and memory that is handed out again), `graphs`, `groups`, `sharing`,
//! `coverage` (what was checked and what was lost), `decode` (what shadow and state say) and `layout`.

mod coverage;
mod decode;
mod elsewhere;
mod graphs;
mod groups;
mod host_kernels;
mod kernels;
mod launches;
mod layout;
mod machine;
mod memory;
mod order;
mod sharing;
mod streams;
mod told;
mod topology;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gsan_config::{Config, Loaded};
use gsan_sync::{Configuration, Ordering};
use gsan_vmm::Allocator;
use gsan_vmm::backend::Device;

use crate::drain::Drainer;
use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::part::Part;
use crate::run_directory;
use crate::telling::News;

pub use coverage::{LossLine, Usage};
pub use decode::{Cell, Clock, DeviceGlobals, Scope, ThreadState};
pub use graphs::{Graph, GraphBuilder, Replay};
pub use groups::Group;
pub use launches::{KernelLaunch, Launch};
pub use machine::Machine;
pub use sharing::Meeting;
pub(crate) use sharing::open_claims;

/// A session.
pub struct Session {
    /// Goes first: its threads use all the rest.
    host: Option<host_kernels::HostMachine>,
    config: Config,
    /// The seed of sampling, as reports say it.
    seed: u64,
    machine: Machine,
    allocator: Arc<Allocator>,
    configuration: Configuration,
    ordering: Ordering,
    coverage: Arc<coverage::Coverage>,
    drainer: Drainer,
    /// Goes before the part, whose memory it is about.
    _registration: machine::Registration,
    part: Arc<Part>,
    kernels: kernels::Kernels,
    streams: streams::Streams,
    refused_frees: AtomicU64,
}

impl Session {
    /// Starts a session of its own, apart from the process's, with findings of its own.
    ///
    /// # Errors
    /// When the backend asked for is not there, or devices, ranks or memory do not go together.
    pub fn start(loaded: &Loaded) -> Result<Session> {
        let report = &loaded.config.report;
        let findings = Findings::new(report.limit as usize, &report.suppress);
        Session::start_with(loaded, Arc::new(findings))
    }

    /// Starts a session whose findings are added to others.
    ///
    /// # Errors
    /// The same as of [`Self::start`].
    pub fn start_with(loaded: &Loaded, findings: Arc<Findings>) -> Result<Session> {
        let config = loaded.config.clone();
        let machine = Machine::choose(&config)?;
        let allocator = Arc::new(Allocator::new(
            machine.backend(),
            topology::options(&config),
        )?);
        let seed = topology::seed(&config);
        let mut settings = topology::settings(&config, &machine, &allocator, seed)?;
        let directory = run_directory::of_process();
        let part = Part::new(directory.as_deref(), &settings.device_ranks)?;
        let part = Arc::new(part);
        let (registration, moved) = machine.register(&part)?;
        settings.race_ring = part.race_ring().wrapping_add(moved);
        let mirrors = part.site_mirrors().into_iter();
        settings.site_mirrors = mirrors.map(|mirror| mirror.wrapping_add(moved)).collect();
        settings.launch_logs = part.launch_logs();
        let kernels = machine.kernels(&allocator);
        let configuration = Configuration::new(settings, Arc::clone(&allocator), kernels);
        let ordering = configuration.ordering("the session")?;
        let coverage = Arc::new(coverage::Coverage::new(&allocator, &ordering, seed));
        let asked = Arc::clone(&coverage);
        let checked = move || asked.checked().ok();
        let states = elsewhere::States::new(&allocator, &ordering);
        let drainer = Drainer::start(
            Arc::clone(&part),
            findings,
            Box::new(checked),
            Some(Box::new(states)),
        )?;
        Ok(Session {
            host: host_kernels::HostMachine::new(&machine, &allocator),
            config,
            seed,
            machine,
            allocator,
            configuration,
            ordering,
            coverage,
            drainer,
            _registration: registration,
            part,
            kernels: kernels::Kernels::default(),
            streams: streams::Streams::default(),
            refused_frees: AtomicU64::new(0),
        })
    }

    /// The configuration it was started from.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The seed of sampling: that of the configuration, or the one that was drawn.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether devices are GPUs or the host's memory.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The allocator, for those who need more than what the session offers.
    pub const fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The ordering, for those who need more than what the session offers.
    pub const fn ordering(&self) -> &Ordering {
        &self.ordering
    }

    /// A device by its number, as a C program gives it.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn device(&self, number: i32) -> Result<Device> {
        let count = self.allocator.backend().devices().len();
        match u32::try_from(number) {
            Ok(number) if (number as usize) < count => Ok(Device(number)),
            _ => Err(Error::Argument(format!(
                "there is no device {number}: this process sees {count}, counted from 0"
            ))),
        }
    }

    /// Gives the session up: its allocations, graphs and work must be gone.
    ///
    /// # Errors
    /// When something is live, which the error names. Nothing changes then.
    pub fn close(&self) -> Result<()> {
        let mut news = Vec::new();
        let closed = self.close_quietly(&mut news);
        self.announce(&news);
        if closed.is_ok() {
            self.stop();
        }
        closed
    }

    /// Like [`Self::close`], but what is new is added to `news` instead of told, and the drainer's thread
    /// is not stopped: a callback may want a lock that the caller holds.
    pub(crate) fn close_quietly(&self, news: &mut Vec<News>) -> Result<()> {
        self.drainer.take_in(news);
        // Asks for the last time what was checked, before the states are given back.
        let checked = self.coverage.checked();
        self.configuration.reset()?;
        if let Ok(checked) = checked {
            self.part.set_checked(&checked);
        }
        self.drainer.close_quietly(news);
        Ok(())
    }

    /// Tells of what is new.
    pub(crate) fn announce(&self, news: &[News]) {
        self.drainer.announce(news);
    }

    /// What [`Self::close_quietly`] has left to do once it has succeeded.
    pub(crate) fn stop(&self) {
        self.drainer.stop();
    }
}
