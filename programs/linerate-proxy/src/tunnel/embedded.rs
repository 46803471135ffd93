//! The TCP/IP stack in this process, and the clock that it runs by.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use linerate_host::spec::HostSpec;
use linerate_stack::{Environment, Settings, Stack, System};
use linerate_tunnel::isolated;
use tokio::time::{Instant, sleep};

/// The MTU where nothing is known of the host's network.
const MTU: u32 = 1420;

/// What IPv6 asks of every link, and the stack too.
const LEAST_MTU: u32 = 1280;

/// The stack's buffers that are larger than what every connection may touch have at least this size.
const LEAST_BUFFER: i32 = 64 << 10;

/// Makes a stack with the addresses of `spec`; also returns the MTU.
///
/// # Errors
/// A sentence about what is wrong with `spec`, or what the system has not.
pub(super) fn open(spec: &HostSpec) -> Result<(Stack, u32), String> {
    let mtu = isolated::mtu(spec).unwrap_or(MTU);
    let fits = usize::try_from(mtu).ok().filter(|mtu| (LEAST_MTU as usize..=65_535).contains(mtu));
    let fits = fits.ok_or_else(|| format!("MTU = {mtu}: the stack in this process needs {LEAST_MTU} to 65535"))?;
    // Its buffers are large and touched in part: with huge pages each would be resident as a whole.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    linerate_netio::process::map_allocations_from(LEAST_BUFFER);
    let settings = Settings { addresses: spec.addresses.clone(), ..Settings::new(Vec::new(), fits) };
    let stack = Stack::new(&settings, Box::new(System));
    Ok((stack.map_err(|error| format!("cannot make the stack: {error}"))?, mtu))
}

/// Does for ever what is due.
pub(super) async fn drive(stack: Stack) {
    let mut timer = pin!(sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            // Without a deadline, whoever sets one wakes us.
            let Some(at) = stack.poll_deadline(context) else { return Poll::Pending };
            let left = at.saturating_sub(System.now());
            if left.is_zero() {
                // Not by the timer: one that is set anew whenever this is polled would never be over.
                stack.expire();
            } else {
                timer.as_mut().reset(Instant::now() + left);
                ready!(timer.as_mut().poll(context));
            }
        }
    })
    .await
}
