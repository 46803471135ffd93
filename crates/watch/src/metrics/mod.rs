//! A view as text for Prometheus: in the classic format and in that of OpenMetrics, in the dialects of others and in
//! our own.
//!
//! A family is written whole before the next one begins; one without samples is left out. A peer's endpoint is never a
//! label of a counter, because each address would begin another series.

mod families;
mod text;

pub use families::{Content, Dialect, NAMES, write};
pub use text::Format;
