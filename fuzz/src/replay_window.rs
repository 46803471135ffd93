//! A replay window equals the set of all accepted counters, as far back as it reaches.

use std::collections::BTreeSet;

use linerate_protocol::ReplayWindow;
use linerate_protocol::constants::{REJECT_AFTER_MESSAGES, REPLAY_USABLE};

use crate::bytes::Bytes;

/// An input is a sequence of counters, each relative to the greatest so far, or absolute in eight bytes.
pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let mut window = ReplayWindow::default();
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    while !input.is_empty() {
        let greatest = seen.last().copied();
        let kind = input.byte();
        let far = i64::from(input.short().cast_signed());
        let counter = match kind % 6 {
            0 => greatest.unwrap_or(0).saturating_add_signed(far % 4),
            1 => greatest.unwrap_or(0).saturating_add_signed(far % 130),
            2 => greatest.unwrap_or(0).saturating_add_signed(far),
            3 => greatest.unwrap_or(0).saturating_sub(REPLAY_USABLE).saturating_add_signed(far % 66),
            4 => REJECT_AFTER_MESSAGES.saturating_add_signed(far),
            _ => u64::from_le_bytes(input.array()),
        };
        let is_too_old = greatest.is_some_and(|greatest| counter.saturating_add(REPLAY_USABLE) < greatest);
        let expected = counter < REJECT_AFTER_MESSAGES && !is_too_old && !seen.contains(&counter);
        assert_eq!(window.is_newest(counter), greatest.is_none_or(|greatest| counter > greatest));
        assert_eq!(window.accept(counter), expected, "{counter} after {greatest:?}");
        if expected {
            seen.insert(counter);
        }
    }
}
