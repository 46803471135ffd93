//! The command lines of a step, those of wg-quick for FreeBSD (wireguard-tools, src/wg-quick/freebsd.bash): ifconfig(8) for
//! interfaces and addresses, route(8) for routes.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_control::uapi::socket;

use crate::plan::messages;
use crate::plan::one_table;
use crate::step::{AddressFamily, MAIN, Route, Step};

/// What is printed of these steps, as the commands that do them.
pub fn as_commands(steps: &[Step]) -> Vec<String> {
    steps
        .iter()
        .flat_map(|step| of(step).unwrap_or_else(|_| messages::as_commands(std::slice::from_ref(step))))
        .collect()
}

/// The commands that do a step, in this order.
///
/// # Errors
/// A step that FreeBSD has nothing for, in one sentence.
pub(super) fn of(step: &Step) -> Result<Vec<String>, String> {
    Ok(vec![match step {
        Step::AddAddress { interface, address } => format!("ifconfig {interface} {} {address} alias", family(address)),
        Step::DeleteAddress { interface, address } => {
            format!("ifconfig {interface} {} {} -alias", family(address), address.addr())
        }
        Step::SetMtu { interface, mtu, .. } => format!("ifconfig {interface} mtu {mtu}"),
        Step::LinkUp { interface } => format!("ifconfig {interface} up"),
        // Never `ifconfig destroy` while a daemon runs: it waits for the daemon to close its device, and holds a lock
        // meanwhile that all interfaces need (sys/net/if_tuntap.c, tun_destroy).
        Step::DeleteLink { interface } => format!("rm -f {}/{interface}.sock", socket::DIRECTORY),
        Step::AddRoute(route) => {
            format!("route -q -n add -{}{} {} {}", family(&route.to), fib(route), route.to, way(route)?)
        }
        Step::DeleteRoute(route) => format!("route -q -n delete -{}{} {}", family(&route.to), fib(route), route.to),
        step => return Err(format!("FreeBSD has nothing for this: {}", messages::describe(step))),
    }])
}

fn family(net: &IpNet) -> &'static str {
    match AddressFamily::of_net(net) {
        AddressFamily::V4 => "inet",
        AddressFamily::V6 => "inet6",
    }
}

/// A table other than the main one is a FIB of that number.
fn fib(route: &Route) -> String {
    if route.table == MAIN { String::new() } else { format!(" -fib {}", route.table) }
}

/// Where the packets of a route go.
fn way(route: &Route) -> Result<String, String> {
    if route.metric != one_table::metric(&route.to) {
        return Err(format!(
            "routes of FreeBSD have no metric: there is another one to {}; see RouteConflict",
            route.to
        ));
    }
    match (route.via, &route.device) {
        // An address of a link alone is one on that interface.
        (Some(IpAddr::V6(via)), Some(device)) if via.is_unicast_link_local() => Ok(format!("-gateway {via}%{device}")),
        (Some(via), _) => Ok(format!("-gateway {via}")),
        (None, Some(device)) => Ok(format!("-interface {device}")),
        (None, None) if route.to.addr().is_ipv4() => Ok("127.0.0.1 -blackhole".to_owned()),
        (None, None) => Ok("::1 -blackhole".to_owned()),
    }
}
