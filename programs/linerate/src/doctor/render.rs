//! Findings for people: the worst first, each with what shows it and what mends it.

use std::fmt::Write as _;

use linerate_control::printable::printable;
use linerate_doctor::{Finding, Severity};

use super::gather::Examination;

/// A headline for each tunnel, and its findings.
pub(super) fn text(examinations: &[Examination]) -> String {
    let texts: Vec<String> = examinations.iter().map(of_tunnel).collect();
    texts.join("\n")
}

fn of_tunnel(examination: &Examination) -> String {
    let Examination { name, connected, peers, findings, .. } = examination;
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let counts: Vec<String> = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
        .into_iter()
        .filter_map(|(severity, word)| match count(severity) {
            0 => None,
            1 => Some(format!("1 {word}")),
            many => Some(format!("{many} {word}s")),
        })
        .collect();
    let verdict = if counts.is_empty() { "nothing wrong".to_owned() } else { counts.join(", ") };
    let mut text = format!("{name}: {verdict}; {connected} of {peers} peers connected\n");
    for finding in findings {
        write(&mut text, finding);
    }
    text
}

/// Writes a finding as three lines.
pub(super) fn write(text: &mut String, finding: &Finding) {
    let Finding { id, severity, peer, what, why, remedy, .. } = finding;
    let peer = peer.as_ref().map_or_else(String::new, |peer| format!("{}: ", printable(peer)));
    let (what, why, remedy) = (printable(what), printable(why), printable(remedy));
    let _ = writeln!(text, "  {:8} {peer}{what}  [{id}]", severity.name());
    let _ = writeln!(text, "           why: {why}");
    let _ = writeln!(text, "           fix: {remedy}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examination(findings: Vec<Finding>) -> Examination {
        Examination { name: "wg0".into(), connected: 1, peers: 2, findings, ..Examination::default() }
    }

    #[test]
    fn the_headline_counts_and_each_finding_has_three_lines() {
        let finding = Finding::new("interface-down", "wg0", "it is down", "no flag UP", "`ip link set wg0 up`");
        let text = text(&[examination(vec![finding.clone().of_peer("a\x1b"), finding.with(Severity::Note)])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wg0: 1 error, 1 note; 1 of 2 peers connected");
        assert_eq!(lines[1], r"  error    a\u{1b}: it is down  [interface-down]");
        assert_eq!(lines[3], "           fix: `ip link set wg0 up`");
        assert_eq!(lines.len(), 7);
        assert_eq!(super::text(&[examination(vec![])]), "wg0: nothing wrong; 1 of 2 peers connected\n");
    }
}
