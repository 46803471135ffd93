//! What the daemon can do no more once it has given up its privileges, tried from inside.
//!
//! A program of its own, because privileges are a thread's and the test harness has several. It starts itself again
//! for each case; that child gives up what the daemon does, by the same function, and then tries. Needs root.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use linerate_netio::attempts;
use linerate_privileges::filter::Filter;
use linerate_privileges::user::User;
use linerate_privileges::{Wanted, give_up, give_up_as_resolver};
use rustix::net::ipproto::ICMP;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, getppid, getuid, kill_process, test_kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_uid};

/// In a child: the filter, the user and what to try, separated by commas.
const CASE: &str = "LINERATE_PRIVILEGES_CASE";

/// In a child: the directory that the socket is in.
const SOCKETS: &str = "LINERATE_PRIVILEGES_SOCKETS";

/// Has a child make every attempt.
const ALL: &str = "all";

/// Has a child give up what a process does that looks names up.
const RESOLVER: &str = "resolver";

/// What a child says that cannot try.
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
        return println!("skip: what a daemon gives up: giving up privileges takes root");
    }
    for (name, law) in LAWS {
        match law() {
            Outcome::Holds => println!("ok: {name}"),
            Outcome::Unknown(why) => println!("skip: {name}: {why}"),
        }
    }
}

/// What became of a law that was not broken, which ends the program.
enum Outcome {
    Holds,
    /// It could not be tried.
    Unknown(&'static str),
}

const NO_LANDLOCK: Outcome = Outcome::Unknown("this kernel has no Landlock");

type Law = fn() -> Outcome;

const LAWS: [(&str, Law); 8] = [
    ("an attempt that nothing refuses fails for another reason or succeeds", attempts_need_refusing),
    ("every attempt is refused and counted", every_attempt_is_refused_and_counted),
    ("every attempt ends the process if that is asked for", every_attempt_kills),
    ("files, programs, TCP and other processes are closed without a filter, too", layers_stand_alone),
    ("another user cannot become root again", user_is_final),
    ("what the daemon does goes on working", work_goes_on),
    ("the resolver changes, runs and signals nothing", resolvers_change_nothing),
    ("a panic, which aborts in release builds, ends the process as that", aborts_end_as_aborts),
];

fn attempts_need_refusing() -> Outcome {
    // Some are refused to root as well, where a container or another module of the kernel says so.
    let sure = ["read /etc/passwd", "open memory", "make a TCP socket", "make executable memory", "connect a socket"];
    for name in sure {
        let answer = attempts::attempt(name).map_err(|error| error.raw_os_error());
        assert!(!matches!(answer, Err(Some(EPERM | EACCES))), "{name}: {answer:?}");
    }
    Outcome::Holds
}

fn every_attempt_is_refused_and_counted() -> Outcome {
    for user in ["", "nobody"] {
        let (status, said) = run("refuse", user, ALL);
        assert!(status.success(), "{said:?}");
        let (count, answers) = said.split_last().unwrap();
        let refused = [Some(EPERM), Some(EACCES)].map(|errno| format!("{errno:?}"));
        for (answer, name) in answers.iter().zip(attempts::names()) {
            let (tried, errno) = answer.split_once(": ").unwrap();
            assert_eq!(tried, name);
            assert!(refused.iter().any(|known| known == errno), "{answer}");
        }
        assert_eq!(answers.len(), attempts::names().count());
        assert_eq!(count, &format!("refused {}", answers.len()));
    }
    Outcome::Holds
}

fn every_attempt_kills() -> Outcome {
    for name in attempts::names() {
        let (status, said) = run("kill", "", name);
        assert_eq!(status.signal(), Some(SIGSYS), "{name}: {status} {said:?}");
    }
    Outcome::Holds
}

fn layers_stand_alone() -> Outcome {
    let (status, said) = run("off", "", "layers");
    assert!(status.success(), "{said:?}");
    if said == [UNKNOWN] { NO_LANDLOCK } else { Outcome::Holds }
}

fn user_is_final() -> Outcome {
    let (status, said) = run("off", "nobody", "user");
    assert!(status.success(), "{said:?}");
    Outcome::Holds
}

fn work_goes_on() -> Outcome {
    for user in ["", "nobody"] {
        let (status, said) = run("kill", user, "work");
        assert!(status.success(), "{status} {said:?}");
        if said == [UNKNOWN] {
            return NO_LANDLOCK;
        }
    }
    Outcome::Holds
}

fn resolvers_change_nothing() -> Outcome {
    let (status, said) = run("off", "", RESOLVER);
    assert!(status.success(), "{status} {said:?}");
    if said == [UNKNOWN] { NO_LANDLOCK } else { Outcome::Holds }
}

fn aborts_end_as_aborts() -> Outcome {
    let (status, said) = run("kill", "", "abort");
    assert_eq!(status.signal(), Some(SIGABRT), "{status} {said:?}");
    Outcome::Holds
}

/// Runs a child, and answers how it ended and the lines that it wrote.
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
    let surroundings = Surroundings::new(&sockets);
    if what == RESOLVER {
        return match give_up_as_resolver() {
            0 => println!("{UNKNOWN}"),
            _ => {
                user_is_no_root();
                surroundings.are_read_only();
            }
        };
    }
    let in_force = give_up(&Wanted { user: user.as_ref(), filter, sockets: &sockets }).unwrap();
    let counter = |name| in_force.counters().into_iter().find(|(known, _)| known == name).unwrap().1;
    let has_landlock = counter("landlock_version") > 0;
    match what {
        ALL => {
            for name in attempts::names() {
                let answer = attempts::attempt(name).map_err(|error| error.raw_os_error());
                println!("{name}: {:?}", answer.err().flatten());
            }
            println!("refused {}", counter("system_calls_refused"));
        }
        "layers" | "work" if !has_landlock => println!("{UNKNOWN}"),
        "layers" => surroundings.are_closed(),
        "user" => user_is_no_root(),
        "work" => surroundings.serve(),
        "abort" => std::process::abort(),
        name => drop(attempts::attempt(name)),
    }
}

/// What is there before privileges are given up.
struct Surroundings {
    sockets: PathBuf,
    listener: UnixListener,
    network: File,
}

impl Surroundings {
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
        // Nobody listens there; whether that is found out is another matter than in the file system.
        assert!(UnixStream::connect_addr(&another).is_err());
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
        refused("become another user", set_thread_uid(rustix::process::Uid::from_raw(1)).map_err(io::Error::from));
        fs::read("/etc/passwd").unwrap();
        // A daemon tells its keys to root alone.
        refused("ask a daemon", UnixStream::connect(self.sockets.join("wg0.sock")));
        UdpSocket::bind("127.0.0.1:0").unwrap();
    }

    /// What a daemon does: threads, sockets, a visit to a network namespace, clients, and the removal of its file.
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

fn user_is_no_root() {
    assert!(!getuid().is_root());
    refused("become root", set_thread_uid(rustix::process::Uid::ROOT).map_err(io::Error::from));
}

fn refused<T>(what: &str, done: io::Result<T>) {
    let error = done.err().unwrap_or_else(|| panic!("{what}: it was not refused"));
    assert!(matches!(error.raw_os_error(), Some(EPERM | EACCES)), "{what}: {error}");
}

/// An empty directory of root's, removed with what is in it.
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
