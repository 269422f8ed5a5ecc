//! The allocator, sharing and rendezvous on the host backend.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocator;
mod faulty;
mod hostile;
mod million;
mod model;
mod null;
mod pressure;
mod processes;
mod rendezvous;
mod streams;

use std::sync::Arc;

use gsan_core::address::Records;
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device};
use gsan_vmm::{Allocator, HandleType, Options};

const PAGE: u64 = 4096;
const GPU: Device = Device(0);

/// A host backend whose unit of memory is a page.
fn pages(devices: u32, memory: u64) -> Arc<HostBackend> {
    let options = HostOptions {
        devices,
        memory,
        granularity: PAGE,
    };
    Arc::new(HostBackend::new(options).unwrap())
}

fn options(reserve: u64) -> Options {
    Options {
        reserve,
        write_once: false,
        records: Records::Four,
        handle_type: HandleType::PosixFd,
        patience: std::time::Duration::from_secs(10),
    }
}

fn allocator(backend: &Arc<impl Backend + 'static>, reserve: u64) -> Allocator {
    Allocator::new(Arc::clone(backend) as Arc<dyn Backend>, options(reserve)).unwrap()
}
