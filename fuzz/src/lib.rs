//! The properties of the fuzz targets, one file each: what has to hold for any bytes. The targets of `src/bin` check
//! them with inputs from libFuzzer, the tests `corpus` of the crates with the inputs found so far.

pub mod allowed_ips;
pub mod batches;
pub mod bytes;
pub mod checksum;
pub mod datagrams;
pub mod dns_answer;
pub mod document;
pub mod gateway_messages;
pub mod http_head;
pub mod import;
pub mod lab_record;
pub mod ledger;
pub mod packet_merge;
pub mod packet_split;
pub mod plan;
pub mod proxy_file;
pub mod replay_window;
pub mod resolv_conf;
pub mod socks;
pub mod speed_request;
pub mod tunnel_file;
pub mod uapi_reply;
pub mod uapi_request;
pub mod usage;
pub mod wg_config;

#[path = "../../crates/protocol/tests/protocol/simulation.rs"]
#[allow(dead_code, reason = "the protocol's own tests need more of it")]
pub mod simulation;

/// The parsers of `host::linux` are private, so their files are included here under the same names.
#[path = "../../crates/host/src/linux"]
#[allow(dead_code, reason = "only the parsers are fuzzed")]
pub mod linux {
    mod links;
    mod nftables;
    mod prefix;
    mod routes;
    mod rules;
    mod socket;

    #[path = "../../../../fuzz/src/netlink.rs"]
    pub mod netlink;
}

/// Likewise those of `control::kernel`.
#[path = "../../crates/control/src/kernel"]
#[allow(dead_code, reason = "only the parsers are fuzzed")]
pub mod kernel {
    use crate::bytes;

    mod reply;
    mod request;

    #[path = "../../../../fuzz/src/generic_netlink.rs"]
    pub mod generic_netlink;
}

/// Likewise those of `netio`.
#[path = "../../crates/netio/src/linux"]
#[allow(dead_code, reason = "only the parsers are fuzzed")]
pub mod netio {
    use crate::bytes;

    mod link;
    mod netlink;

    #[path = "../../../../fuzz/src/rtnetlink.rs"]
    pub mod rtnetlink;
}

// What those files use of their crates.
use linerate_control::{keys, uapi};
use linerate_host::{state, step};

#[path = "../../crates/netio/src/link"]
mod link {
    mod event;

    pub use event::LinkEvent;
}

/// A stub of the socket options that they set.
#[allow(dead_code, reason = "only the parsers are fuzzed")]
mod sys {
    pub mod option {
        pub struct IntOption;

        impl IntOption {
            pub const STRICT_CHECK: Self = Self;

            pub fn set(&self, _: std::os::fd::BorrowedFd<'_>, _: i32) -> std::io::Result<()> {
                Ok(())
            }
        }
    }
}
