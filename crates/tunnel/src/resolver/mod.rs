//! Endpoints that are names, which a separate [`process`] looks up.

pub mod process;

use std::fmt;

use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{Endpoint, TunnelFile};

/// An endpoint that is a name, not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEndpoint {
    pub peer: PublicKey,
    pub host: String,
    /// The port, or a service's name.
    pub service: String,
}

/// The endpoints of `file` that are names.
pub fn named_endpoints(file: &TunnelFile) -> Vec<NamedEndpoint> {
    let named = file.peers.iter().filter_map(|peer| match &peer.endpoint {
        Some(Endpoint::Name { host, service }) => {
            Some(NamedEndpoint { peer: peer.public_key, host: host.clone(), service: service.clone() })
        }
        _ => None,
    });
    named.collect()
}

/// As the file has it.
impl fmt::Display for NamedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.service)
    }
}
