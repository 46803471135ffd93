//! What is wrong with a tunnel, why, and what mends it.
//!
//! Rules are pure functions: [`examine`] makes [`Finding`]s of [`Evidence`], plain values that somebody else has read.
//! Nothing here opens a file, makes a system call or reads the clock. There is a file for each topic. A rule says
//! nothing where evidence is missing, and of two findings with one cause only the cause is reported.
//!
//! [`bottleneck`] is what bounds a tunnel that works; the lab asks the same question.
#![forbid(unsafe_code)]

use std::collections::HashMap;

pub mod bottleneck;
mod configuration;
pub mod evidence;
mod finding;
pub mod firewall;
mod handshake;
mod security;
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
        findings.extend(security(evidence).into_iter().filter(|finding| finding.severity != Severity::Note));
    }
    findings.extend(configuration::examine(evidence));
    findings.extend(speed::examine(evidence));
    findings.sort_by_key(|finding| finding.severity);
    shortened(findings)
}

/// Checks that the protection of the tunnel and its host is in force; the worst finding comes first. Notes are about
/// protection that the file does not ask for.
#[must_use]
pub fn security(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = security::examine(evidence);
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Peers that are listed with the same finding, and further peers of which only the names are listed.
const MAX_LISTED_PEERS: usize = 8;
const MAX_NAMED_PEERS: usize = 50;

/// The findings, with one for all peers above the first few of each kind.
fn shortened(findings: Vec<Finding>) -> Vec<Finding> {
    let mut seen: HashMap<(&'static str, Severity), usize> = HashMap::new();
    let (mut kept, mut more) = (Vec::new(), Vec::<(usize, Vec<String>)>::new());
    for finding in findings {
        let count = seen.entry((finding.id, finding.severity)).or_default();
        *count += usize::from(finding.peer.is_some());
        match (&finding.peer, *count) {
            (Some(peer), count) if count > MAX_LISTED_PEERS => {
                let last = kept
                    .iter()
                    .rposition(|kept: &Finding| (kept.id, kept.severity) == (finding.id, finding.severity))
                    .unwrap_or(0);
                match more.iter_mut().find(|(at, _)| *at == last) {
                    Some((_, peers)) => peers.push(peer.clone()),
                    None => more.push((last, vec![peer.clone()])),
                }
            }
            _ => kept.push(finding),
        }
    }
    // From the end, so that places before it stay what they are.
    more.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (at, peers) in more {
        let last = &kept[at];
        let names = peers[..peers.len().min(MAX_NAMED_PEERS)].join(", ");
        let rest = if peers.len() > MAX_NAMED_PEERS { ", …" } else { "" };
        let summary = Finding {
            peer: None,
            what: format!("so it is with {} more peers", peers.len()),
            why: format!("{names}{rest}"),
            remedy: "as above, for each".to_owned(),
            ..last.clone()
        };
        kept.insert(at + 1, summary);
    }
    kept
}
