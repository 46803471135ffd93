//! What the proxy gives up once everything is open: files, programs, capabilities, and all system calls that it does not
//! make (`linerate-privileges`). From then on it has its sockets.

use linerate_cli::eprint_line;
use linerate_privileges::filter::Filter;
use linerate_privileges::{ProxyConfinement, confine_proxy, confine_proxy_thread};

use crate::config::{Service, Settings};

/// What happens on a system call that the proxy does not need, as the daemon's.
const FILTER: &str = "LINERATE_SECCOMP";

/// The confinement of a proxy.
#[derive(Clone, Copy)]
pub struct Sandbox(ProxyConfinement);

impl Sandbox {
    /// That of a proxy with these settings.
    ///
    /// # Errors
    /// The environment asks for something that there is not.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let filter = std::env::var(FILTER).ok().filter(|word| !word.is_empty());
        let filter = filter.map_or(Ok(Filter::default()), |word| word.parse())?;
        let goes_out = settings.services.iter().any(|service| matches!(service, Service::TcpIn { .. }));
        Ok(Self(ProxyConfinement { filter, connects: goes_out }))
    }

    /// The same where the tunnel has the kernel's stack, or one in this process.
    pub fn beside_a_stack(self, is_of_kernel: bool) -> Self {
        Self(ProxyConfinement { connects: self.0.connects || is_of_kernel, ..self.0 })
    }

    /// Confines a thread that runs before [`Sandbox::confine`]; others are started after it and are confined, too.
    pub fn confine_thread(&self) {
        // What this system lacks, the other call says.
        let _ = confine_proxy_thread(&self.0);
    }

    /// Confines this process: after all is open that it serves, before it serves anybody.
    pub fn confine(&self) {
        if matches!(self.0.filter, Filter::Log | Filter::Off) {
            eprint_line(&format!("linerate-proxy: {FILTER}: no system call is refused; for debugging only"));
        }
        let in_force = confine_proxy(&self.0);
        if !in_force.missing.is_empty() {
            let missing = in_force.missing.join("; ");
            eprint_line(&format!("linerate-proxy: this system does not offer all protection: {missing}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_connects_for_forwards_to_this_host_and_for_its_own_stack() {
        let target = "localhost:80".parse().unwrap();
        let forward = Settings { services: vec![Service::TcpIn { port: 80, target }], ..Settings::default() };
        let of = |settings: &Settings, is_of_kernel| Sandbox::new(settings).unwrap().beside_a_stack(is_of_kernel).0;
        let (plain, plain_kernel) = (of(&Settings::default(), false), of(&Settings::default(), true));
        assert!(!plain.connects && plain_kernel.connects && of(&forward, false).connects);
    }
}
