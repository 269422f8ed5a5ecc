//! What `gsan check` does with one PTX file: from the arguments of its kernels to a report.
//!
//! [`spec`] says what is launched with what, [`prepare`] brings it together with a module, and
//! [`explore`] runs the schedules and collects what they show.

pub mod argument;
pub mod contents;
pub mod explore;
mod findings;
pub mod prepare;
pub mod spec;
mod target;

use crate::diagnostic::Diagnostic;

/// Why a file could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The PTX is wrong or not supported.
    #[error(transparent)]
    Ptx(Box<Diagnostic>),
    /// The file of arguments is wrong.
    #[error(transparent)]
    ArgumentFile(Box<Diagnostic>),
    /// The arguments do not fit the kernel.
    #[error(transparent)]
    Arguments(#[from] Problem),
    /// A defect of this program.
    #[error("the detector refused an event of the interpreter: {0}; this is a defect of gsan")]
    Internal(gsan_core::event::EventError),
}

/// What is wrong with an argument, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", help.as_ref().map_or_else(String::new, |help| format!(" ({help})")))]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What would be right, if that can be said.
    pub help: Option<String>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Problem {
        Problem {
            help: Some(help.into()),
            ..self
        }
    }

    pub(crate) fn help_if(self, help: Option<String>) -> Problem {
        Problem { help, ..self }
    }
}
