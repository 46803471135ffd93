//! Address ranges: local networks, which may stay outside of a tunnel, and services that no client may reach.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(segments: [u16; 8], length: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = segments;
    IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

/// The ranges of local networks (RFC 1918, 6598, 3927, 4193, 4291): the public internet has no host in them.
pub const LOCAL: [IpNet; 7] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
    v4(169, 254, 0, 0, 16),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    LINK_LOCAL_V6,
];

/// Whether a network lies within one of [`LOCAL`].
pub fn is_local(net: &IpNet) -> bool {
    LOCAL.iter().any(|range| range.contains(net))
}

/// Services that only this machine may reach: all link-local addresses, and those of cloud metadata services (Azure,
/// Alibaba Cloud, Oracle Cloud, AWS, Google Cloud; other clouds use 169.254.0.0/16).
pub const MACHINE_SERVICES: [IpNet; 7] = [
    v4(169, 254, 0, 0, 16),
    v4(168, 63, 129, 16, 32),
    v4(100, 100, 100, 200, 32),
    v4(192, 0, 0, 192, 32),
    LINK_LOCAL_V6,
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
];

const LINK_LOCAL_V6: IpNet = v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10);

/// Whether an address is one of [`MACHINE_SERVICES`]. A kernel connects `::ffff:169.254.169.254` to 169.254.169.254.
pub fn is_machine_service(address: IpAddr) -> bool {
    let address = address.to_canonical();
    MACHINE_SERVICES.iter().any(|range| range.contains(&address))
}

/// Whether a network is link-local.
pub fn is_link_local(net: &IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.addr().is_link_local(),
        IpNet::V6(net) => net.addr().is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_local_only_if_all_of_it_is() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        for local in ["10.0.0.0/8", "192.168.7.0/24", "172.31.0.0/16", "100.127.255.0/24", "fd00::/8", "fe80::/64"] {
            assert!(is_local(&net(local)), "{local}");
        }
        for public in ["128.0.0.0/1", "10.0.0.0/7", "172.32.0.0/16", "192.0.2.0/24", "2000::/3", "::/1", "f000::/4"] {
            assert!(!is_local(&net(public)), "{public}");
        }
    }

    #[test]
    fn a_machine_service_is_known_in_each_of_its_forms() {
        for text in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:100.100.100.200"]
        {
            assert!(is_machine_service(text.parse().unwrap()), "{text}");
        }
        for text in ["10.0.0.1", "fd00::1", "203.0.113.1", "2001:db8::1"] {
            assert!(!is_machine_service(text.parse().unwrap()), "{text}");
        }
    }
}
