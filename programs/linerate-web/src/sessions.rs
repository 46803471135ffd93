//! Tokens and sessions: files in the state's folder, named after the hash of their secret, with the time of their end
//! and a role. Nobody who reads the folder can log in.
//!
//! `linerate-web token` makes a token as a file, in a process of its own; the page's program takes it by removing that
//! file, so that it is good once. There is no password, and no first user.

use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

/// How long a token waits to be used.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(15 * 60);

/// How long a session lasts.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);

/// So many tokens wait, and so many sessions last, at most.
const MOST: usize = 64;

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

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) role: Role,
    end: u64,
}

/// The hash of a secret, in hexadecimal digits.
type Hash = String;

fn hash(secret: &str) -> Hash {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A new secret of 160 bits, as hexadecimal digits.
fn secret() -> Result<Zeroizing<String>, String> {
    let mut bytes = Zeroizing::new([0; 20]);
    getrandom::fill(&mut *bytes).map_err(|error| format!("there is no randomness: {error}"))?;
    Ok(Zeroizing::new(hex(&*bytes)))
}

/// What a form of a session has to have: another page cannot know it.
pub(crate) fn form_secret(session: &str) -> String {
    hash(&format!("form {session}"))
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
    if read(&folder, now).map_err(failed)?.len() >= MOST {
        return Err(format!(
            "{MOST} tokens wait already; each is gone {} minutes after it was made",
            TOKEN_LIFE.as_secs() / 60
        ));
    }
    let token = secret()?;
    write(&folder, &hash(&token), Session { role, end: now + TOKEN_LIFE.as_secs() }).map_err(failed)?;
    Ok(token)
}

/// All sessions, in memory and on disk.
pub(crate) struct Sessions {
    state: PathBuf,
    known: HashMap<Hash, Session>,
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
        Ok(Self { state: state.to_owned(), known })
    }

    /// Takes a token, and begins a session: its secret.
    pub(crate) fn log_in(&mut self, token: &str, now: u64) -> Result<Option<(Zeroizing<String>, Role)>, String> {
        let hash = hash(token.trim());
        let path = tokens_folder(&self.state).join(&hash);
        let Some(token) = read_one(&path).filter(|token| now < token.end) else { return Ok(None) };
        // Whoever removes it has used it.
        if fs::remove_file(&path).is_err() {
            return Ok(None);
        }
        let secret = secret()?;
        self.begin(&secret, Session { role: token.role, end: now + SESSION_LIFE.as_secs() }, now)?;
        Ok(Some((secret, token.role)))
    }

    fn begin(&mut self, secret: &str, session: Session, now: u64) -> Result<(), String> {
        let folder = sessions_folder(&self.state);
        self.known.retain(|_, session| now < session.end);
        let oldest = self.known.iter().min_by_key(|(_, session)| session.end).map(|(hash, _)| hash.clone());
        if let Some(oldest) = oldest.filter(|_| self.known.len() >= MOST) {
            self.known.remove(&oldest);
            let _ = fs::remove_file(folder.join(oldest));
        }
        let hash = hash(secret);
        write(&folder, &hash, session).map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
        self.known.insert(hash, session);
        Ok(())
    }

    /// The session of that secret.
    pub(crate) fn find(&self, secret: &str, now: u64) -> Option<Session> {
        self.known.get(&hash(secret)).copied().filter(|session| now < session.end)
    }

    /// Ends the session of that secret.
    pub(crate) fn log_out(&mut self, secret: &str) {
        let hash = hash(secret);
        self.known.remove(&hash);
        let _ = fs::remove_file(sessions_folder(&self.state).join(hash));
    }
}

fn write(folder: &Path, name: &str, session: Session) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name))?;
    writeln!(file, "{} {}", session.end, session.role.word())
}

/// What a folder has by its names, without those that are over, which are removed.
fn read(folder: &Path, now: u64) -> io::Result<HashMap<Hash, Session>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match (path.file_name().and_then(|name| name.to_str()), read_one(&path)) {
            (Some(name), Some(session)) if now < session.end => drop(found.insert(name.to_owned(), session)),
            (_, Some(_)) => drop(fs::remove_file(&path)),
            (_, None) => {}
        }
    }
    Ok(found)
}

fn read_one(path: &Path) -> Option<Session> {
    let text = fs::read_to_string(path).ok()?;
    let (end, role) = text.trim_end().split_once(' ')?;
    Some(Session { end: end.parse().ok()?, role: Role::from_word(role)? })
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
        assert_eq!(sessions.log_in("nonsense", 1000).unwrap(), None);
        assert_eq!(sessions.log_in("../sessions", 1000).unwrap(), None);
        let (secret, role) = sessions.log_in(&token, 1899).unwrap().unwrap();
        assert_eq!(role, Role::Writer);
        assert_eq!(sessions.log_in(&token, 1899).unwrap(), None, "again");
        assert!(sessions.find(&secret, 1899).is_some());
        let late = make_token(state.path(), Role::Reader, 1000).unwrap();
        assert_eq!(sessions.log_in(&late, 1900).unwrap(), None, "late");
    }

    #[test]
    fn a_session_outlives_the_program_and_ends_by_itself_or_by_logging_out() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let log_in = |sessions: &mut Sessions| {
            sessions.log_in(&make_token(state.path(), Role::Reader, 0).unwrap(), 0).unwrap().unwrap().0
        };
        let (one, other) = (log_in(&mut sessions), log_in(&mut sessions));
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let end = SESSION_LIFE.as_secs();
        assert_eq!(sessions.find(&one, end - 1).map(|session| session.role), Some(Role::Reader));
        assert_eq!(sessions.find(&one, end), None);
        sessions.log_out(&one);
        assert_eq!(sessions.find(&one, 0), None);
        let sessions = Sessions::open(state.path(), 0).unwrap();
        assert_eq!((sessions.find(&one, 0), sessions.find(&other, 0).is_some()), (None, true));
    }

    #[test]
    fn no_file_has_a_secret_in_it_or_in_its_name() {
        let state = tempfile::tempdir().unwrap();
        let mut sessions = Sessions::open(state.path(), 0).unwrap();
        let token = make_token(state.path(), Role::Reader, 0).unwrap();
        let (secret, _) = sessions.log_in(&token, 0).unwrap().unwrap();
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
        for time in 0..MOST as u64 + 5 {
            let token = make_token(state.path(), Role::Reader, time).unwrap();
            sessions.log_in(&token, time).unwrap().unwrap();
        }
        assert_eq!(sessions.known.len(), MOST);
        assert_eq!(fs::read_dir(sessions_folder(state.path())).unwrap().count(), MOST);
        (0..MOST).for_each(|_| drop(make_token(state.path(), Role::Reader, 0).unwrap()));
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
