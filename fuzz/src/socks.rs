//! Any bytes as what a client of the SOCKS5 proxy sends: a message ends where it ends, whatever follows it and however it
//! is cut, and a datagram round-trips.

use linerate_proxy::socks::message::{Destination, LONGEST, Parsed, datagram, datagram_head, greeting, login, request};
use linerate_proxy::target::Host;

pub fn check(bytes: &[u8]) {
    ends_where_it_ends(bytes, |bytes| greeting(bytes, true));
    ends_where_it_ends(bytes, |bytes| greeting(bytes, false));
    ends_where_it_ends(bytes, |bytes| {
        let owned = |((name, password), used): ((&[u8], &[u8]), usize)| ((name.to_vec(), password.to_vec()), used);
        login(bytes).map(|parsed| parsed.map(owned))
    });
    if let Ok(Some((asked, used))) = request(bytes) {
        // A kind of address that does not exist has no length: all of it is the message.
        if let Some(target) = asked.target.clone().and_then(Destination::target) {
            assert!(used <= LONGEST && target.port != 0);
            ends_where_it_ends(bytes, request);
        }
    }
    if let Some((to, payload)) = datagram(bytes) {
        assert!(bytes.ends_with(payload));
        assert_eq!(to.to_string().parse(), Ok(to.clone()), "a target is read back as it is written");
        if let Host::Address(address) = to.host {
            let again = [&datagram_head((address, to.port).into())[..], payload].concat();
            assert_eq!(datagram(&again), Some((to, payload)));
        }
    }
}

fn ends_where_it_ends<T: PartialEq + std::fmt::Debug>(bytes: &[u8], parse: impl Fn(&[u8]) -> Parsed<T>) {
    let Ok(Some((message, used))) = parse(bytes) else { return };
    assert_eq!(parse(&bytes[..used]), Ok(Some((message, used))));
    for shorter in 0..used {
        assert_eq!(parse(&bytes[..shorter]), Ok(None));
    }
}
