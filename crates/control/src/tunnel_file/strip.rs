//! `wg-quick strip`: the file without the settings of wg-quick.
//!
//! The output equals the original's byte for byte, so lines are read as the original does and not as
//! [`crate::document`] does: bash's `read` drops spaces, tabs and NULs, a name ends at `=` or `#`, and `[Interface]`
//! contains no space.

use super::settings;
use super::values::may_have_key;
use crate::document::{Document, Setting};
use crate::wg_config::values::is_space;
use crate::zeroizing::Buffer;

/// `SaveConfig` is neither `true` nor `false`: wg-quick then rejects the whole file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}' is neither true nor false")]
pub struct StripError(pub String);

/// The file as `wg-quick strip` prints it: comments stay, and an empty line ends it. It contains the secrets of the
/// file.
///
/// # Errors
/// See [`StripError`].
pub fn strip(document: &Document) -> Result<Buffer, StripError> {
    let bytes = document.to_bytes();
    let mut stripped = Buffer::with_capacity(bytes.len() + 2);
    let mut in_interface = false;
    let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let line = as_bash_reads(line);
        // Nothing after the last line end is not a line.
        if lines.peek().is_none() && line.is_empty() {
            break;
        }
        let (name, value) = name_and_value(&line);
        if name.starts_with(b"[") {
            in_interface = name.eq_ignore_ascii_case(b"[Interface]");
        }
        let is = |known: &Setting| name.eq_ignore_ascii_case(known.name.as_bytes());
        if in_interface && settings::OF_WG_QUICK.iter().any(is) {
            if is(&settings::SAVE_CONFIG) && !is_bool(value) {
                let value = String::from_utf8_lossy(value);
                return Err(StripError(if may_have_key(&value) { "...".to_owned() } else { value.into_owned() }));
            }
            continue;
        }
        stripped.extend(&line);
        stripped.extend(b"\n");
    }
    stripped.extend(b"\n");
    Ok(stripped)
}

/// The line as `read -r` returns it: without NULs, and without spaces and tabs at both ends.
fn as_bash_reads(line: &[u8]) -> Buffer {
    let mut kept = Buffer::with_capacity(line.len());
    line.split(|&byte| byte == 0).for_each(|part| kept.extend(part));
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let end = kept.len() - kept.iter().rev().take_while(blank).count();
    let start = kept.iter().take_while(blank).count().min(end);
    let mut line = Buffer::with_capacity(end - start);
    line.extend(&kept[start..end]);
    line
}

/// Without a `=`, both are the whole line.
fn name_and_value(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    let equals = line.iter().position(|&byte| byte == b'=');
    let (name, value) = equals.map_or((line, line), |equals| (&line[..equals], &line[equals + 1..]));
    (trim(name), trim(value))
}

fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().take_while(|&&byte| is_space(byte)).count();
    let end = text.len() - text.iter().rev().take_while(|&&byte| is_space(byte)).count();
    text.get(start..end).unwrap_or_default()
}

fn is_bool(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"true") || value.eq_ignore_ascii_case(b"false")
}
