//! What is wrong with a tunnel, why, and what mends it.
//!
//! Rules are pure functions: [`examine`] makes [`Finding`]s of [`Evidence`], plain values that somebody else has read.
//! Nothing here opens a file, makes a system call or reads the clock. There is a file for each topic. A rule says
//! nothing where evidence is missing, and of two findings with one cause only the cause is reported.
//!
//! [`bottleneck`] is what bounds a tunnel that works; the lab asks the same question.
#![forbid(unsafe_code)]

pub mod bottleneck;
mod configuration;
pub mod evidence;
mod finding;
pub mod firewall;
mod handshake;
mod speed;
mod state;
mod traffic;

pub use evidence::Evidence;
pub use finding::{Finding, KINDS, Kind, Severity, kind};

/// Everything that the evidence tells, the worst first.
#[must_use]
pub fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = state::examine(evidence);
    // Without a working interface nothing else can be told.
    if !findings.iter().any(|finding| finding.severity == Severity::Error) {
        findings.extend(handshake::examine(evidence));
        findings.extend(traffic::examine(evidence));
    }
    findings.extend(configuration::examine(evidence));
    findings.extend(speed::examine(evidence));
    findings.sort_by_key(|finding| finding.severity);
    findings
}
