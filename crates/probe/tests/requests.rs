//! What a stranger may send to the responder of `linerate speed`: any bytes are a request that is within the bounds, or
//! are refused in words.

use linerate_probe::speed::{Ask, LONGEST_REQUEST, Request};
use proptest::prelude::*;
use speed_request::check;

#[path = "../../../fuzz/src/speed_request.rs"]
mod speed_request;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_a_request_or_refused(line in prop::collection::vec(any::<u8>(), 0..2 * LONGEST_REQUEST)) {
        check(&line);
    }

    #[test]
    fn a_request_with_a_byte_changed_cut_or_put_in(
        ask in prop::sample::select(vec![Ask::Send, Ask::Receive, Ask::Watch, Ask::Echo]),
        milliseconds: u32,
        at in any::<prop::sample::Index>(),
        byte: u8,
        how in 0..3,
    ) {
        let mut line = serde_json::to_vec(&Request::new(ask, milliseconds)).unwrap();
        let at = at.index(line.len());
        match how {
            0 => line[at] = byte,
            1 => line.truncate(at),
            _ => line.insert(at, byte),
        }
        check(&line);
    }
}

#[test]
fn deep_and_long_lines_are_refused() {
    for line in
        [vec![b'['; LONGEST_REQUEST], vec![b'{'; LONGEST_REQUEST + 1], vec![b'9'; 100_000], vec![0xff; 16], vec![]]
    {
        assert!(Request::parse(&line).is_err());
        check(&line);
    }
    let twice = br#"{"version":1,"version":1,"ask":"send","milliseconds":1}"#;
    assert!(Request::parse(twice).is_err(), "a field that comes twice");
    let more = br#"{"version":1,"ask":"send","milliseconds":1,"bytes":18446744073709551615}"#;
    assert!(Request::parse(more).is_err(), "a field that nobody knows");
}
