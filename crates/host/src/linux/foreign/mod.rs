//! Firewalls of others: the base chains that filter what comes in, what is forwarded, or what is for the host, with their
//! rules, and what tunnels have opened in them.
//!
//! A rule is read as far as interfaces, addresses, states of connections, protocols and ports go, those in sets and maps
//! too ([`sets`]). Whoever asks wants to know whether there is a way for the tunnel, not what becomes of each packet.

mod legacy;
mod marks;
mod rule;
mod sets;

use std::collections::{BTreeMap, HashMap};

use linerate_netlink::{Attributes, Message, NLM_F_DUMP, NetlinkError, Request, attribute, text_of};
use rustix::io::Errno;

use self::rule::{Parsed, number};
use self::sets::Sets;
use super::nftables::{
    self, DROP, FAMILIES, FORWARD, LOCAL_IN, LOCAL_OUT, NFGENMSG, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETRULE,
    NFT_MSG_NEWRULE, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TABLE, NFTA_CHAIN_TYPE,
    NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_TABLE,
    NFTA_RULE_USERDATA, POST_ROUTING, PRE_ROUTING,
};
use super::socket::NetlinkSocket;
use crate::plan::opening;
use crate::state::{FirewallTool, Foreign, ForeignChain, ForeignHook, ForeignRule, ForeignVerdict};
use crate::step::{ForeignFirewall, Opening};

const NFT_MSG_NEWCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 3;
const NFT_MSG_GETCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 4;

/// `NF_CT_STATE_BIT` of connections that exist, or belong to one.
const KNOWN: u32 = 0x2 | 0x4;

/// The names of links by their indices.
pub(super) type Names = HashMap<u32, String>;

/// A chain in a message of the list.
struct Chain {
    family: u8,
    table: String,
    name: String,
    base: Option<Base>,
}

/// Where a base chain is met.
struct Base {
    hook: u32,
    priority: i32,
    policy: u32,
    /// It is of the type `filter`.
    filters: bool,
}

/// Reads them, and runs an iptables where rules are that only it can read.
pub(super) fn read(filter: Option<&mut NetlinkSocket>, names: &Names) -> Result<Foreign, NetlinkError> {
    let mut foreign = Foreign::default();
    if let Some(filter) = filter {
        read_nftables(filter, names, &mut foreign, false)?;
    }
    legacy::read(&mut foreign);
    foreign.openings.extend(marks::of_ufw());
    foreign.openings.extend(marks::of_firewalld());
    Ok(foreign)
}

/// Reads all base chains, those of tunnels, too, in the order in which packets meet those of a hook, with the chains
/// that packets meet from them on. None if they cannot be read.
pub(super) fn read_all(
    filter: Option<&mut NetlinkSocket>,
    names: &Names,
) -> Result<Option<Vec<ForeignChain>>, NetlinkError> {
    let mut foreign = Foreign::default();
    let is_read = match filter {
        Some(filter) => read_nftables(filter, names, &mut foreign, true)?,
        None => false,
    };
    legacy::read(&mut foreign);
    for chain in &mut foreign.chains {
        chain.rules = reachable(&chain.chain, std::mem::take(&mut chain.rules));
    }
    Ok((is_read || !foreign.chains.is_empty()).then_some(foreign.chains))
}

fn reachable(from: &str, mut all: BTreeMap<String, Vec<ForeignRule>>) -> BTreeMap<String, Vec<ForeignRule>> {
    let mut found = BTreeMap::new();
    let mut next = vec![from.to_owned()];
    while let Some(name) = next.pop() {
        let Some(rules) = all.remove(&name) else { continue };
        next.extend(rules.iter().filter_map(|rule| match &rule.verdict {
            ForeignVerdict::Jump(to) | ForeignVerdict::Goto(to) => Some(to.clone()),
            _ => None,
        }));
        found.insert(name, rules);
    }
    found
}

/// Reads those of others that filter what comes in or is forwarded, or all. False if that needs privileges.
fn read_nftables(
    filter: &mut NetlinkSocket,
    names: &Names,
    foreign: &mut Foreign,
    reads_all: bool,
) -> Result<bool, NetlinkError> {
    let request = Request::new(NFT_MSG_GETCHAIN, NLM_F_DUMP, &[0; NFGENMSG], Attributes::default());
    let mut chains = match filter.list(request, read_chain) {
        Err(refused) if Errno::from_io_error(&refused.error) == Some(Errno::PERM) => return Ok(false),
        chains => chains?,
    };
    if reads_all {
        chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
    }
    let has = |chain: &Chain, name: &str| {
        chains.iter().any(|other| (other.family, &other.table, &*other.name) == (chain.family, &chain.table, name))
    };
    let mut tables: BTreeMap<String, BTreeMap<String, Vec<ForeignRule>>> = BTreeMap::new();
    for chain in &chains {
        let Some(base) = &chain.base else { continue };
        let hook = match base.hook {
            FORWARD => ForeignHook::Forward,
            LOCAL_IN => ForeignHook::Input,
            PRE_ROUTING => ForeignHook::Prerouting,
            LOCAL_OUT if reads_all => ForeignHook::Output,
            POST_ROUTING if reads_all => ForeignHook::Postrouting,
            _ => continue,
        };
        let is_ours = chain.table.starts_with("linerate") || chain.table.starts_with("wg-quick-");
        let is_asked = reads_all || (base.filters && !is_ours);
        let families = FAMILIES.into_iter().filter(|(family, _)| ["ip", "ip6", "inet"].contains(family));
        let Some((family, _)) = families.into_iter().find(|(_, number)| *number == chain.family && is_asked) else {
            continue;
        };
        let table = format!("{family} {}", chain.table);
        if !tables.contains_key(&table) {
            let rules = rules(filter, chain.family, &chain.table)?;
            let id = |rule: &Rule| Some(opening::id(&format!("{table} {}", rule.chain), rule.mark.as_deref()?));
            foreign.openings.extend(rules.iter().filter_map(id));
            let sets = Sets::of(filter, chain.family, &chain.table, reads_all)?;
            let of_chains = tables.entry(table.clone()).or_default();
            let in_table = |other: &&Chain| (other.family, &other.table) == (chain.family, &chain.table);
            of_chains.extend(chains.iter().filter(in_table).map(|chain| (chain.name.clone(), Vec::new())));
            let mut numbers: HashMap<String, usize> = HashMap::new();
            for mut rule in rules {
                let number = numbers.entry(rule.chain.clone()).or_default();
                *number += 1;
                rule.parsed.rule.name = format!("rule {number} (handle {})", rule.handle);
                of_chains.entry(rule.chain).or_default().extend(sets.rules(filter, rule.parsed, names)?);
            }
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
            is_legacy: false,
            drops: base.policy == DROP,
        });
    }
    Ok(true)
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
    parsed: Parsed,
}

fn read_chain(message: &Message<'_>) -> Option<Chain> {
    let (head, body) = message.payload.split_at_checked(NFGENMSG).filter(|_| message.kind == NFT_MSG_NEWCHAIN)?;
    let base = |hook: &[u8]| {
        Some(Base {
            hook: attribute(hook, NFTA_HOOK_HOOKNUM).and_then(number)?,
            priority: attribute(hook, NFTA_HOOK_PRIORITY).and_then(number)?.cast_signed(),
            policy: attribute(body, NFTA_CHAIN_POLICY).and_then(number)?,
            filters: attribute(body, NFTA_CHAIN_TYPE).and_then(text_of).is_some_and(|kind| kind == "filter"),
        })
    };
    Some(Chain {
        family: head[0],
        table: attribute(body, NFTA_CHAIN_TABLE).and_then(text_of)?,
        name: attribute(body, NFTA_CHAIN_NAME).and_then(text_of)?,
        base: attribute(body, NFTA_CHAIN_HOOK).and_then(base),
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
    let expressions = attribute(body, NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    let parsed = Parsed::read(message.payload[0], comment, expressions)?;
    let chain = attribute(body, NFTA_RULE_CHAIN).and_then(text_of)?;
    let mark = parsed.comment.clone().filter(|comment| comment.starts_with("linerate "));
    Some(Rule { chain, handle: handle?, mark, parsed })
}

/// The comment in what `nft` keeps with a rule (`NFTNL_UDATA_RULE_COMMENT` of libnftnl).
fn comment(userdata: &[u8]) -> Option<String> {
    let [0, length, rest @ ..] = userdata else { return None };
    text_of(rest.get(..usize::from(*length))?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hostile::hostile_attributes;
    use super::*;

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
        }
    }
}
