//! What tunnels have opened in firewalls that keep it on disk: their own files say so, after a boot, too.

use std::fs;

use crate::plan::opening::id;

/// ufw's rules, one file for each version of IP.
pub(super) const UFW: [&str; 2] = ["/etc/ufw/user.rules", "/etc/ufw/user6.rules"];
const FIREWALLD: &str = "/etc/firewalld/policies";

/// The comments of ufw's rules that name a tunnel.
pub(super) fn of_ufw() -> impl Iterator<Item = String> {
    let texts = UFW.into_iter().filter_map(|path| fs::read_to_string(path).ok());
    let marks: Vec<String> = texts.flat_map(|text| text.lines().filter_map(comment).collect::<Vec<_>>()).collect();
    marks.into_iter().filter(|mark| mark.starts_with("linerate ")).map(|mark| id("ufw", &mark))
}

/// The comment of a rule as ufw writes it: in hexadecimal.
fn comment(line: &str) -> Option<String> {
    let (_, hex) = line.strip_prefix("### tuple ### ")?.split_once(" comment=")?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = hex.trim().as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok()
}

/// The policies of firewalld with names of ours, that of a port with its number.
pub(super) fn of_firewalld() -> impl Iterator<Item = String> {
    let names = fs::read_dir(FIREWALLD).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter_map(|name| Some(name.strip_suffix(".xml")?.to_owned()));
    names.filter(|name| name.starts_with("lr-")).map(|name| {
        let text = fs::read_to_string(format!("{FIREWALLD}/{name}.xml")).unwrap_or_default();
        let port = text.split("<port ").nth(1).and_then(|port| port.split("port=\"").nth(1)?.split('"').next());
        match port {
            Some(port) if name.ends_with("-udp") => id("firewalld", &format!("{name} {port}")),
            _ => id("firewalld", &name),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_ufw_are_in_hexadecimal() {
        let line = "### tuple ### allow udp 51820 0.0.0.0/0 any 0.0.0.0/0 in comment=6c696e657261746520776731";
        assert_eq!(comment(line).as_deref(), Some("linerate wg1"));
        for odd in ["", "### tuple ### x comment=6", "### tuple ### x comment=zz", "### tuple ### x comment=ff", "x"] {
            assert!(comment(odd).is_none_or(|text| !text.contains("linerate")), "{odd}");
        }
    }
}
