//! The daemon with descriptors that it is handed: WG_TUN_FD, WG_UAPI_FD, LINERATE_NETWORK_FD and LINERATE_END_FD, from exec
//! to its end.
//!
//! Each test runs in namespaces of its own. What waits is a blocking read or wait; the whole is ended after a minute.

use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use linerate_control::uapi::socket;
use linerate_netio::link;
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::tun::{TunDevice, TunOffloads};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;
use in_namespaces::{in_namespaces, missing, skipped};

const LINERATED: &str = env!("CARGO_BIN_EXE_linerated");

/// The name of the interface handed over, and the one on the command line, which it overrides.
const HANDED: &str = "handed0";
const ASKED: &str = "asked0";

#[test]
fn a_tun_device_handed_over_is_the_interface_and_names_the_socket() {
    in_namespaces(|| {
        let tun = TunDevice::create(HANDED, 1, TunOffloads::ALL).unwrap();
        let index = tun.ifindex();
        let mut daemon = Foreground::start(linerated(&["-f", ASKED]).env("WG_TUN_FD", handed(&tun.queue_fd(0))));
        // From here on the daemon's descriptor alone keeps the interface.
        drop(tun);
        daemon.wait_until_ready();
        assert_answers(HANDED);
        assert_eq!(link::index_of(HANDED).ok(), index);
        assert_nothing_left(ASKED);
        daemon.terminate();
        assert_nothing_left(HANDED);
    });
}

#[test]
fn a_client_that_asked_before_the_daemon_started_is_answered_on_a_socket_handed_over() {
    in_namespaces(|| {
        let (listener, mut early) = listener_with_a_question(ASKED);
        let daemon = Foreground::start(linerated(&["-f", ASKED]).env("WG_UAPI_FD", handed(&listener)));
        drop(listener);
        assert_answered(&mut early);
        assert_answers(ASKED);
        assert!(link::index_of(ASKED).is_ok());
        daemon.terminate();
        assert_nothing_left(ASKED);
    });
}

#[test]
fn device_and_socket_may_both_be_handed_over() {
    in_namespaces(|| {
        let tun = TunDevice::create(HANDED, 1, TunOffloads::ALL).unwrap();
        let index = tun.ifindex();
        let (listener, mut early) = listener_with_a_question(HANDED);
        let mut command = linerated(&["-f", ASKED]);
        command.env("WG_TUN_FD", handed(&tun.queue_fd(0))).env("WG_UAPI_FD", handed(&listener));
        let daemon = Foreground::start(&mut command);
        drop((tun, listener));
        assert_answered(&mut early);
        assert_answers(HANDED);
        assert_eq!(link::index_of(HANDED).ok(), index);
        assert_nothing_left(ASKED);
        daemon.terminate();
        assert_nothing_left(HANDED);
    });
}

#[test]
fn a_daemon_in_the_background_has_the_descriptors_too_and_answers_when_its_starter_has_ended() {
    in_namespaces(|| {
        let tun = TunDevice::create(HANDED, 1, TunOffloads::ALL).unwrap();
        let index = tun.ifindex();
        let (listener, mut early) = listener_with_a_question(HANDED);
        let mut command = linerated(&[ASKED]);
        command.env("WG_TUN_FD", handed(&tun.queue_fd(0))).env("WG_UAPI_FD", handed(&listener));
        let started = command.output().unwrap();
        assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
        drop((tun, listener));
        assert_answered(&mut early);
        assert_answers(HANDED);
        assert_eq!(link::index_of(HANDED).ok(), index);
        assert_nothing_left(ASKED);
        let daemon = background_daemon();
        kill_process(daemon, Signal::TERM).unwrap();
        // We are the first process in here, to whom it fell when its starter ended.
        let (_, status) = waitpid(Some(daemon), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert_nothing_left(HANDED);
    });
}

#[test]
fn the_interface_is_in_the_network_handed_over_and_not_here() {
    in_namespaces(|| {
        let network = new_network();
        let mut daemon = Foreground::start(linerated(&["-f", ASKED]).env("LINERATE_NETWORK_FD", handed(&network)));
        daemon.wait_until_ready();
        assert_answers(ASKED);
        assert!(link::index_of(ASKED).is_err(), "it is here");
        assert!(network.inside(|| link::index_of(ASKED)).is_ok(), "it is not there");
        daemon.terminate();
        assert_nothing_left(ASKED);
        assert!(network.inside(|| link::index_of(ASKED)).is_err(), "it is still there");
    });
}

#[test]
fn it_ends_when_the_other_end_of_a_pipe_is_closed_also_in_the_background() {
    in_namespaces(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut daemon = Foreground::start(linerated(&["-f", ASKED]).env("LINERATE_END_FD", handed(&reader)));
        daemon.wait_until_ready();
        assert_answers(ASKED);
        drop(writer);
        assert!(daemon.log_of_its_end().contains("ended by LINERATE_END_FD"));
        assert_nothing_left(ASKED);

        let (reader, writer) = std::io::pipe().unwrap();
        let started = linerated(&[ASKED]).env("LINERATE_END_FD", handed(&reader)).output().unwrap();
        assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
        let daemon = background_daemon();
        drop(writer);
        let (_, status) = waitpid(Some(daemon), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert_nothing_left(ASKED);
    });
}

#[test]
fn descriptors_that_are_not_there_or_exclude_each_other_are_refused() {
    in_namespaces(|| {
        let network = new_network();
        let tun = TunDevice::create(HANDED, 1, TunOffloads::ALL).unwrap();
        let (network, tun) = (handed(&network), handed(&tun.queue_fd(0)));
        for (variables, words) in [
            (&[("LINERATE_END_FD", "900")][..], "LINERATE_END_FD=900 is not an inherited descriptor"),
            (&[("LINERATE_NETWORK_FD", "900")], "LINERATE_NETWORK_FD=900 is not an inherited descriptor"),
            (&[("LINERATE_NETWORK_FD", &tun)], "the network of LINERATE_NETWORK_FD: the TUN device failed at setns"),
            (&[("LINERATE_NETWORK_FD", &network), ("WG_TUN_FD", &tun)], "exclude each other"),
        ] {
            let said = linerated(&["-f", ASKED]).envs(variables.iter().copied()).output().unwrap();
            let stderr = String::from_utf8_lossy(&said.stderr);
            assert_eq!(said.status.code(), Some(1), "{variables:?}: {stderr}");
            assert!(stderr.contains(words) && stderr.lines().count() == 1, "{variables:?}: {stderr}");
            assert_nothing_left(ASKED);
        }
    });
}

#[test]
fn a_tap_device_handed_over_is_refused() {
    if let Some(reason) = missing(&["perl"]) {
        return skipped("a_tap_device_handed_over_is_refused", &reason);
    }
    in_namespaces(|| {
        // Perl because only `netio` may make the unsafe call, and it makes no tap devices.
        // 0x400454ca is TUNSETIFF, 0x1002 is IFF_TAP | IFF_NO_PI; $^F is the last descriptor that exec keeps.
        let hand_over = r#"
            $^F = 1000;
            open(my $tap, "+<", "/dev/net/tun") or die "open: $!";
            my $interface = pack("a16 s x22", "tap0", 0x1002);
            ioctl($tap, 0x400454ca, $interface) or die "TUNSETIFF: $!";
            $ENV{WG_TUN_FD} = fileno($tap);
            exec(@ARGV) or die "exec: $!";
        "#;
        for arguments in [&["-f", ASKED][..], &[ASKED]] {
            let mut perl = Command::new("perl");
            let said = without_settings(perl.args(["-e", hand_over, LINERATED]).args(arguments)).output().unwrap();
            let stderr = String::from_utf8_lossy(&said.stderr);
            assert_eq!(said.status.code(), Some(1), "{arguments:?}: {stderr}");
            assert!(stderr.starts_with("linerated: WG_TUN_FD="), "{arguments:?}: {stderr}");
            let reason = "its interface carries Ethernet frames (tap), not packets";
            assert!(stderr.contains(reason) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
            assert_nothing_left("tap0");
            assert_nothing_left(ASKED);
        }
    });
}

fn linerated(arguments: &[&str]) -> Command {
    let mut command = Command::new(LINERATED);
    without_settings(command.args(arguments).stdin(Stdio::null()));
    // A system call that is missing from its list shows.
    command.env("LINERATE_SECCOMP", "kill");
    command
}

/// Keeps what the daemon would read from the environment of whoever runs the tests away from it.
fn without_settings(command: &mut Command) -> &mut Command {
    for variable in
        ["LOG_LEVEL", "WG_PROCESS_FOREGROUND", "WG_TUN_FD", "WG_UAPI_FD", "LINERATE_NETWORK_FD", "LINERATE_END_FD"]
    {
        command.env_remove(variable);
    }
    command
}

/// Lets `fd` pass to the processes started from here on; answers its number, for the environment.
fn handed(fd: &impl AsFd) -> String {
    fcntl_setfd(fd.as_fd(), FdFlags::empty()).unwrap();
    fd.as_fd().as_raw_fd().to_string()
}

/// A daemon with -f and what it logs.
struct Foreground {
    process: Child,
    log: BufReader<ChildStderr>,
}

impl Foreground {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        Self { process, log }
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while !line.ends_with(" is ready\n") {
            eprint!("{line}");
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the daemon ended");
        }
    }

    fn terminate(self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let log = self.log_of_its_end();
        assert!(log.contains("ended by SIGTERM"), "{log}");
    }

    /// What it has logged when it has ended, as it should.
    fn log_of_its_end(mut self) -> String {
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{log}");
        log
    }
}

/// A network of its own, with nothing in it.
fn new_network() -> NetworkNamespace {
    let make = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        NetworkNamespace::current().unwrap()
    };
    std::thread::spawn(make).join().unwrap()
}

/// The only daemon that was started as `linerated` alone, which is what going to the background does.
fn background_daemon() -> Pid {
    let is_daemon =
        |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"linerated\0"));
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    let found: Vec<i32> = pids.filter(is_daemon).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    Pid::from_raw(found[0]).unwrap()
}

/// The socket of `interface`, listening, and a client that has asked already.
fn listener_with_a_question(interface: &str) -> (UnixListener, UnixStream) {
    let path = socket_of(interface);
    DirBuilder::new().mode(0o755).create(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let client = asking(interface);
    (listener, client)
}

fn asking(interface: &str) -> UnixStream {
    let mut client = UnixStream::connect(socket_of(interface)).unwrap();
    client.write_all(b"get=1\n\n").unwrap();
    client
}

fn assert_answers(interface: &str) {
    assert_answered(&mut asking(interface));
}

fn assert_answered(client: &mut UnixStream) {
    let mut reply = Vec::new();
    while !reply.ends_with(b"\n\n") {
        let mut piece = [0; 1000];
        let length = client.read(&mut piece).unwrap();
        assert_ne!(length, 0, "no more after {:?}", String::from_utf8_lossy(&reply));
        reply.extend_from_slice(&piece[..length]);
    }
    assert!(reply.ends_with(b"errno=0\n\n"), "{:?}", String::from_utf8_lossy(&reply));
}

fn assert_nothing_left(interface: &str) {
    assert!(link::index_of(interface).is_err(), "there is an interface {interface}");
    assert!(fs::symlink_metadata(socket_of(interface)).is_err(), "there is a socket of {interface}");
}

fn socket_of(interface: &str) -> PathBuf {
    socket::path(Path::new(socket::DIRECTORY), &interface.parse().unwrap())
}
