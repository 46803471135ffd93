//! Subjects that a file describes: tunnels by other programs than WireGuard daemons. The file is TOML; its
//! commands are lines for `sh`, with names in braces for what only the lab knows. `docs/lab.md` explains it.

use serde::Deserialize;
use toml::Spanned;

/// The commands that make a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSet {
    /// Programs that must be on PATH.
    pub needs: Vec<String>,
    /// The command that installs them.
    pub get: Option<String>,
    /// Writes the version to its standard output.
    pub version: Option<String>,
    /// Runs to its end before either end starts.
    pub prepare: Option<String>,
    /// Each end's command, the client's first; it stays in the foreground.
    pub ends: [String; 2],
}

/// What may stand in braces in a command of an end.
const NAMES: [&str; 12] = [
    "iface",
    "end",
    "dir",
    "port",
    "mtu",
    "family",
    "own_outside",
    "peer_outside",
    "own_inside4",
    "peer_inside4",
    "own_inside6",
    "peer_inside6",
];

/// What may stand in braces in `prepare`, which belongs to neither end.
const COMMON_NAMES: [&str; 4] = ["dir", "port", "mtu", "family"];

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    #[serde(default)]
    needs: Vec<String>,
    get: Option<String>,
    version: Option<String>,
    prepare: Option<Spanned<String>>,
    run: Option<Spanned<String>>,
    client: Option<Spanned<String>>,
    server: Option<Spanned<String>>,
}

impl CommandSet {
    /// Reads a file's text: the subject's name and its commands. What is wrong with it is said with the line and
    /// the column.
    pub(crate) fn parse(text: &str) -> Result<(String, Self), String> {
        let at = |place: usize, said: &str| format!("{}: {said}", position(text, place));
        let file: File = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(0, |span| span.start);
            at(place, error.message())
        })?;
        let start = file.name.span().start;
        let ends = match (file.run, file.client, file.server) {
            (Some(run), None, None) => [run.clone(), run],
            (None, Some(client), Some(server)) => [client, server],
            (Some(run), ..) => {
                return Err(at(run.span().start, "`run` is for both ends: there is no `client` or `server` beside it"));
            }
            (None, ..) => {
                return Err(at(start, "a subject needs `run` for both ends, or `client` and `server`"));
            }
        };
        if file.name.get_ref().trim().is_empty() {
            return Err(at(start, "a subject needs a name that one can read"));
        }
        let commands = ends.iter().map(|end| (end, &NAMES[..]));
        for (command, names) in commands.chain(file.prepare.iter().map(|prepare| (prepare, &COMMON_NAMES[..]))) {
            if let Some(unknown) = unknown_name(command.get_ref(), names) {
                let known = names.join("}, {");
                let said = format!("{{{unknown}}} stands for nothing here; there are {{{known}}}");
                return Err(at(command.span().start, &said));
            }
        }
        let set = Self {
            needs: file.needs,
            get: file.get,
            version: file.version,
            prepare: file.prepare.map(Spanned::into_inner),
            ends: ends.map(Spanned::into_inner),
        };
        Ok((file.name.into_inner(), set))
    }
}

/// Puts the values in the places of their names.
pub(crate) fn fill_in(command: &str, values: &[(&str, String)]) -> String {
    let put = |text: String, (name, value): &(&str, String)| text.replace(&format!("{{{name}}}"), value);
    values.iter().fold(command.to_owned(), put)
}

/// The first name in braces that is not one of `names`. `${NAME}` belongs to the shell.
fn unknown_name<'a>(command: &'a str, names: &[&str]) -> Option<&'a str> {
    let opened = command.match_indices('{').filter(|(at, _)| !command[..*at].ends_with('$'));
    let mut written = opened.filter_map(|(at, _)| command[at + 1..].split_once('}').map(|(name, _)| name));
    written.find(|name| is_name(name) && !names.contains(name))
}

/// Whether what stands in braces is meant as a name, and not as a piece of shell or awk.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '_')
}

/// The line and column of a byte in `text`.
fn position(text: &str, place: usize) -> String {
    let before = text.get(..place).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |start| start.chars().count()) + 1;
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_does_for_both_ends() {
        let (name, set) = CommandSet::parse("name = 'x'\nrun = 'exec x {iface} {peer_outside}'").unwrap();
        assert_eq!(name, "x");
        assert_eq!(set.ends[0], set.ends[1]);
        let values = [("iface", "wg-client".to_owned()), ("peer_outside", "192.0.2.2".to_owned())];
        assert_eq!(fill_in(&set.ends[0], &values), "exec x wg-client 192.0.2.2");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_column() {
        for (text, place, said) in [
            ("name = 'x'\nrun = 'y'\nprepar = 'z'\n", "line 3, column 1: ", "unknown field `prepar`"),
            ("name = 'x'\nrun = 5\n", "line 2, column 7: ", "expected a string"),
            ("name = 'x'\nclient = 'y'\n", "line 1, column 8: ", "`client` and `server`"),
            ("name = 'x'\nrun = 'y'\nserver = 'z'\n", "line 2, column 7: ", "both ends"),
            ("name = ' '\nrun = 'y'\n", "line 1, column 8: ", "name"),
            ("name = 'x'\nrun = 'y {ifcae}'\n", "line 2, column 7: ", "{ifcae} stands for nothing"),
            ("name = 'x'\nrun = 'y'\nprepare = 'z {iface}'\n", "line 3, column 11: ", "{iface} stands for nothing"),
            ("name = 'x'\nrun = 'y\n", "line 2, column 9: ", "invalid literal string"),
            ("", "line 1, column 1: ", "missing field `name`"),
        ] {
            let error = CommandSet::parse(text).unwrap_err();
            assert!(error.starts_with(place) && error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn braces_of_the_shell_are_left_alone() {
        let text = "name = 'x'\nrun = '''a=${dir} f() { echo; }; awk '{ print $1 }' {1,2} {iface}'''\n";
        assert!(CommandSet::parse(text).is_ok());
    }

    #[test]
    fn the_example_is_a_subject() {
        let (_, set) = CommandSet::parse(include_str!("../../../docs/subjects/openvpn.toml")).unwrap();
        assert!(set.needs.contains(&"openvpn".to_owned()));
    }
}
