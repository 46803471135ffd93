//! What `linerate doctor` finds, by `linerate doctor --json` in a process of its own.

use std::time::{Duration, Instant};

use linerate_control::printable::printable;
use linerate_page::{Finding, Reply};
use serde_json::Value;

/// For how long findings are not looked for again.
const FRESH: Duration = Duration::from_secs(10);

/// The latest findings, and when they were.
pub(super) type Latest = Option<(Instant, Vec<Finding>)>;

/// The findings at `now`.
pub(super) fn findings(latest: &mut Latest, now: Instant) -> Reply {
    let is_fresh = |(then, _): &&(Instant, Vec<Finding>)| now.duration_since(*then) < FRESH;
    if let Some((_, findings)) = latest.as_ref().filter(is_fresh) {
        return Reply::Findings { findings: findings.clone() };
    }
    // It exits with 1 if it finds an error.
    let output = std::process::Command::new("/proc/self/exe")
        .args(["doctor", "--json"])
        .stdin(std::process::Stdio::null())
        .output();
    let read = match output {
        Ok(output) => serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            said.trim().trim_start_matches("linerate: ").to_owned()
        }),
        Err(error) => Err(format!("cannot run linerate doctor: {error}")),
    };
    match read {
        Ok(value) => {
            let findings = listed(&value);
            *latest = Some((now, findings.clone()));
            Reply::Findings { findings }
        }
        Err(message) => Reply::Refused { message },
    }
}

/// The findings in the doctor's output, wherever they are in it, the worst first; and its checks that did not pass.
fn listed(output: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    collect(output, None, &mut findings);
    findings.sort_by_key(|finding| ["error", "warning", "note"].iter().position(|known| finding.severity == *known));
    findings
}

fn collect(value: &Value, tunnel: Option<&str>, findings: &mut Vec<Finding>) {
    let text = |name: &str| value[name].as_str().map(|text| printable(text).into_owned());
    let tunnel = value["interface"].as_str().or(tunnel);
    if let (Some(id), Some(severity), Some(what)) = (text("id"), text("severity"), text("what")) {
        let (why, remedy) = (text("why").unwrap_or_default(), text("remedy").unwrap_or_default());
        let tunnel = text("tunnel").or(tunnel.map(str::to_owned));
        findings.push(Finding { id, severity, tunnel, peer: text("peer"), what, why, remedy });
    } else if let (Some(name), Some(state), Some(false)) = (text("name"), text("state"), value["good"].as_bool()) {
        findings.push(Finding {
            id: name.replace(' ', "-"),
            severity: "warning".to_owned(),
            tunnel: tunnel.map(str::to_owned),
            peer: None,
            what: format!("{name}: {state}"),
            why: String::new(),
            remedy: text("advice").unwrap_or_default(),
        });
    } else {
        let members = value.as_object().into_iter().flat_map(|object| object.values());
        let members = members.chain(value.as_array().into_iter().flatten());
        members.for_each(|member| collect(member, tunnel, findings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn findings_and_checks_that_failed_are_listed_the_worst_first() {
        let output = json!([
            { "interface": "wg0", "items": [
                { "name": "user", "state": "root", "good": false, "advice": "another" },
                { "name": "swap", "state": "locked", "good": true },
            ] },
            { "findings": [
                { "id": "port-in-use", "severity": "error", "tunnel": "wg1", "what": "\u{1b}[31m", "why": "w" },
            ] },
        ]);
        let listed = listed(&output);
        let shown: Vec<_> =
            listed.iter().map(|one| (one.id.as_str(), one.tunnel.as_deref(), one.what.as_str())).collect();
        assert_eq!(shown, [("port-in-use", Some("wg1"), "\\u{1b}[31m"), ("user", Some("wg0"), "user: root")]);
    }
}
