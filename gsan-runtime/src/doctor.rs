//! What of this machine works, as data.

use gsan_vmm::backend::BackendError;
#[cfg(feature = "cuda")]
use gsan_vmm::backend::cuda::{self, CudaDevice, CudaProbe};
use serde_json::{Value, json};

/// What was found of driver, devices, peers, addresses and fabric handles. What is missing says why, as
/// `{"missing": "why"}`. It touches no memory of the devices and starts no session.
pub fn facts() -> Value {
    #[cfg(feature = "cuda")]
    let cuda = cuda::probe().map_or_else(missing, |probe| of_cuda(&probe));
    #[cfg(not(feature = "cuda"))]
    let cuda = json!({ "missing": "this build of GSan is without CUDA" });
    json!({ "version": env!("CARGO_PKG_VERSION"), "cuda": cuda })
}

fn missing(error: impl std::borrow::Borrow<BackendError>) -> Value {
    json!({ "missing": error.borrow().to_string() })
}

#[cfg(feature = "cuda")]
fn of_cuda(probe: &CudaProbe) -> Value {
    let (major, minor) = probe.version;
    json!({
        "driver": format!("{major}.{minor}"),
        "devices": probe.devices.iter().map(of_device).collect::<Vec<_>>(),
        // By owner, then by who reaches its memory.
        "peers": probe.peers,
        "granularity": probe.granularity.as_ref().map_or_else(missing, |&bytes| bytes.into()),
        "largest_reservation": probe.largest_reservation,
    })
}

#[cfg(feature = "cuda")]
fn of_device(device: &CudaDevice) -> Value {
    let (major, minor) = device.compute_capability;
    let uuid: String = device
        .uuid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    json!({
        "name": device.name,
        "uuid": uuid,
        "memory": device.memory,
        "compute_capability": format!("{major}.{minor}"),
        "maps_memory": device.maps_memory,
        "fabric": device.fabric,
        "fabric_export": device.fabric_export.as_ref().map_or_else(missing, |()| true.into()),
    })
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use gsan_vmm::backend::Failure;

    use super::*;

    #[test]
    fn what_is_missing_says_why() {
        let error = BackendError::new("cuMemCreate", Failure::NotSupported, "no fabric here");
        let probe = CudaProbe {
            version: (13, 0),
            devices: vec![CudaDevice {
                name: "H200".to_owned(),
                uuid: [0xab; 16],
                memory: 1 << 37,
                compute_capability: (9, 0),
                maps_memory: true,
                fabric: true,
                fabric_export: Err(error),
            }],
            peers: vec![vec![true]],
            granularity: Ok(2 << 20),
            largest_reservation: None,
        };
        let facts = of_cuda(&probe);
        assert_eq!(facts["driver"], "13.0");
        assert_eq!(facts["granularity"], 2 << 20);
        assert_eq!(facts["largest_reservation"], Value::Null);
        let device = &facts["devices"][0];
        assert_eq!(device["uuid"], "ab".repeat(16));
        let why = device["fabric_export"]["missing"].as_str().unwrap();
        assert!(why.contains("no fabric here"), "{why}");
    }
}
