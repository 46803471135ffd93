//! What was done for a tunnel, on disk before the first step.

pub mod ledger;
