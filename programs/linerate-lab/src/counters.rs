//! Counters from outside the daemons: what a host's kernel says of its packets ([`KernelCounters`]), energy ([`Energy`])
//! and system calls ([`SystemCalls`]).
//!
//! Each is read twice, and the difference counts; system calls are counted in between. What a daemon
//! uses by itself is in [`usage`](linerate_probe::usage), the machine's processor time in
//! [`machine`](linerate_probe::machine).

mod energy;
mod kernel;
mod system_calls;

pub use energy::Energy;
pub use kernel::KernelCounters;
pub use system_calls::{Counter, SystemCalls};
