//! One connection of the server: reads requests, has them answered one at a time, and writes the replies.
//!
//! Nothing here blocks. The server decides when a connection is served and how much memory it may take.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::PollFlags;
use zeroize::Zeroize;

use super::{Handler, RESERVED_BYTES};
use crate::uapi::request::{self, Frame, Request};
use crate::uapi::{RequestError, errno, response};
use crate::zeroizing::Buffer;

/// Bytes of one read.
pub(super) const CHUNK: usize = 64 << 10;

/// Bytes read from one connection before the next is served.
const READ_SLICE: usize = 4 * CHUNK;

/// Bytes written to one connection before the next is served.
const WRITE_SLICE: usize = 4 * READ_SLICE;

/// Close the connection: it is finished or broken, or the client does not speak the protocol.
pub(super) struct Close;

pub(super) struct Connection {
    pub(super) stream: UnixStream,
    input: Buffer,
    /// How far `input` was searched for the end of the request.
    searched: usize,
    output: Buffer,
    written: usize,
    /// The client has closed its side.
    input_ended: bool,
    /// Close once `output` is written.
    closing: bool,
    /// `input` may hold a whole request that is not answered yet.
    pub(super) may_have_request: bool,
    /// Reading or answering has to wait until other connections hold less memory.
    pub(super) waits_for_memory: bool,
    /// When a byte was last read or written.
    pub(super) last_progress: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Buffer::new(),
            searched: 0,
            output: Buffer::new(),
            written: 0,
            input_ended: false,
            closing: false,
            may_have_request: false,
            waits_for_memory: false,
            last_progress: Instant::now(),
        }
    }

    /// Bytes that it holds in memory.
    pub(super) fn held(&self) -> usize {
        self.input.len() + self.output.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.held() == 0
    }

    /// Whether the last reply is written, so that the next request may be answered.
    pub(super) fn can_answer(&self) -> bool {
        self.output.is_empty() && !self.waits_for_memory
    }

    /// The events to poll for.
    pub(super) fn poll_flags(&self) -> PollFlags {
        if !self.output.is_empty() {
            PollFlags::OUT
        } else if self.input_ended || self.waits_for_memory {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// Reads and writes without blocking, and answers at most one request. `budget` is the memory left, in bytes.
    pub(super) fn serve(
        &mut self,
        handler: &mut impl Handler,
        flags: PollFlags,
        budget: usize,
        chunk: &mut [u8],
    ) -> Result<(), Close> {
        // Nobody would read the reply, and poll would report the hang-up again at once.
        if self.waits_for_memory && flags.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(Close);
        }
        self.write()?;
        if !self.output.is_empty() {
            return Ok(());
        }
        self.waits_for_memory = false;
        if !self.may_have_request {
            self.read(budget, chunk)?;
        }
        self.answer(handler, budget)?;
        self.write()
    }

    fn read(&mut self, budget: usize, chunk: &mut [u8]) -> Result<(), Close> {
        let before = self.input.len();
        while !self.input_ended && self.input.len() - before < READ_SLICE {
            if self.input.len() >= RESERVED_BYTES && self.input.len() - before >= budget {
                self.waits_for_memory = true;
                return Ok(());
            }
            match self.stream.read(chunk) {
                Ok(0) => self.input_ended = true,
                Ok(length) => {
                    self.input.extend(&chunk[..length]);
                    chunk[..length].zeroize();
                    self.last_progress = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Close),
            }
        }
        Ok(())
    }

    fn answer(&mut self, handler: &mut impl Handler, budget: usize) -> Result<(), Close> {
        self.may_have_request = false;
        match request::frame(&self.input, &mut self.searched) {
            Frame::Whole(length) => {
                let request = request::parse(&self.input[..length]);
                if matches!(request, Ok(Request::Get | Request::Activity(_))) && budget == 0 {
                    self.waits_for_memory = true;
                    self.may_have_request = true;
                    return Ok(());
                }
                self.input.drain(length);
                self.searched = 0;
                self.output = reply(handler, request);
                self.may_have_request = !self.input.is_empty() || self.input_ended;
                self.last_progress = Instant::now();
            }
            Frame::Partial if !self.input_ended => {}
            // The start of a `set` whose end will not come.
            Frame::Partial if self.input.starts_with(b"set=1\n") => {
                let request = request::parse(&self.input);
                self.output = reply(handler, request);
                self.finish();
            }
            Frame::TooLong => {
                let message = format!(
                    "the request has a line over {} bytes or is over {} bytes",
                    request::LINE_MAX,
                    request::REQUEST_MAX
                );
                self.output = reply(handler, Err(RequestError { errno: -errno::EIO, message }));
                self.finish();
            }
            Frame::Partial | Frame::Unknown => return Err(Close),
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.input.drain(usize::MAX);
        self.input_ended = true;
        self.closing = true;
    }

    fn write(&mut self) -> Result<(), Close> {
        let end = self.output.len().min(self.written + WRITE_SLICE);
        while self.written < end {
            match self.stream.write(&self.output[self.written..end]) {
                Ok(length) => {
                    self.written += length;
                    self.last_progress = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Close),
            }
        }
        if self.written == self.output.len() {
            self.output.drain(self.written);
            self.written = 0;
            if self.closing {
                return Err(Close);
            }
        }
        Ok(())
    }
}

fn reply(handler: &mut impl Handler, request: Result<Request, RequestError>) -> Buffer {
    let status = |number: i32| {
        let mut text = Buffer::new();
        text.extend(format!("errno={number}\n\n").as_bytes());
        text
    };
    match request {
        Ok(Request::Get) => match handler.get() {
            Ok(state) => state.render(),
            Err(number) => status(number.saturating_abs()),
        },
        Ok(Request::Stats) => response::render_stats(&handler.stats()),
        Ok(Request::Activity(since)) => handler.activity(since).render(),
        #[cfg(feature = "fleet")]
        Ok(Request::FleetChanges(since)) => handler.fleet_changes(since).render(),
        Ok(Request::Set(update)) => match handler.set(update) {
            Ok(()) => status(0),
            // Zero would tell the client that the request succeeded.
            Err(0) => status(-errno::UNKNOWN),
            Err(number) => status(-number.saturating_abs()),
        },
        Err(error) => {
            handler.rejected(&error);
            status(error.errno)
        }
    }
}
