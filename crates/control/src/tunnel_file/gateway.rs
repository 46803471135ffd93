//! What a file says about a gateway: a host that forwards between the tunnel and its other networks.

use serde::{Deserialize, Serialize};

use crate::interface::InterfaceName;

/// `Gateway`: the interfaces between which and the tunnel the host forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gateway {
    /// The host does not forward on behalf of the tunnel.
    #[default]
    Off,
    /// Those of the host's default routes.
    Auto,
    /// These, in the order of the file.
    Interfaces(Vec<InterfaceName>),
}

/// `Masquerade`: the families in which the tunnel's source addresses become those of the gateway. In the others they
/// are routed as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// `Inbound`: what may come from the gateway's interfaces into the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inbound {
    /// Answers to what came out of the tunnel.
    #[default]
    Replies,
    /// New connections, too.
    All,
}
