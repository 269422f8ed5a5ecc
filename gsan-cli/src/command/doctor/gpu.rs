//! The GPU part of `gsan doctor`: the driver, its devices, and what the allocator needs of them.

use gsan_vmm::Bytes;
use gsan_vmm::backend::BackendError;
use gsan_vmm::backend::cuda::{CudaDevice, CudaProbe};

use super::Check;

/// The reservation that is asked for by default, and the least that is made do with, in bytes.
const WANTED: u64 = 8 << 40;
const LEAST: u64 = 1 << 40;

/// What `probe` means for the user.
pub(super) fn checks(probe: &Result<CudaProbe, BackendError>) -> Vec<Check> {
    let probe = match probe {
        Ok(probe) => probe,
        Err(error) => {
            return vec![Check::missing(
                "CUDA driver",
                error.to_string(),
                "install NVIDIA's driver to find races on a GPU; `gsan check` needs none",
            )];
        }
    };
    let (major, minor) = probe.version;
    let mut checks = vec![Check::present(
        "CUDA driver",
        format!("for CUDA {major}.{minor}"),
    )];
    if probe.devices.is_empty() {
        checks.push(Check::missing(
            "GPU",
            "the driver shows none to this process",
            "see whether CUDA_VISIBLE_DEVICES hides them, and what nvidia-smi says",
        ));
        return checks;
    }
    for (number, device) in probe.devices.iter().enumerate() {
        checks.push(describe(number, device));
    }
    checks.extend(peers(probe));
    checks.push(match &probe.granularity {
        Ok(bytes) => Check::present("unit of memory", Bytes(*bytes).to_string()),
        Err(error) => Check::missing(
            "unit of memory",
            error.to_string(),
            "use a GPU and driver that support CUDA's virtual memory management",
        ),
    });
    checks.push(address_space(probe.largest_reservation));
    checks.extend(fabric(&probe.devices));
    checks
}

fn describe(number: usize, device: &CudaDevice) -> Check {
    let subject = format!("GPU {number}");
    let (major, minor) = device.compute_capability;
    let found = format!(
        "{}, {}, sm_{major}{minor}",
        device.name,
        Bytes(device.memory)
    );
    if !device.maps_memory {
        return Check::missing(
            subject,
            format!("{found}: no virtual memory management"),
            "leave it out with CUDA_VISIBLE_DEVICES; its memory cannot have shadow",
        );
    }
    if major < 8 {
        return Check::missing(
            subject,
            format!("{found}: older than sm_80"),
            "use a GPU of compute capability 8.0 or later: the device library is built for it",
        );
    }
    Check::present(subject, found)
}

/// A line for each device: whose memory it reaches.
fn peers(probe: &CudaProbe) -> Vec<Check> {
    let count = probe.peers.len();
    if count < 2 {
        return Vec::new();
    }
    let line = |from: usize| {
        let others = (0..count).filter(|&owner| owner != from);
        let (near, far): (Vec<_>, Vec<_>) = others.partition(|&owner| probe.peers[owner][from]);
        let names = |numbers: Vec<usize>| {
            let names: Vec<_> = numbers
                .iter()
                .map(|number| format!("GPU {number}"))
                .collect();
            names.join(", ")
        };
        let subject = format!("peers of GPU {from}");
        if far.is_empty() {
            return Check::present(subject, format!("reaches {}", names(near)));
        }
        Check::missing(
            subject,
            format!("does not reach {}", names(far)),
            "see `nvidia-smi topo -p2p r`; races between GPUs are found only where they reach \
             each other",
        )
    };
    (0..count).map(line).collect()
}

fn address_space(largest: Option<u64>) -> Check {
    let subject = "address space";
    match largest {
        Some(bytes) if bytes >= WANTED => {
            Check::present(subject, format!("up to {} in one piece", Bytes(bytes)))
        }
        Some(bytes) if bytes >= LEAST => Check::present(
            subject,
            format!(
                "up to {} in one piece: less than the default shadow.reserve = {}, which is \
                 halved until it is granted",
                Bytes(bytes),
                Bytes(WANTED)
            ),
        ),
        Some(bytes) => Check::missing(
            subject,
            format!("only {} in one piece", Bytes(bytes)),
            format!(
                "set shadow.reserve to no more than that, or lift limits on virtual memory \
                 (ulimit -v); {} is the least that is tried unasked",
                Bytes(LEAST)
            ),
        ),
        None => Check::missing(
            subject,
            "the driver grants no aligned reservation",
            "lift limits on virtual memory (ulimit -v)",
        ),
    }
}

/// Fabric handles: one line if it is the same for all devices.
fn fabric(devices: &[CudaDevice]) -> Vec<Check> {
    let line = |subject: String, device: &CudaDevice| match (&device.fabric_export, device.fabric) {
        (Ok(()), _) => Check::present(subject, "made and exported"),
        (Err(_), false) => Check::missing(
            subject,
            "not supported by the device",
            "none needed on one host: memory is shared by file descriptor",
        ),
        (Err(error), true) => Check::missing(
            subject,
            format!("the device says it supports them, but {error}"),
            "none needed on one host; between hosts, start NVIDIA's IMEX service \
             (nvidia-imex) and give the process a channel (/dev/nvidia-caps-imex-channels)",
        ),
    };
    let subject = |number| format!("fabric of GPU {number}");
    let each = devices.iter().enumerate();
    let lines: Vec<_> = each
        .map(|(number, device)| line(subject(number), device))
        .collect();
    let same = lines.iter().all(|check| check.finding == lines[0].finding);
    if same {
        return vec![line("fabric handles".into(), &devices[0])];
    }
    lines
}

#[cfg(test)]
mod tests {
    use gsan_vmm::backend::Failure;

    use super::super::show;
    use super::*;

    fn device(name: &str) -> CudaDevice {
        CudaDevice {
            name: name.into(),
            uuid: [0; 16],
            memory: 140 << 30,
            compute_capability: (9, 0),
            maps_memory: true,
            fabric: true,
            fabric_export: Ok(()),
        }
    }

    fn failure(call: &'static str, reason: &str) -> BackendError {
        BackendError::new(call, Failure::NotSupported, reason)
    }

    #[test]
    fn a_machine_where_everything_works() {
        let probe = CudaProbe {
            version: (13, 0),
            devices: vec![device("NVIDIA H200"), device("NVIDIA H200")],
            peers: vec![vec![true, true], vec![true, true]],
            granularity: Ok(2 << 20),
            largest_reservation: Some(32 << 40),
        };
        insta::assert_snapshot!(show(&checks(&Ok(probe))), @r"
        ok       CUDA driver     for CUDA 13.0
        ok       GPU 0           NVIDIA H200, 140 GiB, sm_90
        ok       GPU 1           NVIDIA H200, 140 GiB, sm_90
        ok       peers of GPU 0  reaches GPU 1
        ok       peers of GPU 1  reaches GPU 0
        ok       unit of memory  2 MiB
        ok       address space   up to 32 TiB in one piece
        ok       fabric handles  made and exported
        ");
    }

    #[test]
    fn a_machine_where_much_is_missing() {
        let mut old = device("NVIDIA TITAN V");
        old.compute_capability = (7, 0);
        old.fabric = false;
        old.fabric_export = Err(failure("cuMemCreate", "CUDA_ERROR_NOT_SUPPORTED"));
        let mut small = device("NVIDIA A2");
        small.maps_memory = false;
        small.fabric_export = Err(failure("cuMemCreate", "CUDA_ERROR_NOT_PERMITTED"));
        let probe = CudaProbe {
            version: (12, 8),
            devices: vec![old, small, device("NVIDIA H100")],
            peers: vec![
                vec![true, false, false],
                vec![false, true, true],
                vec![false, true, true],
            ],
            granularity: Err(failure("cuMemGetAllocationGranularity", "it is unknown")),
            largest_reservation: Some(256 << 30),
        };
        insta::assert_snapshot!(show(&checks(&Ok(probe))), @r"
        ok       CUDA driver      for CUDA 12.8
        missing  GPU 0            NVIDIA TITAN V, 140 GiB, sm_70: older than sm_80
                                  help: use a GPU of compute capability 8.0 or later: the device library is built for it
        missing  GPU 1            NVIDIA A2, 140 GiB, sm_90: no virtual memory management
                                  help: leave it out with CUDA_VISIBLE_DEVICES; its memory cannot have shadow
        ok       GPU 2            NVIDIA H100, 140 GiB, sm_90
        missing  peers of GPU 0   does not reach GPU 1, GPU 2
                                  help: see `nvidia-smi topo -p2p r`; races between GPUs are found only where they reach each other
        missing  peers of GPU 1   does not reach GPU 0
                                  help: see `nvidia-smi topo -p2p r`; races between GPUs are found only where they reach each other
        missing  peers of GPU 2   does not reach GPU 0
                                  help: see `nvidia-smi topo -p2p r`; races between GPUs are found only where they reach each other
        missing  unit of memory   cuMemGetAllocationGranularity failed: it is unknown
                                  help: use a GPU and driver that support CUDA's virtual memory management
        missing  address space    only 256 GiB in one piece
                                  help: set shadow.reserve to no more than that, or lift limits on virtual memory (ulimit -v); 1 TiB is the least that is tried unasked
        missing  fabric of GPU 0  not supported by the device
                                  help: none needed on one host: memory is shared by file descriptor
        missing  fabric of GPU 1  the device says it supports them, but cuMemCreate failed: CUDA_ERROR_NOT_PERMITTED
                                  help: none needed on one host; between hosts, start NVIDIA's IMEX service (nvidia-imex) and give the process a channel (/dev/nvidia-caps-imex-channels)
        ok       fabric of GPU 2  made and exported
        ");
    }

    #[test]
    fn a_machine_without_a_driver_or_without_a_gpu() {
        let none = failure("dlopen", "this machine has no CUDA driver (libcuda.so.1)");
        insta::assert_snapshot!(show(&checks(&Err(none))), @r"
        missing  CUDA driver  dlopen failed: this machine has no CUDA driver (libcuda.so.1)
                              help: install NVIDIA's driver to find races on a GPU; `gsan check` needs none
        ");
        let probe = CudaProbe {
            version: (13, 0),
            devices: Vec::new(),
            peers: Vec::new(),
            granularity: Err(failure("cuDeviceGetAttribute", "no device")),
            largest_reservation: None,
        };
        insta::assert_snapshot!(show(&checks(&Ok(probe))), @r"
        ok       CUDA driver  for CUDA 13.0
        missing  GPU          the driver shows none to this process
                              help: see whether CUDA_VISIBLE_DEVICES hides them, and what nvidia-smi says
        ");
    }
}
