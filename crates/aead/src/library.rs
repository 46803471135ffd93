//! aws-lc-rs, one packet at a time: for CPUs without a vector kernel, and for batches too small to fill its
//! lanes. In small builds it is ring, which has the same functions.

#[cfg(not(linerate_small))]
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
#[cfg(linerate_small)]
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::{AuthMask, KEY_LEN, Slot, TAG_LEN, nonce, text_and_tag};

/// A key in the library's form, which wipes itself.
#[cfg(not(linerate_small))]
pub(crate) struct LibraryKey(LessSafeKey);

#[cfg(not(linerate_small))]
impl LibraryKey {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        Self(bound(key))
    }

    fn with_bound<T>(&self, work: impl FnOnce(&LessSafeKey) -> T) -> T {
        work(&self.0)
    }
}

/// A key that wipes itself. ring's own form does not, so it is made for each batch, which copies 32 bytes, on a stack
/// that is written over after the batch.
#[cfg(linerate_small)]
pub(crate) struct LibraryKey(zeroize::Zeroizing<[u8; KEY_LEN]>);

#[cfg(linerate_small)]
impl LibraryKey {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        Self(zeroize::Zeroizing::new(*key))
    }

    fn with_bound<T>(&self, work: impl FnOnce(&LessSafeKey) -> T) -> T {
        let result = in_own_frame(|| work(&bound(&self.0)));
        scrub_stack();
        result
    }
}

/// Keeps the frame of `work` out of the caller's.
#[cfg(linerate_small)]
#[inline(never)]
fn in_own_frame<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Overwrites the stack that ring used.
#[cfg(linerate_small)]
#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; 4 << 10];
    core::hint::black_box(&mut frames);
}

fn bound(key: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the algorithm's length"))
}

impl LibraryKey {
    /// See [`crate::Key::seal`]; the slots have been checked.
    pub(crate) fn seal(&self, buf: &mut [u8], batch: &[Slot]) {
        self.with_bound(|key| {
            for slot in batch {
                let (text, tag) = text_and_tag(buf, slot);
                let nonce = Nonce::assume_unique_for_key(nonce(slot.counter));
                let computed = key
                    .seal_in_place_separate_tag(nonce, Aad::empty(), text)
                    .expect("a packet is far below the algorithm's limit of 256 GiB");
                tag.copy_from_slice(computed.as_ref());
            }
        });
    }

    /// See [`crate::Key::open`]; the slots have been checked.
    pub(crate) fn open(&self, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
        self.with_bound(|key| {
            let mut authentic = AuthMask::default();
            for (i, slot) in batch.iter().enumerate() {
                let sealed = &mut buf[slot.offset..][..slot.len + TAG_LEN];
                let nonce = Nonce::assume_unique_for_key(nonce(slot.counter));
                match key.open_in_place(nonce, Aad::empty(), sealed) {
                    Ok(_) => authentic.set(i),
                    Err(_) => sealed.fill(0),
                }
            }
            authentic
        })
    }
}
