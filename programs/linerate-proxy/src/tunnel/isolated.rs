//! The kernel's TCP/IP: an interface in a network namespace of this process's own.

use linerate_cli::eprint_line;
use linerate_host::spec::HostSpec;
use linerate_isolation::UserNamespace;
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::tun::{TunDevice, TunOffloads};
use linerate_tunnel::isolated::set_up;

/// An interface that is up, and where it is.
pub(super) type Opened = (TunDevice, NetworkNamespace);

/// Makes the interface of `spec`, with addresses and routes, in a network of its own.
///
/// # Errors
/// A sentence about what the system does not allow.
pub(super) fn open(spec: &HostSpec, queues: usize) -> Result<Opened, String> {
    let user = UserNamespace::enter().map_err(|refusal| refusal.to_string())?;
    let network = user.new_network().map_err(|refusal| refusal.to_string())?;
    let tun = TunDevice::create_in(&network, &spec.interface, queues, TunOffloads::ALL);
    let tun = tun.map_err(|error| error.to_string())?;
    // The engine asks it.
    if tun.network().is_err() {
        return Err("this kernel does not tell in which network an interface is; Linux 5.2 and later do".to_owned());
    }
    let warnings = set_up(spec, &network).map_err(|error| error.to_string())?;
    warnings.iter().for_each(|warning| eprint_line(&format!("linerate-proxy: {warning}")));
    Ok((tun, network))
}
