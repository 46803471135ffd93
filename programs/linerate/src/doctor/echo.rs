//! Echo requests through a tunnel: whether a peer answers, and up to which size of packets.

use std::net::IpAddr;
use std::time::Duration;

use linerate_doctor::evidence::Probe;
use linerate_probe::{Echo, sizes};

/// Time to wait for the first answer, all attempts together.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_millis(600);
const ATTEMPTS: u16 = 3;

/// Minimum time to wait for an answer, however fast the path is.
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(40);

/// Sends a small request to `to`, and if it is answered, larger ones up to `mtu`. None without the right to do so.
pub(super) fn probe(to: IpAddr, mtu: u32) -> Option<Probe> {
    let mut probe = Probe { to, answered: false, refused: None, sizes: None };
    let echo = Echo::open(to, None).ok()?;
    for number in 0..ATTEMPTS {
        match echo.round_trip(number, FIRST_ANSWER_TIMEOUT / u32::from(ATTEMPTS)) {
            Ok(None) => {}
            Ok(Some(time)) => {
                probe.answered = true;
                let timeout = (time * 3).clamp(MIN_ANSWER_TIMEOUT, FIRST_ANSWER_TIMEOUT);
                let limit = sizes(&echo, to.is_ipv6(), mtu, timeout).ok().flatten();
                probe.sizes = limit.map(|sizes| (sizes.passes, sizes.is_lost));
                break;
            }
            Err(error) => probe.refused = Some(error.to_string()),
        }
    }
    Some(probe)
}
