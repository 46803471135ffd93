//! Reads files of `NAME=VALUE` lines: those that a shell sources, and the environments of containers. The files are parsed,
//! never run. Only the values that an import asks for are checked: other lines may belong to other programs.

use super::{Error, InputFile, text};

/// The program that a file is for, which determines the syntax of values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A shell, which evaluates `$`, backquotes and backslashes.
    Shell,
    /// A container, whose values are literal.
    Container,
    /// Docker Compose: the same in YAML, where `$$` is `$` and `${NAME}` another variable.
    Compose,
}

/// The assignments of such a file, in their order.
pub(super) struct Assignments<'a> {
    path: &'a str,
    reader: Reader,
    /// Name, value as it is written, and line.
    all: Vec<(&'a str, &'a [u8], usize)>,
}

/// A value and its place.
type Found = Option<(String, String)>;

impl<'a> Assignments<'a> {
    /// Reads a file that a shell sources.
    pub(super) fn sourced(file: &'a InputFile) -> Self {
        Self::read(file, Reader::Shell)
    }

    /// Reads the environment files of a container. Compose files come last, because they may refer to values of the others.
    pub(super) fn environments(files: &'a [InputFile]) -> Vec<Self> {
        let plain = files.iter().filter(|file| is_environment(file.name()));
        let compose = files.iter().filter(|file| is_compose(file.name()));
        let plain = plain.map(|file| Self::read(file, Reader::Container));
        plain.chain(compose.map(|file| Self::read(file, Reader::Compose))).collect()
    }

    fn read(file: &'a InputFile, reader: Reader) -> Self {
        let mut all = Vec::new();
        for (number, line) in text::lines(text::without_mark(&file.bytes)) {
            let assignment = match reader {
                Reader::Compose => yaml(line),
                _ => split(line.strip_prefix(b"export ").unwrap_or(line), b'='),
            };
            all.extend(assignment.map(|(name, value)| (name, value, number)));
        }
        Self { path: &file.path, reader, all }
    }

    /// The names that have a value.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, String)> {
        let written = self.all.iter().filter(|(_, value, _)| !value.is_empty());
        written.map(|(name, _, number)| (*name, format!("{}:{number}", self.path)))
    }

    /// The last value of `name`, which may be empty.
    pub(super) fn given(&self, name: &str) -> Result<Found, Error> {
        let mut all = self.all.iter().rev().filter(|(other, ..)| *other == name);
        let Some((_, value, number)) = all.next() else { return Ok(None) };
        let place = format!("{}:{number}", self.path);
        if self.reader == Reader::Compose && all.any(|(_, other, _)| other != value) {
            return Err(Error::at(
                place,
                format!("{name} has several values here: name a file with the part of one service"),
            ));
        }
        let value = text::utf8(value, &place)?;
        let meant = match self.reader {
            Reader::Shell => of_shell(value),
            Reader::Container => Some(unquoted(value).to_owned()),
            Reader::Compose => of_compose(unquoted(value)),
        };
        match meant {
            Some(meant) => Ok(Some((meant, place))),
            None if self.reader == Reader::Compose => {
                Err(Error::at(place, format!("{name} takes its value from elsewhere: write out what it means")))
            }
            None => Err(Error::at(place, format!("{name} is for a shell to evaluate: write out what it means"))),
        }
    }

    /// The last value of `name`, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Result<Found, Error> {
        Ok(self.given(name)?.filter(|(value, _)| !value.is_empty()))
    }

    /// The value of `name`.
    pub(super) fn require(&self, name: &str) -> Result<(String, String), Error> {
        self.get(name)?.ok_or_else(|| Error::at(self.path, format!("{name} is missing: is the file whole?")))
    }
}

pub(super) fn is_environment(name: &str) -> bool {
    name.ends_with(".env")
}

pub(super) fn is_compose(name: &str) -> bool {
    let stem = name.strip_suffix(".yml").or_else(|| name.strip_suffix(".yaml"));
    stem.is_some_and(|stem| stem.contains("compose"))
}

fn split(line: &[u8], at: u8) -> Option<(&str, &[u8])> {
    let end = line.iter().position(|&byte| byte == at)?;
    let name = std::str::from_utf8(line[..end].trim_ascii()).ok()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, line[end + 1..].trim_ascii()))
}

/// `- NAME=VALUE`, the same in quotes, or `NAME: VALUE`.
fn yaml(line: &[u8]) -> Option<(&str, &[u8])> {
    let Some(item) = line.strip_prefix(b"- ") else { return split(line, b':') };
    let item = item.trim_ascii();
    let inner = [b"\"", b"'"].iter().find_map(|quote| item.strip_prefix(*quote)?.strip_suffix(*quote));
    split(inner.unwrap_or(item), b'=')
}

/// Returns the value that a shell would assign; `None` if the shell would evaluate anything.
fn of_shell(value: &str) -> Option<String> {
    let Some(quote) = value.chars().next().filter(|c| ['"', '\''].contains(c)) else {
        let plain = without_comment(value);
        return (!plain.contains(['$', '`', '\\', '"', '\''])).then(|| plain.to_owned());
    };
    let (inner, rest) = value[1..].split_once(quote)?;
    let is_whole = without_comment(&format!(" {rest}")).is_empty();
    (is_whole && (quote == '\'' || !inner.contains(['$', '`', '\\']))).then(|| inner.to_owned())
}

/// The value without its quotes, if it has any, or else without a comment.
fn unquoted(value: &str) -> &str {
    let inner = ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
    inner.unwrap_or_else(|| without_comment(value))
}

fn of_compose(value: &str) -> Option<String> {
    let parts: Vec<&str> = value.split("$$").collect();
    (!parts.iter().any(|part| part.contains('$'))).then(|| parts.join("$"))
}

fn without_comment(value: &str) -> &str {
    value.split(" #").next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::zeroizing::Buffer;

    fn file(path: &str, text: &[u8]) -> InputFile {
        let mut bytes = Buffer::with_capacity(text.len());
        bytes.extend(text);
        InputFile { path: path.to_owned(), bytes }
    }

    fn value(assignments: &Assignments<'_>, name: &str) -> Option<String> {
        assignments.get(name).unwrap().map(|(value, _)| value)
    }

    #[test]
    fn a_containers_values_are_never_for_a_shell() {
        let files = [file(
            "wg-easy.env",
            b"\xef\xbb\xbfPASSWORD_HASH=$2a$12$u8`\\\"x\nWG_HOST=$a$b\r\nBAD=\xff\nOPEN='x\nno line\n=\nexport WG_MTU=1400\n\
              WG_PORT='51820'\nDNS=1.1.1.1 # one\nEMPTY=\n",
        )];
        let all = Assignments::environments(&files);
        let [all] = &all[..] else { panic!() };
        assert_eq!(value(all, "WG_HOST").unwrap(), "$a$b");
        assert_eq!(value(all, "PASSWORD_HASH").unwrap(), "$2a$12$u8`\\\"x");
        assert_eq!(value(all, "WG_MTU").unwrap(), "1400");
        assert_eq!(value(all, "WG_PORT").unwrap(), "51820");
        assert_eq!(value(all, "DNS").unwrap(), "1.1.1.1");
        assert_eq!(all.given("EMPTY").unwrap().unwrap().0, "");
        assert!(value(all, "EMPTY").is_none());
        assert!(all.get("BAD").is_err());
    }

    #[test]
    fn of_a_shells_file_only_the_values_that_are_used_are_judged() {
        let file = file(
            "params",
            b"A=$(reboot)\nB='$2a$12$x'\nC=\"plain\" # why\nD=\"a\\b\"\nE=`x`\nF=(git tar)\nG=a'b\nH=two words\nI='a'b\n",
        );
        let all = Assignments::sourced(&file);
        for name in ["A", "D", "E", "G", "I"] {
            assert!(all.get(name).unwrap_err().to_string().contains("for a shell"), "{name}");
        }
        assert_eq!(value(&all, "B").unwrap(), "$2a$12$x");
        assert_eq!(value(&all, "C").unwrap(), "plain");
        assert_eq!(value(&all, "H").unwrap(), "two words");
    }

    #[test]
    fn compose_files_are_read_as_compose_reads_them() {
        let files = [
            file(
                "x/docker-compose.yml",
                b"services:\n  wg-easy:\n    environment:\n      # - WG_HOST=old\n      - WG_HOST=vpn.example.com # here\n\
                  \x20     - \"PASSWORD_HASH=$$2a$$12$$x\"\n      - WG_PORT=${PORT}\n      WG_MTU: '1400'\n    ports:\n\
                  \x20     - \"51820:51820/udp\"\n      - LANG=de\n      - LANG=en\n",
            ),
            file(".env", b"WG_PORT=51821\n"),
        ];
        let all = Assignments::environments(&files);
        let [env, compose] = &all[..] else { panic!() };
        assert_eq!(value(env, "WG_PORT").unwrap(), "51821");
        assert_eq!(value(compose, "WG_HOST").unwrap(), "vpn.example.com");
        assert_eq!(value(compose, "PASSWORD_HASH").unwrap(), "$2a$12$x");
        assert_eq!(value(compose, "WG_MTU").unwrap(), "1400");
        assert!(compose.get("WG_PORT").unwrap_err().to_string().contains("elsewhere"));
        assert!(compose.get("LANG").unwrap_err().to_string().contains("several"));
    }
}
