//! For tests: what the kernel could send, and what it never would.

use linerate_netlink::{Attributes, Message, Request, messages};
use proptest::prelude::*;

/// Reads a request as if the kernel had sent it.
pub(super) fn read_back(mut request: Request, read: impl FnOnce(&Message<'_>)) {
    read(&messages(request.with_sequence(7)).next().expect("a request is a message"));
}

/// Attributes that no kernel sends: known types, any values, and some wrong lengths.
pub(super) fn hostile_attributes() -> impl Strategy<Value = Vec<u8>> {
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let attributes = prop::collection::vec((0u16..32, value, -2i32..3), 0..6);
    attributes.prop_map(|attributes| {
        let mut bytes = Vec::new();
        for (kind, value, error) in attributes {
            let at = bytes.len();
            bytes.extend(Attributes::default().with(kind, &value).bytes());
            let length = i32::from(bytes[at]) + if error.abs() == 2 { error } else { 0 };
            bytes[at] = u8::try_from(length).expect("values are short");
        }
        bytes
    })
}
