//! The groups of an interface, as SIOCGIFGROUP writes them: names of 16 bytes that end with zeros (net/if.h, ifg_req).

/// The length of a name.
pub(crate) const NAME: usize = 16;

/// The group of every interface of the driver, by which it is known to be alive.
///
/// `ifconfig wg0 destroy` takes the interface out of it first (sys/net/if_clone.c, if_clone_destroyif), and then waits
/// until the device is closed (sys/net/if_tuntap.c, tun_destroy), with a lock that all other interfaces need. Nothing
/// tells the owner of the device.
pub(crate) const ALIVE: &str = "tun";

/// Whether `group` is among the names.
pub(crate) fn has(names: &[u8], group: &str) -> bool {
    names.chunks_exact(NAME).any(|name| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        &name[..end] == group.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_alive_while_it_is_in_its_drivers_group() {
        let names = |groups: &[&str]| -> Vec<u8> {
            let padded = groups.iter().map(|group| [group.as_bytes(), &[0; NAME][group.len()..]].concat());
            padded.chain([vec![0; NAME]]).flatten().collect()
        };
        assert!(has(&names(&["all", "tun", "wireguard"]), ALIVE));
        assert!(!has(&names(&["all", "tunnels", "tu"]), ALIVE));
        assert!(has(b"a-group-of-16-b.", "a-group-of-16-b."), "all bytes of it");
        assert!(!has(&[], ALIVE));
        assert!(!has(b"tun", ALIVE), "cut off");
    }
}
