//! No cipher: sealed packets stay readable, and every packet opens.
//!
//! It measures the cost of everything else, which is a lower bound for any cipher. It is a build of its own and not a
//! switch, because a daemon that people run must not be able to protect nothing: it is compiled only with the feature
//! `no-cipher` and used only if named explicitly. `tests/no-cipher` proves that a build without the feature does not
//! contain it.

use crate::{AuthMask, Slot, TAG_LEN, text_and_tag};

/// For the user of such a tunnel.
pub(crate) const WARNING: &str = "NOTHING IS PROTECTED: packets are sent unencrypted, and packets from anybody are \
    accepted. This is for measurements only; unset LINERATE_AEAD, and use a build without the feature `no-cipher`";

/// Written in place of every tag, where a packet capture shows it.
const TAG: [u8; TAG_LEN] = *b"NOTHING PROTECTS";

/// See [`crate::Key::seal`]; the slots have been checked. Leaves the texts unchanged.
pub(crate) fn seal(buf: &mut [u8], batch: &[Slot]) {
    for slot in batch {
        let (_, tag) = text_and_tag(buf, slot);
        *tag = TAG;
    }
}

/// See [`crate::Key::open`]; everything counts as authentic.
pub(crate) fn open(batch: &[Slot]) -> AuthMask {
    let mut authentic = AuthMask::default();
    (0..batch.len()).for_each(|i| authentic.set(i));
    authentic
}
