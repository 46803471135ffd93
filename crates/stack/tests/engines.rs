//! Two tunnels without a device of the kernel and without privileges: engines with their threads and sockets as they
//! are, and a stack at each end.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use linerate_engine::config::{DeviceChange, PeerChange};
use linerate_engine::device::Device;
use linerate_engine::{Engine, Options};
use linerate_protocol::{Prefix, PrivateKey, PublicKey};
use linerate_sockets::{Sockets, Stream};
use linerate_stack::{Settings, Stack, System};

mod driven;

use driven::{Driver, block_on};

/// The addresses inside of the two tunnels.
const INSIDE: [[&str; 2]; 2] = [["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]];

/// More than the windows, so that acknowledgements must have travelled.
const LEN: usize = 20 << 20;

fn key(host: usize) -> PrivateKey {
    PrivateKey::new(&[host as u8 + 7; 32]).unwrap()
}

fn engine(stack: &Stack) -> Engine {
    let options = Options { mtu: Some(1420), ..Options::default() };
    Engine::prepare(Device::InProcess(Box::new(stack.tun())), &options).unwrap().start().unwrap()
}

/// Opens the sockets; the port.
fn listen(engine: &Engine, host: usize) -> u16 {
    let change = DeviceChange { private_key: Some(Some(key(host))), ..DeviceChange::default() };
    engine.handle().set(change).unwrap();
    engine.handle().get().unwrap().listen_port
}

fn add_peer(engine: &Engine, host: usize, port: u16) {
    let public_key: PublicKey = key(host).public_key();
    let prefix = |address: &str| {
        let address = address.parse::<IpAddr>().unwrap();
        (true, Prefix::new(address, if address.is_ipv4() { 32 } else { 128 }).unwrap())
    };
    let peer = PeerChange {
        endpoint: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
        allowed_ips: INSIDE[host].map(prefix).into(),
        ..PeerChange::new(public_key)
    };
    engine.handle().set(DeviceChange { peers: vec![peer], ..DeviceChange::default() }).unwrap();
}

fn write(stream: &mut dyn Stream, mut from: &[u8]) {
    while !from.is_empty() {
        let len = block_on(poll_fn(|context| stream.poll_write(context, from))).unwrap();
        from = &from[len..];
    }
    block_on(poll_fn(|context| stream.poll_finish(context))).unwrap();
}

/// The number of bytes up to the end, all of which must be those that are expected there.
fn read(stream: &mut dyn Stream, expected: &[u8]) -> usize {
    let (mut count, mut buf) = (0, vec![0; 256 << 10]);
    loop {
        match block_on(poll_fn(|context| stream.poll_read(context, &mut buf))).unwrap() {
            0 => return count,
            len => {
                assert!(expected[count..][..len] == buf[..len], "behind {count} bytes");
                count += len;
            }
        }
    }
}

#[test]
fn connections_run_through_a_tunnel_between_two_engines_in_one_process() {
    let stacks = INSIDE.map(|addresses| {
        let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap()).into();
        let settings = Settings { shards: 2, ..Settings::new(addresses, 1420) };
        Stack::new(&settings, Box::new(System)).unwrap()
    });
    let engines = stacks.each_ref().map(engine);
    let ports = [listen(&engines[0], 0), listen(&engines[1], 1)];
    add_peer(&engines[0], 1, ports[1]);
    add_peer(&engines[1], 0, ports[0]);
    let drivers: [Arc<Driver>; 2] = [Driver::new(), Driver::new()];
    let data: Vec<u8> = (0..LEN).map(|at| (at ^ at >> 9) as u8).collect();
    thread::scope(|scope| {
        for (driver, stack) in drivers.iter().zip(&stacks) {
            scope.spawn(move || driver.drive(stack, &[], |_| {}));
        }
        for address in INSIDE[1] {
            let mut listener = stacks[1].listen(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
            let mut there = block_on(stacks[0].connect(listener.local())).unwrap();
            let mut here = block_on(poll_fn(|context| listener.poll_accept(context))).unwrap();
            block_on(stacks[0].ping(listener.local().ip())).unwrap();
            // One way, and back again.
            let data = &data;
            let other = scope.spawn(move || {
                write(&mut *there, data);
                assert_eq!(read(&mut *there, data), LEN);
            });
            assert_eq!(read(&mut *here, data), LEN);
            write(&mut *here, data);
            other.join().unwrap();
        }
        drivers.iter().for_each(|driver| driver.end());
    });
    engines.into_iter().for_each(Engine::stop);
}
