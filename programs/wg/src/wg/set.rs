//! `wg set`: changes from the command line.

use std::ffi::{OsStr, OsString};

use super::resolver::System;
use super::{Outcome, command_line, modify};

pub(super) fn main(interface: &OsStr, first: &OsString, rest: &[OsString]) -> Outcome {
    let words: Vec<&OsStr> = std::iter::once(first).chain(rest).map(OsString::as_os_str).collect();
    let update = command_line::parse(&words, &mut System)?;
    modify(interface, &update)
}
