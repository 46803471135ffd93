//! Probes the path through a tunnel, or any other: round trips by ICMP echo.

#![forbid(unsafe_code)]

mod echo;

pub use echo::Echo;
