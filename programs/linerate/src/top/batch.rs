//! Prints updates one after the other: as a table, or as an object on a line.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use linerate_cli::print;
use linerate_control::endpoint;
use linerate_control::printable::printable;
use linerate_tunnel::status::RunBy;
use linerate_watch::{View, Watchers};

use super::format::{age, rate};
use super::state::State;
use super::{EVERYTHING, TopArguments};

/// Time to wait for a daemon's answer, until it was late once.
const DAEMON_TIMEOUT: Option<Duration> = Some(Duration::from_secs(3));

/// Prints updates until a signal comes, nobody reads them any more, or the count is reached.
pub(super) fn run(watcher: &mut Watchers, arguments: &TopArguments) -> Result<ExitCode, String> {
    let interruption = crate::cli::interruption().map_err(|error| error.message)?;
    let mut state = State::new(arguments.delay);
    let mut left = arguments.updates;
    loop {
        let view = watcher.poll(EVERYTHING, DAEMON_TIMEOUT).map_err(|error| error.to_string())?;
        let text = if arguments.json { as_json(&view)? } else { as_table(&mut state, view) };
        if print(text.as_bytes())? != ExitCode::SUCCESS {
            // As with `| head`.
            return Ok(ExitCode::SUCCESS);
        }
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(ExitCode::SUCCESS);
        }
        interruption.pause(&[], Some(arguments.delay)).map_err(|error| format!("cannot wait: {error}"))?;
        if interruption.came() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn as_json(view: &View) -> Result<String, String> {
    let text = serde_json::to_string(view).map_err(|error| format!("cannot write the update: {error}"))?;
    Ok(text + "\n")
}

fn as_table(state: &mut State, view: View) -> String {
    state.update(view);
    let now = state.view.time;
    let mut text = format!("{now}\n");
    for tunnel in &state.view.tunnels {
        let name = &tunnel.interface;
        if let Some(problem) = &tunnel.problem {
            let _ = writeln!(text, "{name}: {}", printable(problem));
            continue;
        }
        if tunnel.implementation == RunBy::Gone {
            let _ = writeln!(text, "{name}: its daemon has died");
            continue;
        }
        if let Some(place) = &tunnel.place {
            let _ = writeln!(text, "{name}: it {}", printable(place));
        }
        let rates = tunnel.rates();
        let [received, sent] = [rates.map(|rates| rates.received), rates.map(|rates| rates.sent)].map(rate);
        let cpu = tunnel.daemon.and_then(|daemon| daemon.cpu).map(|share| format!("{:.1}%", share * 100.0));
        let cpu = cpu.unwrap_or_else(|| "-".to_owned());
        let _ = write!(text, "{name}: {} peers, CPU {cpu}, rx {received} bit/s, tx {sent} bit/s", tunnel.peers.len());
        for (reason, counter) in tunnel.drops().filter(|(_, counter)| counter.per_second.is_some_and(|rate| rate > 0.0))
        {
            let _ = write!(text, ", dropped {} {}", reason.replace('_', " "), counter.value);
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "{:<24} {:<9} {:<24} {:>6} {:>6} {:>6} {:>6}",
        "PEER", "TUNNEL", "ENDPOINT", "HEARD", "SHAKE", "RX", "TX"
    );
    for (tunnel, peer) in state.rows() {
        let address = match (peer.suspended, &peer.endpoint) {
            (Some(reason), _) => format!("not let in: {}", reason.name()),
            (None, Some(address)) => endpoint::text(address),
            (None, None) => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "{:<24} {:<9} {address:<24} {:>6} {:>6} {:>6} {:>6}",
            printable(&peer.label()),
            tunnel.interface,
            age(peer.last_received.max(peer.last_handshake), now),
            age(peer.last_handshake, now),
            rate(peer.rates.map(|rates| rates.received)),
            rate(peer.rates.map(|rates| rates.sent)),
        );
    }
    text.push('\n');
    text
}
