//! A daemon that does nothing but talk: it answers what it is told to, and keeps what it was asked.
//!
//!     uapi-mock FOLDER NAME...
//!
//! serves /var/run/wireguard/NAME.sock for each NAME until it is killed, and says `ready` when it does.
//! `get` is answered with FOLDER/NAME.get, or where there is no such file with what was set; a `set` is appended to
//! FOLDER/NAME.asked and answered with FOLDER/NAME.set, or with success where there is no such file. It hangs up after
//! an answer that has no end.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs, thread};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_default());
    let directory = Path::new("/var/run/wireguard");
    fs::create_dir_all(directory)?;
    let mut servers = Vec::new();
    for name in arguments {
        let listener = UnixListener::bind(directory.join(format!("{name}.sock")))?;
        let folder = folder.clone();
        servers.push(thread::spawn(move || serve(&listener, &folder, &name)));
    }
    println!("ready");
    for server in servers {
        server.join().map_err(|_| io::Error::other("a server ended"))??;
    }
    Ok(())
}

fn serve(listener: &UnixListener, folder: &Path, name: &str) -> io::Result<()> {
    let device = Mutex::new(Device::default());
    thread::scope(|scope| {
        for client in listener.incoming() {
            let (client, device) = (client?, &device);
            // A client that hangs up in the middle has its reasons.
            scope.spawn(move || converse(&client, folder, name, device).unwrap_or_default());
        }
        Ok(())
    })
}

fn converse(client: &UnixStream, folder: &Path, name: &str, device: &Mutex<Device>) -> io::Result<()> {
    let file = |kind| folder.join(format!("{name}.{kind}"));
    let (mut lines, mut writer) = (BufReader::new(client), client);
    loop {
        let mut request = String::new();
        while !request.ends_with("\n\n") {
            if lines.read_line(&mut request)? == 0 {
                return Ok(());
            }
        }
        let mut device = device.lock().map_err(|_| io::Error::other("a conversation ended"))?;
        let answer = if request == "get=1\n\n" {
            fs::read(file("get")).unwrap_or_else(|_| device.text().into_bytes())
        } else {
            fs::OpenOptions::new().create(true).append(true).open(file("asked"))?.write_all(request.as_bytes())?;
            device.set(&request);
            fs::read(file("set")).unwrap_or_else(|_| b"errno=0\n\n".to_vec())
        };
        drop(device);
        writer.write_all(&answer)?;
        if !answer.ends_with(b"\n\n") {
            return Ok(());
        }
    }
}

/// What was set: settings as they were written, of the device and then of its peers.
#[derive(Default)]
struct Device {
    settings: Settings,
    peers: Vec<Peer>,
}

type Settings = Vec<(String, String)>;

struct Peer {
    key: String,
    settings: Settings,
    allowed_ips: Vec<String>,
}

impl Device {
    fn set(&mut self, request: &str) {
        let mut peer = None;
        for (key, value) in request.lines().filter_map(|line| line.split_once('=')) {
            match (key, peer) {
                ("set" | "update_only" | "protocol_version", _) => {}
                ("replace_peers", _) => self.peers.clear(),
                ("public_key", _) => peer = Some(self.index_of(value)),
                (_, None) => replace(&mut self.settings, key, value),
                ("remove", Some(index)) => {
                    self.peers.remove(index);
                    peer = None;
                }
                ("replace_allowed_ips", Some(index)) => self.peers[index].allowed_ips.clear(),
                ("allowed_ip", Some(index)) => {
                    self.peers.iter_mut().for_each(|peer| peer.allowed_ips.retain(|there| there != value));
                    self.peers[index].allowed_ips.push(value.to_owned());
                }
                (_, Some(index)) => replace(&mut self.peers[index].settings, key, value),
            }
        }
    }

    fn index_of(&mut self, key: &str) -> usize {
        self.peers.iter().position(|peer| peer.key == key).unwrap_or_else(|| {
            self.peers.push(Peer { key: key.to_owned(), settings: Settings::new(), allowed_ips: Vec::new() });
            self.peers.len() - 1
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: &str| writeln!(text, "{key}={value}").unwrap_or_default();
        self.settings.iter().for_each(|(key, value)| line(key, value));
        for peer in &self.peers {
            line("public_key", &peer.key);
            peer.settings.iter().for_each(|(key, value)| line(key, value));
            peer.allowed_ips.iter().for_each(|net| line("allowed_ip", net));
        }
        text + "errno=0\n\n"
    }
}

fn replace(settings: &mut Settings, key: &str, value: &str) {
    settings.retain(|(there, _)| there != key);
    settings.push((key.to_owned(), value.to_owned()));
}
