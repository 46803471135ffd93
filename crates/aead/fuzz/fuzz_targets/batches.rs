//! Coverage-guided fuzzing of `one_batch`. Its corpus is committed; `cargo test` replays it
//! (`tests/corpus.rs`). Without cargo-fuzz, in `crates/aead/fuzz`:
//!
//! ```text
//! RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
//!   -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table" \
//!   cargo run --release --target x86_64-unknown-linux-gnu -- corpus/batches
//! ```

#![no_main]

#[path = "../one_batch.rs"]
mod one_batch;

libfuzzer_sys::fuzz_target!(|input: &[u8]| one_batch::check(input));
