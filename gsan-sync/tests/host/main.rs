//! The ordering on the host backend, with the device library built for the host as the GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod capture;
mod closed_graphs;
mod closure;
mod dependent;
mod destroyed;
mod gpu;
mod graphs;
mod group;
mod kept;
mod long;
mod ranks;
mod restart;
mod reuse;
mod streams;
mod threads;
