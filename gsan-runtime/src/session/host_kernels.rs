//! The host as a machine: streams that run, events, and kernels that are functions.

use std::sync::Arc;

use gsan_core::layout::launch_flags;
use gsan_sync::NodeArguments;
use gsan_vmm::Allocator;
use gsan_vmm::backend::host::HostBackend;
use gsan_vmm::backend::{Backend, Device};

use super::{KernelLaunch, Machine, Session};
use crate::error::{Error, Result};
use crate::host::order::create_event;
use crate::host::{Body, HostCta, Kernel, Runner, Sms, Surroundings};

/// What makes the host's memory a machine.
pub(super) struct HostMachine {
    /// Goes first: its threads use all the rest.
    pub(super) runner: Runner,
    pub(super) backend: Arc<HostBackend>,
    surroundings: Arc<Surroundings>,
}

impl HostMachine {
    /// On the host backend; `None` for GPUs.
    pub(super) fn new(machine: &Machine, allocator: &Arc<Allocator>) -> Option<HostMachine> {
        #[cfg_attr(
            not(feature = "cuda"),
            expect(irrefutable_let_patterns, reason = "one of one")
        )]
        let Machine::Host(backend) = machine else {
            return None;
        };
        let sms = backend
            .devices()
            .iter()
            .map(|device| Sms::new(device.multiprocessors));
        let sms = sms.collect();
        let surroundings = Surroundings::new(Arc::clone(backend), Arc::clone(allocator), sms);
        Some(HostMachine {
            runner: Runner::new(Arc::clone(backend)),
            backend: Arc::clone(backend),
            surroundings: Arc::new(surroundings),
        })
    }
}

impl Session {
    /// The host as a machine.
    pub(super) fn as_host(&self) -> Result<&HostMachine> {
        self.host.as_ref().ok_or_else(|| {
            Error::Unsupported(
                "host kernels run on the host backend only: set topology.backend = \"host\" \
                 (GSAN_TOPOLOGY_BACKEND=host)"
                    .into(),
            )
        })
    }

    /// A new event of the host backend, which [`Self::event_recorded`] records.
    ///
    /// # Errors
    /// When devices are GPUs.
    pub fn create_host_event(&self) -> Result<u64> {
        self.as_host()?;
        Ok(create_event())
    }

    /// Launches a kernel that is a function, on a stream of the host backend: `body` is called for each CTA,
    /// with its position in the grid. It returns at once; the CTAs run in the order of the stream. Of one
    /// launch one CTA runs at a time, and accesses and atomics are where another may go on; who does
    /// follows from the seed of the session and the number of the launch.
    ///
    /// # Errors
    /// When devices are GPUs, the stream is not there, a launch of this thread on it is unfinished, or
    /// grid or block are none that a GPU takes. An empty grid does nothing.
    pub fn launch_on_host(
        &self,
        device: Device,
        stream: u64,
        launch: &KernelLaunch<'_>,
        body: impl Fn(&HostCta<'_>, [u32; 3]) + Send + Sync + 'static,
    ) -> Result<()> {
        let host = self.as_host()?;
        let ctas = ctas_of(launch)?;
        let mut begun = self.begin_launch(device, stream, launch)?;
        if ctas > 0 {
            let arguments = NodeArguments {
                table: begun.table(),
                index: begun.index(),
            };
            self.give(device, stream, launch, arguments, Box::new(body))?;
        }
        begun.finish(true)?;
        host.runner.ring();
        Ok(())
    }

    /// Gives a kernel of a graph to a stream of the host backend, as a replay of the graph does. To be called
    /// between the begin and the end of a replay, once for each of its kernels, in an order and on streams
    /// that go with the graph's edges.
    ///
    /// # Errors
    /// When devices are GPUs, or the stream is not there.
    pub fn replay_on_host(
        &self,
        device: Device,
        stream: u64,
        launch: &KernelLaunch<'_>,
        arguments: NodeArguments,
        body: impl Fn(&HostCta<'_>, [u32; 3]) + Send + Sync + 'static,
    ) -> Result<()> {
        ctas_of(launch)?;
        self.give(device, stream, launch, arguments, Box::new(body))?;
        self.as_host()?.runner.ring();
        Ok(())
    }

    /// Lets a stream of the host backend wait for what another one was given, without telling the ordering.
    pub(super) fn wait_on_host(&self, device: Device, waiting: u64, awaited: u64) -> Result<()> {
        let host = self.as_host()?;
        self.known(device, waiting)?;
        let fence = host.backend.fence(device, self.queue(awaited))?;
        let waited = host.backend.wait_on(device, self.queue(waiting), fence);
        host.backend.forget(fence);
        Ok(waited?)
    }

    fn give(
        &self,
        device: Device,
        stream: u64,
        launch: &KernelLaunch<'_>,
        arguments: NodeArguments,
        body: Box<Body>,
    ) -> Result<()> {
        let host = self.as_host()?;
        self.known(device, stream)?;
        let queue = self.queue(stream);
        let NodeArguments { table, index } = arguments;
        let number = index >> launch_flags::INDEX_NUMBER_SHIFT;
        let kernel = Kernel {
            surroundings: Arc::clone(&host.surroundings),
            device: device.0 as usize,
            name: launch.kernel.to_owned(),
            grid: launch.grid,
            table,
            index,
            globals: self.ordering.state_region(device)?,
            seed: self.seed ^ number << 32,
            body,
        };
        Ok(host.backend.enqueue(device, queue, move || kernel.run())?)
    }
}

/// How many CTAs a launch has, if the host can run as many.
fn ctas_of(launch: &KernelLaunch<'_>) -> Result<u32> {
    let ctas = launch.ctas()?;
    u32::try_from(ctas).map_err(|_| {
        Error::Argument(format!(
            "a grid of {ctas} CTAs: on the host backend at most {} are launched",
            u32::MAX
        ))
    })
}
