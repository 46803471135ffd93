//! Endpoints that are names, which a separate [`process`] looks up.

pub mod process;

use std::fmt;

use linerate_control::keys::PublicKey;

/// An endpoint that is a name, not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedEndpoint {
    /// The peer that has it.
    pub(crate) peer: PublicKey,
    /// The host.
    pub(crate) host: String,
    /// The port, or a service's name.
    pub(crate) service: String,
}

/// As the file has it.
impl fmt::Display for NamedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.service)
    }
}
