//! What FreeBSD's part decides. Where it takes system calls, they are behind a trait or an argument, and tests answer
//! them as the kernel's sources do.

pub(crate) mod family_header;
pub(crate) mod groups;
pub(crate) mod interface;
pub(crate) mod one_by_one;
pub(crate) mod route_message;
pub(crate) mod suspend;
