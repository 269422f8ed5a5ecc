//! A session on the host's memory, and kernels for it.

use std::path::Path;
use std::sync::Arc;

use gsan_config::Loaded;
use gsan_core::scope::{Order, Scope};
use gsan_runtime::Session;
use gsan_runtime::host::{AtomicOperation, HostCta};
use gsan_runtime::session::KernelLaunch;
use gsan_vmm::backend::Device;

pub(crate) const GPU: Device = Device(0);

/// Small enough that a test starts at once.
const CONFIGURATION: &str = r#"
[topology]
backend = "host"
[shadow]
reserve = "1GiB"
[clock]
publications = 1024
snapshot_memory = "4MiB"
private_memory = "4MiB"
[sampling]
seed = 7
"#;

/// A session, with more configuration.
pub(crate) fn session_with(more: &str) -> Arc<Session> {
    let mut loaded = Loaded::default();
    for text in [CONFIGURATION, more] {
        loaded.apply_file(Path::new("test"), text).unwrap();
    }
    Arc::new(Session::start(&loaded).unwrap())
}

pub(crate) fn session() -> Arc<Session> {
    session_with("")
}

/// A launch of `ctas` CTAs.
pub(crate) fn launch(kernel: &str, ctas: u32) -> KernelLaunch<'_> {
    KernelLaunch {
        kernel,
        grid: [ctas, 1, 1],
        block: [1, 1, 1],
        ..KernelLaunch::default()
    }
}

pub(crate) const FILE: &std::ffi::CStr = c"kernel.cu";

pub(crate) fn write(cta: &HostCta<'_>, address: u64, value: u32, line: u32) {
    cta.write(address, &value.to_le_bytes(), FILE, line)
        .unwrap();
}

pub(crate) fn read(cta: &HostCta<'_>, address: u64, line: u32) -> u32 {
    let mut word = [0; 4];
    cta.read(address, &mut word, FILE, line).unwrap();
    u32::from_le_bytes(word)
}

pub(crate) fn atomic(
    cta: &HostCta<'_>,
    operation: AtomicOperation,
    address: u64,
    operand: u64,
    order: Order,
    line: u32,
) -> u64 {
    let scope = Scope::Gpu;
    cta.atomic(operation, address, 4, operand, 0, order, scope, FILE, line)
        .unwrap()
}
