//! What a call has of its caller: whom to tell, and whether to stop.

use std::fmt::Display;

use linerate_host::plan::messages;
use linerate_host::step::Step;

use crate::execute::transaction::StepError;
use crate::interruption::Interruption;

/// Hears what a call does while it works.
pub trait Reporter {
    /// A step is taken; `command` would do the same by hand.
    fn step(&self, command: &str);

    /// Something that the user should know.
    fn message(&self, message: &str);
}

/// What a call has of its caller.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Hears what is done.
    pub reporter: &'a dyn Reporter,
    /// Asked between steps, and while a program runs.
    pub interruption: &'a Interruption,
}

impl Context<'_> {
    pub(crate) fn message(&self, message: impl Display) {
        self.reporter.message(&message.to_string());
    }

    pub(crate) fn warn(&self, warning: impl Display) {
        self.reporter.message(&format!("Warning: {warning}"));
    }

    /// Says which step failed while the others went on.
    pub(crate) fn step_failed(&self, step: &Step, failure: &StepError) {
        self.message(format_args!("{}: {}", messages::describe(step), failure.error));
    }
}
