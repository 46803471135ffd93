//! Tables of nf_tables (include/uapi/linux/netfilter/nf_tables.h, nfnetlink.h; net/netfilter/nf_tables_api.c).
//!
//! One transaction creates or deletes any number of tables, all or none. Rules are encoded as `nft` compiles them
//! (`nft --debug=netlink`), so that `nft list ruleset` can print them.

use std::net::IpAddr;

use ipnet::IpNet;
use rustix::io::Errno;

use super::links::NAME_MAX;
use super::socket::NetlinkSocket;
use crate::step::{Firewall, FirewallFamily, Step};
use linerate_netlink::Refused;
use linerate_netlink::{
    Attributes, Message, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request, attribute, text_of,
};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_NEWTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8;
const NFT_MSG_GETTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 1;
const NFT_MSG_DELTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 2;
const NFT_MSG_NEWCHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 3;
const NFT_MSG_NEWRULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 6;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

/// The longest name of a table: NFT_NAME_MAXLEN without its NUL.
const TABLE_MAX: usize = 255;

/// Creates and deletes the tables of `steps` ([`Step::AddFirewall`], [`Step::DeleteFirewall`]), all or none.
///
/// # Errors
/// ENOENT for a table to delete that does not exist. A new table replaces one of the same name.
pub(super) fn change(socket: &mut NetlinkSocket, steps: &[Step]) -> Result<(), Refused> {
    let mut changes = Vec::new();
    for step in steps {
        match step {
            Step::AddFirewall(firewall) => changes.extend(additions(firewall)?),
            Step::DeleteFirewall(firewall) => changes.push(Table::of(firewall)?.message(NFT_MSG_DELTABLE, 0)),
            _ => return Err(Errno::INVAL.into()),
        }
    }
    // Only the last change is acknowledged, so that a long transaction does not fill the receive buffer. Refusals are
    // always sent, that of the whole transaction as the reply to its first message (net/netfilter/nfnetlink.c, `nfnetlink_rcv_batch`).
    let Some(last) = changes.pop() else { return Ok(()) };
    let accepted = changes.len() + 1;
    let mut requests = vec![Request::new(NFNL_MSG_BATCH_BEGIN, 0, &BATCH, Attributes::default())];
    requests.extend(changes);
    requests.push(last.acknowledged());
    requests.push(Request::new(NFNL_MSG_BATCH_END, 0, &BATCH, Attributes::default()));
    let answers = socket.ask(&mut requests)?;
    let complete = answers.get(accepted).is_some_and(Option::is_some);
    answers.into_iter().flatten().collect::<Result<(), Refused>>()?;
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
const FAMILIES: [(&str, u8); 6] = [("inet", 1), ("ip", 2), ("arp", 3), ("netdev", 5), ("bridge", 7), ("ip6", 10)];

/// All that makes the table of a tunnel. As `wg-quick` has it, in the order in which it has it; then the kill switch.
fn additions(firewall: &Firewall) -> Result<Vec<Request>, Refused> {
    let table = Table::of(firewall)?;
    let interface = &padded(&firewall.interface)?;
    // Names of a tunnel's tables are the tunnel's: what is there was left by one that did not get to its end. Deleting
    // needs something to delete.
    let mut made = vec![
        table.message(NFT_MSG_NEWTABLE, NLM_F_CREATE),
        table.message(NFT_MSG_DELTABLE, 0),
        table.message(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL),
    ];

    made.push(table.chain("preraw", PRE_ROUTING, RAW, ACCEPT));
    if firewall.fwmark.is_some() {
        made.push(table.chain("premangle", PRE_ROUTING, MANGLE, ACCEPT));
        made.push(table.chain("postmangle", POST_ROUTING, MANGLE, ACCEPT));
    }
    // Nobody reaches the tunnel's addresses from another network (CVE-2019-14899).
    for address in firewall.addresses.iter().filter(|address| table.holds(address)) {
        let rule = Rule::default().name_differs(META_IIFNAME, interface);
        let rule = table.destination(rule, &IpNet::from(*address)).source_is_not_local().verdict(DROP);
        made.push(table.rule("preraw", rule));
    }
    // Replies to the tunnel's packets get its mark, so that the reverse path filter looks up the same route.
    if let Some(mark) = firewall.fwmark {
        let rule = Rule::default().protocol(UDP).mark(mark).meta(META_MARK).set_ct_mark();
        made.push(table.rule("postmangle", rule));
        let rule = Rule::default().protocol(UDP).ct_mark().set_mark();
        made.push(table.rule("premangle", rule));
    }

    if let Some(prefixes) = &firewall.kill_switch {
        made.extend(kill_switch(&table, interface, firewall.fwmark, prefixes)?);
    }
    Ok(made)
}

/// The kill switch: drops everything that the rules do not accept; the last rule counts it.
fn kill_switch(
    table: &Table<'_>,
    interface: &[u8],
    mark: Option<u32>,
    prefixes: &[IpNet],
) -> Result<Vec<Request>, Refused> {
    let mut made = vec![table.chain("output", LOCAL_OUT, FILTER, DROP), table.chain("forward", FORWARD, FILTER, DROP)];
    let mut accept = |chain, rule: Rule| made.push(table.rule(chain, rule.verdict(ACCEPT)));

    accept("output", Rule::default().name_is(META_OIFNAME, &padded("lo")?));
    accept("output", Rule::default().name_is(META_OIFNAME, interface));
    if let Some(mark) = mark {
        accept("output", Rule::default().mark(mark));
    }
    // Packets from the tunnel may be forwarded.
    accept("forward", Rule::default().name_is(META_IIFNAME, interface));
    accept("forward", Rule::default().name_is(META_OIFNAME, interface));
    for prefix in prefixes.iter().filter(|prefix| table.holds(&prefix.addr())) {
        accept("output", table.destination(Rule::default(), prefix));
        accept("forward", table.destination(Rule::default(), prefix));
    }
    if table.holds(&IpAddr::from([0; 4])) {
        accept("output", table.only(Rule::default(), NFPROTO_IPV4).protocol(UDP).ports(DHCP));
    }
    if table.holds(&IpAddr::from([0; 16])) {
        accept("output", table.only(Rule::default(), NFPROTO_IPV6).protocol(UDP).ports(DHCPV6));
        for kind in NEIGHBOUR_DISCOVERY {
            accept("output", table.only(Rule::default(), NFPROTO_IPV6).protocol(ICMPV6).icmp_type(kind));
        }
    }
    for chain in ["output", "forward"] {
        made.push(table.rule(chain, Rule::default().counter()));
    }
    Ok(made)
}

/// A table, named in each of its messages.
struct Table<'a> {
    name: &'a str,
    family: FirewallFamily,
}

impl<'a> Table<'a> {
    fn of(firewall: &'a Firewall) -> Result<Self, Refused> {
        if firewall.table.len() > TABLE_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(Self { name: &firewall.table, family: firewall.family })
    }

    /// Whether it sees packets of this address family.
    fn holds(&self, address: &IpAddr) -> bool {
        match self.family {
            FirewallFamily::Ip => address.is_ipv4(),
            FirewallFamily::Ip6 => address.is_ipv6(),
            FirewallFamily::Inet => true,
        }
    }

    fn message(&self, kind: u16, flags: u16) -> Request {
        Request::new(kind, flags, &self.nfgenmsg(), Attributes::default().with_text(NFTA_TABLE_NAME, self.name))
    }

    /// A base chain at a hook, with the policy for packets that no rule decides.
    fn chain(&self, name: &str, hook: u32, priority: i32, policy: u32) -> Request {
        let hook = Attributes::default()
            .with(NFTA_HOOK_HOOKNUM, &hook.to_be_bytes())
            .with(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
        let attributes = Attributes::default()
            .with_text(NFTA_CHAIN_TABLE, self.name)
            .with_text(NFTA_CHAIN_NAME, name)
            .with_nest(NFTA_CHAIN_HOOK, hook)
            .with(NFTA_CHAIN_POLICY, &policy.to_be_bytes())
            .with_text(NFTA_CHAIN_TYPE, "filter");
        Request::new(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &self.nfgenmsg(), attributes)
    }

    fn rule(&self, chain: &str, rule: Rule) -> Request {
        let attributes = Attributes::default()
            .with_text(NFTA_RULE_TABLE, self.name)
            .with_text(NFTA_RULE_CHAIN, chain)
            .with_nest(NFTA_RULE_EXPRESSIONS, rule.0);
        Request::new(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &self.nfgenmsg(), attributes)
    }

    /// Continues for packets of one version of IP; a table of that version sees no others.
    fn only(&self, rule: Rule, version: u8) -> Rule {
        if self.family == FirewallFamily::Inet { rule.meta(META_NFPROTO).equals(&[version]) } else { rule }
    }

    /// Continues for packets to a prefix.
    fn destination(&self, rule: Rule, to: &IpNet) -> Rule {
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

const NFGENMSG: usize = 4;
/// The `struct nfgenmsg` of a transaction: its resource is the subsystem, in network byte order.
const BATCH: [u8; NFGENMSG] = [0, 0, 0, NFNL_SUBSYS_NFTABLES as u8];

// linux/netfilter.h
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const PRE_ROUTING: u32 = 0;
const FORWARD: u32 = 2;
const LOCAL_OUT: u32 = 3;
const POST_ROUTING: u32 = 4;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

// linux/netfilter_ipv4.h, `NF_IP_PRI_*`: what `nft` calls raw, mangle and filter.
const RAW: i32 = -300;
const MANGLE: i32 = -150;
const FILTER: i32 = 0;

// RFC 790, RFC 2131 section 4.1, RFC 8415 section 7.2, RFC 4861 section 4.
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// From the client's port to the server's.
const DHCP: [u16; 2] = [68, 67];
const DHCPV6: [u16; 2] = [546, 547];
/// Router solicitation, neighbour solicitation and advertisement.
const NEIGHBOUR_DISCOVERY: [u8; 3] = [133, 135, 136];
/// Where the destination is in the header.
const IPV4_DESTINATION: u32 = 16;
const IPV6_DESTINATION: u32 = 24;

const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;

/// A rule: expressions that are evaluated in order until one does not match. A register passes a value from one to the
/// next.
#[derive(Default)]
struct Rule(Attributes);

const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const REGISTER_OF_VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const CT_MARK: u32 = 3;
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_OF_SOURCE: u32 = 1;
const RTN_LOCAL: u32 = 2;

impl Rule {
    /// Continues if the interface has this name.
    fn name_is(self, key: u32, name: &[u8]) -> Self {
        self.meta(key).equals(name)
    }

    /// Continues unless the interface has this name.
    fn name_differs(self, key: u32, name: &[u8]) -> Self {
        self.meta(key).compare(DIFFERENT, name)
    }

    /// Continues for packets with this mark.
    fn mark(self, mark: u32) -> Self {
        self.meta(META_MARK).equals(&mark.to_ne_bytes())
    }

    /// Continues for packets of a protocol above IP.
    fn protocol(self, protocol: u8) -> Self {
        self.meta(META_L4PROTO).equals(&[protocol])
    }

    /// Continues for datagrams from one port to another.
    fn ports(self, [from, to]: [u16; 2]) -> Self {
        self.payload(TRANSPORT_HEADER, 0, 2)
            .equals(&from.to_be_bytes())
            .payload(TRANSPORT_HEADER, 2, 2)
            .equals(&to.to_be_bytes())
    }

    /// Continues for one type of ICMP message.
    fn icmp_type(self, kind: u8) -> Self {
        self.payload(TRANSPORT_HEADER, 0, 1).equals(&[kind])
    }

    /// Continues if the bits of `mask` at `offset` of the IP header are those of `value`.
    fn bits(self, offset: u32, value: &[u8], mask: &[u8]) -> Self {
        let length = u32::try_from(value.len()).expect("an address is short");
        let loaded = self.payload(NETWORK_HEADER, offset, length);
        if mask.iter().all(|byte| *byte == 0xff) { loaded.equals(value) } else { loaded.mask(mask).equals(value) }
    }

    /// Continues unless the packet's source is one of this host's addresses.
    fn source_is_not_local(self) -> Self {
        // NFTA_FIB_DREG, _RESULT, _FLAGS
        let fib = numbers(&[(1, REGISTER), (2, FIB_ADDRESS_TYPE), (3, FIB_OF_SOURCE)]);
        self.expression("fib", fib).compare(DIFFERENT, &RTN_LOCAL.to_ne_bytes())
    }

    /// Loads metadata of the packet.
    fn meta(self, key: u32) -> Self {
        // NFTA_META_DREG, _KEY
        self.expression("meta", numbers(&[(1, REGISTER), (2, key)]))
    }

    /// Sets the packet's mark to the loaded value.
    fn set_mark(self) -> Self {
        // NFTA_META_KEY, _SREG
        self.expression("meta", numbers(&[(2, META_MARK), (3, REGISTER)]))
    }

    /// Loads the mark of the connection.
    fn ct_mark(self) -> Self {
        // NFTA_CT_DREG, _KEY
        self.expression("ct", numbers(&[(1, REGISTER), (2, CT_MARK)]))
    }

    /// Sets the mark of the connection to the loaded value.
    fn set_ct_mark(self) -> Self {
        // NFTA_CT_KEY, _SREG
        self.expression("ct", numbers(&[(2, CT_MARK), (4, REGISTER)]))
    }

    /// Loads bytes of the packet.
    fn payload(self, base: u32, offset: u32, length: u32) -> Self {
        // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN
        self.expression("payload", numbers(&[(1, REGISTER), (2, base), (3, offset), (4, length)]))
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
    fn equals(self, expected: &[u8]) -> Self {
        self.compare(EQUAL, expected)
    }

    fn compare(self, operator: u32, expected: &[u8]) -> Self {
        // NFTA_CMP_SREG, _OP, _DATA
        self.expression("cmp", numbers(&[(1, REGISTER), (2, operator)]).with_nest(3, value(expected)))
    }

    /// Counts the packet.
    fn counter(self) -> Self {
        self.expression("counter", Attributes::default())
    }

    /// Decides about the packet.
    fn verdict(self, code: u32) -> Self {
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
fn padded(interface: &str) -> Result<Vec<u8>, Refused> {
    if interface.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let mut name = interface.as_bytes().to_vec();
    name.resize(NAME_MAX + 1, 0);
    Ok(name)
}
