//! Takes the terminal over, and gives it back as it was on every way out: at the end, at a signal, at a panic, while
//! the process is suspended.

use std::io::{self, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_tunnel::Interruption;
use ratatui_core::terminal::Terminal as Drawn;
use ratatui_termion::TermionBackend;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGQUIT, SIGTSTP, SIGWINCH};

use super::screen;
use super::state::{Key, State};

/// The alternate screen, and no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// Nothing on it.
const CLEAR: &[u8] = b"\x1b[2J";

/// Back, with attributes off.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// How the terminal was, while it is taken over. The panic hook needs it, too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal that is taken over.
pub(super) struct Terminal {
    drawn: Drawn<TermionBackend<Stdout>>,
    interruption: Interruption,
    /// Readable when another signal has come.
    signals: UnixStream,
    quit: Arc<AtomicBool>,
    suspended: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    look: screen::Look,
}

impl Terminal {
    /// Takes standard input and output over.
    pub(super) fn open() -> io::Result<Self> {
        let interruption = Interruption::listen()?;
        let (signals, handler) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        let [quit, suspended, continued] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        signal_hook::flag::register(SIGQUIT, Arc::clone(&quit))?;
        signal_hook::flag::register(SIGTSTP, Arc::clone(&suspended))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        for signal in [SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT] {
            signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
        }
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = leave();
            default(panic);
        }));
        enter()?;
        // From here on dropping gives it back.
        let drawn = Drawn::new(TermionBackend::new(io::stdout())).inspect_err(|_| drop(leave()))?;
        let look = screen::Look::from_environment();
        let mut terminal = Self { drawn, interruption, signals, quit, suspended, continued, look };
        terminal.clear()?;
        Ok(terminal)
    }

    pub(super) fn draw(&mut self, state: &mut State) -> io::Result<()> {
        let look = self.look;
        self.drawn.draw(|frame| screen::draw(frame.buffer_mut(), state, look)).map(|_| ())
    }

    /// Whatever is on it is drawn anew. (`Terminal::clear` would ask the terminal where its cursor is.)
    pub(super) fn clear(&mut self) -> io::Result<()> {
        write(CLEAR)?;
        self.drawn = Drawn::new(TermionBackend::new(io::stdout()))?;
        Ok(())
    }

    /// The keys that were pressed, after `timeout` or earlier; `None` if it is time to end.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<Option<Vec<Key>>> {
        let stdin = io::stdin();
        self.interruption.pause(&[stdin.as_fd(), self.signals.as_fd()], Some(timeout))?;
        drain(&self.signals);
        if self.interruption.came() || self.quit.load(Ordering::SeqCst) {
            return Ok(None);
        }
        if self.suspended.swap(false, Ordering::SeqCst) {
            self.suspend()?;
        }
        if self.continued.swap(false, Ordering::SeqCst) {
            // It may have been stopped by a signal that it cannot see, and the shell has had the terminal since.
            raw()?;
            write(ENTER)?;
            self.clear()?;
        }
        match pressed(stdin.as_fd())? {
            // The terminal is gone.
            Some(bytes) if bytes.is_empty() => Ok(None),
            bytes => Ok(Some(bytes.map(|bytes| keys(&bytes)).unwrap_or_default())),
        }
    }

    /// Gives the terminal back, stops this process until it is continued, and takes the terminal over again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave()?;
        kill_process(getpid(), Signal::STOP)?;
        enter()?;
        self.clear()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = leave();
    }
}

fn enter() -> io::Result<()> {
    let before = tcgetattr(io::stdin())?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    raw()?;
    write(ENTER)
}

/// Sets the mode in which each key is read at once; what it was before stays remembered.
fn raw() -> io::Result<()> {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(mut raw) = before else { return Ok(()) };
    raw.make_raw();
    Ok(tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?)
}

/// Does nothing if the terminal was given back before.
fn leave() -> io::Result<()> {
    let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
    let written = write(LEAVE);
    tcsetattr(io::stdin(), OptionalActions::Flush, &before)?;
    written
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    out.flush()
}

fn drain(signals: &UnixStream) {
    let mut buffer = [0; 64];
    while io::Read::read(&mut &*signals, &mut buffer).is_ok_and(|length| length > 0) {}
}

/// What was typed; `None` if nothing was.
fn pressed(stdin: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ready = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
    match poll(&mut ready, Some(&Timespec::default())) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut buffer = [0; 256];
    match rustix::io::read(stdin, &mut buffer) {
        Ok(length) => Ok(Some(buffer[..length].to_vec())),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
        Err(rustix::io::Errno::IO) => Ok(Some(Vec::new())),
        Err(errno) => Err(errno.into()),
    }
}

/// The keys of what was typed, or pasted: anything may be in it. (termion's parser panics at numbers above 255, as in
/// `ESC [ 999 ~`.)
fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (key, length) = match first {
            b'\x1b' => escape_sequence(after),
            b'\r' | b'\n' => (Some(Key::Enter), 0),
            b'\x7f' | b'\x08' => (Some(Key::Backspace), 0),
            control @ 1..=26 => (Some(Key::Control(char::from(control - 1 + b'a'))), 0),
            _ => {
                // At most four bytes of UTF-8; others are skipped one by one.
                let chunk = rest.get(..4).unwrap_or(rest).utf8_chunks().next();
                let c = chunk.and_then(|chunk| chunk.valid().chars().next());
                (c.map(Key::Char), c.map_or(0, |c| c.len_utf8() - 1))
            }
        };
        keys.extend(key);
        rest = &after[length..];
    }
    keys
}

/// The key of what follows an escape character, and how long that is (ECMA-48, CSI and SS3).
fn escape_sequence(after: &[u8]) -> (Option<Key>, usize) {
    let (parameters, last) = match after {
        [] => return (Some(Key::Escape), 0),
        [b'[', sequence @ ..] => {
            let length = sequence.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            (&sequence[..length], sequence.get(length))
        }
        [b'O', last, ..] => (&after[..0], Some(last)),
        // A key together with Alt.
        _ => return (None, 1),
    };
    let key = match (parameters, last) {
        (_, Some(b'A')) => Some(Key::Up),
        (_, Some(b'B')) => Some(Key::Down),
        (b"5", Some(b'~')) => Some(Key::PageUp),
        (b"6", Some(b'~')) => Some(Key::PageDown),
        (_, Some(b'H')) | (b"1" | b"7", Some(b'~')) => Some(Key::Home),
        (_, Some(b'F')) | (b"4" | b"8", Some(b'~')) => Some(Key::End),
        _ => None,
    };
    (key, 1 + parameters.len() + usize::from(last.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_what_they_send() {
        assert_eq!(keys(b"q"), [Key::Char('q')]);
        assert_eq!(
            keys(b"\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~"),
            [Key::Up, Key::Down, Key::Up, Key::PageUp, Key::PageDown]
        );
        assert_eq!(keys(b"\x1b[H\x1b[F\x7f\r"), [Key::Home, Key::End, Key::Backspace, Key::Enter]);
        assert_eq!(keys(b"\x03\x1a\x0c"), [Key::Control('c'), Key::Control('z'), Key::Control('l')]);
        assert_eq!(keys("/ä\x1b".as_bytes()), [Key::Char('/'), Key::Char('ä'), Key::Escape]);
    }

    #[test]
    fn what_is_no_key_does_no_harm() {
        for bytes in [&b"\x1b["[..], b"\x1b[999~", b"\xff\xfe", b"\x1b[<0;1;1M", b"\x1b[200~", b"\x1b\x1b\x1b"] {
            let keys = keys(bytes);
            assert!(keys.iter().all(|key| matches!(key, Key::Escape | Key::Char(_))), "{keys:?}");
        }
    }

    #[test]
    fn every_byte_is_passed_once() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).flat_map(|byte| [b'\x1b', byte])).collect();
        for start in 0..bytes.len() {
            assert!(keys(&bytes[start..]).len() <= bytes.len() - start);
        }
    }
}
