//! What a program does that has a stack: it tells it of the time, and waits for what is asked of it.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use linerate_netio::clock::Timer;
use linerate_netio::wait::{Event, wait};
use linerate_stack::Stack;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Ends a driver, or makes it look at the time again.
pub struct Driver {
    ending: AtomicBool,
    look: Event,
}

impl Wake for Driver {
    fn wake(self: Arc<Self>) {
        self.look.signal();
    }
}

impl Driver {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { ending: AtomicBool::new(false), look: Event::new().unwrap() })
    }

    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.look.signal();
    }

    /// Tells the stack of the time, and does `also` for the descriptors that are ready, by a bit for each, until it is
    /// told to end.
    pub fn drive(self: &Arc<Self>, stack: &Stack, fds: &[BorrowedFd<'_>], mut also: impl FnMut(u64)) {
        let (timer, waker) = (Timer::new().unwrap(), Waker::from(self.clone()));
        let all = [&[timer.as_fd(), self.look.as_fd()][..], fds].concat();
        while !self.ending.load(Ordering::SeqCst) {
            let next = stack.poll_deadline(&mut Context::from_waker(&waker));
            timer.set(next.map(|next| next.as_nanos() as u64)).unwrap();
            let ready = wait(&all).unwrap();
            self.look.drain();
            if ready & 1 != 0 {
                timer.drain();
                stack.expire();
            }
            also(ready >> 2);
        }
    }
}
