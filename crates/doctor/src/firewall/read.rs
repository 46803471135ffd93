//! What `nft -j list ruleset` prints, as chains. Whatever is not understood is left out, or a condition that may hold.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use linerate_host::condition::Condition;
use linerate_host::state::{Change, FirewallTool, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict};
use linerate_host::step::AddressFamily;
use linerate_host::verdict::{ESTABLISHED, NEW};
use serde_json::Value;

use super::{Ruleset, protocol};

/// The rules of a table by their chains.
type Rules = BTreeMap<String, Vec<ForeignRule>>;

impl Ruleset {
    /// The tables in the output of `nft -j list ruleset`.
    #[must_use]
    pub fn parse(json: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(json).ok()?;
        let all = all.get("nftables")?.as_array()?;
        let mut sets = Sets::new();
        for object in all.iter().filter_map(|object| object.get("set").or_else(|| object.get("map"))) {
            if let Some((family, table, name)) = place(object, "name") {
                let elements = object.get("elem").and_then(Value::as_array);
                sets.insert((family, table, name), elements.map_or(&[], Vec::as_slice));
            }
        }
        let mut tables: BTreeMap<(&str, &str), Rules> = BTreeMap::new();
        for object in all {
            if let Some((family, table, name)) = object.get("chain").and_then(|chain| place(chain, "name")) {
                tables.entry((family, table)).or_default().entry(name.to_owned()).or_default();
            }
            let Some(rule) = object.get("rule") else { continue };
            let Some((family, table, name)) = place(rule, "chain") else { continue };
            if let Some(rules) = tables.get_mut(&(family, table)).and_then(|chains| chains.get_mut(name)) {
                rules.extend(read_rule(rule, &|name| sets.get(&(family, table, name)).copied()));
            }
        }
        let mut bases: Vec<(i64, ForeignChain)> =
            all.iter().filter_map(|one| base(one.get("chain")?, &tables)).collect();
        bases.sort_by_key(|(priority, _)| *priority);
        Some(Self { chains: bases.into_iter().map(|(_, chain)| chain).collect() })
    }
}

/// A base chain and its priority.
fn base(object: &Value, tables: &BTreeMap<(&str, &str), Rules>) -> Option<(i64, ForeignChain)> {
    let (family, table, name) = place(object, "name")?;
    let hook = match text(object, "hook").filter(|_| ["inet", "ip", "ip6"].contains(&family))? {
        "prerouting" => ForeignHook::Prerouting,
        "input" => ForeignHook::Input,
        "forward" => ForeignHook::Forward,
        "output" => ForeignHook::Output,
        "postrouting" => ForeignHook::Postrouting,
        _ => return None,
    };
    let chain = ForeignChain {
        table: format!("{family} {table}"),
        chain: name.to_owned(),
        hook,
        tool: FirewallTool::Other,
        iptables: None,
        is_legacy: false,
        drops: text(object, "policy") == Some("drop"),
        rules: reachable(name, tables.get(&(family, table))?),
    };
    Some((object.get("prio").and_then(Value::as_i64).unwrap_or(0), chain))
}

/// The chains that packets meet from one on.
fn reachable(from: &str, all: &Rules) -> Rules {
    let mut found = Rules::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        let Some(rules) = all.get(name).filter(|_| !found.contains_key(name)) else { continue };
        found.insert(name.to_owned(), rules.clone());
        next.extend(rules.iter().filter_map(|rule| match &rule.verdict {
            ForeignVerdict::Jump(to) | ForeignVerdict::Goto(to) => Some(&**to),
            _ => None,
        }));
    }
    found
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// The family, the table, and the name under which the chain is in `object`.
fn place<'a>(object: &'a Value, chain: &str) -> Option<(&'a str, &'a str, &'a str)> {
    Some((text(object, "family")?, text(object, "table")?, text(object, chain)?))
}

/// The elements of sets and maps that have names, by family, table and name.
type Sets<'a> = HashMap<(&'a str, &'a str, &'a str), &'a [Value]>;

/// Those of a table, by name.
type Named<'a> = dyn Fn(&str) -> Option<&'a [Value]> + 'a;

/// The rule; one with a verdict map is a rule for each of the map's elements.
fn read_rule<'a>(object: &'a Value, named: &Named<'a>) -> Vec<ForeignRule> {
    let mut cases = Vec::new();
    let mut rule = ForeignRule::default();
    for statement in object.get("expr").and_then(Value::as_array).into_iter().flatten() {
        let Some((name, value)) = statement.as_object().and_then(|object| object.iter().next()) else { continue };
        match name.as_str() {
            "match" => rule.conditions.extend(conditions(value, named)),
            "vmap" => match map(value, named) {
                Some(elements) => cases = elements,
                None => rule.verdict = ForeignVerdict::Unknown,
            },
            "counter" => rule.packets = value.get("packets").and_then(Value::as_u64),
            "accept" | "drop" | "reject" | "jump" | "goto" | "return" => rule.verdict = verdict(name, value),
            "masquerade" | "snat" => rule.changes.push(Change::Source),
            "dnat" | "redirect" => rule.verdict = ForeignVerdict::Accept,
            "mangle" => {
                if value.get("key").and_then(|key| text(key.get("meta")?, "key")) == Some("mark") {
                    let mark = value.get("value").and_then(Value::as_u64);
                    rule.changes.push(Change::Mark(mark.and_then(|mark| mark.try_into().ok())));
                }
                let option = value.get("key").and_then(|key| key.get("tcp option"));
                if option.and_then(|option| text(option, "name")) == Some("maxseg") {
                    rule.changes.push(Change::SegmentSize);
                }
            }
            "xt" => match text(value, "name") {
                Some("REJECT" | "DROP") => rule.verdict = ForeignVerdict::Drop,
                Some("MASQUERADE" | "SNAT") => rule.changes.push(Change::Source),
                Some("TCPMSS") => rule.changes.push(Change::SegmentSize),
                Some("MARK" | "CONNMARK") => rule.changes.push(Change::Mark(None)),
                Some("comment") => {}
                _ if text(value, "type") == Some("match") => rule.conditions.push(Condition::Match),
                _ => {}
            },
            "log" | "comment" | "notrack" | "flow" | "last" => {}
            // What is added to a set may have a limit of its own, and the set may be full.
            "limit" | "quota" | "set" => rule.conditions.push(Condition::Unknown),
            // It may also be a condition of what follows.
            _ => {
                rule.conditions.push(Condition::Unknown);
                rule.verdict = ForeignVerdict::Unknown;
            }
        }
    }
    if cases.is_empty() {
        return vec![rule];
    }
    let case = |(more, verdict): (Vec<Condition>, ForeignVerdict)| {
        let conditions = rule.conditions.iter().cloned().chain(more).collect();
        ForeignRule { conditions, verdict, ..rule.clone() }
    };
    cases.into_iter().map(case).collect()
}

fn verdict(name: &str, value: &Value) -> ForeignVerdict {
    let target = || text(value, "target").unwrap_or_default().to_owned();
    match name {
        "accept" => ForeignVerdict::Accept,
        "drop" | "reject" => ForeignVerdict::Drop,
        "jump" => ForeignVerdict::Jump(target()),
        "goto" => ForeignVerdict::Goto(target()),
        "return" => ForeignVerdict::Return,
        "continue" => ForeignVerdict::Continue,
        _ => ForeignVerdict::Unknown,
    }
}

/// What a verdict map does, element by element. Which of them a packet is, excludes the others.
fn map<'a>(value: &'a Value, named: &Named<'a>) -> Option<Vec<(Vec<Condition>, ForeignVerdict)>> {
    let (key, data) = (value.get("key")?, value.get("data")?);
    let elements = match data.as_str() {
        Some(name) => named(name.strip_prefix('@')?)?,
        None => data.get("set")?.as_array()?,
    };
    let of = |element: &'a Value| Some(element_value(element.as_array()?.first()?)).filter(|of| !is_rest(of));
    let all: Vec<&Value> = elements.iter().filter_map(of).collect();
    let case = |element: &'a Value| {
        let [of, then] = element.as_array()?.as_slice() else { return None };
        let (name, value) = then.as_object()?.iter().next()?;
        let of = element_value(of);
        // What has come back from an element is not for the rest.
        let known = if is_rest(of) { condition(false, key, &all) } else { condition(true, key, &[of]) };
        let conditions = implied(key).into_iter().chain([known.unwrap_or(Condition::Unknown)]).collect();
        Some((conditions, verdict(name, value)))
    };
    // One without elements does nothing.
    let nothing = || vec![(Vec::new(), ForeignVerdict::Continue)];
    elements.iter().map(case).collect::<Option<Vec<_>>>().map(|cases| if cases.is_empty() { nothing() } else { cases })
}

/// Whether it stands for whatever is in no other element.
fn is_rest(element: &Value) -> bool {
    element.as_str() == Some("*")
}

/// An element without what belongs to it, such as its counter.
fn element_value(element: &Value) -> &Value {
    element.get("elem").and_then(|inner| inner.get("val")).unwrap_or(element)
}

fn conditions<'a>(value: &'a Value, named: &Named<'a>) -> Vec<Condition> {
    let compare = || {
        let expected = match text(value, "op")? {
            "==" | "in" => true,
            "!=" => false,
            _ => return None,
        };
        condition(expected, value.get("left")?, &items(value.get("right")?, named)?)
    };
    let known = compare().unwrap_or(Condition::Unknown);
    value.get("left").and_then(implied).into_iter().chain([known]).collect()
}

/// The condition that comes with looking at a header, which packets of other protocols do not have.
fn implied(left: &Value) -> Option<Condition> {
    if let Some(parts) = left.get("concat").and_then(Value::as_array) {
        return parts.iter().find_map(implied);
    }
    let of_bits = || left.get("&")?.as_array()?.first()?.get("payload");
    match text(left.get("payload").or_else(of_bits)?, "protocol")? {
        "ip" => Some(Condition::Family(true, vec![AddressFamily::V4])),
        "ip6" => Some(Condition::Family(true, vec![AddressFamily::V6])),
        name => Some(Condition::Protocol(true, vec![protocol::number(name)?])),
    }
}

fn condition(expected: bool, left: &Value, right: &[&Value]) -> Option<Condition> {
    let texts = || -> Option<Vec<String>> {
        let text = |item: &Value| item.as_str().map(str::to_owned).or_else(|| Some(item.as_u64()?.to_string()));
        right.iter().map(|item| text(item)).collect()
    };
    let protocols = || texts()?.iter().map(|name| protocol::number(name)).collect::<Option<Vec<u8>>>();
    if let Some(key) = left.get("meta").and_then(|meta| text(meta, "key")) {
        return Some(match key {
            "iifname" | "iif" => Condition::Incoming(expected, texts()?),
            "oifname" | "oif" => Condition::Outgoing(expected, texts()?),
            "l4proto" => Condition::Protocol(expected, protocols()?),
            "nfproto" => {
                let family = |name: &String| match name.as_str() {
                    "ipv4" => Some(AddressFamily::V4),
                    "ipv6" => Some(AddressFamily::V6),
                    _ => None,
                };
                Condition::Family(expected, texts()?.iter().map(family).collect::<Option<_>>()?)
            }
            "mark" => {
                let number = |item: &&Value| u32::try_from(item.as_u64()?).ok();
                Condition::Mark(expected, right.iter().map(number).collect::<Option<_>>()?)
            }
            _ => return None,
        });
    }
    match left.get("ct").and_then(|ct| text(ct, "key")) {
        Some("state") => {
            // What is invalid or untracked is never asked about.
            let bit = |name: &String| match name.as_str() {
                "established" => ESTABLISHED,
                "new" => NEW,
                _ => 0,
            };
            return Some(Condition::States(expected, texts()?.iter().map(bit).fold(0, |all, bit| all | bit)));
        }
        Some("status") => {
            let is_translation = |name: &String| name == "dnat" || name == "snat";
            return texts()?.iter().all(is_translation).then_some(Condition::Translated(expected));
        }
        _ => {}
    }
    if let Some(parts) = left.get("concat").and_then(Value::as_array) {
        let element = |item: &&Value| {
            let fields = item.get("concat")?.as_array()?;
            let field = |(part, value): (&Value, &Value)| condition(true, part, &[value]);
            (fields.len() == parts.len()).then(|| parts.iter().zip(fields).map(field).collect::<Option<Vec<_>>>())?
        };
        return Some(Condition::AnyOf(expected, right.iter().map(element).collect::<Option<_>>()?));
    }
    if let Some(fib) = left.get("fib") {
        let flags = fib.get("flags").and_then(Value::as_array)?;
        let has = |name: &str| flags.iter().any(|flag| flag == name);
        let is_oif = matches!(text(fib, "result"), Some("oif" | "oifname"));
        return match right {
            _ if !is_oif || !has("saddr") => None,
            [Value::Bool(is_there)] if has("iif") => Some(Condition::Backwards(expected != *is_there)),
            [Value::Bool(_)] => None,
            _ if has("iif") => None,
            _ => Some(Condition::SourceRoute(expected, texts()?)),
        };
    }
    let payload = left.get("payload")?;
    match (text(payload, "protocol")?, text(payload, "field")?) {
        ("udp" | "tcp" | "th", "dport") => Some(Condition::Port(expected, ports(right)?)),
        ("udp" | "tcp" | "th", "sport") => Some(Condition::SourcePort(expected, ports(right)?)),
        ("icmp" | "icmpv6", "type") => Some(Condition::Echo(expected, texts()?)),
        ("ip" | "ip6", "saddr") => Some(Condition::Source(expected, nets(right)?)),
        ("ip" | "ip6", "daddr") => Some(Condition::Destination(expected, nets(right)?)),
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(Condition::Protocol(expected, protocols()?)),
        _ => None,
    }
}

/// The values of a set, a list, or a single one; none for a set that is not known.
fn items<'a>(right: &'a Value, named: &Named<'a>) -> Option<Vec<&'a Value>> {
    let all = |items: &'a [Value]| items.iter().map(element_value).collect();
    match right {
        Value::String(name) if name.starts_with('@') => named(&name[1..]).map(all),
        Value::Array(items) => Some(all(items)),
        Value::Object(object) => match object.get("set") {
            Some(Value::Array(items)) => Some(all(items)),
            Some(_) => None,
            None => Some(vec![right]),
        },
        _ => Some(vec![right]),
    }
}

fn ports(items: &[&Value]) -> Option<Vec<(u16, u16)>> {
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let range = |item: &&Value| match item.get("range").and_then(Value::as_array) {
        Some(ends) => Some((port(ends.first()?)?, port(ends.get(1)?)?)),
        None => port(item).map(|port| (port, port)),
    };
    items.iter().map(range).collect()
}

fn nets(items: &[&Value]) -> Option<Vec<IpNet>> {
    let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    let mut nets = Vec::new();
    for item in items {
        if let Some(prefix) = item.get("prefix") {
            let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
            nets.push(IpNet::new(text(prefix, "addr")?.parse().ok()?, length).ok()?);
        } else if let Some(ends) = item.get("range").and_then(Value::as_array) {
            let (first, last) = (address(ends.first()?)?, address(ends.get(1)?)?);
            match (first, last) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    nets.extend(IpSubnets::from(Ipv4Subnets::new(first, last, 0)));
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    nets.extend(IpSubnets::from(Ipv6Subnets::new(first, last, 0)));
                }
                _ => return None,
            }
        } else {
            nets.push(address(item)?.into());
        }
    }
    Some(nets)
}
