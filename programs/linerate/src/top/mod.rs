//! `top`: tunnels and peers, live.
//!
//! `terminal` takes a terminal over and gives it back, `state` is what the keys change, `screen` draws it, `history`
//! keeps the last rates, `batch` prints instead.

mod batch;
mod format;
mod history;
mod screen;
mod state;
mod terminal;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use linerate_cli::for_people;
use linerate_control::interface::InterfaceName;
use linerate_watch::{Ask, Watchers};

use state::{Outcome, State};
use terminal::Terminal;

/// What is read for each update.
const EVERYTHING: Ask = Ask { counters: true, processes: true };

/// Time to wait for a daemon's answer. Short, because keys are not read meanwhile.
const DAEMON_TIMEOUT: Option<Duration> = Some(Duration::from_millis(300));

#[derive(clap::Args)]
pub(super) struct TopArguments {
    /// Tunnel (default: all)
    #[arg(value_name = "IFACE")]
    interface: Option<InterfaceName>,

    /// Print updates one after the other instead of drawing them on the terminal
    #[arg(short, long)]
    batch: bool,

    /// Print one JSON object for each update (implies --batch)
    #[arg(long)]
    json: bool,

    /// End after this many updates
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,

    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,
}

fn delay(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match seconds {
        0.1..=3600.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected 0.1 to 3600 seconds".to_owned()),
    }
}

/// Shows updates until a key, a signal or the count ends it.
pub(super) fn main(arguments: &TopArguments) -> Result<ExitCode, String> {
    let mut watcher = Watchers::new(arguments.interface.as_ref().map(InterfaceName::as_str));
    if arguments.batch || arguments.json {
        return batch::run(&mut watcher, arguments);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err("this is not a terminal; `linerate top --batch` prints updates one after the other".to_owned());
    }
    // Before the terminal is taken over, so that an error is seen.
    let view = watcher.poll(EVERYTHING, DAEMON_TIMEOUT).map_err(|error| error.to_string())?;
    let mut state = State::new(arguments.delay);
    state.update(view);
    let mut terminal = Terminal::open().map_err(|error| format!("cannot use the terminal: {error}"))?;
    let ended = watch(&mut watcher, &mut state, &mut terminal, arguments);
    drop(terminal);
    ended.map_err(|error| for_people(&error)).map(|()| ExitCode::SUCCESS)
}

fn watch(
    watcher: &mut Watchers,
    state: &mut State,
    terminal: &mut Terminal,
    arguments: &TopArguments,
) -> Result<(), String> {
    let of_terminal = |error: io::Error| format!("cannot use the terminal: {error}");
    let mut left = arguments.updates.map(|updates| updates - 1);
    let mut next = Instant::now() + arguments.delay;
    loop {
        terminal.draw(state).map_err(of_terminal)?;
        if left == Some(0) {
            return Ok(());
        }
        let keys = terminal.wait(next.saturating_duration_since(Instant::now())).map_err(of_terminal)?;
        let Some(keys) = keys else { return Ok(()) };
        for key in keys {
            match state.press(key) {
                Outcome::Goes => {}
                Outcome::Redraw => terminal.clear().map_err(of_terminal)?,
                Outcome::Suspend => terminal.suspend().map_err(of_terminal)?,
                Outcome::Quit => return Ok(()),
            }
        }
        let now = Instant::now();
        if now >= next {
            next += arguments.delay;
            if next < now {
                // After a suspension no updates are made up for.
                next = now + arguments.delay;
            }
            let view = watcher.poll(EVERYTHING, DAEMON_TIMEOUT).map_err(|error| error.to_string())?;
            state.update(view);
            left = left.map(|left| left - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_between_a_tenth_of_a_second_and_an_hour() {
        assert_eq!(delay("0.5"), Ok(Duration::from_millis(500)));
        for other in ["", "x", "0", "-1", "NaN", "inf", "3601"] {
            assert!(delay(other).is_err(), "{other}");
        }
    }
}
