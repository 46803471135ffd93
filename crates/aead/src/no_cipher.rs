//! No cipher at all: what is sealed stays readable, and whatever arrives is opened.
//!
//! A tunnel of it shows what the way to and from the kernel costs, which no cipher can undercut. It
//! is compiled only with the feature `no-cipher`, and taken only where its name is given.
//! `tests/no-cipher` proves that a build without the feature has none of it.

use crate::{AuthMask, Slot, TAG_LEN, text_and_tag};

/// What the user of such a tunnel has to know.
pub(crate) const WARNING: &str = "NOTHING IS PROTECTED: packets travel readable, and anybody's are accepted. \
    This is for measuring; unset LINERATE_AEAD, and use a build without the feature `no-cipher`";

/// Stands in the place of every tag, and tells whoever reads the wire.
const TAG: [u8; TAG_LEN] = *b"NOTHING PROTECTS";

/// See [`crate::Key::seal`]; the slots have been checked. Texts stay as they are.
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
