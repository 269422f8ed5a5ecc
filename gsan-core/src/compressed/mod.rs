//! The compressed detector: what device code mirrors, at the unit of the CTA.

pub mod checkpoints;
pub mod cta;
pub mod detector;
pub mod frontier;
pub mod history;
mod lock;
pub mod meeting;
pub mod pool;
pub mod publications;
mod ring;
pub mod slots;
pub mod snapshots;
pub mod strong;
pub mod system;
pub mod topology;
pub mod vector;
