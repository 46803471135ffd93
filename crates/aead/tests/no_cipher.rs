//! `none`: a choice in builds with the feature `no-cipher`, unavailable in others. `tests/no-cipher` runs this file in
//! both.

use linerate_aead::choose::Choice;

#[test]
fn every_available_choice_protects_packets() {
    for choice in Choice::available().chain([Choice::best()]) {
        assert!(choice.name() != "none" && choice.warning().is_none(), "{choice:?}");
    }
}

#[cfg(not(feature = "no-cipher"))]
#[test]
fn none_is_unavailable() {
    let refusal = Choice::named("none").expect_err("this build has no such thing").to_string();
    assert!(
        refusal.starts_with("LINERATE_AEAD=\"none\" is not available; this CPU can run portable, library"),
        "{refusal}"
    );
}

#[cfg(feature = "no-cipher")]
mod built_in {
    use super::*;
    use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN};

    /// Adjacent packets of all lengths up to slightly more than the usual MTU, each with room for a tag.
    fn batches() -> impl Iterator<Item = (Vec<u8>, Vec<Slot>)> {
        let lens = Vec::from_iter(0..=1500usize);
        let batches = lens.chunks(BATCH_MAX).map(|lens| {
            let mut end = 0;
            let slots = Vec::from_iter(lens.iter().zip(1..).map(|(&len, counter)| {
                let offset = end;
                end += len + TAG_LEN;
                Slot { offset, len, counter }
            }));
            (Vec::from_iter((0..end).map(|at| (at * 31 + at / 255) as u8)), slots)
        });
        Vec::from_iter(batches).into_iter()
    }

    fn none() -> Choice {
        Choice::named("none").expect("this build has it")
    }

    #[test]
    fn none_warns_that_it_protects_nothing() {
        assert!(none().warning().is_some_and(|warning| warning.starts_with("NOTHING IS PROTECTED")));
    }

    #[test]
    fn none_leaves_every_text_readable_and_writes_one_tag() {
        for (plain, slots) in batches() {
            let mut buf = plain.clone();
            Key::with(none(), &[7; 32]).seal(&mut buf, &slots);
            for &Slot { offset, len, .. } in &slots {
                assert_eq!(buf[offset..][..len], plain[offset..][..len]);
                assert_eq!(buf[offset + len..][..TAG_LEN], *b"NOTHING PROTECTS");
            }
        }
    }

    #[test]
    fn none_opens_everything_and_changes_nothing() {
        for (plain, slots) in batches() {
            let mut buf = plain.clone();
            let authentic = Key::with(none(), &[7; 32]).open(&mut buf, &slots);
            assert_eq!(authentic.count(), slots.len());
            assert!(buf == plain);
        }
    }

    #[test]
    fn other_choices_refuse_what_none_sealed() {
        for choice in Choice::available() {
            for (mut buf, slots) in batches() {
                Key::with(none(), &[7; 32]).seal(&mut buf, &slots);
                assert_eq!(Key::with(choice, &[7; 32]).open(&mut buf, &slots).count(), 0, "{choice:?}");
            }
        }
    }
}
