//! The device sources, compiled for the host, against `gsan_core`.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod arithmetic;
mod cells;
mod clusters;
mod costs;
mod device_header;
mod driver;
mod frontiers;
mod launches;
mod synchronisation;
mod tensor_maps;
mod threads;
mod warps;
mod write_once;
