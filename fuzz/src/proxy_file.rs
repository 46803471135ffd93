//! Any bytes as a file of the proxy: complaints have positions within it, the tunnel's part has the same lines and none
//! of the proxy's, and no value of the environment adds a line.
//!
//! An input is the value of every environment variable, a zero byte, and the file.

use linerate_control::document::Document;
use linerate_control::tunnel_file::{NoNames, TunnelFile};
use linerate_proxy::config;

pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let value = String::from_utf8_lossy(&input[..end]).into_owned();
    let bytes = input.get(end + 1..).unwrap_or_default();
    let (file, diagnostics) = config::read(bytes, &|_| Some(value.clone()));

    let lines = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').count();
    assert_eq!(lines(&file.tunnel), lines(bytes));
    assert!(diagnostics.iter().all(|said| (1..=lines(bytes)).contains(&said.line) && said.column > 0));
    assert!(diagnostics.is_sorted_by_key(|said| (said.line, said.column)));

    // What is left for the tunnel's reader asks for nothing of the proxy.
    let (again, _) = config::read(&file.tunnel, &|_| None);
    assert!(again.settings.services.is_empty() && again.settings.info.is_none());
    let (_, diagnostics) = TunnelFile::read(&Document::parse(&file.tunnel), &"wg0".parse().expect("a name"), &NoNames);
    assert!(diagnostics.iter().all(|said| (1..=lines(bytes)).contains(&said.line)));
}
