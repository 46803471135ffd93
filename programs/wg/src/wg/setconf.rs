//! `wg setconf`, `addconf` and `syncconf`: changes from a file.

use std::ffi::OsStr;

use linerate_control::characters::{Odd, visible, without_comment};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::wg_config::{self, Mode, ParseError, ValueError};

use super::resolver::System;
use super::{Outcome, get, input, modify, settable};

/// Replaces the configuration with the file.
pub(super) fn set(interface: &OsStr, file: &OsStr) -> Outcome {
    modify(interface, &read(file, Mode::Replace)?)
}

/// Adds the file to the configuration.
pub(super) fn add(interface: &OsStr, file: &OsStr) -> Outcome {
    modify(interface, &read(file, Mode::Append)?)
}

/// As [`set`], but keeps the sessions of peers that stay.
pub(super) fn sync(interface: &OsStr, file: &OsStr) -> Outcome {
    let mut update = read(file, Mode::Replace)?;
    if !update.peers.is_empty() {
        let name = settable(interface);
        let running = get(OsStr::new(&name), "Unable to retrieve current interface configuration")?;
        wg_config::synchronize(&mut update, &running);
    }
    modify(interface, &update)
}

fn read(file: &OsStr, mode: Mode) -> Result<DeviceUpdate, String> {
    let input = input::read(file, FILE_MAX)?;
    if input.text.len() >= FILE_MAX {
        return Err(format!("{} is too large: the limit is {} MiB", file.display(), FILE_MAX >> 20));
    }
    wg_config::parse(&input.text, mode, &mut System).map_err(|bad| explain(&bad, &input.text, file))
}

/// The largest file accepted, in bytes: a million peers of 500.
const FILE_MAX: usize = 512 << 20;

/// The message of `wg`, followed by the line of the `text`, a hint, and a character there that is not seen or taken for
/// another.
pub fn explain(bad: &ParseError, text: &[u8], file: &OsStr) -> String {
    let conclusion = match bad {
        ParseError::Value { reason: ValueError::Environment(_), .. } => return bad.to_string(),
        ParseError::MissingPublicKey => "Invalid configuration",
        ParseError::Line { .. } | ParseError::Value { .. } => "Configuration parsing error",
    };
    let place = bad.line().map(|line| {
        let text = text.split(|&byte| byte == b'\n').nth(line - 1).unwrap_or_default();
        let odd = Odd::first(without_comment(text)).map(|odd| format!("; there is {odd}"));
        let hint = bad.hint().map_or_else(|| "here".to_owned(), |hint| hint.to_string());
        format!("\n{}:{line}: {hint}{}", file.display(), odd.unwrap_or_default())
    });
    format!("{}\n{conclusion}{}", visible(&bad.to_string()), place.unwrap_or_default())
}
