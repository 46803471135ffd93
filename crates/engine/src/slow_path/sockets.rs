//! The sockets: opened while the link is up, moved to another port, given another firewall mark.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_netio::udp::BoundSockets;

use super::SlowPath;
use super::effects::BackendRng;
use crate::backend::Backend;
use crate::config::ConfigError;

impl<B: Backend> SlowPath<B> {
    /// The link is up: opens the sockets and starts handshakes for what is staged.
    ///
    /// # Errors
    /// When the port is in use; the device stays down.
    pub fn up(&mut self) -> Result<(), ConfigError> {
        if self.device.is_up() {
            return Ok(());
        }
        let mark = self.shared.mark.load(Ordering::Relaxed);
        let sockets = match self.bind(self.listen_port, mark) {
            // The system chose the port, and another program took it while the link was down.
            Err(_) if self.any_port => self.bind(0, mark),
            bound => bound,
        }?;
        self.replace_sockets(Some(sockets));
        let now = self.shared.backend.now();
        self.device.up(now, &mut BackendRng(&self.shared.backend), &mut self.effects);
        Ok(())
    }

    /// Whether a port can be bound, with `mark` or the current one. Releases it again.
    ///
    /// # Errors
    /// When it cannot.
    pub fn try_port(&self, port: u16, mark: Option<u32>) -> Result<(), ConfigError> {
        self.bind(port, mark.unwrap_or_else(|| self.shared.mark.load(Ordering::Relaxed))).map(drop)
    }

    /// The link is down: closes the sockets, drops sessions and staged packets.
    pub fn down(&mut self) {
        if self.device.is_up() {
            self.device.down(&mut self.effects);
            self.replace_sockets(None);
        }
    }

    pub(super) fn set_port_and_mark(&mut self, port: Option<u16>, mark: Option<u32>) -> Result<(), ConfigError> {
        let wanted_mark = mark.unwrap_or_else(|| self.shared.mark.load(Ordering::Relaxed));
        // Released before they are replaced: `replace_sockets` waits until no thread holds the old ones.
        let current = self.shared.sockets.load().as_ref().map(|sockets| sockets.port);
        let moves_to = port.filter(|port| current.is_some_and(|current| *port == 0 || *port != current));
        if let Some(port) = moves_to {
            let sockets = self.bind(port, wanted_mark)?;
            self.replace_sockets(Some(sockets));
        } else if let Some(current) = self.shared.sockets.load().as_deref().filter(|_| mark.is_some()) {
            self.shared.backend.set_mark(current, wanted_mark).map_err(ConfigError::Mark)?;
        }
        self.shared.mark.store(wanted_mark, Ordering::Relaxed);
        if let Some(port) = port {
            self.any_port = port == 0;
            // Of open sockets it is known.
            self.listen_port = self.shared.sockets.load().as_ref().map_or(port, |sockets| sockets.port);
        }
        if port.is_some() || mark.is_some() {
            // As in the kernel module (socket.c, wg_socket_reinit; netlink.c, set_device).
            self.forget_source_addrs();
        }
        Ok(())
    }

    fn bind(&self, port: u16, mark: u32) -> Result<BoundSockets<B::Socket>, ConfigError> {
        self.shared.backend.bind(port, mark).map_err(|error| ConfigError::Port { port, error })
    }

    /// Replaces the sockets and waits, briefly, until no worker uses the old ones: then their port is free. The port
    /// is kept for the next time that the link comes up (kernel: socket.c, wg_socket_reinit).
    fn replace_sockets(&mut self, sockets: Option<BoundSockets<B::Socket>>) {
        self.listen_port = sockets.as_ref().map_or(self.listen_port, |sockets| sockets.port);
        let old = self.shared.sockets.swap(sockets.map(Arc::new));
        self.shared.sockets_changed.signal();
        let Some(old) = old.map(|old| Arc::downgrade(&old)) else { return };
        for _ in 0..100 {
            if old.strong_count() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn forget_source_addrs(&self) {
        let routes = self.shared.tables.routes();
        for peer in self.device.peers().filter_map(|id| routes.peer(id)) {
            if let Some(endpoint) = peer.endpoint().as_ref() {
                endpoint.forget_source_addr();
            }
        }
    }
}
