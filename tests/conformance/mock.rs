//! A daemon that does nothing but talk: it answers what it is told to, and keeps what it was asked.
//!
//!     uapi-mock FOLDER NAME...
//!
//! serves /var/run/wireguard/NAME.sock for each NAME until it is killed, and says `ready` when it does.
//! `get` is answered with FOLDER/NAME.get; a `set` is appended to FOLDER/NAME.asked and answered with
//! FOLDER/NAME.set, or with success where there is no such file. It hangs up after an
//! answer that has no end.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
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
    for client in listener.incoming() {
        // A client that hangs up in the middle has its reasons.
        let _ = converse(&client?, folder, name);
    }
    Ok(())
}

fn converse(client: &UnixStream, folder: &Path, name: &str) -> io::Result<()> {
    let file = |kind| folder.join(format!("{name}.{kind}"));
    let (mut lines, mut writer) = (BufReader::new(client), client);
    loop {
        let mut request = String::new();
        while !request.ends_with("\n\n") {
            if lines.read_line(&mut request)? == 0 {
                return Ok(());
            }
        }
        let answer = if request == "get=1\n\n" {
            fs::read(file("get"))?
        } else {
            fs::OpenOptions::new().create(true).append(true).open(file("asked"))?.write_all(request.as_bytes())?;
            fs::read(file("set")).unwrap_or_else(|_| b"errno=0\n\n".to_vec())
        };
        writer.write_all(&answer)?;
        if !answer.ends_with(b"\n\n") {
            return Ok(());
        }
    }
}
