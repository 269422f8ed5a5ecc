//! Parts: written, read, killed, overwritten.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod device;
mod draining;
mod hostile;
mod killed;
mod reading;
