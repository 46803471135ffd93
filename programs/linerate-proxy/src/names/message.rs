//! Questions to a name server, and what its answers say.

use std::net::IpAddr;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};

/// The longest answer over UDP that is asked for: it fits into a packet of every tunnel (RFC 9715).
const LONGEST_DATAGRAM: u16 = 1232;

/// So many addresses of a name are tried.
const MOST_ADDRESSES: usize = 16;

/// An answer is kept for a while, however short its time to live, and not for days.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// How long it is remembered that there is nothing.
pub(super) const NOTHING: Duration = Duration::from_secs(10);

/// What a server has answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does not answer this question, or cannot be read.
    Strange,
    /// It did not fit: ask over TCP.
    Truncated,
    /// The server could not or would not answer.
    Failed,
    /// Addresses, perhaps none, and for how long that is so.
    Addresses(Vec<IpAddr>, Duration),
    /// There is no such name.
    NoSuchName,
}

/// The question for the addresses of a name; none if it is no name.
pub fn question(id: u16, name: &str, is_ipv6: bool) -> Option<Vec<u8>> {
    let name: Name<Vec<u8>> = name.parse().ok()?;
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut message = message.question();
    message.push((name, kind(is_ipv6))).ok()?;
    let mut message = message.additional();
    message
        .opt(|options| {
            options.set_udp_payload_size(LONGEST_DATAGRAM);
            Ok(())
        })
        .ok()?;
    Some(message.finish())
}

/// What `reply` says about `question`.
pub fn answer(question: &[u8], reply: &[u8], is_ipv6: bool) -> Answer {
    let (Ok(question), Ok(reply)) = (Message::from_octets(question), Message::from_octets(reply)) else {
        return Answer::Strange;
    };
    if !reply.is_answer(&question) {
        return Answer::Strange;
    }
    if reply.header().tc() {
        return Answer::Truncated;
    }
    match reply.header().rcode() {
        Rcode::NOERROR => {}
        Rcode::NXDOMAIN => return Answer::NoSuchName,
        _ => return Answer::Failed,
    }
    // The name at the end of aliases: records of other names do not count.
    let (Some(name), Ok(records)) = (reply.canonical_name(), reply.answer()) else { return Answer::Strange };
    let mut addresses = Vec::new();
    let mut life = LONGEST;
    let mut add = |owner_is_it: bool, address: IpAddr, ttl: Duration| {
        if owner_is_it && addresses.len() < MOST_ADDRESSES {
            life = life.min(ttl);
            // A kernel takes `::ffff:127.0.0.1` for 127.0.0.1, and so do those who look at addresses behind us.
            addresses.push(address.to_canonical());
        }
    };
    if is_ipv6 {
        for record in records.limit_to_in::<Aaaa>().flatten() {
            add(*record.owner() == name, record.data().addr().into(), record.ttl().into_duration());
        }
    } else {
        for record in records.limit_to_in::<A>().flatten() {
            add(*record.owner() == name, record.data().addr().into(), record.ttl().into_duration());
        }
    }
    let life = if addresses.is_empty() { NOTHING } else { life.max(SHORTEST) };
    Answer::Addresses(addresses, life)
}

fn kind(is_ipv6: bool) -> Rtype {
    if is_ipv6 { Rtype::AAAA } else { Rtype::A }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use domain::base::Ttl;
    use domain::rdata::Cname;
    use proptest::prelude::*;

    use super::*;

    type Owned = Name<Vec<u8>>;

    fn name(text: &str) -> Owned {
        text.parse().unwrap()
    }

    fn reply(
        question: &[u8],
        change: impl FnOnce(&mut domain::base::Header),
        records: &[(&str, Result<u8, &str>)],
    ) -> Vec<u8> {
        let question = Message::from_octets(question).unwrap();
        let mut message = MessageBuilder::new_vec().start_answer(&question, Rcode::NOERROR).unwrap();
        change(message.header_mut());
        for (owner, record) in records {
            match record {
                Ok(last) => message.push((name(owner), Ttl::from_secs(60), A::new(Ipv4Addr::new(192, 0, 2, *last)))),
                Err(alias) => message.push((name(owner), Ttl::from_secs(30), Cname::new(name(alias)))),
            }
            .unwrap();
        }
        message.finish()
    }

    fn addresses(last: &[u8], seconds: u64) -> Answer {
        let addresses = last.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect();
        Answer::Addresses(addresses, Duration::from_secs(seconds))
    }

    #[test]
    fn an_answer_has_the_addresses_of_the_name_at_the_end_of_its_aliases() {
        let asked = question(7, "www.example.org", false).unwrap();
        let plain =
            reply(&asked, |_| (), &[("www.example.org", Ok(1)), ("WWW.example.org", Ok(2)), ("other.example", Ok(3))]);
        assert_eq!(answer(&asked, &plain, false), addresses(&[1, 2], 60));
        let aliased = [("www.example.org", Err("a.example")), ("b.example", Ok(4)), ("a.example", Err("b.example"))];
        assert_eq!(answer(&asked, &reply(&asked, |_| (), &aliased), false), addresses(&[4], 60));
        let circle = [("www.example.org", Err("a.example")), ("a.example", Err("www.example.org"))];
        assert_eq!(answer(&asked, &reply(&asked, |_| (), &circle), false), Answer::Strange);
        assert_eq!(answer(&asked, &reply(&asked, |_| (), &[]), false), addresses(&[], 10));
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let asked = question(7, "www.example.org", false).unwrap();
        for other in [question(8, "www.example.org", false), question(7, "www.example.com", false)] {
            let other = reply(&other.unwrap(), |_| (), &[("www.example.org", Ok(1))]);
            assert_eq!(answer(&asked, &other, false), Answer::Strange);
        }
        assert_eq!(answer(&asked, &asked, false), Answer::Strange, "a question is no answer");
        let six = question(7, "www.example.org", true).unwrap();
        assert_eq!(answer(&asked, &reply(&six, |_| (), &[]), false), Answer::Strange);
    }

    #[test]
    fn what_a_server_says_of_itself_is_told_apart() {
        let asked = question(7, "www.example.org", false).unwrap();
        let with = |change: fn(&mut domain::base::Header)| answer(&asked, &reply(&asked, change, &[]), false);
        assert_eq!(with(|header| header.set_tc(true)), Answer::Truncated);
        assert_eq!(with(|header| header.set_rcode(Rcode::NXDOMAIN)), Answer::NoSuchName);
        assert_eq!(with(|header| header.set_rcode(Rcode::SERVFAIL)), Answer::Failed);
        assert_eq!(question(7, &"a.".repeat(200), false), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_more_of_an_answer_than_fits(reply in proptest::collection::vec(any::<u8>(), 0..200), is_ipv6: bool) {
            let asked = question(7, "a.example", is_ipv6).unwrap();
            // What follows an honest head is the attacker's.
            let mut framed = asked[..asked.len() - 11].to_vec();
            framed[2] |= 0x80;
            framed[7] = 30;
            framed.extend(&reply);
            for reply in [reply, framed] {
                if let Answer::Addresses(addresses, life) = answer(&asked, &reply, is_ipv6) {
                    prop_assert!(addresses.len() <= MOST_ADDRESSES && life <= LONGEST && life >= SHORTEST);
                    prop_assert!(addresses.iter().all(|address| *address == address.to_canonical()));
                    prop_assert!(addresses.iter().all(|address| is_ipv6 || address.is_ipv4()));
                }
            }
        }
    }
}
