//! Progress reporting and cancellation for a call.

use std::fmt::Display;

use linerate_host::plan::messages;
use linerate_host::step::Step;
use linerate_host::transaction::StepError;

use crate::interruption::Interruption;

/// Receives the progress of a call.
pub trait Reporter {
    /// A step is taken; `command` would do the same by hand.
    fn step(&self, command: &str);

    /// Something that the user should know.
    fn message(&self, message: &str);
}

/// Progress reporting and cancellation for a call.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Receives progress.
    pub reporter: &'a dyn Reporter,
    /// Checked between steps, and while a program runs.
    pub interruption: &'a Interruption,
}

impl Context<'_> {
    pub(crate) fn message(&self, message: impl Display) {
        self.reporter.message(&message.to_string());
    }

    pub(crate) fn warn(&self, warning: impl Display) {
        self.reporter.message(&format!("Warning: {warning}"));
    }

    /// Reports a step that failed while the others went on.
    pub(crate) fn step_failed(&self, step: &Step, failure: &StepError) {
        self.message(format_args!("{}: {}", messages::describe(step), failure));
    }
}
