//! Properties of the lossless document, over files like those that people and scripts write.

use linerate_control::document::{Document, Section, SectionKind, Setting};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{Diagnostic, NoNames, TunnelFile, settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[test]
fn a_new_line_looks_like_its_neighbours() {
    let cases = [
        ("[Peer]\n  PublicKey=x # c\n\n", "[Peer]\n  PublicKey=x # c\n  Endpoint=v\n\n"),
        ("[Peer]\r\nPublicKey = x\r\n", "[Peer]\r\nPublicKey = x\r\nEndpoint = v\r\n"),
        ("[Peer]\n#! PresharedKeyFile\t=\tx", "[Peer]\n#! PresharedKeyFile\t=\tx\nEndpoint\t=\tv"),
        ("[Interface]\nMTU=1\n[Peer]", "[Interface]\nMTU=1\n[Peer]\nEndpoint=v"),
        ("[Peer]\n# empty\n", "[Peer]\nEndpoint = v\n# empty\n"),
        ("[Peer]\nEndpoint = a # old\nEndpoint=b;c# new\n", "[Peer]\nEndpoint = a # old\nEndpoint=v# new\n"),
        ("[Peer]\nEndpoint = # none\n", "[Peer]\nEndpoint = v # none\n"),
    ];
    for (before, after) in cases {
        let mut document = Document::parse(before.as_bytes());
        let section = document.sections().len() - 1;
        document.set(section, &settings::ENDPOINT, "v").unwrap();
        assert_eq!(text(&document), after, "{before:?}");
    }
}

#[test]
fn a_peer_is_removed_with_its_own_comments_only() {
    let cases = [
        (
            "[Interface]\n\n### Client a\n[Peer]\nPublicKey = a\n\nAllowedIPs = 1\n\n### Client b\n[Peer]\nPublicKey = b\n",
            2,
        ),
        (
            "[Interface]\n\n# BEGIN_PEER a\n[Peer]\nPublicKey = a\n# END_PEER a\n# BEGIN_PEER b\n[Peer]\nPublicKey = b\n",
            2,
        ),
        (
            "[Interface]\n\n[Peer]\nPublicKey = a\n# said of a\n\n# All of the office\n\n### Client b\n[Peer]\nPublicKey = b\n",
            2,
        ),
        (
            "[Interface]\n\n### Client b\n[Peer]\nPublicKey = b\n\n### Client a\n[Peer]\nPublicKey = a\n\n# Name = a\n",
            3,
        ),
    ];
    let office = "# All of the office\n\n";
    for (before, section) in cases {
        let mut document = Document::parse(before.as_bytes());
        document.remove_section(section);
        let office = if before.contains(office) { office } else { "" };
        let header = if before.contains("BEGIN_PEER") { "# BEGIN_PEER b" } else { "### Client b" };
        assert_eq!(text(&document), format!("[Interface]\n\n{office}{header}\n[Peer]\nPublicKey = b\n"));
    }
}

#[test]
fn a_peer_is_added_at_the_end_after_an_empty_line() {
    for (before, after) in [
        ("", "[Peer]\n"),
        ("[Interface]", "[Interface]\n\n[Peer]\n"),
        ("[Interface]\r\n# x\r\n", "[Interface]\r\n# x\r\n\r\n[Peer]\r\n"),
        ("[Interface]\n\n", "[Interface]\n\n[Peer]\n"),
    ] {
        let mut document = Document::parse(before.as_bytes());
        let section = document.add_peer();
        assert_eq!(document.sections()[section].kind(), SectionKind::Peer);
        assert_eq!(text(&document), after);
    }
}

#[test]
fn names_are_read_in_the_formats_of_other_tools() {
    for (file, name) in [
        ("[Peer]\n# Name = a b\n", Some("a b")),
        ("# name=above\n[Peer]\n", Some("above")),
        ("# Name = above\n[Peer]\nPublicKey = x\n\n#friendly_name = inside\n", Some("inside")),
        ("### Client c-1\n[Peer]\n", Some("c-1")),
        ("# BEGIN_PEER d\n[Peer]\n# END_PEER d\n", Some("d")),
        ("### begin e ###\n[Peer]\n### end e ###\n", Some("e")),
        ("# the router\n[Peer]\n", None),
        ("### Client far\n\n[Peer]\n", None),
        ("# Name =\n[Peer]\n", None),
    ] {
        let document = Document::parse(file.as_bytes());
        assert_eq!(document.sections()[1].name().as_deref(), name, "{file:?}");
    }
}

#[test]
fn a_name_stays_with_its_peer_when_the_line_below_is_removed() {
    let mut document = Document::parse(b"[Peer]\nPublicKey = x\n# Name = y\nEndpoint = z\n[Peer]\nPublicKey = z\n");
    document.unset(1, &settings::ENDPOINT);
    let left = "[Peer]\nPublicKey = x\n# Name = y\n\n[Peer]\nPublicKey = z\n";
    assert_eq!(text(&document), left);
    let names = |document: &Document| document.sections().iter().map(Section::name).collect::<Vec<_>>();
    assert_eq!(names(&document), [None, Some("y".into()), None]);
    assert_eq!(names(&Document::parse(left.as_bytes())), names(&document));
}

#[test]
fn peers_that_are_read_ahead_are_read_as_they_stand() {
    let peer = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut key = [7; 32];
        (key[0], key[1]) = (high, low);
        let (key, mistake) = (PublicKey(key), if number.is_multiple_of(100) { ", x" } else { "" });
        format!("# Name = c{number}\n[Peer]\nPublicKey = {key}\nAllowedIPs = 10.0.{high}.{low}/32{mistake}\n\n")
    };
    let file = format!("[Interface]\nMTU = 1400\n\n{}", (0..1200).map(peer).collect::<String>());
    let (ahead, not_ahead) = (Document::parse(file.as_bytes()), Document::parse(file.as_bytes()));
    ahead.read_ahead();
    let read_ahead = read(&ahead);
    assert!(read_ahead == read(&not_ahead));
    let (peers, diagnostics) = (&read_ahead[0].0.peers, &read_ahead[0].1);
    assert!(peers.len() >= 1188 && diagnostics.len() >= 12, "{} peers, {diagnostics:?}", peers.len());
}

#[test]
fn lines_removed_at_once_are_those_removed_one_after_the_other() {
    let file = b"# a\n# b\n[Peer]\nPublicKey = x\n# c\nEndpoint = 1\nEndpoint = 2\n\n# d\n[Peer]\n";
    for chosen in 0..1_u32 << 8 {
        // Not the header, and not the comment below which an empty line may have to be meanwhile.
        let indices: Vec<usize> = (0..8).filter(|index| chosen & 1 << index != 0 && ![2, 4].contains(index)).collect();
        let (mut at_once, mut in_turn) = (Document::parse(file), Document::parse(file));
        at_once.remove_all(1, &indices);
        indices.iter().rev().for_each(|index| in_turn.remove(1, *index));
        assert_eq!(text(&at_once), text(&in_turn), "{indices:?}");
        assert_eq!(at_once.sections()[1].header(), in_turn.sections()[1].header());
    }
}

proptest! {
    #[test]
    fn a_document_that_was_read_before_it_was_edited_says_the_same_as_one_that_was_not(
        file in file(), edits in vec((any::<prop::sample::Index>(), 0..6, setting()), 1..6)
    ) {
        let file = with_keys(&file);
        let edited = |is_read: bool| {
            let mut document = Document::parse(&file);
            for (section, edit, setting) in &edits {
                if is_read {
                    read(&document);
                }
                let section = section.index(document.sections().len());
                match edit {
                    0 => document.set(section, setting, "1").unwrap(),
                    1 => document.unset(section, setting),
                    2 => document.remove_section(section),
                    3 => document.disable(section),
                    4 => document.enable(section),
                    _ => document.set_name(section, "new").unwrap(),
                }
            }
            document
        };
        let (one, other) = (edited(true), edited(false));
        prop_assert!(read(&one) == read(&other));
        prop_assert_eq!(&*one.to_bytes(), &*other.to_bytes());
    }

    #[test]
    fn a_peer_with_settings_is_one_that_gets_them_one_after_the_other(
        file in file(), settings in prop::sample::subsequence(of_peers(), 0..6)
    ) {
        let (mut at_once, mut in_turn) = (Document::parse(&file), Document::parse(&file));
        let values: Vec<_> = settings.iter().map(|setting| (*setting, "v".to_owned().into())).collect();
        let section = at_once.add_peer_with("new", &values).unwrap();
        prop_assert_eq!(in_turn.add_peer(), section);
        for setting in &settings {
            in_turn.set(section, setting, "v").unwrap();
        }
        in_turn.set_name(section, "new").unwrap();
        prop_assert_eq!(&*at_once.to_bytes(), &*in_turn.to_bytes());
    }

    #[test]
    fn any_bytes_survive(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(&Document::parse(&bytes).to_bytes()[..], &bytes[..]);
    }

    #[test]
    fn any_lines_survive(file in file()) {
        prop_assert_eq!(&Document::parse(&file).to_bytes()[..], &file[..]);
    }

    #[test]
    fn an_edit_changes_one_line_and_can_be_read_back(
        file in file(), section in any::<prop::sample::Index>(), setting in setting(), value in "[a-z0-9=/:.,+-]{1,12}"
    ) {
        let mut document = Document::parse(&file);
        let section = section.index(document.sections().len());
        document.set(section, &setting, &value).unwrap();
        let edited = document.to_bytes();
        let (old, new) = (lines(&file), lines(&edited));
        let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let rest = usize::from(old.len() == new.len());
        prop_assert!(new.len() - old.len() <= 1);
        prop_assert_eq!(old.get(same + rest..).unwrap_or_default(), new.get(same + 1..).unwrap_or_default());
        // A reader of the bytes sees the same sections, and the value.
        let document = Document::parse(&edited);
        let entry = document.sections()[section].entries().rfind(|entry| entry.is(&setting)).unwrap();
        let read = if setting.whole_line { entry.whole_value() } else { entry.value() };
        prop_assert_eq!(read, value.as_bytes());
    }

    #[test]
    fn a_value_that_would_be_read_differently_is_rejected(value in "[ a\n#\0\t]{0,4}", setting in setting()) {
        let mut document = Document::parse(b"[Peer]\n");
        match document.set(1, &setting, &value) {
            Ok(()) => {
                let document = Document::parse(&document.to_bytes());
                let entry = document.sections()[1].entries().next().unwrap();
                prop_assert_eq!(if setting.whole_line { entry.whole_value() } else { entry.value() }, value.as_bytes());
            }
            Err(_) => prop_assert_eq!(text(&document), "[Peer]\n"),
        }
    }

    #[test]
    fn removing_a_section_leaves_the_others_unchanged(file in file(), section in any::<prop::sample::Index>()) {
        let mut document = Document::parse(&file);
        if document.sections().len() == 1 {
            return Ok(());
        }
        let section = 1 + section.index(document.sections().len() - 1);
        let mut expected = content(&document);
        expected.remove(section);
        document.remove_section(section);
        prop_assert_eq!(content(&document), expected.clone());
        // The same holds for the bytes, and no line is new but one that separates a comment from the header below.
        let left = document.to_bytes();
        prop_assert_eq!(content(&Document::parse(&left)), expected);
        let mut old = lines(&file).into_iter();
        prop_assert!(lines(&left).iter().all(|line| line.is_empty() || old.any(|old| old == *line)));
    }

    #[test]
    fn a_peer_that_is_disabled_and_enabled_again_is_the_same_byte_for_byte(
        file in file(), section in any::<prop::sample::Index>()
    ) {
        let mut document = Document::parse(&file);
        let kinds = |document: &Document| document.sections().iter().map(Section::kind).collect::<Vec<_>>();
        let section = section.index(document.sections().len());
        let is_astray = |section: &Section| {
            section.kind() != SectionKind::DisabledPeer && section.lines().any(|line| line.starts_with(b"#~"))
        };
        if document.sections()[section].kind() != SectionKind::Peer || document.sections().iter().any(is_astray) {
            return Ok(());
        }
        let mut expected = kinds(&document);
        let entries = document.sections()[section].entries().count();
        let names = |document: &Document| document.sections().iter().map(Section::name).collect::<Vec<_>>();
        let mut expected_names = names(&document);
        // A line that would become part of this peer is separated from it.
        let follows_disabled = document.sections()[section - 1].lines().last().is_some_and(|last| last.starts_with(b"#~"));
        document.disable(section);
        // A reader of the bytes sees the same sections, and nothing of this one.
        let mut read = Document::parse(&document.to_bytes());
        expected[section] = SectionKind::DisabledPeer;
        prop_assert_eq!(kinds(&read), expected);
        prop_assert_eq!(read.sections()[section].entries().count(), 0);
        prop_assert_eq!(read.sections()[section].enabled().entries().count(), entries);
        let mut read_names = names(&read);
        read_names.remove(section);
        expected_names.remove(section);
        prop_assert_eq!(read_names, expected_names);
        read.enable(section);
        match follows_disabled {
            true => {
                let read = read.to_bytes();
                let filled = |bytes| lines(bytes).into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>();
                prop_assert_eq!(filled(&read), filled(&file));
            }
            false => prop_assert_eq!(&*read.to_bytes(), &file[..]),
        }
    }

    #[test]
    fn disabling_a_disabled_peer_and_enabling_one_in_force_change_nothing(file in file()) {
        let mut document = Document::parse(&file);
        for section in 0..document.sections().len() {
            match document.sections()[section].kind() {
                SectionKind::DisabledPeer => document.disable(section),
                _ => document.enable(section),
            }
        }
        prop_assert_eq!(&*document.to_bytes(), &file[..]);
    }

    #[test]
    fn a_name_that_was_set_is_the_name(file in file(), section in any::<prop::sample::Index>()) {
        let mut document = Document::parse(&file);
        let section = section.index(document.sections().len());
        if document.sections()[section].kind() == SectionKind::Peer {
            document.set_name(section, "new").unwrap();
            let read = Document::parse(&document.to_bytes());
            prop_assert_eq!(read.sections()[section].name(), Some("new".to_owned()));
            let before = Document::parse(&file);
            let count = |document: &Document| document.sections()[section].entries().count();
            prop_assert_eq!(count(&read), count(&before));
        }
    }

    #[test]
    fn unsetting_a_setting_removes_only_its_lines(
        file in file(), section in any::<prop::sample::Index>(), setting in setting()
    ) {
        let mut document = Document::parse(&file);
        let section = section.index(document.sections().len());
        let content = content(&document);
        document.unset(section, &setting);
        prop_assert!(document.sections()[section].entries().all(|entry| !entry.is(&setting)));
        let count = |document: &Document| document.sections().iter().flat_map(|section| section.entries()).count();
        let gone = content[section].1.iter().filter(|(name, marked, _)| {
            *marked == setting.marked && name.eq_ignore_ascii_case(setting.name)
        });
        prop_assert_eq!(count(&document) + gone.count(), content.iter().map(|(_, content)| content.len()).sum::<usize>());
    }
}

/// What a file says, with and without its disabled peers.
fn read(document: &Document) -> [(TunnelFile, Vec<Diagnostic>); 2] {
    let interface: InterfaceName = "wg0".parse().unwrap();
    [TunnelFile::read, TunnelFile::read_with_disabled].map(|read| read(document, &interface, &NoNames))
}

/// A file in which two values of `PublicKey` are keys.
fn with_keys(file: &[u8]) -> Vec<u8> {
    let keyed = |line: &[u8]| {
        let (name, last) = [(&b"PublicKey = x"[..], "A"), (b"  publickey=y", "E")]
            .into_iter()
            .find(|(start, _)| line.starts_with(start))?;
        let key = format!("PublicKey = {}{last}=", "A".repeat(42));
        Some([key.as_bytes(), &line[name.len()..]].concat())
    };
    file.split_inclusive(|&byte| byte == b'\n').flat_map(|line| keyed(line).unwrap_or_else(|| line.to_vec())).collect()
}

type SectionContent = (Option<String>, Vec<(String, bool, Vec<u8>)>);

/// The names of all sections, and their settings with their values.
fn content(document: &Document) -> Vec<SectionContent> {
    let sections = document.sections().iter();
    let entries = sections.map(|section| {
        let entries = section.entries().map(|entry| (entry.name(), entry.marked, entry.whole_value().to_vec()));
        (section.name().filter(|_| section.kind() != SectionKind::Start), entries.collect())
    });
    entries.collect()
}

/// The lines without their ends, so that a line end added at the end of the file makes no difference.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line))).collect()
}

fn text(document: &Document) -> String {
    String::from_utf8(document.to_bytes().to_vec()).unwrap()
}

fn setting() -> impl Strategy<Value = Setting> {
    select(settings::all().copied().collect::<Vec<Setting>>())
}

fn of_peers() -> Vec<Setting> {
    settings::all().filter(|setting| setting.section == SectionKind::Peer).copied().collect()
}

/// Files of valid, nearly valid and meaningless lines.
fn file() -> impl Strategy<Value = Vec<u8>> {
    const LINES: [&[u8]; 36] = [
        b"[Interface]",
        b"[Peer]",
        b"[Peer]",
        b" [ pEEr ] # c",
        b"[Peer",
        b"[Other]",
        b"",
        b"",
        b" \t",
        b"# a comment",
        b"#",
        b"# Name = x",
        b"### Client y",
        b"# BEGIN_PEER z",
        b"# END_PEER z",
        b"### end z ###",
        b"#! KillSwitch = true",
        b"#!ExcludedIPs=10.0.0.0/8#c",
        b"#! not a key = 1",
        b"#!/bin/sh",
        b"PublicKey = x",
        b"  publickey=y#c",
        b"AllowedIPs = 10.0.0.0/8 ,\t11.0.0.0/8",
        b"Endpoint =",
        b"= x",
        b"PostUp = a # b",
        b"PreUp=#",
        b"MTU\t=\t1400",
        b"neither",
        b"A\0B = \xff",
        b"#~ [Peer]",
        b"#~ # Name = d",
        b"#~ PublicKey = d",
        b"#~",
        b"#~  # d",
        b"#~#~ [Peer]",
    ];
    let end = select(vec![&b"\n"[..], b"\r\n"]);
    let byte_order_mark = select(vec![&b""[..], b"", b"\xef\xbb\xbf"]);
    (byte_order_mark, vec(select(LINES.to_vec()), 0..24), end, any::<bool>()).prop_map(|(mark, lines, end, ended)| {
        let mut file = [mark, &lines.join(end)].concat();
        if ended {
            file.extend_from_slice(end);
        }
        file
    })
}
