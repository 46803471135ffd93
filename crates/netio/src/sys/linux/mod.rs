//! The calls of Linux and Android.

pub(super) mod control;
#[cfg(feature = "forbidden-calls")]
pub(crate) mod forbidden_calls;
pub(crate) mod interface;
pub(crate) mod message;
pub(crate) mod option;
pub(crate) mod signal;
pub(crate) mod steering;
pub(crate) mod trap;
