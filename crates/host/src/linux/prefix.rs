//! Prefixes as netlink has them: an address family, an address or none, and a length.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_netlink::{AF_INET, AF_INET6, address_of};

/// The prefix of an address family with this length; without an address, that of all addresses.
pub(super) fn prefix_of(family: u8, address: Option<&[u8]>, length: u8) -> Option<IpNet> {
    let address = match (family, address) {
        (AF_INET, None) => IpAddr::from([0; 4]),
        (AF_INET6, None) => IpAddr::from([0; 16]),
        (_, Some(value)) => address_of(value)?,
        _ => return None,
    };
    IpNet::new(address, length).ok().filter(|net| family_of(net.addr()) == family)
}

/// The address family of an address.
pub(super) fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_prefix_is_of_its_family_and_not_too_long(family in 0u8..12, octets in prop::collection::vec(any::<u8>(), 0..20), length: u8) {
            let longest = match family { AF_INET => 32, AF_INET6 => 128, _ => 0 };
            let right = usize::from(longest) == octets.len() * 8 && longest > 0 && length <= longest;
            prop_assert_eq!(prefix_of(family, Some(&octets), length).is_some(), right);
            prop_assert_eq!(prefix_of(family, None, length).is_some(), longest > 0 && length <= longest);
        }
    }
}
