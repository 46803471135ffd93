//! Batches of datagrams, one by one: there is neither GSO nor GRO, and FreeBSD's sendmmsg is a loop
//! (lib/libc/gen/sendmmsg.c).

use std::io;

use crate::datagram::{Received, Transmit};

/// Sends a batch in order, up to the first that fails; returns how many were sent.
///
/// # Errors
///
/// That of the first. If another fails, whoever repeats the rest gets its error.
pub(crate) fn send(
    batch: &[Transmit<'_>],
    mut send_one: impl FnMut(&Transmit<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    for (sent, message) in batch.iter().enumerate() {
        match send_one(message) {
            Ok(()) => {}
            Err(error) if sent == 0 => return Err(error),
            Err(_) => return Ok(sent),
        }
    }
    Ok(batch.len())
}

/// Receives datagrams into equal parts of `buf`, one for each of `meta`, until there is none; returns how many.
///
/// # Errors
///
/// That of the first. One after it is lost, which is of an ICMP message and says nothing about what comes next.
pub(crate) fn receive(
    buf: &mut [u8],
    meta: &mut [Received],
    mut receive_one: impl FnMut(&mut [u8]) -> io::Result<Received>,
) -> io::Result<usize> {
    let stride = buf.len().checked_div(meta.len()).unwrap_or(0);
    if stride == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut count = 0;
    for (part, meta) in buf.chunks_exact_mut(stride).zip(meta) {
        match receive_one(part) {
            Ok(received) => *meta = received,
            Err(error) if count == 0 => return Err(error),
            Err(_) => break,
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that succeeds this many times, with the number of each, and then fails.
    fn fails_after(good: usize) -> impl FnMut() -> io::Result<usize> {
        let mut calls = 0;
        move || {
            calls += 1;
            if calls <= good { Ok(calls) } else { Err(io::Error::from_raw_os_error(libc::ENOBUFS)) }
        }
    }

    #[test]
    fn what_was_sent_before_an_error_counts_and_the_error_comes_with_the_rest() {
        let to = "192.0.2.1:1".parse().unwrap();
        let batch = [Transmit { to, from: None, tos: 0, segment: None, contents: &[1] }; 3];
        let sent = |good, batch| {
            let mut call = fails_after(good);
            send(batch, |_| call().map(drop)).map_err(|error| error.raw_os_error())
        };
        assert_eq!(sent(3, &batch[..]), Ok(3));
        assert_eq!(sent(2, &batch), Ok(2));
        assert_eq!(sent(0, &batch[2..]), Err(Some(libc::ENOBUFS)));
        assert_eq!(sent(0, &[]), Ok(0));
    }

    #[test]
    fn each_datagram_has_its_part_of_the_buffer() {
        let mut meta = [Received::default(); 3];
        let mut received = |good| {
            let (mut call, mut buf) = (fails_after(good), [0; 7]);
            let count = receive(&mut buf, &mut meta, |part| {
                let len = call()?;
                part.fill(len as u8);
                Ok(Received { len, ..Received::default() })
            });
            (count.map_err(|error| error.raw_os_error()), buf, meta.map(|one| one.len))
        };
        assert_eq!(received(2), (Ok(2), [1, 1, 2, 2, 0, 0, 0], [1, 2, 0]));
        assert_eq!(received(9), (Ok(3), [1, 1, 2, 2, 3, 3, 0], [1, 2, 3]));
        assert_eq!(received(0).0, Err(Some(libc::ENOBUFS)));
    }

    #[test]
    fn without_room_nothing_is_received() {
        for (len, count) in [(0, 1), (1, 2), (1, 0)] {
            let received = receive(&mut vec![0; len], &mut vec![Received::default(); count], |_| unreachable!());
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
