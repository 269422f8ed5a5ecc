//! The configuration of a command, and its errors as failures.

use gsan_config::error::Excerpt;
use gsan_config::{Error, Inputs, Loaded, Origin};

use crate::arguments::Shared;
use crate::failure::Failure;

/// The configuration that file, environment and command line make.
pub(crate) fn load(shared: &Shared) -> Result<Loaded, Failure> {
    let inputs = Inputs::of_process(shared.config.clone(), shared.set.clone())
        .map_err(|error| Failure::other(format!("the working directory is not there: {error}")))?;
    let loaded = Loaded::new(&inputs).map_err(failure)?;
    match &loaded.file {
        Some(file) => tracing::info!("configuration file: {}", file.display()),
        None => tracing::info!("no configuration file"),
    }
    Ok(loaded)
}

fn failure(error: Error) -> Failure {
    let failure = Failure::usage(error.problem.to_string());
    let failure = match (error.origin, error.excerpt) {
        (Origin::File { path, line, .. }, excerpt) => {
            let failure = failure.at(path.display().to_string(), Some(line));
            match excerpt {
                Some(Excerpt { text, span }) => failure.showing(text, span, None),
                None => failure,
            }
        }
        (Origin::Environment { name }, _) => {
            failure.at(format!("environment variable {name}"), None)
        }
        (Origin::CommandLine, Some(Excerpt { text, .. })) => {
            failure.at(format!("command line, `-c {text}`"), None)
        }
        (Origin::CommandLine, None) => failure.at("command line", None),
        (Origin::Default, _) => failure,
    };
    failure.help(error.problem.help())
}
