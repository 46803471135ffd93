//! What FreeBSD alone has: the making and the end of an interface of tun(4), and a clock that may stop in a suspend.

pub(crate) mod groups;
pub(crate) mod interface;
pub(crate) mod suspend;
