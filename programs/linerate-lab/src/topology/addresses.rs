//! The networks of the lab and the addresses of its hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// A host's addresses on one network, one of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Of IPv4.
    pub v4: Ipv4Addr,
    /// Of IPv6.
    pub v6: Ipv6Addr,
}

impl Addresses {
    /// The one of `family`.
    #[must_use]
    pub fn of(self, family: AddressFamily) -> IpAddr {
        match family {
            AddressFamily::V4 => self.v4.into(),
            AddressFamily::V6 => self.v6.into(),
        }
    }
}

/// A network of the lab, a /24 and a /64, from the ranges for documentation and for private use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    v4: [u8; 3],
    v6: u16,
}

impl Network {
    /// The client's cable.
    pub const NEAR: Self = Self { v4: [192, 0, 2], v6: 0xfd01 };
    /// Inside the tunnel.
    pub const TUNNEL: Self = Self { v4: [10, 0, 0], v6: 0xfd02 };
    /// The server's cable, where it is not the client's.
    pub const FAR: Self = Self { v4: [198, 51, 100], v6: 0xfd03 };

    /// The addresses of the host with this number.
    #[must_use]
    pub const fn host(self, number: u8) -> Addresses {
        let [a, b, c] = self.v4;
        Addresses { v4: Ipv4Addr::new(a, b, c, number), v6: Ipv6Addr::new(self.v6, 0, 0, 0, 0, 0, 0, number as u16) }
    }

    /// The network's address and the length of its prefix.
    #[must_use]
    pub fn prefix(self, family: AddressFamily) -> (IpAddr, u8) {
        (self.host(0).of(family), prefix_length(family))
    }
}

/// The prefix length of every network of the lab.
pub(crate) fn prefix_length(family: AddressFamily) -> u8 {
    match family {
        AddressFamily::V4 => 24,
        AddressFamily::V6 => 64,
    }
}

/// The option of `ip` for this family.
pub(crate) fn flag(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    }
}
