//! GPUs, or the memory of this machine.

use std::sync::Arc;

use gsan_config::Config;
use gsan_config::value::Backend as Choice;
use gsan_sync::{HostKernels, Kernels};
use gsan_vmm::Allocator;
use gsan_vmm::backend::Backend;
#[cfg(feature = "cuda")]
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::host::{HostBackend, HostOptions};

use crate::error::{Error, Result};
use crate::part::Part;

/// What devices are.
#[derive(Clone, Debug)]
pub enum Machine {
    /// The GPUs that this process sees.
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaBackend>),
    /// The memory of this machine. Kernels are functions of the program.
    Host(Arc<HostBackend>),
}

impl Machine {
    /// What the configuration asks for, or what there is.
    pub(super) fn choose(config: &Config) -> Result<Machine> {
        match config.topology.backend {
            Choice::Host => Machine::host(config),
            Choice::Cuda => Machine::cuda(),
            Choice::Auto => match Machine::cuda() {
                Ok(machine) => Ok(machine),
                Err(error) => {
                    tracing::info!(%error, "no GPUs: devices are the memory of this machine");
                    Machine::host(config)
                }
            },
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda() -> Result<Machine> {
        let backend = CudaBackend::new()?;
        if backend.devices().is_empty() {
            let reason = "the driver shows this process no GPU (CUDA_VISIBLE_DEVICES?)";
            return Err(Error::Unsupported(reason.into()));
        }
        Ok(Machine::Cuda(Arc::new(backend)))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda() -> Result<Machine> {
        let reason = "topology.backend = \"cuda\": this build of GSan is without CUDA";
        Err(Error::Unsupported(reason.into()))
    }

    fn host(config: &Config) -> Result<Machine> {
        let topology = &config.topology;
        let named = topology.device_ranks.keys().max().map(|last| last + 1);
        let options = HostOptions {
            devices: named.unwrap_or(topology.num_devices.max(1)),
            ..HostOptions::default()
        };
        Ok(Machine::Host(Arc::new(HostBackend::new(options)?)))
    }

    /// The memory system.
    pub fn backend(&self) -> Arc<dyn Backend> {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(backend) => Arc::clone(backend) as Arc<dyn Backend>,
            Machine::Host(backend) => Arc::clone(backend) as Arc<dyn Backend>,
        }
    }

    /// What the ordering puts into streams runs on it.
    pub(super) fn kernels(&self, allocator: &Arc<Allocator>) -> Arc<dyn Kernels> {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(backend) => Arc::new(gsan_sync::CudaKernels::new(Arc::clone(backend))),
            Machine::Host(backend) => {
                Arc::new(HostKernels::new(Arc::clone(backend), Arc::clone(allocator)))
            }
        }
    }

    /// Lets devices write a part. Returns how far it is moved where devices see it.
    pub(super) fn register(&self, part: &Arc<Part>) -> Result<(Registration, u64)> {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(backend) => {
                let (start, _) = part.device_memory();
                let (registration, address) = crate::lowest::register(backend, part)?;
                Ok((Some(Box::new(registration)), address.wrapping_sub(start)))
            }
            Machine::Host(_) => Ok((None, 0)),
        }
    }
}

/// What lets devices write memory of the host, until it is dropped.
pub(super) type Registration = Option<Box<dyn std::any::Any + Send + Sync>>;
