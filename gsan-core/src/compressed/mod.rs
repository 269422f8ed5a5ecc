//! The compressed detector: what device code mirrors, at the unit of the CTA.
//!
//! Everything works on shared memory through the atomics facade, from many threads at once; the
//! only lock is that of a CTA, and lookups do not take it.
//!
//! - [`topology`], [`slots`]: which resident CTA has which thread id.
//! - [`vector`], [`pool`]: private clocks.
//! - [`publications`], [`snapshots`], [`checkpoints`]: the rings in which clocks are published.
//! - [`frontier`]: what a launch starts after, and where its completion goes.
//! - [`cta`]: a resident CTA: what it knows, publishes and acquires.
//! - [`strong`]: what its accesses do to cells.
//! - [`meeting`]: cluster barriers and mbarriers.
//! - [`history`]: who had a thread id when.
//! - [`restart`]: when everything may be forgotten; [`group_restart`]: by processes that share memory.
//! - [`system`]: the memory of all that.
//! - [`detector`]: all of it, driven by events.

pub mod checkpoints;
pub mod cta;
pub mod detector;
pub mod frontier;
pub mod group_restart;
pub mod history;
mod lock;
pub mod meeting;
#[cfg(all(test, loom))]
mod models;
pub mod pool;
pub mod publications;
pub mod restart;
mod ring;
pub mod slots;
pub mod snapshots;
pub mod strong;
pub mod system;
pub mod topology;
pub mod vector;
#[cfg(test)]
mod world;
