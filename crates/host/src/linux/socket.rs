//! Netlink sockets: many requests in one send, and lists.
//!
//! Nothing here waits. The kernel carries requests out within the call that sends them (net/netlink/af_netlink.c,
//! `netlink_unicast_kernel`), and goes on with a list within the call that reads it (`netlink_recvmsg`): what is to
//! be read is there, or it never comes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::message::{Frame, HEADER, Message, attribute, frames, text_of, u32_at};

/// The most requests in one send: beyond that nothing is gained.
const BATCH: usize = 128;
/// Each request has an answer that lies in the socket's receive buffer until it is read, and takes no more than these
/// bytes of it, even if it is a refusal with words (`struct sk_buff` and its data, rounded up).
const ANSWER: usize = 1536;
/// What the buffer has if nobody changes `net.core.rmem_default` (net/core/sock.c, `SK_RMEM_MAX`), and as much to send.
const BUFFER: usize = 212_992;
const _: () = assert!(BATCH * ANSWER <= BUFFER);

/// Bytes of one receive: the kernel fills at most 32 KiB at a time.
const RECEIVE: usize = 64 << 10;

/// How often a list that changed while it was read is read again.
const DUMP_ATTEMPTS: u32 = 10;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A socket that speaks with the kernel alone.
pub(super) struct Socket {
    socket: netlink_sys::Socket,
    batch: usize,
    sequence: u32,
    received: Vec<u8>,
}

/// What the kernel says no with.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: io::Error,
    /// The kernel's own words, if it has any (`NETLINK_EXT_ACK`).
    pub(super) said: Option<String>,
}

impl<E: Into<io::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self { error: error.into(), said: None }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    /// Opens a socket of a protocol (linux/netlink.h, `NETLINK_*`).
    ///
    /// # Errors
    /// EPROTONOSUPPORT if the kernel does not know the protocol.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        // From then on no process but the kernel can put anything into it.
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        // Linux 4.12 and 4.2. Without them there are no words, and refusals repeat the request.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let batch = (sockopt::socket_recv_buffer_size(&socket)? / ANSWER).clamp(1, BATCH);
        Ok(Self { socket, batch, sequence: 0, received: vec![0; RECEIVE] })
    }

    /// How many requests may be in one send, so that there is room for all of their answers.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Sends requests, all at once, and gives the answer to each; none for those that the kernel did not answer.
    ///
    /// # Errors
    /// None of them was sent.
    pub(super) fn ask(&mut self, requests: &mut [Message]) -> io::Result<Vec<Option<Result<(), Refused>>>> {
        let first = self.send(requests)?;
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        loop {
            let length = match self.receive() {
                Ok(length) => length,
                Err(Errno::AGAIN) => return Ok(answers),
                // An answer was lost, the others are still to be read.
                Err(Errno::NOBUFS) => continue,
                Err(error) => return Err(error.into()),
            };
            for frame in frames(&self.received[..length]) {
                let place = frame.sequence.checked_sub(first).and_then(|place| usize::try_from(place).ok());
                if let (Some(answer), Some(end)) = (place.and_then(|place| answers.get_mut(place)), end(&frame)) {
                    *answer = Some(end);
                }
            }
        }
    }

    /// Asks for a list (`NLM_F_DUMP`) and gives what `read` makes of each of its messages.
    ///
    /// A list that changes time and again while it is read is given as it was read at last.
    ///
    /// # Errors
    /// What the kernel refuses it with.
    pub(super) fn list<T>(
        &mut self,
        mut request: Message,
        mut read: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Refused> {
        let mut attempt = 1;
        loop {
            let sequence = self.send(std::slice::from_mut(&mut request))?;
            let list = self.read_list(sequence, &mut read)?;
            if list.consistent || attempt == DUMP_ATTEMPTS {
                return Ok(list.items);
            }
            attempt += 1;
        }
    }

    fn read_list<T>(
        &mut self,
        sequence: u32,
        read: &mut impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Result<List<T>, Refused> {
        let mut list = List { items: Vec::new(), consistent: true };
        loop {
            let length = match self.receive() {
                Err(Errno::AGAIN) => return Err(Errno::PROTO.into()),
                received => received?,
            };
            if let Some(end) = list.take(&self.received[..length], sequence, read) {
                return end.map(|()| list);
            }
        }
    }

    /// Sends requests; answers the number of the first. The others follow it.
    fn send(&mut self, requests: &mut [Message]) -> io::Result<u32> {
        // Numbers need only differ from those of answers that an error left unread.
        let count = u32::try_from(requests.len()).map_err(|_| Errno::MSGSIZE)?;
        let first = if self.sequence > u32::MAX - count { 1 } else { self.sequence + 1 };
        self.sequence = first + count;
        let mut bytes = Vec::new();
        for (request, sequence) in requests.iter_mut().zip(first..) {
            bytes.extend(request.numbered(sequence));
        }
        if bytes.len() > BUFFER / 2 {
            // If that is refused, the send is, too, with EMSGSIZE.
            let _ = sockopt::set_socket_send_buffer_size_force(&self.socket, bytes.len());
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(first)
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        let (length, whole) = recv(&self.socket, self.received.as_mut_slice(), RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
        if whole > length { Err(Errno::NOBUFS) } else { Ok(length) }
    }
}

/// A list, as far as it has been read.
struct List<T> {
    items: Vec<T>,
    /// Nothing of it has changed since the reading began.
    consistent: bool,
}

impl<T> List<T> {
    /// Takes in a datagram of the answer to the request `sequence`; says how it went, if that was the last one.
    fn take(
        &mut self,
        datagram: &[u8],
        sequence: u32,
        read: &mut impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Option<Result<(), Refused>> {
        for frame in frames(datagram).filter(|frame| frame.sequence == sequence) {
            self.consistent &= frame.flags & NLM_F_DUMP_INTR == 0;
            if let Some(end) = end(&frame) {
                return Some(end);
            }
            self.items.extend(read(&frame));
        }
        None
    }
}

/// How it went, if this is the last message of an answer. Both kinds begin with zero or a negative errno
/// (net/netlink/af_netlink.c, `netlink_ack` and `netlink_dump_done`), and the end of a list may be empty.
fn end(frame: &Frame<'_>) -> Option<Result<(), Refused>> {
    let code = match (frame.kind, u32_at(frame.payload, 0)) {
        (NLMSG_ERROR | NLMSG_DONE, Some(code)) => code.cast_signed(),
        (NLMSG_DONE, None) if frame.payload.is_empty() => 0,
        (NLMSG_ERROR | NLMSG_DONE, None) => return Some(Err(Errno::PROTO.into())),
        _ => return None,
    };
    if code >= 0 {
        return Some(Ok(()));
    }
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    Some(Err(Refused { error, said: said(frame) }))
}

/// The kernel's words: they follow the errno, and in a refusal the request, or just its header.
fn said(frame: &Frame<'_>) -> Option<String> {
    if frame.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = match frame.kind {
        NLMSG_DONE => 0,
        _ if frame.flags & NLM_F_CAPPED != 0 => HEADER,
        _ => usize::try_from(u32_at(frame.payload, 4)?).ok()?.checked_next_multiple_of(4)?,
    };
    let words = frame.payload.get(4usize.checked_add(request)?..)?;
    text_of(attribute(words, NLMSGERR_ATTR_MSG)?).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::{Attributes, NLM_F_ACK, NLM_F_DUMP};
    use super::*;

    #[test]
    fn both_kinds_of_last_message_may_refuse() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let refused = |code: i32| {
                let refused = end(&frame(kind, 0, &code.to_ne_bytes())).unwrap().unwrap_err();
                (refused.error.raw_os_error().unwrap(), refused.said)
            };
            assert_eq!(refused(-19), (19, None));
            assert_eq!(refused(i32::MIN), (i32::MAX, None));
            assert!(end(&frame(kind, 0, &[0; 4])).unwrap().is_ok());
            assert!(end(&frame(kind, 0, &[0; 3])).unwrap().is_err());
        }
        assert!(end(&frame(NLMSG_DONE, 0, &[])).unwrap().is_ok());
        assert!(end(&frame(NLMSG_ERROR, 0, &[])).unwrap().is_err());
        assert!(end(&frame(16, 0, &[0xff; 4])).is_none());
    }

    #[test]
    fn the_words_of_a_refusal_follow_the_request_or_its_header() {
        let words = Attributes::default().with_text(NLMSGERR_ATTR_MSG, "No such thing");
        let header = [28u32.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        let rest = [1; 12];
        let error = (-22i32).to_ne_bytes();
        let words = &Message::new(0, 0, &[], words).numbered(0)[HEADER..].to_vec();
        let capped = [&error[..], &header, words].concat();
        let whole = [&error[..], &header, &rest, words].concat();
        let done = [&error[..], words].concat();
        for (kind, flags, payload) in [
            (NLMSG_ERROR, NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped),
            (NLMSG_ERROR, NLM_F_ACK_TLVS, &whole),
            (NLMSG_DONE, NLM_F_ACK_TLVS, &done),
        ] {
            assert_eq!(said(&frame(kind, flags, payload)).as_deref(), Some("No such thing"));
        }
        assert_eq!(said(&frame(NLMSG_ERROR, 0, &capped)), None);
    }

    #[test]
    fn a_list_knows_whether_it_changed_while_it_was_read() {
        let message = |kind, flags, sequence| {
            let mut message = Message::new(kind, flags, &[0; 4], Attributes::default());
            message.numbered(sequence).to_vec()
        };
        let other = message(NLMSG_DONE, NLM_F_DUMP_INTR, 8);
        for (first, second, done) in
            [(0, 0, 0), (NLM_F_DUMP_INTR, 0, 0), (0, NLM_F_DUMP_INTR, 0), (0, 0, NLM_F_DUMP_INTR)]
        {
            let mut list = List { items: Vec::new(), consistent: true };
            let kind = &mut |frame: &Frame<'_>| Some(frame.kind);
            let one = [message(16, first, 7), other.clone(), message(17, second, 7)].concat();
            assert!(list.take(&one, 7, kind).is_none());
            assert!(list.take(&message(NLMSG_DONE, done, 7), 7, kind).is_some_and(|end| end.is_ok()));
            assert_eq!(list.items, [16, 17]);
            assert_eq!(list.consistent, first | second | done == 0);
        }
    }

    #[test]
    fn the_answers_to_a_whole_batch_fit_into_the_buffer() {
        let mut socket = Socket::open(0).unwrap();
        for _ in 0..3 {
            let answers = socket.ask(&mut no_ops(BATCH)).unwrap();
            assert_eq!(answers.len(), BATCH);
            assert!(answers.iter().all(|answer| matches!(answer, Some(Ok(())))), "{answers:?}");
        }
    }

    #[test]
    fn answers_that_are_lost_are_missed_and_the_next_ones_are_not() {
        let mut socket = Socket::open(0).unwrap();
        // The kernel makes it the least that it allows (net/core/sock.c, `SOCK_MIN_RCVBUF`).
        sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
        let answers = socket.ask(&mut no_ops(BATCH)).unwrap();
        assert!(matches!(answers[0], Some(Ok(()))));
        assert!(answers[BATCH - 1].is_none());
        assert!(matches!(socket.ask(&mut no_ops(1)).unwrap()[..], [Some(Ok(()))]));
    }

    #[test]
    fn a_refused_list_is_an_error_and_the_socket_goes_on() {
        let mut socket = Socket::open(0).unwrap();
        // No family knows this request (net/core/rtnetlink.c, `rtnetlink_rcv_msg`).
        let unknown = Message::new(0x7ff2, NLM_F_DUMP, &[0; 4], Attributes::default());
        let refused = socket.list(unknown, |_| Some(())).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
        assert!(matches!(socket.ask(&mut no_ops(1)).unwrap()[..], [Some(Ok(()))]));
    }

    /// Requests that the kernel answers and does nothing about (`netlink_rcv_skb`).
    fn no_ops(count: usize) -> Vec<Message> {
        const NLMSG_NOOP: u16 = 1;
        (0..count).map(|_| Message::new(NLMSG_NOOP, NLM_F_ACK, &[], Attributes::default())).collect()
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_makes_it_panic(datagram in prop::collection::vec(any::<u8>(), 0..120), kind in 2u16..4) {
            for frame in frames(&datagram) {
                let _ = end(&Frame { kind, ..frame });
            }
            for flags in [NLM_F_ACK_TLVS, NLM_F_ACK_TLVS | NLM_F_CAPPED] {
                let _ = end(&frame(kind, flags, &datagram));
            }
        }
    }

    fn frame(kind: u16, flags: u16, payload: &[u8]) -> Frame<'_> {
        Frame { kind, flags, sequence: 0, payload }
    }
}
