//! Answers UAPI requests from the engine and from what the daemon knows besides.

use linerate_configure::{to_activity, to_device_change, to_device_state, to_errno};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::{Activity, DeviceState};
use linerate_control::uapi::server::Handler;
use linerate_control::uapi::{AEAD_IN_USE, RequestError, errno};
use linerate_engine::Handle;
use linerate_protocol::Boottime;

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
            to_errno(&error)
        })
    }

    fn stats(&mut self) -> Vec<(String, u64)> {
        let mut counters = self.engine.counters();
        counters.extend(self.in_force.counters());
        counters.push((format!("{AEAD_IN_USE}{}", linerate_aead::choose::current().name()), 1));
        counters
    }

    fn activity(&mut self, since: u64) -> Activity {
        to_activity(&self.engine.activity(Boottime(since)))
    }

    #[cfg(feature = "fleet")]
    fn fleet_changes(&mut self, since: u64) -> linerate_control::uapi::fleet::FleetChanges {
        linerate_configure::to_fleet_changes(&self.engine.fleet_changes(since))
    }

    fn rejected(&mut self, error: &RequestError) {
        tracing::info!("a request was rejected: {error}");
    }
}
