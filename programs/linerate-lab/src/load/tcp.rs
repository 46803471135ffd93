//! Bulk TCP: a sender and a receiver, so that nothing has to be installed to measure throughput.
//!
//! One thread on either side, as many connections as asked for. The receiver keeps the time and counts
//! only what arrives after the warm-up; its figures are reported. Sender and receiver agree over a
//! control connection, the first one to the port: the sender writes the [`Load`] as one line of JSON, the
//! receiver answers with a line of [`Received`] when the time is over.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::{lasting, wait};
use crate::error::Doing;
use crate::{Error, Result};

/// Bytes per read and write, as iperf3 does it for TCP.
const CHUNK: usize = 128 * 1024;

/// How long either side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// TCP connections at once.
    pub streams: u16,
    /// Seconds that count.
    pub seconds: f64,
    /// Seconds before them that do not.
    pub warm_up: f64,
}

impl Load {
    /// The warm-up and the time that counts; an error when one of them is no time or longer than a day.
    fn times(&self) -> Result<(Duration, Duration)> {
        Ok((lasting(self.warm_up)?, lasting(self.seconds)?))
    }
}

/// What arrived, by the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes that arrived after the warm-up.
    pub bytes: u64,
    /// Seconds in which they arrived.
    pub seconds: f64,
    /// Bytes that arrived in all, warm-up included.
    pub all_bytes: u64,
}

/// The outcome, by the sender.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Report {
    /// What arrived.
    #[serde(flatten)]
    pub received: Received,
    /// Gigabits per second of TCP payload after the warm-up.
    pub gbit_per_second: f64,
    /// TCP segments that the sender's host sent again, warm-up included.
    pub retransmits: u64,
}

/// The receiver's port.
#[derive(Debug)]
pub struct Receiver {
    listener: TcpListener,
}

impl Receiver {
    /// Listens on `at`.
    ///
    /// # Errors
    ///
    /// When the address is not there or the port is in use.
    pub fn listen(at: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(at).doing(|| format!("listening on {at}"))?;
        Ok(Self { listener })
    }

    /// The address to send to.
    ///
    /// # Errors
    ///
    /// When the socket's own address cannot be read.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().doing(|| "asking a socket for its address".into())
    }

    /// Receives one load, from the control connection to the answer.
    ///
    /// # Errors
    ///
    /// When no sender comes within ten seconds, or it disconnects or sends something else.
    pub fn receive(&self) -> Result<Received> {
        if !self.await_connection(TIMEOUT)? {
            return Err(Error::Subject("no sender came".into()));
        }
        let talking = || "talking to the load's sender".into();
        let (mut control, _) = self.listener.accept().doing(talking)?;
        control.set_read_timeout(Some(TIMEOUT)).doing(talking)?;
        let load: Load = read_line(&control)?;
        let streams = self.accept(load.streams)?;
        let received = count(&control, &streams, &load)?;
        let mut line = serde_json::to_vec(&received).doing(talking)?;
        line.push(b'\n');
        control.write_all(&line).doing(talking)?;
        Ok(received)
    }

    fn accept(&self, streams: u16) -> Result<Vec<TcpStream>> {
        let accepting = || "accepting the load's connections".into();
        let mut accepted = Vec::with_capacity(usize::from(streams));
        for _ in 0..streams {
            if !self.await_connection(TIMEOUT)? {
                let count = accepted.len();
                return Err(Error::Subject(format!("only {count} of {streams} TCP connections arrived")));
            }
            let (stream, _) = self.listener.accept().doing(accepting)?;
            stream.set_nonblocking(true).doing(accepting)?;
            accepted.push(stream);
        }
        Ok(accepted)
    }

    fn await_connection(&self, timeout: Duration) -> Result<bool> {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let ready = wait(&mut fds, timeout).doing(|| "waiting for connections".into())?;
        Ok(ready > 0)
    }
}

/// Sends `load` to the receiver at `to` and returns what arrived there.
///
/// # Errors
///
/// When the receiver cannot be reached or goes away; [`Error::Refused`] for a load of no time.
pub fn send(to: SocketAddr, load: &Load) -> Result<Report> {
    let (warm_up, seconds) = load.times()?;
    let connecting = || format!("connecting to the load's receiver at {to}");
    let mut control = TcpStream::connect_timeout(&to, TIMEOUT).doing(connecting)?;
    control.set_read_timeout(Some(TIMEOUT)).doing(connecting)?;
    let mut line = serde_json::to_vec(load).doing(connecting)?;
    line.push(b'\n');
    control.write_all(&line).doing(connecting)?;

    let mut streams = Vec::with_capacity(usize::from(load.streams));
    let end = Instant::now() + TIMEOUT;
    for _ in 0..load.streams {
        // A time of nothing would be an error of its own.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&to, left).doing(connecting)?;
        stream.set_nonblocking(true).doing(connecting)?;
        streams.push(stream);
    }
    let retransmitted = retransmitted();
    fill(&control, &streams, warm_up + seconds + TIMEOUT)?;
    let received: Received = read_line(&control)?;
    Ok(Report {
        received,
        gbit_per_second: received.bytes as f64 * 8.0 / received.seconds / 1e9,
        retransmits: self::retransmitted().saturating_sub(retransmitted),
    })
}

/// Reads everything from `streams` until the time is over.
fn count(control: &TcpStream, streams: &[TcpStream], load: &Load) -> Result<Received> {
    let receiving = || "receiving the load".into();
    let mut fds = watch(control, streams, PollFlags::IN);
    let mut buffer = vec![0; CHUNK];
    let (warm_up, seconds) = load.times()?;
    let start = Instant::now() + warm_up;
    let end = start + seconds;
    let (mut bytes, mut all_bytes) = (0, 0);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        wait(&mut fds, left).doing(receiving)?;
        if !fds[0].revents().is_empty() {
            return Err(Error::Subject("the load's sender went away".into()));
        }
        let counts = Instant::now() >= start;
        for (fd, mut stream) in fds[1..].iter().zip(streams) {
            if fd.revents().is_empty() {
                continue;
            }
            let arrived = match stream.read(&mut buffer) {
                Ok(0) => {
                    return Err(Error::Subject("the load's sender closed a connection".into()));
                }
                Ok(arrived) => arrived as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(Error::system(receiving(), error)),
            };
            all_bytes += arrived;
            bytes += if counts { arrived } else { 0 };
        }
    }
    Ok(Received { bytes, seconds: (Instant::now() - start).as_secs_f64(), all_bytes })
}

/// Writes to whichever of `streams` takes something until the receiver has answered.
fn fill(control: &TcpStream, streams: &[TcpStream], timeout: Duration) -> Result<()> {
    let sending = || "sending the load".into();
    let mut fds = watch(control, streams, PollFlags::OUT);
    let chunk = vec![0x5a; CHUNK];
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        wait(&mut fds, timeout).doing(sending)?;
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        for (fd, mut stream) in fds[1..].iter().zip(streams) {
            if fd.revents().is_empty() {
                continue;
            }
            match stream.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The receiver hangs up when the time is over; its result is on the control
                // connection, or its absence is the error.
                Err(_) => return Ok(()),
            }
        }
    }
    Err(Error::Subject("the load's receiver did not answer in time".into()))
}

fn watch<'a>(control: &'a TcpStream, streams: &'a [TcpStream], flags: PollFlags) -> Vec<PollFd<'a>> {
    let control = PollFd::new(control, PollFlags::IN);
    std::iter::once(control).chain(streams.iter().map(|stream| PollFd::new(stream, flags))).collect()
}

fn read_line<T: for<'a> Deserialize<'a>>(control: &TcpStream) -> Result<T> {
    let mut line = String::new();
    // A line of ours is far shorter; any other client of this port is cut off.
    BufReader::new(control.take(4096)).read_line(&mut line).doing(|| "talking to the load's other end".into())?;
    serde_json::from_str(&line).map_err(|_| {
        Error::Subject(if line.is_empty() {
            "the load's other end hung up".into()
        } else {
            "the load's other end speaks another language".into()
        })
    })
}

/// TCP segments that this thread's host has sent again since it exists; 0 where the kernel does not say.
fn retransmitted() -> u64 {
    fs::read_to_string("/proc/thread-self/net/snmp").ok().and_then(|snmp| retransmitted_segments(&snmp)).unwrap_or(0)
}

/// Finds `RetransSegs` in `/proc/net/snmp`, whose lines come in pairs of names and numbers.
fn retransmitted_segments(snmp: &str) -> Option<u64> {
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (tcp.next()?, tcp.next()?);
    let place = names.split_whitespace().position(|name| name == "RetransSegs")?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 51
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 14 7 0 3 2 1290 1301 42 0 5 0
Udp: InDatagrams NoPorts
Udp: 3 0
";

    #[test]
    fn retransmits_are_found_by_their_name() {
        assert_eq!(retransmitted_segments(SNMP), Some(42));
        assert_eq!(retransmitted_segments("Tcp: RetransSegs\n"), None);
        assert_eq!(retransmitted_segments(""), None);
    }

    #[test]
    fn a_load_over_loopback_arrives() {
        let mut seconds = 0.05;
        loop {
            let receiver = Receiver::listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let to = receiver.address().unwrap();
            let receiving = std::thread::spawn(move || receiver.receive());
            let report = send(to, &Load { streams: 3, seconds, warm_up: 0.01 }).unwrap();
            assert_eq!(receiving.join().unwrap().unwrap(), report.received);
            assert!(report.received.all_bytes >= report.received.bytes && report.received.seconds >= seconds);
            if report.received.bytes > 0 {
                break;
            }
            // On a busy machine the receiver may sleep through a short load.
            seconds *= 4.0;
            assert!(seconds < 60.0, "nothing arrives, however long the load");
        }
    }

    #[test]
    fn a_stranger_is_told_apart_from_a_sender() {
        let receiver = Receiver::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = receiver.address().unwrap();
        TcpStream::connect(to).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(receiver.receive(), Err(Error::Subject(_))));
    }

    #[test]
    fn a_load_of_no_time_is_refused() {
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Load { streams: 1, seconds, warm_up: 0.0 }.times().is_err());
            assert!(Load { streams: 1, seconds: 1.0, warm_up: seconds }.times().is_err());
        }
    }
}
