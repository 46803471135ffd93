//! The protocols, end to end, over sockets of this host in the place of a tunnel.

mod double;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Rtype, Ttl};
use domain::rdata::{A, Aaaa};
use linerate_proxy::config::{Local, Login, Service, Settings};
use linerate_proxy::server::{MOST_BUFFERED, MOST_CONNECTIONS};
use linerate_proxy::services::{Doors, Tunnel};
use linerate_proxy::target::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use double::{Double, NAME_SERVER, PATIENCE};

/// Runs a test; none takes for ever.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("it ends") });
}

/// An address in the tunnel.
fn inside(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 99, 0, last], port))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A port of this host's choice.
fn local() -> Local {
    Local::new("127.0.0.1", 0).unwrap()
}

fn one(service: Service) -> Settings {
    Settings { services: vec![service], ..Settings::default() }
}

fn socks(login: Option<Login>) -> Settings {
    one(Service::Socks { local: local(), login })
}

fn http(login: Option<Login>) -> Settings {
    one(Service::Http { local: local(), login, tls: None })
}

async fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// A request for a host and a port, as SOCKS5 has it.
fn request(command: u8, host: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, command, 0];
    match host.parse::<std::net::Ipv4Addr>() {
        Ok(address) => bytes.extend([&[1][..], &address.octets()].concat()),
        Err(_) => bytes.extend([&[3, host.len() as u8][..], host.as_bytes()].concat()),
    }
    bytes.extend(port.to_be_bytes());
    bytes
}

/// A SOCKS5 client whose request was answered with this number.
async fn ask(proxy: SocketAddr, request: &[u8]) -> (TcpStream, u8, SocketAddr) {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    client.write_all(&[&[5, 1, 0][..], request].concat()).await.unwrap();
    assert_eq!(read::<2>(&mut client).await, [5, 0]);
    let reply = read::<10>(&mut client).await;
    assert_eq!((reply[0], reply[2], reply[3]), (5, 0, 1));
    let bound = SocketAddr::from(([reply[4], reply[5], reply[6], reply[7]], u16::from_be_bytes([reply[8], reply[9]])));
    (client, reply[1], bound)
}

async fn connected(proxy: SocketAddr, target: SocketAddr) -> TcpStream {
    let (client, reply, _) = ask(proxy, &request(1, &target.ip().to_string(), target.port())).await;
    assert_eq!(reply, 0);
    client
}

#[test]
fn halves_of_a_connection_end_one_after_the_other() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, server) = double.serve(socks(None));
        let mut client = connected(proxy[0], inside(2, 80)).await;
        let (mut there, _) = listener.accept().await.unwrap();

        client.write_all(b"a request").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut there).await, b"a request");
        there.write_all(b"an answer after its end").await.unwrap();
        there.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, b"an answer after its end");
        assert_eq!(server.memory.sent.load(Ordering::Relaxed), 9);
        assert_eq!(server.memory.received.load(Ordering::Relaxed), 23);
    });
}

#[test]
fn a_reset_is_passed_on_in_both_directions() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, _) = double.serve(socks(None));
        for is_of_client in [true, false] {
            let client = connected(proxy[0], inside(2, 80)).await;
            let (there, _) = listener.accept().await.unwrap();
            let (first, mut second) = if is_of_client { (client, there) } else { (there, client) };
            first.set_zero_linger().unwrap();
            drop(first);
            let error = second.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn who_does_not_read_stops_who_writes_and_nothing_is_lost() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, server) = double.serve(socks(None));
        let client = connected(proxy[0], inside(2, 80)).await;
        let (mut there, _) = listener.accept().await.unwrap();

        // More than all the buffers of the kernel hold.
        let total: usize = 64 << 20;
        let piece: Vec<u8> = (0..1 << 16).map(|at| (at % 251) as u8).collect();
        let (mut back, mut out) = client.into_split();
        let expected = piece.clone();
        let writer = tokio::spawn(async move {
            for _ in 0..total / piece.len() {
                out.write_all(&piece).await.unwrap();
            }
        });
        // The writer is stopped once the proxy keeps something: it takes no more until that is gone.
        while server.memory.kept() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished());
        assert!(server.memory.kept() <= 512 << 10);

        let mut found = vec![0; expected.len()];
        for _ in 0..total / expected.len() {
            there.read_exact(&mut found).await.unwrap();
            assert!(found == expected);
        }
        writer.await.unwrap();
        drop(there);
        let _ = back.read(&mut [0; 8]).await;
        while server.counters.open.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.memory.kept(), 0);
    });
}

#[test]
fn a_reset_of_who_writes_is_noticed_while_the_other_end_does_not_read() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, server) = double.serve(socks(None));
        for is_of_client in [true, false] {
            let client = connected(proxy[0], inside(2, 80)).await;
            let (there, _) = listener.accept().await.unwrap();
            let (mut writer, _reader) = if is_of_client { (client, there) } else { (there, client) };
            let piece = vec![0; 1 << 16];
            tokio::select! {
                _ = async { while writer.write_all(&piece).await.is_ok() {} } => panic!("it was reset"),
                () = async { while server.memory.kept() == 0 { tokio::task::yield_now().await } } => {}
            }
            writer.set_zero_linger().unwrap();
            drop(writer);
            tokio::time::pause();
            while server.counters.open.load(Ordering::Relaxed) > 0 {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            tokio::time::resume();
        }
    });
}

#[test]
fn what_cannot_be_connected_to_has_its_number() {
    run(async {
        let (listener, closed) = listen().await;
        drop(listener);
        let double = Double::new(&[(inside(2, 80), closed)]);
        let (proxy, server) = double.serve(socks(None));
        for (asked, reply) in [
            (request(1, "10.99.0.2", 80), 5),
            (request(1, "10.99.0.3", 80), 4),
            (request(1, "127.0.0.1", 80), 2),
            (request(1, "10.99.0.2", 0), 4),
            (request(2, "10.99.0.2", 80), 7),
            (vec![5, 1, 0, 9, 0, 0], 8),
            ([&[5, 1, 0, 4][..], &[0x20; 16], &[0, 80]].concat(), 3),
        ] {
            let (mut client, answered, _) = ask(proxy[0], &asked).await;
            assert_eq!(answered, reply, "{asked:?}");
            client.shutdown().await.unwrap();
            assert_eq!(read_all(&mut client).await, b"");
        }
        assert_eq!(server.counters.failures()["refused"], 1);
    });
}

#[test]
fn only_who_knows_the_password_is_served() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, _) = double.serve(socks(Some(Login::new("peter", "hunter123"))));
        let log_in = async |bytes: &[u8]| {
            let mut client = TcpStream::connect(proxy[0]).await.unwrap();
            client.write_all(bytes).await.unwrap();
            client
        };
        let mut client = log_in(b"\x05\x02\x00\x02\x01\x05peter\x09hunter123").await;
        client.write_all(&request(1, "10.99.0.2", 80)).await.unwrap();
        assert_eq!(read::<4>(&mut client).await, [5, 2, 1, 0]);
        assert_eq!(read::<10>(&mut client).await[..2], [5, 0]);
        listener.accept().await.unwrap();

        let mut client = log_in(b"\x05\x01\x02\x01\x05peter\x09hunter124").await;
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, [5, 2, 1, 1]);
        let mut client = log_in(b"\x05\x01\x00").await;
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, [5, 0xff]);
    });
}

/// Answers questions for the IPv4 address of a.example or a.corp.example by datagram, and says of big.example that the
/// answer is too long.
async fn name_server(socket: Arc<UdpSocket>, count: usize) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..count {
        let mut buffer = [0; 1500];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let (name, reply) = answer(&buffer[..length], false);
        asked.push(name);
        socket.send_to(&reply, from).await.unwrap();
    }
    asked
}

fn answer(question: &[u8], is_stream: bool) -> (String, Vec<u8>) {
    let question = Message::from_octets(question).unwrap();
    let asked = question.sole_question().unwrap();
    let name = asked.qname().to_string();
    let is_known = ["a.example", "a.corp.example", "big.example"].contains(&&*name) && asked.qtype() == Rtype::A;
    let code = if is_known { Rcode::NOERROR } else { Rcode::NXDOMAIN };
    let mut reply = MessageBuilder::new_vec().start_answer(&question, code).unwrap();
    if name == "big.example" && !is_stream {
        reply.header_mut().set_tc(true);
    } else if is_known {
        reply.push((asked.qname(), Ttl::from_secs(60), A::from_octets(10, 99, 0, 2))).unwrap();
    }
    (name, reply.finish())
}

#[test]
fn names_are_asked_of_the_tunnels_server_once() {
    run(async {
        let (listener, target) = listen().await;
        let (socket, server) = udp().await;
        let double = Double::new(&[(inside(2, 80), target), (SocketAddr::new(NAME_SERVER, 53), server)]);
        let (proxy, _) = double.serve(socks(None));
        // A name without a dot is searched in the tunnel's domain; a name that there is none of has no address.
        let names = tokio::spawn(name_server(Arc::new(socket), 3));
        for (name, reply) in [("a.example", 0), ("A.EXAMPLE", 0), ("a", 0), ("none.example", 4), ("none.example", 4)] {
            let (_, answered, _) = ask(proxy[0], &request(1, name, 80)).await;
            assert_eq!(answered, reply, "{name}");
            if reply == 0 {
                listener.accept().await.unwrap();
            }
        }
        assert_eq!(names.await.unwrap(), ["a.example", "a.corp.example", "none.example"]);
    });
}

#[test]
fn a_question_without_an_answer_hides_no_address() {
    run(async {
        let (listener, target) = listen().await;
        let (socket, server) = udp().await;
        let double = Double::new(&[(inside(2, 80), target), (SocketAddr::new(NAME_SERVER, 53), server)]);
        let (proxy, _) = double.serve_both_families(socks(None));
        // The server fails for one family of the first name, and for the search domain of the second.
        tokio::spawn(name_server_with(socket, |name, is_ipv6| match (name, is_ipv6) {
            ("a.example" | "b", false) => Ok(vec![inside(2, 80).ip()]),
            ("b", true) => Ok(Vec::new()),
            _ => Err(Rcode::SERVFAIL),
        }));
        for name in ["a.example", "b"] {
            let (_, answered, _) = ask(proxy[0], &request(1, name, 80)).await;
            assert_eq!(answered, 0, "{name}");
            listener.accept().await.unwrap();
        }
    });
}

#[test]
fn an_answer_that_is_too_long_is_asked_for_by_tcp() {
    run(async {
        let (_listener, target) = listen().await;
        let (socket, server) = udp().await;
        let by_stream = TcpListener::bind(server).await.unwrap();
        let double = Double::new(&[(inside(2, 80), target), (SocketAddr::new(NAME_SERVER, 53), server)]);
        let (proxy, _) = double.serve(socks(None));
        tokio::spawn(name_server(Arc::new(socket), 1));
        let stream = tokio::spawn(async move {
            let (mut stream, _) = by_stream.accept().await.unwrap();
            let length = u16::from_be_bytes(read::<2>(&mut stream).await);
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let (_, reply) = answer(&question, true);
            let length = (reply.len() as u16).to_be_bytes();
            stream.write_all(&[&length[..], &reply].concat()).await.unwrap();
        });
        let (_, answered, _) = ask(proxy[0], &request(1, "big.example", 80)).await;
        assert_eq!(answered, 0);
        stream.await.unwrap();
    });
}

#[test]
fn a_name_without_a_name_server_says_which_line_is_missing() {
    run(async {
        let double = Double::new(&[]);
        let tunnel = Tunnel { name_servers: Vec::new(), search_domains: Vec::new(), ..double.tunnel() };
        let services = Doors::open(http(None)).unwrap().lead_into(tunnel).unwrap();
        let proxy = services.listening()[0];
        tokio::spawn(services.serve());
        let mut client = TcpStream::connect(proxy).await.unwrap();
        client.write_all(b"GET http://a.example/ HTTP/1.0\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(read_all(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.0 502 ") && answer.contains("add DNS = ADDRESS"), "{answer}");
    });
}

#[test]
fn datagrams_of_an_association_go_and_come_back_with_their_heads() {
    run(async {
        let (there, target) = udp().await;
        let (other, other_target) = udp().await;
        let double = Double::new(&[(inside(2, 53), target), (inside(3, 99), other_target)]);
        let (proxy, server) = double.serve(socks(None));
        let (client, reply, relay) = ask(proxy[0], &request(3, "0.0.0.0", 0)).await;
        assert_eq!(reply, 0);
        let (socket, _) = udp().await;
        socket.connect(relay).await.unwrap();

        let head = |last: u8, port: u16| [&[0, 0, 0, 1, 10, 99, 0, last][..], &port.to_be_bytes()].concat();
        // A fragment and something else are dropped.
        socket.send(&[&[0, 0, 1][..], &head(2, 53)[3..], b"fragment"].concat()).await.unwrap();
        socket.send(b"?").await.unwrap();
        socket.send(&[&head(2, 53)[..], b"one"].concat()).await.unwrap();
        socket.send(&[&head(3, 99)[..], b"two"].concat()).await.unwrap();
        let mut buffer = [0; 100];
        let (count, from) = there.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"one");
        let (count, again) = other.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..count], again), (&b"two"[..], from), "the port in the tunnel stays the same");

        there.send_to(b"three", from).await.unwrap();
        let count = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(buffer[..count], [&head(2, 53)[..], b"three"].concat());

        // The association ends with its connection.
        drop(client);
        while server.counters.open.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn datagrams_to_a_name_go_where_the_tunnel_leads_to() {
    run(async {
        let (there, target) = udp().await;
        let (names, server) = udp().await;
        let double = Double::new(&[(inside(2, 53), target), (SocketAddr::new(NAME_SERVER, 53), server)]);
        // It has addresses of both families, and a peer for one.
        let (proxy, _) = double.serve_both_families(socks(None));
        tokio::spawn(name_server_with(names, |_, is_ipv6| {
            Ok(vec![if is_ipv6 { "fd99::2".parse().unwrap() } else { inside(2, 53).ip() }])
        }));
        let (_client, _, relay) = ask(proxy[0], &request(3, "0.0.0.0", 0)).await;
        let (socket, _) = udp().await;
        socket.send_to(b"\0\0\0\x03\x09a.example\0\x35question", relay).await.unwrap();
        let mut buffer = [0; 100];
        let (count, _) = there.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"question");
    });
}

#[test]
fn an_association_is_its_clients_alone() {
    run(async {
        let (there, target) = udp().await;
        let double = Double::new(&[(inside(2, 53), target)]);
        let (proxy, _) = double.serve(socks(None));
        let (_client, _, relay) = ask(proxy[0], &request(3, "0.0.0.0", 0)).await;
        let head = [0, 0, 0, 1, 10, 99, 0, 2, 0, 53];
        let stranger = UdpSocket::bind("127.0.0.2:0").await.unwrap();
        stranger.send_to(&[&head[..], b"stranger"].concat(), relay).await.unwrap();
        let (socket, _) = udp().await;
        socket.send_to(&[&head[..], b"client"].concat(), relay).await.unwrap();
        let mut buffer = [0; 100];
        let (count, _) = there.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"client");
        // Another user of this host has the client's address and not its port.
        let (neighbour, _) = udp().await;
        neighbour.send_to(&[&head[..], b"neighbour"].concat(), relay).await.unwrap();
        socket.send_to(&[&head[..], b"again"].concat(), relay).await.unwrap();
        let (count, from) = there.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"again");
        there.send_to(b"answer", from).await.unwrap();
        let count = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], [&head[..], b"answer"].concat());
    });
}

/// A name server that gives the addresses that `say` has for a name and a family, or its code.
async fn name_server_with(socket: UdpSocket, say: impl Fn(&str, bool) -> Result<Vec<IpAddr>, Rcode>) {
    let mut buffer = [0; 1500];
    loop {
        let (count, from) = socket.recv_from(&mut buffer).await.unwrap();
        let question = Message::from_octets(&buffer[..count]).unwrap();
        let asked = question.sole_question().unwrap();
        let said = say(&asked.qname().to_string(), asked.qtype() == Rtype::AAAA);
        let code = said.as_ref().err().copied().unwrap_or(Rcode::NOERROR);
        let mut message = MessageBuilder::new_vec().start_answer(&question, code).unwrap();
        for address in said.unwrap_or_default() {
            match address {
                IpAddr::V4(address) => message.push((asked.qname(), Ttl::from_secs(60), A::new(address))),
                IpAddr::V6(address) => message.push((asked.qname(), Ttl::from_secs(60), Aaaa::new(address))),
            }
            .unwrap();
        }
        socket.send_to(&message.finish(), from).await.unwrap();
    }
}

/// The tunnel's name server does not choose which service of this host is open to the tunnel.
#[test]
fn no_name_of_the_tunnel_leads_to_this_host() {
    run(async {
        for rebound in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fd00:ec2::254"] {
            let rebound: IpAddr = rebound.parse().unwrap();
            let (listener, target) = listen().await;
            let (server, name_server_address) = udp().await;
            let double = Double::new(&[(SocketAddr::new(NAME_SERVER, 53), name_server_address)]);
            let host = linerate_proxy::target::Host::Name("rebound.example".to_owned());
            let to = Target { host, port: target.port() };
            let (_, proxy) = double.serve_both_families(one(Service::TcpIn { port: 80, target: to }));
            let say = move |_: &str, is_ipv6| Ok(if is_ipv6 == rebound.is_ipv6() { vec![rebound] } else { Vec::new() });
            tokio::spawn(name_server_with(server, say));
            let entrance = double.listening.lock().unwrap()[&80];
            let mut client = TcpStream::connect(entrance).await.unwrap();
            let mut buffer = [0; 8];
            tokio::select! {
                read = client.read(&mut buffer) => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                _ = listener.accept() => panic!("a name leads to this host, by {rebound}"),
            }
            assert_eq!(proxy.counters.failures().get("forbidden"), Some(&1), "{rebound}");
        }
    });
}

#[test]
fn http_connect_is_a_connection() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 443), target)]);
        let (proxy, _) = double.serve(http(None));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        // The first bytes may come with the request.
        client.write_all(b"CONNECT 10.99.0.2:443 HTTP/1.1\r\nHost: 10.99.0.2:443\r\n\r\nhello").await.unwrap();
        let (mut there, _) = listener.accept().await.unwrap();
        assert_eq!(&read::<5>(&mut there).await, b"hello");
        there.write_all(b"an answer").await.unwrap();
        drop(there);
        client.shutdown().await.unwrap();
        let answer = String::from_utf8(read_all(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nan answer"), "{answer}");
    });
}

#[test]
fn refusals_on_one_connection_are_all_read() {
    run(async {
        let double = Double::new(&[]);
        let (proxy, server) = double.serve(http(Some(Login::new("peter", "hunter123"))));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        let mut answer = Vec::new();
        client.write_all(b"CONNECT 10.99.0.2:443 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        while !answer.ends_with(b"needed\n") {
            assert!(client.read_buf(&mut answer).await.unwrap() > 0);
        }
        // Whether there is another answer is hyper's choice; there is no reset.
        let _ = client.write_all(b"GET http://10.99.0.2/ HTTP/1.0\r\n\r\n").await;
        let _ = client.shutdown().await;
        read_all(&mut client).await;
        while server.counters.open.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    });
}

/// What bounds and counts connections holds for these, too.
#[test]
fn a_connection_by_http_connect_counts_until_it_ends() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 443), target)]);
        let (proxy, server) = double.serve(http(None));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        client.write_all(b"CONNECT 10.99.0.2:443 HTTP/1.1\r\nHost: 10.99.0.2:443\r\n\r\nhello").await.unwrap();
        let (mut there, _) = listener.accept().await.unwrap();
        assert_eq!(&read::<5>(&mut there).await, b"hello");
        assert_eq!(server.counters.open.load(Ordering::Relaxed), 1);
        drop((client, there));
        while server.counters.open.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn an_http_request_goes_on_without_what_is_for_the_proxy() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 8080), target)]);
        let (proxy, _) = double.serve(http(Some(Login::new("peter", "hunter123"))));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        client.write_all(b"GET http://10.99.0.2:8080/ HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut refusal = vec![0; 12];
        client.read_exact(&mut refusal).await.unwrap();
        assert_eq!(refusal, b"HTTP/1.1 407");

        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        let request = "POST http://10.99.0.2:8080/a?b HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\nCookie: c=d\r\n\
            Proxy-Authorization: Basic cGV0ZXI6aHVudGVyMTIz\r\nContent-Length: 4\r\n\r\nbody";
        client.write_all(request.as_bytes()).await.unwrap();
        let (mut there, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"body") {
            there.read_buf(&mut seen).await.unwrap();
        }
        let seen = String::from_utf8(seen).unwrap();
        assert!(seen.starts_with("POST /a?b HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("10.99.0.2:8080\r\n") && seen.contains("c=d"), "{seen}");
        let lower = seen.to_lowercase();
        assert!(!lower.contains("proxy") && !lower.contains("elsewhere") && !lower.contains("connection:"), "{seen}");
        there
            .write_all(b"HTTP/1.1 201 Created\r\nX-A: b\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await
            .unwrap();
        there.write_all(b"3\r\nabc\r\n0\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(read_all(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.contains("abc"), "{answer}");
    });
}

#[test]
fn a_client_that_has_sent_all_of_its_requests_is_answered() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, _) = double.serve(http(None));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        client.write_all(b"GET http://10.99.0.2/ HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut there, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            assert!(there.read_buf(&mut seen).await.unwrap() > 0);
        }
        there.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").await.unwrap();
        let answer = String::from_utf8(read_all(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nabc"), "{answer}");
    });
}

/// What is sent on has one end, however many a client or a server claims.
#[test]
fn a_message_with_two_lengths_is_one_message() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, _) = double.serve(http(None));
        for (first, second) in
            [("Content-Length: 6", "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Content-Length: 6")]
        {
            let mut client = TcpStream::connect(proxy[0]).await.unwrap();
            let head = format!("POST http://10.99.0.2/ HTTP/1.1\r\nHost: a\r\n{first}\r\n{second}\r\n\r\n");
            client.write_all(format!("{head}0\r\n\r\nGET http://10.99.0.2/b HTTP/1.1\r\n").as_bytes()).await.unwrap();
            let (mut there, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"0\r\n\r\n") {
                assert!(there.read_buf(&mut seen).await.unwrap() > 0);
            }
            let seen = String::from_utf8(seen).unwrap().to_lowercase();
            assert!(!seen.contains("content-length") && !seen.contains("/b"), "{seen}");

            let head = format!("HTTP/1.1 200 OK\r\n{first}\r\n{second}\r\nConnection: close\r\n\r\n");
            there
                .write_all(format!("{head}3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 Smuggled\r\n\r\n").as_bytes())
                .await
                .unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"0\r\n\r\n") {
                assert!(client.read_buf(&mut seen).await.unwrap() > 0, "{}", String::from_utf8_lossy(&seen));
            }
            let seen = String::from_utf8(seen).unwrap().to_lowercase();
            assert!(!seen.contains("content-length") && !seen.contains("smuggled"), "{seen}");
        }
    });
}

#[test]
fn a_failed_http_request_says_why() {
    run(async {
        let double = Double::new(&[]);
        let (proxy, _) = double.serve(http(None));
        for (request, status, reason) in [
            ("GET http://10.99.0.2/ HTTP/1.0", "502", "does not lead to"),
            ("CONNECT 127.0.0.1:80 HTTP/1.0", "403", "not an address that a tunnel leads to"),
            // Nobody is asked who that is.
            ("CONNECT localhost:80 HTTP/1.0", "403", "not an address that a tunnel leads to"),
            ("CONNECT a.LocalHost.:80 HTTP/1.0", "403", "not an address that a tunnel leads to"),
            // Its own, which would lead back here.
            ("CONNECT 10.99.0.1:80 HTTP/1.0", "403", "not an address that a tunnel leads to"),
            ("GET / HTTP/1.0", "400", "absolute URL"),
            ("GET https://10.99.0.2/ HTTP/1.0", "400", "CONNECT"),
        ] {
            let mut client = TcpStream::connect(proxy[0]).await.unwrap();
            client.write_all(format!("{request}\r\n\r\n").as_bytes()).await.unwrap();
            let answer = String::from_utf8(read_all(&mut client).await).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.0 {status} ")) && answer.contains(reason), "{answer}");
        }
    });
}

#[test]
fn http_requests_that_are_passed_on_have_a_bound_of_their_own() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let (proxy, server) = double.serve(http(None));
        assert_eq!(server.buffered.forget_permits(MOST_BUFFERED - 1), MOST_BUFFERED - 1);
        let get = "GET http://10.99.0.2/ HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut first = TcpStream::connect(proxy[0]).await.unwrap();
        // The place is the connection's for all of its requests, and free once it ends.
        for _ in 0..2 {
            first.write_all(get.as_bytes()).await.unwrap();
            let (mut there, _) = listener.accept().await.unwrap();
            there.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                assert!(first.read_buf(&mut answer).await.unwrap() > 0);
            }
            assert!(answer.starts_with(b"HTTP/1.1 204 "));
            let mut second = TcpStream::connect(proxy[0]).await.unwrap();
            second.write_all(b"GET http://10.99.0.2/ HTTP/1.0\r\n\r\n").await.unwrap();
            assert!(read_all(&mut second).await.starts_with(b"HTTP/1.0 503 "));
        }
        // CONNECT has no such buffers.
        let mut tunnel = TcpStream::connect(proxy[0]).await.unwrap();
        tunnel.write_all(b"CONNECT 10.99.0.2:80 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_eq!(&read::<13>(&mut tunnel).await, b"HTTP/1.1 200 ");
        drop(first);
        while server.buffered.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn tcp_is_forwarded_both_ways() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[(inside(2, 80), target)]);
        let to = |address: SocketAddr| Target::from(address);
        let settings = Settings {
            services: vec![
                Service::TcpOut { local: local(), target: to(inside(2, 80)) },
                Service::TcpIn { port: 3422, target: to(target) },
            ],
            ..Settings::default()
        };
        let (proxy, _) = double.serve(settings);
        let in_tunnel = double.listening.lock().unwrap()[&3422];
        for entrance in [proxy[0], in_tunnel] {
            let mut client = TcpStream::connect(entrance).await.unwrap();
            client.write_all(b"there").await.unwrap();
            let (mut there, _) = listener.accept().await.unwrap();
            assert_eq!(&read::<5>(&mut there).await, b"there");
            there.write_all(b"and back").await.unwrap();
            assert_eq!(&read::<8>(&mut client).await, b"and back");
        }
    });
}

#[test]
fn a_forward_to_nobody_is_reset() {
    run(async {
        let double = Double::new(&[]);
        let target = Target::from(inside(2, 80));
        let (proxy, _) = double.serve(one(Service::TcpOut { local: local(), target }));
        let mut client = TcpStream::connect(proxy[0]).await.unwrap();
        let error = client.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn each_client_of_a_udp_forward_gets_its_own_answers() {
    run(async {
        let (there, target) = udp().await;
        let double = Double::new(&[(inside(2, 53), target)]);
        let out = Service::UdpOut { local: local(), target: Target::from(inside(2, 53)), timeout: None };
        let into = Service::UdpIn { port: 5353, target: Target::from(target), timeout: None };
        let (proxy, _) = double.serve(Settings { services: vec![out, into], ..Settings::default() });
        let in_tunnel = double.listening.lock().unwrap()[&5353];
        for entrance in [proxy[0], in_tunnel] {
            let clients = [udp().await.0, udp().await.0];
            let mut sources = Vec::new();
            for (client, text) in clients.iter().zip(["one", "two"]) {
                client.send_to(text.as_bytes(), entrance).await.unwrap();
                let mut buffer = [0; 100];
                let (count, from) = there.recv_from(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..count], text.as_bytes());
                sources.push(from);
            }
            assert_ne!(sources[0], sources[1]);
            for (client, (source, text)) in clients.iter().zip(sources.iter().zip(["1", "2"])) {
                there.send_to(text.as_bytes(), source).await.unwrap();
                let mut buffer = [0; 100];
                let (count, from) = client.recv_from(&mut buffer).await.unwrap();
                assert_eq!((&buffer[..count], from), (text.as_bytes(), entrance));
            }
        }
    });
}

#[test]
fn strangers_do_not_keep_a_udp_forward_open() {
    run(async {
        let (there, target) = udp().await;
        let double = Double::new(&[(inside(2, 53), target)]);
        let timeout = Some(Duration::from_secs(10));
        let (proxy, _) = double.serve(one(Service::UdpOut { local: local(), target: inside(2, 53).into(), timeout }));
        let (client, _) = udp().await;
        let (stranger, _) = udp().await;
        let mut buffer = [0; 100];
        client.send_to(b"one", proxy[0]).await.unwrap();
        let (_, first) = there.recv_from(&mut buffer).await.unwrap();
        tokio::time::pause();
        for _ in 0..5 {
            stranger.send_to(b"stranger", first).await.unwrap();
            tokio::time::advance(Duration::from_secs(4)).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        tokio::time::resume();
        client.send_to(b"two", proxy[0]).await.unwrap();
        let (_, second) = there.recv_from(&mut buffer).await.unwrap();
        assert_ne!(first, second, "it has another port after ten seconds of silence");
    });
}

#[test]
fn health_tells_who_has_answered() {
    run(async {
        let double = Double::new(&[]);
        let info = local();
        let get = async |address: SocketAddr, head: &str| {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(format!("GET {head}\r\n\r\n").as_bytes()).await.unwrap();
            String::from_utf8(read_all(&mut client).await).unwrap()
        };
        let settings = Settings { check_alive: vec![NAME_SERVER], info: Some(info), ..Settings::default() };
        let (address, _) = double.serve(settings);
        assert!(get(address[0], "/livez HTTP/1.0").await.ends_with("\r\n\r\nok\n"));
        let mut answer = get(address[0], "/readyz HTTP/1.0").await;
        while !answer.starts_with("HTTP/1.0 200 ") {
            answer = get(address[0], "/readyz HTTP/1.0").await;
        }
        assert!(answer.contains("{\"10.99.0.53\":1") || answer.contains("{\"10.99.0.53\":2"), "{answer}");
        assert!(get(address[0], "/metrics HTTP/1.0").await.ends_with("public_key=00\n"));
        let scraped = get(address[0], "/metrics HTTP/1.0\r\nAccept: text/plain;version=0.0.4").await;
        assert!(scraped.contains("\nlinerate_proxy_connections 1\n"), "{scraped}");
        assert!(get(address[0], "/etc/passwd HTTP/1.0").await.starts_with("HTTP/1.0 404 "));

        let silent =
            Settings { check_alive: vec![NAME_SERVER, double::OWN], info: Some(local()), ..Settings::default() };
        let (address, _) = double.serve(silent);
        let answer = get(address[0], "/readyz HTTP/1.0").await;
        assert!(answer.starts_with("HTTP/1.0 503 ") && answer.contains("\"10.99.0.1\":0"), "{answer}");
    });
}

/// Whoever has all places for clients takes none of those who watch the proxy, or of those who come from the tunnel.
#[test]
fn a_proxy_without_places_is_alive_and_forwards_what_comes_from_the_tunnel() {
    run(async {
        let (listener, target) = listen().await;
        let double = Double::new(&[]);
        let into = Service::TcpIn { port: 80, target: Target::from(target) };
        let services = vec![Service::Socks { local: local(), login: None }, into];
        let (address, server) = double.serve(Settings { services, info: Some(local()), ..Settings::default() });
        let entrance = double.listening.lock().unwrap()[&80];
        server.connections.forget_permits(MOST_CONNECTIONS);
        // Each listener may have had a place before.
        for _ in 0..4 {
            let mut client = TcpStream::connect(address[1]).await.unwrap();
            client.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.unwrap();
            assert!(read_all(&mut client).await.starts_with(b"HTTP/1.0 200 "));
            let mut client = TcpStream::connect(entrance).await.unwrap();
            let (mut there, _) = listener.accept().await.unwrap();
            there.write_all(b"a").await.unwrap();
            assert_eq!(&read::<1>(&mut client).await, b"a");
        }
    });
}

#[test]
fn without_check_alive_it_is_ready() {
    run(async {
        let double = Double::new(&[]);
        let (address, _) = double.serve(Settings { info: Some(local()), ..Settings::default() });
        let mut client = TcpStream::connect(address[0]).await.unwrap();
        client.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(read_all(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("\r\n\r\n{}\n"), "{answer}");
    });
}
