//! Converts between the types of the UAPI and those of the engine.

use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::uapi::limits::{LimitState, LimitUpdate, Suspension};
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{Activity, DeviceState, PeerState};
use linerate_control::uapi::server::Handler;
use linerate_control::uapi::{AEAD_IN_USE, RequestError, errno};
use linerate_engine::Handle;
use linerate_engine::config::{
    self as engine, ActivityReport, ConfigError, DeviceChange, DeviceReport, LimitChange, LimitReport, PeerActivity,
    PeerChange, PeerReport,
};
use linerate_protocol::{Boottime, Prefix, PresharedKey, PrivateKey};

use linerate_privileges::InForce;

use super::usage::UsageKeeper;

/// Answers UAPI requests from a running engine.
pub(super) struct EngineHandler {
    engine: Handle,
    in_force: InForce,
    pub(super) usage: UsageKeeper,
}

impl EngineHandler {
    pub(super) fn new(engine: Handle, in_force: InForce, usage: UsageKeeper) -> Self {
        Self { engine, in_force, usage }
    }
}

impl Handler for EngineHandler {
    fn get(&mut self) -> Result<DeviceState, i32> {
        let mut state = self.engine.get().map(|report| to_device_state(&report)).ok_or(errno::EIO)?;
        state.peers.iter_mut().for_each(|peer| peer.limits.quota_day = self.usage.day(peer.public_key));
        Ok(state)
    }

    fn set(&mut self, update: DeviceUpdate) -> Result<(), i32> {
        let mut change = to_device_change(&update);
        self.usage.complete(&update, &mut change);
        self.engine.set(change).map_err(|error| {
            tracing::info!("a change was refused: {error}");
            match error {
                ConfigError::Port { error, .. } | ConfigError::Mark(error) => {
                    // EADDRINUSE, EACCES or EMFILE, for example.
                    error.raw_os_error().unwrap_or(errno::EADDRINUSE)
                }
                ConfigError::TooManyPeers => errno::UNKNOWN,
                ConfigError::Ended => errno::EIO,
            }
        })
    }

    fn stats(&mut self) -> Vec<(String, u64)> {
        let mut counters = self.engine.counters();
        counters.extend(self.in_force.counters());
        counters.push((format!("{AEAD_IN_USE}{}", linerate_aead::choose::current().name()), 1));
        counters
    }

    fn activity(&mut self, since: u64) -> Activity {
        let ActivityReport { now, configured, peers } = self.engine.activity(Boottime(since));
        Activity { now: now.0, configured, peers: peers.iter().map(to_activity_state).collect() }
    }

    fn rejected(&mut self, error: &RequestError) {
        tracing::info!("a request was rejected: {error}");
    }
}

fn to_device_change(update: &DeviceUpdate) -> DeviceChange {
    DeviceChange {
        private_key: update.private_key.as_ref().map(|key| PrivateKey::new(key.as_bytes())),
        listen_port: update.listen_port,
        fwmark: update.fwmark,
        replace_peers: update.replace_peers,
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
    }
}

fn to_device_state(report: &DeviceReport) -> DeviceState {
    DeviceState {
        private_key: report.private_key.as_ref().map(|key| SecretKey::from_bytes(key.as_bytes())),
        listen_port: report.listen_port,
        fwmark: report.fwmark,
        peers: report.peers.iter().map(to_peer_state).collect(),
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
        last_received: 0,
    }
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
    #[test]
    fn the_counter_that_status_reads_has_the_engines_name() {
        assert_eq!(linerate_control::uapi::NOT_LISTENING, linerate_engine::counters::NOT_LISTENING);
        assert_eq!(linerate_control::uapi::PEERS_SUSPENDED, linerate_engine::counters::PEERS_SUSPENDED);
    }
}
