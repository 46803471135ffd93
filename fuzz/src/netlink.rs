//! Any bytes parse as a datagram from the kernel without a panic, and what was parsed round-trips.

use std::collections::HashMap;

use super::message::{Frame, Message, attribute, attributes, frames};
use super::{firewall, links, routes, rules};
use crate::step::Rule;

pub fn check(datagram: &[u8]) {
    for frame in frames(datagram) {
        let _ = (links::read(&frame), firewall::read(&frame));
        attributes(frame.payload).for_each(|(kind, _)| assert!(attribute(frame.payload, kind).is_some()));
        if let Some((index, address)) = links::read_address(&frame) {
            told(links::add_address(index, &address), |frame| {
                assert_eq!(links::read_address(frame), Some((index, address)));
            });
        }
        if let Some(rule) = rules::read(&frame) {
            // The kernel keeps host bits in rules of other programs (net/ipv4/fib_rules.c, `fib4_rule_configure`).
            let rule = Rule { to: rule.to.map(|to| to.trunc()), ..rule };
            told(rules::add(&rule), |frame| assert_eq!(rules::read(frame).as_ref(), Some(&rule)));
        }
        let names = HashMap::from([(1, "eth0".to_owned())]);
        if let Some(route) = routes::read(&frame, &names) {
            assert_eq!(route.to, route.to.trunc(), "without host bits");
            let index = route.device.as_ref().map(|_| 1);
            told(routes::add(&route, index), |frame| {
                let again = routes::read(frame, &names).expect("it is a route");
                assert_eq!((again.to, again.via, again.table), (route.to, route.via, route.table));
                assert_eq!((again.metric, again.source, again.mtu), (route.metric, route.source, route.mtu));
            });
        }
    }
}

/// The request as a message from the kernel with the same content.
fn told(mut request: Message, read: impl FnOnce(&Frame<'_>)) {
    read(&frames(request.numbered(7)).next().expect("a request is a message"));
}
