//! Tokens and sessions: files in the state's folder, named after the hash of their secret, with the time of their end
//! and a role. Nobody who reads the folder can log in.
//!
//! `linerate-web token` makes a token as a file, in a process of its own; the page's program takes it by removing that
//! file, so that it is good once. There is no password, and no first user.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use linerate_control::atomic_file;
use zeroize::Zeroizing;

/// How long a token waits to be used.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(15 * 60);

/// Lifetime of a session.
pub(crate) const SESSION_LIFE: Duration = Duration::from_hours(12);

/// Lifetime of a session that its browser keeps.
pub(crate) const KEPT_LIFE: Duration = Duration::from_hours(30 * 24);

/// Age at which the secret of a kept session is replaced on its next use.
const ROTATION: Duration = Duration::from_hours(1);

/// Time for which the previous secret stays valid after the first use of the new one, and for which concurrent requests
/// get the same new secret.
const GRACE: Duration = Duration::from_mins(1);

/// The precision of a session's last use, which limits how often its file is written.
const LAST_USE_PRECISION: Duration = Duration::from_mins(1);

/// The length of a secret of 160 bits as hexadecimal digits.
const SECRET_DIGITS: usize = 40;

/// Maximum number of unused tokens, and of sessions.
const MAX_SESSIONS: usize = 64;

/// What a session, or nobody, may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// See the page for logging in.
    Nobody,
    /// Look.
    Reader,
    /// Change clients, too, and see their keys.
    Writer,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader | Self::Nobody => "reader",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Reader, Self::Writer].into_iter().find(|role| role.word() == word)
    }
}

/// A session, or a token with what its session may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) role: Role,
    /// Seconds since 1970, as all times here.
    pub(crate) end: u64,
    pub(crate) begun: u64,
    /// Its last use, to the minute.
    pub(crate) used: u64,
    /// The secrets of a session that its browser keeps; `None` for one of twelve hours.
    pub(crate) kept: Option<Rotation>,
}

/// The secrets of a kept session, as hashes.
///
/// A secret has two halves. The first never changes, and its hash is the session's name. The second is replaced while
/// the session is used, which reveals a stolen copy: once either the browser or the thief has used a new secret, the
/// other sends an old one. The first half identifies the session even after many replacements. An answer with a new
/// secret may get lost, so the current one stays valid until the new one is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    current: Hash,
    /// When it became the current one.
    since: u64,
    /// The new one, sent to the browser but not used yet.
    next: Option<Hash>,
    /// The one before the current one.
    old: Option<Hash>,
}

/// The session that a request's secret belongs to.
pub(crate) struct Found {
    pub(crate) role: Role,
    /// The session's name, which stays when its secret is replaced.
    pub(crate) id: Hash,
    /// A new secret for the cookie, and its lifetime in seconds.
    pub(crate) replacement: Option<(Zeroizing<String>, u64)>,
}

/// The hash of a secret, in hexadecimal digits.
pub(crate) type Hash = String;

fn hash(secret: &str) -> Hash {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a kept session's secret with a new second half, from an old secret or from a first half alone.
fn with_new_end(secret: &str) -> Result<Zeroizing<String>, String> {
    let beginning = secret.get(..SECRET_DIGITS).unwrap_or(secret);
    Ok(Zeroizing::new([beginning, &*self::secret()?].concat()))
}

/// Computes the name of the session with this secret: the hash of the half that never changes.
fn id_of(shown: &str) -> Hash {
    hash(shown.get(..SECRET_DIGITS).unwrap_or(shown))
}

/// A new secret of 160 bits, as hexadecimal digits.
fn secret() -> Result<Zeroizing<String>, String> {
    let mut bytes = Zeroizing::new([0; 20]);
    getrandom::fill(&mut *bytes).map_err(|error| format!("there is no randomness: {error}"))?;
    Ok(Zeroizing::new(hex(&*bytes)))
}

/// Computes the secret in a session's forms, which other web sites cannot know. `id` is the session's name.
pub(crate) fn form_secret(id: &str) -> String {
    hash(&format!("form {id}"))
}

/// Computes a session's label for pages and the journal, which does not reveal its name.
pub(crate) fn label(id: &str) -> String {
    hash(&format!("label {id}"))[..16].to_owned()
}

/// Seconds since 1970.
pub(crate) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn sessions_folder(state: &Path) -> PathBuf {
    state.join("sessions")
}

fn tokens_folder(state: &Path) -> PathBuf {
    state.join("tokens")
}

/// That a page was never started there.
pub(crate) fn no_state(path: &Path, error: &io::Error) -> String {
    let advice =
        "start linerate-web first, which makes it (sudo systemctl start linerate-web), or name another by --state";
    format!("cannot use {}: {error}; {advice}", path.display())
}

/// Makes a token, for `linerate-web token`.
pub(crate) fn make_token(state: &Path, role: Role, now: u64) -> Result<Zeroizing<String>, String> {
    let folder = tokens_folder(state);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => no_state(&folder, &error),
        _ => format!("cannot write to {}: {error}; try again as root (sudo)", folder.display()),
    };
    if read(&folder, now).map_err(failed)?.len() >= MAX_SESSIONS {
        return Err(format!(
            "there are {MAX_SESSIONS} unused tokens already, the maximum; each expires {} minutes after it was made: wait, and try again",
            TOKEN_LIFE.as_secs() / 60
        ));
    }
    let token = secret()?;
    let waiting = Session { role, end: now + TOKEN_LIFE.as_secs(), begun: now, used: now, kept: None };
    write(&folder, &hash(&token), &waiting).map_err(failed)?;
    Ok(token)
}

/// Ends all sessions, for `linerate-web logout --all`; returns their number.
pub(crate) fn end_all(state: &Path, now: u64) -> Result<usize, String> {
    let folder = sessions_folder(state);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => no_state(&folder, &error),
        _ => format!("cannot change {}: {error}; try again as root (sudo)", folder.display()),
    };
    let _lock = lock(&folder).map_err(failed)?;
    let known = read(&folder, now).map_err(failed)?;
    known.keys().try_for_each(|id| fs::remove_file(folder.join(id))).map_err(failed)?;
    Ok(known.len())
}

/// All sessions, in memory and on disk.
pub(crate) struct Sessions {
    state: PathBuf,
    known: HashMap<Hash, Session>,
    /// New secrets of kept sessions that were sent within [`GRACE`], and when.
    sent: HashMap<Hash, (Zeroizing<String>, u64)>,
}

impl Sessions {
    /// Reads the sessions that last, and makes the folders.
    ///
    /// # Errors
    /// They cannot be made or read: a page that knows nobody must not start, and let everybody in.
    pub(crate) fn open(state: &Path, now: u64) -> Result<Self, String> {
        let opened = || {
            for folder in [tokens_folder(state), sessions_folder(state)] {
                fs::create_dir_all(&folder)?;
                fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
                read(&folder, now)?;
            }
            read(&sessions_folder(state), now)
        };
        let known = opened().map_err(|error: io::Error| {
            format!("cannot use {}: {error}; --state names another folder", state.display())
        })?;
        Ok(Self { state: state.to_owned(), known, sent: HashMap::new() })
    }

    /// Consumes a token and begins a session, which the browser may keep (`kept`). Returns its secret, its role and its
    /// lifetime in seconds.
    pub(crate) fn log_in(
        &mut self,
        token: &str,
        kept: bool,
        now: u64,
    ) -> Result<Option<(Zeroizing<String>, Role, u64)>, String> {
        let hash_of_token = hash(token.trim());
        let path = tokens_folder(&self.state).join(&hash_of_token);
        let Some(token) = read_one(&path).filter(|token| now < token.end) else { return Ok(None) };
        // Whoever removes it has used it.
        if fs::remove_file(&path).is_err() {
            return Ok(None);
        }
        let first = secret()?;
        let secret = if kept { with_new_end(&first)? } else { first };
        let life = if kept { KEPT_LIFE } else { SESSION_LIFE }.as_secs();
        let kept = kept.then(|| Rotation { current: hash(&secret), since: now, next: None, old: None });
        self.begin(id_of(&secret), Session { role: token.role, end: now + life, begun: now, used: now, kept }, now)?;
        Ok(Some((secret, token.role, life)))
    }

    fn begin(&mut self, id: Hash, session: Session, now: u64) -> Result<(), String> {
        self.forget_ended(now);
        let oldest = self.known.iter().min_by_key(|(_, session)| session.begun).map(|(id, _)| id.clone());
        if let Some(oldest) = oldest.filter(|_| self.known.len() >= MAX_SESSIONS) {
            self.end(&oldest);
        }
        let folder = sessions_folder(&self.state);
        let written = lock(&folder).and_then(|_lock| write(&folder, &id, &session));
        written.map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
        self.known.insert(id, session);
        Ok(())
    }

    /// Forgets sessions that have expired, or whose file `linerate-web logout` has removed.
    fn forget_ended(&mut self, now: u64) {
        let folder = sessions_folder(&self.state);
        self.known.retain(|id, session| now < session.end && folder.join(id).exists());
        self.sent.retain(|id, (_, then)| now <= *then + GRACE.as_secs() && self.known.contains_key(id));
    }

    /// Finds the session with this secret, and rotates the secret if that is due.
    ///
    /// # Errors
    /// The secret was replaced before, so somebody has a copy. The session has ended.
    pub(crate) fn find(&mut self, shown: &str, now: u64) -> Result<Option<Found>, Copied> {
        self.forget_ended(now);
        let id = id_of(shown);
        let is_long = shown.len() > SECRET_DIGITS;
        let Some(session) = self.known.get_mut(&id).filter(|session| session.kept.is_some() == is_long) else {
            return Ok(None);
        };
        let is_used_anew = now >= session.used + LAST_USE_PRECISION.as_secs();
        if is_used_anew {
            session.used = now;
        }
        let meaning = session.kept.as_mut().map_or(Shown::Current, |rotation| rotation.show(&hash(shown), now));
        if is_used_anew || matches!(meaning, Shown::New) {
            // If this fails, the file still has the new secret as the next one, which a restart accepts as well.
            let _ = rewrite(&sessions_folder(&self.state), &id, session);
        }
        let (role, left) = (session.role, session.end - now);
        let replacement = match meaning {
            Shown::Current | Shown::New => None,
            Shown::Due => self.replace(&id, shown, now).map(|secret| (secret, left)),
            Shown::Copy => {
                self.end(&id);
                return Err(Copied(label(&id)));
            }
        };
        Ok(Some(Found { role, id, replacement }))
    }

    /// Makes a new secret for a kept session; `None` if it cannot be written. Concurrent requests get the same one,
    /// because the browser keeps the cookie of the last answer.
    fn replace(&mut self, id: &str, shown: &str, now: u64) -> Option<Zeroizing<String>> {
        if let Some((secret, _)) = self.sent.get(id) {
            return Some(secret.clone());
        }
        let secret = with_new_end(shown).ok()?;
        let session = self.known.get_mut(id)?;
        let rotation = session.kept.as_mut()?;
        let before = rotation.next.replace(hash(&secret));
        if rewrite(&sessions_folder(&self.state), id, session).is_err() {
            session.kept.as_mut()?.next = before;
            return None;
        }
        self.sent.insert(id.to_owned(), (secret.clone(), now));
        Some(secret)
    }

    /// Returns all sessions with their names, the latest first.
    pub(crate) fn all(&mut self, now: u64) -> Vec<(Hash, Session)> {
        self.forget_ended(now);
        let mut all: Vec<_> = self.known.iter().map(|(id, session)| (id.clone(), session.clone())).collect();
        all.sort_by(|(one_id, one), (other_id, other)| (other.begun, other_id).cmp(&(one.begun, one_id)));
        all
    }

    /// Ends the session with this name.
    pub(crate) fn end(&mut self, id: &str) {
        self.known.remove(id);
        self.sent.remove(id);
        let _ = fs::remove_file(sessions_folder(&self.state).join(id));
    }
}

/// A session ended because its secret was copied. Contains the session's label.
#[derive(Debug)]
pub(crate) struct Copied(pub(crate) String);

/// How a request's secret relates to those of a kept session.
enum Shown {
    Current,
    /// The new one, used for the first time. It becomes the current one.
    New,
    /// The current one, which is due to be replaced.
    Due,
    /// One that was replaced, while the new one is in use.
    Copy,
}

impl Rotation {
    fn show(&mut self, shown: &str, now: u64) -> Shown {
        if self.next.as_deref() == Some(shown) {
            let old = std::mem::replace(&mut self.current, shown.to_owned());
            (self.since, self.next, self.old) = (now, None, Some(old));
            return Shown::New;
        }
        if self.current != shown {
            let is_on_its_way = self.old.as_deref() == Some(shown) && now <= self.since + GRACE.as_secs();
            return if is_on_its_way { Shown::Current } else { Shown::Copy };
        }
        if now >= self.since + ROTATION.as_secs() { Shown::Due } else { Shown::Current }
    }
}

/// Locks the folder against `linerate-web logout`. Without the lock, a session could come back because its file is
/// written just after `logout` removed it.
fn lock(folder: &Path) -> io::Result<fs::File> {
    let folder = fs::File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// Rewrites the file of a session, unless it has been removed.
fn rewrite(folder: &Path, name: &str, session: &Session) -> io::Result<()> {
    let _lock = lock(folder)?;
    fs::metadata(folder.join(name))?;
    write(folder, name, session)
}

/// Writes the file of a session or token: its end, role, beginning and last use, and the rotation of a kept session.
fn write(folder: &Path, name: &str, session: &Session) -> io::Result<()> {
    let mut text = format!("{} {} {} {}", session.end, session.role.word(), session.begun, session.used);
    if let Some(Rotation { current, since, next, old }) = &session.kept {
        let word = |hash: &Option<Hash>| hash.clone().unwrap_or_else(|| "-".to_owned());
        text += &format!(" {current} {since} {} {}", word(next), word(old));
    }
    atomic_file::replace(&folder.join(name), format!("{name}.new"), format!("{text}\n").as_bytes(), Some(0o600), None)
}

/// What a folder has by its names, without those that are over, which are removed.
fn read(folder: &Path, now: u64) -> io::Result<HashMap<Hash, Session>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match (path.file_name().and_then(|name| name.to_str()), read_one(&path)) {
            // One that was being written is not whole.
            (Some(name), _) if name.contains('.') => drop(fs::remove_file(&path)),
            (Some(name), Some(session)) if now < session.end => drop(found.insert(name.to_owned(), session)),
            (_, Some(_)) => drop(fs::remove_file(&path)),
            (_, None) => {}
        }
    }
    Ok(found)
}

fn read_one(path: &Path) -> Option<Session> {
    let text = fs::read_to_string(path).ok()?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [end, role, begun, used, ref rotation @ ..] = words[..] else { return None };
    let kept = match *rotation {
        [] => None,
        [current, since, next, old] => {
            let hash = |word: &str| (word != "-").then(|| word.to_owned());
            Some(Rotation { current: current.to_owned(), since: since.parse().ok()?, next: hash(next), old: hash(old) })
        }
        _ => return None,
    };
    let time = |word: &str| word.parse().ok();
    Some(Session { role: Role::from_word(role)?, end: time(end)?, begun: time(begun)?, used: time(used)?, kept })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_token_is_good_once_and_for_a_quarter_of_an_hour() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 1000).unwrap();
        let token = make_token(state.path(), Role::Writer, 1000).unwrap();
        assert_eq!(sessions.log_in("nonsense", false, 1000).unwrap(), None);
        assert_eq!(sessions.log_in("../sessions", false, 1000).unwrap(), None);
        let (secret, role, _) = sessions.log_in(&token, false, 1899).unwrap().unwrap();
        assert_eq!(role, Role::Writer);
        assert_eq!(sessions.log_in(&token, false, 1899).unwrap(), None, "again");
        assert_eq!(role_of(&mut sessions, &secret, 1899), Some(Role::Writer));
        let late = make_token(state.path(), Role::Reader, 1000).unwrap();
        assert_eq!(sessions.log_in(&late, false, 1900).unwrap(), None, "late");
    }

    #[test]
    fn a_session_outlives_the_program_and_ends_by_itself_or_by_logging_out() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let (one, other) = (log_in(&mut sessions, false, 0), log_in(&mut sessions, false, 0));
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let end = SESSION_LIFE.as_secs();
        assert_eq!(role_of(&mut sessions, &one, end - 1), Some(Role::Reader));
        let id = sessions.find(&one, 0).unwrap().unwrap().id;
        sessions.end(&id);
        assert_eq!(role_of(&mut sessions, &one, 0), None);
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        assert_eq!(role_of(&mut sessions, &one, 0), None);
        assert_eq!(role_of(&mut sessions, &other, end - 1), Some(Role::Reader));
        assert_eq!(role_of(&mut sessions, &other, end), None);
    }

    #[test]
    fn a_kept_session_changes_its_secret_and_lasts_thirty_days() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let mut secret = log_in(&mut sessions, true, 0);
        let id = sessions.find(&secret, 1).unwrap().unwrap().id;
        let mut secrets = 1;
        for hour in 1..30 * 24 {
            let now = hour * 3600;
            // The program restarts each time.
            sessions = Sessions::open(state.path(), now).unwrap();
            let found = sessions.find(&secret, now).unwrap().unwrap();
            assert_eq!(found.id, id, "its name stays");
            if let Some((new, left)) = found.replacement {
                assert_eq!(left, KEPT_LIFE.as_secs() - now);
                (secret, secrets) = (new, secrets + 1);
                assert!(sessions.find(&secret, now).unwrap().is_some());
            }
        }
        assert_eq!(secrets, 30 * 24);
        assert_eq!(role_of(&mut sessions, &secret, KEPT_LIFE.as_secs()), None);
    }

    #[test]
    fn a_copied_secret_ends_its_session_and_a_lost_answer_does_not() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let other = log_in(&mut sessions, true, 0);
        let old = log_in(&mut sessions, true, 0);
        let hour = ROTATION.as_secs();
        let mut rotated = |secret: &str, now| sessions.find(secret, now).map(|found| found.unwrap().replacement);
        let lost = rotated(&old, hour).unwrap().unwrap().0;
        let later = hour + GRACE.as_secs() + 1;
        let (new, _) = rotated(&old, later).unwrap().expect("the first answer may have been lost");
        assert_ne!(new, lost, "a lost secret is not sent again");
        assert!(rotated(&new, later + 1).unwrap().is_none());
        assert!(rotated(&old, later + 1 + GRACE.as_secs()).unwrap().is_none(), "a request that was on its way");
        assert!(rotated(&old, later + 2 + GRACE.as_secs()).is_err(), "a copy");
        let late = later + 3 + GRACE.as_secs();
        assert_eq!(role_of(&mut sessions, &new, late), None, "it has ended for both");
        assert_eq!(role_of(&mut sessions, &lost, late), None);
        assert_eq!(role_of(&mut sessions, &other, late), Some(Role::Reader), "others go on");
    }

    #[test]
    fn an_old_secret_ends_its_session_however_often_it_was_replaced_since() {
        let state = tempfile::tempdir().unwrap();
        for replaced in 1..10 {
            let mut sessions = Sessions::open(state.path(), 0).unwrap();
            let first = log_in(&mut sessions, true, 0);
            let mut secret = first.clone();
            let mut now = 0;
            for _ in 0..replaced {
                now += ROTATION.as_secs();
                secret = sessions.find(&secret, now).unwrap().unwrap().replacement.unwrap().0;
                assert!(sessions.find(&secret, now).unwrap().is_some());
            }
            let mut sessions = Sessions::open(state.path(), now).unwrap();
            assert!(sessions.find(&first, now + GRACE.as_secs() + 1).is_err(), "replaced {replaced} times");
            assert_eq!(role_of(&mut sessions, &secret, now), None);
        }
    }

    #[test]
    fn windows_that_ask_at_once_stay_logged_in_whichever_answer_comes_last() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let mut secret = log_in(&mut sessions, true, 0);
        for time in 1..5 {
            let now = time * (ROTATION + GRACE).as_secs();
            let mut replacement = || sessions.find(&secret, now).unwrap().unwrap().replacement.unwrap().0;
            let sent = [replacement(), replacement(), replacement()];
            for new in &sent {
                assert_eq!(role_of(&mut sessions, new, now + 1), Some(Role::Reader));
            }
            assert_eq!(role_of(&mut sessions, &sent[0], now + 2 * GRACE.as_secs()), Some(Role::Reader));
            secret = sent[0].clone();
        }
    }

    #[test]
    fn a_part_of_a_secret_and_more_than_one_are_no_session() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let (usual, kept) = (log_in(&mut sessions, false, 0), log_in(&mut sessions, true, 0));
        let most = |text: &str, length| text[..length].to_owned();
        for shown in [
            "",
            "\u{e9}",
            &most(&kept, SECRET_DIGITS),
            &most(&usual, SECRET_DIGITS - 1),
            &format!("{}0", *usual),
            &usual.repeat(2),
        ] {
            assert_eq!(role_of(&mut sessions, shown, 0), None, "{shown}");
        }
        assert_eq!(
            (role_of(&mut sessions, &usual, 0), role_of(&mut sessions, &kept, 0)),
            (Some(Role::Reader), Some(Role::Reader))
        );
    }

    #[test]
    fn a_session_that_has_ended_elsewhere_is_not_written_again() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let secret = log_in(&mut sessions, true, 0);
        let (id, session) = sessions.all(0).remove(0);
        assert_eq!(end_all(state.path(), 0).unwrap(), 1);
        assert!(rewrite(&sessions_folder(state.path()), &id, &session).is_err(), "a request that was under way");
        assert_eq!(role_of(&mut sessions, &secret, ROTATION.as_secs()), None);
        assert_eq!(fs::read_dir(sessions_folder(state.path())).unwrap().count(), 0);
    }

    #[test]
    fn the_last_use_is_known_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        for kept in [false, true] {
            let mut sessions = Sessions::open(state.path(), 0).unwrap();
            let secret = log_in(&mut sessions, kept, 0);
            assert!(role_of(&mut sessions, &secret, 500).is_some());
            let mut sessions = Sessions::open(state.path(), 1000).unwrap();
            assert_eq!(sessions.all(1000)[0].1.used, 500);
            end_all(state.path(), 1000).unwrap();
        }
    }

    #[test]
    fn all_sessions_end_by_another_program_at_once() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let (one, kept) = (log_in(&mut sessions, false, 0), log_in(&mut sessions, true, 0));
        assert_eq!(sessions.all(0).len(), 2);
        assert_eq!(end_all(state.path(), 0).unwrap(), 2);
        assert_eq!((role_of(&mut sessions, &one, 0), role_of(&mut sessions, &kept, 0)), (None, None));
        assert_eq!(sessions.all(0).len(), 0);
        assert!(end_all(&state.path().join("none"), 0).is_err());
    }

    /// Begins a session; returns its secret.
    fn log_in(sessions: &mut Sessions, kept: bool, now: u64) -> Zeroizing<String> {
        let token = make_token(&sessions.state, Role::Reader, now).unwrap();
        sessions.log_in(&token, kept, now).unwrap().unwrap().0
    }

    fn role_of(sessions: &mut Sessions, secret: &str, now: u64) -> Option<Role> {
        sessions.find(secret, now).unwrap().map(|found| found.role)
    }

    #[test]
    fn no_file_has_a_secret_in_it_or_in_its_name() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let token = make_token(state.path(), Role::Reader, 0).unwrap();
        let (secret, ..) = sessions.log_in(&token, true, 0).unwrap().unwrap();
        let waiting = make_token(state.path(), Role::Reader, 0).unwrap();
        let mut files = 0;
        for folder in [tokens_folder(state.path()), sessions_folder(state.path())] {
            assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let all = format!("{} {}", path.display(), fs::read_to_string(&path).unwrap());
                assert!(!all.contains(&**secret) && !all.contains(&**waiting), "{all}");
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
                files += 1;
            }
        }
        assert_eq!(files, 2);
    }

    #[test]
    fn sessions_and_tokens_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        for time in 0..MAX_SESSIONS as u64 + 5 {
            let token = make_token(state.path(), Role::Reader, time).unwrap();
            sessions.log_in(&token, time % 2 == 0, time).unwrap().unwrap();
        }
        assert_eq!(sessions.known.len(), MAX_SESSIONS);
        assert_eq!(fs::read_dir(sessions_folder(state.path())).unwrap().count(), MAX_SESSIONS);
        (0..MAX_SESSIONS).for_each(|_| drop(make_token(state.path(), Role::Reader, 0).unwrap()));
        assert!(make_token(state.path(), Role::Reader, 0).is_err());
        assert!(make_token(state.path(), Role::Reader, TOKEN_LIFE.as_secs()).is_ok(), "old ones are forgotten");
    }

    #[test]
    fn a_state_that_cannot_be_read_stops_the_start() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("sessions"), "").unwrap();
        assert!(Sessions::open(state.path(), 0).is_err());
        assert!(make_token(&state.path().join("none"), Role::Reader, 0).is_err());
    }
}
