//! A tunnel inside of another program, such as an Android app: its system hands over a TUN descriptor, and the program
//! looks after the interface and the network. docs/embedding.md is for those who write that program.
//!
//! [`tunnel`] is one tunnel, [`tunnels`] finds it by its number, [`log`] brings its log to the program. `abi` is the
//! border: the C ABI of `include/linerate.h`, the JNI names of wireguard-android, and our own. Nothing here handles
//! signals, gives up privileges or asks the kernel about the network: the process is the program's.

#![deny(unsafe_code)]
#![warn(missing_docs)]

#[allow(unsafe_code)]
mod abi;
mod log;
mod tunnel;
mod tunnels;
