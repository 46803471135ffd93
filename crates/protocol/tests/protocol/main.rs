//! The protocol from outside: devices on a simulated network, in virtual time.
//!
//! Nothing here sleeps, reads a clock or draws real randomness, so every run is the same.

mod crossing;
#[cfg(feature = "fleet")]
mod fleet;
mod handshake;
mod hostile;
mod load;
mod random_schedules;
mod reconfigure;
mod simulation;
mod timers;

use std::path::PathBuf;

/// `no_std` keeps clocks, sockets and threads out of the crate; this test keeps `no_std`.
#[test]
fn the_crate_cannot_name_a_clock_or_a_socket() {
    let mut seen = 0;
    let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("the sources can be listed").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source is text");
            let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            assert!(!shipped.contains("extern crate std"), "{} brings std back", path.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "all files were found");
    let root = include_str!("../../src/lib.rs");
    assert!(root.contains("\n#![no_std]\n") && root.contains("\n#![forbid(unsafe_code)]\n"));
}
