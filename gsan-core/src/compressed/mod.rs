//! The compressed detector: what device code mirrors, at the unit of the CTA.

pub mod checkpoints;
pub mod pool;
pub mod publications;
mod ring;
pub mod slots;
pub mod snapshots;
pub mod topology;
pub mod vector;
