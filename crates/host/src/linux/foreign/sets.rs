//! Sets and maps of nf_tables: a rule that looks something up becomes a rule for each element.
//!
//! What is not read (sets of addresses with names, which may be of any size; sets that change by themselves; keys of
//! other kinds) leaves the rule with a condition that is not known.

use std::collections::HashMap;

use linerate_netlink::{Attributes, Message, NLM_F_DUMP, NetlinkError, Request, attribute, attributes, text_of};
use rustix::io::Errno;

use super::Names;
use super::rule::{self, Field, Parsed, condition, link_is, number, restrict, verdict_of};
use crate::condition::Condition;
use crate::linux::nftables::{
    NFGENMSG, NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_SET_CONCAT, NFT_SET_ELEM_INTERVAL_END,
    NFT_SET_INTERVAL, NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_LIST_ELEM, NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_TABLE,
    NFTA_SET_FLAGS, NFTA_SET_KEY_LEN, NFTA_SET_NAME, NFTA_SET_TABLE,
};
use crate::linux::socket::NetlinkSocket;
use crate::state::{ForeignRule, ForeignVerdict};

const NFT_MSG_GETSET: u16 = NFNL_SUBSYS_NFTABLES << 8 | 10;
const NFT_MSG_GETSETELEM: u16 = NFNL_SUBSYS_NFTABLES << 8 | 13;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFT_SET_ELEM_CATCHALL: u32 = 0x2;
const NFT_SET_ANONYMOUS: u32 = 0x1;
const NFT_SET_TIMEOUT: u32 = 0x10;
const NFT_SET_EVAL: u32 = 0x20;

/// The register of verdicts.
const VERDICT: u32 = 0;

/// A rule becomes at most so many.
const MOST_RULES: usize = 1024;

/// A look-up in a set or a map.
pub(super) struct Lookup {
    pub(super) set: String,
    /// What the key may consist of: its length says of how many of these.
    pub(super) fields: Vec<Field>,
    /// The register of what a map has for the key.
    pub(super) to: Option<u32>,
    /// It is for packets whose key is not in the set.
    pub(super) inverted: bool,
}

/// The sets of a table.
pub(super) struct Sets<'a> {
    family: u8,
    table: &'a str,
    kinds: HashMap<String, Kind>,
    /// Sets of addresses with names are read, too, and those that change by themselves, as they are.
    reads_all: bool,
}

#[derive(Clone, Copy)]
struct Kind {
    flags: u32,
    key_length: usize,
}

/// Keys from the first to the last, both none for whatever is in no other element.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Element {
    first: Vec<u8>,
    last: Vec<u8>,
    is_rest: bool,
    verdict: Option<ForeignVerdict>,
}

/// An element as the kernel has it.
struct Raw {
    key: Vec<u8>,
    key_end: Option<Vec<u8>>,
    flags: u32,
    verdict: Option<ForeignVerdict>,
}

impl<'a> Sets<'a> {
    /// Those of a table, without their elements.
    pub(super) fn of(
        filter: &mut NetlinkSocket,
        family: u8,
        table: &'a str,
        reads_all: bool,
    ) -> Result<Self, NetlinkError> {
        let attributes = Attributes::default().with_text(NFTA_SET_TABLE, table);
        let request = Request::new(NFT_MSG_GETSET, NLM_F_DUMP, &[family, 0, 0, 0], attributes);
        let kinds = gone_is_empty(filter.list(request, |message| read_set(message, table)))?;
        Ok(Self { family, table, kinds: kinds.into_iter().collect(), reads_all })
    }

    /// The rules that a rule stands for.
    pub(super) fn rules(
        &self,
        filter: &mut NetlinkSocket,
        mut parsed: Parsed,
        links: &Names,
    ) -> Result<Vec<ForeignRule>, NetlinkError> {
        let mut rules = parsed.named(links);
        for lookup in &parsed.lookups {
            let kind = self.kinds.get(&lookup.set).copied();
            rules = match kind.and_then(|kind| Some((kind, key_of(lookup, kind, self.reads_all)?))) {
                Some((kind, fields)) => {
                    let elements = self.elements(filter, &lookup.set, kind)?;
                    let is_set = self.reads_all && lookup.to.is_none();
                    match is_set.then(|| is_in(&fields, &elements, !lookup.inverted, links)).flatten() {
                        Some(condition) => {
                            rules.iter_mut().for_each(|rule| rule.conditions.push(condition.clone()));
                            rules
                        }
                        None => expand(rules, lookup, &fields, elements, links),
                    }
                }
                None => unread(rules, lookup),
            };
        }
        Ok(rules)
    }

    fn elements(&self, filter: &mut NetlinkSocket, set: &str, kind: Kind) -> Result<Vec<Element>, NetlinkError> {
        let attributes = Attributes::default()
            .with_text(NFTA_SET_ELEM_LIST_TABLE, self.table)
            .with_text(NFTA_SET_ELEM_LIST_SET, set);
        let request = Request::new(NFT_MSG_GETSETELEM, NLM_F_DUMP, &[self.family, 0, 0, 0], attributes);
        let lists = gone_is_empty(filter.list(request, |message| read_elements(message, kind.key_length)))?;
        let elements = lists.into_iter().flatten().collect();
        Ok(if kind.flags & (NFT_SET_INTERVAL | NFT_SET_CONCAT) == NFT_SET_INTERVAL {
            intervals(elements, kind.key_length)
        } else {
            elements.into_iter().map(single).collect()
        })
    }
}

/// What is deleted while it is read has nothing in it.
fn gone_is_empty<T>(list: Result<Vec<T>, NetlinkError>) -> Result<Vec<T>, NetlinkError> {
    match list {
        Err(refused) if Errno::from_io_error(&refused.error) == Some(Errno::NOENT) => Ok(Vec::new()),
        list => list,
    }
}

/// The set in a message of the list, if it is one of `table`.
fn read_set(message: &Message<'_>, table: &str) -> Option<(String, Kind)> {
    let body = message.payload.get(NFGENMSG..).filter(|_| message.kind == NFT_MSG_NEWSET)?;
    if attribute(body, NFTA_SET_TABLE).and_then(text_of)? != table {
        return None;
    }
    let key_length = attribute(body, NFTA_SET_KEY_LEN).and_then(number)?.try_into().ok()?;
    let flags = attribute(body, NFTA_SET_FLAGS).and_then(number).unwrap_or(0);
    Some((attribute(body, NFTA_SET_NAME).and_then(text_of)?, Kind { flags, key_length }))
}

/// The elements in a message of the list.
fn read_elements(message: &Message<'_>, key_length: usize) -> Option<Vec<Raw>> {
    let body = message.payload.get(NFGENMSG..).filter(|_| message.kind == NFT_MSG_NEWSETELEM)?;
    let list = attributes(attribute(body, NFTA_SET_ELEM_LIST_ELEMENTS)?).filter(|(kind, _)| *kind == NFTA_LIST_ELEM);
    let element = |element: &[u8]| {
        let key = |kind| attribute(element, kind).and_then(|key| attribute(key, NFTA_DATA_VALUE)).map(<[u8]>::to_vec);
        let verdict = attribute(element, NFTA_SET_ELEM_DATA).and_then(|data| attribute(data, NFTA_DATA_VERDICT));
        let raw = Raw {
            key: key(NFTA_SET_ELEM_KEY).unwrap_or_default(),
            key_end: key(NFTA_SET_ELEM_KEY_END),
            flags: attribute(element, NFTA_SET_ELEM_FLAGS).and_then(number).unwrap_or(0),
            verdict: verdict.map(verdict_of),
        };
        let is_whole = raw.flags & NFT_SET_ELEM_CATCHALL != 0 || raw.key.len() == key_length;
        is_whole.then_some(raw)
    };
    Some(list.filter_map(|(_, bytes)| element(bytes)).collect())
}

fn single(raw: Raw) -> Element {
    let last = raw.key_end.unwrap_or_else(|| raw.key.clone());
    let is_rest = raw.flags & NFT_SET_ELEM_CATCHALL != 0;
    Element { first: raw.key, last, is_rest, verdict: raw.verdict }
}

/// The elements of a set of ranges: the kernel has the first key of each, and the one after its last.
fn intervals(raw: Vec<Raw>, key_length: usize) -> Vec<Element> {
    let (rest, mut bounds): (Vec<Raw>, Vec<Raw>) =
        raw.into_iter().partition(|raw| raw.flags & NFT_SET_ELEM_CATCHALL != 0);
    let is_end = |raw: &Raw| raw.flags & NFT_SET_ELEM_INTERVAL_END != 0;
    bounds.sort_by(|a, b| (&a.key, !is_end(a)).cmp(&(&b.key, !is_end(b))));
    let mut elements: Vec<Element> = Vec::new();
    let mut begun: Option<Raw> = None;
    for bound in bounds {
        let begins = !is_end(&bound);
        if let Some(first) = begun.take() {
            let last = before(&bound.key);
            elements.push(Element { first: first.key, last, is_rest: false, verdict: first.verdict });
        }
        begun = begins.then_some(bound);
    }
    if let Some(first) = begun {
        elements.push(Element {
            first: first.key,
            last: vec![0xff; key_length],
            is_rest: false,
            verdict: first.verdict,
        });
    }
    elements.extend(rest.into_iter().map(single));
    elements
}

/// The key before another, as numbers of the same length.
fn before(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    for byte in key.iter_mut().rev() {
        let (less, borrows) = byte.overflowing_sub(1);
        *byte = less;
        if !borrows {
            break;
        }
    }
    key
}

/// The fields of a key, if all are read.
fn key_of(lookup: &Lookup, kind: Kind, reads_all: bool) -> Option<Vec<Field>> {
    let changes_by_itself = !reads_all && kind.flags & (NFT_SET_TIMEOUT | NFT_SET_EVAL) != 0;
    let is_data_map = lookup.to.is_some_and(|register| register != VERDICT);
    let mut length = 0;
    let mut fields = Vec::new();
    for field in &lookup.fields {
        let bytes = field.length()?;
        let has_name = kind.flags & NFT_SET_ANONYMOUS == 0;
        if has_name && !reads_all && matches!(field, Field::Source(..) | Field::Destination(..)) {
            return None;
        }
        fields.push(*field);
        if fields.len() == 1 && kind.key_length == bytes {
            length = kind.key_length;
            break;
        }
        length += bytes.next_multiple_of(4);
        if length >= kind.key_length {
            break;
        }
    }
    (length == kind.key_length && !fields.is_empty() && !changes_by_itself && !is_data_map).then_some(fields)
}

/// The condition that a key is one of these, or is none of them; none if that is not read.
fn is_in(fields: &[Field], elements: &[Element], expected: bool, links: &Names) -> Option<Condition> {
    let range = |element: &'_ Element, at: usize, length: usize| {
        Some((element.first.get(at..at + length)?.to_vec(), element.last.get(at..at + length)?.to_vec()))
    };
    if elements.iter().any(|element| element.is_rest) {
        return None;
    }
    if let [field] = fields {
        let length = field.length()?;
        let ranges: Option<Vec<_>> = elements.iter().map(|element| range(element, 0, length)).collect();
        return condition(*field, &ranges?, expected, links);
    }
    let fields_of = |element: &Element| {
        let mut at = 0;
        let of = |field: &Field| {
            let length = field.length()?;
            let range = range(element, at, length)?;
            at += length.next_multiple_of(4);
            condition(*field, &[range], true, links)
        };
        fields.iter().map(of).collect::<Option<Vec<_>>>()
    };
    Some(Condition::AnyOf(expected, elements.iter().map(fields_of).collect::<Option<_>>()?))
}

/// Rules for what is looked up: one for each element, or for packets in none of them.
fn expand(
    rules: Vec<ForeignRule>,
    lookup: &Lookup,
    fields: &[Field],
    elements: Vec<Element>,
    links: &Names,
) -> Vec<ForeignRule> {
    if rules.len().saturating_mul(elements.len()) > MOST_RULES {
        return unread(rules, lookup);
    }
    let (rest, elements): (Vec<Element>, Vec<Element>) = elements.into_iter().partition(|element| element.is_rest);
    let outside = |mut rule: ForeignRule| {
        // What is not a pair may have one half of it.
        let mut is_read = |element: &Element| is_element(&mut rule, fields, element, true, links);
        if fields.len() > 1 || !elements.iter().all(&mut is_read) {
            rule::unread(&mut rule, true);
        }
        rule
    };
    if lookup.inverted {
        // Whatever is in no other element is in that for the rest.
        return if rest.is_empty() { rules.into_iter().map(outside).collect() } else { Vec::new() };
    }
    // Whatever is in no element comes last. What an element has decided does not get that far; the rest does.
    let comes_back =
        |element: &Element| matches!(element.verdict, Some(ForeignVerdict::Continue | ForeignVerdict::Jump(_)));
    let some_come_back = elements.iter().any(comes_back);
    let mut all = Vec::new();
    for rule in rules {
        for element in elements.iter().chain(&rest) {
            let mut rule = rule.clone();
            if element.is_rest {
                rule = if some_come_back { outside(rule) } else { rule };
            } else if !is_element(&mut rule, fields, element, false, links) {
                rule.has_others = true;
            }
            if lookup.to == Some(VERDICT) {
                rule.verdict = element.verdict.clone().unwrap_or_default();
            }
            all.push(rule);
        }
    }
    all
}

/// Rules with a look-up that is not read: a map might have any verdict.
fn unread(mut rules: Vec<ForeignRule>, lookup: &Lookup) -> Vec<ForeignRule> {
    for rule in &mut rules {
        rule::unread(rule, lookup.inverted);
        if lookup.to == Some(VERDICT) {
            rule.verdict = ForeignVerdict::Unknown;
        }
    }
    rules
}

/// Has a rule be for packets with the keys of an element, or for others. False if that is not read.
fn is_element(rule: &mut ForeignRule, fields: &[Field], element: &Element, inverted: bool, links: &Names) -> bool {
    let mut at = 0;
    let mut all_read = true;
    for field in fields {
        let length = field.length().unwrap_or(0);
        let (Some(first), Some(last)) = (element.first.get(at..at + length), element.last.get(at..at + length)) else {
            return false;
        };
        at += length.next_multiple_of(4);
        let is_read = match (field, <[u8; 4]>::try_from(first)) {
            (Field::IncomingIndex | Field::OutgoingIndex, Ok(index)) if first == last => {
                link_is(rule, *field, u32::from_ne_bytes(index), inverted, links);
                true
            }
            (Field::IncomingIndex | Field::OutgoingIndex, _) => false,
            (field, _) => restrict(rule, *field, first, last, inverted),
        };
        all_read &= is_read;
    }
    all_read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(key: u16, end: bool) -> Raw {
        let flags = if end { NFT_SET_ELEM_INTERVAL_END } else { 0 };
        Raw { key: key.to_be_bytes().to_vec(), key_end: None, flags, verdict: None }
    }

    fn ports(range: &Element) -> (u16, u16) {
        let port = |key: &[u8]| u16::from_be_bytes([key[0], key[1]]);
        (port(&range.first), port(&range.last))
    }

    fn element(first: &[u8], last: &[u8], verdict: Option<ForeignVerdict>) -> Element {
        Element { first: first.to_vec(), last: last.to_vec(), is_rest: false, verdict }
    }

    fn lookup(fields: &[Field], to: Option<u32>, inverted: bool) -> Lookup {
        Lookup { set: "s".into(), fields: fields.to_vec(), to, inverted }
    }

    fn name(text: &str) -> Vec<u8> {
        let mut name = text.as_bytes().to_vec();
        name.resize(16, 0);
        name
    }

    #[test]
    fn the_bounds_of_ranges_are_put_together() {
        // As nft makes { 53, 100-200, 65535 }: the first end belongs to nothing, the last range to none.
        let raw = [(0, true), (100, false), (54, true), (53, false), (201, true), (65535, false)];
        let read = intervals(raw.map(|(key, end)| bound(key, end)).into(), 2);
        assert_eq!(read.iter().map(ports).collect::<Vec<_>>(), [(53, 53), (100, 200), (65535, 65535)]);
    }

    #[test]
    fn ranges_that_touch_stay_apart() {
        let raw = [(10, false), (20, false), (20, true), (30, true)];
        let read = intervals(raw.map(|(key, end)| bound(key, end)).into(), 2);
        assert_eq!(read.iter().map(ports).collect::<Vec<_>>(), [(10, 19), (20, 29)]);
    }

    #[test]
    fn each_element_of_a_map_is_a_rule_with_its_verdict() {
        let fields = [Field::Incoming, Field::Outgoing];
        let pair = |from: &str, to: &str| [name(from), name(to)].concat();
        let elements = vec![
            element(&pair("wg1", "up0"), &pair("wg1", "up0"), Some(ForeignVerdict::Accept)),
            Element { is_rest: true, ..element(&[], &[], Some(ForeignVerdict::Drop)) },
        ];
        let lookup = lookup(&fields, Some(VERDICT), false);
        let rules = expand(vec![ForeignRule::default()], &lookup, &fields, elements, &Names::new());
        assert_eq!(rules.len(), 2);
        assert_eq!((&*rules[0].incoming[0].name, &*rules[0].outgoing[0].name), ("wg1", "up0"));
        assert_eq!((&rules[0].verdict, rules[0].has_others), (&ForeignVerdict::Accept, false));
        assert_eq!((&rules[1].verdict, rules[1].incoming.len()), (&ForeignVerdict::Drop, 0));
    }

    #[test]
    fn what_comes_back_from_an_element_is_not_for_the_rest() {
        let fields = [Field::Incoming];
        let judged = |verdict| {
            let elements = vec![
                Element { is_rest: true, ..element(&[], &[], Some(ForeignVerdict::Accept)) },
                element(&name("wg1"), &name("wg1"), Some(verdict)),
            ];
            let lookup = lookup(&fields, Some(VERDICT), false);
            let rules = expand(vec![ForeignRule::default()], &lookup, &fields, elements, &Names::new());
            let [_, rest] = &rules[..] else { panic!("{} rules", rules.len()) };
            assert_eq!((&rest.verdict, rest.has_others), (&ForeignVerdict::Accept, false));
            rest.incoming.clone()
        };
        let others = vec![crate::state::NamePattern { name: "wg1".into(), inverted: true }];
        for verdict in [ForeignVerdict::Jump("a".into()), ForeignVerdict::Continue] {
            assert_eq!(judged(verdict), others);
        }
        assert_eq!(judged(ForeignVerdict::Goto("a".into())), []);
    }

    #[test]
    fn what_is_in_no_element_is_for_none_of_their_names() {
        let elements = ["a", "b"].map(|text| element(&name(text), &name(text), None)).to_vec();
        let lookup = lookup(&[Field::Incoming], None, true);
        let rules = expand(vec![ForeignRule::default()], &lookup, &[Field::Incoming], elements, &Names::new());
        let [rule] = &rules[..] else { panic!("{} rules", rules.len()) };
        assert!(rule.incoming.len() == 2 && rule.incoming.iter().all(|name| name.inverted) && !rule.has_others);
    }

    #[test]
    fn what_is_not_read_might_let_pass() {
        let lookup = lookup(&[Field::Other], Some(VERDICT), false);
        let rules = unread(vec![ForeignRule::default()], &lookup);
        assert_eq!((rules[0].has_others, &rules[0].verdict), (true, &ForeignVerdict::Unknown));
    }

    #[test]
    fn a_key_ends_where_its_length_says() {
        let kind = |key_length, flags| Kind { flags, key_length };
        let stale = lookup(&[Field::Protocol, Field::Port, Field::Other], None, false);
        assert_eq!(key_of(&stale, kind(8, 0), false), Some(vec![Field::Protocol, Field::Port]));
        assert_eq!(key_of(&stale, kind(1, 0), false), Some(vec![Field::Protocol]));
        assert_eq!(key_of(&stale, kind(12, 0), false), None);
        assert_eq!(key_of(&stale, kind(8, NFT_SET_TIMEOUT), false), None);
    }
}
