use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use super::*;
use crate::interface::InterfaceName;
use crate::keys::PublicKey;
use crate::uapi::response::PeerState;
use crate::uapi::{errno, socket};

#[test]
fn requests_written_at_once_are_answered_in_order() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mut client = daemon.connect();
    client.write_all(b"set=1\nlisten_port=7\n\nget=1\n\nstats=1\n\nget=1\nXset=1\nfwmark=x\n\nget=1\n\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let state = "listen_port=7\nerrno=0\n\n";
    let expected = format!("errno=0\n\n{state}sets=1\nerrno=0\n\nerrno=-22\n\nerrno=-22\n\n{state}");
    assert_eq!(rest(&mut client), expected);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mut client = daemon.connect();
    for byte in b"set=1\nlisten_port=9\n\n" {
        client.write_all(&[*byte]).unwrap();
    }
    assert_eq!(reply(&mut client), "errno=0\n\n");
    client.write_all(b"get=1\n").unwrap();
    client.write_all(b"\n").unwrap();
    assert_eq!(reply(&mut client), "listen_port=9\nerrno=0\n\n");
}

#[test]
fn an_unknown_operation_closes_the_connection_after_pending_replies() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    for unknown in ["set=1\r\nlisten_port=1\n\n", "hello\n", "get=2\n\n"] {
        let mut client = daemon.connect();
        client.write_all(format!("get=1\n\n{unknown}").as_bytes()).unwrap();
        assert_eq!(reply(&mut client), "errno=0\n\n", "{unknown}");
        assert_eq!(rest(&mut client), "", "{unknown}");
    }
}

#[test]
fn a_set_that_is_cut_off_changes_nothing() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mut client = daemon.connect();
    client.write_all(b"set=1\nlisten_port=9\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), "errno=-71\n\n");
    assert_eq!(daemon.ask("get=1\n\n"), "errno=0\n\n");
}

#[test]
fn a_line_that_never_ends_is_rejected() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mut client = daemon.connect();
    client.write_all(b"set=1\n").unwrap();
    client.write_all(&vec![b'x'; request::LINE_MAX + 1]).unwrap();
    assert_eq!(rest(&mut client), "errno=-5\n\n");
}

#[test]
fn error_numbers_have_the_sign_that_wg_expects() {
    let daemon = Daemon::start(Device { fails: Some(errno::EADDRINUSE), ..Device::default() }, LIMITS);
    assert_eq!(daemon.ask("set=1\n\n"), "errno=-98\n\n");
    assert_eq!(daemon.ask("get=1\n\n"), "errno=98\n\n");
    let daemon = Daemon::start(Device { fails: Some(-errno::EIO), ..Device::default() }, LIMITS);
    assert_eq!(daemon.ask("set=1\n\n"), "errno=-5\n\n");
    assert_eq!(daemon.ask("get=1\n\n"), "errno=5\n\n");
}

#[test]
fn two_hundred_clients_are_served_while_all_stay() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mut clients: Vec<_> = (0..200).map(|_| daemon.connect()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.write_all(b"get=1\n\n").unwrap();
        }
        for client in &mut clients {
            assert_eq!(reply(client), "errno=0\n\n");
        }
    }
}

#[test]
fn a_slow_reader_delays_nobody_and_gets_all_of_its_eight_megabytes() {
    let device = Device { allowed_ips: 160_000, ..Device::default() };
    let expected = device.state().render().to_vec();
    assert!(expected.len() > 8 << 20);
    let daemon = Daemon::start(device, LIMITS);
    let mut slow = daemon.connect();
    slow.write_all(b"get=1\n\n").unwrap();
    let mut half = daemon.connect();
    half.write_all(b"set=1\nlisten_p").unwrap();
    // Both connections stay in mid-request or mid-reply meanwhile.
    for _ in 0..10 {
        assert_eq!(daemon.ask("set=1\n\n"), "errno=0\n\n");
    }
    let mut read = vec![0; expected.len()];
    for piece in read.chunks_mut(1000) {
        slow.read_exact(piece).unwrap();
    }
    assert!(read == expected);
    half.write_all(b"ort=5\n\n").unwrap();
    assert_eq!(reply(&mut half), "errno=0\n\n");
}

#[test]
fn a_client_that_asks_and_leaves_is_forgotten() {
    let device = Device { allowed_ips: 10_000, ..Device::default() };
    let daemon = Daemon::start(device, LIMITS);
    for _ in 0..50 {
        daemon.connect().write_all(b"get=1\n\nget=1\n\nget=1\n\n").unwrap();
    }
    assert_eq!(daemon.ask("set=1\n\n"), "errno=0\n\n");
    assert!(daemon.stop().clients <= 1);
}

#[test]
fn a_request_is_carried_out_even_if_its_client_has_left() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    daemon.connect().write_all(b"set=1\nlisten_port=6\n\n").unwrap();
    // The listener accepts in order, so that request was answered before this one.
    assert_eq!(daemon.ask("get=1\n\n"), "listen_port=6\nerrno=0\n\n");
}

#[test]
fn at_the_limit_of_connections_the_one_idle_for_longest_is_closed() {
    let daemon = Daemon::start(Device::default(), Limits { connections: 3, ..LIMITS });
    let mut first = daemon.connect();
    let mut busy = daemon.connect();
    busy.write_all(b"set=1\nlist").unwrap();
    assert_eq!(ask(&mut first, "get=1\n\n"), "errno=0\n\n");
    let mut others: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
    assert_eq!(rest(&mut first), "");
    assert_eq!(rest(&mut others[0]), "");
    busy.write_all(b"en_port=3\n\n").unwrap();
    assert_eq!(reply(&mut busy), "errno=0\n\n");
    assert_eq!(ask(&mut others[2], "get=1\n\n"), "listen_port=3\nerrno=0\n\n");
}

#[test]
fn a_stalled_client_that_holds_memory_others_need_is_closed() {
    let device = Device { allowed_ips: 20_000, ..Device::default() };
    let limits = Limits { bytes: 100_000, stall_timeout: Duration::ZERO, ..LIMITS };
    let daemon = Daemon::start(device, limits);
    let mut stalled = daemon.connect();
    stalled.write_all(b"get=1\n\n").unwrap();
    // Its reply has begun, so the server holds the rest of it.
    stalled.read_exact(&mut [0; 1000]).unwrap();
    let expected = daemon.device_text.clone();
    assert_eq!(daemon.ask("get=1\n\n"), expected);
    assert!(rest(&mut stalled).len() < expected.len() - 1000, "cut off");
}

#[test]
fn an_idle_server_has_no_timeout() {
    let directory = Directory::new();
    let mut server = Server::new(directory.listen());
    assert_eq!(server.timeout(false), None);
    let (_client, stream) = UnixStream::pair().unwrap();
    server.connections.push(Connection::new(stream));
    assert_eq!(server.timeout(false), None);
}

#[test]
fn deleting_or_replacing_the_socket_ends_the_server_and_leaves_the_new_file() {
    let daemon = Daemon::start(Device::default(), LIMITS);
    fs::remove_file(daemon.path()).unwrap();
    assert_eq!(daemon.ended().ended, StopReason::SocketGone);

    let daemon = Daemon::start(Device::default(), LIMITS);
    let path = daemon.path();
    let other = path.with_extension("new");
    let _other = UnixListener::bind(&other).unwrap();
    fs::rename(&other, &path).unwrap();
    let report = daemon.ended();
    assert_eq!(report.ended, StopReason::SocketGone);
    assert!(report.directory.0.join("wg0.sock").exists());
}

#[test]
fn the_socket_is_private_and_removed_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start(Device::default(), LIMITS);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&daemon.path()), 0o700);
    let report = daemon.stop();
    assert_eq!(report.ended, StopReason::Requested(1), "the second of two descriptors");
    assert!(!report.directory.0.join("wg0.sock").exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = Directory::new();
    let path = directory.0.join("wg0.sock");
    drop(UnixListener::bind(&path).unwrap());
    let live = directory.listen();
    let Err(refused) = socket::Listener::open(&directory.0, &name()) else { panic!("two daemons") };
    assert!(refused.to_string().starts_with("wg0 is already served by another process"), "{refused}");
    drop(live);
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    let Err(refused) = socket::Listener::open(&directory.0, &name()) else { panic!("not a socket") };
    assert!(refused.to_string().contains("exists and is not a socket"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn an_inherited_socket_is_served_and_stays_until_the_server_ends() {
    let directory = Directory::new();
    let socket = directory.listen().into_socket().unwrap();
    assert!(directory.0.join("wg0.sock").exists());
    let inherited = socket::Listener::inherit(socket, &directory.0, &name()).unwrap();
    assert!(inherited.is_in_place());
    assert_eq!(socket::interfaces(&directory.0).unwrap(), [name()]);
    drop(inherited);
    assert!(!directory.0.join("wg0.sock").exists());
}

#[derive(Default)]
struct Device {
    listen_port: u16,
    allowed_ips: u32,
    fails: Option<i32>,
    sets: u64,
}

impl Device {
    fn state(&self) -> DeviceState {
        let mut state = DeviceState { listen_port: self.listen_port, ..DeviceState::default() };
        if self.allowed_ips > 0 {
            let mut peer = PeerState::new(PublicKey([9; 32]));
            let wide = |n: u32| (u128::MAX - u128::from(n)).to_be_bytes().into();
            peer.allowed_ips = (0..self.allowed_ips).map(|n| (wide(n), 128)).collect();
            state.peers.push(peer);
        }
        state
    }
}

impl Handler for Device {
    fn get(&mut self) -> Result<DeviceState, i32> {
        self.fails.map_or_else(|| Ok(self.state()), Err)
    }

    fn set(&mut self, update: DeviceUpdate) -> Result<(), i32> {
        self.sets += 1;
        self.listen_port = update.listen_port.unwrap_or(self.listen_port);
        self.fails.map_or(Ok(()), Err)
    }

    fn stats(&mut self) -> Vec<(String, u64)> {
        vec![("sets".into(), self.sets)]
    }

    fn activity(&mut self, since: u64) -> Activity {
        Activity { now: since + 1, configured: self.sets, peers: self.state().peers }
    }
}

/// A server on its own thread; dropping `stop` stops it.
struct Daemon {
    directory: Directory,
    device_text: String,
    stop: UnixStream,
    thread: JoinHandle<StopReason>,
    clients: mpsc::Receiver<usize>,
}

struct Report {
    ended: StopReason,
    clients: usize,
    directory: Directory,
}

impl Daemon {
    fn start(mut device: Device, limits: Limits) -> Self {
        let directory = Directory::new();
        let mut server = Server::new(directory.listen());
        server.limits = limits;
        let device_text = String::from_utf8(device.state().render().to_vec()).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (count, clients) = mpsc::channel();
        let thread = thread::spawn(move || {
            let (_quiet, never) = UnixStream::pair().unwrap();
            loop {
                let stop = [never.as_fd(), stopped.as_fd()];
                if let Some(ended) = server.step(&mut device, &stop).unwrap() {
                    let _ = count.send(server.connections.len());
                    return ended;
                }
            }
        });
        Self { directory, device_text, stop, thread, clients }
    }

    fn path(&self) -> PathBuf {
        self.directory.0.join("wg0.sock")
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    fn ask(&self, request: &str) -> String {
        ask(&mut self.connect(), request)
    }

    fn stop(self) -> Report {
        drop(self.stop);
        let ended = self.thread.join().unwrap();
        Report { ended, clients: self.clients.recv().unwrap_or(0), directory: self.directory }
    }

    fn ended(self) -> Report {
        let ended = self.thread.join().unwrap();
        Report { ended, clients: 0, directory: self.directory }
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let name = format!("linerate-control-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn listen(&self) -> Listener {
        Listener::open(&self.0, &name()).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name() -> InterfaceName {
    "wg0".parse().unwrap()
}

fn ask(client: &mut UnixStream, request: &str) -> String {
    client.write_all(request.as_bytes()).unwrap();
    reply(client)
}

fn reply(client: &mut UnixStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

/// Everything until the server closes; closing with unread input is a reset.
fn rest(client: &mut UnixStream) -> String {
    let mut text = Vec::new();
    let _ = client.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}
