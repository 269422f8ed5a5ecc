//! Turns races into what people and other programs read.
//!
//! **Owns** the report as data ([`model`], versioned, with a JSON Schema), how races of the
//! detector become part of it ([`names`], [`builder`]: duplicates, suppressions, the limit, merging
//! of several processes' parts), and its three forms: text with source lines ([`human`]), JSON
//! ([`json`]) and SARIF 2.1.0 ([`sarif`]).
//!
//! **Must never know** how races are found, what a GPU is, where reports are kept, or what the
//! command line looks like. The only files it opens are the source files it shows ([`source`]).
//!
//! **Invariants**
//! - Both sides of a race are always said, and what is not known of one is said to be unknown.
//! - Nothing is dropped silently: suppressed findings, findings over the limit and losses of
//!   coverage are counted and told.
//! - A stored report that is written and read again is equal to the first.
//! - No input makes it panic: reports, source files and names come from strangers.
//! - Counts saturate.

pub mod builder;
mod drawing;
pub mod human;
pub mod json;
pub mod loss;
pub mod model;
pub mod names;
pub mod sarif;
pub mod source;
mod words;
