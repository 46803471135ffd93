//! Firewalls of others: the base chains that filter what is forwarded, or what is for the host, with their rules, and
//! what tunnels have opened in them.
//!
//! A rule is read as far as interfaces, states of connections and ports of UDP go. Whoever asks wants to know whether
//! there is a way for the tunnel, not what becomes of each packet.

mod legacy;
mod marks;

use std::collections::{BTreeMap, BTreeSet};

use linerate_netlink::{Attributes, Message, NLM_F_DUMP, NetlinkError, Request, attribute, attributes, text_of};
use rustix::io::Errno;

use super::nftables::{
    self, ACCEPT, CT_STATE, DROP, FAMILIES, FORWARD, LOCAL_IN, META_IIFNAME, META_L4PROTO, META_OIFNAME, NFGENMSG,
    NFNL_SUBSYS_NFTABLES, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TABLE, NFTA_CHAIN_TYPE,
    NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_HOOK_HOOKNUM, NFTA_LIST_ELEM,
    NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_TABLE, NFTA_RULE_USERDATA, NFTA_VERDICT_CODE,
    TRANSPORT_HEADER,
};
use super::socket::NetlinkSocket;
use crate::plan::opening;
use crate::state::{FirewallTool, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict, NamePattern};
use crate::step::{ForeignFirewall, Opening};

const NFT_MSG_NEWCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 3;
const NFT_MSG_GETCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 4;
const NFT_MSG_NEWRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 6;
const NFT_MSG_GETRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 7;

const NFTA_VERDICT_CHAIN: u16 = 2;

// linux/netfilter/nf_tables.h
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
const UDP: u8 = 17;
/// `NF_CT_STATE_BIT` of connections that exist, or belong to one.
const KNOWN: u32 = 0x2 | 0x4;

/// What is there of firewalls of others.
#[derive(Default)]
pub struct Foreign {
    /// Their base chains.
    pub chains: Vec<ForeignChain>,
    /// What tunnels have opened in them ([`Opening::id`]).
    pub openings: BTreeSet<String>,
}

/// A chain in a message of the list.
struct Chain {
    family: u8,
    table: String,
    name: String,
    /// Its hook and policy, if it is a base chain that filters.
    base: Option<(u32, u32)>,
}

/// Reads them, and runs an iptables where rules are that only it can read.
pub(super) fn read(filter: Option<&mut NetlinkSocket>) -> Result<Foreign, NetlinkError> {
    let mut foreign = Foreign::default();
    if let Some(filter) = filter {
        match read_nftables(filter, &mut foreign) {
            // They cannot be read without privileges.
            Err(refused) if Errno::from_io_error(&refused.error) == Some(Errno::PERM) => {}
            outcome => outcome?,
        }
    }
    legacy::read(&mut foreign);
    foreign.openings.extend(marks::of_ufw());
    foreign.openings.extend(marks::of_firewalld());
    Ok(foreign)
}

fn read_nftables(filter: &mut NetlinkSocket, foreign: &mut Foreign) -> Result<(), NetlinkError> {
    let request = Request::new(NFT_MSG_GETCHAIN, NLM_F_DUMP, &[0; NFGENMSG], Attributes::default());
    let chains = filter.list(request, read_chain)?;
    let has = |chain: &Chain, name: &str| {
        chains.iter().any(|other| (other.family, &other.table, &*other.name) == (chain.family, &chain.table, name))
    };
    let mut tables: BTreeMap<String, BTreeMap<String, Vec<ForeignRule>>> = BTreeMap::new();
    for chain in &chains {
        let Some((hook, policy)) = chain.base else { continue };
        let hook = match hook {
            FORWARD => ForeignHook::Forward,
            LOCAL_IN => ForeignHook::Input,
            _ => continue,
        };
        let is_ours = chain.table.starts_with("linerate") || chain.table.starts_with("wg-quick-");
        let families = FAMILIES.into_iter().filter(|(family, _)| ["ip", "ip6", "inet"].contains(family));
        let Some((family, _)) = families.into_iter().find(|(_, number)| *number == chain.family && !is_ours) else {
            continue;
        };
        let table = format!("{family} {}", chain.table);
        if !tables.contains_key(&table) {
            let rules = rules(filter, chain.family, &chain.table)?;
            let id = |rule: &Rule| Some(opening::id(&format!("{table} {}", rule.chain), rule.mark.as_deref()?));
            foreign.openings.extend(rules.iter().filter_map(id));
            let of_chains = tables.entry(table.clone()).or_default();
            rules.into_iter().for_each(|rule| of_chains.entry(rule.chain).or_default().push(rule.rule));
        }
        let tool = if chain.table == "firewalld" {
            FirewallTool::Firewalld
        } else if has(chain, "ufw-user-forward") || has(chain, "ufw6-user-forward") {
            FirewallTool::Ufw
        } else if has(chain, "DOCKER-USER") && hook == ForeignHook::Forward {
            FirewallTool::Docker
        } else {
            FirewallTool::Other
        };
        let is_iptables =
            ["ip filter", "ip6 filter"].contains(&&*table) && ["FORWARD", "INPUT"].contains(&&*chain.name);
        foreign.chains.push(ForeignChain {
            rules: tables.get(&table).cloned().unwrap_or_default(),
            iptables: if is_iptables { legacy::of_nftables(family) } else { None },
            table,
            chain: chain.name.clone(),
            hook,
            tool,
            drops: policy == DROP,
        });
    }
    Ok(())
}

/// The rules of a table, in the order of each chain.
fn rules(filter: &mut NetlinkSocket, family: u8, table: &str) -> Result<Vec<Rule>, NetlinkError> {
    let attributes = Attributes::default().with_text(NFTA_RULE_TABLE, table);
    let request = Request::new(NFT_MSG_GETRULE, NLM_F_DUMP, &[family, 0, 0, 0], attributes);
    filter.list(request, |message| read_rule(message, table))
}

/// Opens a way in a chain of nf_tables: its rule comes first, once.
///
/// # Errors
/// The chain does not exist, or its table belongs to a program that lets nobody else change it.
pub(super) fn open(filter: &mut NetlinkSocket, opening: &Opening) -> Result<(), NetlinkError> {
    let Some((family, table, chain)) = place(opening) else { return Err(Errno::INVAL.into()) };
    let mut changes = deletions(filter, opening)?;
    changes.push(nftables::foreign_rule(family, table, chain, &opening.way, &opening.mark())?);
    nftables::transact(filter, changes)
}

/// Closes it.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn close(filter: &mut NetlinkSocket, opening: &Opening) -> Result<(), NetlinkError> {
    let changes = deletions(filter, opening)?;
    nftables::transact(filter, changes)
}

/// What deletes the rules that opened it.
fn deletions(filter: &mut NetlinkSocket, opening: &Opening) -> Result<Vec<Request>, NetlinkError> {
    let Some((family, table, chain)) = place(opening) else { return Err(Errno::INVAL.into()) };
    let mark = opening.mark();
    let rules = match rules(filter, family, table) {
        Err(refused) if Errno::from_io_error(&refused.error) == Some(Errno::NOENT) => Vec::new(),
        rules => rules?,
    };
    let ours = rules.into_iter().filter(|rule| rule.chain == chain && rule.mark.as_ref() == Some(&mark));
    Ok(ours.map(|rule| nftables::rule_deleted(family, table, chain, rule.handle)).collect())
}

/// Family, table and chain.
fn place(opening: &Opening) -> Option<(u8, &str, &str)> {
    let ForeignFirewall::Nftables { table, chain } = &opening.firewall else { return None };
    let (family, table) = table.split_once(' ')?;
    let (_, number) = FAMILIES.into_iter().find(|(name, _)| *name == family)?;
    Some((number, table, chain))
}

/// A rule, where it is, and whose.
struct Rule {
    chain: String,
    handle: u64,
    /// Its comment, if that is one of a tunnel.
    mark: Option<String>,
    rule: ForeignRule,
}

fn read_chain(message: &Message<'_>) -> Option<Chain> {
    let (head, body) = message.payload.split_at_checked(NFGENMSG).filter(|_| message.kind == NFT_MSG_NEWCHAIN)?;
    let hook = attribute(body, NFTA_CHAIN_HOOK).and_then(|hook| attribute(hook, NFTA_HOOK_HOOKNUM)).and_then(number);
    let filters = attribute(body, NFTA_CHAIN_TYPE).and_then(text_of).is_some_and(|kind| kind == "filter");
    Some(Chain {
        family: head[0],
        table: attribute(body, NFTA_CHAIN_TABLE).and_then(text_of)?,
        name: attribute(body, NFTA_CHAIN_NAME).and_then(text_of)?,
        base: hook.zip(attribute(body, NFTA_CHAIN_POLICY).and_then(number)).filter(|_| filters),
    })
}

/// The rule in a message of the list, if it is one of `table`.
fn read_rule(message: &Message<'_>, table: &str) -> Option<Rule> {
    let body = message.payload.get(NFGENMSG..).filter(|_| message.kind == NFT_MSG_NEWRULE)?;
    if attribute(body, NFTA_RULE_TABLE).and_then(text_of)? != table {
        return None;
    }
    let handle = attribute(body, NFTA_RULE_HANDLE).and_then(|handle| handle.try_into().ok()).map(u64::from_be_bytes);
    let comment = attribute(body, NFTA_RULE_USERDATA).and_then(comment);
    let mut reading = Reading { comment, ..Reading::default() };
    let expressions = attributes(attribute(body, NFTA_RULE_EXPRESSIONS).unwrap_or_default());
    for (_, expression) in expressions.filter(|(kind, _)| *kind == NFTA_LIST_ELEM) {
        let name = attribute(expression, NFTA_EXPR_NAME).and_then(text_of)?;
        reading.take(&name, attribute(expression, NFTA_EXPR_DATA).unwrap_or_default());
    }
    let chain = attribute(body, NFTA_RULE_CHAIN).and_then(text_of)?;
    let mark = reading.comment.take().filter(|comment| comment.starts_with("linerate "));
    Some(Rule { chain, handle: handle?, mark, rule: reading.finish() })
}

/// The comment in what `nft` keeps with a rule (`NFTNL_UDATA_RULE_COMMENT` of libnftnl).
fn comment(userdata: &[u8]) -> Option<String> {
    let [0, length, rest @ ..] = userdata else { return None };
    text_of(rest.get(..usize::from(*length))?)
}

/// A rule as far as it is read.
#[derive(Default)]
struct Reading {
    rule: ForeignRule,
    /// What the register holds that is compared next, and its mask.
    loaded: Loaded,
    mask: Option<u32>,
    comment: Option<String>,
    /// A set stands for ports or states: what is in it is not read, and those in question are taken to be.
    has_set: bool,
}

/// What the register holds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Loaded {
    Incoming,
    Outgoing,
    Protocol,
    Port,
    State,
    #[default]
    Other,
}

impl Reading {
    fn take(&mut self, name: &str, data: &[u8]) {
        let code = |kind: u16| attribute(data, kind).and_then(number);
        match name {
            "counter" | "log" => {}
            "meta" => {
                self.loaded = match code(2) {
                    Some(META_IIFNAME) => Loaded::Incoming,
                    Some(META_OIFNAME) => Loaded::Outgoing,
                    Some(META_L4PROTO) => Loaded::Protocol,
                    _ => Loaded::Other,
                };
                self.mask = None;
            }
            "payload" => {
                let is_port = [2, 3, 4].map(code) == [Some(TRANSPORT_HEADER), Some(2), Some(2)];
                (self.loaded, self.mask) = (if is_port { Loaded::Port } else { Loaded::Other }, None);
            }
            "ct" => {
                let is_state = code(2) == Some(CT_STATE);
                (self.loaded, self.mask) = (if is_state { Loaded::State } else { Loaded::Other }, None);
            }
            "bitwise" => {
                let mask = attribute(data, 4).and_then(|data| attribute(data, NFTA_DATA_VALUE));
                self.mask = mask.and_then(|mask| mask.try_into().ok()).map(u32::from_ne_bytes);
                if self.loaded != Loaded::State {
                    self.loaded = Loaded::Other;
                }
            }
            "cmp" => {
                let value = attribute(data, 3).and_then(|data| attribute(data, NFTA_DATA_VALUE)).unwrap_or_default();
                self.compare(code(2), value);
            }
            // Sets are not read: a port or a state may be in one.
            "lookup" if self.loaded == Loaded::Port => {
                self.has_set = true;
            }
            "lookup" if self.loaded == Loaded::State => {
                (self.rule.states, self.has_set) = (Some(KNOWN), true);
                // With a destination it is a map of verdicts, which usually accepts known connections.
                if code(3).is_some() {
                    self.rule.verdict = ForeignVerdict::Accept;
                }
            }
            "match" => {
                let info = attribute(data, 3).unwrap_or_default();
                self.iptables_match(attribute(data, 1).and_then(text_of).as_deref().unwrap_or_default(), info);
            }
            "target" => {
                if attribute(data, 1).and_then(text_of).is_some_and(|target| target == "REJECT") {
                    self.rule.verdict = ForeignVerdict::Drop;
                }
            }
            "reject" => self.rule.verdict = ForeignVerdict::Drop,
            "immediate" => {
                let verdict = attribute(data, 2).and_then(|data| attribute(data, NFTA_DATA_VERDICT));
                let Some(code) = verdict.and_then(|verdict| attribute(verdict, NFTA_VERDICT_CODE)).and_then(number)
                else {
                    return;
                };
                let chain = verdict.and_then(|verdict| attribute(verdict, NFTA_VERDICT_CHAIN)).and_then(text_of);
                self.rule.verdict = match (code, code.cast_signed(), chain) {
                    (ACCEPT, ..) => ForeignVerdict::Accept,
                    (DROP, ..) => ForeignVerdict::Drop,
                    (_, RETURN, _) => ForeignVerdict::Return,
                    (_, JUMP, Some(chain)) => ForeignVerdict::Jump(chain),
                    (_, GOTO, Some(chain)) => ForeignVerdict::Goto(chain),
                    _ => ForeignVerdict::Continue,
                };
            }
            _ => self.rule.has_others = true,
        }
    }

    fn compare(&mut self, operator: Option<u32>, value: &[u8]) {
        if let (Loaded::Port, &[high, low]) = (self.loaded, value)
            && let Some(AT_MOST | AT_LEAST) = operator
        {
            let port = u16::from_be_bytes([high, low]);
            let (first, last) = self.rule.ports.get_or_insert((0, u16::MAX));
            *(if operator == Some(AT_LEAST) { first } else { last }) = port;
            return;
        }
        let inverted = match operator {
            Some(EQUAL) => false,
            Some(NOT_EQUAL) => true,
            _ => return self.rule.has_others = true,
        };
        let name = || Some(NamePattern { name: pattern(value), inverted });
        match (self.loaded, value) {
            (Loaded::Incoming, _) => self.rule.incoming = name(),
            (Loaded::Outgoing, _) => self.rule.outgoing = name(),
            (Loaded::Port, &[high, low]) if !inverted => {
                let port = u16::from_be_bytes([high, low]);
                self.rule.ports = Some((port, port));
            }
            (Loaded::Protocol, &[protocol]) if !inverted => self.rule.protocol = Some(protocol),
            (Loaded::State, &[a, b, c, d]) => {
                let value = u32::from_ne_bytes([a, b, c, d]);
                self.rule.states = match (self.mask, value, inverted) {
                    (Some(mask), 0, true) => Some(mask),
                    (Some(mask), 0, false) => Some(!mask),
                    (None, states, false) => Some(states),
                    (None, states, true) => Some(!states),
                    _ => return self.rule.has_others = true,
                };
            }
            _ => self.rule.has_others = true,
        }
    }

    /// What iptables matches by itself.
    fn iptables_match(&mut self, name: &str, info: &[u8]) {
        let read = match name {
            "comment" => {
                let end = info.iter().position(|byte| *byte == 0).unwrap_or(info.len());
                self.comment = Some(String::from_utf8_lossy(&info[..end]).into_owned());
                true
            }
            // linux/netfilter/xt_tcpudp.h: two ranges of ports, in the host's byte order, and what is inverted.
            "udp" => {
                self.rule.protocol = Some(UDP);
                let is_plain = info.get(8) == Some(&0) && info.get(..4).is_some_and(|from| from == [0, 0, 0xff, 0xff]);
                self.rule.ports = info.get(4..8).and_then(ports);
                is_plain && self.rule.ports.is_some()
            }
            "conntrack" => match conntrack_states(info) {
                Some(states) => {
                    self.rule.states = Some(states);
                    true
                }
                None => false,
            },
            "state" => match info.try_into().map(u32::from_ne_bytes) {
                Ok(states) => {
                    self.rule.states = Some(states);
                    true
                }
                Err(_) => false,
            },
            _ => false,
        };
        self.rule.has_others |= !read;
    }

    fn finish(mut self) -> ForeignRule {
        if self.has_set && self.rule.verdict != ForeignVerdict::Accept {
            self.rule.has_others = true;
        }
        self.rule
    }
}

/// The states that a match of the kind `conntrack` is for, if it is for nothing else (linux/netfilter/xt_conntrack.h,
/// `struct xt_conntrack_mtinfo3`: flags and inverted flags after eight addresses and four ports, then the states).
fn conntrack_states(info: &[u8]) -> Option<u32> {
    const STATE: u16 = 1;
    let field = |at: usize| info.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let (flags, inverted, states) = (field(146)?, field(148)?, u32::from(field(150)?));
    (flags == STATE).then_some(if inverted & STATE == 0 { states } else { !states })
}

/// The name of an interface; without a NUL at its end, `*` stands for what follows.
fn pattern(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let name = String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned();
    if end.is_none() { name + "*" } else { name }
}

fn ports(range: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *range else { return None };
    Some((u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])))
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hostile::hostile_attributes;
    use super::*;

    #[test]
    fn a_name_without_an_end_is_a_pattern() {
        assert_eq!(pattern(b"wg0\0\0\0"), "wg0");
        assert_eq!(pattern(b"wg"), "wg*");
        assert_eq!(pattern(b""), "*");
    }

    #[test]
    fn a_match_of_states_and_something_else_is_not_read() {
        let mut info = [0; 160];
        info[146..152].copy_from_slice(&[1, 0, 0, 0, 6, 0]);
        assert_eq!(conntrack_states(&info), Some(6));
        info[148] = 1;
        assert_eq!(conntrack_states(&info), Some(!6));
        info[146] = 3;
        assert_eq!(conntrack_states(&info), None);
        assert_eq!(conntrack_states(&info[..151]), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=NFGENMSG), odd in hostile_attributes()) {
            let inner = Attributes::default()
                .with_text(NFTA_RULE_TABLE, "filter")
                .with_text(NFTA_RULE_CHAIN, "FORWARD")
                .with(NFTA_RULE_EXPRESSIONS, &odd);
            for payload in [[&fixed[..], &odd].concat(), [&[0; NFGENMSG][..], inner.bytes()].concat()] {
                for kind in [NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE] {
                    let message = Message { kind, flags: 0, sequence: 0, payload: &payload };
                    let _ = (read_chain(&message), read_rule(&message, "filter"));
                }
            }
            let _ = comment(&odd);
            let mut reading = Reading::default();
            for name in ["comment", "udp", "conntrack", "state"] {
                reading.iptables_match(name, &odd);
            }
        }
    }
}
