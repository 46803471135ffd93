//! What FreeBSD's part decides, without a system call.

pub(crate) mod family_header;
pub(crate) mod groups;
pub(crate) mod route_message;
pub(crate) mod suspend;
