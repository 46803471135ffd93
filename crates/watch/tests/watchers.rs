//! A daemon that does not respond holds up none of the others.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::response::{Activity, DeviceState};
use linerate_tunnel::status::Whereabouts;
use linerate_watch::events::{self, What};
use linerate_watch::host::{Connection, Found, Host, Now, Stamp};
use linerate_watch::{Ask, Daemon, Time, View, Watchers};

/// Two tunnels, of which `wg1` does not respond while it is frozen.
#[derive(Clone, Default)]
struct TwoTunnels(Arc<(Mutex<bool>, Condvar)>);

impl TwoTunnels {
    fn freeze(&self, is_frozen: bool) {
        *self.0.0.lock().unwrap() = is_frozen;
        self.0.1.notify_all();
    }
}

impl Host for TwoTunnels {
    type Connection = Client;

    fn now(&mut self) -> Now {
        Now { wall: Time(Duration::from_secs(1_700_000_000)), monotonic: Duration::ZERO }
    }

    fn tunnels(&mut self) -> Result<Vec<Found>, ClientError> {
        Ok(["wg0", "wg1"].map(|name| Found { interface: name.into(), recorded: true }).into())
    }

    fn connect(&mut self, tunnel: &str) -> Result<Client, ClientError> {
        Ok(Client(self.clone(), tunnel == "wg1"))
    }

    fn file(&mut self, _: &str) -> PathBuf {
        PathBuf::new()
    }

    fn place(&mut self, tunnel: &str, _: &mut Whereabouts) -> Option<String> {
        (tunnel == "wg1").then(|| "runs, and its interface is called wg9".to_owned())
    }

    fn stamp(&mut self, _: &Path) -> Option<Stamp> {
        None
    }

    fn names(&mut self, _: &str, _: &Path) -> HashMap<PublicKey, String> {
        HashMap::new()
    }

    fn process(&mut self, _: u32) -> Option<Daemon> {
        None
    }
}

struct Client(TwoTunnels, bool);

impl Connection for Client {
    fn is_kernel(&self) -> bool {
        true
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn get(&mut self) -> Result<DeviceState, ClientError> {
        let (is_frozen, thawed) = &*self.0.0;
        drop(thawed.wait_while(is_frozen.lock().unwrap(), |is_frozen| *is_frozen && self.1).unwrap());
        Ok(DeviceState::default())
    }

    fn activity(&mut self, _: u64) -> Result<Activity, ClientError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }
}

/// Polls until a view is as wanted, however long that takes.
fn until(watchers: &mut Watchers<TwoTunnels>, is_wanted: impl Fn(&View) -> bool) -> View {
    loop {
        let view = watchers.poll(Ask::default(), Some(Duration::from_millis(1))).unwrap();
        assert_eq!(view.tunnels.len(), 2);
        if is_wanted(&view) {
            return view;
        }
    }
}

fn runs(view: &View, tunnel: &str) -> bool {
    view.tunnel(tunnel).unwrap().is_running()
}

#[test]
fn a_tunnel_that_does_not_answer_is_shown_as_it_was_and_the_others_go_on() {
    let host = TwoTunnels::default();
    host.freeze(true);
    let mut watchers = Watchers::of(host.clone(), None);
    let view = until(&mut watchers, |view| runs(view, "wg0"));
    assert_eq!(view.tunnel("wg1").unwrap().problem.as_deref(), Some("its daemon has not answered yet"));
    host.freeze(false);
    until(&mut watchers, |view| runs(view, "wg1"));
    host.freeze(true);
    let view = until(&mut watchers, |view| runs(view, "wg0"));
    assert_eq!(view.tunnel("wg1").unwrap().problem, None, "it is shown as it was");
    host.freeze(false);
}

#[test]
fn a_tunnel_that_answers_late_is_told_when_it_does() {
    let host = TwoTunnels::default();
    host.freeze(true);
    let mut watchers = Watchers::of(host.clone(), None);
    let told = |before: &View, after: &View| -> Vec<_> {
        events::between(before, after).into_iter().map(|event| (event.tunnel, event.what)).collect()
    };
    let late = until(&mut watchers, |view| runs(view, "wg0"));
    let none = View { tunnels: Vec::new(), ..late.clone() };
    assert_eq!(told(&none, &late), [("wg0".to_owned(), What::Up)]);
    assert_eq!(told(&late, &none), [("wg0".to_owned(), What::Down)]);
    host.freeze(false);
    let answered = until(&mut watchers, |view| runs(view, "wg1"));
    assert_eq!(told(&late, &answered), [("wg1".to_owned(), What::Up)]);
    let mut unreadable = answered.clone();
    unreadable.tunnels[1].implementation = linerate_tunnel::status::RunBy::Unknown;
    unreadable.tunnels[1].problem = Some("permission denied".into());
    let reason = "permission denied".to_owned();
    assert_eq!(told(&late, &unreadable), [("wg1".to_owned(), What::Unreadable { reason })]);
}

#[test]
fn without_a_limit_all_are_waited_for() {
    let view = Watchers::of(TwoTunnels::default(), None).poll(Ask::default(), None).unwrap();
    assert!(runs(&view, "wg0") && runs(&view, "wg1"));
    let view = Watchers::of(TwoTunnels::default(), Some("wg1")).poll(Ask::default(), None).unwrap();
    assert_eq!(view.tunnels.len(), 1);
}
