//! Probes the path through a tunnel, or any other, and what that costs: round trips by ICMP echo ([`Echo`]) and the
//! sizes that pass, what processes ([`usage`]) and processors ([`machine`]) have done, what limits them ([`limit`]), and
//! what sockets dropped ([`sockets`]); all of these during a load ([`watch`]). [`speed`] loads a tunnel between its ends.

#![forbid(unsafe_code)]

mod echo;
pub mod limit;
pub mod machine;
mod sizes;
pub mod sockets;
pub mod speed;
pub mod usage;
pub mod watch;

pub use echo::Echo;
pub use sizes::{Sizes, largest, sizes};
