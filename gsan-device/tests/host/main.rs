//! The device sources, compiled for the host, against `gsan_core`.

mod arithmetic;
mod cells;
mod driver;
mod launches;
