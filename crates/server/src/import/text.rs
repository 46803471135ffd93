//! Values as the tools write them: lines, lists of prefixes, times, and keys that are never copied on the way.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use linerate_control::characters::{Odd, visible};
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::printable::printable;
use serde::de::{Deserialize, Deserializer, Visitor};

use super::Error;

/// The lines with their numbers, from 1, without white space at their ends.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    (1..).zip(bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii))
}

/// Removes the byte order mark that some editors write.
pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Text that is UTF-8.
pub(super) fn utf8<'a>(bytes: &'a [u8], place: &str) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes).map_err(|_| match Odd::first(bytes) {
        Some(odd) => Error::at(place, format!("this is not text in UTF-8: there is {odd}")),
        None => Error::at(place, "this is not text in UTF-8"),
    })
}

/// An address with its prefix length, which may be missing; host bits are kept.
pub(super) fn net(text: &str, place: &str) -> Result<IpNet, Error> {
    let text = text.trim();
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map_err(|_| Error::at(place, format!("`{}` is not an IP address or prefix", short(text))))
}

/// A list of prefixes, separated by commas, semicolons or white space.
pub(super) fn nets(text: &str, place: &str) -> Result<Vec<IpNet>, Error> {
    items(text).map(|item| net(item, place)).collect()
}

/// The items of a list.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|item| !item.is_empty())
}

/// A number of at most `max`.
pub(super) fn number<T: TryFrom<u64>>(text: &str, place: &str) -> Result<T, Error> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = Some(text.trim()).filter(|text| digits(text)).and_then(|text| text.parse::<u64>().ok());
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Error::at(place, format!("`{}` is not a number in its range", short(text))))
}

pub(super) fn public_key(text: &str, place: &str) -> Result<PublicKey, Error> {
    PublicKey::from_base64(text.trim().as_bytes()).ok_or_else(|| Error::at(place, "this is not a public key"))
}

/// A private or preshared key in a file of its own or in a field.
pub(super) fn secret_key(text: &[u8], place: &str) -> Result<SecretKey, Error> {
    SecretKey::from_base64(text.trim_ascii()).ok_or_else(|| Error::at(place, "this is not a key"))
}

/// A time in UTC: RFC 3339, or with a space as SQL writes it.
pub(super) fn time(text: &str, place: &str) -> Result<SystemTime, Error> {
    let wrong = || Error::at(place, format!("`{}` is not a time like 2030-06-30T12:00:00Z", short(text)));
    let time = humantime::parse_rfc3339_weak(text.trim()).map_err(|_| wrong())?;
    // To the second, as the file has it.
    let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?.as_secs();
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Seconds since 1970.
pub(super) fn epoch(text: &str, place: &str) -> Result<SystemTime, Error> {
    // The last second of the year 9999, after which RFC 3339 has no form.
    let seconds = number::<u64>(text, place)?;
    if seconds > 253_402_300_799 {
        return Err(Error::at(place, "this time is after the year 9999"));
    }
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A time as the file has it.
pub(super) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Text for a message: printable, and not long enough to be a key.
pub(super) fn short(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(23) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// Text for a comment of the file: one line, without a `#`, which would end the value, and without control characters.
pub(super) fn one_line(text: &str) -> String {
    let plain =
        text.chars().map(|c| if c == '#' || printable(c.encode_utf8(&mut [0; 4])) != c.to_string() { ' ' } else { c });
    let plain: String = plain.take(200).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A key in JSON, decoded from the input itself, so that no other copy of it is made. None if the field is empty, null,
/// or has wg-easy's word for a key that is not made yet.
#[derive(Default)]
pub(super) struct Secret(pub(super) Option<SecretKey>);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;

        impl Visitor<'_> for Key {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key in base64")
            }

            // The text is not repeated in an error: it may be most of a key.
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Secret, E> {
                if text.is_empty() || text == "---default---" {
                    return Ok(Secret(None));
                }
                let key = SecretKey::from_base64(text.as_bytes());
                key.map(|key| Secret(Some(key))).ok_or_else(|| E::custom("this is not a key"))
            }

            fn visit_unit<E>(self) -> Result<Secret, E> {
                Ok(Secret(None))
            }
        }

        deserializer.deserialize_any(Key)
    }
}

/// A number or text in JSON, whichever a version of a tool wrote; empty for null.
#[derive(Clone, Default)]
pub(super) struct Loose(pub(super) String);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, true or false")
            }

            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose(text.trim().to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Loose, E> {
                Ok(Loose(u8::from(truth).to_string()))
            }

            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose::default())
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}

impl Loose {
    /// The number, or none if there is none or it is 0.
    pub(super) fn positive<T: TryFrom<u64>>(&self, place: &str) -> Result<Option<T>, Error> {
        if self.0.is_empty() || self.0 == "0" {
            return Ok(None);
        }
        number(&self.0, place).map(Some)
    }

    /// The value as a boolean; `None` if it is absent.
    pub(super) fn truth(&self, place: &str) -> Result<Option<bool>, Error> {
        match &*self.0 {
            "" => Ok(None),
            "0" => Ok(Some(false)),
            "1" => Ok(Some(true)),
            other => Err(Error::at(place, format!("`{}` is neither true nor false", short(other)))),
        }
    }

    /// Its text, unless it is empty.
    pub(super) fn text(&self) -> Option<&str> {
        Some(&*self.0).filter(|text| !text.is_empty())
    }
}

/// Reads JSON; an error has the line and column, and nothing of the content but its shape.
pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8], path: &str) -> Result<T, Error> {
    serde_json::from_slice(without_mark(bytes)).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Syntax => "this is not valid JSON: is the file whole?".to_owned(),
            serde_json::error::Category::Eof => "the file ends too early: is it whole?".to_owned(),
            // Only of a field that is missing does the library's message repeat nothing from the file.
            _ => match error.to_string().strip_prefix("missing field `").and_then(|rest| rest.split_once('`')) {
                Some((field, _)) => format!("the field `{field}` is missing here: is the file whole?"),
                None => "a value is not what this tool writes here".to_owned(),
            },
        };
        Error::at(format!("{path}:{}:{}", error.line(), error.column()), what)
    })
}

/// Reads a table, which may have no rows.
pub(super) fn rows<'a, T: Deserialize<'a>>(table: &'a super::InputTable) -> Result<Vec<T>, Error> {
    if table.rows.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    json(&table.rows, &format!("{} ({})", table.database, table.name))
}
