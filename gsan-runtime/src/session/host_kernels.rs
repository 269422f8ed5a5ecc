//! The host as a machine: streams that run, events, and kernels that are functions.

use std::sync::Arc;

use gsan_vmm::Allocator;
use gsan_vmm::backend::host::HostBackend;
use gsan_vmm::backend::{Backend, Device};

use super::{KernelLaunch, Machine, Session};
use crate::error::{Error, Result};
use crate::host::order::HostOrder;
use crate::host::{HostCta, Kernel, Runner, Sms, Surroundings};

/// What makes the host's memory a machine.
pub(super) struct HostMachine {
    /// Goes first: its threads use all the rest.
    pub(super) runner: Runner,
    pub(super) backend: Arc<HostBackend>,
    pub(super) order: HostOrder,
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
            order: HostOrder::default(),
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
        Ok(self.as_host()?.order.create_event())
    }

    /// Launches a kernel that is a function, on a stream of the host backend: `body` is called for each CTA,
    /// with its position in the grid. It returns at once; the CTAs run in the order of the stream. Of one
    /// launch one CTA runs at a time, and accesses and atomics are where another may go on; who does
    /// follows from the seed of the session and the number of the launch.
    ///
    /// # Errors
    /// When devices are GPUs, the stream is not there, a launch of this thread on it is unfinished, or
    /// the grid has more than 2^32 - 1 CTAs.
    pub fn launch_on_host(
        &self,
        device: Device,
        stream: u64,
        launch: &KernelLaunch<'_>,
        body: impl Fn(&HostCta<'_>, [u32; 3]) + Send + Sync + 'static,
    ) -> Result<()> {
        let host = self.as_host()?;
        let [x, y, z] = launch.grid.map(u128::from);
        let ctas = x * y * z;
        if ctas > u128::from(u32::MAX) {
            return Err(Error::Argument(format!(
                "a grid of {ctas} CTAs: a launch has at most {}",
                u32::MAX
            )));
        }
        let mut begun = self.begin_launch(device, stream, launch)?;
        let key = self.key(device, stream);
        let queue = self.queue(stream);
        if ctas > 0 {
            host.order.wait_implicitly(&host.backend, key, queue)?;
            let kernel = Kernel {
                surroundings: Arc::clone(&host.surroundings),
                device: device.0 as usize,
                name: launch.kernel.to_owned(),
                grid: launch.grid,
                table: begun.table(),
                index: begun.index(),
                globals: self.ordering.state_region(device)?,
                seed: self.seed ^ u64::from(begun.number()) << 32,
                body: Box::new(body),
            };
            host.backend.enqueue(device, queue, move || kernel.run())?;
        }
        begun.finish(true)?;
        host.runner.ring();
        Ok(())
    }
}
