#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| linerate_fuzz::gateway_messages::check(input));
