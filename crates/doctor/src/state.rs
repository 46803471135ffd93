//! A tunnel that cannot work at all.

use crate::Finding;
use crate::evidence::Evidence;

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    let tunnel = &evidence.tunnel;
    let name = &tunnel.name;
    if tunnel.is_dead {
        return vec![Finding::new(
            "daemon-dead",
            name,
            "the tunnel is not running: its daemon has died",
            "what `up` did to the host is still there, and no process answers on the tunnel's socket",
            format!("`linerate down {name}`, then `linerate up {name}`; with --supervise it starts again by itself"),
        )];
    }
    let mut findings = Vec::new();
    if tunnel.link_down {
        findings.push(Finding::new(
            "interface-down",
            name,
            "the interface is set down, so nothing goes in or out",
            format!("the kernel reports {name} without the flag UP"),
            // The kernel has forgotten its routes, and its IPv6 addresses.
            format!("`linerate down {name}`, then `linerate up {name}`; if it has no file, `ip link set {name} up`"),
        ));
    }
    if tunnel.no_private_key {
        let file = tunnel.file.as_deref().unwrap_or("the tunnel's file");
        findings.push(Finding::new(
            "no-private-key",
            name,
            "the tunnel has no private key",
            format!("it has {} peers, and no handshake is possible without a key", tunnel.peers.len()),
            format!("set PrivateKey in {file}, then `linerate reload {name}`"),
        ));
    }
    if tunnel.not_listening {
        findings.push(not_listening(evidence));
    }
    if tunnel.hook_failed {
        findings.push(Finding::new(
            "hook-failed",
            name,
            "a command of the tunnel's file failed when it came up",
            "a PreUp or PostUp command ended with an error",
            format!("correct it in the file, then `linerate down {name}` and `linerate up {name}`"),
        ));
    }
    findings
}

fn not_listening(evidence: &Evidence) -> Finding {
    let tunnel = &evidence.tunnel;
    let port = tunnel.listen_port;
    let other = evidence.others.iter().find(|other| port != 0 && other.listen_port == port);
    if let Some(other) = other {
        return Finding::new(
            "two-tunnels-one-port",
            &tunnel.name,
            format!("UDP port {port} belongs to the tunnel {} already", other.name),
            format!("{} and {} both have ListenPort = {port}, and one of them has the port", tunnel.name, other.name),
            format!("another ListenPort in the file of {0}, then `linerate reload {0}`", tunnel.name),
        );
    }
    let holder = tunnel.port_holder.as_deref().unwrap_or("another program");
    Finding::new(
        "port-in-use",
        &tunnel.name,
        "the tunnel cannot receive: its UDP port is in use",
        format!("port {port} is held by {holder}"),
        format!("stop that program, or choose another ListenPort and `linerate reload {}`", tunnel.name),
    )
}
