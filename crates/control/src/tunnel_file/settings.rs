//! The settings of a tunnel file: those of `wg` (man 8 wg), of wg-quick (man 8 wg-quick), and of linerate, after `#!`.

use crate::document::{SectionKind, Setting};

const fn interface(name: &'static str) -> Setting {
    Setting { name, section: SectionKind::Interface, marked: false, whole_line: false }
}

const fn peer(name: &'static str) -> Setting {
    Setting { section: SectionKind::Peer, ..interface(name) }
}

const fn hook(name: &'static str) -> Setting {
    Setting { whole_line: true, ..interface(name) }
}

const fn ours(setting: Setting) -> Setting {
    Setting { marked: true, ..setting }
}

/// The private key: the first of `wg`'s settings.
pub const PRIVATE_KEY: Setting = interface("PrivateKey");
/// The UDP port.
pub const LISTEN_PORT: Setting = interface("ListenPort");
/// The mark on outgoing datagrams.
pub const FWMARK: Setting = interface("FwMark");
/// The identity of the peer.
pub const PUBLIC_KEY: Setting = peer("PublicKey");
/// An additional secret shared with the peer.
pub const PRESHARED_KEY: Setting = peer("PresharedKey");
/// The prefixes routed to the peer.
pub const ALLOWED_IPS: Setting = peer("AllowedIPs");
/// The address of the peer.
pub const ENDPOINT: Setting = peer("Endpoint");
/// Seconds between keepalives.
pub const PERSISTENT_KEEPALIVE: Setting = peer("PersistentKeepalive");

/// Addresses of the interface: the first of wg-quick's settings.
pub const ADDRESS: Setting = interface("Address");
/// Name servers and search domains.
pub const DNS: Setting = interface("DNS");
/// The MTU.
pub const MTU: Setting = interface("MTU");
/// The routing table.
pub const TABLE: Setting = interface("Table");
/// A hook before the interface is configured.
pub const PRE_UP: Setting = hook("PreUp");
/// A hook after the tunnel is up.
pub const POST_UP: Setting = hook("PostUp");
/// A hook before the tunnel goes down.
pub const PRE_DOWN: Setting = hook("PreDown");
/// A hook after the tunnel is down.
pub const POST_DOWN: Setting = hook("PostDown");
/// Whether to save the file when the tunnel goes down.
pub const SAVE_CONFIG: Setting = interface("SaveConfig");

/// What to do when a route exists already: the first of ours.
pub const ROUTE_CONFLICT: Setting = ours(interface("RouteConflict"));
/// Whether to block all traffic outside of the tunnel.
pub const KILL_SWITCH: Setting = ours(interface("KillSwitch"));
/// The prefixes that bypass the tunnel.
pub const EXCLUDED_IPS: Setting = ours(interface("ExcludedIPs"));
/// Whether the host's own networks bypass the tunnel.
pub const EXCLUDE_LAN: Setting = ours(interface("ExcludeLAN"));
/// The file with the private key.
pub const PRIVATE_KEY_FILE: Setting = ours(interface("PrivateKeyFile"));
/// What to do when a hook fails.
pub const ON_HOOK_ERROR: Setting = ours(interface("OnHookError"));
/// The user that the daemon runs as.
pub const USER: Setting = ours(interface("User"));
/// For how many microseconds at most the daemon looks for packets before it sleeps.
pub const SPIN: Setting = ours(interface("Spin"));
/// Where clients reach the server.
pub const PUBLIC_ENDPOINT: Setting = ours(interface("PublicEndpoint"));
/// The interfaces to which the tunnel's packets are forwarded.
pub const GATEWAY: Setting = ours(interface("Gateway"));
/// The families whose source addresses the gateway translates.
pub const MASQUERADE: Setting = ours(interface("Masquerade"));
/// Whether nothing is forwarded from client to client.
pub const CLIENT_ISOLATION: Setting = ours(interface("ClientIsolation"));
/// Whether new connections may come from the gateway's interfaces.
pub const INBOUND: Setting = ours(interface("Inbound"));
/// Whether ways are opened in firewalls of others.
pub const FIX_FIREWALL: Setting = ours(interface("FixFirewall"));
/// The fleet whose peers these are.
pub const FLEET: Setting = ours(interface("Fleet"));
/// The file with the preshared key.
pub const PRESHARED_KEY_FILE: Setting = ours(peer("PresharedKeyFile"));
/// The group of peers that take over from each other.
pub const GROUP: Setting = ours(peer("Group"));
/// The address in the tunnel at which a peer of a group is asked whether it is there.
pub const CHECK: Setting = ours(peer("Check"));
/// The only prefixes that a peer's packets are forwarded to.
pub const DESTINATIONS: Setting = ours(peer("Destinations"));

/// The prefixes that clients' addresses come from.
pub const POOL: Setting = ours(interface("Pool"));
/// `DNS` of client files.
pub const CLIENT_DNS: Setting = ours(interface("ClientDNS"));
/// `AllowedIPs` of client files.
pub const CLIENT_ALLOWED_IPS: Setting = ours(interface("ClientAllowedIPs"));
/// `MTU` of client files.
pub const CLIENT_MTU: Setting = ours(interface("ClientMTU"));
/// `PersistentKeepalive` of client files.
pub const CLIENT_KEEPALIVE: Setting = ours(interface("ClientKeepalive"));
/// Addresses of clients that were removed, which no other client gets for a day.
pub const RELEASED: Setting = ours(interface("Released"));
/// When a client was made.
pub const CREATED: Setting = ours(peer("Created"));
/// When a client is no longer let in.
pub const EXPIRES: Setting = ours(peer("Expires"));
/// When a client expired.
pub const EXPIRED: Setting = ours(peer("Expired"));
/// When a client was disabled.
pub const DISABLED: Setting = ours(peer("Disabled"));
/// How many bytes a client may send and receive.
pub const QUOTA: Setting = ours(peer("Quota"));
/// When a quota begins anew.
pub const QUOTA_RESET: Setting = ours(peer("QuotaReset"));
/// How fast a client may receive and send.
pub const RATE: Setting = ours(peer("Rate"));
/// The key that replaces a client's at its first handshake.
pub const NEXT_PUBLIC_KEY: Setting = ours(peer("NextPublicKey"));
/// A client's private key, if it is kept.
pub const CLIENT_PRIVATE_KEY: Setting = ours(peer("ClientPrivateKey"));
/// `AllowedIPs` of one client's file.
pub const OWN_ALLOWED_IPS: Setting = ours(peer("ClientAllowedIPs"));
/// Free text about a client.
pub const NOTE: Setting = Setting { whole_line: true, ..ours(peer("Note")) };

/// The settings of `wg`, which must have a value.
const OF_WG: &[Setting] =
    &[PRIVATE_KEY, LISTEN_PORT, FWMARK, PUBLIC_KEY, PRESHARED_KEY, ALLOWED_IPS, ENDPOINT, PERSISTENT_KEEPALIVE];

/// The settings of wg-quick, all in `[Interface]`.
pub const OF_WG_QUICK: &[Setting] = &[ADDRESS, DNS, MTU, TABLE, PRE_UP, POST_UP, PRE_DOWN, POST_DOWN, SAVE_CONFIG];

/// Our settings of `[Interface]`.
const OURS_OF_INTERFACE: &[Setting] = &[
    ROUTE_CONFLICT,
    KILL_SWITCH,
    EXCLUDED_IPS,
    EXCLUDE_LAN,
    PRIVATE_KEY_FILE,
    ON_HOOK_ERROR,
    USER,
    SPIN,
    PUBLIC_ENDPOINT,
    GATEWAY,
    MASQUERADE,
    CLIENT_ISOLATION,
    INBOUND,
    FIX_FIREWALL,
    FLEET,
    POOL,
    CLIENT_DNS,
    CLIENT_ALLOWED_IPS,
    CLIENT_MTU,
    CLIENT_KEEPALIVE,
    RELEASED,
];

/// Our settings of `[Peer]`.
const OURS_OF_PEER: &[Setting] = &[
    CREATED,
    EXPIRES,
    EXPIRED,
    DISABLED,
    QUOTA,
    QUOTA_RESET,
    RATE,
    NEXT_PUBLIC_KEY,
    CLIENT_PRIVATE_KEY,
    OWN_ALLOWED_IPS,
    NOTE,
    PRESHARED_KEY_FILE,
    DESTINATIONS,
    GROUP,
    CHECK,
];

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [OF_WG, OF_WG_QUICK, OURS_OF_INTERFACE, OURS_OF_PEER].into_iter().flatten()
}

/// The settings of a section.
pub(super) fn of(section: SectionKind) -> impl Iterator<Item = &'static Setting> {
    let lists: [&[Setting]; 3] = match section {
        SectionKind::Interface => [OF_WG, OF_WG_QUICK, OURS_OF_INTERFACE],
        _ => [OF_WG, &[], OURS_OF_PEER],
    };
    lists.into_iter().flatten().filter(move |known| known.section == section)
}

/// Whether all lines with the setting count, not only the last.
pub(super) fn may_repeat(setting: &Setting) -> bool {
    const LISTS: [Setting; 9] = [
        ADDRESS,
        DNS,
        ALLOWED_IPS,
        EXCLUDED_IPS,
        DESTINATIONS,
        CLIENT_DNS,
        CLIENT_ALLOWED_IPS,
        OWN_ALLOWED_IPS,
        RELEASED,
    ];
    (setting.whole_line && *setting != NOTE) || LISTS.contains(setting)
}
