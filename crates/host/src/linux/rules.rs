//! Rules of policy routing (include/uapi/linux/fib_rules.h; net/core/fib_rules.c).

use super::prefix::prefix_of;
use crate::step::{AddressFamily, Rule};
use linerate_netlink::rtnetlink::*;
use linerate_netlink::{
    AF_INET, AF_INET6, Attributes, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request, attribute,
    u32_at, u32_of,
};

/// The kernel's value for "does not suppress".
const NO_LIMIT: u32 = u32::MAX;

/// `ip rule add`.
pub(super) fn add(rule: &Rule) -> Request {
    message(RTM_NEWRULE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, rule)
}

/// `ip rule delete`, with everything that identifies this rule.
pub(super) fn delete(rule: &Rule) -> Request {
    message(RTM_DELRULE, NLM_F_ACK, rule)
}

fn message(kind: u16, flags: u16, rule: &Rule) -> Request {
    let mut attributes = Attributes::default()
        .with_u32(FRA_PRIORITY, rule.priority)
        .with_u32(FRA_TABLE, rule.table)
        .with(FRA_PROTOCOL, &[rule.protocol]);
    if let Some(mark) = rule.fwmark {
        // Without FRA_FWMASK all bits are compared.
        attributes = attributes.with_u32(FRA_FWMARK, mark);
    }
    if let Some(to) = rule.to {
        attributes = attributes.with_address(FRA_DST, to.network());
    }
    if let Some(length) = rule.suppress_prefixlength {
        attributes = attributes.with_u32(FRA_SUPPRESS_PREFIXLEN, length);
    }
    let family = match rule.family {
        AddressFamily::V4 => AF_INET,
        AddressFamily::V6 => AF_INET6,
    };
    let length = rule.to.map_or(0, |to| to.prefix_len());
    // Table numbers above 255 are only in FRA_TABLE.
    let table = u8::try_from(rule.table).unwrap_or(0);
    let mut fixed = vec![family, length, 0, 0, table, 0, 0, FR_ACT_TO_TBL];
    fixed.extend(if rule.not { FIB_RULE_INVERT } else { 0 }.to_ne_bytes());
    Request::new(kind, flags, &fixed, attributes)
}

/// Requests all rules of both families.
pub(super) fn list() -> Request {
    Request::new(RTM_GETRULE, NLM_F_DUMP, &[0; FIB_RULE_HDR], Attributes::default())
}

/// The rule in a message of the list, without other selectors (sources, interfaces, users, ...).
pub(super) fn read(message: &Message<'_>) -> Option<Rule> {
    let body = message.payload.get(FIB_RULE_HDR..).filter(|_| message.kind == RTM_NEWRULE)?;
    let &[family, length, _, _, table, _, _, _] = message.payload.first_chunk()?;
    let number = |kind| attribute(body, kind).and_then(u32_of);
    Some(Rule {
        family: match family {
            AF_INET => AddressFamily::V4,
            AF_INET6 => AddressFamily::V6,
            // Multicast routing has rules too.
            _ => return None,
        },
        priority: number(FRA_PRIORITY).unwrap_or(0),
        not: u32_at(message.payload, 8)? & FIB_RULE_INVERT != 0,
        fwmark: number(FRA_FWMARK),
        to: attribute(body, FRA_DST).and_then(|address| prefix_of(family, Some(address), length)),
        table: number(FRA_TABLE).unwrap_or(u32::from(table)),
        suppress_prefixlength: number(FRA_SUPPRESS_PREFIXLEN).filter(|length| *length != NO_LIMIT),
        protocol: attribute(body, FRA_PROTOCOL).and_then(|value| value.first().copied()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::super::hostile::{hostile_attributes, read_back};
    use super::*;

    prop_compose! {
        fn rules()(
            v4: bool, priority: u32, not: bool, fwmark: Option<u32>, to in prop::option::of((any::<u128>(), 0u8..=32)),
            table: u32, suppress in prop::option::of(0u32..1000), protocol: u8,
        ) -> Rule {
            let to = to.map(|(bits, length)| {
                let address = if v4 { (bits as u32).to_be_bytes().into() } else { bits.to_be_bytes().into() };
                IpNet::new(address, length).unwrap().trunc()
            });
            let family = if v4 { AddressFamily::V4 } else { AddressFamily::V6 };
            Rule { family, priority, not, fwmark, to, table, suppress_prefixlength: suppress, protocol }
        }
    }

    proptest! {
        #[test]
        fn a_rule_is_read_as_it_is_added(rule in rules()) {
            read_back(add(&rule), |message| assert_eq!(read(message), Some(rule.clone())));
        }

        #[test]
        fn no_message_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=FIB_RULE_HDR), odd in hostile_attributes()) {
            let payload = [fixed, odd].concat();
            let _ = read(&Message { kind: RTM_NEWRULE, flags: 0, sequence: 0, payload: &payload });
        }
    }
}
