//! Replays the corpora of the fuzz targets (docs/testing.md), so that what fuzzing found once is checked on every run.

#[path = "../../../fuzz/src/dns_answer.rs"]
mod dns_answer;
#[path = "../../../fuzz/src/http_head.rs"]
mod http_head;
#[path = "../../../fuzz/src/proxy_file.rs"]
mod proxy_file;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

#[test]
fn dns_answer_holds() {
    replay::corpus("dns_answer", dns_answer::check);
}

#[test]
fn http_head_holds() {
    replay::corpus("http_head", http_head::check);
}

#[test]
fn proxy_file_holds() {
    replay::corpus("proxy_file", proxy_file::check);
}

#[test]
fn socks_holds() {
    replay::corpus("socks", socks::check);
}
