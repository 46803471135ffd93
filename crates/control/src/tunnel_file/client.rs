//! What a server's file says of its clients.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;

use super::ByteCount;
use crate::keys::{PublicKey, SecretKey};
use crate::rate::Rate;

/// What `[Interface]` says of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDefaults {
    /// `Pool`, without host bits; if empty, the networks of `Address`.
    pub pool: Vec<IpNet>,
    /// `ClientDNS`: servers and search domains.
    pub dns: Vec<String>,
    /// `ClientAllowedIPs`, without host bits; if empty, everything.
    pub allowed_ips: Vec<IpNet>,
    /// `ClientMTU` in bytes.
    pub mtu: Option<u32>,
    /// `ClientKeepalive` in seconds; 0 is off.
    pub keepalive: Option<u16>,
    /// `Released`, in the order of the file.
    pub released: Vec<Released>,
}

/// `Released`: the addresses of clients that were removed at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// When.
    pub time: Timestamp,
    /// Which.
    pub addresses: Vec<IpAddr>,
}

/// As in the file.
impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.time)?;
        for (index, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

/// What the section of a client has besides the settings of any peer. It may hold the private key, so it has no `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// `Created`; a peer without it is not a client.
    pub created: Option<Timestamp>,
    /// `Expires`.
    pub expires: Option<Timestamp>,
    /// `Expired`: when it did.
    pub expired: Option<Timestamp>,
    /// `Disabled`: when it was.
    pub disabled: Option<Timestamp>,
    /// `Quota`.
    pub quota: Option<ByteCount>,
    /// `QuotaReset`.
    pub quota_reset: QuotaReset,
    /// `Rate`.
    pub rate: Option<Rate>,
    /// `NextPublicKey`.
    pub next_public_key: Option<PublicKey>,
    /// `ClientPrivateKey`.
    pub private_key: Option<SecretKey>,
    /// `ClientAllowedIPs`, without host bits; if empty, the server's.
    pub allowed_ips: Vec<IpNet>,
    /// `Note`.
    pub note: Option<String>,
}

/// `QuotaReset`: when a quota begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaReset {
    /// Never.
    #[default]
    Never,
    /// Each month on the day of `Created`, or on the last day of a month that is shorter.
    Monthly,
}

/// As in the file.
impl fmt::Display for QuotaReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Never => "never",
            Self::Monthly => "monthly",
        })
    }
}
