//! Decides whether a peer is a client or another site. An `Endpoint` alone is no proof of a site: SaveConfig writes one for
//! every peer that has ever connected.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::value::Client;

impl Client {
    /// Decides the role of a peer without a client file. `addresses` are the server's. `is_saved`: SaveConfig may have written
    /// the peer's endpoint.
    pub(super) fn settle_role(&mut self, addresses: &[IpNet], is_saved: bool) {
        let is_own = |net: &IpNet| addresses.iter().any(|own| network(own).contains(net));
        let has_networks = self.allowed_ips.iter().any(|net| net.prefix_len() < net.max_prefix_len());
        // Only for a site does a server have a keepalive or an endpoint name.
        let is_reached_from_here = self.keepalive.is_some_and(|seconds| seconds > 0)
            || self.endpoint.as_ref().is_some_and(|endpoint| endpoint.parse::<SocketAddr>().is_err());
        let is_client = !is_reached_from_here && !has_networks && self.allowed_ips.iter().any(is_own);
        self.is_site = self.endpoint.is_some() && !is_client;
        self.forget_saved_endpoint(is_saved);
    }

    /// Drops the endpoint that SaveConfig wrote for a client: it is only the client's last address.
    pub(super) fn forget_saved_endpoint(&mut self, is_saved: bool) {
        if is_saved && !self.is_site && self.endpoint.take().is_some() {
            self.remarks
                .dropped("its Endpoint, the last address that SaveConfig wrote: clients connect from any address");
        }
    }
}

/// Returns the network of a server's address. If the address has no prefix length, as in some container images, returns the
/// network of their clients.
fn network(address: &IpNet) -> IpNet {
    let usual = if address.addr().is_ipv4() { 24 } else { 64 };
    let is_single = address.prefix_len() == address.max_prefix_len();
    let length = if is_single { usual } else { address.prefix_len() };
    IpNet::new(address.addr(), length).map_or(*address, |net| net.trunc())
}
