//! Any bytes parsed as a document are preserved; after edits, a reader of the bytes sees the same as the document.
//!
//! An input is a sequence of edits, of a few bytes each, a zero byte, and the file.

use linerate_control::document::{Document, SectionKind, Setting};
use linerate_control::tunnel_file::settings;

use crate::bytes::Bytes;

pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (edits, file) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let mut document = Document::parse(file);
    assert_eq!(document.to_bytes()[..], *file, "an unedited document is unchanged");
    let mut edits = Bytes(edits);
    while !edits.is_empty() {
        edit(&mut document, &mut edits);
        let bytes = document.to_bytes();
        assert_eq!(content(&Document::parse(&bytes)), content(&document), "in {:?}", String::from_utf8_lossy(&bytes));
    }
}

fn edit(document: &mut Document, edits: &mut Bytes<'_>) {
    let all: Vec<Setting> = settings::all().copied().collect();
    let which = edits.byte();
    let section = edits.below(document.sections().len());
    let setting = edits.pick(&all);
    match which % 6 {
        0 => {
            let value = value(edits);
            let before = document.to_bytes();
            if document.set(section, setting, &value).is_err() {
                assert_eq!(document.to_bytes()[..], before[..], "a refused edit changes nothing");
                return;
            }
            let entries = document.sections()[section].entries();
            let entry = entries.into_iter().rfind(|entry| entry.is(setting)).expect("it was set");
            let read = if setting.whole_line { entry.whole_value() } else { entry.value() };
            assert_eq!(read, value.as_bytes(), "a value that was set reads back");
        }
        1 => {
            document.unset(section, setting);
            assert!(document.sections()[section].entries().all(|entry| !entry.is(setting)));
        }
        2 => {
            let count =
                |document: &Document| document.sections()[section].entries().filter(|entry| entry.is(setting)).count();
            let before = count(document);
            let added = document.insert(section, setting, &value(edits)).is_ok();
            assert_eq!(count(document), before + usize::from(added));
        }
        3 => {
            let mut expected = content(document);
            document.remove_section(section);
            if section > 0 {
                expected.remove(section);
            }
            assert_eq!(content(document), expected, "other values are unchanged");
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

type SectionContent = (Option<String>, Vec<(String, bool, Vec<u8>)>);

/// The names of all sections, and their settings and values.
fn content(document: &Document) -> Vec<SectionContent> {
    let sections = document.sections().iter();
    let entries = sections.map(|section| {
        let entries = section.entries().map(|entry| (entry.name(), entry.marked, entry.whole_value().to_vec()));
        (section.name().filter(|_| section.kind() != SectionKind::Start), entries.collect())
    });
    entries.collect()
}
