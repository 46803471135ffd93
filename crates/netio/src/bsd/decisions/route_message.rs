//! Messages of the routing socket (route(4), sys/net/route.h, sys/net/if.h; XNU: bsd/net/route.h, bsd/net/if.h), built
//! and read as bytes.
//!
//! Each starts with its length (u16), version (5) and type. What is read of them is at the same offsets on both
//! systems. Wrong bytes yield no event, never a panic.
//!
//! A message that the kernel refuses goes to all listeners, and any user may send one (sys/net/rtsock.c, route_output;
//! XNU: bsd/net/rtsock.c). So a message only tells what to look at; how an interface is, is asked of the kernel.

use std::io;
use std::net::IpAddr;
use std::ops::Range;

use rustix::io::Errno;

use super::GONE;
use crate::link::LinkEvent;

/// What differs between systems in the question for a route.
pub(crate) struct Form {
    /// The length of `struct rt_msghdr` on 64-bit systems.
    pub(super) header: usize,
    /// A sockaddr takes a multiple of so many bytes (SA_SIZE of sys/net/route.h; XNU: ROUNDUP32 of bsd/net/rtsock.c).
    pub(super) multiple: usize,
    /// The number of IPv6.
    inet6: u8,
}

impl Form {
    #[cfg(any(test, target_os = "freebsd"))]
    pub(crate) const FREEBSD: Self = Self { header: 152, multiple: 8, inet6: 28 };
    #[cfg(any(test, target_os = "macos"))]
    pub(crate) const MACOS: Self = Self { header: 92, multiple: 4, inet6: 30 };

    /// The question for the route to an address.
    pub(crate) fn get(&self, sequence: u32, to: IpAddr) -> Vec<u8> {
        let address = self.sockaddr(to);
        let len = self.header + address.len().next_multiple_of(self.multiple);
        let mut message = vec![0; len];
        message[..2].copy_from_slice(&(len as u16).to_ne_bytes());
        (message[2], message[3]) = (VERSION, RTM_GET);
        message[12..16].copy_from_slice(&RTA_DST.to_ne_bytes());
        message[20..24].copy_from_slice(&sequence.to_ne_bytes());
        message[self.header..][..address.len()].copy_from_slice(&address);
        message
    }

    /// A sockaddr_in or sockaddr_in6 without a port.
    pub(super) fn sockaddr(&self, address: IpAddr) -> Vec<u8> {
        let (len, family, ip) = match address {
            IpAddr::V4(ip) => (16u8, 2u8, ip.octets().to_vec()),
            IpAddr::V6(ip) => (28, self.inet6, [vec![0; 4], ip.octets().to_vec()].concat()),
        };
        let mut bytes = [vec![len, family, 0, 0], ip].concat();
        bytes.resize(len.into(), 0);
        bytes
    }
}

/// The most bytes of messages that are read at once.
const RECEIVE_BUFFER: usize = 16 << 10;

/// Reads events from a routing socket.
pub(crate) struct Events {
    buf: Vec<u8>,
    /// The part of `buf` that has not been read yet.
    unread: Range<usize>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { buf: vec![0; RECEIVE_BUFFER], unread: 0..0 }
    }

    /// The next event; `None` when there is none yet. `receive` reads from the socket and does not block. `look` asks
    /// the kernel how an interface is.
    pub(crate) fn next(
        &mut self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
        look: impl Fn(u32) -> io::Result<LinkEvent>,
    ) -> Option<LinkEvent> {
        loop {
            while let Some((message, rest)) = split(&self.buf[self.unread.clone()]) {
                let subject = subject(message);
                self.unread.start = self.unread.end - rest.len();
                match subject {
                    Some(Subject::Interface(ifindex)) => return Some(state(ifindex, look(ifindex))),
                    Some(Subject::Routing(ifindex)) => return Some(LinkEvent::Routing { ifindex }),
                    None => {}
                }
            }
            match receive(&mut self.buf) {
                Ok(len) => self.unread = 0..len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // ENOBUFS: the queue was full.
                Err(_) => return Some(LinkEvent::Lost),
            }
        }
    }
}

pub(super) const VERSION: u8 = 5;
pub(super) const RTM_ADD: u8 = 0x1;
pub(super) const RTM_DELETE: u8 = 0x2;
const RTM_CHANGE: u8 = 0x3;
pub(super) const RTM_GET: u8 = 0x4;
const RTM_NEWADDR: u8 = 0xc;
const RTM_DELADDR: u8 = 0xd;
const RTM_IFINFO: u8 = 0xe;
const RTM_IFANNOUNCE: u8 = 0x11;

/// RTA_DST: the message has a destination.
const RTA_DST: u32 = 1;

/// The first message of what one read returned, and the rest.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(u16_at(bytes, 0)?);
    // Shorter than its own head would never end.
    (len >= 4 && bytes.get(2) == Some(&VERSION)).then(|| bytes.split_at_checked(len)).flatten()
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// An interface: it was changed, made or deleted.
    Interface(u32),
    /// An address or a route, of an interface if it has one.
    Routing(Option<u32>),
}

fn subject(message: &[u8]) -> Option<Subject> {
    let interface = |at| u16_at(message, at).map(u32::from).filter(|&ifindex| ifindex != 0);
    match *message.get(3)? {
        // if_msghdr: index at 12.
        RTM_IFINFO => interface(12).map(Subject::Interface),
        // if_announcemsghdr: index at 4. macOS has a question of this number, and looking does no harm.
        RTM_IFANNOUNCE => interface(4).map(Subject::Interface),
        // ifa_msghdr: index at 12.
        RTM_NEWADDR | RTM_DELADDR => Some(Subject::Routing(interface(12))),
        // rt_msghdr: index at 4.
        RTM_ADD | RTM_DELETE | RTM_CHANGE => Some(Subject::Routing(interface(4))),
        _ => None,
    }
}

/// How an interface is, by the kernel's answer.
fn state(ifindex: u32, answer: io::Result<LinkEvent>) -> LinkEvent {
    match answer {
        Ok(link) => link,
        Err(error) if error.raw_os_error() == Some(GONE) => LinkEvent::LinkGone { ifindex },
        Err(_) => LinkEvent::Lost,
    }
}

/// The interface in the answer to the question of this process with that number: other messages come before it. `receive`
/// reads from the socket, and has a time limit.
///
/// # Errors
/// ENOBUFS if it did not come in time, or was lost: ask later.
pub(crate) fn answer(
    mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    pid: u32,
    sequence: u32,
) -> io::Result<u32> {
    let mut buf = vec![0; RECEIVE_BUFFER];
    loop {
        let len = match receive(&mut buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Errno::NOBUFS.into()),
            received => received?,
        };
        if let Some(ifindex) = egress(&buf[..len], pid, sequence) {
            return Ok(ifindex);
        }
    }
}

/// The interface in the answer to that question; `None` for another message.
fn egress(message: &[u8], pid: u32, sequence: u32) -> Option<u32> {
    let ours = message.get(3) == Some(&RTM_GET) && u32_at(message, 16)? == pid && u32_at(message, 20)? == sequence;
    ours.then(|| u16_at(message, 4).map(u32::from)).flatten()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Some((message, after)) = split(rest) {
                let _ = (subject(message), egress(message, 1, 1));
                prop_assert!(after.len() < rest.len());
                rest = after;
            }
        }

        #[test]
        fn no_body_makes_the_reader_panic(kind in 0u8..20, body in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = subject(&[&[0, 0, VERSION, kind], &body[..]].concat());
        }
    }

    const HEADER: usize = Form::FREEBSD.header;

    /// A message of this type with 16-bit and 32-bit values at these offsets.
    fn message(kind: u8, short: &[(usize, u16)], long: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..2].copy_from_slice(&(HEADER as u16).to_ne_bytes());
        (bytes[2], bytes[3]) = (VERSION, kind);
        short.iter().for_each(|&(at, value)| bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes()));
        long.iter().for_each(|&(at, value)| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_message_tells_what_to_look_at() {
        let up = message(RTM_IFINFO, &[(12, 7)], &[(8, 0x8043), (24, 1420)]);
        assert_eq!(subject(&up), Some(Subject::Interface(7)));
        assert_eq!(subject(&message(RTM_IFINFO, &[], &[])), None);
        assert_eq!(subject(&message(RTM_IFANNOUNCE, &[(4, 7), (22, 1)], &[])), Some(Subject::Interface(7)));
        assert_eq!(subject(&message(RTM_NEWADDR, &[(12, 7)], &[])), Some(Subject::Routing(Some(7))));
        assert_eq!(subject(&message(RTM_DELETE, &[(4, 7)], &[])), Some(Subject::Routing(Some(7))));
        assert_eq!(subject(&message(RTM_ADD, &[], &[])), Some(Subject::Routing(None)));
        assert_eq!(subject(&message(RTM_GET, &[(4, 7)], &[])), None);
    }

    #[test]
    fn whatever_a_message_says_the_kernel_is_believed() {
        let next = |message: &[u8], answer: fn() -> io::Result<LinkEvent>| {
            let receive = |buf: &mut [u8]| {
                buf[..message.len()].copy_from_slice(message);
                Ok(message.len())
            };
            let look = |ifindex| {
                assert_eq!(ifindex, 7);
                answer()
            };
            Events::new().next(receive, look)
        };
        let as_it_is = || Ok(LinkEvent::Link { ifindex: 7, up: true, mtu: 1420, name: "wg0".to_owned() });
        let gone = || Err(io::Error::from_raw_os_error(GONE));
        let unknown = || Err(io::Error::from_raw_os_error(libc::ENFILE));
        for message in
            [message(RTM_IFINFO, &[(12, 7)], &[(8, 0), (24, 1)]), message(RTM_IFANNOUNCE, &[(4, 7), (22, 1)], &[])]
        {
            assert_eq!(next(&message, as_it_is), as_it_is().ok());
            assert_eq!(next(&message, gone), Some(LinkEvent::LinkGone { ifindex: 7 }));
            assert_eq!(next(&message, unknown), Some(LinkEvent::Lost));
        }
    }

    #[test]
    fn messages_of_one_read_are_taken_one_by_one_and_a_full_queue_is_told() {
        let about = |ifindex| LinkEvent::Routing { ifindex: Some(ifindex) };
        let (one, two) = (message(RTM_ADD, &[(4, 1)], &[]), message(RTM_ADD, &[(4, 2)], &[]));
        let cut_off = &two[..HEADER - 1];
        let none = || Err(io::ErrorKind::WouldBlock.into());
        let answers: [io::Result<Vec<u8>>; 6] = [
            Ok([&one[..], &message(RTM_GET, &[(4, 3)], &[]), &two].concat()),
            none(),
            Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            Ok([&one[..], cut_off].concat()),
            Ok(two.clone()),
            none(),
        ];
        let mut answers = answers.into_iter();
        let mut events = Events::new();
        let mut next = || {
            let receive = |buf: &mut [u8]| {
                let bytes = answers.next().unwrap()?;
                buf[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            };
            events.next(receive, |_| unreachable!("none is about an interface"))
        };
        for expected in [about(1), about(2)] {
            assert_eq!(next(), Some(expected));
        }
        assert_eq!(next(), None);
        for expected in [LinkEvent::Lost, about(1), about(2)] {
            assert_eq!(next(), Some(expected));
        }
        assert_eq!(next(), None);
    }

    #[test]
    fn a_question_for_a_route_has_the_destination_alone() {
        let (v4, v6) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        for (form, header, len_v6, inet6) in [(Form::FREEBSD, 152, 184, 28), (Form::MACOS, 92, 120, 30)] {
            let question = form.get(9, v6);
            assert_eq!((question.len(), u16_at(&question, 0)), (len_v6, Some(len_v6 as u16)));
            assert_eq!(question[2..4], [VERSION, RTM_GET]);
            assert_eq!((u32_at(&question, 12), u32_at(&question, 20)), (Some(RTA_DST), Some(9)));
            assert_eq!(question[header..header + 2], [28, inet6]);
            let question = form.get(9, v4);
            assert_eq!(question.len(), header + 16);
            assert_eq!(question[header..header + 8], [16, 2, 0, 0, 192, 0, 2, 1]);
        }
    }

    #[test]
    fn the_answer_is_waited_for_behind_other_messages() {
        let ours = message(RTM_GET, &[(4, 3)], &[(16, 100), (20, 9)]);
        let theirs = message(RTM_GET, &[(4, 5)], &[(16, 101), (20, 9)]);
        let event = message(RTM_ADD, &[(4, 5)], &[]);
        let asked = |answers: Vec<io::Result<Vec<u8>>>| {
            let mut answers = answers.into_iter();
            let receive = |buf: &mut [u8]| {
                let bytes = answers.next().expect("no more is read than there is")?;
                buf[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            };
            answer(receive, 100, 9).map_err(|error| error.raw_os_error())
        };
        assert_eq!(asked(vec![Ok(event.clone()), Ok(theirs), Ok(vec![]), Ok(ours)]), Ok(3));
        assert_eq!(asked(vec![Ok(event), Err(io::ErrorKind::WouldBlock.into())]), Err(Some(libc::ENOBUFS)));
        let full = io::Error::from_raw_os_error(libc::ENOBUFS);
        assert_eq!(asked(vec![Err(full)]), Err(Some(libc::ENOBUFS)));
    }

    #[test]
    fn an_answer_is_ours_by_process_and_number() {
        let answer = message(RTM_GET, &[(4, 3)], &[(16, 100), (20, 9)]);
        assert_eq!(egress(&answer, 100, 9), Some(3));
        assert_eq!(egress(&answer, 100, 8), None);
        assert_eq!(egress(&answer, 101, 9), None);
    }
}
