//! What `linerate-web`, which has no rights, and `linerate web-helper`, which has them all, tell each other: one
//! [`Request`] and one [`Reply`] for each connection, each a line of JSON.
//!
//! This is all that the page can ask for. No request names a file, a command or a host, and no reply has a key of a
//! server or a preshared key; a client's private key is in a reply only if it is kept in the server's file, or when it
//! has just been made.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Where the helper listens. Not in /run/linerate: only root may look into that.
pub const SOCKET: &str = "/run/linerate-web.sock";

/// The user that the page's program runs as.
pub const USER: &str = "linerate-web";

/// The longest line of a request.
pub const LONGEST_REQUEST: usize = 16 << 10;

/// The longest line of a reply: that of the most peers on a page, with room.
pub const LONGEST_REPLY: usize = 4 << 20;

/// How many requests the helper answers at a time.
pub const MOST_REQUESTS: usize = 16;

/// The most peers in a reply.
pub const MOST_PEERS: usize = 200;

/// The most addresses of a peer, alone and among others, so that [`LONGEST_REPLY`] suffices.
pub const MOST_ADDRESSES: usize = 1000;
/// See [`MOST_ADDRESSES`].
pub const MOST_ADDRESSES_OF_EACH: usize = 4;

/// What the page may ask for.
#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// All tunnels of this host.
    Tunnels,
    /// Some peers of a tunnel.
    Peers {
        /// The tunnel.
        tunnel: String,
        /// In which order.
        sort: Sort,
        /// Whether in the opposite order.
        reverse: bool,
        /// A text that is in the name, an address or the key of each.
        filter: String,
        /// How many to leave out at the beginning.
        offset: usize,
        /// How many at most.
        count: usize,
    },
    /// One peer.
    Peer {
        /// The tunnel.
        tunnel: String,
        /// Its public key in base64.
        key: String,
    },
    /// What `linerate doctor --json` says.
    Findings,
    /// The file of a client, whose private key is kept.
    File {
        /// The tunnel.
        tunnel: String,
        /// The client.
        client: String,
    },
    /// A change by `linerate client`; refused unless the helper was started with `--write`.
    Change {
        /// The tunnel.
        tunnel: String,
        /// What to change.
        change: Change,
    },
}

impl Request {
    /// The tunnel that it is about.
    pub fn tunnel(&self) -> Option<&str> {
        match self {
            Self::Tunnels | Self::Findings => None,
            Self::Peers { tunnel, .. }
            | Self::Peer { tunnel, .. }
            | Self::File { tunnel, .. }
            | Self::Change { tunnel, .. } => Some(tunnel),
        }
    }
}

/// The order of peers. Those of which there is nothing to compare are last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    /// By name.
    #[default]
    Name,
    /// By the address inside the tunnel.
    Address,
    /// The last handshake first.
    Seen,
    /// The fastest first.
    Rate,
    /// The most bytes first.
    Bytes,
    /// By what keeps it out.
    State,
}

/// A change of clients, with the words of `linerate client`.
#[derive(Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Adds a client.
    Add {
        /// Its name.
        name: String,
        /// Until when: as `--expires`; empty for no end.
        expires: String,
        /// How many bytes: as `--quota`; empty for no limit.
        quota: String,
        /// How fast: as `--rate`; empty for no rate.
        rate: String,
        /// Whether the quota begins anew each month.
        monthly: bool,
        /// Any text.
        note: String,
        /// Whether only the server's networks go through the tunnel.
        split: bool,
        /// Whether the private key stays in the server's file.
        keep_key: bool,
    },
    /// Keeps a client out.
    Disable {
        /// The client.
        client: String,
    },
    /// Lets a disabled client in.
    Enable {
        /// The client.
        client: String,
    },
    /// Lets a client in until another time.
    Renew {
        /// The client.
        client: String,
        /// Until when: as `--expires`.
        expires: String,
    },
    /// Gives a client another name.
    Rename {
        /// The client.
        client: String,
        /// Its new name.
        name: String,
    },
    /// Changes what is said of a client.
    Set {
        /// The client.
        client: String,
        /// As `--quota`; `none` for no limit.
        quota: String,
        /// As `--rate`; `none` for no rate.
        rate: String,
        /// Whether the quota begins anew each month.
        monthly: bool,
        /// Any text.
        note: String,
    },
    /// Removes a client.
    Remove {
        /// The client.
        client: String,
    },
}

/// The helper's answer. Some have secrets, so it has no `Debug`.
#[derive(Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// To [`Request::Tunnels`].
    Tunnels {
        /// By name.
        tunnels: Vec<Tunnel>,
        /// Whether changes are taken.
        write: bool,
    },
    /// To [`Request::Peers`].
    Peers {
        /// Their tunnel.
        tunnel: Tunnel,
        /// The peers.
        peers: Vec<Peer>,
        /// How many the filter lets through.
        found: usize,
        /// Whether changes are taken.
        write: bool,
    },
    /// To [`Request::Peer`].
    Peer {
        /// Its tunnel.
        tunnel: Tunnel,
        /// The peer.
        peer: Box<Peer>,
        /// Whether changes are taken.
        write: bool,
    },
    /// To [`Request::Findings`].
    Findings {
        /// The worst first.
        findings: Vec<Finding>,
    },
    /// To [`Request::File`], and to [`Change::Add`].
    File {
        /// The name of the client's file, without `.conf`: safe everywhere.
        file_name: String,
        /// The client's file.
        text: Zeroizing<String>,
        /// Warnings about a client that was just added, as sentences.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// To other changes.
    Done,
    /// There is no such tunnel, peer or client.
    Unknown {
        /// A sentence.
        message: String,
    },
    /// What was asked for is not done.
    Refused {
        /// A sentence.
        message: String,
    },
}

/// A tunnel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    /// Its interface.
    pub name: String,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Its UDP port; 0 without one.
    pub listen_port: u16,
    /// How many peers it has, those that are kept out included.
    pub peers: usize,
    /// How many of them have a session.
    pub online: usize,
    /// Whether its file is that of a server, which has clients.
    pub is_server: bool,
    /// Why it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A peer of a tunnel, without its secrets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name in the tunnel's file.
    pub name: Option<String>,
    /// Its public key in base64.
    pub key: String,
    /// Whether it is let in.
    pub state: State,
    /// Its allowed IPs, or a client's addresses and networks: the first [`MOST_ADDRESSES`], among others the first
    /// [`MOST_ADDRESSES_OF_EACH`].
    pub addresses: Vec<String>,
    /// Where its last authentic packet came from.
    pub endpoint: Option<String>,
    /// Seconds since its last handshake.
    pub seen: Option<u64>,
    /// Bytes received from it.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it in a second, lately; unknown at the first look.
    pub receive_rate: Option<f64>,
    /// Bytes sent to it in a second, lately.
    pub send_rate: Option<f64>,
    /// How many bytes it may send and receive.
    pub quota: Option<u64>,
    /// How many of them it has used.
    pub quota_used: u64,
    /// How fast it may receive and send, as `--rate`.
    pub rate: Option<String>,
    /// What makes it a client.
    pub client: Option<Client>,
}

/// What a peer is that `linerate client` made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// When it was made (RFC 3339).
    pub created: Option<String>,
    /// Until when it is let in.
    pub expires: Option<String>,
    /// Whether its quota begins anew each month.
    pub monthly: bool,
    /// Any text.
    pub note: Option<String>,
    /// Whether its private key is in the server's file.
    pub key_kept: bool,
    /// The name of its file, without `.conf`: safe everywhere.
    pub file_name: String,
}

/// Whether a peer is let in and has a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It has a session.
    Online,
    /// It had one.
    Silent,
    /// It never had one.
    #[default]
    Never,
    /// Its bytes are used up.
    QuotaUsed,
    /// Its time is over.
    Expired,
    /// A person disabled it.
    Disabled,
}

/// What is wrong, or worth knowing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A word that stays the same.
    pub id: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// The tunnel.
    #[serde(default)]
    pub tunnel: Option<String>,
    /// The peer.
    #[serde(default)]
    pub peer: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What shows it.
    #[serde(default)]
    pub why: String,
    /// What mends it.
    #[serde(default)]
    pub remedy: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused() {
        let is_request = |text: &str| serde_json::from_str::<Request>(text).is_ok();
        assert!(is_request(r#"{"ask":"tunnels"}"#));
        assert!(is_request(r#"{"ask":"change","tunnel":"wg0","change":{"do":"enable","client":"a"}}"#));
        for text in [
            r#"{"ask":"run"}"#,
            r#"{"ask":"file","tunnel":"wg0"}"#,
            r#"{"ask":"file","tunnel":"wg0","client":"a","path":"/etc/shadow"}"#,
            r#"{"ask":"change","tunnel":"wg0","change":{"do":"rekey","client":"a"}}"#,
            r#"{"ask":"peers","tunnel":"wg0","sort":"name","reverse":false,"filter":"","offset":-1,"count":1}"#,
            "",
            "[]",
        ] {
            assert!(!is_request(text), "{text}");
        }
    }
}
