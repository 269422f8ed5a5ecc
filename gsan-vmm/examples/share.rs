//! Two processes share an allocation: each sees what the other writes, and its shadow.
//!
//! `cargo run -p gsan-vmm --example share` starts both, on the host backend.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device, Stream};
use gsan_vmm::rendezvous::{Group, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation};
use gsan_vmm::{Allocator, Options};

const GPU: Device = Device(0);

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(directory) => run(1, directory.into()),
        None => {
            // The directory in which processes meet is made by the first to come, for its user
            // alone.
            let temporary = tempfile::tempdir()?;
            let directory = temporary.path().join("meet");
            let mut second = std::process::Command::new(std::env::current_exe()?)
                .arg(&directory)
                .spawn()?;
            let result = run(0, directory);
            let ended = second.wait()?;
            result?;
            if ended.success() {
                Ok(())
            } else {
                Err(format!("the second process ended with {ended}").into())
            }
        }
    }
}

fn run(rank: u16, directory: PathBuf) -> Result<(), Box<dyn Error>> {
    // The reservation, and an allocation in it.
    let backend = Arc::new(HostBackend::new(HostOptions::default())?);
    let allocator = Allocator::new(backend.clone(), Options::default())?;
    let address = allocator.allocate(1 << 20, GPU)?;
    let allocation = allocator.find(address + 100).ok_or("it is live")?;
    assert_eq!(allocation.address, address);
    // Memory outside of the reservation has no shadow.
    assert!(allocation.managed);
    let shadow = allocator.space().shadow(address);
    println!("rank {rank}: {address:#x} has its shadow at {shadow:#x}");

    // Each gives the other its allocation.
    let mut group = Rendezvous::join(Group {
        name: "example".into(),
        rank,
        ranks: 2,
        hosts: Vec::new(),
        directory: Some(directory),
        limit: Duration::from_secs(10),
    })?;
    let (shared, _offset) = allocator.export(address)?;
    let parcels = group.exchange(&shared.into_parcel())?;
    let theirs = parcels.into_iter().flatten().next().ok_or("one other")?;
    let import = allocator.import(SharedAllocation::from_parcel(theirs)?, GPU)?;

    // An empty exchange is a barrier.
    backend.write(GPU, import, &[rank as u8 + 1; 4])?;
    group.exchange(&Parcel::default())?;
    let mut bytes = [0; 4];
    backend.read(GPU, address, &mut bytes)?;
    println!("rank {rank}: the other one wrote {bytes:?}");
    assert_eq!(bytes, [2 - rank as u8; 4]);

    // Memory is unmapped once its stream has passed the free.
    let stream = Stream::host(7);
    backend.work_submitted(GPU, stream);
    allocator.free(address, None, stream)?;
    allocator.free(import, None, Stream::DEFAULT)?;
    println!(
        "rank {rank}: {} bytes wait",
        allocator.usage().waiting_bytes
    );
    backend.work_done(GPU, stream);
    allocator.flush();
    assert!(allocator.is_empty());
    Ok(())
}
