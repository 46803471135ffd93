//! `events`: what happens to tunnels and peers, as it happens.

use std::process::ExitCode;
use std::time::Duration;

use linerate_cli::{eprint_line, print};
use linerate_control::interface::InterfaceName;
use linerate_control::printable::printable;
use linerate_watch::events::{Event, What, between};
use linerate_watch::{Ask, Watchers};

/// How often the daemons are asked which peers were active.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time to wait for a daemon's answer, until it was late once.
const DAEMON_TIMEOUT: Option<Duration> = Some(Duration::from_secs(3));

#[derive(clap::Args)]
pub(super) struct EventsArguments {
    /// Tunnel (default: all, also those that come up later)
    #[arg(value_name = "IFACE")]
    interface: Option<InterfaceName>,

    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

/// Prints events until a signal comes, or nobody reads them any more.
pub(super) fn main(arguments: &EventsArguments) -> Result<ExitCode, String> {
    let interruption = crate::cli::interruption().map_err(|error| error.message)?;
    let mut watcher = Watchers::new(arguments.interface.as_ref().map(InterfaceName::as_str));
    let mut before = watcher.poll(Ask::default(), DAEMON_TIMEOUT).map_err(|error| error.to_string())?;
    for tunnel in &before.tunnels {
        if let Some(problem) = &tunnel.problem {
            eprint_line(&format!("linerate: {}: {problem}", tunnel.interface));
        }
    }
    loop {
        interruption.pause(&[], Some(INTERVAL)).map_err(|error| format!("cannot wait: {error}"))?;
        if interruption.came() {
            return Ok(ExitCode::SUCCESS);
        }
        let after = watcher.poll(Ask::default(), DAEMON_TIMEOUT).map_err(|error| error.to_string())?;
        let mut text = String::new();
        for event in between(&before, &after) {
            text.push_str(&if arguments.json { as_json(&event)? } else { for_people(&event) });
            text.push('\n');
        }
        before = after;
        // A closed pipe is how `| head` ends this.
        if !text.is_empty() && print(text.as_bytes())? != ExitCode::SUCCESS {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn as_json(event: &Event) -> Result<String, String> {
    serde_json::to_string(event).map_err(|error| format!("cannot write an event: {error}"))
}

fn for_people(event: &Event) -> String {
    let Event { time, tunnel, peer, what } = event;
    let who = match peer {
        Some(peer) => format!("{tunnel} {}", printable(peer.name.as_ref().unwrap_or(&peer.public_key))),
        None => tunnel.clone(),
    };
    let from = |endpoint: &Option<String>| endpoint.clone().unwrap_or_else(|| "no address".to_owned());
    let what = match what {
        What::Handshake { endpoint: Some(endpoint) } => format!("handshake with {endpoint}"),
        What::Handshake { endpoint: None } => "handshake".to_owned(),
        What::Roam { from: old, to } => format!("moved from {} to {}", from(old), from(to)),
        What::Silent { last_received: Some(time) } => format!("does not answer; last heard {time}"),
        What::Silent { last_received: None } => "does not answer".to_owned(),
        What::Back { seconds } => format!("answers again, after {seconds} s"),
        What::Expired => "has expired and is not let in".to_owned(),
        What::Quota => "has reached its quota and is not let in".to_owned(),
        What::LetIn => "is let in again".to_owned(),
        What::Added => "was added".to_owned(),
        What::Removed => "was removed".to_owned(),
        What::Up => "is up".to_owned(),
        What::Down => "is gone".to_owned(),
        What::Died => "its daemon has died".to_owned(),
        What::Restarted => "runs in another daemon".to_owned(),
        What::Unreadable { reason } => format!("cannot be read: {}", printable(reason)),
    };
    format!("{time} {who}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_watch::Time;
    use linerate_watch::events::Who;

    fn event(name: &str, what: What) -> Event {
        let peer = Who { name: Some(name.to_owned()), public_key: "KEY=".to_owned() };
        Event { time: Time(Duration::from_secs(1_700_000_000)), tunnel: "wg0".to_owned(), peer: Some(peer), what }
    }

    #[test]
    fn an_event_is_a_line_for_people_and_an_object_for_programs() {
        let roam = What::Roam { from: Some("192.0.2.1:1".into()), to: Some("[2001:db8::1]:2".into()) };
        let roam = event("laptop", roam);
        let line = "2023-11-14T22:13:20.000Z wg0 laptop: moved from 192.0.2.1:1 to [2001:db8::1]:2";
        assert_eq!(for_people(&roam), line);
        assert_eq!(
            as_json(&roam).unwrap(),
            r#"{"time":"2023-11-14T22:13:20.000Z","tunnel":"wg0","name":"laptop","publicKey":"KEY=","event":"roam","from":"192.0.2.1:1","to":"[2001:db8::1]:2"}"#
        );
        let silent = What::Silent { last_received: Some(Time(Duration::from_secs(1_600_000_000))) };
        assert!(as_json(&event("x", silent)).unwrap().contains(r#""lastReceived":"2020-09-13T12:26:40.000Z""#));
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let line = for_people(&event("a\nb\x1b[2J", What::LetIn));
        assert!(line.ends_with(r"wg0 a\nb\u{1b}[2J: is let in again"), "{line}");
    }
}
