//! Tunnels that the kernel itself makes: its WireGuard, and IPsec ESP with manual keys. What they require,
//! and the arguments of ip(8) and wg(8) that set them up.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::process::Command;

use linerate_control::uapi::request::DeviceUpdate;

use crate::error::Doing;
use crate::hosts::finish;
use crate::{Error, Result};

/// How ESP encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EspSuite {
    /// AES-256-GCM with a tag of 16 bytes (RFC 4106).
    AesGcm,
    /// ChaCha20-Poly1305 (RFC 7634), what WireGuard uses.
    ChaCha20Poly1305,
}

/// Why this machine has no WireGuard in the kernel, and how to get it; `None` if it has.
pub(crate) fn wireguard_obstacle() -> Option<String> {
    if let Err(error) = try_apart("ip link add wg-probe type wireguard") {
        return Some(match error {
            Error::Command { .. } => {
                "this kernel has no wireguard module: modprobe wireguard, or a kernel with CONFIG_WIREGUARD".into()
            }
            other => other.to_string(),
        });
    }
    finish(Command::new("wg").arg("--version")).err().map(|error| error.to_string())
}

/// Why this machine has no ESP with `suite`, and how to get it; `None` if it has.
pub(crate) fn esp_obstacle(suite: EspSuite) -> Option<String> {
    let key = "00".repeat(KEY_LENGTH);
    let probe = format!("ip {}", add_state("192.0.2.1", "192.0.2.2", 0x1000, suite, &key));
    let said = match try_apart(&probe) {
        Ok(()) => return None,
        Err(Error::Command { said, .. }) => said,
        Err(other) => return Some(other.to_string()),
    };
    let (algorithm, option) = (suite.algorithm(), suite.option());
    Some(if said.contains("algorithm not found") {
        format!("this kernel has no {algorithm}: a kernel with {option} and CONFIG_INET_ESP")
    } else {
        format!(
            "this kernel has no ESP ({said}): modprobe esp4 esp6, or a kernel with CONFIG_INET_ESP and CONFIG_INET6_ESP"
        )
    })
}

/// Runs a command in a network of its own, which is gone when it ends: a probe leaves no trace.
fn try_apart(line: &str) -> Result<()> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    finish(command.arg("--net").args(line.split(' '))).map(drop)
}

/// Settings in the form that `wg setconf` and `wg addconf` read.
pub(crate) fn configuration(update: &DeviceUpdate) -> String {
    let mut text = String::new();
    text.push_str("[Interface]\n");
    if let Some(key) = &update.private_key {
        text.push_str(&format!("PrivateKey = {}\n", *key.to_base64()));
    }
    if let Some(port) = update.listen_port {
        text.push_str(&format!("ListenPort = {port}\n"));
    }
    for peer in &update.peers {
        text.push_str(&format!("[Peer]\nPublicKey = {}\n", peer.public_key));
        if let Some(key) = &peer.preshared_key {
            text.push_str(&format!("PresharedKey = {}\n", *key.to_base64()));
        }
        if let Some(endpoint) = peer.endpoint {
            text.push_str(&format!("Endpoint = {endpoint}\n"));
        }
        for allowed in &peer.allowed_ips {
            text.push_str(&format!("AllowedIPs = {}/{}\n", allowed.addr, allowed.cidr));
        }
        if let Some(seconds) = peer.persistent_keepalive {
            text.push_str(&format!("PersistentKeepalive = {seconds}\n"));
        }
    }
    text
}

/// Bytes of key material of either suite: a key of 32 and a salt of 4 (RFC 4106 section 8.1, RFC 7634
/// section 2).
const KEY_LENGTH: usize = 36;

impl EspSuite {
    /// The kernel's name for it.
    fn algorithm(self) -> &'static str {
        match self {
            Self::AesGcm => "rfc4106(gcm(aes))",
            Self::ChaCha20Poly1305 => "rfc7539esp(chacha20,poly1305)",
        }
    }

    /// The option that a kernel with it was built with.
    fn option(self) -> &'static str {
        match self {
            Self::AesGcm => "CONFIG_CRYPTO_GCM",
            Self::ChaCha20Poly1305 => "CONFIG_CRYPTO_CHACHA20POLY1305",
        }
    }
}

/// New key material, in hexadecimal.
pub(crate) fn esp_key() -> Result<String> {
    let mut key = [0; KEY_LENGTH];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut key)).doing(|| "making a key".into())?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The arguments of `ip` for one direction of a tunnel, on either host.
///
/// The key is on the command line, where every process of the machine can read it. In the lab that is no
/// harm: the processes of the sandbox are the lab's own, and the key protects nothing but this measurement.
pub(crate) fn add_state(
    from: impl std::fmt::Display,
    to: impl std::fmt::Display,
    spi: u32,
    suite: EspSuite,
    key: &str,
) -> String {
    let algorithm = suite.algorithm();
    // Without a family of its own, the state carries packets of both. Tags have 128 bits. The window is the
    // least that RFC 4303 section 3.4.3 asks for.
    format!(
        "xfrm state add src {from} dst {to} proto esp spi {spi:#x} reqid 1 mode tunnel replay-window 32 \
         flag af-unspec aead {algorithm} 0x{key} 128"
    )
}

/// The arguments of `ip` for a policy: what goes from one network to the other goes by ESP between the ends.
pub(crate) fn add_policy(direction: &str, networks: [(IpAddr, u8); 2], ends: [IpAddr; 2]) -> String {
    let [(source, source_length), (target, target_length)] = networks;
    let [from, to] = ends;
    format!(
        "xfrm policy add src {source}/{source_length} dst {target}/{target_length} dir {direction} \
         tmpl src {from} dst {to} proto esp reqid 1 mode tunnel"
    )
}

/// Whether all states that `ip -s xfrm state` lists have carried packets.
pub(crate) fn has_carried(states: &str) -> bool {
    // The counts stand in a line of their own, `84(bytes), 1(packets)`; limits look alike but for their name.
    let counts = states.lines().map(str::trim).filter(|line| line.ends_with("(packets)") && !line.contains("limit"));
    let mut counts = counts.filter_map(|line| line.split_once(", ")?.1.strip_suffix("(packets)")).peekable();
    counts.peek().is_some() && counts.all(|count| count != "0")
}

/// Writes a file that only this user can read.
pub(crate) fn write_private(path: &str, text: &str) -> Result<()> {
    use io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).doing(|| format!("writing {path}"))
}

#[cfg(test)]
mod tests {
    use linerate_control::keys::{PublicKey, SecretKey};
    use linerate_control::uapi::request::{AllowedIp, PeerUpdate};

    use super::*;

    #[test]
    fn settings_are_written_as_wg_reads_them() {
        let mut peer = PeerUpdate::new(PublicKey([1; 32]));
        peer.endpoint = Some("[fd01::2]:51820".parse().unwrap());
        let allowed = |addr: &str, cidr| AllowedIp { add: true, addr: addr.parse().unwrap(), cidr };
        peer.allowed_ips = vec![allowed("10.0.0.2", 32), allowed("fd03::", 64)];
        let update = DeviceUpdate {
            private_key: Some(SecretKey::from_bytes(&[8; 32])),
            listen_port: Some(51820),
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        let text = configuration(&update);
        assert!(text.starts_with("[Interface]\nPrivateKey = CAgI"));
        assert!(text.contains("\nListenPort = 51820\n[Peer]\nPublicKey = AQEB"));
        assert!(text.ends_with("Endpoint = [fd01::2]:51820\nAllowedIPs = 10.0.0.2/32\nAllowedIPs = fd03::/64\n"));
    }

    #[test]
    fn a_state_that_carried_nothing_is_noticed() {
        let state = |packets| {
            format!(
                "src 192.0.2.1 dst 192.0.2.2\n\tproto esp spi 0x00001000(4096) reqid 1(0x00000001) mode tunnel\n\
                 \tlifetime config:\n\t  limit: soft (INF)(bytes), hard (INF)(bytes)\n\
                 \t  limit: soft (INF)(packets), hard (INF)(packets)\n\tlifetime current:\n\
                 \t  168(bytes), {packets}(packets)\n\t  add 2026-11-21 18:30:27 use -\n\
                 \tstats:\n\t  replay-window 0 replay 0 failed 0\n"
            )
        };
        assert!(has_carried(&format!("{}{}", state(2), state(20))));
        assert!(!has_carried(&format!("{}{}", state(2), state(0))));
        assert!(!has_carried(""));
    }

    #[test]
    fn esp_keys_are_as_long_as_the_suites_want_and_never_the_same() {
        let [first, second] = [(); 2].map(|()| esp_key().unwrap());
        assert_eq!(first.len(), 2 * KEY_LENGTH);
        assert_ne!(first, second);
    }
}
