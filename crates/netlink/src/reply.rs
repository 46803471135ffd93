//! The reply to one request, which may be many messages in many datagrams.

use std::{fmt, io};

use rustix::io::Errno;

use crate::{HEADER, Message, attribute, messages, text_of, u32_at};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Types below this one are netlink's own.
const NLMSG_MIN_TYPE: u16 = 0x10;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Why a request failed: the errno and, from the kernel, its explanation.
#[derive(Debug)]
pub struct NetlinkError {
    /// The errno.
    pub error: io::Error,
    /// The kernel's explanation, if it has one (`NETLINK_EXT_ACK`).
    pub explanation: Option<String>,
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        self.explanation.as_ref().map_or(Ok(()), |text| write!(f, ": {text}"))
    }
}

impl std::error::Error for NetlinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<E: Into<io::Error>> From<E> for NetlinkError {
    fn from(error: E) -> Self {
        Self { error: error.into(), explanation: None }
    }
}

impl NetlinkError {
    /// The error with the explanation in its message. With one its errno is that of the source.
    #[must_use]
    pub fn into_io_error(self) -> io::Error {
        if self.explanation.is_some() { io::Error::new(self.error.kind(), self) } else { self.error }
    }
}

/// The reply to one request, as far as it has been received.
pub struct Reply {
    sequence: u32,
    /// A list changed while the kernel sent it.
    interrupted: bool,
}

impl Reply {
    /// The reply to the request with this sequence number.
    pub fn to(sequence: u32) -> Self {
        Self { sequence, interrupted: false }
    }

    /// Gives each message of a datagram to `read`. Returns the result once the reply is complete: the kernel's errno;
    /// EINTR if a list changed while it was sent; EPROTO if a message has a wrong length, so that the end cannot be
    /// found.
    pub fn take(&mut self, datagram: &[u8], mut read: impl FnMut(&Message<'_>)) -> Option<Result<(), NetlinkError>> {
        let mut messages = messages(datagram);
        for message in messages.by_ref().filter(|message| message.sequence == self.sequence) {
            self.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.result() {
                Some(Ok(())) if self.interrupted => return Some(Err(Errno::INTR.into())),
                Some(result) => return Some(result),
                None if message.kind >= NLMSG_MIN_TYPE => read(&message),
                None => {}
            }
        }
        (!messages.rest().is_empty()).then(|| Err(Errno::PROTO.into()))
    }
}

impl Message<'_> {
    /// The result, if this is the last message of a reply. Both kinds start with zero or a negative errno
    /// (net/netlink/af_netlink.c, `netlink_ack` and `netlink_dump_done`), and the end of a list may be empty.
    ///
    /// Read in place, because a refusal may repeat the whole request, with its keys.
    pub fn result(&self) -> Option<Result<(), NetlinkError>> {
        let code = match (self.kind, u32_at(self.payload, 0)) {
            (NLMSG_ERROR | NLMSG_DONE, Some(code)) => code.cast_signed(),
            (NLMSG_DONE, None) if self.payload.is_empty() => 0,
            (NLMSG_ERROR | NLMSG_DONE, None) => return Some(Err(Errno::PROTO.into())),
            _ => return None,
        };
        if code >= 0 {
            return Some(Ok(()));
        }
        let error = io::Error::from_raw_os_error(code.saturating_neg());
        Some(Err(NetlinkError { error, explanation: explanation(self) }))
    }
}

/// The kernel's explanation follows the errno and, in a refusal, the request or only its header.
fn explanation(message: &Message<'_>) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = match message.kind {
        NLMSG_DONE => 0,
        _ if message.flags & NLM_F_CAPPED != 0 => HEADER,
        _ => usize::try_from(u32_at(message.payload, 4)?).ok()?.checked_next_multiple_of(4)?,
    };
    let attributes = message.payload.get(4usize.checked_add(request)?..)?;
    text_of(attribute(attributes, NLMSGERR_ATTR_MSG)?).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Attributes, Request};

    #[test]
    fn both_kinds_of_last_message_may_carry_an_errno() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let refused = |code: i32| {
                let refused = message(kind, 0, &code.to_ne_bytes()).result().unwrap().unwrap_err();
                (refused.error.raw_os_error().unwrap(), refused.explanation)
            };
            assert_eq!(refused(-19), (19, None));
            assert_eq!(refused(i32::MIN), (i32::MAX, None));
            assert!(message(kind, 0, &[0; 4]).result().unwrap().is_ok());
            assert!(message(kind, 0, &[0; 3]).result().unwrap().is_err());
        }
        assert!(message(NLMSG_DONE, 0, &[]).result().unwrap().is_ok());
        assert!(message(NLMSG_ERROR, 0, &[]).result().unwrap().is_err());
        assert!(message(16, 0, &[0xff; 4]).result().is_none());
    }

    #[test]
    fn the_explanation_of_a_refusal_follows_the_request_or_its_header() {
        let text = Attributes::default().with_text(NLMSGERR_ATTR_MSG, "No such thing");
        let header = [28u32.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        let rest = [1; 12];
        let error = (-22i32).to_ne_bytes();
        let capped = [&error[..], &header, text.bytes()].concat();
        let whole = [&error[..], &header, &rest, text.bytes()].concat();
        let done = [&error[..], text.bytes()].concat();
        for (kind, flags, payload) in [
            (NLMSG_ERROR, NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped),
            (NLMSG_ERROR, NLM_F_ACK_TLVS, &whole),
            (NLMSG_DONE, NLM_F_ACK_TLVS, &done),
        ] {
            assert_eq!(explanation(&message(kind, flags, payload)).as_deref(), Some("No such thing"));
        }
        assert_eq!(explanation(&message(NLMSG_ERROR, 0, &capped)), None);
    }

    #[test]
    fn a_list_that_changed_while_it_was_sent_ends_with_eintr() {
        let message = |kind, flags, sequence| request(kind, flags, sequence, &[0; 4]);
        let other = message(NLMSG_DONE, NLM_F_DUMP_INTR, 8);
        for (first, second, done) in
            [(0, 0, 0), (NLM_F_DUMP_INTR, 0, 0), (0, NLM_F_DUMP_INTR, 0), (0, 0, NLM_F_DUMP_INTR)]
        {
            let (mut reply, mut kinds) = (Reply::to(7), Vec::new());
            let one = [message(16, first, 7), other.clone(), message(17, second, 7)].concat();
            assert!(reply.take(&one, |message| kinds.push(message.kind)).is_none());
            let end = reply.take(&message(NLMSG_DONE, done, 7), |message| kinds.push(message.kind));
            assert_eq!(kinds, [16, 17]);
            let errno = end.expect("the list is complete").err().and_then(|refused| refused.error.raw_os_error());
            assert_eq!(errno, (first | second | done != 0).then_some(Errno::INTR.raw_os_error()));
        }
    }

    #[test]
    fn a_reply_whose_end_cannot_be_found_is_an_error() {
        let (link, done) = (request(24, 0, 0, &[0; 4]), request(NLMSG_DONE, 0, 0, &[0; 4]));
        let end = |datagram: &[u8]| Reply::to(0).take(datagram, |_| ());
        assert!(end(&link).is_none(), "more is to come");
        assert!(end(&[link.clone(), done.clone()].concat()).is_some_and(|end| end.is_ok()));
        let mut wrong = link;
        wrong[0] = 60;
        let error = end(&[wrong, done].concat()).and_then(Result::err).and_then(|refused| refused.error.raw_os_error());
        assert_eq!(error, Some(Errno::PROTO.raw_os_error()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(datagram in prop::collection::vec(any::<u8>(), 0..120), kind in 2u16..4) {
            let _ = Reply::to(0).take(&datagram, |_| ());
            for message in messages(&datagram) {
                let _ = Message { kind, ..message }.result();
            }
            for flags in [NLM_F_ACK_TLVS, NLM_F_ACK_TLVS | NLM_F_CAPPED] {
                let _ = message(kind, flags, &datagram).result();
            }
        }
    }

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Message<'_> {
        Message { kind, flags, sequence: 0, payload }
    }

    fn request(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        Request::new(kind, flags, payload, Attributes::default()).with_sequence(sequence).to_vec()
    }
}
