//! Any bytes as a line that a stranger sends to the responder of `linerate speed`: a request that is within the bounds
//! and round-trips, or refused in our own words.

use linerate_probe::speed::{LONGEST_MILLISECONDS, LONGEST_REQUEST, Reply, Request, VERSION};

pub fn check(line: &[u8]) {
    match Request::parse(line) {
        Ok(request) => {
            assert!(line.len() <= LONGEST_REQUEST);
            assert_eq!(request.version, VERSION);
            assert!((1..=LONGEST_MILLISECONDS).contains(&request.milliseconds));
            let again = serde_json::to_vec(&request).expect("a request is JSON");
            assert!(again.len() < LONGEST_REQUEST);
            assert_eq!(Request::parse(&again), Ok(request));
        }
        Err(reason) => {
            // What was sent is not repeated, but for the number of a version.
            assert!(!reason.is_empty() && reason.len() < 200 && reason.is_ascii());
            let reply = serde_json::to_vec(&Reply::Refused { reason }).expect("a reply is JSON");
            assert!(!reply.contains(&b'\n'), "it is one line");
            assert!(matches!(serde_json::from_slice(&reply), Ok(Reply::Refused { .. })));
        }
    }
}
