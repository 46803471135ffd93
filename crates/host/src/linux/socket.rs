//! A netlink socket: many requests in one send, and lists.
//!
//! Nothing here waits. The kernel handles requests within the call that sends them (net/netlink/af_netlink.c,
//! `netlink_unicast_kernel`), and continues a list within the call that receives it (`netlink_recvmsg`): a reply is there
//! at once, or never.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use linerate_netlink::{DUMP_ATTEMPTS, Message, NetlinkError, RECEIVE_BUFFER, Reply, Request, messages};

/// The most requests in one send; more would not be faster.
const BATCH: usize = 128;
/// The most bytes of the receive buffer that one reply takes, even a refusal with an explanation (`struct sk_buff`
/// and its data, rounded up).
const REPLY: usize = 1536;
/// The default size of the receive and send buffers (`net.core.rmem_default`; net/core/sock.c, `SK_RMEM_MAX`).
const BUFFER: usize = 212_992;
const _: () = assert!(BATCH * REPLY <= BUFFER);

/// A socket connected to the kernel.
pub(super) struct NetlinkSocket {
    socket: netlink_sys::Socket,
    batch: usize,
    sequence: u32,
    received: Vec<u8>,
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NetlinkSocket {
    /// Opens a socket of a protocol (linux/netlink.h, `NETLINK_*`).
    ///
    /// # Errors
    /// EPROTONOSUPPORT if the kernel does not have the protocol.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        // After that no other process can send to it.
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        // Linux 4.12 and 4.2. Without them there are no explanations, and refusals repeat the request.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let batch = (sockopt::socket_recv_buffer_size(&socket)? / REPLY).clamp(1, BATCH);
        Ok(Self { socket, batch, sequence: 0, received: vec![0; RECEIVE_BUFFER] })
    }

    /// How many requests may be in one send, so that all replies fit.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Sends requests at once and returns the result of each; none if its reply was lost.
    ///
    /// # Errors
    /// None of them was sent.
    pub(super) fn submit(&mut self, requests: &mut [Request]) -> io::Result<Vec<Option<Result<(), NetlinkError>>>> {
        let first = self.send(requests)?;
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        loop {
            let length = match self.receive() {
                Ok(length) => length,
                Err(Errno::AGAIN) => return Ok(answers),
                // A reply was lost; the others are still to be read.
                Err(Errno::NOBUFS) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in messages(&self.received[..length]) {
                let index = message.sequence.checked_sub(first).and_then(|index| usize::try_from(index).ok());
                if let (Some(answer), Some(result)) = (index.and_then(|index| answers.get_mut(index)), message.result())
                {
                    *answer = Some(result);
                }
            }
        }
    }

    /// Requests a list (`NLM_F_DUMP`) and returns what `read` makes of each message.
    ///
    /// If the list changes every time while it is read, the last version is returned.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn list<T>(
        &mut self,
        mut request: Request,
        mut read: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut attempt = 1;
        loop {
            let sequence = self.send(std::slice::from_mut(&mut request))?;
            let mut items = Vec::new();
            match self.read_list(sequence, |message| items.extend(read(message))) {
                Err(NetlinkError { error, .. }) if Errno::from_io_error(&error) == Some(Errno::INTR) => {
                    if attempt == DUMP_ATTEMPTS {
                        return Ok(items);
                    }
                    attempt += 1;
                }
                result => return result.map(|()| items),
            }
        }
    }

    fn read_list(&mut self, sequence: u32, mut read: impl FnMut(&Message<'_>)) -> Result<(), NetlinkError> {
        let mut reply = Reply::to(sequence);
        loop {
            let length = match self.receive() {
                Err(Errno::AGAIN) => return Err(Errno::PROTO.into()),
                received => received?,
            };
            if let Some(result) = reply.take(&self.received[..length], &mut read) {
                return result;
            }
        }
    }

    /// Sends requests; returns the sequence number of the first. The others follow.
    fn send(&mut self, requests: &mut [Request]) -> io::Result<u32> {
        // They need only differ from those of replies that an error left unread.
        let count = u32::try_from(requests.len()).map_err(|_| Errno::MSGSIZE)?;
        let first = if self.sequence > u32::MAX - count { 1 } else { self.sequence + 1 };
        self.sequence = first + count;
        let mut bytes = Vec::new();
        for (request, sequence) in requests.iter_mut().zip(first..) {
            bytes.extend(request.with_sequence(sequence));
        }
        if bytes.len() > BUFFER / 2 {
            // In a container only a size up to net.core.wmem_max may be set. If that is too small, the send fails.
            let _ = sockopt::set_socket_send_buffer_size_force(&self.socket, bytes.len())
                .or_else(|_| sockopt::set_socket_send_buffer_size(&self.socket, bytes.len()));
        }
        send(&self.socket, &bytes, SendFlags::empty()).map_err(|error| match error {
            Errno::MSGSIZE => io::Error::other(format!(
                "a request of {} bytes does not fit into the socket's buffer; set net.core.wmem_max on the host to at least that",
                bytes.len()
            )),
            error => error.into(),
        })?;
        Ok(first)
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        let (length, whole) = recv(&self.socket, self.received.as_mut_slice(), RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
        if whole > length { Err(Errno::NOBUFS) } else { Ok(length) }
    }
}

#[cfg(test)]
mod tests {
    use linerate_netlink::{Attributes, NLM_F_ACK, NLM_F_DUMP};

    use super::*;

    #[test]
    fn the_answers_to_a_whole_batch_fit_into_the_buffer() {
        let mut socket = NetlinkSocket::open(0).unwrap();
        for _ in 0..3 {
            let answers = socket.submit(&mut no_ops(BATCH)).unwrap();
            assert_eq!(answers.len(), BATCH);
            assert!(answers.iter().all(|answer| matches!(answer, Some(Ok(())))), "{answers:?}");
        }
    }

    #[test]
    fn answers_that_are_lost_are_missed_and_the_next_ones_are_not() {
        let mut socket = NetlinkSocket::open(0).unwrap();
        // The kernel makes it the least that it allows (net/core/sock.c, `SOCK_MIN_RCVBUF`).
        sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
        let answers = socket.submit(&mut no_ops(BATCH)).unwrap();
        assert!(matches!(answers[0], Some(Ok(()))));
        assert!(answers[BATCH - 1].is_none());
        assert!(matches!(socket.submit(&mut no_ops(1)).unwrap()[..], [Some(Ok(()))]));
    }

    #[test]
    fn a_refused_list_is_an_error_and_the_socket_goes_on() {
        let mut socket = NetlinkSocket::open(0).unwrap();
        // No family knows this request (net/core/rtnetlink.c, `rtnetlink_rcv_msg`).
        let unknown = Request::new(0x7ff2, NLM_F_DUMP, &[0; 4], Attributes::default());
        let refused = socket.list(unknown, |_| Some(())).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
        assert!(matches!(socket.submit(&mut no_ops(1)).unwrap()[..], [Some(Ok(()))]));
    }

    /// Requests that the kernel answers and does nothing about (`netlink_rcv_skb`).
    fn no_ops(count: usize) -> Vec<Request> {
        const NLMSG_NOOP: u16 = 1;
        (0..count).map(|_| Request::new(NLMSG_NOOP, NLM_F_ACK, &[], Attributes::default())).collect()
    }
}
