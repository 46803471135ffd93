//! Counters from outside the daemons: the machine's processor time ([`Machine`]), what a host's kernel says of
//! its packets ([`KernelCounters`]), energy ([`Energy`]) and system calls ([`SystemCalls`]).
//!
//! Each is read twice, and the difference counts; system calls are counted in between. What a daemon
//! uses by itself is in [`usage`](crate::usage).

mod energy;
mod kernel;
mod machine;
mod system_calls;

pub use energy::Energy;
pub use kernel::KernelCounters;
pub use machine::{Machine, Shares};
pub use system_calls::{Counter, SystemCalls};
