//! The keys of the tunnel file: those of `wg` (man 8 wg), of wg-quick (man 8 wg-quick), and of linerate, after `#!`.

use crate::document::{Key, SectionKind};

const fn interface(name: &'static str) -> Key {
    Key { name, section: SectionKind::Interface, marked: false, whole_line: false }
}

const fn peer(name: &'static str) -> Key {
    Key { section: SectionKind::Peer, ..interface(name) }
}

const fn hook(name: &'static str) -> Key {
    Key { whole_line: true, ..interface(name) }
}

const fn ours(key: Key) -> Key {
    Key { marked: true, ..key }
}

/// The private key: the first of `wg`'s keys.
pub const PRIVATE_KEY: Key = interface("PrivateKey");
/// The UDP port.
pub const LISTEN_PORT: Key = interface("ListenPort");
/// The mark on outgoing datagrams.
pub const FWMARK: Key = interface("FwMark");
/// The identity of the peer.
pub const PUBLIC_KEY: Key = peer("PublicKey");
/// An additional secret shared with the peer.
pub const PRESHARED_KEY: Key = peer("PresharedKey");
/// The prefixes routed to the peer.
pub const ALLOWED_IPS: Key = peer("AllowedIPs");
/// The address of the peer.
pub const ENDPOINT: Key = peer("Endpoint");
/// Seconds between keepalives.
pub const PERSISTENT_KEEPALIVE: Key = peer("PersistentKeepalive");

/// Addresses of the interface: the first of wg-quick's keys.
pub const ADDRESS: Key = interface("Address");
/// Name servers and search domains.
pub const DNS: Key = interface("DNS");
/// The MTU.
pub const MTU: Key = interface("MTU");
/// The routing table.
pub const TABLE: Key = interface("Table");
/// A hook before the interface is configured.
pub const PRE_UP: Key = hook("PreUp");
/// A hook after the tunnel is up.
pub const POST_UP: Key = hook("PostUp");
/// A hook before the tunnel goes down.
pub const PRE_DOWN: Key = hook("PreDown");
/// A hook after the tunnel is down.
pub const POST_DOWN: Key = hook("PostDown");
/// Whether to save the file when the tunnel goes down.
pub const SAVE_CONFIG: Key = interface("SaveConfig");

/// What to do when a route exists already: the first of our keys.
pub const ROUTE_CONFLICT: Key = ours(interface("RouteConflict"));
/// Whether to block all traffic outside of the tunnel.
pub const KILL_SWITCH: Key = ours(interface("KillSwitch"));
/// The prefixes that bypass the tunnel.
pub const EXCLUDED_IPS: Key = ours(interface("ExcludedIPs"));
/// Whether the host's own networks bypass the tunnel.
pub const EXCLUDE_LAN: Key = ours(interface("ExcludeLAN"));
/// The file with the private key.
pub const PRIVATE_KEY_FILE: Key = ours(interface("PrivateKeyFile"));
/// What to do when a hook fails.
pub const ON_HOOK_ERROR: Key = ours(interface("OnHookError"));
/// The user that the daemon runs as.
pub const USER: Key = ours(interface("User"));
/// The file with the preshared key.
pub const PRESHARED_KEY_FILE: Key = ours(peer("PresharedKeyFile"));

/// The keys of `wg`, which must have a value.
pub const OF_WG: [Key; 8] =
    [PRIVATE_KEY, LISTEN_PORT, FWMARK, PUBLIC_KEY, PRESHARED_KEY, ALLOWED_IPS, ENDPOINT, PERSISTENT_KEEPALIVE];

/// The keys of wg-quick, all in `[Interface]`.
pub const OF_WG_QUICK: [Key; 9] = [ADDRESS, DNS, MTU, TABLE, PRE_UP, POST_UP, PRE_DOWN, POST_DOWN, SAVE_CONFIG];

/// Our keys.
pub const OURS: [Key; 8] =
    [ROUTE_CONFLICT, KILL_SWITCH, EXCLUDED_IPS, EXCLUDE_LAN, PRIVATE_KEY_FILE, ON_HOOK_ERROR, USER, PRESHARED_KEY_FILE];

/// Every key.
pub fn all() -> impl Iterator<Item = Key> {
    OF_WG.into_iter().chain(OF_WG_QUICK).chain(OURS)
}

/// Whether all lines with the key count, not only the last.
pub fn may_repeat(key: &Key) -> bool {
    key.whole_line || [ADDRESS, DNS, ALLOWED_IPS, EXCLUDED_IPS].contains(key)
}
