//! The properties of the fuzz targets, one file each: what has to hold for any bytes. The targets of `src/bin` check them
//! with inputs from libFuzzer, the tests `corpus` of the crates with the inputs found so far.

pub mod allowed_ips;
pub mod bytes;
pub mod checksum;
pub mod datagrams;
pub mod document;
pub mod lab_record;
pub mod ledger;
pub mod packet_merge;
pub mod packet_split;
pub mod plan;
pub mod replay_window;
pub mod resolv_conf;
pub mod tunnel_file;
pub mod uapi_reply;
pub mod uapi_request;
pub mod wg_config;

#[path = "../../crates/protocol/tests/protocol/simulation.rs"]
#[allow(dead_code, reason = "the protocol's own tests need more of it")]
pub mod simulation;

/// How the kernel's answers are read is no one's business but `linux`'s: its own files, under the same names.
#[path = "../../crates/host/src/linux"]
#[allow(dead_code, reason = "only the readers are fuzzed")]
pub mod linux {
    mod firewall;
    mod links;
    mod message;
    mod routes;
    mod rules;
    mod socket;

    #[path = "../../../../fuzz/src/netlink.rs"]
    pub mod netlink;
}

/// How the kernel's answers about its tunnels are read is no one's business but `kernel`'s.
#[path = "../../crates/control/src/kernel"]
#[allow(dead_code, reason = "keys are wiped where questions are sent")]
pub mod kernel {
    use crate::bytes;

    mod answer;
    mod request;

    #[path = "../../../../fuzz/src/generic_netlink.rs"]
    pub mod generic_netlink;
}

/// Nor how those about links and routes are, but `netio`'s.
#[path = "../../crates/netio/src"]
#[allow(dead_code, reason = "only the readers are fuzzed")]
pub mod netio {
    use crate::bytes;

    mod link;
    mod netlink;

    #[path = "../../../fuzz/src/rtnetlink.rs"]
    pub mod rtnetlink;
}

// What those files know of their crates.
use linerate_control::{keys, uapi};
use linerate_host::{state, step};

/// And what they set of a socket, of which there is none here.
#[allow(dead_code, reason = "only the readers are fuzzed")]
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
