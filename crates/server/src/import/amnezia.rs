//! Refuses servers of AmneziaWG, a protocol that is incompatible with WireGuard. Its tools use the same file formats as
//! others, with additional settings.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::shell::Assignments;
use super::text::{self, Loose};
use super::{Error, Input, Kind};

/// AmneziaWG's settings, in lower case without `_`; the long names are those of its own applications.
const SETTINGS: [&str; 25] = [
    "jc",
    "jmin",
    "jmax",
    "s1",
    "s2",
    "s3",
    "s4",
    "h1",
    "h2",
    "h3",
    "h4",
    "i1",
    "i2",
    "i3",
    "i4",
    "i5",
    "junkpacketcount",
    "junkpacketminsize",
    "junkpacketmaxsize",
    "initpacketjunksize",
    "responsepacketjunksize",
    "initpacketmagicheader",
    "responsepacketmagicheader",
    "underloadpacketmagicheader",
    "transportpacketmagicheader",
];

pub(super) fn refuse(kind: Kind, input: &Input) -> Result<(), Error> {
    let has_lines = |path: &str| [".conf", ".netdev", ".nmconnection"].iter().any(|end| path.ends_with(end));
    for file in input.files.iter().filter(|file| has_lines(&file.path)) {
        for (number, line) in text::lines(&file.bytes) {
            let (name, value) = line.split_at(line.iter().position(|&byte| byte == b'=').unwrap_or(0));
            if is_setting(&String::from_utf8_lossy(name)) && value.len() > 1 {
                return Err(refused(&format!("{}:{number}", file.path), &String::from_utf8_lossy(name)));
            }
        }
    }
    for file in input.files.iter().filter(|file| file.path.ends_with(".json")) {
        json(text::without_mark(&file.bytes), &file.path)?;
    }
    for environment in Assignments::environments(&input.files) {
        for (name, place) in environment.names().filter(|(name, _)| name.chars().all(|c| !c.is_ascii_lowercase())) {
            if is_setting(name) {
                return Err(refused(&place, name));
            }
        }
    }
    for file in input.named("params") {
        if let Some((name, place)) = Assignments::sourced(file).names().find(|(name, _)| name.contains("_AWG_")) {
            return Err(refused(&place, name));
        }
    }
    // Every database of wg-easy has these columns with values; only wg-easy's wg0.conf shows whether they are used.
    let written = || input.files.iter().any(|file| file.path.ends_with(".conf"));
    if kind == Kind::WgEasy15 && written() {
        return Ok(());
    }
    for table in &input.tables {
        let place = format!("{} ({})", table.database, table.name);
        json(&table.rows, &place).map_err(|error| match kind {
            Kind::WgEasy15 => Error::at(
                &place,
                "whether this wg-easy uses AmneziaWG, which is another protocol, only the wg0.conf beside its database \
                 tells: name the folder with both",
            ),
            _ => error,
        })?;
    }
    Ok(())
}

fn refused(place: &str, name: &str) -> Error {
    Error::at(
        place,
        format!(
            "{} is a setting of AmneziaWG, which is another protocol: its clients cannot talk to WireGuard; turn it off \
             in the old tool and give the clients new files first",
            text::short(name.trim())
        ),
    )
}

fn is_setting(name: &str) -> bool {
    let plain: String = name.trim().chars().filter(|c| !matches!(c, '_' | '-')).collect();
    let plain = plain.to_ascii_lowercase();
    let plain = ["serverawg", "server", "awg"].iter().find_map(|start| plain.strip_prefix(start)).unwrap_or(&plain);
    SETTINGS.contains(&plain) || plain == "advancedsecurity"
}

/// Refuses JSON that sets a setting of AmneziaWG. The file's own reader reports invalid JSON.
fn json(bytes: &[u8], place: &str) -> Result<(), Error> {
    match serde_json::from_slice::<Setting>(bytes) {
        Ok(Setting(Some(name))) => Err(refused(place, &name)),
        _ => Ok(()),
    }
}

/// The name of the first AmneziaWG setting in a JSON value; the rest of the value is not stored.
struct Setting(Option<String>);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Search;

        impl<'de> Visitor<'de> for Search {
            type Value = Setting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Setting, A::Error> {
                let mut found = None;
                while let Some(name) = map.next_key::<String>()? {
                    if !is_setting(&name) {
                        let Setting(below) = map.next_value()?;
                        found = found.or(below);
                        continue;
                    }
                    let Scalar(value) = map.next_value()?;
                    // For plain WireGuard, tools that know the settings write them empty, 0 or `off`.
                    let is_off = |value: &str| ["", "0", "off", "false"].contains(&value);
                    found = found.or(value.filter(|value| !is_off(value)).map(|_| name));
                }
                Ok(Setting(found))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Setting, A::Error> {
                let mut found = None;
                while let Some(Setting(below)) = all.next_element()? {
                    found = found.or(below);
                }
                Ok(Setting(found))
            }

            fn visit_str<E>(self, _: &str) -> Result<Setting, E> {
                Ok(Setting(None))
            }

            fn visit_unit<E>(self) -> Result<Setting, E> {
                Ok(Setting(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Setting, E> {
                Ok(Setting(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Setting, E> {
                Ok(Setting(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Setting, E> {
                Ok(Setting(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Setting, E> {
                Ok(Setting(None))
            }
        }

        deserializer.deserialize_any(Search)
    }
}

/// A number or a text; none for a list or an object, which is something else with the name of a setting.
struct Scalar(Option<String>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Any {
            Scalar(Loose),
            Other(IgnoredAny),
        }

        Ok(Self(match Any::deserialize(deserializer)? {
            Any::Scalar(Loose(value)) => Some(value),
            Any::Other(_) => None,
        }))
    }
}
