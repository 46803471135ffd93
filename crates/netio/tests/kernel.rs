//! The system call layer against this machine's kernel.
//!
//! Each test runs inside a network namespace of its own (see [`in_namespace`]), which Linux alone has.
#![cfg(target_os = "linux")]

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use linerate_netio::clock::{Timer, boottime};
use linerate_netio::link::{self, LinkEvent, Monitor};
use linerate_netio::tcp::TcpInfo;
use linerate_netio::tun::{HEADER, Tun, TunDevice, TunError, TunOffloads};
use linerate_netio::udp::{
    self, Received, SEGMENTS_MAX, SendError, Socket, Transmit, UNPROTECTED, UdpOffloads, UdpSocket, bind_all,
};
use linerate_netio::wait::{Event, wait};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{SocketType, bind, socket};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

mod in_namespace;

use in_namespace::{in_namespace, output, run, sysctl};

// -- UDP

#[test]
fn a_gso_batch_arrives_with_its_bytes_and_segment_size() {
    in_namespace(|| {
        for family in BOTH {
            let (left, right) = sockets(family);
            let (left_offloads, to) = (left.offloads(), local(&right));
            assert!(left_offloads.gso && left_offloads.gro, "this kernel offers both");
            for (len, segment) in [(45 * 1452, 1452), (44 * 1452 + 1, 1452), (64 * 100, 100)] {
                let gso_batch: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
                let message = Transmit { segment: Some(segment), ..plain(to, &gso_batch) };
                assert_eq!(left.send(&[message]).unwrap(), 1);
                let (received, bytes) = receive(&right);
                assert_eq!((received.len, received.segment), (len, usize::from(segment)));
                assert_eq!(received.source, local(&left));
                assert!(bytes == gso_batch, "{family:?}: the bytes differ");
            }
        }
    });
}

#[test]
fn a_socket_has_only_the_offloads_that_are_wanted() {
    in_namespace(|| {
        let bound = |wanted| UdpSocket::bind(SocketAddr::new(V4, 0), 0, wanted).unwrap();
        let apart = bound(UdpOffloads { gro: false, ..UdpOffloads::ALL });
        let together = bound(UdpOffloads { gso: false, ..UdpOffloads::ALL });
        assert_eq!(apart.offloads(), UdpOffloads { gro: false, gso: true });
        assert_eq!(together.offloads(), UdpOffloads { gro: true, gso: false });
        let gso_batch = [7; 3 * 1000];
        for (to, lens) in [(&apart, &[1000, 1000, 1000][..]), (&together, &[3000])] {
            let message = Transmit { segment: Some(1000), ..plain(local(to), &gso_batch) };
            assert_eq!(apart.send(&[message]).unwrap(), 1);
            let received: Vec<usize> = lens.iter().map(|_| receive(to).0.len).collect();
            assert_eq!(received, lens);
        }
    });
}

#[test]
fn gso_batches_and_single_datagrams_keep_their_order() {
    in_namespace(|| {
        for family in BOTH {
            let (left, right) = sockets(family);
            let to = local(&right);
            let gso_batch = [7; 5 * 1000];
            let batch = [
                plain(to, &[1; 100]),
                Transmit { segment: Some(1000), ..plain(to, &gso_batch) },
                plain(to, &[]),
                plain(to, &[2; 1300]),
            ];
            assert_eq!(left.send(&batch).unwrap(), 4);
            let received = receive_all(&right, 4, 1 << 16);
            let seen: Vec<(usize, usize)> = received.iter().map(|(meta, _)| (meta.len, meta.segment)).collect();
            assert_eq!(seen, [(100, 100), (5000, 1000), (0, 0), (1300, 1300)]);
            assert_eq!(received[1].1, gso_batch);
            assert_eq!(received[3].1, [2; 1300]);
        }
    });
}

#[test]
fn a_batch_larger_than_one_system_call_is_sent_completely() {
    in_namespace(|| {
        let (left, right) = sockets(V4);
        let contents: Vec<[u8; 2]> = (0..300u16).map(u16::to_be_bytes).collect();
        let to = local(&right);
        let batch: Vec<Transmit<'_>> = contents.iter().map(|bytes| plain(to, bytes)).collect();
        assert_eq!(left.send(&batch).unwrap(), 300);
        let seen = receive_all(&right, 300, 2);
        assert!(seen.iter().map(|(_, bytes)| bytes).eq(&contents));
    });
}

#[test]
fn a_batch_is_sent_and_received_by_the_calls_for_many() {
    in_namespace(|| {
        let (left, right) = sockets(V4);
        let batch = [plain(local(&right), &[1; 100]); 20];
        // The filter is this thread's, which is the only one here that uses sockets.
        apply_filter(&refusing(&[libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_recvmsg, libc::SYS_recvfrom])).unwrap();
        let alone = left.send(&batch[..1]).unwrap_err();
        assert_eq!(alone.raw_os_error(), Some(libc::EDOM), "a message alone goes by sendmsg: the filter works");
        assert_eq!(left.send(&batch).unwrap(), 20);
        assert_eq!(receive_all(&right, 20, 128).len(), 20);
    });
}

/// A filter under which `calls` fail with EDOM, which the kernel answers to none of them.
fn refusing(calls: &[libc::c_long]) -> BpfProgram {
    let calls = calls.iter().map(|&call| (call, Vec::new())).collect();
    let edom = SeccompAction::Errno(libc::EDOM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(calls, SeccompAction::Allow, edom, architecture).unwrap().try_into().unwrap()
}

#[test]
fn a_datagram_longer_than_its_stride_reads_as_empty_and_leaves_its_neighbour_alone() {
    in_namespace(|| {
        let (left, right) = sockets(V4);
        let to = local(&right);
        let mut buf = [0; 150];
        let mut meta = [Received::default(); 3];
        loop {
            assert_eq!(left.send(&[plain(to, &[7; 100]), plain(to, &[9; 40])]).unwrap(), 2);
            wait(&[right.as_fd()]).unwrap();
            if right.recv(&mut buf, &mut meta).unwrap() == 2 {
                break;
            }
            // The second one has come too late to be its neighbour.
            receive(&right);
        }
        assert_eq!((meta[0].len, meta[1].len), (0, 40));
        assert_eq!(meta[0].source, local(&left));
        assert_eq!(buf[50..90], [9; 40]);
        assert_eq!(buf[90..], [0; 60]);

        left.send(&[plain(to, &[7; 100])]).unwrap();
        wait(&[right.as_fd()]).unwrap();
        assert_eq!(right.recv(&mut [0; 99], &mut meta[..1]).unwrap(), 1);
        assert_eq!(meta[0].len, 0);
    });
}

#[test]
fn an_empty_socket_says_would_block() {
    in_namespace(|| {
        let (_, right) = sockets(V6);
        for room in [1, 4] {
            let mut meta = vec![Received::default(); room];
            let error = right.recv(&mut [0; 64], &mut meta).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn the_traffic_class_is_sent_and_received() {
    in_namespace(|| {
        for family in BOTH {
            let (left, right) = sockets(family);
            // None, AF41 as on handshakes, ECT(0), CE, and all of it.
            for tos in [0, 0x88, 0x02, 0x03, 0xff] {
                let message = Transmit { tos, ..plain(local(&right), b"there") };
                left.send(&[message]).unwrap();
                let (received, _) = receive(&right);
                assert_eq!(received.tos, tos, "{family:?}");
                let back = Transmit { tos, ..plain(received.source, b"back") };
                right.send(&[back, back]).unwrap();
                assert_eq!(receive(&left).0.tos, tos, "{family:?}");
                assert_eq!(receive(&left).0.tos, tos, "{family:?}");
            }
        }
    });
}

#[test]
fn a_datagram_has_the_requested_source_and_reports_its_destination() {
    in_namespace(|| {
        add_address("192.0.2.1/24", "lo");
        add_address("192.0.2.2/24", "lo");
        add_address("2001:db8::1/64", "lo");
        add_address("2001:db8::2/64", "lo");
        for (family, first, second) in [(V4, "192.0.2.1", "192.0.2.2"), (V6, "2001:db8::1", "2001:db8::2")] {
            let (first, second): (IpAddr, IpAddr) = (ip(first), ip(second));
            let (left, right) = sockets(family);
            let to = SocketAddr::new(second, right.local_addr().unwrap().port());
            for from in [first, second] {
                left.send(&[Transmit { from: Some(from), ..plain(to, b"x") }]).unwrap();
                let (received, _) = receive(&right);
                assert_eq!(received.source.ip(), from);
                let arrived = received.local.unwrap();
                assert_eq!((arrived.addr, arrived.ifindex), (second, 1));
            }
        }
    });
}

#[test]
fn a_source_that_is_not_ours_is_reported_as_gone() {
    in_namespace(|| {
        for (family, stranger) in [(V4, "192.0.2.9"), (V6, "2001:db8::9")] {
            let (left, right) = sockets(family);
            let from = Some(ip(stranger));
            let error = left.send(&[Transmit { from, ..plain(local(&right), b"x") }]).unwrap_err();
            report(&format!("{family:?} source not ours: {error}"));
            assert_eq!(udp::send_error(&error, false, true), SendError::SourceGone);
        }
    });
}

#[test]
fn a_destination_without_a_route_is_reported_as_unreachable() {
    in_namespace(|| {
        for (family, to) in [(V4, "192.0.2.9:9"), (V6, "[2001:db8::9]:9")] {
            let (left, _) = sockets(family);
            let error = left.send(&[plain(to.parse().unwrap(), b"x")]).unwrap_err();
            report(&format!("{family:?} no route: {error}"));
            assert_eq!(udp::send_error(&error, false, false), SendError::Unreachable);
        }
    });
}

#[test]
fn a_closed_port_at_the_other_end_does_not_fail_later_sends() {
    in_namespace(|| {
        for family in BOTH {
            let (left, right) = sockets(family);
            let to = local(&right);
            drop(right);
            for _ in 0..3 {
                assert_eq!(left.send(&[plain(to, b"x")]).unwrap(), 1);
            }
            let error = left.recv(&mut [0; 9], &mut [Received::default()]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn datagrams_larger_than_the_mtu_are_fragmented_and_too_large_segments_refused() {
    in_namespace(|| {
        run("ip link set lo mtu 1280");
        for family in BOTH {
            let (left, right) = sockets(family);
            let to = local(&right);
            let gso_batch = [3; 4 * 1400];
            for len in [1400, gso_batch.len()] {
                left.send(&[plain(to, &gso_batch[..len])]).unwrap();
                assert_eq!(receive(&right).0.len, len, "{family:?}");
            }
            refuses_segments_above_1280("link", family, &left, to);
            let segment = segment_for_1280(family);
            left.send(&[Transmit { segment, ..plain(to, &gso_batch) }]).unwrap();
            assert_eq!(receive(&right).0.segment, usize::from(segment.unwrap()));
        }
    });
}

#[test]
fn a_route_with_a_small_mtu_fragments_and_refuses_too_large_segments() {
    in_namespace(|| {
        let tun = TunDevice::create("narrow0", 1, TunOffloads::ALL).unwrap();
        run("ip link set narrow0 up");
        run("ip address add 10.9.0.1/24 dev narrow0");
        add_address("2001:db8::1/64", "narrow0");
        run("ip route add 10.10.0.0/24 dev narrow0 mtu 1280");
        run("ip -6 route add 2001:db8:1::/64 dev narrow0 mtu 1280");
        for (family, to) in [(V4, "10.10.0.1:9"), (V6, "[2001:db8:1::1]:9")] {
            let (left, _) = sockets(family);
            let to = to.parse().unwrap();
            left.send(&[plain(to, &[3; 1400])]).unwrap();
            let fragments = [read_outer(&tun, family), read_outer(&tun, family)];
            for fragment in &fragments {
                assert!(fragment.len() <= HEADER + 1280);
                if family == V4 {
                    assert_ne!(fragment[HEADER + 6..HEADER + 8], [0, 0]);
                } else {
                    assert_eq!(fragment[HEADER + 6], IPV6_FRAGMENT);
                }
            }
            refuses_segments_above_1280("route", family, &left, to);
            let segment = segment_for_1280(family);
            left.send(&[Transmit { segment, ..plain(to, &[3; 2000]) }]).unwrap();
        }
    });
}

fn refuses_segments_above_1280(what: &str, family: IpAddr, left: &UdpSocket, to: SocketAddr) {
    let segment = segment_for_1280(family).map(|fits| fits + 1);
    let error = left.send(&[Transmit { segment, ..plain(to, &[3; 4000]) }]).unwrap_err();
    report(&format!("{what} MTU 1280, {family:?}, UDP_SEGMENT one too large: {error}"));
    assert_eq!(udp::send_error(&error, true, false), SendError::SegmentationRefused);
}

fn segment_for_1280(family: IpAddr) -> Option<u16> {
    Some(if family == V4 { 1280 - 28 } else { 1280 - 48 })
}

#[test]
fn a_gso_batch_with_too_many_segments_is_refused_as_such() {
    in_namespace(|| {
        let (left, right) = sockets(V4);
        let gso_batch = [0; SEGMENTS_MAX * 2 + 1];
        let to = local(&right);
        let error = left.send(&[Transmit { segment: Some(1), ..plain(to, &gso_batch) }]).unwrap_err();
        report(&format!("{} segments: {error}", gso_batch.len()));
        assert_eq!(udp::send_error(&error, true, false), SendError::SegmentationRefused);
    });
}

#[test]
fn outer_ipv4_datagrams_go_without_df() {
    in_namespace(|| {
        let tun = device("df0");
        run("ip address add 10.9.0.1/24 dev df0");
        let (left, _) = sockets(V4);
        left.send(&[plain("10.9.0.2:9".parse().unwrap(), b"x")]).unwrap();
        let packet = read_packet(&tun);
        assert_eq!(packet[HEADER + 6] & 0x40, 0);
    });
}

#[test]
fn bound_sockets_have_one_port_that_nobody_else_can_bind() {
    in_namespace(|| {
        let pair = bind_all(0, 0, 1, UdpOffloads::ALL, UNPROTECTED).unwrap();
        assert_ne!(pair.port, 0);
        for sockets in [&pair.v4, &pair.v6] {
            assert_eq!(sockets.len(), 1);
            assert_eq!(sockets[0].local_addr().unwrap().port(), pair.port);
        }
        let taken = bind_all(pair.port, 0, 1, UdpOffloads::ALL, UNPROTECTED).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        for family in BOTH {
            let taken = UdpSocket::bind(SocketAddr::new(family, pair.port), 0, UdpOffloads::ALL).err().unwrap();
            assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
        }
    });
}

#[test]
fn a_group_shares_its_port_with_nobody_else() {
    in_namespace(|| {
        let group = bind_all(0, 0, 3, UdpOffloads::ALL, UNPROTECTED).unwrap();
        assert_eq!((group.v4.len(), group.v6.len()), (3, 3), "this kernel steers");
        for socket in group.v4.iter().chain(&group.v6) {
            assert_eq!(socket.local_addr().unwrap().port(), group.port);
        }
        for sockets in [1, 3] {
            let taken = bind_all(group.port, 0, sockets, UdpOffloads::ALL, UNPROTECTED).err().unwrap();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        }
        let port = group.port;
        drop(group);
        let _alone = UdpSocket::bind(SocketAddr::new(V4, port), 0, UdpOffloads::ALL).unwrap();
        assert_eq!(bind_all(port, 0, 3, UdpOffloads::ALL, UNPROTECTED).err().unwrap().kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn data_messages_reach_the_socket_of_their_receiver_and_others_the_first() {
    in_namespace(|| {
        for sockets in [2, 3, 4] {
            let pair = bind_all(0, 0, sockets, UdpOffloads::ALL, UNPROTECTED).unwrap();
            for (family, group) in [(V4, &pair.v4), (V6, &pair.v6)] {
                let (left, _) = self::sockets(family);
                let to = local(&group[0]);
                for receiver in [0, 1, 2, 3, 4, 5, 0x8000_0000, 0xdead_beef, u32::MAX] {
                    let place = receiver as usize % sockets;
                    left.send(&[plain(to, &message(4, receiver, 148))]).unwrap();
                    assert_eq!(came_to(group), [(place, 148)], "{family:?}, {receiver:#x} of {sockets}");
                    let gso_batch = message(4, receiver, 1000).repeat(10);
                    left.send(&[Transmit { segment: Some(1000), ..plain(to, &gso_batch) }]).unwrap();
                    assert_eq!(
                        came_to(group),
                        [(place, 10_000)],
                        "{family:?}, {receiver:#x} of {sockets}, a gso_batch"
                    );
                    for kind in [1, 2, 3, 5] {
                        left.send(&[plain(to, &message(kind, receiver, 148))]).unwrap();
                        assert_eq!(came_to(group), [(0, 148)], "{family:?}, type {kind}, {receiver:#x} of {sockets}");
                    }
                }
                for len in 1..8 {
                    left.send(&[plain(to, &message(4, u32::MAX, 8)[..len])]).unwrap();
                    assert_eq!(came_to(group), [(0, len)], "{family:?}, {len} bytes only");
                }
            }
        }
    });
}

#[test]
fn a_socket_that_joins_a_group_receives_nothing() {
    in_namespace(|| {
        let group = bind_all(0, 0, 2, UdpOffloads::ALL, UNPROTECTED).unwrap().v4;
        let (left, _) = sockets(V4);
        let to = local(&group[0]);
        let intruder = socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        set_socket_reuseport(&intruder, true).unwrap();
        bind(&intruder, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), to.port())).unwrap();
        for receiver in 0..20 {
            left.send(&[plain(to, &message(4, receiver, 148))]).unwrap();
            assert_eq!(came_to(&group), [(receiver as usize % 2, 148)]);
            left.send(&[plain(to, &message(1, receiver, 148))]).unwrap();
            assert_eq!(came_to(&group), [(0, 148)]);
        }
    });
}

/// The beginning of a WireGuard message, its receiver index in network byte order.
fn message(kind: u8, receiver: u32, len: usize) -> Vec<u8> {
    let mut message = vec![0; len];
    message[0] = kind;
    message[4..8].copy_from_slice(&receiver.to_be_bytes());
    message
}

/// Waits for what was sent to a group; answers the place of each socket that has something, and how
/// many bytes.
fn came_to(group: &[UdpSocket]) -> Vec<(usize, usize)> {
    let fds: Vec<_> = group.iter().map(UdpSocket::as_fd).collect();
    let ready = wait(&fds).unwrap();
    let places = (0..group.len()).filter(|place| ready & 1 << place != 0);
    places.map(|place| (place, receive(&group[place]).0.len)).collect()
}

#[test]
fn a_free_port_is_looked_for_until_it_is_free_in_both_families() {
    in_namespace(|| {
        sysctl("net/ipv4/ip_local_port_range", "50000 50003");
        let _taken: Vec<UdpSocket> = (50000..50003)
            .map(|port| UdpSocket::bind(SocketAddr::new(V6, port), 0, UdpOffloads::ALL).unwrap())
            .collect();
        for _ in 0..10 {
            assert_eq!(bind_all(0, 0, 1, UdpOffloads::ALL, UNPROTECTED).unwrap().port, 50003);
        }
    });
}

#[test]
fn a_port_taken_in_one_family_only_is_in_use() {
    in_namespace(|| {
        for family in BOTH {
            let taken = UdpSocket::bind(SocketAddr::new(family, 51820), 0, UdpOffloads::ALL).unwrap();
            let error = bind_all(51820, 0, 1, UdpOffloads::ALL, UNPROTECTED).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            drop(taken);
            assert!(bind_all(51820, 0, 1, UdpOffloads::ALL, UNPROTECTED).is_ok());
        }
    });
}

#[test]
fn ipv4_works_where_ipv6_is_disabled() {
    in_namespace(|| {
        sysctl("net/ipv6/conf/all/disable_ipv6", "1");
        let pair = bind_all(0, 0, 1, UdpOffloads::ALL, UNPROTECTED).unwrap();
        report(&format!("IPv6 disabled by sysctl: v6 socket bound: {}", !pair.v6.is_empty()));
        let v4 = &pair.v4[0];
        v4.send(&[plain(local(v4), b"x")]).unwrap();
        assert_eq!(receive(v4).1, b"x");
        if let Some(v6) = pair.v6.first() {
            let error = v6.send(&[plain("[2001:db8::9]:9".parse().unwrap(), b"x")]).unwrap_err();
            assert_eq!(udp::send_error(&error, false, false), SendError::Unreachable);
        }
    });
}

#[test]
fn the_mark_chooses_the_route() {
    in_namespace(|| {
        let marked = device("marked0");
        let other = device("other0");
        run("ip address add 10.9.1.1/24 dev marked0");
        run("ip address add 10.9.2.1/24 dev other0");
        run("ip route add default dev other0");
        run("ip route add default dev marked0 table 7");
        run("ip rule add fwmark 51820 table 7");
        let to = "198.51.100.1:9".parse().unwrap();
        let socket = UdpSocket::bind(SocketAddr::new(V4, 0), 51820, UdpOffloads::ALL).unwrap();
        socket.send(&[plain(to, b"one")]).unwrap();
        assert!(read_packet(&marked).ends_with(b"one"));
        socket.set_mark(0).unwrap();
        socket.send(&[plain(to, b"two")]).unwrap();
        assert!(read_packet(&other).ends_with(b"two"));

        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!(link::egress(to.ip(), any, 51820).unwrap(), marked.ifindex().unwrap());
        assert_eq!(link::egress(to.ip(), any, 0).unwrap(), other.ifindex().unwrap());
    });
}

// -- TUN

#[test]
fn a_device_has_every_offload_of_this_kernel() {
    in_namespace(|| {
        let tun = TunDevice::create("offload0", 1, TunOffloads::ALL).unwrap();
        report(&format!("{:?}", tun.offloads()));
        assert!(tun.offloads().vnet_hdr && tun.offloads().tso);
        assert_eq!(tun.ifindex(), link::index_of("offload0").ok());
        let mut buf = [0; 100];
        let packet = [IoSlice::new(&[0; HEADER]), IoSlice::new(&[0x45; 20])];
        assert_eq!(tun.write(0, &packet).unwrap_err().raw_os_error(), Some(libc::EIO), "it is down");
        // With IPv6 the kernel sends a router solicitation, at a moment of its own choosing.
        sysctl("net/ipv6/conf/offload0/disable_ipv6", "1");
        run("ip link set offload0 up");
        assert_eq!(tun.read(0, &mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_device_has_only_the_offloads_that_are_wanted() {
    in_namespace(|| {
        let known = TunDevice::create("known0", 1, TunOffloads::ALL).unwrap().offloads();
        for (name, wanted, granted) in [
            (
                "bare0",
                TunOffloads { vnet_hdr: false, ..known },
                TunOffloads { vnet_hdr: false, tso: false, uso: false },
            ),
            ("tso0", TunOffloads { uso: false, ..known }, TunOffloads { uso: false, ..known }),
            ("uso0", TunOffloads { tso: false, ..known }, TunOffloads { tso: false, ..known }),
        ] {
            assert_eq!(TunDevice::create(name, 1, wanted).unwrap().offloads(), granted, "{name}");
        }
    });
}

#[test]
fn a_packet_read_and_written_back_in_pieces_is_delivered_back_to_the_sender() {
    in_namespace(|| {
        let tun = device("echo0");
        run("ip address add 10.9.0.1/24 dev echo0");
        let socket = std::net::UdpSocket::bind("10.9.0.1:5000").unwrap();
        socket.send_to(b"anyone there?", "10.9.0.2:5000").unwrap();
        let mut packet = read_packet(&tun);
        assert_eq!(packet.len(), HEADER + 28 + 13);
        swap_addresses(&mut packet);
        let pieces = [
            IoSlice::new(&packet[..HEADER]),
            IoSlice::new(&packet[HEADER..HEADER + 20]),
            IoSlice::new(&packet[HEADER + 20..]),
        ];
        assert_eq!(tun.write(0, &pieces).unwrap(), packet.len());
        let mut answer = [0; 100];
        let (len, source) = socket.recv_from(&mut answer).unwrap();
        assert_eq!(source, "10.9.0.2:5000".parse().unwrap());
        assert_eq!(&answer[..len], b"anyone there?");
    });
}

#[test]
fn a_gso_batch_into_the_device_is_one_gso_packet_and_leaves_as_a_gso_batch() {
    in_namespace(|| {
        let tun = device("uso0");
        run("ip address add 10.9.0.1/24 dev uso0");
        if !tun.offloads().uso {
            return report("no USO on this kernel");
        }
        let socket = UdpSocket::bind(SocketAddr::new(V4, 5000), 0, UdpOffloads::ALL).unwrap();
        let gso_batch: Vec<u8> = (0..20 * 1200 + 5).map(|i| (i % 253) as u8).collect();
        let to = "10.9.0.2:5000".parse().unwrap();
        socket.send(&[Transmit { segment: Some(1200), ..plain(to, &gso_batch) }]).unwrap();
        let mut packet = read_packet(&tun);
        assert_eq!(packet.len(), HEADER + 28 + gso_batch.len());
        assert_eq!(packet[1], VIRTIO_UDP_L4);
        assert_eq!(u16::from_ne_bytes([packet[4], packet[5]]), 1200);
        swap_addresses(&mut packet);
        tun.write(0, &[IoSlice::new(&packet)]).unwrap();
        let (received, bytes) = receive(&socket);
        assert_eq!((received.len, received.segment), (gso_batch.len(), 1200));
        assert_eq!(received.source, to);
        assert!(bytes == gso_batch);
    });
}

/// A packet with its two addresses swapped is a packet from the other side, its checksums
/// unchanged: so a TCP connection to an address behind the device reaches a listener before it.
#[test]
fn a_tcp_stream_arrives_as_gso_packets_within_the_segment_limit() {
    in_namespace(|| {
        let tun = device("tso0");
        link::set_mtu(tun.ifindex().unwrap(), 1420).unwrap();
        link::set_gso_max_segments(tun.ifindex().unwrap(), 45).unwrap();
        run("ip address add 10.9.0.1/24 dev tso0");
        let listener = TcpListener::bind("10.9.0.1:80").unwrap();
        let stop = Event::new().unwrap();
        let (largest, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let data = vec![5; 8 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| reflect(&tun, &stop, &largest, &most));
            scope.spawn(|| TcpStream::connect("10.9.0.2:80").unwrap().write_all(&data).unwrap());
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            assert!(received == data);
            stop.signal();
        });
        let (largest, most) = (largest.into_inner(), most.into_inner());
        report(&format!("largest GSO packet: {largest} bytes, {most} segments"));
        assert!(most > 1, "no GSO packet was read");
        assert!(most <= 45, "{most} segments");
    });
}

fn reflect(tun: &TunDevice, stop: &Event, largest: &AtomicUsize, most: &AtomicUsize) {
    let mut buf = vec![0; 1 << 17];
    while wait(&[tun.queue_fd(0), stop.as_fd()]).unwrap() & 2 == 0 {
        while let Ok(len) = tun.read(0, &mut buf) {
            let packet = &mut buf[..len];
            if packet[1] & 7 == VIRTIO_TCPV4 {
                let headers = usize::from(u16::from_ne_bytes([packet[2], packet[3]]));
                let size = usize::from(u16::from_ne_bytes([packet[4], packet[5]]));
                let segments = (len - HEADER - headers).div_ceil(size);
                largest.fetch_max(len - HEADER, Ordering::SeqCst);
                most.fetch_max(segments, Ordering::SeqCst);
            }
            swap_addresses(packet);
            tun.write(0, &[IoSlice::new(packet)]).unwrap();
        }
    }
}

#[test]
fn a_name_that_is_taken_is_refused_with_the_reason() {
    in_namespace(|| {
        let _tun = TunDevice::create("mine0", 1, TunOffloads::ALL).unwrap();
        for queues in [1, 3] {
            let busy = TunDevice::create("mine0", queues, TunOffloads::ALL).err().unwrap();
            assert!(matches!(busy, TunError::Refused(io::ErrorKind::ResourceBusy, _)), "{busy}");
            assert!(busy.to_string().starts_with("interface mine0 is in use"), "{busy}");
        }

        run("ip tuntap add mode tap name tap0");
        run("ip link add veth0 type veth peer name veth1");
        run("ip tuntap add mode tun multi_queue name multi0");
        let held = TunDevice::create("many0", 3, TunOffloads::ALL).unwrap();
        for name in ["tap0", "veth0", "lo", "multi0", "many0"] {
            for queues in [1, 3] {
                let exists = TunDevice::create(name, queues, TunOffloads::ALL).err().unwrap();
                assert!(matches!(exists, TunError::Refused(io::ErrorKind::AlreadyExists, _)), "{exists}");
                assert!(exists.to_string().starts_with(&format!("interface {name} exists")), "{exists}");
            }
        }
        assert_eq!(kernel_queues("many0"), held.queues());
    });
}

#[test]
fn the_replies_of_a_flow_use_the_queue_that_it_is_written_to() {
    in_namespace(|| {
        let tun = device_of(4, "many0");
        assert_eq!(tun.queues(), 4, "this kernel has several queues");
        assert_eq!(kernel_queues("many0"), 4);
        run("ip address add 10.9.0.1/24 dev many0");
        let socket = std::net::UdpSocket::bind("10.9.0.1:5000").unwrap();
        for queue in [0, 1, 2, 3, 1] {
            let ask = || socket.send_to(b"anyone there?", "10.9.0.2:5000").unwrap();
            loop {
                ask();
                let (_, mut packet) = read_any(&tun);
                swap_addresses(&mut packet);
                let begin = boottime();
                assert_eq!(tun.write(queue, &[IoSlice::new(&packet)]).unwrap(), packet.len());
                assert_eq!(socket.recv_from(&mut [0; 100]).unwrap().0, 13);
                ask();
                let (answered_by, _) = read_any(&tun);
                // The kernel forgets a flow after three seconds (TUN_FLOW_EXPIRATION in drivers/net/tun.c).
                if boottime() - begin < 2_000_000_000 {
                    assert_eq!(answered_by, queue);
                    break;
                }
            }
        }
    });
}

/// The next packet, and the queue that it comes by.
fn read_any(tun: &TunDevice) -> (usize, Vec<u8>) {
    let mut buf = vec![0; 1 << 17];
    let fds: Vec<_> = (0..tun.queues()).map(|queue| tun.queue_fd(queue)).collect();
    let queue = wait(&fds).unwrap().trailing_zeros() as usize;
    let len = tun.read(queue, &mut buf).unwrap();
    buf.truncate(len);
    (queue, buf)
}

/// How many queues the kernel says that an interface has.
fn kernel_queues(name: &str) -> usize {
    let link = run(&format!("ip -d link show {name}"));
    let (_, queues) = link.split_once(" numqueues ").expect("a TUN device of several queues");
    queues.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_queue_of_a_deleted_device_fails_and_wakes_its_waiter() {
    in_namespace(|| {
        let tun = device_of(3, "gone0");
        run("ip link set gone0 down");
        run("ip link set gone0 name after0");
        assert_eq!(tun.name().unwrap(), "after0");
        run("ip link delete after0");
        for queue in 0..tun.queues() {
            wait(&[tun.queue_fd(queue)]).unwrap();
            let error = tun.read(queue, &mut [0; 100]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADFD));
        }
    });
}

#[test]
fn a_persistent_device_is_attached_to_and_outlives_us() {
    in_namespace(|| {
        run("ip tuntap add mode tun name keep0");
        let ifindex = link::index_of("keep0").unwrap();
        for queues in [1, 3] {
            let tun = TunDevice::create("keep0", queues, TunOffloads::ALL).unwrap();
            assert_eq!((tun.ifindex(), tun.queues()), (Some(ifindex), 1));
            assert!(tun.offloads().vnet_hdr);
            drop(tun);
            assert_eq!(link::index_of("keep0").unwrap(), ifindex);
        }
    });
}

#[test]
fn a_renamed_device_knows_its_name_and_a_deleted_one_fails() {
    in_namespace(|| {
        let tun = device("before0");
        run("ip link set before0 down");
        run("ip link set before0 name after0");
        assert_eq!(tun.name().unwrap(), "after0");
        assert_eq!(link::index_of("after0").ok(), tun.ifindex());
        run("ip link delete after0");
        assert_eq!(tun.name().unwrap_err().raw_os_error(), Some(libc::EBADFD));
        let error = tun.read(0, &mut [0; 100]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADFD));
        assert_eq!(link::mtu(tun.ifindex().unwrap()).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    });
}

#[test]
fn a_deleted_device_wakes_its_waiter() {
    in_namespace(|| {
        let tun = device("gone0");
        drain(&tun);
        std::thread::scope(|scope| {
            scope.spawn(|| run("ip link delete gone0"));
            wait(&[tun.queue_fd(0)]).unwrap();
        });
        // The descriptor may be ready for a packet that was sent before the end.
        while tun.read(0, &mut [0; 2000]).is_ok() {}
    });
}

// -- links, routes, process

#[test]
fn the_monitor_reports_links_addresses_routes_and_rules() {
    in_namespace(|| {
        let mut monitor = Monitor::new().unwrap();
        assert_eq!(monitor.next(), None);
        run("ip link add watched0 type veth peer name peer0");
        let ifindex = link::index_of("watched0").unwrap();
        let state = |up, mtu, name: &str| LinkEvent::Link { ifindex, up, mtu, name: name.to_owned() };
        assert_event(&mut monitor, &state(false, 1500, "watched0"));
        run("ip link set watched0 mtu 1380");
        assert_event(&mut monitor, &state(false, 1380, "watched0"));
        run("ip link set watched0 name renamed0");
        assert_event(&mut monitor, &state(false, 1380, "renamed0"));
        run("ip link set renamed0 up");
        assert_event(&mut monitor, &state(true, 1380, "renamed0"));
        for change in [
            "ip address add 192.0.2.1/24 dev renamed0",
            "ip address add 2001:db8::1/64 dev renamed0 nodad",
            "ip route add 198.51.100.0/24 dev renamed0",
            "ip -6 route add 2001:db8:1::/48 dev renamed0",
            "ip rule add fwmark 9 table 9",
            "ip -6 rule add fwmark 9 table 9",
        ] {
            run(change);
            let about = (!change.contains(" rule ")).then_some(ifindex);
            assert_event(&mut monitor, &LinkEvent::Routing { ifindex: about });
        }
        run("ip link set renamed0 down");
        assert_event(&mut monitor, &state(false, 1380, "renamed0"));
        run("ip link delete renamed0");
        assert_event(&mut monitor, &LinkEvent::LinkGone { ifindex });
    });
}

#[test]
fn leaving_a_bridge_does_not_end_a_link() {
    in_namespace(|| {
        run("ip link add port0 type veth peer name peer0");
        if !output("ip link add bridge0 type bridge").status.success() {
            return report("no bridges on this kernel");
        }
        run("ip link set port0 master bridge0");
        let mut monitor = Monitor::new().unwrap();
        run("ip link set port0 nomaster");
        run("ip link set port0 mtu 1300");
        let changes = events_until(&mut monitor, |change| matches!(change, LinkEvent::Link { mtu: 1300, .. }));
        assert!(!changes.iter().any(|change| matches!(change, LinkEvent::LinkGone { .. })));
    });
}

#[test]
fn a_monitor_that_was_not_read_reports_lost_changes() {
    in_namespace(|| {
        let mut monitor = Monitor::new().unwrap();
        add_link("busy0");
        let routes: String =
            (0..4000).map(|i| format!("route add 10.{}.{}.0/24 dev busy0\n", i / 256, i % 256)).collect();
        // A place of its own, which goes with the namespace.
        std::fs::write("/var/run/routes", routes).unwrap();
        run("ip -batch /var/run/routes");
        assert_event(&mut monitor, &LinkEvent::Lost);
        run("ip link set busy0 mtu 1400");
        events_until(&mut monitor, |change| matches!(change, LinkEvent::Link { mtu: 1400, .. }));
    });
}

#[test]
fn links_are_read_and_changed_by_index() {
    in_namespace(|| {
        run("ip link add link0 type veth peer name peer0");
        let ifindex = link::index_of("link0").unwrap();
        assert!(!link::is_up(ifindex).unwrap());
        run("ip link set link0 up");
        assert!(link::is_up(ifindex).unwrap());
        link::set_mtu(ifindex, 1333).unwrap();
        assert_eq!(link::mtu(ifindex).unwrap(), 1333);
        link::set_gso_max_segments(ifindex, 45).unwrap();
        link::set_tx_queue_len(ifindex, 1234).unwrap();
        link::set_no_link_local_address(ifindex).unwrap();
        let shown = run("ip -details link show link0");
        assert!(shown.contains("gso_max_segs 45"), "{shown}");
        assert!(shown.contains("qlen 1234"), "{shown}");
        assert!(shown.contains("addrgenmode none"), "{shown}");

        let missing = link::index_of("missing0").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(link::mtu(9999).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(link::set_mtu(9999, 1400).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(link::set_mtu(ifindex, 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    });
}

#[test]
fn routes_with_an_mtu_are_found_in_every_table() {
    in_namespace(|| {
        for (name, net) in [("one0", 1), ("two0", 2)] {
            add_link(name);
            run(&format!("ip address add 192.0.2.{net}/32 dev {name}"));
        }
        run("ip route add default dev one0 mtu 1300");
        run("ip route add 10.1.0.0/16 dev one0 mtu lock 1301");
        run("ip route add 10.2.0.0/16 dev one0 table 7 mtu 1302");
        run("ip route add 10.3.0.0/16 dev two0 mtu 1303");
        run("ip route add 10.4.0.0/16 dev one0");
        run("ip route add 10.5.0.0/16 mtu 1305 nexthop dev two0 nexthop dev one0");
        run("ip -6 route add 2001:db8::/32 dev one0 mtu 1306");
        run("ip -6 route add default dev one0 table 7 mtu 1307");
        let mut found = link::route_mtus(link::index_of("one0").unwrap()).unwrap();
        found.sort_unstable();
        let expected = [
            (ip("0.0.0.0"), 0, 1300),
            (ip("10.1.0.0"), 16, 1301),
            (ip("10.2.0.0"), 16, 1302),
            (ip("10.5.0.0"), 16, 1305),
            (ip("::"), 0, 1307),
            (ip("2001:db8::"), 32, 1306),
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn the_egress_follows_the_routes_from_our_own_addresses_only() {
    in_namespace(|| {
        for (name, net) in [("one0", 1), ("two0", 2)] {
            add_link(name);
            run(&format!("ip address add 192.0.2.{net}/32 dev {name}"));
            add_address(&format!("2001:db8::{net}/128"), name);
        }
        let one = link::index_of("one0").unwrap();
        let two = link::index_of("two0").unwrap();
        run("ip route add 198.51.100.0/24 dev one0");
        run("ip -6 route add 2001:db8:1::/48 dev one0");
        run("ip route add 198.51.100.0/24 dev two0 table 7");
        run("ip rule add from 192.0.2.2 table 7");
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        assert_eq!(link::egress(ip("198.51.100.1"), any[0], 0).unwrap(), one);
        assert_eq!(link::egress(ip("198.51.100.1"), ip("192.0.2.1"), 0).unwrap(), one);
        assert_eq!(link::egress(ip("198.51.100.1"), ip("192.0.2.2"), 0).unwrap(), two);
        assert_eq!(link::egress(ip("2001:db8:1::1"), any[1], 0).unwrap(), one);
        assert_eq!(link::egress(ip("2001:db8:1::1"), ip("2001:db8::2"), 0).unwrap(), one);
        for (to, from) in [
            ("198.51.100.1", "192.0.2.9"),
            ("2001:db8:1::1", "2001:db8::9"),
            ("203.0.113.1", "192.0.2.1"),
            ("2001:db8:2::1", "2001:db8::1"),
            ("198.51.100.1", "2001:db8::1"),
        ] {
            assert!(link::egress(ip(to), ip(from), 0).is_err(), "{from} to {to}");
        }
        for (address, ours) in [
            ("192.0.2.1", true),
            ("192.0.2.9", false),
            ("198.51.100.1", false),
            ("127.0.0.1", true),
            ("2001:db8::1", true),
            ("2001:db8::9", false),
            ("::1", true),
        ] {
            assert_eq!(link::is_local_address(ip(address)).unwrap(), ours, "{address}");
        }
        run("ip address delete 192.0.2.1/32 dev one0");
        assert!(!link::is_local_address(ip("192.0.2.1")).unwrap());
        assert!(link::egress(ip("198.51.100.1"), ip("192.0.2.1"), 0).is_err());
    });
}

// -- TCP

#[test]
fn what_was_sent_is_counted() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        let info = TcpInfo::of(&stream).unwrap();
        assert!((1..4).contains(&info.segments), "{info:?}");
        assert!(TcpInfo::of(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    });
}

// -- helpers

// The unspecified addresses stand for their families.
const V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
const BOTH: [IpAddr; 2] = [V4, V6];

/// The gso_type of `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h).
const VIRTIO_TCPV4: u8 = 1;
const VIRTIO_UDP_L4: u8 = 5;

/// The next header value of IPv6's fragment header (RFC 8200, section 4.5).
const IPV6_FRAGMENT: u8 = 44;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn sockets(family: IpAddr) -> (UdpSocket, UdpSocket) {
    let bound = || UdpSocket::bind(SocketAddr::new(family, 0), 0, UdpOffloads::ALL).unwrap();
    (bound(), bound())
}

fn local(socket: &UdpSocket) -> SocketAddr {
    let mut local = socket.local_addr().unwrap();
    local.set_ip(if local.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    local
}

fn plain(to: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { to, from: None, tos: 0, segment: None, contents }
}

fn receive(socket: &UdpSocket) -> (Received, Vec<u8>) {
    wait(&[socket.as_fd()]).unwrap();
    let mut buf = vec![0; 1 << 16];
    let mut meta = [Received::default()];
    assert_eq!(socket.recv(&mut buf, &mut meta).unwrap(), 1);
    buf.truncate(meta[0].len);
    (meta[0], buf)
}

/// The next `count` messages, each of `stride` bytes at most. On a busy machine what was sent together may come in
/// several parts.
fn receive_all(socket: &UdpSocket, count: usize, stride: usize) -> Vec<(Received, Vec<u8>)> {
    let (mut buf, mut meta) = (vec![0; count * stride], vec![Received::default(); count]);
    let (mut received, deadline) = (Vec::new(), deadline());
    while received.len() < count {
        let ready = wait(&[socket.as_fd(), deadline.as_fd()]).unwrap();
        assert!(ready & 2 == 0, "{} of {count} messages within 50 s", received.len());
        let came = socket.recv(&mut buf, &mut meta).unwrap();
        let parts = meta.iter().zip(buf.chunks(stride)).take(came);
        received.extend(parts.map(|(meta, part)| (*meta, part[..meta.len].to_vec())));
    }
    received
}

/// A link that is up and carries nothing anywhere.
fn add_link(name: &str) {
    run(&format!("ip link add {name} type veth peer name peer-{name}"));
    run(&format!("ip link set {name} up"));
    run(&format!("ip link set peer-{name} up"));
}

/// Adds an address and waits until datagrams to it are taken in, which for IPv6 comes later than
/// the command's end: a kernel worker puts its local route in place.
fn add_address(address: &str, name: &str) {
    let mut monitor = Monitor::new().unwrap();
    let (alone, _) = address.split_once('/').expect("a prefix length");
    let (family, nodad) = if ip(alone).is_ipv4() { ("-4", "") } else { ("-6", "nodad") };
    run(&format!("ip address add {address} dev {name} {nodad}"));
    let local = format!("local {alone} ");
    while !run(&format!("ip {family} route show table local")).contains(&local) {
        assert_event(&mut monitor, &LinkEvent::Routing { ifindex: Some(link::index_of(name).unwrap()) });
    }
}

/// A device that is up, on which nothing of the kernel's own (IPv6's router solicitations) comes.
fn device(name: &str) -> TunDevice {
    device_of(1, name)
}

fn device_of(queues: usize, name: &str) -> TunDevice {
    let tun = TunDevice::create(name, queues, TunOffloads::ALL).unwrap();
    sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1");
    run(&format!("ip link set {name} up"));
    tun
}

fn read_packet(tun: &TunDevice) -> Vec<u8> {
    read_outer(tun, V4)
}

/// The next packet of that family which is not the kernel's own multicast.
fn read_outer(tun: &TunDevice, family: IpAddr) -> Vec<u8> {
    let mut buf = vec![0; 1 << 17];
    loop {
        wait(&[tun.queue_fd(0)]).unwrap();
        let len = tun.read(0, &mut buf).unwrap();
        let unicast = if family == V4 { (4, buf[HEADER + 16] < 224) } else { (6, buf[HEADER + 24] != 0xff) };
        if unicast == (buf[HEADER] >> 4, true) {
            buf.truncate(len);
            return buf;
        }
    }
}

fn drain(tun: &TunDevice) -> usize {
    std::iter::from_fn(|| tun.read(0, &mut [0; 2000]).ok()).count()
}

/// Swaps the addresses of an IPv4 packet behind its virtio header.
fn swap_addresses(packet: &mut [u8]) {
    let (source, destination) = packet[HEADER + 12..HEADER + 20].split_at_mut(4);
    source.swap_with_slice(destination);
}

/// A timer that fires when what is waited for no longer comes.
fn deadline() -> Timer {
    let deadline = Timer::new().unwrap();
    deadline.set(Some(boottime() + 50_000_000_000)).unwrap();
    deadline
}

/// The monitor's events up to and including the expected one.
fn events_until(monitor: &mut Monitor, wanted: impl Fn(&LinkEvent) -> bool) -> Vec<LinkEvent> {
    let deadline = deadline();
    let mut changes = Vec::new();
    loop {
        while let Some(change) = monitor.next() {
            let found = wanted(&change);
            changes.push(change);
            if found {
                return changes;
            }
        }
        let ready = wait(&[monitor.as_fd(), deadline.as_fd()]).unwrap();
        assert!(ready & 2 == 0, "no such event within 50 s; last of {}: {:?}", changes.len(), changes.last());
    }
}

fn assert_event(monitor: &mut Monitor, wanted: &LinkEvent) {
    events_until(monitor, |change| change == wanted);
}

/// Prints a fact about this kernel that a reader of the tests may want to know.
fn report(fact: &str) {
    eprintln!("fact: {fact}");
}
