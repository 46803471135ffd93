//! Messages of nf_tables (include/uapi/linux/netfilter/nf_tables.h, nfnetlink.h; net/netfilter/nf_tables_api.c).
//!
//! Rules are encoded as `nft` compiles them (`nft --debug=netlink`), so that `nft list ruleset` can print them.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_netlink::rtnetlink::RTN_LOCAL;
use linerate_netlink::{
    Attributes, Message, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NetlinkError, Request, attribute, text_of,
};
use rustix::io::Errno;

use super::links::NAME_MAX;
use super::socket::NetlinkSocket;
use crate::step::{Firewall, FirewallFamily, Way};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_NEWTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8;
const NFT_MSG_GETTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 1;
const NFT_MSG_DELTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 2;
const NFT_MSG_NEWCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 3;
pub(super) const NFT_MSG_NEWRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 6;
pub(super) const NFT_MSG_GETRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 7;
const NFT_MSG_DELRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 8;
pub(super) const NFT_MSG_NEWSET: u16 = NFNL_SUBSYS_NFTABLES << 8 | 9;
pub(super) const NFT_MSG_NEWSETELEM: u16 = NFNL_SUBSYS_NFTABLES << 8 | 12;

const NFTA_TABLE_NAME: u16 = 1;
pub(super) const NFTA_CHAIN_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
pub(super) const NFTA_CHAIN_HOOK: u16 = 4;
pub(super) const NFTA_CHAIN_POLICY: u16 = 5;
pub(super) const NFTA_CHAIN_TYPE: u16 = 7;
pub(super) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(super) const NFTA_HOOK_PRIORITY: u16 = 2;
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_HANDLE: u16 = 3;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(super) const NFTA_RULE_USERDATA: u16 = 7;
pub(super) const NFTA_SET_TABLE: u16 = 1;
pub(super) const NFTA_SET_NAME: u16 = 2;
pub(super) const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
pub(super) const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_USERDATA: u16 = 13;
const NFTA_SET_DESC_CONCAT: u16 = 2;
const NFTA_SET_FIELD_LEN: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(super) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(super) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(super) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(super) const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub(super) const NFT_SET_INTERVAL: u32 = 0x4;
pub(super) const NFT_SET_CONCAT: u32 = 0x80;
pub(super) const NFT_SET_ELEM_INTERVAL_END: u32 = 0x1;

/// The longest name of a tunnel's table: NFT_NAME_MAXLEN without its NUL, and without what the name of a copy has more.
const TABLE_MAX: usize = 255 - COPY.len();

/// What the name of the copy of a table ends with.
const COPY: &str = "/next";

/// Sends `changes` as one transaction: all or none.
pub(super) fn transact(socket: &mut NetlinkSocket, mut changes: Vec<Request>) -> Result<(), NetlinkError> {
    // Only the last change is acknowledged, so that a long transaction does not fill the receive buffer. Refusals are
    // always sent, that of the whole transaction as the reply to its first message (net/netfilter/nfnetlink.c,
    // `nfnetlink_rcv_batch`).
    let Some(last) = changes.pop() else { return Ok(()) };
    let accepted = changes.len() + 1;
    let mut requests = vec![Request::new(NFNL_MSG_BATCH_BEGIN, 0, &BATCH, Attributes::default())];
    requests.extend(changes);
    requests.push(last.acknowledged());
    requests.push(Request::new(NFNL_MSG_BATCH_END, 0, &BATCH, Attributes::default()));
    let answers = socket.submit(&mut requests)?;
    let complete = answers.get(accepted).is_some_and(Option::is_some);
    answers.into_iter().flatten().collect::<Result<(), NetlinkError>>()?;
    if complete { Ok(()) } else { Err(Errno::NOBUFS.into()) }
}

/// Requests all tables.
pub(super) fn list() -> Request {
    Request::new(NFT_MSG_GETTABLE, NLM_F_DUMP, &[0; NFGENMSG], Attributes::default())
}

/// The table in a message of the list: its family and name, as [`Firewall::nft_name`].
pub(super) fn read(message: &Message<'_>) -> Option<String> {
    let (head, body) = message.payload.split_at_checked(NFGENMSG).filter(|_| message.kind == NFT_MSG_NEWTABLE)?;
    let name = attribute(body, NFTA_TABLE_NAME).and_then(text_of)?;
    let (family, _) = FAMILIES.into_iter().find(|(_, number)| *number == head[0])?;
    Some(format!("{family} {name}"))
}

/// The kinds of tables as `nft` calls them, and their numbers (include/uapi/linux/netfilter.h).
pub(super) const FAMILIES: [(&str, u8); 6] =
    [("inet", 1), ("ip", 2), ("arp", 3), ("netdev", 5), ("bridge", 7), ("ip6", 10)];

/// A table, named in each of its messages.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Table {
    name: String,
    family: FirewallFamily,
}

impl Table {
    pub(super) fn of(firewall: &Firewall) -> Result<Self, NetlinkError> {
        if firewall.table.len() > TABLE_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(Self { name: firewall.table.clone(), family: firewall.family })
    }

    /// A table for both versions of IP.
    pub(super) fn inet(name: String) -> Self {
        Self { name, family: FirewallFamily::Inet }
    }

    /// The table that is in force while this one is replaced. No interface has a `/` in its name, so this is no other
    /// tunnel's table.
    pub(super) fn copy(&self) -> Self {
        Self { name: format!("{}{COPY}", self.name), family: self.family }
    }

    /// The table as in `nft list tables`: its family and its name.
    pub(super) fn nft_name(&self) -> String {
        self.family.nft_name(&self.name)
    }

    /// Whether it sees packets of this address family.
    pub(super) fn holds(&self, address: &IpAddr) -> bool {
        match self.family {
            FirewallFamily::Ip => address.is_ipv4(),
            FirewallFamily::Ip6 => address.is_ipv6(),
            FirewallFamily::Inet => true,
        }
    }

    /// Creates it, empty, whether it exists or not.
    pub(super) fn replaced(&self) -> [Request; 3] {
        let created = |flags| self.message(NFT_MSG_NEWTABLE, NLM_F_CREATE | flags);
        // The kernel refuses to delete a table that does not exist, so the table is created first.
        [created(0), self.deleted(), created(NLM_F_EXCL)]
    }

    pub(super) fn rules(&self) -> Request {
        let attributes = Attributes::default().with_text(NFTA_RULE_TABLE, &self.name);
        Request::new(NFT_MSG_GETRULE, NLM_F_DUMP, &self.nfgenmsg(), attributes)
    }

    pub(super) fn deleted(&self) -> Request {
        self.message(NFT_MSG_DELTABLE, 0)
    }

    fn message(&self, kind: u16, flags: u16) -> Request {
        Request::new(kind, flags, &self.nfgenmsg(), Attributes::default().with_text(NFTA_TABLE_NAME, &self.name))
    }

    /// A base chain that filters at a hook, with the policy for packets that no rule decides.
    pub(super) fn chain(&self, name: &str, hook: u32, priority: i32, policy: u32) -> Request {
        self.base_chain("filter", name, hook, priority, policy)
    }

    /// A base chain that translates source addresses.
    pub(super) fn nat_chain(&self, name: &str, priority: i32) -> Request {
        self.base_chain("nat", name, POST_ROUTING, priority, ACCEPT)
    }

    fn base_chain(&self, kind: &str, name: &str, hook: u32, priority: i32, policy: u32) -> Request {
        let hook = Attributes::default()
            .with(NFTA_HOOK_HOOKNUM, &hook.to_be_bytes())
            .with(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
        let attributes = Attributes::default()
            .with_text(NFTA_CHAIN_TABLE, &self.name)
            .with_text(NFTA_CHAIN_NAME, name)
            .with_nest(NFTA_CHAIN_HOOK, hook)
            .with(NFTA_CHAIN_POLICY, &policy.to_be_bytes())
            .with_text(NFTA_CHAIN_TYPE, kind);
        Request::new(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &self.nfgenmsg(), attributes)
    }

    pub(super) fn rule(&self, chain: &str, rule: Rule) -> Request {
        let attributes = Attributes::default()
            .with_text(NFTA_RULE_TABLE, &self.name)
            .with_text(NFTA_RULE_CHAIN, chain)
            .with_nest(NFTA_RULE_EXPRESSIONS, rule.0);
        Request::new(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &self.nfgenmsg(), attributes)
    }

    /// A set, empty; the number tells it from the others of the table.
    pub(super) fn set(&self, name: &str, number: u32, key: &Key) -> Request {
        let concatenated = key.fields.len() > 1;
        let flags = if key.interval { NFT_SET_INTERVAL } else { 0 } | if concatenated { NFT_SET_CONCAT } else { 0 };
        // `nft` numbers the types of fields with six bits each.
        let kind = key.fields.iter().fold(0, |kind, (field, _)| kind << 6 | field);
        let length: u32 = key.fields.iter().map(|(_, length)| length).sum();
        let mut attributes = Attributes::default()
            .with_text(NFTA_SET_TABLE, &self.name)
            .with_text(NFTA_SET_NAME, name)
            .with(NFTA_SET_FLAGS, &flags.to_be_bytes())
            .with(NFTA_SET_KEY_TYPE, &kind.to_be_bytes())
            .with(NFTA_SET_KEY_LEN, &length.to_be_bytes())
            .with(NFTA_SET_ID, &number.to_be_bytes());
        if key.host_order {
            // `nft` keeps there how it has to print the elements (`NFTNL_UDATA_SET_KEYBYTEORDER` of libnftnl): names
            // are in the host's order.
            let order = [&[0, 4][..], &1u32.to_ne_bytes()].concat();
            attributes = attributes.with(NFTA_SET_USERDATA, &order);
        }
        if concatenated {
            let fields = key.fields.iter().fold(Attributes::default(), |all, (_, length)| {
                all.with_nest(NFTA_LIST_ELEM, numbers(&[(NFTA_SET_FIELD_LEN, *length)]))
            });
            let description = Attributes::default().with_nest(NFTA_SET_DESC_CONCAT, fields);
            attributes = attributes.with_nest(NFTA_SET_DESC, description);
        }
        Request::new(NFT_MSG_NEWSET, NLM_F_CREATE, &self.nfgenmsg(), attributes)
    }

    /// Adds elements to a set, in as many messages as their number takes.
    pub(super) fn elements(&self, set: &str, elements: &[Element]) -> Vec<Request> {
        let message = |elements: &[Element]| {
            let list = elements
                .iter()
                .fold(Attributes::default(), |list, element| list.with_nest(NFTA_LIST_ELEM, element.0.clone()));
            let attributes = Attributes::default()
                .with_text(NFTA_SET_ELEM_LIST_TABLE, &self.name)
                .with_text(NFTA_SET_ELEM_LIST_SET, set)
                .with_nest(NFTA_SET_ELEM_LIST_ELEMENTS, list);
            Request::new(NFT_MSG_NEWSETELEM, NLM_F_CREATE, &self.nfgenmsg(), attributes)
        };
        elements.chunks(ELEMENTS_IN_MESSAGE).map(message).collect()
    }

    /// Continues for packets of one version of IP; a table of that version sees no others.
    pub(super) fn only(&self, rule: Rule, version: u8) -> Rule {
        if self.family == FirewallFamily::Inet { rule.meta(META_NFPROTO).equals(&[version]) } else { rule }
    }

    /// Continues for packets to a prefix.
    pub(super) fn destination(&self, rule: Rule, to: &IpNet) -> Rule {
        match to {
            IpNet::V4(to) => {
                let rule = self.only(rule, NFPROTO_IPV4);
                rule.bits(IPV4_DESTINATION, &to.network().octets(), &to.netmask().octets())
            }
            IpNet::V6(to) => {
                let rule = self.only(rule, NFPROTO_IPV6);
                rule.bits(IPV6_DESTINATION, &to.network().octets(), &to.netmask().octets())
            }
        }
    }

    /// `struct nfgenmsg`: family, version, resource.
    fn nfgenmsg(&self) -> [u8; NFGENMSG] {
        let family = match self.family {
            FirewallFamily::Inet => NFPROTO_INET,
            FirewallFamily::Ip => NFPROTO_IPV4,
            FirewallFamily::Ip6 => NFPROTO_IPV6,
        };
        [family, 0, 0, 0]
    }
}

/// Inserts the rule of a way at the beginning of somebody else's chain, with a comment that `nft` shows.
pub(super) fn foreign_rule(
    family: u8,
    table: &str,
    chain: &str,
    way: &Way,
    comment: &str,
) -> Result<Request, NetlinkError> {
    let rule = match way {
        Way::Forward { from, to, answers } => {
            let rule = Rule::default().name_is(META_IIFNAME, &padded(from)?).name_is(META_OIFNAME, &padded(to)?);
            if *answers { rule.of_known_connection() } else { rule }
        }
        Way::Port { port } => Rule::default().protocol(UDP).payload(TRANSPORT_HEADER, 2, 2).equals(&port.to_be_bytes()),
        Way::Tunnel { .. } => return Err(Errno::INVAL.into()),
    };
    let mut userdata = vec![0, u8::try_from(comment.len() + 1).map_err(|_| Errno::NAMETOOLONG)?];
    userdata.extend(comment.as_bytes());
    userdata.push(0);
    let attributes = Attributes::default()
        .with_text(NFTA_RULE_TABLE, table)
        .with_text(NFTA_RULE_CHAIN, chain)
        .with_nest(NFTA_RULE_EXPRESSIONS, rule.verdict(ACCEPT).0)
        .with(NFTA_RULE_USERDATA, &userdata);
    // Without NLM_F_APPEND it comes first.
    Ok(Request::new(NFT_MSG_NEWRULE, NLM_F_CREATE, &[family, 0, 0, 0], attributes))
}

/// Deletes a rule by its handle.
pub(super) fn rule_deleted(family: u8, table: &str, chain: &str, handle: u64) -> Request {
    let attributes = Attributes::default()
        .with_text(NFTA_RULE_TABLE, table)
        .with_text(NFTA_RULE_CHAIN, chain)
        .with(NFTA_RULE_HANDLE, &handle.to_be_bytes());
    Request::new(NFT_MSG_DELRULE, 0, &[family, 0, 0, 0], attributes)
}

/// What a set consists of: the fields of a key, with the number that `nft` gives their type and their length.
pub(super) struct Key {
    pub(super) fields: &'static [(u32, u32)],
    /// Its elements are ranges.
    pub(super) interval: bool,
    /// `nft` takes it for a number in the host's byte order.
    pub(super) host_order: bool,
}

/// An element of a set.
pub(super) struct Element(Attributes);

/// The longest element, two ends of two IPv6 addresses each with their headers, has less than 100 bytes, and the
/// length of the list 16 bits.
const ELEMENTS_IN_MESSAGE: usize = 600;

impl Element {
    /// A key of a set without ranges.
    pub(super) fn key(key: &[u8]) -> Self {
        Self(Attributes::default().with_nest(NFTA_SET_ELEM_KEY, value(key)))
    }

    /// The key after the last one of a range; the one before, in a set of single fields, is [`Element::key`].
    pub(super) fn end(key: &[u8]) -> Self {
        Self(Self::key(key).0.with(NFTA_SET_ELEM_FLAGS, &NFT_SET_ELEM_INTERVAL_END.to_be_bytes()))
    }

    /// Ranges of concatenated fields, from the first key to the last.
    pub(super) fn ranges(first: &[u8], last: &[u8]) -> Self {
        Self(Self::key(first).0.with_nest(NFTA_SET_ELEM_KEY_END, value(last)))
    }
}

pub(super) const NFGENMSG: usize = 4;
/// The `struct nfgenmsg` of a transaction: its resource is the subsystem, in network byte order.
const BATCH: [u8; NFGENMSG] = [0, 0, 0, NFNL_SUBSYS_NFTABLES as u8];

// linux/netfilter.h
const NFPROTO_INET: u8 = 1;
pub(super) const NFPROTO_IPV4: u8 = 2;
pub(super) const NFPROTO_IPV6: u8 = 10;
pub(super) const PRE_ROUTING: u32 = 0;
pub(super) const LOCAL_IN: u32 = 1;
pub(super) const FORWARD: u32 = 2;
pub(super) const LOCAL_OUT: u32 = 3;
pub(super) const POST_ROUTING: u32 = 4;
pub(super) const DROP: u32 = 0;
pub(super) const ACCEPT: u32 = 1;

/// Where the addresses are in the header.
const IPV4_SOURCE: u32 = 12;
const IPV4_DESTINATION: u32 = 16;
const IPV6_SOURCE: u32 = 8;
const IPV6_DESTINATION: u32 = 24;

pub(super) const META_MARK: u32 = 3;
pub(super) const META_IIF: u32 = 4;
pub(super) const META_OIF: u32 = 5;
pub(super) const META_IIFNAME: u32 = 6;
pub(super) const META_OIFNAME: u32 = 7;
pub(super) const META_NFPROTO: u32 = 15;
pub(super) const META_L4PROTO: u32 = 16;

/// A rule: expressions that are evaluated in order until one does not match. A register passes a value from one to the
/// next.
#[derive(Default)]
pub(super) struct Rule(Attributes);

pub(super) const NFTA_LIST_ELEM: u16 = 1;
pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;
pub(super) const NFTA_VERDICT_CODE: u16 = 1;
const REGISTER_OF_VERDICT: u32 = 0;
const REGISTER: u32 = 1;
/// What follows four bytes, or sixteen, in [`REGISTER`] (`NFT_REG32_01`, `NFT_REG_2`).
const REGISTER_AFTER_4: u32 = 9;
const REGISTER_AFTER_16: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
pub(super) const NETWORK_HEADER: u32 = 1;
pub(super) const TRANSPORT_HEADER: u32 = 2;
pub(super) const CT_STATE: u32 = 0;
pub(super) const CT_STATUS: u32 = 2;
const CT_MARK: u32 = 3;
/// `IPS_DST_NAT` of linux/netfilter/nf_conntrack_common.h.
const DESTINATION_TRANSLATED: u32 = 0x20;
/// `NF_CT_STATE_BIT` of established and related connections.
const ESTABLISHED_OR_RELATED: u32 = 0x2 | 0x4;
const RT_TCPMSS: u32 = 3;
const BYTEORDER_HTON: u32 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_FLAGS: u32 = 13;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// The option of RFC 9293, section 3.2: its kind, and where its value is.
const TCP_MAXIMUM_SEGMENT_SIZE: u8 = 2;
const EXTHDR_OF_TCP: u32 = 1;
const FIB_OUTPUT_NAME: u32 = 2;
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_OF_SOURCE: u32 = 1;

impl Rule {
    /// Continues if the interface has this name.
    pub(super) fn name_is(self, key: u32, name: &[u8]) -> Self {
        self.meta(key).equals(name)
    }

    /// Continues unless the interface has this name.
    pub(super) fn name_is_not(self, key: u32, name: &[u8]) -> Self {
        self.meta(key).compare(NOT_EQUAL, name)
    }

    /// Continues for packets with this mark.
    pub(super) fn mark(self, mark: u32) -> Self {
        self.meta(META_MARK).equals(&mark.to_ne_bytes())
    }

    /// Continues for packets of a protocol above IP.
    pub(super) fn protocol(self, protocol: u8) -> Self {
        self.meta(META_L4PROTO).equals(&[protocol])
    }

    /// Continues for datagrams from one port to another.
    pub(super) fn ports(self, [from, to]: [u16; 2]) -> Self {
        self.payload(TRANSPORT_HEADER, 0, 2)
            .equals(&from.to_be_bytes())
            .payload(TRANSPORT_HEADER, 2, 2)
            .equals(&to.to_be_bytes())
    }

    /// Continues for packets to a port; an earlier expression must have checked the protocol.
    pub(super) fn destination_port(self, port: u16) -> Self {
        self.payload(TRANSPORT_HEADER, 2, 2).equals(&port.to_be_bytes())
    }

    /// Continues for one type of ICMP message.
    pub(super) fn icmp_type(self, kind: u8) -> Self {
        self.payload(TRANSPORT_HEADER, 0, 1).equals(&[kind])
    }

    /// Continues if the bits of `mask` at `offset` of the IP header are those of `value`.
    pub(super) fn bits(self, offset: u32, value: &[u8], mask: &[u8]) -> Self {
        let length = u32::try_from(value.len()).expect("an address is short");
        let loaded = self.payload(NETWORK_HEADER, offset, length);
        if mask.iter().all(|byte| *byte == 0xff) { loaded.equals(value) } else { loaded.mask(mask).equals(value) }
    }

    /// Continues unless the packet's source is one of this host's addresses.
    pub(super) fn source_is_not_local(self) -> Self {
        // NFTA_FIB_DREG, _RESULT, _FLAGS
        let fib = numbers(&[(1, REGISTER), (2, FIB_ADDRESS_TYPE), (3, FIB_OF_SOURCE)]);
        self.expression("fib", fib).compare(NOT_EQUAL, &u32::from(RTN_LOCAL).to_ne_bytes())
    }

    /// Loads metadata of the packet.
    pub(super) fn meta(self, key: u32) -> Self {
        // NFTA_META_DREG, _KEY
        self.expression("meta", numbers(&[(1, REGISTER), (2, key)]))
    }

    /// Loads the source address of one version of IP; use it where [`Table::only`] has let only that version pass.
    pub(super) fn source(self, is_v4: bool) -> Self {
        let (offset, length) = if is_v4 { (IPV4_SOURCE, 4) } else { (IPV6_SOURCE, 16) };
        self.payload(NETWORK_HEADER, offset, length)
    }

    /// Loads the destination address of one version of IP, under the same condition as [`Self::source`].
    pub(super) fn destination(self, is_v4: bool) -> Self {
        let (offset, length) = if is_v4 { (IPV4_DESTINATION, 4) } else { (IPV6_DESTINATION, 16) };
        self.payload(NETWORK_HEADER, offset, length)
    }

    /// Continues if the route to the packet's source leads to the interface of this name.
    pub(super) fn route_to_source_is(self, interface: &[u8]) -> Self {
        // NFTA_FIB_DREG, _RESULT, _FLAGS
        let fib = numbers(&[(1, REGISTER), (2, FIB_OUTPUT_NAME), (3, FIB_OF_SOURCE)]);
        self.expression("fib", fib).equals(interface)
    }

    /// Loads source and destination.
    pub(super) fn source_and_destination(self, is_v4: bool) -> Self {
        let (register, offset, length) = match is_v4 {
            true => (REGISTER_AFTER_4, IPV4_DESTINATION, 4),
            false => (REGISTER_AFTER_16, IPV6_DESTINATION, 16),
        };
        self.source(is_v4).payload_into(register, NETWORK_HEADER, offset, length)
    }

    /// Continues if the loaded value is in a set.
    pub(super) fn within(self, set: &str) -> Self {
        // NFTA_LOOKUP_SET, _SREG
        self.expression("lookup", Attributes::default().with_text(1, set).with(2, &REGISTER.to_be_bytes()))
    }

    /// Continues unless the loaded value is in a set.
    pub(super) fn outside(self, set: &str) -> Self {
        // NFTA_LOOKUP_SET, _SREG, _FLAGS with NFT_LOOKUP_F_INV
        let lookup = Attributes::default().with_text(1, set).with(2, &REGISTER.to_be_bytes());
        self.expression("lookup", lookup.with(5, &1u32.to_be_bytes()))
    }

    /// Continues for packets of connections that exist, or belong to one.
    pub(super) fn of_known_connection(self) -> Self {
        // NFTA_CT_DREG, _KEY
        let state = self.expression("ct", numbers(&[(1, REGISTER), (2, CT_STATE)]));
        state.mask(&ESTABLISHED_OR_RELATED.to_ne_bytes()).compare(NOT_EQUAL, &[0; 4])
    }

    /// Continues for packets of connections whose destination was translated (`IPS_DST_NAT`).
    pub(super) fn of_translated_connection(self) -> Self {
        let status = self.expression("ct", numbers(&[(1, REGISTER), (2, CT_STATUS)]));
        status.mask(&DESTINATION_TRANSLATED.to_ne_bytes()).compare(NOT_EQUAL, &[0; 4])
    }

    /// Continues for the first segments of TCP connections.
    pub(super) fn opens_tcp(self) -> Self {
        self.protocol(TCP).payload(TRANSPORT_HEADER, TCP_FLAGS, 1).mask(&[SYN | RST]).equals(&[SYN])
    }

    /// Loads the size of TCP segments that fit the packet's route.
    pub(super) fn segment_size_of_route(self) -> Self {
        // NFTA_RT_DREG, _KEY
        let loaded = self.expression("rt", numbers(&[(1, REGISTER), (2, RT_TCPMSS)]));
        // NFTA_BYTEORDER_SREG, _DREG, _OP, _LEN, _SIZE
        let order = numbers(&[(1, REGISTER), (2, REGISTER), (3, BYTEORDER_HTON), (4, 2), (5, 2)]);
        loaded.expression("byteorder", order)
    }

    /// Loads a size of TCP segments.
    pub(super) fn segment_size(self, bytes: u16) -> Self {
        // NFTA_IMMEDIATE_DREG, _DATA
        self.expression("immediate", numbers(&[(1, REGISTER)]).with_nest(2, value(&bytes.to_be_bytes())))
    }

    /// Lowers the size of segments that a TCP connection is opened with to the loaded value.
    pub(super) fn limit_segments(self) -> Self {
        // NFTA_EXTHDR_TYPE, _OFFSET, _LEN, _OP, _SREG
        let option = Attributes::default().with(2, &[TCP_MAXIMUM_SEGMENT_SIZE]);
        let rest = numbers(&[(3, 2), (4, 2), (6, EXTHDR_OF_TCP), (7, REGISTER)]);
        self.expression("exthdr", option.and(rest))
    }

    /// Replaces the source address by one of the interface on which the packet leaves.
    pub(super) fn masquerade(self) -> Self {
        self.expression("masq", Attributes::default())
    }

    /// Sets the packet's mark to the loaded value.
    pub(super) fn set_mark(self) -> Self {
        // NFTA_META_KEY, _SREG
        self.expression("meta", numbers(&[(2, META_MARK), (3, REGISTER)]))
    }

    /// Loads the mark of the connection.
    pub(super) fn ct_mark(self) -> Self {
        // NFTA_CT_DREG, _KEY
        self.expression("ct", numbers(&[(1, REGISTER), (2, CT_MARK)]))
    }

    /// Sets the mark of the connection to the loaded value.
    pub(super) fn set_ct_mark(self) -> Self {
        // NFTA_CT_KEY, _SREG
        self.expression("ct", numbers(&[(2, CT_MARK), (4, REGISTER)]))
    }

    /// Loads bytes of the packet.
    fn payload(self, base: u32, offset: u32, length: u32) -> Self {
        self.payload_into(REGISTER, base, offset, length)
    }

    fn payload_into(self, register: u32, base: u32, offset: u32, length: u32) -> Self {
        // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN
        self.expression("payload", numbers(&[(1, register), (2, base), (3, offset), (4, length)]))
    }

    /// Masks the loaded value.
    fn mask(self, mask: &[u8]) -> Self {
        let length = u32::try_from(mask.len()).expect("an address is short");
        // NFTA_BITWISE_SREG, _DREG, _LEN, _MASK, _XOR
        let bitwise = numbers(&[(1, REGISTER), (2, REGISTER), (3, length)])
            .with_nest(4, value(mask))
            .with_nest(5, value(&vec![0; mask.len()]));
        self.expression("bitwise", bitwise)
    }

    /// Continues if the loaded value equals this.
    pub(super) fn equals(self, expected: &[u8]) -> Self {
        self.compare(EQUAL, expected)
    }

    fn compare(self, operator: u32, expected: &[u8]) -> Self {
        // NFTA_CMP_SREG, _OP, _DATA
        self.expression("cmp", numbers(&[(1, REGISTER), (2, operator)]).with_nest(3, value(expected)))
    }

    /// Counts the packet.
    pub(super) fn counter(self) -> Self {
        self.expression("counter", Attributes::default())
    }

    /// Decides about the packet.
    pub(super) fn verdict(self, code: u32) -> Self {
        let verdict = Attributes::default().with(NFTA_VERDICT_CODE, &code.to_be_bytes());
        let data = Attributes::default().with_nest(NFTA_DATA_VERDICT, verdict);
        // NFTA_IMMEDIATE_DREG, _DATA
        self.expression("immediate", numbers(&[(1, REGISTER_OF_VERDICT)]).with_nest(2, data))
    }

    fn expression(self, name: &str, data: Attributes) -> Self {
        let expression = Attributes::default().with_text(NFTA_EXPR_NAME, name).with_nest(NFTA_EXPR_DATA, data);
        Self(self.0.with_nest(NFTA_LIST_ELEM, expression))
    }
}

/// Numbers as attributes, in network byte order.
fn numbers(numbers: &[(u16, u32)]) -> Attributes {
    numbers.iter().fold(Attributes::default(), |all, (kind, number)| all.with(*kind, &number.to_be_bytes()))
}

fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().with(NFTA_DATA_VALUE, bytes)
}

/// The name of an interface as the kernel compares it.
pub(super) fn padded(interface: &str) -> Result<Vec<u8>, NetlinkError> {
    if interface.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let mut name = interface.as_bytes().to_vec();
    name.resize(NAME_MAX + 1, 0);
    Ok(name)
}
