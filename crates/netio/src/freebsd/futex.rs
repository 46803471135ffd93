//! _umtx_op(2).

pub(crate) use crate::sys::futex::{sleep, wake};
