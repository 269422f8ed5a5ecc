//! Sessions on the host backend: no GPU is needed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod default_stream;
mod kernels;
mod machine;
mod races;
mod refusals;
mod sharing;
mod threads;
