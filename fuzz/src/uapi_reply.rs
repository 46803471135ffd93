//! Any bytes from a daemon: a state or counters that were parsed round-trip.

use linerate_control::uapi::response::{parse, parse_activity, parse_set, parse_stats, render_stats};

pub fn check(input: &[u8]) {
    if let Ok(state) = parse(input) {
        assert_eq!(parse_set(input), Ok(()), "a state is not an error");
        let text = state.render();
        assert!(parse(&text) == Ok(state), "rendering and parsing round-trip");
    }
    if let Ok(activity) = parse_activity(input) {
        assert!(parse_activity(&activity.render()) == Ok(activity), "rendering and parsing round-trip");
    }
    if let Ok(counters) = parse_stats(input) {
        assert_eq!(parse_stats(&render_stats(&counters)), Ok(counters));
    }
}
