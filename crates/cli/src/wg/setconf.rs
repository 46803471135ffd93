//! `wg setconf`, `addconf` and `syncconf`: changes from a file.

use std::ffi::OsStr;

use linerate_control::config::{self, BadConfig, BadValue, Manner};
use linerate_control::uapi::request::DeviceUpdate;

use super::surroundings::System;
use super::{Outcome, get, input, modify, settable};
use crate::Complaint;

/// The interface becomes what the file says.
pub(super) fn set(interface: &OsStr, file: &OsStr) -> Outcome {
    modify(interface, &read(file, Manner::Replace)?)
}

/// What the file says is added.
pub(super) fn add(interface: &OsStr, file: &OsStr) -> Outcome {
    modify(interface, &read(file, Manner::Append)?)
}

/// As [`set`], but peers that stay keep their sessions.
pub(super) fn sync(interface: &OsStr, file: &OsStr) -> Outcome {
    let mut update = read(file, Manner::Replace)?;
    if !update.peers.is_empty() {
        let name = settable(interface);
        let running = get(OsStr::new(&name), "Unable to retrieve current interface configuration")?;
        config::synchronize(&mut update, &running);
    }
    modify(interface, &update)
}

fn read(file: &OsStr, manner: Manner) -> Result<DeviceUpdate, Complaint> {
    let input = input::read(file, FILE_MAX)?;
    if input.text.len() >= FILE_MAX {
        return Err(format!("{} is too large: the limit is {} MiB", file.display(), FILE_MAX >> 20));
    }
    config::parse(&input.text, manner, &mut System).map_err(|bad| explain(&bad, file))
}

/// The largest file taken, in bytes: a million peers of 500.
const FILE_MAX: usize = 512 << 20;

/// The words of `wg`, and after them where it is and what would be right.
pub(crate) fn explain(bad: &BadConfig, file: &OsStr) -> Complaint {
    let conclusion = match bad {
        BadConfig::Value { reason: BadValue::Environment(_), .. } => return bad.to_string(),
        BadConfig::NamelessPeer => "Invalid configuration",
        BadConfig::Line { .. } | BadConfig::Value { .. } => "Configuration parsing error",
    };
    let place = match (bad.line(), bad.hint()) {
        (Some(line), Some(hint)) => format!("\n{}:{line}: {hint}", file.display()),
        (Some(line), None) => format!("\n{}:{line}: here", file.display()),
        (None, _) => String::new(),
    };
    format!("{bad}\n{conclusion}{place}")
}
