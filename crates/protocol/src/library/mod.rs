//! What the handshake takes from a library: X25519, and the AEAD for its fields.
//!
//! AWS-LC, except in small builds (`--cfg linerate_small`), which have no room for it.

#[cfg(not(linerate_small))]
mod aws_lc;
#[cfg(linerate_small)]
mod small;

#[cfg(not(linerate_small))]
pub(crate) use aws_lc::{AgreementKey, open, seal};
#[cfg(linerate_small)]
pub(crate) use small::{AgreementKey, open, seal};
