//! The program that an engine runs inside of, where that is not the daemon: an app that was given a TUN device by its
//! system, and that looks after its interface and its network.

use std::io;
use std::os::fd::BorrowedFd;

use linerate_protocol::PublicKey;

/// What an engine asks of such a program, and tells it. A call that waits delays the engine.
pub trait Embedder: Send + Sync {
    /// Keeps what this socket sends out of the tunnel. Called with every socket, each time, before it is bound.
    ///
    /// # Errors
    /// Why the socket must not be used.
    fn protect(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Something has happened; called by the control thread.
    fn notify(&self, event: Event);
}

/// What a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A handshake with this peer is complete.
    Handshake(PublicKey),
    /// This peer does not answer; repeated at each attempt to reach it.
    Unanswered(PublicKey),
    /// The engine has ended: it was stopped, or its interface is gone.
    Ended,
}

/// The state of the network, as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// There is none. No timer runs until there is one: nothing could be sent.
    Lost,
    /// It is another one, or there is one again.
    Changed,
}
