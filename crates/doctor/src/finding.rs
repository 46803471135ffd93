//! A finding, and the kinds that there are.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something works badly, or will stop to work.
    Warning,
    /// Something to know.
    Note,
}

impl Severity {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its identifier, one of [`KINDS`].
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The interface; none if it is about the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<String>,
    /// The peer's name or public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What shows it, with figures.
    pub why: String,
    /// What mends it: a command, or a sentence.
    pub remedy: String,
}

/// A kind of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its identifier, which never changes.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
}

const fn error(id: &'static str) -> Kind {
    Kind { id, severity: Severity::Error }
}

const fn warning(id: &'static str) -> Kind {
    Kind { id, severity: Severity::Warning }
}

const fn note(id: &'static str) -> Kind {
    Kind { id, severity: Severity::Note }
}

/// All kinds. docs/doctor.md has a row for each.
pub const KINDS: &[Kind] = &[
    error("daemon-dead"),
    error("interface-down"),
    error("no-private-key"),
    error("port-in-use"),
    error("two-tunnels-one-port"),
    warning("hook-failed"),
    error("endpoint-name-unresolved"),
    error("endpoint-name-through-tunnel"),
    error("endpoint-name-stale"),
    error("endpoint-through-tunnel"),
    error("endpoint-no-route"),
    error("firewall-drops-sent"),
    error("firewall-drops-port"),
    error("handshake-for-another-key"),
    error("handshake-from-unknown-key"),
    error("handshake-replayed"),
    error("handshake-not-confirmed"),
    error("preshared-key-differs"),
    error("clock-behind"),
    error("no-handshake-nothing-arrives"),
    error("no-handshake-no-answer"),
    note("nat-without-keepalive"),
    warning("keepalive-too-long"),
    error("route-missing"),
    error("route-elsewhere"),
    warning("route-without-peer"),
    warning("source-not-allowed"),
    warning("traffic-unanswered"),
    error("reverse-path-filter"),
    error("forwarding-off"),
    error("gateway-interface-missing"),
    error("gateway-without-interface"),
    error("firewall-drops-forwarded"),
    error("firewall-drops-tunnel"),
    error("mtu-black-hole"),
    warning("mtu-too-large"),
    note("mss-not-limited"),
    error("address-conflict"),
    warning("allowed-ips-in-two-tunnels"),
    warning("allowed-ips-in-two-peers"),
    warning("ipv6-disabled"),
    note("ipv6-hardly-used"),
    warning("ipv6-without-nat"),
    warning("offload-tun-missing"),
    warning("offload-udp-missing"),
    note("offload-refused"),
    warning("cipher-slow"),
    warning("socket-buffer-drops"),
    warning("receive-on-one-core"),
    warning("cpu-limited"),
    warning("cpu-stolen"),
    warning("one-thread-full"),
    note("cpu-governor"),
    error("kill-switch-hole"),
    error("protection-missing"),
    error("forwards-between-others"),
    warning("pool-spoofable"),
    warning("metadata-reachable"),
    warning("names-in-the-clear"),
    error("names-blocked"),
    warning("routes-past-the-tunnel"),
    warning("confinement-weak"),
];

/// The kind of this identifier.
///
/// # Panics
/// There is none; the identifiers are written out where findings are made, and a test makes each.
#[must_use]
pub fn kind(id: &str) -> Kind {
    *KINDS.iter().find(|kind| kind.id == id).expect("every identifier is in KINDS")
}

impl Finding {
    /// A finding about a tunnel.
    #[must_use]
    pub fn new(
        id: &str,
        tunnel: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let Kind { id, severity } = kind(id);
        Self {
            id,
            severity,
            tunnel: Some(tunnel.to_owned()),
            peer: None,
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// The same, about a peer.
    #[must_use]
    pub fn of_peer(self, peer: &str) -> Self {
        Self { peer: Some(peer.to_owned()), ..self }
    }

    /// The same about the host rather than a tunnel.
    #[must_use]
    pub fn of_host(self) -> Self {
        Self { tunnel: None, ..self }
    }

    /// The same with another severity.
    #[must_use]
    pub fn with(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identifier_is_there_once_and_in_kebab_case() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(kind.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert!(KINDS[..index].iter().all(|other| other.id != kind.id), "{}", kind.id);
        }
    }
}
