//! Any bytes as the files and tables of another tool: an importer refuses them with words, or makes a server whose
//! clients have valid, distinct names, and whose file has no line that it should not have.
//!
//! The first byte is the kind. Each part after a 0x1c is a file, its path in the first line, or a table of a database,
//! its name there after `#`.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::zeroizing::Buffer;
use linerate_server::import::{self, Context, Input, InputFile, InputTable, Kind, Options, leftovers};

pub fn check(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else { return };
    let input = parts(rest);
    let chosen = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    for kind in [Some(chosen), import::recognise(&input).ok()].into_iter().flatten() {
        let context = Context {
            public_key: &public_key,
            input_is_closed: false,
            forward_is_closed: false,
            uplinks: &[],
            networks: &[],
        };
        match import::read(kind, &input, &context) {
            Ok(import) => imported(import, &input),
            Err(error) => assert!(!error.to_string().trim().is_empty()),
        }
    }
}

fn imported(mut import: import::Import, input: &Input) {
    let names: HashSet<String> = import.clients.iter().map(|client| client.name.to_lowercase()).collect();
    assert_eq!(names.len(), import.clients.len(), "two clients have one name");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    for name in &names {
        assert!((1..=15).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with(['-', '.']));
    }
    if import.endpoint.is_none() {
        import.endpoint = "vpn.example.com".parse().ok();
    }
    let Ok(interface) = "wg0".parse() else { return };
    let Ok(bytes) = import.to_bytes(&interface, &Options { now: UNIX_EPOCH, keep_keys: true, fix_firewall: true })
    else {
        return;
    };
    let text = std::str::from_utf8(&bytes).expect("it is text");
    let sections = text.lines().filter(|line| line.trim_start_matches("#~ ").starts_with('[')).count();
    assert_eq!(sections, 1 + import.clients.len(), "a value has made a section");
    let hooks = ["PreUp", "PostUp", "PreDown", "PostDown"];
    let commands = text.lines().filter(|line| hooks.iter().any(|hook| line.starts_with(hook))).count();
    assert_eq!(commands, import.hooks.len(), "a value has made a command");
    for leftover in leftovers::find(&import, input, &[], false) {
        assert!(leftover.commands.iter().all(|command| !command.contains('\n')));
    }
}

fn parts(bytes: &[u8]) -> Input {
    let mut input = Input::default();
    for part in bytes.split(|&byte| byte == 0x1c).skip(1) {
        let end = part.iter().position(|&byte| byte == b'\n').unwrap_or(part.len());
        let path = String::from_utf8_lossy(&part[..end]).into_owned();
        let mut content = Buffer::new();
        content.extend(part.get(end + 1..).unwrap_or_default());
        match path.strip_prefix('#') {
            Some(name) => {
                input.tables.push(InputTable { database: "a.db".to_owned(), name: name.to_owned(), rows: content });
            }
            None => input.files.push(InputFile { path, bytes: content }),
        }
    }
    input
}

fn public_key(secret: &SecretKey) -> PublicKey {
    let mut bytes = *secret.as_bytes();
    bytes[31] |= 64;
    linerate_protocol::PrivateKey::new(&bytes).map_or(PublicKey([0; 32]), |key| PublicKey(key.public_key().0))
}
