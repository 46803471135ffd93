//! Probes the path through a tunnel, or any other: round trips by ICMP echo, and the sizes that pass.

#![forbid(unsafe_code)]

mod echo;
mod sizes;

pub use echo::Echo;
pub use sizes::{Sizes, sizes};
