//! The functions, a module for each group, in the order of the header.

pub mod configuration;

pub mod allocator;

pub mod query;

pub mod ordering;

pub mod graphs;

pub mod groups;

pub mod sharing;

pub mod races;

pub mod host;

pub mod decoding;

pub use allocator::*;
pub use configuration::*;
pub use decoding::*;
pub use graphs::*;
pub use groups::*;
pub use host::*;
pub use ordering::*;
pub use query::*;
pub use races::*;
pub use sharing::*;
