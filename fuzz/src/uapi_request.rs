//! Any bytes from a UAPI client: framing does not depend on how they arrive, and requests round-trip.

use linerate_control::uapi::request::{Frame, Request, frame, parse};

pub fn check(input: &[u8]) {
    let whole = frame(input, &mut 0);
    let mut seen = 0;
    let by_bytes = (0..=input.len()).map(|end| frame(&input[..end], &mut seen)).find(|frame| *frame != Frame::Partial);
    assert_eq!(by_bytes.unwrap_or(Frame::Partial), whole, "framing byte by byte equals framing at once");
    let request = match whole {
        Frame::Whole(length) => &input[..length],
        _ => input,
    };
    match parse(request) {
        Ok(Request::Set(update)) => {
            let text = update.render();
            assert_eq!(frame(&text, &mut 0), Frame::Whole(text.len()));
            assert!(parse(&text) == Ok(Request::Set(update)), "rendering and parsing round-trip");
        }
        Ok(_) => assert!(matches!(whole, Frame::Whole(_))),
        Err(refusal) => {
            assert!(refusal.errno < 0, "a refusal has a number");
            assert!(!refusal.message.contains(char::is_control), "a refusal is a line for the log");
        }
    }
}
