//! Executes steps in order. If one fails or a signal comes, says which were done.
//!
//! Consecutive steps of the kernel are passed to the [`Executor`] together, so that they can be one netlink exchange.

use std::io;

use crate::step::Step;

/// Carries steps out.
pub trait Executor {
    /// Carries out `steps`: one, or several that are all the kernel's ([`Step::is_kernel_step`]).
    ///
    /// # Errors
    /// The first that failed. Those before it are done, those after it are not.
    fn apply(&mut self, steps: &[Step]) -> Result<(), StepError>;

    /// Whether to stop: a signal has come.
    fn interrupted(&self) -> bool;
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", explanation.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
pub struct StepError {
    /// Which of the steps, from 0.
    pub index: usize,
    /// Why, with the errno if the kernel refused it.
    pub error: io::Error,
    /// The kernel's explanation, if it has one.
    pub explanation: Option<String>,
    /// The exit code for this error: that of the program that does this step for wg-quick.
    pub exit_code: u8,
}

/// A step that was refused: those before it are done, those after it are not.
///
/// Consecutive firewall steps are one transaction: none of them is done then, and the index is that of the first.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", explanation.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
pub struct ApplyError {
    /// Which of the steps, from 0.
    pub index: usize,
    /// Why, with the errno ([`io::Error::raw_os_error`]) if the kernel refused it.
    pub error: io::Error,
    /// The kernel's explanation (`NETLINK_EXT_ACK`), and how many later steps could not be rolled back.
    pub explanation: Option<String>,
}

/// Why steps were not carried out to the last one.
#[derive(Debug)]
pub struct TransactionError {
    /// The step that failed; `None` after a signal.
    pub step: Option<Box<Step>>,
    /// Why it did.
    pub error: io::Error,
    /// See [`StepError::exit_code`].
    pub exit_code: u8,
    /// What was done before it, in order.
    pub done: Vec<Step>,
}

/// How many steps are handed over at once, so that a signal does not wait for 5,000 routes.
const BATCH: usize = 1024;

/// Carries out `steps` in their order.
///
/// # Errors
/// See [`TransactionError`]; nothing is rolled back.
pub fn execute(steps: &[Step], executor: &mut dyn Executor) -> Result<(), TransactionError> {
    let mut done = 0;
    while done < steps.len() {
        let left = &steps[done..];
        if executor.interrupted() {
            return Err(TransactionError {
                step: None,
                error: io::Error::new(io::ErrorKind::Interrupted, "interrupted"),
                exit_code: 130,
                done: steps[..done].to_vec(),
            });
        }
        let kernels = left.iter().take(BATCH).take_while(|step| step.is_kernel_step()).count();
        let group = &left[..kernels.max(1)];
        if let Err(failure) = executor.apply(group) {
            let index = done + failure.index.min(group.len() - 1);
            return Err(TransactionError {
                step: Some(Box::new(steps[index].clone())),
                error: io::Error::new(failure.error.kind(), failure.to_string()),
                exit_code: failure.exit_code,
                done: steps[..index].to_vec(),
            });
        }
        done += group.len();
    }
    Ok(())
}

/// Carries out as many of `steps` as possible. Those that fail are reported to `on_error` and returned; the others go
/// on.
///
/// Removing what is gone ([`is_gone`]) and adding what is there ([`is_there`]) count as done.
pub fn execute_best_effort(
    steps: &[Step],
    executor: &mut dyn Executor,
    on_error: &mut dyn FnMut(&Step, &StepError),
) -> Vec<Step> {
    let is_firewall = |step: &&Step| step.is_firewall();
    let mut failed = Vec::new();
    // How many steps to hand over one by one.
    let mut alone = 0;
    let mut left = steps;
    while !left.is_empty() {
        let most = if alone > 0 { 1 } else { BATCH };
        let kernels = left.iter().take(most).take_while(|step| step.is_kernel_step()).count();
        let group = &left[..kernels.max(1)];
        match executor.apply(group) {
            Ok(()) => left = &left[group.len()..],
            Err(failure) => {
                let index = failure.index.min(group.len() - 1);
                let tables = group[index..].iter().take_while(is_firewall).count();
                if tables > 1 && is_gone(&failure.error) {
                    // One missing table has failed the whole nftables transaction.
                    (alone, left) = (tables, &left[index..]);
                    continue;
                }
                if !is_gone(&failure.error) && !is_there(&failure.error) {
                    on_error(&group[index], &failure);
                    failed.push(group[index].clone());
                }
                left = &left[index + 1..];
            }
        }
        alone = alone.saturating_sub(1);
    }
    failed
}

/// Whether an error says that there is nothing to remove: ENOENT (rules, firewall), ESRCH (routes), ENODEV (links)
/// or EADDRNOTAVAIL (addresses).
pub fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::SRCH, Errno::NODEV, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno))
}

/// Whether an error says that there is nothing to add.
pub fn is_there(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Phase;
    use proptest::prelude::*;

    /// Counts what was done, and fails at one step.
    struct Counting {
        done: Vec<Step>,
        fails: Option<(Step, rustix::io::Errno)>,
        stop_after: usize,
    }

    impl Executor for Counting {
        fn apply(&mut self, steps: &[Step]) -> Result<(), StepError> {
            assert!(steps.len() == 1 || steps.iter().all(Step::is_kernel_step));
            for (index, step) in steps.iter().enumerate() {
                if let Some((fails, errno)) = &self.fails
                    && fails == step
                {
                    return Err(StepError { index, error: (*errno).into(), explanation: None, exit_code: 2 });
                }
                self.done.push(step.clone());
            }
            Ok(())
        }

        fn interrupted(&self) -> bool {
            self.done.len() >= self.stop_after
        }
    }

    /// Steps that differ, of the kernel's and others.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        proptest::collection::vec(any::<bool>(), 1..50).prop_map(|kinds| {
            let step = |(number, kernels): (usize, bool)| match kernels {
                true => Step::LinkUp { interface: format!("wg{number}") },
                false => Step::Hook { phase: Phase::PostUp, command: format!("{number}") },
            };
            kinds.into_iter().enumerate().map(step).collect()
        })
    }

    proptest! {
        #[test]
        fn a_failure_says_exactly_which_steps_were_done(steps in steps(), at in any::<prop::sample::Index>()) {
            let at = at.index(steps.len());
            let fails = Some((steps[at].clone(), rustix::io::Errno::EXIST));
            let mut executor = Counting { done: Vec::new(), fails, stop_after: usize::MAX };
            let failure = execute(&steps, &mut executor).unwrap_err();
            prop_assert_eq!(failure.step.as_deref(), Some(&steps[at]));
            prop_assert_eq!(&failure.done, &executor.done);
            prop_assert_eq!(&failure.done[..], &steps[..at]);
        }

        #[test]
        fn an_interruption_says_what_was_done(steps in steps(), stop_after in 0usize..50) {
            let mut executor = Counting { done: Vec::new(), fails: None, stop_after };
            match execute(&steps, &mut executor) {
                Ok(()) => prop_assert_eq!(&executor.done, &steps),
                Err(failure) => {
                    prop_assert!(failure.step.is_none());
                    prop_assert_eq!(&failure.done, &executor.done);
                }
            }
        }

        #[test]
        fn best_effort_goes_on_after_a_failure(steps in steps(), at in any::<prop::sample::Index>(), kind in 0usize..3) {
            let at = at.index(steps.len());
            let errno = [rustix::io::Errno::NOENT, rustix::io::Errno::EXIST, rustix::io::Errno::PERM][kind];
            let mut executor =
                Counting { done: Vec::new(), fails: Some((steps[at].clone(), errno)), stop_after: usize::MAX };
            let mut reported = Vec::new();
            let left = execute_best_effort(&steps, &mut executor, &mut |step, _| reported.push(step.clone()));
            prop_assert_eq!(&left, &reported);
            prop_assert_eq!(executor.done.len(), steps.len() - 1);
            prop_assert_eq!(reported, if kind < 2 { vec![] } else { vec![steps[at].clone()] });
        }
    }
}
