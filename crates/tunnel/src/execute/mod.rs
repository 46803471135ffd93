//! Carries out steps on this host.

pub mod daemon;
pub mod hook;
pub mod step_executor;
pub mod transaction;
