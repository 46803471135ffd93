//! Echo requests.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol};

use crate::common::Common;
use crate::datagrams;
use crate::stack::Inner;
use crate::wire::{EchoKey, Key};

/// The most echo requests that wait for a reply.
const ECHOES_MAX: usize = 1024;

/// An echo request without a reply.
#[derive(Default)]
pub(crate) struct Echo {
    outcome: Option<Result<(), io::ErrorKind>>,
    waker: Option<Waker>,
}

impl Common {
    /// An echo request was answered, or did not arrive.
    pub(crate) fn end_echo(&self, key: EchoKey, outcome: Result<(), io::ErrorKind>) {
        let waker = self.echoes.lock().expect("a panic aborts the process").get_mut(&key).and_then(|echo| {
            echo.outcome.get_or_insert(outcome);
            echo.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Sends an echo request and waits for its reply.
pub(crate) struct Pinging {
    stack: Arc<Inner>,
    from: IpAddr,
    key: EchoKey,
    sent: bool,
}

impl Pinging {
    pub(crate) fn new(stack: &Arc<Inner>, to: IpAddr) -> io::Result<Self> {
        let common = &stack.common;
        let from = common.source(to).ok_or(io::ErrorKind::NetworkUnreachable)?;
        let key = EchoKey { to, ident: common.random() as u16, sequence: 1 };
        let mut echoes = common.echoes.lock().expect("a panic aborts the process");
        if echoes.len() >= ECHOES_MAX || echoes.contains_key(&key) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        echoes.insert(key, Echo::default());
        Ok(Self { stack: stack.clone(), from, key, sent: false })
    }

    fn send(&self, context: &Context<'_>) -> bool {
        let common = &self.stack.common;
        let key = Key { local: (self.from, 0).into(), remote: (self.key.to, 0).into() };
        self.stack.with(common.shard_of(key), |shard, _| {
            let sent = shard.queue(request(self.from, self.key, common.mtu));
            if !sent {
                shard.wait_for_room(context);
            }
            sent
        })
    }
}

impl Future for Pinging {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.sent {
            self.sent = self.send(context);
        }
        let mut echoes = self.stack.common.echoes.lock().expect("a panic aborts the process");
        let echo = echoes.get_mut(&self.key).expect("it is there as long as the future");
        match echo.outcome {
            Some(outcome) => Poll::Ready(outcome.map_err(io::Error::from)),
            None => {
                echo.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Pinging {
    fn drop(&mut self) {
        self.stack.common.echoes.lock().expect("a panic aborts the process").remove(&self.key);
    }
}

/// An echo request without data, which fits every MTU.
fn request(from: IpAddr, key: EchoKey, mtu: usize) -> Box<[u8]> {
    let (ident, seq_no, data) = (key.ident, key.sequence, &[][..]);
    let v4 = Icmpv4Repr::EchoRequest { ident, seq_no, data };
    let v6 = Icmpv6Repr::EchoRequest { ident, seq_no, data };
    let packet = match (IpAddress::from(from), IpAddress::from(key.to)) {
        (IpAddress::Ipv6(source), IpAddress::Ipv6(to)) => {
            datagrams::packet(from, key.to, IpProtocol::Icmpv6, v6.buffer_len(), mtu, |message, checksums| {
                v6.emit(&source, &to, &mut Icmpv6Packet::new_unchecked(message), checksums);
            })
        }
        _ => datagrams::packet(from, key.to, IpProtocol::Icmp, v4.buffer_len(), mtu, |message, checksums| {
            v4.emit(&mut Icmpv4Packet::new_unchecked(message), checksums);
        }),
    };
    packet.expect("the MTU is at least that of IPv4")
}
