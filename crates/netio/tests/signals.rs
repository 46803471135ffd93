//! SIGINT and SIGTERM come from their descriptor.
//!
//! A program of its own, because it must have one thread only: a signal to the process would end it
//! through any other thread, which the test harness has.

use std::os::fd::AsFd;

use linerate_netio::process::{Signal, Signals};
use linerate_netio::wait::wait;
use rustix::process::{getpid, kill_process};

fn main() {
    let signals = Signals::new().unwrap();
    assert_eq!(signals.take(), None);
    for (signal, taken) in
        [(rustix::process::Signal::TERM, Signal::Terminate), (rustix::process::Signal::INT, Signal::Interrupt)]
    {
        kill_process(getpid(), signal).unwrap();
        wait(&[signals.as_fd()]).unwrap();
        assert_eq!(signals.take(), Some(taken));
    }
    assert_eq!(signals.take(), None);
}
