//! Firewalls of others: base chains that drop what no rule accepts, and which rules accept what a gateway forwards.
//!
//! A rule is read as far as interfaces, ports and known connections go. Whoever asks wants to know whether somebody has
//! made way for the tunnel, not what becomes of each packet.

use linerate_netlink::{Attributes, Message, NLM_F_DUMP, NetlinkError, Request, attribute, attributes, text_of};

use super::nftables::{
    CT_STATE, FAMILIES, META_IIFNAME, META_L4PROTO, META_OIFNAME, NFGENMSG, NFNL_SUBSYS_NFTABLES, NFTA_CHAIN_HOOK,
    NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TABLE, NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_EXPR_DATA,
    NFTA_EXPR_NAME, NFTA_HOOK_HOOKNUM, NFTA_LIST_ELEM, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE,
    NFTA_VERDICT_CODE, TRANSPORT_HEADER,
};
use super::socket::NetlinkSocket;
use crate::state::{FirewallTool, ForeignChain, ForeignHook, ForeignRule};

const NFT_MSG_NEWCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 3;
const NFT_MSG_GETCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 4;
const NFT_MSG_NEWRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 6;
const NFT_MSG_GETRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 7;

const NFTA_VERDICT_CHAIN: u16 = 2;

const LOCAL_IN: u32 = 1;
const FORWARD: u32 = 2;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// `NFT_GOTO`, with which firewalld leaves a chain for that of a zone.
const GOTO: i32 = -4;
const UDP: u8 = 17;

/// A chain in a message of the list.
struct Chain {
    family: u8,
    table: String,
    name: String,
    /// Its hook and policy, if it is a base chain.
    base: Option<(u32, u32)>,
}

/// The base chains of others that forward, or let in, only what their rules accept.
pub(super) fn read(filter: &mut NetlinkSocket) -> Result<Vec<ForeignChain>, NetlinkError> {
    let request = Request::new(NFT_MSG_GETCHAIN, NLM_F_DUMP, &[0; NFGENMSG], Attributes::default());
    let chains = filter.list(request, read_chain)?;
    let has = |chain: &Chain, name: &str| {
        chains.iter().any(|other| (other.family, &other.table, &*other.name) == (chain.family, &chain.table, name))
    };
    let mut foreign = Vec::new();
    for chain in &chains {
        let Some((hook, policy)) = chain.base else { continue };
        let hook = match hook {
            FORWARD => ForeignHook::Forward,
            LOCAL_IN => ForeignHook::Input,
            _ => continue,
        };
        let tool = if chain.table == "firewalld" {
            FirewallTool::Firewalld
        } else if has(chain, "ufw-user-forward") || has(chain, "ufw6-user-forward") {
            FirewallTool::Ufw
        } else if has(chain, "DOCKER-USER") {
            FirewallTool::Docker
        } else {
            FirewallTool::Other
        };
        // The last rule of firewalld's chains rejects everything.
        let is_firewalld = tool == FirewallTool::Firewalld && chain.name.starts_with("filter_");
        let is_ours = chain.table.starts_with("linerate") || chain.table.starts_with("wg-quick-");
        let Some((family, _)) = FAMILIES.into_iter().find(|(_, number)| *number == chain.family) else { continue };
        if (policy != DROP && !is_firewalld) || is_ours {
            continue;
        }
        let table = Attributes::default().with_text(NFTA_RULE_TABLE, &chain.table);
        let request = Request::new(NFT_MSG_GETRULE, NLM_F_DUMP, &[chain.family, 0, 0, 0], table);
        let rules = filter.list(request, |message| read_rule(message, &chain.table))?;
        foreign.push(ForeignChain {
            table: format!("{family} {}", chain.table),
            chain: chain.name.clone(),
            hook,
            tool,
            rules: reached(rules, &chain.name),
        });
    }
    Ok(foreign)
}

/// What the rules accept that packets meet from the chain `from` on. Elsewhere only conditions tell of what is meant.
fn reached(rules: Vec<Rule>, from: &str) -> Vec<ForeignRule> {
    let mut chains = vec![from.to_owned()];
    let mut next = 0;
    while let Some(chain) = chains.get(next).cloned() {
        let targets = rules.iter().filter(|rule| rule.chain == chain).filter_map(|rule| rule.target.clone());
        let new: Vec<String> = targets.filter(|target| !chains.contains(target)).collect();
        chains.extend(new);
        next += 1;
    }
    let accepted = rules.into_iter().filter(|rule| chains.contains(&rule.chain));
    let accepted = accepted.filter_map(|rule| rule.accepts.map(|accepts| (rule.chain, accepts)));
    let is_meant = |(chain, rule): &(String, ForeignRule)| chain == from || *rule != ForeignRule::default();
    accepted.filter(is_meant).map(|(_, rule)| rule).collect()
}

/// A rule: its chain, the chain that it leads to, and what it accepts as far as that can be read here.
struct Rule {
    chain: String,
    target: Option<String>,
    accepts: Option<ForeignRule>,
}

fn read_chain(message: &Message<'_>) -> Option<Chain> {
    let (head, body) = message.payload.split_at_checked(NFGENMSG).filter(|_| message.kind == NFT_MSG_NEWCHAIN)?;
    let hook = attribute(body, NFTA_CHAIN_HOOK).and_then(|hook| attribute(hook, NFTA_HOOK_HOOKNUM)).and_then(number);
    Some(Chain {
        family: head[0],
        table: attribute(body, NFTA_CHAIN_TABLE).and_then(text_of)?,
        name: attribute(body, NFTA_CHAIN_NAME).and_then(text_of)?,
        base: hook.zip(attribute(body, NFTA_CHAIN_POLICY).and_then(number)),
    })
}

/// The rule in a message of the list, if it is one of `table`.
fn read_rule(message: &Message<'_>, table: &str) -> Option<Rule> {
    let body = message.payload.get(NFGENMSG..).filter(|_| message.kind == NFT_MSG_NEWRULE)?;
    if attribute(body, NFTA_RULE_TABLE).and_then(text_of)? != table {
        return None;
    }
    let chain = attribute(body, NFTA_RULE_CHAIN).and_then(text_of)?;
    let mut rule = ForeignRule::default();
    let mut loaded = Loaded::Other;
    let mut accepts = false;
    let mut target = None;
    let mut is_partly_read = false;
    for (_, expression) in
        attributes(attribute(body, NFTA_RULE_EXPRESSIONS)?).filter(|(kind, _)| *kind == NFTA_LIST_ELEM)
    {
        let name = attribute(expression, NFTA_EXPR_NAME).and_then(text_of)?;
        let data = attribute(expression, NFTA_EXPR_DATA).unwrap_or_default();
        match &*name {
            "counter" | "limit" | "log" => {}
            "meta" => {
                loaded = match attribute(data, 2).and_then(number) {
                    Some(META_IIFNAME) => Loaded::Incoming,
                    Some(META_OIFNAME) => Loaded::Outgoing,
                    Some(META_L4PROTO) => Loaded::Protocol,
                    _ => Loaded::Other,
                };
            }
            "payload" => {
                let place = [2, 3, 4].map(|kind| attribute(data, kind).and_then(number));
                let is_port = place == [Some(TRANSPORT_HEADER), Some(2), Some(2)];
                loaded = if is_port { Loaded::Port } else { Loaded::Other };
            }
            "ct" => {
                let is_state = attribute(data, 2).and_then(number) == Some(CT_STATE);
                loaded = if is_state { Loaded::State } else { Loaded::Other };
                rule.known |= is_state;
            }
            "bitwise" => {}
            "cmp" => {
                let value = attribute(data, 3).and_then(|data| attribute(data, NFTA_DATA_VALUE)).unwrap_or_default();
                let is_equal = attribute(data, 2).and_then(number) == Some(0);
                match (&loaded, value) {
                    (Loaded::Incoming, _) if is_equal => rule.incoming = Some(pattern(value)),
                    (Loaded::Outgoing, _) if is_equal => rule.outgoing = Some(pattern(value)),
                    (Loaded::Port, &[high, low]) if is_equal => {
                        let port = u16::from_be_bytes([high, low]);
                        rule.ports = Some((port, port));
                    }
                    (Loaded::Protocol, &[UDP]) | (Loaded::State, _) => {}
                    _ => is_partly_read = true,
                }
            }
            // Sets are not read: a port may be in one.
            "lookup" if loaded == Loaded::Port => rule.ports = Some((0, u16::MAX)),
            // iptables' own matches (linux/netfilter/xt_tcpudp.h): two ranges of ports, in the host's byte order.
            "match" => match attribute(data, 1).and_then(text_of).as_deref() {
                Some("conntrack" | "state") => rule.known = true,
                Some("comment") => {}
                Some("udp") => rule.ports = attribute(data, 3).and_then(|info| ports(info.get(4..8)?)),
                _ => is_partly_read = true,
            },
            "immediate" => {
                let verdict = attribute(data, 2).and_then(|data| attribute(data, NFTA_DATA_VERDICT));
                let code = verdict.and_then(|verdict| attribute(verdict, NFTA_VERDICT_CODE)).and_then(number);
                accepts = code == Some(ACCEPT) || code == Some(GOTO as u32);
                target = verdict.and_then(|verdict| attribute(verdict, NFTA_VERDICT_CHAIN)).and_then(text_of);
            }
            _ => is_partly_read = true,
        }
    }
    Some(Rule { chain, target, accepts: (accepts && !is_partly_read).then_some(rule) })
}

/// What the register holds that is compared next.
#[derive(PartialEq, Eq)]
enum Loaded {
    Incoming,
    Outgoing,
    Protocol,
    Port,
    State,
    Other,
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
        }
    }
}
