//! What the program says about its own work, on standard error.

use anstream::ColorChoice;
use tracing::level_filters::LevelFilter;

use crate::arguments::Shared;

/// Starts logging at the level that `-q` and `-v` ask for.
pub(crate) fn start(shared: &Shared) {
    let level = match (shared.quiet, shared.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::TRACE,
    };
    let colors = anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(colors)
        .with_target(false)
        .without_time()
        // It would say so on standard error, the very stream that failed, and panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
}
