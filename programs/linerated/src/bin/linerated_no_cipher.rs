//! The daemon that can do without a cipher, for measuring: beside the one that cannot, so that
//! neither build takes the other's place.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerated::main()
}
