//! Every network of the lab, with whatever subjects this machine has.
//!
//! The daemon is the one that the variable `LINERATED` names, or else wireguard-go.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_lab::counters::KernelCounters;
use linerate_lab::ping::{self, Probes};
use linerate_lab::relay::Impairments;
use linerate_lab::sandbox::Sandbox;
use linerate_lab::subject::{EspSuite, Found, KeyPair, Kind, Subject, catalogue};
use linerate_lab::topology::{AddressFamily, Beside, Testbed, Topology};
use linerate_lab::tunnel::Tunnel;
use linerate_lab::{Error, hosts};

mod checks;

/// How long a busy machine may take for what is awaited.
const PATIENCE: Duration = Duration::from_secs(30);

const ROUTED: Topology = Topology::Routed { nat: false, beside: Beside::Nothing };
const ROUTED_NAT: Topology = Topology::Routed { nat: true, beside: Beside::Nothing };

/// A check and what it needs to be told: the sandbox and, where it measures a daemon, which.
type Check = (&'static str, fn(&Sandbox, &Subject) -> Result<(), Error>);

const CHECKS: [Check; 15] = [
    ("a pair carries both families inside and outside", both_families),
    ("a tunnel that went down left nothing behind", nothing_left),
    ("a running daemon takes more peers", more_peers),
    ("a gateway forwards what comes out of the tunnel", gateway),
    ("a gateway with NAT hides the client", gateway_with_nat),
    ("all gateways have the rules that linerate gives its own", same_rules),
    ("a gateway has rules and policies of others beside the tunnel's", beside_the_tunnel),
    ("impairments delay, both ways", delay),
    ("all impairments at once", all_impairments),
    ("a narrow path cuts up what is larger", narrow_path),
    ("a plain network card carries a tunnel", plain_nic),
    ("the example of a subject's file works", openvpn),
    ("it works through impairments, too", openvpn_with_impairments),
    ("kernel subjects carry both families", kernel_subjects),
    ("a daemon that dies says why", last_stderr_line),
];

fn main() -> ExitCode {
    let given = std::env::var_os("LINERATED").map(|file| Subject::file("linerate", Path::new(&file)));
    let Some(daemon) = given.or_else(Subject::wireguard_go) else {
        println!("skipped: there is no wireguard-go, and LINERATED names no daemon");
        return ExitCode::SUCCESS;
    };
    checks::run(&CHECKS, |inside, check| hosts::check_tun().and_then(|()| check(inside, &daemon)))
}

fn both_families(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &Topology::Pair, 1)?;
    carries_both_families(&testbed, daemon)?;
    carries_both_families(&testbed, &Subject::wire())
}

fn nothing_left(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &Topology::Pair, 1)?;
    let tunnel = Tunnel::up(daemon, &testbed, &keys(), AddressFamily::V4)?;
    expect("two daemons run", tunnel.processes().len() == 2 && tunnel.usage()?.len() == 2)?;
    expect("it took time to start", tunnel.start_time.is_some() && tunnel.first_answer.is_some())?;
    let processes = tunnel.processes();
    tunnel.down()?;
    for (host, process) in testbed.ends().into_iter().zip(processes) {
        let interface = host.interface();
        expect("the interface is gone", host.ip(&format!("link show dev {interface}")).is_err())?;
        expect("the process is gone", !Path::new(&format!("/proc/{process}")).exists())?;
        let socket = format!("/var/run/wireguard/{interface}.sock");
        expect("the socket is gone", !Path::new(&socket).exists())?;
    }
    Ok(())
}

fn more_peers(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &Topology::Pair, 1)?;
    let mut tunnel = Tunnel::up(daemon, &testbed, &keys(), AddressFamily::V4)?;
    let peers = (1..=100).map(|number| PeerUpdate::new(PublicKey([number; 32]))).collect();
    tunnel.add_peers(1, &DeviceUpdate { peers, ..DeviceUpdate::default() })?;
    let count = |end| Ok::<_, Error>(tunnel.device(end)?.map_or(0, |device| device.peers.len()));
    expect("the far end has them", count(1)? == 101 && count(0)? == 1)?;
    answers(&testbed, &mut tunnel, AddressFamily::V4)?;
    tunnel.down()
}

fn gateway(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &ROUTED, 1)?;
    carries_both_families(&testbed, daemon)?;
    carries_both_families(&testbed, &Subject::wire())?;
    expect("the client's own address is seen", seen(&testbed, daemon)?.contains("10.0.0.1"))
}

fn gateway_with_nat(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &ROUTED_NAT, 1)?;
    carries_both_families(&testbed, daemon)?;
    carries_both_families(&testbed, &Subject::wire())?;
    expect("the gateway's address is seen", seen(&testbed, daemon)?.contains("198.51.100.1"))
}

fn same_rules(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let Some(other) = Subject::wireguard_go().filter(|_| daemon.name == Subject::OURS) else {
        return Err(Error::Refused("it takes linerated and wireguard-go".into()));
    };
    for topology in [ROUTED, ROUTED_NAT] {
        let [ours, others] = [daemon, &other].map(|subject| {
            let testbed = Testbed::build(inside, &topology, 1)?;
            let tunnel = Tunnel::up(subject, &testbed, &keys(), AddressFamily::V4)?;
            let rules = rules(&testbed)?;
            tunnel.down()?;
            Ok::<_, Error>((rules, self::rules(&testbed)?))
        });
        let ((ours, left), (others, _)) = (ours?, others?);
        expect(&format!("these are the same rules: {ours:#?} {others:#?}"), ours.len() > 5 && ours == others)?;
        expect("linerate leaves no rule behind", left.is_empty())?;
    }
    Ok(())
}

/// The lines of all the gateway's rules, sorted, without the name of a table.
fn rules(testbed: &Testbed) -> Result<Vec<String>, Error> {
    let listed = testbed.ends()[1].run(Command::new("nft").args(["--stateless", "list", "ruleset"]))?;
    let lines = listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("table "));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

fn beside_the_tunnel(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    for (beside, foreign, has_policies) in [(Beside::Rules, 1000, false), (Beside::Policies, 0, true)] {
        let testbed = Testbed::build(inside, &Topology::Routed { nat: true, beside }, 1)?;
        carries_both_families(&testbed, daemon)?;
        let loaded = testbed.ends()[1].run(Command::new("ip").args(["xfrm", "policy", "count"]))?;
        expect("the policies are as asked for", loaded.replace(' ', "").contains("IN0") != has_policies)?;
        let others = rules(&testbed)?.iter().filter(|line| line.starts_with("tcp dport")).count();
        expect("the rules are as asked for", others == foreign)?;
    }
    Ok(())
}

fn delay(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let impairments = Impairments { delay: Duration::from_millis(20), ..Impairments::default() };
    let testbed = Testbed::build(inside, &Topology::Wan(impairments), 1)?;
    println!("  {}", testbed.notes().join(", "));
    for outside in families(&testbed) {
        for subject in [daemon, &Subject::wire()] {
            if testbed.refuses(subject).is_some() {
                continue;
            }
            let tunnel = Tunnel::up(subject, &testbed, &keys(), outside)?;
            expect("a round trip takes 40 ms", round_trip(&testbed, &tunnel)? >= 40.0)?;
            tunnel.down()?;
        }
    }
    Ok(())
}

fn all_impairments(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let time = Duration::from_millis(2);
    let impairments =
        Impairments { loss: 0.01, duplicate: 0.01, reorder: 0.01, delay: time, jitter: time, mtu: Some(1490) };
    let testbed = Testbed::build(inside, &Topology::Wan(impairments), 1)?;
    Tunnel::up(daemon, &testbed, &keys(), AddressFamily::V4)?.down()
}

fn narrow_path(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let impairments = Impairments { mtu: Some(1400), ..Impairments::default() };
    let testbed = Testbed::build(inside, &Topology::Wan(impairments), 1)?;
    let tunnel = Tunnel::up(daemon, &testbed, &keys(), AddressFamily::V4)?;
    // WireGuard makes 1388 bytes of the one and 1480 of the other.
    let before = KernelCounters::of(testbed.client())?;
    expect("a packet of 1328 bytes passes", passes(&testbed, &tunnel, 1328)?)?;
    expect("in one piece", pieces(&testbed, &before)? == 0)?;
    expect("a packet of 1420 bytes passes", passes(&testbed, &tunnel, 1420)?)?;
    expect("in two pieces", pieces(&testbed, &before)? == 2)?;
    tunnel.down()
}

/// Pieces that the client's kernel cut datagrams into since `before`.
fn pieces(testbed: &Testbed, before: &KernelCounters) -> Result<u64, Error> {
    Ok(KernelCounters::of(testbed.client())?.since(before).get("IpFragCreates").copied().unwrap_or(0))
}

fn plain_nic(inside: &Sandbox, daemon: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &Topology::PlainNic, 1)?;
    carries_both_families(&testbed, daemon)
}

fn openvpn(inside: &Sandbox, _: &Subject) -> Result<(), Error> {
    let subject = example()?;
    println!("  {}", subject.version().unwrap_or_default());
    for topology in [Topology::Pair, ROUTED_NAT] {
        let testbed = Testbed::build(inside, &topology, 1)?;
        carries_both_families(&testbed, &subject)?;
    }
    expect("its folder is gone", !Path::new("/run/lab-subject").exists())
}

fn openvpn_with_impairments(inside: &Sandbox, _: &Subject) -> Result<(), Error> {
    let impairments = Impairments { loss: 0.01, delay: Duration::from_millis(5), ..Impairments::default() };
    let testbed = Testbed::build(inside, &Topology::Wan(impairments), 1)?;
    let tunnel = Tunnel::up(&example()?, &testbed, &keys(), AddressFamily::V4)?;
    expect("a round trip takes 10 ms", round_trip(&testbed, &tunnel)? >= 10.0)?;
    tunnel.down()
}

fn kernel_subjects(inside: &Sandbox, _: &Subject) -> Result<(), Error> {
    let kinds = [Kind::KernelWireGuard, Kind::Esp(EspSuite::AesGcm), Kind::Esp(EspSuite::ChaCha20Poly1305)];
    let mut missing = Vec::new();
    for found in catalogue(Path::new("linerated"), &[]) {
        match found {
            Found::Here(subject) if kinds.contains(&subject.kind) => {
                println!("  {} {}", subject.name, subject.version().unwrap_or_default());
                let wan = Topology::Wan(Impairments::default());
                for topology in [Topology::Pair, ROUTED, ROUTED_NAT, wan] {
                    let testbed = Testbed::build(inside, &topology, 1)?;
                    if testbed.refuses(&subject).is_none() {
                        carries_both_families(&testbed, &subject)?;
                    }
                }
            }
            Found::Missing { name, how } if name.starts_with("kernel") || name.starts_with("ESP") => {
                missing.push(format!("{name}: {how}"));
            }
            _ => {}
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Refused(missing.join("; "))) }
}

fn last_stderr_line(inside: &Sandbox, _: &Subject) -> Result<(), Error> {
    let testbed = Testbed::build(inside, &Topology::Pair, 1)?;
    let dud = Subject::from_toml("name = 'dud'\nrun = 'echo no luck on {iface} >&2; exit 3'")?;
    let error =
        Tunnel::up(&dud, &testbed, &keys(), AddressFamily::V4).err().map(|error| error.to_string()).unwrap_or_default();
    expect(
        &error,
        error.starts_with("dud ended by itself") && error.contains("the last line of its log: no luck on wg-"),
    )?;
    // And the place is free for the next.
    Tunnel::up(&Subject::wire(), &testbed, &keys(), AddressFamily::V4)?.down()
}

/// Whether the server answers the client by `subject`, in both families inside and outside.
fn carries_both_families(testbed: &Testbed, subject: &Subject) -> Result<(), Error> {
    for outside in families(testbed) {
        let mut tunnel = Tunnel::up(subject, testbed, &keys(), outside)?;
        for inside in families(testbed) {
            answers(testbed, &mut tunnel, inside)?;
        }
        tunnel.down()?;
    }
    Ok(())
}

fn families(testbed: &Testbed) -> Vec<AddressFamily> {
    if testbed.has_ipv6() { AddressFamily::BOTH.into() } else { vec![AddressFamily::V4] }
}

fn answers(testbed: &Testbed, tunnel: &mut Tunnel<'_>, inside: AddressFamily) -> Result<(), Error> {
    tunnel.await_answer_over(inside)?;
    let to = tunnel.to(inside);
    let probes = Probes { count: 3, pause: Duration::ZERO, timeout: PATIENCE };
    let report = testbed.client().inside(|| ping::run(to, &probes))?;
    expect(&format!("{to} answers every time"), report.answered == 3)
}

/// The mean of a few round trips in milliseconds.
fn round_trip(testbed: &Testbed, tunnel: &Tunnel<'_>) -> Result<f64, Error> {
    let to = tunnel.to(AddressFamily::V4);
    let probes = Probes { count: 5, pause: Duration::ZERO, ..Probes::default() };
    let report = testbed.client().inside(|| ping::run(to, &probes))?;
    Ok(report.latency.map_or(0.0, |latency| latency.mean_ms))
}

/// Whether an IPv4 packet of `size` bytes reaches the server.
fn passes(testbed: &Testbed, tunnel: &Tunnel<'_>, size: usize) -> Result<bool, Error> {
    let failed = |error: std::io::Error| Error::Subject(error.to_string());
    let at = SocketAddr::new(tunnel.to(AddressFamily::V4), 0);
    let receiver = testbed.server().inside(|| UdpSocket::bind(at).map_err(failed))?;
    receiver.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let to = receiver.local_addr().map_err(failed)?;
    let sender = testbed.client().inside(|| UdpSocket::bind("0.0.0.0:0").map_err(failed))?;
    sender.send_to(&vec![0; size - 28], to).map_err(failed)?;
    Ok(receiver.recv(&mut [0; 2000]).is_ok())
}

/// The address that the server sees the client under, through a tunnel by `daemon`: that of a TCP connection.
fn seen(testbed: &Testbed, daemon: &Subject) -> Result<String, Error> {
    let tunnel = Tunnel::up(daemon, testbed, &keys(), AddressFamily::V4)?;
    let failed = |error: std::io::Error| Error::Subject(error.to_string());
    let at = SocketAddr::new(tunnel.to(AddressFamily::V4), 0);
    let listener = testbed.server().inside(|| TcpListener::bind(at).map_err(failed))?;
    let to = listener.local_addr().map_err(failed)?;
    let _stream = testbed.client().inside(|| TcpStream::connect(to).map_err(failed))?;
    let (_, from) = listener.accept().map_err(failed)?;
    tunnel.down()?;
    Ok(from.to_string())
}

fn example() -> Result<Subject, Error> {
    let subject = Subject::from_toml(include_str!("../../../docs/subjects/openvpn.toml"))?;
    match catalogue(Path::new("linerated"), std::slice::from_ref(&subject)).pop() {
        Some(Found::Missing { how, .. }) => Err(Error::Refused(how)),
        _ => Ok(subject),
    }
}

/// Two pairs of keys, made for these checks.
fn keys() -> [KeyPair; 2] {
    KEYS.map(|(private, public)| KeyPair {
        private: SecretKey::from_base64(private.as_bytes()).expect("a key of wg genkey"),
        public: PublicKey::from_base64(public.as_bytes()).expect("a key of wg pubkey"),
    })
}

fn expect(what: &str, is_so: bool) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Subject(format!("it is not so that {what}"))) }
}

const KEYS: [(&str, &str); 2] = [
    ("8BjJwRbmKfVo3Wk1KD+42YLOPRNWPLHFuXesXbNApkQ=", "+RHIOQjy+g9l++SG1kjIuYLnCjzO/vMaMNnBekOw/XA="),
    ("2KSwdYje2cXFDnuJbWOtwwqpHijvHhM24ZL4qtwJW2c=", "tilLBxpgzP5kVQWB7xn7SG6zCVJ7kUqNli2+kKESsXg="),
];
