//! Between the UAPI and an engine: its requests as changes of the engine, the engine's reports as its replies.
//!
//! Decides nothing. `linerated` answers its socket with it, `ffi` the program that it is a part of.

#![forbid(unsafe_code)]

use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::rate::Rate;
use linerate_control::uapi::errno;
#[cfg(feature = "fleet")]
use linerate_control::uapi::fleet::{self, FleetUpdate};
use linerate_control::uapi::limits::{LimitState, LimitUpdate, Suspension};
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{Activity, DeviceState, PeerState};
use linerate_engine::config::{
    self as engine, ActivityReport, ConfigError, DeviceChange, DeviceReport, LimitChange, LimitReport, PeerActivity,
    PeerChange, PeerReport, RateChange,
};
#[cfg(feature = "fleet")]
use linerate_engine::config::{FleetChange, GroupChange, Initiate};
#[cfg(feature = "fleet")]
use linerate_protocol::fleet::{Hint, IndexKey};
use linerate_protocol::{Prefix, PresharedKey, PrivateKey};

/// The change of the engine that a request asks for.
pub fn to_device_change(update: &DeviceUpdate) -> DeviceChange {
    DeviceChange {
        private_key: update.private_key.as_ref().map(|key| PrivateKey::new(key.as_bytes())),
        listen_port: update.listen_port,
        fwmark: update.fwmark,
        replace_peers: update.replace_peers,
        #[cfg(feature = "fleet")]
        fleet: update
            .fleet
            .as_ref()
            .map(|fleet| fleet.as_ref().map(|gateway| (gateway.number, IndexKey::new(gateway.index_key.as_bytes())))),
        #[cfg(feature = "fleet")]
        fleet_address: update.fleet_address,
        #[cfg(feature = "fleet")]
        fleet_forward: update.fleet_forward,
        #[cfg(feature = "fleet")]
        fleet_stale: update.fleet_stale,
        peers: update.peers.iter().map(to_peer_change).collect(),
        ..DeviceChange::default()
    }
}

fn to_peer_change(update: &PeerUpdate) -> PeerChange {
    let prefix = |addr, cidr| Prefix::new(addr, cidr).expect("the parser bounds the length by the address's");
    PeerChange {
        public_key: linerate_protocol::PublicKey(update.public_key.0),
        remove: update.remove,
        update_only: update.update_only,
        preshared_key: update.preshared_key.as_ref().map(|key| PresharedKey::new(key.as_bytes())),
        endpoint: update.endpoint,
        persistent_keepalive: update.persistent_keepalive,
        replace_allowed_ips: update.replace_allowed_ips,
        allowed_ips: update.allowed_ips.iter().map(|ip| (ip.add, prefix(ip.addr, ip.cidr))).collect(),
        limits: to_limit_change(&update.limits),
        rate: RateChange { tx: update.rate.map(|rate| bits(rate.down)), rx: update.rate.map(|rate| bits(rate.up)) },
        #[cfg(feature = "fleet")]
        fleet: to_fleet_change(&update.fleet),
        #[cfg(feature = "fleet")]
        group: GroupChange { name: update.group.name.clone(), check: update.group.check },
    }
}

#[cfg(feature = "fleet")]
fn to_fleet_change(update: &FleetUpdate) -> FleetChange {
    let FleetUpdate { number, hint, initiate } = *update;
    let hint = hint.map(|fleet::Hint { endpoint, sent, received }| Hint { endpoint, sent, received });
    let initiate = match initiate {
        fleet::Initiate::No => Initiate::No,
        fleet::Initiate::Once => Initiate::Once,
        fleet::Initiate::Now => Initiate::Now,
    };
    FleetChange { number, hint, initiate }
}

/// The reply to `get`.
pub fn to_device_state(report: &DeviceReport) -> DeviceState {
    DeviceState {
        private_key: report.private_key.as_ref().map(|key| SecretKey::from_bytes(key.as_bytes())),
        listen_port: report.listen_port,
        fwmark: report.fwmark,
        peers: report.peers.iter().map(to_peer_state).collect(),
    }
}

/// The reply to `activity`.
pub fn to_activity(report: &ActivityReport) -> Activity {
    Activity {
        now: report.now.0,
        configured: report.configured,
        peers: report.peers.iter().map(to_activity_state).collect(),
    }
}

/// The reply to `fleet_changes`.
#[cfg(feature = "fleet")]
pub fn to_fleet_changes(changes: &engine::FleetChanges) -> fleet::FleetChanges {
    let peers = changes.peers.iter().map(|peer| fleet::FleetPeer {
        public_key: PublicKey(peer.public_key.0),
        hint: fleet::Hint { endpoint: peer.endpoint, sent: peer.sent, received: peer.accepted },
        seen: peer.last_handshake.as_secs(),
    });
    fleet::FleetChanges { now: changes.now, peers: peers.collect() }
}

/// The number in the `errno=` line of a reply to a request that the engine refused.
pub fn to_errno(error: &ConfigError) -> i32 {
    match error {
        // EADDRINUSE, EACCES or EMFILE, for example.
        ConfigError::Port { error, .. } | ConfigError::Mark(error) => error.raw_os_error().unwrap_or(errno::EADDRINUSE),
        ConfigError::TooManyPeers => errno::UNKNOWN,
        #[cfg(feature = "fleet")]
        ConfigError::NoFleet | ConfigError::NoCheck | ConfigError::TooManyMembers => errno::EINVAL,
        ConfigError::Ended => errno::EIO,
    }
}

fn to_peer_state(report: &PeerReport) -> PeerState {
    let preshared_key = Some(SecretKey::from_bytes(report.preshared_key.as_bytes()));
    PeerState {
        public_key: PublicKey(report.public_key.0),
        preshared_key: preshared_key.filter(|key| !key.is_zero()),
        endpoint: report.endpoint,
        last_handshake: report.last_handshake,
        handshake_time: Duration::ZERO,
        tx_bytes: report.tx_bytes,
        rx_bytes: report.rx_bytes,
        persistent_keepalive: report.persistent_keepalive,
        allowed_ips: report.allowed_ips.iter().map(|prefix| (prefix.addr(), prefix.cidr())).collect(),
        limits: to_limit_state(&report.limits),
        rate: Rate { down: report.rate_tx.unwrap_or(0), up: report.rate_rx.unwrap_or(0) },
        last_received: 0,
    }
}

/// Zero means none.
fn bits(rate: u64) -> Option<u64> {
    Some(rate).filter(|rate| *rate > 0)
}

/// Zero means none in an update.
fn to_limit_change(update: &LimitUpdate) -> Option<LimitChange> {
    let LimitUpdate { expires, quota, replaces, .. } = *update;
    let change = LimitChange {
        expires: expires.map(|expires| Some(expires).filter(|expires| !expires.is_zero())),
        quota: quota.map(|quota| Some(quota).filter(|quota| *quota > 0)),
        used: None,
        replaces: replaces.map(|key| Some(linerate_protocol::PublicKey(key.0)).filter(|key| key.0 != [0; 32])),
    };
    (*update != LimitUpdate::default()).then_some(change)
}

fn to_limit_state(report: &LimitReport) -> LimitState {
    LimitState {
        expires: report.expires,
        quota: report.quota,
        quota_day: None,
        used: report.used,
        suspended: report.suspended.map(|suspension| match suspension {
            engine::Suspension::Expired => Suspension::Expired,
            engine::Suspension::QuotaReached => Suspension::Quota,
        }),
        replaces: report.replaces.map(|key| PublicKey(key.0)),
    }
}

fn to_activity_state(activity: &PeerActivity) -> PeerState {
    PeerState {
        endpoint: activity.endpoint,
        last_handshake: activity.last_handshake,
        handshake_time: activity.handshake_time,
        last_received: activity.last_received.0,
        tx_bytes: activity.tx_bytes,
        rx_bytes: activity.rx_bytes,
        ..PeerState::new(PublicKey(activity.public_key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_that_status_reads_has_the_engines_name() {
        assert_eq!(linerate_control::uapi::NOT_LISTENING, linerate_engine::counters::NOT_LISTENING);
        assert_eq!(linerate_control::uapi::PEERS_SUSPENDED, linerate_engine::counters::PEERS_SUSPENDED);
        assert_eq!(linerate_control::uapi::RATE_MARKED, linerate_engine::counters::RATE_MARKED);
    }

    #[test]
    fn every_rate_that_can_be_written_is_one_of_the_engine() {
        assert_eq!((Rate::MIN, Rate::MAX), (engine::RATE_MIN, engine::RATE_MAX));
    }
}
