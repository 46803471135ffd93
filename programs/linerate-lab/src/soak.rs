//! The soak's record, judged: what our processes held and counted while two tunnels lived through one event after the
//! other, as `tests/soak/run` wrote it down.
//!
//! [`record`] reads the two files, [`verdict`] says what is flat, what is explained and what came back, and [`picture`]
//! draws it. Nothing here looks at a clock or at the machine: the same record gives the same verdict everywhere.

pub mod picture;
pub mod record;
pub mod verdict;
