//! Any bytes parse as a datagram from the kernel without a panic, and what was parsed round-trips.

use std::collections::HashMap;

use linerate_netlink::{Message, Request, attribute, attributes, messages};

use super::{links, nftables, routes, rules};
use crate::step::Rule;

pub fn check(datagram: &[u8]) {
    for message in messages(datagram) {
        let _ = (links::read(&message), nftables::read(&message));
        attributes(message.payload).for_each(|(kind, _)| assert!(attribute(message.payload, kind).is_some()));
        if let Some((index, address)) = links::read_address(&message) {
            read_back(links::add_address(index, &address), |message| {
                assert_eq!(links::read_address(message), Some((index, address)));
            });
        }
        if let Some(rule) = rules::read(&message) {
            // The kernel keeps the host bits in rules of other programs (net/ipv4/fib_rules.c, `fib4_rule_configure`).
            let rule = Rule { to: rule.to.map(|to| to.trunc()), ..rule };
            read_back(rules::add(&rule), |message| assert_eq!(rules::read(message).as_ref(), Some(&rule)));
        }
        let names = HashMap::from([(1, "eth0".to_owned())]);
        if let Some(route) = routes::read(&message, &names) {
            assert_eq!(route.to, route.to.trunc(), "without host bits");
            let index = route.device.as_ref().map(|_| 1);
            read_back(routes::add(&route, index), |message| {
                let again = routes::read(message, &names).expect("it is a route");
                assert_eq!((again.to, again.via, again.table), (route.to, route.via, route.table));
                assert_eq!((again.metric, again.source, again.mtu), (route.metric, route.source, route.mtu));
            });
        }
    }
}

/// The request as a message from the kernel with the same content.
fn read_back(mut request: Request, read: impl FnOnce(&Message<'_>)) {
    read(&messages(request.with_sequence(7)).next().expect("a request is a message"));
}
