//! Any bytes as the answer of a name server: it is strange, or says nothing but what answers the question, within
//! bounds.
//!
//! An input is a byte that chooses the question, and the answer: behind an honest head, or without one.

use linerate_proxy::names::message::{Answer, answer, question};

pub fn check(input: &[u8]) {
    let Some((&choice, reply)) = input.split_first() else { return };
    let is_ipv6 = choice & 1 != 0;
    let asked = question(7, "www.example.org", is_ipv6).expect("it is a name");
    let other = question(7, "www.example.com", is_ipv6).expect("it is a name");
    let mut framed = reply.to_vec();
    if choice & 2 != 0 {
        // The question as a server repeats it, without the record that follows; the numbers of records are the input's.
        let (numbers, records) = reply.split_at(reply.len().min(6));
        framed = asked[..asked.len() - 11].to_vec();
        framed[2] |= 0x80;
        framed[6..6 + numbers.len()].copy_from_slice(numbers);
        framed.extend(records);
    }
    let said = answer(&asked, &framed, is_ipv6);
    if said != Answer::Strange {
        assert_eq!(answer(&other, &framed, is_ipv6), Answer::Strange, "an answer is one to one question");
    }
    if let Answer::Addresses(addresses, life) = said {
        assert!(addresses.len() <= 16 && (1..=3600).contains(&life.as_secs()));
        assert!(addresses.iter().all(|address| *address == address.to_canonical() && (is_ipv6 || address.is_ipv4())));
    }
}
