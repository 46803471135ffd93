//! `commit`: what `linerate_tunnel::edit` asks before it replaces the file of a tunnel in a fleet.
//!
//! Standard input is a line with two numbers, the lengths in bytes of the old and of the new file, and then both. The exit
//! code is 0 if the store has the new peers (or, for two files that are the same, these), 75 (`EX_TEMPFAIL`) if somebody else
//! was faster and the file has to follow first, 76 if a part of a large change was done, and another one if nothing was changed.

use std::io::Read;
use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::TunnelFile;
use linerate_control::zeroizing::Buffer;
use linerate_tunnel::System;

use crate::edit::{self, Edit, Progress};
use crate::local::{self, Fleet};
use crate::peers::{self, Sections};
use crate::seal::Seal;
use crate::store::layout::Key;
use crate::store::{KeyValue, StoreError, Transaction};

/// The exit code if the file has to follow first.
pub const OUTDATED: u8 = 75;

/// The exit code if a part was done, and the rest cannot be.
pub const PARTLY: u8 = 76;

/// The longest file in bytes.
const FILE_MAX: usize = 1 << 30;

/// Commits what standard input says.
///
/// # Errors
/// Nothing was changed.
pub async fn run(interface: &InterfaceName) -> Result<ExitCode, String> {
    let (old, new) = read(&mut std::io::stdin().lock())?;
    let is_same = old[..] == new[..];
    let [old, new] = [old, new].map(|text| Document::of(text.into()));
    let name = TunnelFile::read(&old, interface, &System).0.fleet;
    let Some(name) = name else { return Ok(ExitCode::SUCCESS) };
    let (from, to) = (peers::sections(&old, interface)?, peers::sections(&new, interface)?);
    // Settings of the interface are this gateway's own.
    if from == to && !is_same {
        return Ok(ExitCode::SUCCESS);
    }
    let fleet = Fleet::open(Some(&name))?;
    let (_, key) = fleet.tunnel()?;
    let seal = Seal::new(&key, &name);
    let Some((next, known)) = known(&fleet, &seal, &from, interface).await? else {
        return Ok(ExitCode::from(OUTDATED));
    };
    if is_same {
        return Ok(ExitCode::SUCCESS);
    }
    let edit_name = edit::name()?;
    let edit = Edit { keys: &fleet.keys, seal: &seal, interface, name: &edit_name };
    let parts = edit.parts((&from, &to), &next, |key| known.get(&key.to_hex()).copied())?;
    let mut progress = Progress::new(&fleet.keys, &seal, parts, &next);
    while let Some(transaction) = progress.transaction() {
        match send(&fleet, &transaction, &mut progress).await {
            Ok(true) => {}
            Ok(false) if !progress.has_begun() => return Ok(ExitCode::from(OUTDATED)),
            Ok(false) => return Ok(partly(&progress, interface, "somebody else changed peers at the same time")),
            Err(why) if !progress.has_begun() => return Err(why),
            Err(why) => return Ok(partly(&progress, interface, &why)),
        }
    }
    // The service is still to hear of it: until then it must not make the file what it was before.
    if let Err(why) = local::save_committed(&name, progress.revision()) {
        eprint_line(&format!("Warning: the file of {interface} may be set back for a moment: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Does one transaction of the edit. False if somebody else was faster.
async fn send(fleet: &Fleet, transaction: &Transaction, progress: &mut Progress<'_>) -> Result<bool, String> {
    match fleet.client.transact(transaction).await {
        Ok(outcome) => Ok(progress.takes(&outcome)),
        Err(error @ StoreError::Silent(_)) => match fleet.client.get(&fleet.keys.next()).await {
            // It was done, and the answer was lost.
            Ok((_, Some(next))) if progress.takes_found(&next) => Ok(true),
            Ok(_) => Err(error.to_string()),
            Err(_) => Err(format!("{error} If it has taken the change all the same, the file will follow")),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Says how far an edit has come that cannot go on.
fn partly(progress: &Progress<'_>, interface: &InterfaceName, why: &str) -> ExitCode {
    eprint_line(&format!(
        "{}: {}. The file of {interface} gets what is done from `linerate fleet run', and every gateway has it; then make the \
         rest of the change again",
        progress.told(),
        why.trim_end_matches('.')
    ));
    ExitCode::from(PARTLY)
}

/// `next`, and the peers' numbers, if the store has the peers that the file has.
async fn known(
    fleet: &Fleet,
    seal: &Seal,
    from: &Sections,
    interface: &InterfaceName,
) -> Result<Option<(KeyValue, std::collections::BTreeMap<String, u32>)>, String> {
    let said = |error: StoreError| error.to_string();
    let missing = || format!("the store has no fleet {} (any more): restore it, or `linerate fleet init'", fleet.name);
    // What the service has brought the file up to, usually: then nothing is read but `next`.
    if let Some(saved) = fleet.saved()?.filter(|saved| saved.digest == peers::digest(from)) {
        let next = fleet.client.get(&fleet.keys.next()).await.map_err(said)?.1.ok_or_else(missing)?;
        return Ok((next.modified <= saved.revision).then_some((next, saved.numbers)));
    }
    let (_, all) = fleet.client.list(fleet.keys.all()).await.map_err(said)?;
    let (mut next, mut peers, mut numbers) = (None, Sections::new(), std::collections::BTreeMap::new());
    for kv in all {
        match fleet.keys.read(&kv.key) {
            Key::Next => next = Some(kv),
            Key::Peer(key) => {
                if let Ok(peer) = peers::read(&key, &kv, seal, interface) {
                    numbers.insert(key.to_hex(), peer.number);
                    peers.insert(key, peer.section);
                }
            }
            _ => {}
        }
    }
    let next = next.ok_or_else(missing)?;
    Ok((peers == *from).then_some((next, numbers)))
}

/// Reads both files.
fn read(from: &mut impl Read) -> Result<(Buffer, Buffer), String> {
    let wrong =
        || "standard input is not two lengths and two files: this command is run by linerate, not by hand".to_owned();
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte).map_err(|_| wrong())?;
        match byte {
            [b'\n'] => break,
            [byte] if line.len() < 40 => line.push(byte),
            _ => return Err(wrong()),
        }
    }
    let text = String::from_utf8(line).map_err(|_| wrong())?;
    let (old, new) = text.split_once(' ').ok_or_else(wrong)?;
    let mut file = |length: &str| {
        let length: usize = length.parse().ok().filter(|length| *length <= FILE_MAX).ok_or_else(wrong)?;
        let mut text = vec![0; length];
        from.read_exact(&mut text).map_err(|_| wrong())?;
        Ok::<_, String>(Buffer::from(text))
    };
    let files = (file(old)?, file(new)?);
    if from.read(&mut [0]).map_err(|_| wrong())? != 0 {
        return Err(wrong());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read_and_nothing_else_is_taken() {
        let (old, new) = read(&mut &b"3 2\nabcde"[..]).unwrap();
        assert_eq!((&old[..], &new[..]), (&b"abc"[..], &b"de"[..]));
        let hostile: [&[u8]; 8] = [
            b"",
            b"3 2\nabcd",
            b"3 2\nabcdef",
            b"3\nabc",
            b"x 2\nab",
            b"-1 2\n",
            b"99999999999999999999 1\na",
            &[b'1'; 99],
        ];
        for input in hostile {
            assert!(read(&mut &*input).is_err(), "{input:?}");
        }
    }
}
