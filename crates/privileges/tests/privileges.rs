//! Tries, from inside a confined process, what it must not be able to do.
//!
//! Without the test harness, because privileges belong to a thread and the harness has several. The program starts
//! itself again for each case; the child confines itself with the function that the daemon uses, and then tries.
//! Needs root.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use linerate_netio::forbidden_calls;
use linerate_privileges::filter::Filter;
use linerate_privileges::user::User;
use linerate_privileges::{Confinement, ProxyConfinement, confine_daemon, confine_proxy, confine_reader};
use rustix::net::ipproto::ICMP;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Gid, Pid, Signal, Uid, getppid, getuid, kill_process, test_kill_process};
use rustix::thread::{
    LinkNameSpaceType, capabilities, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid, set_thread_uid,
};

/// In a child: the filter, the user and what to try, separated by commas.
const CASE: &str = "LINERATE_PRIVILEGES_CASE";

/// In a child: the directory that the socket is in.
const SOCKETS: &str = "LINERATE_PRIVILEGES_SOCKETS";

/// Tells a child to make every attempt.
const ALL: &str = "all";

/// Tells a child to confine itself as the resolver does.
const RESOLVER: &str = "resolver";

/// Tells a child to confine itself as the proxy does.
const PROXY: &str = "proxy:";

/// What the proxy may do and the daemon may not.
const OF_PROXY: [&str; 3] = ["make a TCP socket", "connect a socket", "make a ping socket"];

/// Printed by a child that cannot run the case.
const UNKNOWN: &str = "no Landlock";

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const SIGABRT: i32 = 6;
const SIGSYS: i32 = 31;

fn main() {
    if let Ok(case) = std::env::var(CASE) {
        return child(&case);
    }
    if !getuid().is_root() {
        return println!("skipped: confinement of a daemon: needs root");
    }
    // Set by tests/emulated.
    if std::env::var_os("LINERATE_TEST_EMULATOR").is_some() {
        return println!("skipped: confinement of a daemon: the emulator has no seccomp");
    }
    for (name, check) in CHECKS {
        match check() {
            Outcome::Holds => println!("ok: {name}"),
            Outcome::Unknown(why) => println!("skipped: {name}: {why}"),
        }
    }
}

/// Result of a check that did not fail (a failure aborts).
enum Outcome {
    Holds,
    /// The case could not be run.
    Unknown(&'static str),
}

const NO_LANDLOCK: Outcome = Outcome::Unknown("this kernel has no Landlock");

type Check = fn() -> Outcome;

const CHECKS: [(&str, Check); 12] = [
    ("unconfined, each attempt succeeds or fails for another reason", unconfined_attempts_are_not_refused),
    ("every attempt is refused and counted", every_attempt_is_refused_and_counted),
    ("with `kill`, every attempt ends the process", every_attempt_kills),
    ("without the filter, files, programs, TCP and other processes are still refused", other_layers_still_refuse),
    ("another user cannot become root again", user_is_final),
    ("the daemon's own operations still work", operations_still_work),
    ("the resolver cannot write, execute or signal", resolver_is_read_only),
    ("a panic ends the process with SIGABRT", aborts_end_with_sigabrt),
    ("every attempt of a proxy is refused", every_attempt_of_a_proxy_is_refused),
    ("with `kill`, every attempt of a proxy ends the process", every_attempt_of_a_proxy_kills),
    (
        "without the filter, a proxy has no files, programs, servers and capabilities",
        other_layers_of_a_proxy_still_refuse,
    ),
    ("the proxy's own operations still work", operations_of_a_proxy_still_work),
];

fn unconfined_attempts_are_not_refused() -> Outcome {
    // Only those that containers and other security modules do not refuse.
    let sure = ["read /etc/passwd", "open memory", "make a TCP socket", "make executable memory", "connect a socket"];
    for name in sure {
        let answer = forbidden_calls::make(name).map_err(|error| error.raw_os_error());
        assert!(!matches!(answer, Err(Some(EPERM | EACCES))), "{name}: {answer:?}");
    }
    Outcome::Holds
}

fn every_attempt_is_refused_and_counted() -> Outcome {
    for user in ["", "nobody"] {
        let (status, lines) = run("refuse", user, ALL);
        assert!(status.success(), "{lines:?}");
        let (count, answers) = lines.split_last().unwrap();
        let refused = [Some(EPERM), Some(EACCES)].map(|errno| format!("{errno:?}"));
        for (answer, name) in answers.iter().zip(forbidden_calls::names()) {
            let (tried, errno) = answer.split_once(": ").unwrap();
            assert_eq!(tried, name);
            assert!(refused.iter().any(|known| known == errno), "{answer}");
        }
        assert_eq!(answers.len(), forbidden_calls::names().count());
        assert_eq!(count, &format!("refused {}", answers.len()));
    }
    Outcome::Holds
}

fn every_attempt_kills() -> Outcome {
    for name in forbidden_calls::names() {
        let (status, lines) = run("kill", "", name);
        assert_eq!(status.signal(), Some(SIGSYS), "{name}: {status} {lines:?}");
    }
    Outcome::Holds
}

fn other_layers_still_refuse() -> Outcome {
    let (status, lines) = run("off", "", "layers");
    assert!(status.success(), "{lines:?}");
    if lines == [UNKNOWN] { NO_LANDLOCK } else { Outcome::Holds }
}

fn user_is_final() -> Outcome {
    let (status, lines) = run("off", "nobody", "user");
    assert!(status.success(), "{lines:?}");
    Outcome::Holds
}

fn operations_still_work() -> Outcome {
    for user in ["", "nobody"] {
        let (status, lines) = run("kill", user, "work");
        assert!(status.success(), "{status} {lines:?}");
        if lines == [UNKNOWN] {
            return NO_LANDLOCK;
        }
    }
    Outcome::Holds
}

fn resolver_is_read_only() -> Outcome {
    let (status, lines) = run("off", "", RESOLVER);
    assert!(status.success(), "{status} {lines:?}");
    if lines == [UNKNOWN] { NO_LANDLOCK } else { Outcome::Holds }
}

fn aborts_end_with_sigabrt() -> Outcome {
    let (status, lines) = run("kill", "", "abort");
    assert_eq!(status.signal(), Some(SIGABRT), "{status} {lines:?}");
    Outcome::Holds
}

/// What a proxy, as root or as an ordinary user, must not do.
fn refused_to_a_proxy() -> impl Iterator<Item = &'static str> {
    forbidden_calls::names().filter(|name| !OF_PROXY.contains(name))
}

fn every_attempt_of_a_proxy_is_refused() -> Outcome {
    for user in ["", "nobody"] {
        let (status, answers) = run("refuse", user, &format!("{PROXY}{ALL}"));
        assert!(status.success(), "{answers:?}");
        let expected = refused_to_a_proxy().map(|name| format!("{name}: refused"));
        assert_eq!(answers, expected.collect::<Vec<_>>());
    }
    Outcome::Holds
}

fn every_attempt_of_a_proxy_kills() -> Outcome {
    for name in refused_to_a_proxy() {
        let (status, lines) = run("kill", "nobody", &format!("{PROXY}{name}"));
        assert_eq!(status.signal(), Some(SIGSYS), "{name}: {status} {lines:?}");
    }
    Outcome::Holds
}

fn other_layers_of_a_proxy_still_refuse() -> Outcome {
    let (status, lines) = run("off", "", &format!("{PROXY}layers"));
    assert!(status.success(), "{lines:?}");
    if lines == [UNKNOWN] { NO_LANDLOCK } else { Outcome::Holds }
}

fn operations_of_a_proxy_still_work() -> Outcome {
    for user in ["", "nobody"] {
        let (status, lines) = run("kill", user, &format!("{PROXY}work"));
        assert!(status.success(), "{user}: {status} {lines:?}");
    }
    Outcome::Holds
}

/// Runs a child; returns its status and the lines that it printed.
fn run(filter: &str, user: &str, what: &str) -> (ExitStatus, Vec<String>) {
    let sockets = Directory::new();
    let output = Command::new(std::env::current_exe().unwrap())
        .env(CASE, [filter, user, what].join(","))
        .env(SOCKETS, &sockets.0)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    (output.status, output.stdout.lines().map(Result::unwrap).collect())
}

fn child(case: &str) {
    let [filter, user, what] = case.split(',').collect::<Vec<_>>().try_into().unwrap();
    let filter = match filter {
        "refuse" => Filter::Refuse,
        "kill" => Filter::Kill,
        _ => Filter::Off,
    };
    let sockets = PathBuf::from(std::env::var_os(SOCKETS).unwrap());
    let user = (!user.is_empty()).then(|| User::find(user).unwrap());
    let environment = Environment::new(&sockets);
    if let Some(what) = what.strip_prefix(PROXY) {
        return proxy_child(filter, user.as_ref(), what, &environment);
    }
    if what == RESOLVER {
        return match confine_reader() {
            0 => println!("{UNKNOWN}"),
            _ => {
                user_is_not_root();
                environment.are_read_only();
            }
        };
    }
    let requested = Confinement { user: user.as_ref(), filter, socket_directory: &sockets, enters_network: false };
    let in_force = confine_daemon(&requested).unwrap();
    let counter = |name| in_force.counters().into_iter().find(|(known, _)| known == name).unwrap().1;
    let has_landlock = counter("landlock_version") > 0;
    match what {
        ALL => {
            for name in forbidden_calls::names() {
                let answer = forbidden_calls::make(name).map_err(|error| error.raw_os_error());
                println!("{name}: {:?}", answer.err().flatten());
            }
            println!("refused {}", counter("system_calls_refused"));
        }
        "layers" | "work" if !has_landlock => println!("{UNKNOWN}"),
        "layers" => environment.are_closed(),
        "user" => user_is_not_root(),
        "work" => environment.serve(),
        "abort" => std::process::abort(),
        name => drop(forbidden_calls::make(name)),
    }
}

fn proxy_child(filter: Filter, user: Option<&User>, what: &str, environment: &Environment) {
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.gid()));
        set_thread_groups(&[]).and_then(|()| set_thread_res_gid(gid, gid, gid)).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
    }
    let clients = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_force = confine_proxy(&ProxyConfinement { filter, connects: what != "layers" });
    let has_landlock = in_force.counters().into_iter().any(|(name, value)| name == "landlock_version" && value > 0);
    match what {
        ALL => {
            for name in refused_to_a_proxy() {
                let errno = forbidden_calls::make(name).err().and_then(|error| error.raw_os_error());
                println!("{name}: {}", if matches!(errno, Some(EPERM | EACCES)) { "refused" } else { "not refused" });
            }
        }
        "layers" if !has_landlock => println!("{UNKNOWN}"),
        "layers" => {
            environment.has_no_more_than_sockets();
            assert!(File::open("/etc/passwd").is_err());
            assert!(capabilities(None).unwrap().permitted.is_empty());
        }
        "work" => {
            assert_eq!(in_force.missing, [""; 0]);
            environment.pass_on(&clients);
        }
        name => drop(forbidden_calls::make(name)),
    }
}

/// What exists before the process confines itself.
struct Environment {
    sockets: PathBuf,
    listener: UnixListener,
    network: File,
}

impl Environment {
    fn new(sockets: &Path) -> Self {
        let listener = UnixListener::bind(sockets.join("wg0.sock")).unwrap();
        fs::write(sockets.join("wg0.name"), "").unwrap();
        Self { sockets: sockets.to_owned(), listener, network: File::open("/proc/self/ns/net").unwrap() }
    }

    fn are_closed(&self) {
        refused("read a file", File::open("/etc/passwd"));
        refused("read a directory", fs::read_dir("/etc"));
        refused("make a file", File::create(self.sockets.join("new")));
        refused("make a directory", fs::create_dir(self.sockets.join("new")));
        refused("rename a file", fs::rename(self.sockets.join("wg0.name"), "/tmp/wg0.name"));
        refused("remove a file elsewhere", fs::remove_file("/tmp"));
        refused("run a program", Command::new("/bin/true").spawn());
        refused("connect by TCP", TcpStream::connect("127.0.0.1:9"));
        let parent = getppid().unwrap();
        refused("signal another process", test_kill_process(parent).map_err(io::Error::from));
        let init = Pid::from_raw(1).unwrap();
        refused("kill another process", kill_process(init, Signal::CONT).map_err(io::Error::from));
        let another = SocketAddr::from_abstract_name("linerate-privileges-test").unwrap();
        // Nobody listens there, so it fails with or without the restriction; the errno differs by kernel.
        assert!(UnixStream::connect_addr(&another).is_err());
    }

    fn has_no_more_than_sockets(&self) {
        refused("write to a file", fs::write(self.sockets.join("wg0.name"), "text"));
        refused("make a directory", fs::create_dir(self.sockets.join("new")));
        refused("remove a file", fs::remove_file(self.sockets.join("wg0.name")));
        refused("run a program", Command::new("/bin/true").spawn());
        refused("connect by TCP", TcpStream::connect("127.0.0.1:9"));
        refused("serve by TCP", TcpListener::bind("127.0.0.1:0"));
        refused("signal another process", test_kill_process(getppid().unwrap()).map_err(io::Error::from));
        refused("become another user", set_thread_uid(Uid::from_raw(1)).map_err(io::Error::from));
    }

    /// Does what a proxy does: takes in a client, connects, and passes bytes on; pings; threads that come later.
    fn pass_on(&self, clients: &TcpListener) {
        let passed = thread::spawn({
            let address = clients.local_addr().unwrap();
            move || {
                let mut target = TcpStream::connect(address).unwrap();
                target.set_nodelay(true).unwrap();
                target.set_nonblocking(false).unwrap();
                target.write_all(b"bytes").unwrap();
                target.shutdown(Shutdown::Write).unwrap();
            }
        });
        let mut bytes = Vec::new();
        clients.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        passed.join().unwrap();
        assert_eq!(bytes, b"bytes");
        UdpSocket::bind("127.0.0.1:0").unwrap();
        // Who may ask is another question (net.ipv4.ping_group_range).
        drop(rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ICMP)));
    }

    fn are_read_only(&self) {
        refused("make a file", File::create(self.sockets.join("new")));
        refused("write to a file", fs::write(self.sockets.join("wg0.name"), "text"));
        refused("make a directory", fs::create_dir(self.sockets.join("new")));
        refused("remove a file", fs::remove_file(self.sockets.join("wg0.name")));
        refused("run a program", Command::new("/bin/true").spawn());
        refused(
            "open a raw socket",
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ICMP)).map_err(io::Error::from),
        );
        refused("become another user", set_thread_uid(Uid::from_raw(1)).map_err(io::Error::from));
        fs::read("/etc/passwd").unwrap();
        // A daemon reveals its keys to root only.
        refused("connect to a daemon", UnixStream::connect(self.sockets.join("wg0.sock")));
        UdpSocket::bind("127.0.0.1:0").unwrap();
    }

    /// Does what a daemon does: threads, entering a network namespace, sockets, clients, and removing its socket file.
    fn serve(&self) {
        thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(rustix::fd::AsFd::as_fd(&self.network), network).unwrap();
                vec![1; 1 << 20].len()
            });
            assert_eq!(visitor.join().unwrap(), 1 << 20);
        });
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"datagram", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 8);
        self.listener.set_nonblocking(true).unwrap();
        assert_eq!(self.listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fs::remove_file(self.sockets.join("wg0.sock")).unwrap();
    }
}

fn user_is_not_root() {
    assert!(!getuid().is_root());
    refused("become root", set_thread_uid(Uid::ROOT).map_err(io::Error::from));
}

fn refused<T>(what: &str, done: io::Result<T>) {
    let error = done.err().unwrap_or_else(|| panic!("{what}: it was not refused"));
    assert!(matches!(error.raw_os_error(), Some(EPERM | EACCES)), "{what}: {error}");
}

/// An empty directory that belongs to root; removed with its content.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("linerate-privileges-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
