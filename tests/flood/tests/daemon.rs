//! Floods, handshakes and many peers against a real daemon, in namespaces of its own: wireguard-go, or what
//! `LINERATE_LAB_DAEMON` names. Where there is no daemon or no namespace it says so and passes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_flood::{Content, Flood};
use linerate_lab::hosts::check_tun;
use linerate_lab::sandbox::{self, Process, Sandbox};
use linerate_lab::subject::{KeyPair, Subject};
use linerate_lab::topology::{AddressFamily, Testbed, Topology};
use linerate_lab::tunnel::Tunnel;
use linerate_lab::{Error, Result, peers};

/// Peers whose private keys the test has.
const KNOWN: usize = 200;

/// Peers that want to get in while the others flood.
const LATE: usize = 20;

/// Peers that only are there.
const SILENT: u32 = 1000;

fn main() -> ExitCode {
    let daemon = std::env::var("LINERATE_LAB_DAEMON").unwrap_or("/usr/bin/wireguard-go".into());
    if !Path::new(&daemon).is_file() {
        println!("skipped: there is no {daemon}");
        return ExitCode::SUCCESS;
    }
    match sandbox::enter().and_then(|process| run(&process, Path::new(&daemon))) {
        Ok(code) => ExitCode::from(code),
        Err(Error::Refused(why)) => {
            println!("skipped: {why}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(process: &Process, daemon: &Path) -> Result<u8> {
    match process {
        Process::Parent(code) => Ok(*code),
        Process::Child(inside) => check_tun().and_then(|()| besiege(inside, daemon)).map(|()| 0),
    }
}

fn besiege(inside: &Sandbox, daemon: &Path) -> Result<()> {
    let testbed = Testbed::build(inside, &Topology::Pair, 1)?;
    let keys = peers::fresh(2).try_into().ok().expect("two pairs are two ends'");
    let tunnel = Tunnel::up(&Subject::file("daemon", daemon), &testbed, &keys, AddressFamily::V4)?;
    let known = peers::fresh(KNOWN);
    tunnel.add_peers(1, &peers::update(&known))?;
    let late = peers::fresh(LATE);
    tunnel.add_peers(1, &peers::update(&late))?;
    let fight = Fight { testbed: &testbed, tunnel: &tunnel, flood: flood_of(&testbed, &known, keys[1].public) };

    let given = peers::set_up(&tunnel, 1, tunnel.processes()[1], SILENT)?;
    println!("{given:?}");
    assert!(given.listing_seconds.is_some(), "the daemon listed all its peers");

    let [near, far] = testbed.ends();
    let hands = linerate_flood::handshakes(near, far, fight.flood.to, keys[1].public, &known, 5.0)?;
    println!("{hands:?}");
    assert_eq!((hands.wrong, hands.completed + hands.unanswered), (0, KNOWN as u64));
    let homes = fight.homes(19)?;
    assert!(hands.completed > 0 && homes.len() as u64 >= hands.completed, "each peer is where it came from");

    let (sent, responses, _) = fight.send(Content::Forged)?;
    assert!(sent > 0);
    assert_eq!(responses, 0, "a daemon answers only known peers");
    let (sent, responses, cookies) = fight.send(Content::WrongMac1)?;
    assert!(sent > 0);
    assert_eq!((responses, cookies), (0, 0), "a daemon is silent without a valid first MAC");
    let (sent, responses, _) = fight.send(Content::WrongCookie)?;
    assert!(sent > 0);
    assert_eq!(responses, 0, "a daemon answers only known peers");
    assert_eq!(fight.homes(19)?, homes, "a forged initiation moved no peer");

    let (sent, responses, _) = fight.send(Content::Valid)?;
    assert!(sent > 0 && (1..=sent).contains(&responses), "{responses} responses to {sent} peers");
    assert!(!fight.homes(18)?.is_empty(), "peers moved to where they flooded from");

    let siege = Flood { rate: Some(SIEGE_RATE), seconds: 3.0, ..fight.flood };
    let running = linerate_flood::start(near, far, &siege)?;
    thread::sleep(Duration::from_millis(500));
    let hands = linerate_flood::handshakes(near, far, siege.to, siege.responder, &late, 2.0)?;
    println!("in the siege: {hands:?}, {:?}", running.stop()?);
    assert_eq!(hands.wrong, 0);
    assert!(hands.completed > LATE as u64 / 2, "new peers get in while others flood");
    tunnel.down()
}

/// As much as the flooding peers are allowed together: more than a processor has handshakes for.
const SIEGE_RATE: u32 = 50 * KNOWN as u32;

/// A flood at a tenth of what peers are allowed.
fn flood_of<'a>(testbed: &Testbed, peers: &'a [KeyPair], responder: PublicKey) -> Flood<'a> {
    let to = testbed.endpoint(0, AddressFamily::V4);
    Flood { to, responder, content: Content::Valid, captured: &[], peers, rate: Some(1000), seconds: 0.3 }
}

struct Fight<'a> {
    testbed: &'a Testbed,
    tunnel: &'a Tunnel<'a>,
    flood: Flood<'a>,
}

impl Fight<'_> {
    /// Sends such a flood for half a second. Returns what was sent, the responses and the cookie replies.
    fn send(&self, content: Content) -> Result<(u64, u64, u64)> {
        let [near, far] = self.testbed.ends();
        let running = linerate_flood::start(near, far, &Flood { content, ..self.flood })?;
        thread::sleep(Duration::from_millis(500));
        let report = running.stop()?;
        println!("{content:?}: {report:?}");
        Ok((report.sent, report.responses, report.cookie_replies))
    }

    /// Where the daemon believes those of its peers to be that are in 198.SECOND.0.0/16.
    fn homes(&self, second: u8) -> Result<HashSet<IpAddr>> {
        let peers = self.tunnel.device(1)?.map(|state| state.peers).unwrap_or_default();
        let homes = peers.iter().filter_map(|peer| Some(peer.endpoint?.ip()));
        Ok(homes.filter(|home| matches!(home, IpAddr::V4(v4) if v4.octets()[..2] == [198, second])).collect())
    }
}
