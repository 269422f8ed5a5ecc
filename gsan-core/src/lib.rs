//! Clocks, cells, rings, ordering and race rules: the logic of the race detector.
//!
//! **Owns** every structure that device code or another process reads ([`address`] arithmetic
//! included), the events a detector is told ([`event`]), races as data ([`race`]), the compressed
//! detector that device code mirrors, and the exact detector ([`exact`]) that is its oracle.
//!
//! **Must never know** CUDA, files, sockets, configuration or the look of a report.
//!
//! **Invariants**
//! - No I/O and no global state: two detectors in one process never see each other.
//! - Losing a report is allowed and counted ([`loss`]); inventing one is never allowed. Whatever is
//!   approximated is approximated towards "ordered".
//! - The lock-free protocols touch memory only through the atomics facade, so that loom can
//!   execute them.

#[macro_use]
pub mod layout;

pub mod address;
pub mod atomics;
pub mod cell;
pub mod clock;
pub mod compressed;
pub mod event;
pub mod exact;
pub mod host_order;
pub mod ids;
pub mod launch_log;
pub mod loss;
pub mod race;
pub mod race_ring;
pub mod record;
pub mod reservoir;
pub mod scope;
pub mod site_mirror;
#[cfg(feature = "testing")]
pub mod testing;
