//! The keys of a tunnel's file: those of `wg` (man 8 wg), those of wg-quick (man 8 wg-quick), and ours behind `#!`.

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

/// What the tunnel itself reads: the keys of `wg`.
pub const PRIVATE_KEY: Key = interface("PrivateKey");
/// The UDP port.
pub const LISTEN_PORT: Key = interface("ListenPort");
/// The mark of the tunnel's datagrams.
pub const FWMARK: Key = interface("FwMark");
/// Who the peer is.
pub const PUBLIC_KEY: Key = peer("PublicKey");
/// A second secret, shared with the peer.
pub const PRESHARED_KEY: Key = peer("PresharedKey");
/// The prefixes behind the peer.
pub const ALLOWED_IPS: Key = peer("AllowedIPs");
/// Where the peer is.
pub const ENDPOINT: Key = peer("Endpoint");
/// Seconds between keepalives.
pub const PERSISTENT_KEEPALIVE: Key = peer("PersistentKeepalive");

/// Addresses of the interface: the first of wg-quick's keys.
pub const ADDRESS: Key = interface("Address");
/// Name servers and search domains.
pub const DNS: Key = interface("DNS");
/// The MTU.
pub const MTU: Key = interface("MTU");
/// Where routes go.
pub const TABLE: Key = interface("Table");
/// A command before the interface is configured.
pub const PRE_UP: Key = hook("PreUp");
/// A command when all is done.
pub const POST_UP: Key = hook("PostUp");
/// A command before the tunnel goes.
pub const PRE_DOWN: Key = hook("PreDown");
/// A command when it is gone.
pub const POST_DOWN: Key = hook("PostDown");
/// Whether the file is saved when the tunnel goes.
pub const SAVE_CONFIG: Key = interface("SaveConfig");

/// What is done about routes that exist already: the first of our keys.
pub const ROUTE_CONFLICT: Key = ours(interface("RouteConflict"));
/// Whether nothing may leave the host but through the tunnel.
pub const KILL_SWITCH: Key = ours(interface("KillSwitch"));
/// What stays outside of the tunnel.
pub const EXCLUDED_IPS: Key = ours(interface("ExcludedIPs"));
/// Whether the networks that the host is on stay outside.
pub const EXCLUDE_LAN: Key = ours(interface("ExcludeLAN"));
/// The file that holds the private key.
pub const PRIVATE_KEY_FILE: Key = ours(interface("PrivateKeyFile"));
/// What a command that fails means.
pub const ON_HOOK_ERROR: Key = ours(interface("OnHookError"));
/// The user that the daemon becomes.
pub const USER: Key = ours(interface("User"));
/// The file that holds the preshared key.
pub const PRESHARED_KEY_FILE: Key = ours(peer("PresharedKeyFile"));

/// The keys of `wg`, where an empty value is a diagnostic.
pub const OF_WG: [Key; 8] =
    [PRIVATE_KEY, LISTEN_PORT, FWMARK, PUBLIC_KEY, PRESHARED_KEY, ALLOWED_IPS, ENDPOINT, PERSISTENT_KEEPALIVE];

/// The keys of wg-quick, all of `[Interface]`.
pub const OF_WG_QUICK: [Key; 9] = [ADDRESS, DNS, MTU, TABLE, PRE_UP, POST_UP, PRE_DOWN, POST_DOWN, SAVE_CONFIG];

/// Our keys.
pub const OURS: [Key; 8] =
    [ROUTE_CONFLICT, KILL_SWITCH, EXCLUDED_IPS, EXCLUDE_LAN, PRIVATE_KEY_FILE, ON_HOOK_ERROR, USER, PRESHARED_KEY_FILE];

/// Every key.
pub fn all() -> impl Iterator<Item = Key> {
    OF_WG.into_iter().chain(OF_WG_QUICK).chain(OURS)
}

/// Whether every line with the key counts, not only the last.
pub fn may_repeat(key: &Key) -> bool {
    key.whole_line || [ADDRESS, DNS, ALLOWED_IPS, EXCLUDED_IPS].contains(key)
}
