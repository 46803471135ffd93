//! Requests to the kernel.

use std::net::IpAddr;

use crate::{ATTRIBUTE_HEADER, HEADER, NLM_F_ACK, NLM_F_REQUEST};

const NLA_F_NESTED: u16 = 0x8000;

/// A request to the kernel.
#[derive(Clone)]
pub struct Request(Vec<u8>);

impl Request {
    /// A request of type `kind` that starts with the `fixed` header of its family, a multiple of four bytes.
    pub fn new(kind: u16, flags: u16, fixed: &[u8], attributes: Attributes) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(fixed);
        bytes.extend(attributes.0);
        let length = u32::try_from(bytes.len()).expect("requests are short");
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        Self(bytes)
    }

    /// The same request, to be answered even on success.
    pub fn acknowledged(mut self) -> Self {
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | NLM_F_ACK;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    /// Its bytes, with the sequence number that the reply will carry.
    pub fn with_sequence(&mut self, sequence: u32) -> &[u8] {
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.0
    }

    /// Its type.
    pub fn kind(&self) -> u16 {
        u16::from_ne_bytes([self.0[4], self.0[5]])
    }

    /// Its bytes after the netlink header.
    pub fn payload(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}

/// Attributes, one after the other.
#[derive(Clone, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute. The caller has bounded a value from outside: a length has 16 bits.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("values are bounded");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a number in native byte order.
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds an address.
    pub fn with_address(self, kind: u16, address: IpAddr) -> Self {
        self.with(kind, &octets(address))
    }

    /// Adds a text, which ends with a NUL.
    pub fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that contains attributes.
    pub fn with_nest(self, kind: u16, inner: Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    /// Adds others after them.
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An address as the value of an attribute.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
