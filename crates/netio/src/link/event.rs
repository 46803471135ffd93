//! What changes of the host's network are.

/// An event of the host's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// An interface is new or was changed.
    Link {
        /// Its index.
        ifindex: u32,
        /// Whether it is up, as the user set it (IFF_UP).
        up: bool,
        /// Its MTU in bytes.
        mtu: u32,
        /// Its name.
        name: String,
    },
    /// An interface left this network namespace: it was deleted, or moved to another namespace.
    /// For a TUN interface, [`TunDevice::name`](crate::tun::TunDevice::name) fails only after the former.
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// An address, a route or a routing rule was added, changed or deleted.
    Routing {
        /// The index of the interface that it is about, where it is about one.
        ifindex: Option<u32>,
    },
    /// Changes came faster than they were read and some are lost: read everything again.
    Lost,
}
