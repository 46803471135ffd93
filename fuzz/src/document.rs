//! Any bytes parsed as a document are preserved; after edits, a reader of the bytes sees the same as the document.
//!
//! An input is a sequence of edits, of a few bytes each, a zero byte, and the file.

use linerate_control::document::{Document, Key, SectionKind};
use linerate_control::tunnel_file::keys;

use crate::bytes::Bytes;

pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (edits, file) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let mut document = Document::parse(file);
    assert_eq!(document.to_bytes()[..], *file, "what is not edited stays");
    let mut edits = Bytes(edits);
    while !edits.is_empty() {
        edit(&mut document, &mut edits);
        let bytes = document.to_bytes();
        assert_eq!(said(&Document::parse(&bytes)), said(&document), "in {:?}", String::from_utf8_lossy(&bytes));
    }
}

fn edit(document: &mut Document, edits: &mut Bytes<'_>) {
    let all: Vec<Key> = keys::all().collect();
    let which = edits.byte();
    let section = edits.below(document.sections().len());
    let key = edits.pick(&all);
    match which % 6 {
        0 => {
            let value = value(edits);
            let before = document.to_bytes();
            if document.set(section, key, &value).is_err() {
                assert_eq!(document.to_bytes()[..], before[..], "what is refused changes nothing");
                return;
            }
            let entries = document.sections()[section].entries();
            let entry = entries.into_iter().rfind(|entry| entry.is(key)).expect("it was set");
            let read = if key.whole_line { entry.whole_value() } else { entry.value() };
            assert_eq!(read, value.as_bytes(), "what was set is read");
        }
        1 => {
            document.unset(section, key);
            assert!(document.sections()[section].entries().all(|entry| !entry.is(key)));
        }
        2 => {
            let count =
                |document: &Document| document.sections()[section].entries().filter(|entry| entry.is(key)).count();
            let before = count(document);
            let added = document.insert(section, key, &value(edits)).is_ok();
            assert_eq!(count(document), before + usize::from(added));
        }
        3 => {
            let mut expected = said(document);
            document.remove_section(section);
            if section > 0 {
                expected.remove(section);
            }
            assert_eq!(said(document), expected, "the others stay");
        }
        4 => {
            let peer = document.add_peer();
            assert_eq!(document.sections()[peer].kind(), SectionKind::Peer);
        }
        _ => {
            let interface = document.interface();
            assert_eq!(document.sections()[interface].kind(), SectionKind::Interface);
        }
    }
}

fn value(edits: &mut Bytes<'_>) -> String {
    let length = edits.below(8);
    String::from_utf8_lossy(edits.take(length)).into_owned()
}

type Said = (Option<String>, Vec<(String, bool, Vec<u8>)>);

/// The names of all sections, and their keys and values.
fn said(document: &Document) -> Vec<Said> {
    let sections = document.sections().iter();
    let entries = sections.map(|section| {
        let entries = section.entries().map(|entry| (entry.key(), entry.marked, entry.whole_value().to_vec()));
        (section.name().filter(|_| section.kind() != SectionKind::Start), entries.collect())
    });
    entries.collect()
}
