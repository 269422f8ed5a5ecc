//! The subcommands, one module each: its `Arguments`, and `run`, which returns the exit code.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod man;
pub(crate) mod report;
pub(crate) mod run;
