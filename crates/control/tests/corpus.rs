//! Replays the corpora of the fuzz targets (docs/testing.md), so that every run checks what fuzzing found.

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/document.rs"]
mod document;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/tunnel_file.rs"]
mod tunnel_file;
#[path = "../../../fuzz/src/uapi_reply.rs"]
mod uapi_reply;
#[path = "../../../fuzz/src/uapi_request.rs"]
mod uapi_request;
#[path = "../../../fuzz/src/usage.rs"]
mod usage;
#[path = "../../../fuzz/src/wg_config.rs"]
mod wg_config;

#[test]
fn document_holds() {
    replay::corpus("document", document::check);
}

#[test]
fn tunnel_file_holds() {
    replay::corpus("tunnel_file", tunnel_file::check);
}

#[test]
fn uapi_reply_holds() {
    replay::corpus("uapi_reply", uapi_reply::check);
}

#[test]
fn uapi_request_holds() {
    replay::corpus("uapi_request", uapi_request::check);
}

#[test]
fn usage_holds() {
    replay::corpus("usage", usage::check);
}

#[test]
fn wg_config_holds() {
    replay::corpus("wg_config", wg_config::check);
}
