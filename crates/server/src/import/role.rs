//! Whether a peer is a client or another site. An `Endpoint` alone does not tell: SaveConfig writes it for every peer that
//! has ever connected.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::value::Client;

impl Client {
    /// Decides the role of a peer of which no client's file is known. `addresses` are the server's; its endpoint `is_saved`
    /// if SaveConfig may have written it.
    pub(super) fn settle_role(&mut self, addresses: &[IpNet], is_saved: bool) {
        let is_own = |net: &IpNet| addresses.iter().any(|own| network(own).contains(net));
        let has_networks = self.allowed_ips.iter().any(|net| net.prefix_len() < net.max_prefix_len());
        // The server keeps a connection to a site open, or finds it by its name; a client does that itself.
        let is_reached_from_here = self.keepalive.is_some_and(|seconds| seconds > 0)
            || self.endpoint.as_ref().is_some_and(|endpoint| endpoint.parse::<SocketAddr>().is_err());
        let is_client = !is_reached_from_here && !has_networks && self.allowed_ips.iter().any(is_own);
        self.is_site = self.endpoint.is_some() && !is_client;
        self.forget_saved_endpoint(is_saved);
    }

    /// Drops the address that SaveConfig left of a client: it is where the client was last seen.
    pub(super) fn forget_saved_endpoint(&mut self, is_saved: bool) {
        if is_saved && !self.is_site && self.endpoint.take().is_some() {
            self.remarks.dropped("its last address, which SaveConfig had written: a client is found where it is");
        }
    }
}

/// The network of a server's address. Of one without a length, as some images write it, it is what they give addresses of.
fn network(address: &IpNet) -> IpNet {
    let usual = if address.addr().is_ipv4() { 24 } else { 64 };
    let is_single = address.prefix_len() == address.max_prefix_len();
    let length = if is_single { usual } else { address.prefix_len() };
    IpNet::new(address.addr(), length).map_or(*address, |net| net.trunc())
}
