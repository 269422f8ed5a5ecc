//! `gsan check` as a library: arguments, and what schedules show.

mod arguments;
mod verdicts;
