//! Checks the property of a fuzz target with every input of its corpus.
//!
//! A corpus is an ar(5) archive: a magic line, then for each file a header of 60 bytes with the length at offset 48,
//! and the file, padded to an even length. `fuzz/run` packs and unpacks it with binutils' `ar`.

use std::fs;
use std::path::Path;

/// Checks every input of the target's corpus. Fails if it has none.
pub fn corpus(target: &str, check: impl Fn(&[u8])) {
    // Every package is two folders below the root of the workspace.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(format!("{target}.a"));
    let archive = fs::read(&path).expect("the corpus is part of the repository");
    let mut rest = archive.strip_prefix(b"!<arch>\n").expect("a corpus is an archive");
    let mut count = 0;
    while let Some((header, files)) = rest.split_at_checked(60) {
        let length = std::str::from_utf8(&header[48..58]).ok().and_then(|digits| digits.trim_end().parse().ok());
        let (input, files) = files.split_at(length.expect("a header has a length"));
        check(input);
        count += 1;
        rest = &files[(input.len() % 2).min(files.len())..];
    }
    assert!(rest.is_empty() && count > 10, "{count} inputs in {}", path.display());
}
