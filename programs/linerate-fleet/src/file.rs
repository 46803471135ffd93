//! The tunnel's file follows the peers, and is the last view of them for a start without the store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use linerate_cli::eprint_line;
use linerate_control::document::Document;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::FleetName;
use linerate_host::spec::Compat;
use linerate_host::step::Implementation;
use linerate_tunnel::{ConfigFile, Context, Interruption, Options, Reporter};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::local::{self, Saved};
use crate::peers::{self, Section, Sections};
use crate::store::layout;
use crate::view::Peers;

/// How long to wait before a file that could not be written is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// What the file is to have.
#[derive(Clone)]
pub struct Wanted {
    /// As of this revision of the store.
    pub revision: i64,
    /// These peers.
    pub peers: Arc<Peers>,
    /// For the view that is kept beside it.
    pub config: layout::Config,
    /// For the same.
    pub members: BTreeMap<u8, layout::Member>,
}

/// Steps are not shown; messages are the service's.
pub struct Quiet;

impl Reporter for Quiet {
    fn step(&self, _: &str) {}

    fn message(&self, message: &str) {
        eprint_line(&format!("linerate-fleet: {message}"));
    }
}

/// Has the file follow what is wanted. Many changes at a time are one edit: only the last is written.
pub async fn keep(
    name: FleetName,
    path: PathBuf,
    mut wanted: watch::Receiver<Option<Wanted>>,
    written: watch::Sender<i64>,
) {
    let mut complaint = None;
    while wanted.changed().await.is_ok() {
        loop {
            let Some(latest) = wanted.borrow_and_update().clone() else { break };
            let revision = latest.revision;
            let (name, path) = (name.clone(), path.clone());
            let outcome = tokio::task::spawn_blocking(move || write(&name, &path, &latest)).await;
            match outcome.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(Some(unmet)) => {
                    written.send_replace(revision);
                    if unmet.is_empty() {
                        complaint = None;
                        break;
                    }
                    // Another tunnel has its name, say. The next try begins with this file.
                    complain(&mut complaint, format!("the tunnel does not follow its file yet: {}", unmet.join("; ")));
                    drop(timeout(PAUSE, wanted.changed()).await);
                }
                // It has more than is known here yet.
                Ok(None) => drop(timeout(PAUSE, wanted.changed()).await),
                Err(error) => {
                    complain(&mut complaint, format!("the file does not follow the store yet: {error}"));
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Says what is wrong, once.
fn complain(last: &mut Option<String>, complaint: String) {
    if last.as_ref() != Some(&complaint) {
        eprint_line(&format!("linerate-fleet: {complaint}"));
        *last = Some(complaint);
    }
}

/// Makes the file what is wanted, and returns what the tunnel does not do of that ([`follow`]). `None` if the file has an
/// edit of this host that is not in what is wanted yet.
fn write(name: &FleetName, path: &std::path::Path, wanted: &Wanted) -> Result<Option<Vec<String>>, String> {
    // New ones come in the order of their numbers, which is that of their edits.
    let mut order: Vec<(&PublicKey, &Section, u32)> =
        wanted.peers.iter().map(|(key, peer)| (key, &peer.section, peer.number)).collect();
    order.sort_by_key(|(_, _, number)| *number);
    let mut is_behind = false;
    let unmet = follow(path, |document| {
        // Edits end before the lock is here, so none comes between.
        is_behind = local::is_behind(name, wanted.revision);
        if is_behind {
            return document.clone();
        }
        Document::of(peers::with_peers(document, order.iter().map(|(key, section, _)| (*key, *section))).into())
    })?;
    if is_behind {
        return Ok(None);
    }
    let sections: Sections = order.iter().map(|(key, section, _)| (**key, (*section).clone())).collect();
    let saved = Saved {
        revision: wanted.revision,
        digest: peers::digest(&sections),
        config: wanted.config.clone(),
        members: wanted.members.clone(),
        numbers: order.iter().map(|(key, _, number)| (key.to_hex(), *number)).collect(),
    };
    local::save_view(name, &saved)?;
    Ok(Some(unmet))
}

/// Signals that end a wait for the lock of the tunnel. They are listened to once.
fn interruption() -> Result<&'static Interruption, String> {
    static LISTENS: OnceLock<Interruption> = OnceLock::new();
    if let Some(known) = LISTENS.get() {
        return Ok(known);
    }
    let new = Interruption::listen().map_err(|error| format!("cannot handle signals: {error}"))?;
    Ok(LISTENS.get_or_init(|| new))
}

/// Changes the file, and has the tunnel follow, without asking the store. Returns what the tunnel that runs does not do of
/// what the file says, a sentence each.
///
/// # Errors
/// It has errors, or cannot be written.
pub fn follow(path: &std::path::Path, change: impl FnOnce(&Document) -> Document) -> Result<Vec<String>, String> {
    let said = |error: linerate_tunnel::Error| error.to_string();
    let file = ConfigFile::open(&path.to_string_lossy()).map_err(said)?;
    let options = Options {
        compat: Compat::Native,
        implementation: Implementation::Daemon,
        user: None,
        hooks: true,
        fix_firewall: false,
        supervised: false,
    };
    let context = Context { reporter: &Quiet, interruption: interruption()? };
    let edited = linerate_tunnel::follow(&file, &options, context, |file| Ok((change(&file.document), ())));
    edited.map(|edited| edited.unmet).map_err(said)
}
