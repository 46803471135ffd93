//! Client and server together, over a socket.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::uapi::client::{ClientError, DaemonClient};
use linerate_control::uapi::errno;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{Activity, DeviceState, PeerState, ReplyError};
use linerate_control::uapi::server::{Handler, Server, StopReason};
use linerate_control::uapi::socket::Listener;

#[test]
fn a_client_gets_what_it_set_over_one_connection() {
    let directory = std::env::temp_dir().join(format!("linerate-conversation-{}", std::process::id()));
    let name = "wg0".parse().unwrap();
    let mut server = Server::new(Listener::open(&directory, &name).unwrap());
    let (stop, stopped) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || server.run(&mut Device::default(), &[stopped.as_fd()]).unwrap());

    let mut client = DaemonClient::connect(&directory, &name).unwrap();
    assert!(client.get().unwrap() == DeviceState::default());
    let mut update = DeviceUpdate { listen_port: Some(51820), ..DeviceUpdate::default() };
    update.private_key = Some(SecretKey::from_bytes(&[1; 32]));
    update.peers = (0..1000u16).map(peer).collect();
    client.set(&update).unwrap();
    let state = client.get().unwrap();
    assert!(state.private_key == update.private_key);
    assert_eq!((state.listen_port, state.peers.len()), (51820, 1000));
    assert_eq!(client.stats().unwrap(), [("sets".to_owned(), 1)]);
    let activity = client.activity(41).unwrap();
    assert_eq!((activity.now, activity.configured, activity.peers.len()), (42, 1, client.get().unwrap().peers.len()));

    let refused = client.set_text(b"set=1\nfwmark=x\n\n").unwrap_err();
    assert!(matches!(refused, ClientError::Reply(ReplyError::Refused(-22))), "{refused}");
    let busy = DeviceUpdate { listen_port: Some(1), ..DeviceUpdate::default() };
    let refused = client.set(&busy).unwrap_err();
    assert!(matches!(refused, ClientError::Reply(ReplyError::Refused(-98))), "{refused}");
    let unknown = client.set_text(b"frobnicate=1\n\n").unwrap_err();
    // Closing with unread input is a reset.
    assert!(matches!(unknown, ClientError::Reply(ReplyError::Truncated) | ClientError::Io(_)), "{unknown}");

    drop(stop);
    assert_eq!(thread.join().unwrap(), StopReason::Requested(0));
    assert!(DaemonClient::connect(&directory, &name).is_err());
    fs::remove_dir_all(&directory).unwrap();
}

fn peer(number: u16) -> PeerUpdate {
    let mut key = [0; 32];
    key[..2].copy_from_slice(&number.to_be_bytes());
    PeerUpdate::new(PublicKey(key))
}

#[derive(Default)]
struct Device {
    private_key: Option<SecretKey>,
    listen_port: u16,
    peers: Vec<PublicKey>,
    sets: u64,
}

impl Handler for Device {
    fn get(&mut self) -> Result<DeviceState, i32> {
        Ok(DeviceState {
            private_key: self.private_key.clone(),
            listen_port: self.listen_port,
            fwmark: 0,
            peers: self.peers.iter().copied().map(PeerState::new).collect(),
        })
    }

    fn set(&mut self, update: DeviceUpdate) -> Result<(), i32> {
        if update.listen_port == Some(1) {
            return Err(errno::EADDRINUSE);
        }
        self.sets += 1;
        self.private_key = update.private_key;
        self.listen_port = update.listen_port.unwrap_or(0);
        self.peers = update.peers.iter().map(|peer| peer.public_key).collect();
        Ok(())
    }

    fn stats(&mut self) -> Vec<(String, u64)> {
        vec![("sets".into(), self.sets)]
    }

    fn activity(&mut self, since: u64) -> Activity {
        let peers = self.peers.iter().copied().map(PeerState::new).collect();
        Activity { now: since + 1, configured: self.sets, peers }
    }
}
