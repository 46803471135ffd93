//! The texts of /etc/resolv.conf and /etc/nsswitch.conf by which programs ask the name servers of a tunnel.

/// The text of resolv.conf(5). Without servers it has a comment alone: the C library then asks 127.0.0.1, where nobody
/// answers, and says so at once.
pub(crate) fn resolv_conf(servers: &[String], search: &[String]) -> String {
    let mut text = String::from("# By linerate run: from DNS in the file of the tunnel.\n");
    servers.iter().for_each(|server| text.push_str(&format!("nameserver {server}\n")));
    if !search.is_empty() {
        text.push_str(&format!("search {}\n", search.join(" ")));
    }
    text
}

/// The text of nsswitch.conf(5) with which names of hosts come from /etc/hosts and from name servers alone. All other
/// lines are those of `text`.
pub(crate) fn nsswitch_conf(text: &str) -> String {
    let is_hosts =
        |line: &&str| line.trim_start().strip_prefix("hosts").is_some_and(|rest| rest.trim_start().starts_with(':'));
    let others = text.lines().filter(|line| !is_hosts(line));
    others.chain(["hosts: files dns"]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_domains_are_those_of_the_tunnel() {
        let text = resolv_conf(&["10.0.0.1".into(), "fd00::1".into()], &["corp.example".into(), "example".into()]);
        let (_, lines) = text.split_once('\n').unwrap();
        assert_eq!(lines, "nameserver 10.0.0.1\nnameserver fd00::1\nsearch corp.example example\n");
        assert!(resolv_conf(&[], &[]).lines().all(|line| line.starts_with('#')));
    }

    #[test]
    fn no_service_is_asked_for_hosts_and_all_else_stays() {
        let text = "passwd: files systemd\n hosts : mdns4_minimal [NOTFOUND=return] resolve files\n# hosts: a comment\nhostsx: files";
        let expected = "passwd: files systemd\n# hosts: a comment\nhostsx: files\nhosts: files dns\n";
        assert_eq!(nsswitch_conf(text), expected);
        assert_eq!(nsswitch_conf(""), "hosts: files dns\n");
    }
}
