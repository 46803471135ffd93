//! Files of the proxy: wireproxy's, and tunnel files with the same sections behind `#!`.

use std::time::Duration;

use linerate_control::document::Document;
use linerate_control::tunnel_file::{Endpoint, NoNames, Severity, TunnelFile};
use linerate_proxy::config::{self, Names, ProxyFile, Resolve, Service, Stack};

const KEY: &str = "uCTIK+56CPyCvwJxmU5dBfuyJvPuSXAq1FzHdnIxe1Q=";

fn environment(name: &str) -> Option<String> {
    (name == "MY_WIREGUARD_PRIVATE_KEY").then(|| KEY.to_owned())
}

/// A file without complaints.
fn read(text: &str) -> ProxyFile {
    let (file, diagnostics) = config::read(text.as_bytes(), &environment);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|said| format!("{said}\n")).collect::<String>());
    file
}

/// What a file is complained about.
fn complaints(text: &str) -> Vec<String> {
    let (_, diagnostics) = config::read(text.as_bytes(), &environment);
    diagnostics.iter().map(ToString::to_string).collect()
}

fn tunnel(file: &ProxyFile) -> TunnelFile {
    let (tunnel, diagnostics) = TunnelFile::read(&Document::parse(&file.tunnel), &"wg0".parse().unwrap(), &NoNames);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    tunnel
}

#[test]
fn wireproxys_own_example_is_read_as_it_is() {
    let text = include_str!("data/wireproxy.conf");
    let file = read(text);
    assert_eq!(file.tunnel.split(|&byte| byte == b'\n').count(), text.split('\n').count());

    let tunnel = tunnel(&file);
    assert_eq!(tunnel.addresses[0].to_string(), "10.200.200.2/32");
    assert_eq!(&*tunnel.private_key.unwrap().to_base64(), KEY);
    assert_eq!(tunnel.dns_servers[0].to_string(), "10.200.200.1");
    assert!(matches!(&tunnel.peers[0].endpoint, Some(Endpoint::Name { host, .. }) if host == "my.ddns.example.com"));

    let settings = file.settings;
    assert_eq!(settings.check_alive.len(), 2);
    assert_eq!(settings.check_alive_interval, Some(Duration::from_secs(3)));
    assert_eq!((settings.resolve, settings.stack, settings.names), (Resolve::Ipv4, Stack::Auto, Names::Tunnel));
    let [client, server, stdio, socks, http, sni, udp] = &settings.services[..] else { panic!() };
    let Service::TcpOut { local, target } = client else { panic!() };
    assert_eq!(
        (local.to_string(), target.to_string()),
        ("127.0.0.1:25565".into(), "play.cubecraft.example:25565".into())
    );
    assert!(matches!(server, Service::TcpIn { port: 3422, target } if target.to_string() == "localhost:25545"));
    assert!(matches!(stdio, Service::Stdio { target } if target.to_string() == "ssh.myserver.example:22"));
    assert!(matches!(socks, Service::Socks { local, login: None } if local.to_string() == "127.0.0.1:25344"));
    let Service::Http { local, login: Some(login), tls: Some((certificate, _)) } = http else { panic!() };
    assert_eq!((local.to_string(), certificate.to_str()), ("127.0.0.1:25345".into(), Some("/etc/a.pem")));
    assert!(login.admits(b"peter", b"a;b") && !login.admits(b"peter", b"a") && !login.admits(b"", b"a;b"));
    assert!(matches!(sni, Service::Sni { local } if local.to_string() == "*:443"));
    let Service::UdpOut { target, timeout, .. } = udp else { panic!() };
    assert_eq!((target.to_string(), *timeout), ("1.1.1.1:53".into(), Some(Duration::from_secs(30))));
}

#[test]
fn a_tunnel_file_has_the_same_sections_behind_a_mark() {
    let text = format!(
        "#! [Socks5]\n#! BindAddress = 127.0.0.1:1080\n\n[Interface]\nPrivateKey = {KEY}\nAddress = 10.0.0.2/24\n\
         PostUp = echo a; echo b\n#! ExcludeLAN = true\n\n[Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.0/24\n\n\
         #! [Proxy]\n#! Stack = embedded\n#! Names = system\n#! Info = localhost:9080\n# a comment\n\
         #! [UDPServerTunnel]\n#! ListenPort = 53\n#! Target = 127.0.0.1:5353\n#! InactivityTimeout = 0\n"
    );
    let (file, diagnostics) = config::read(text.as_bytes(), &environment);
    let said: Vec<_> = diagnostics.iter().map(|said| (said.severity, said.line)).collect();
    assert_eq!(said, [(Severity::Warning, 7)], "hooks are about the host");
    let settings = &file.settings;
    assert!(matches!(&settings.services[0], Service::Socks { local, .. } if local.to_string() == "127.0.0.1:1080"));
    assert!(matches!(settings.services[1], Service::UdpIn { port: 53, timeout: None, .. }));
    assert_eq!((settings.stack, settings.names), (Stack::Embedded, Names::System));
    assert_eq!(settings.info.as_ref().unwrap().to_string(), "localhost:9080");
    let tunnel = tunnel(&file);
    assert!(tunnel.hooks.is_empty() && tunnel.exclude_lan == linerate_control::tunnel_file::ExcludeLan::Always);

    // `linerate up` takes these sections for comments.
    let (_, diagnostics) = TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn a_file_may_leave_the_tunnel_to_another_one() {
    let file = read("WGConfig = wg0.conf\n[Socks5]\nBindAddress = 127.0.0.1:1080\n");
    assert_eq!(file.tunnel_file.unwrap().to_str(), Some("wg0.conf"));
}

#[test]
fn a_value_may_be_the_environments() {
    let text = |password: &str| format!("[Socks5]\nBindAddress = :1\nUsername = a\nPassword = {password}\n");
    let login = |file: ProxyFile| match file.settings.services.into_iter().next() {
        Some(Service::Socks { login: Some(login), .. }) => login,
        _ => panic!(),
    };
    assert!(login(read(&text("$MY_WIREGUARD_PRIVATE_KEY"))).admits(b"a", KEY.as_bytes()));
    assert!(login(read(&text("$$HOME"))).admits(b"a", b"$HOME"));
    let said = complaints(&text("$NOT_SET"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("4:12: Password is the value of an environment variable that is not set"), "{said:?}");
    // A secret that was forgotten is not an empty one.
    let (file, _) = config::read(text("$NOT_SET").as_bytes(), &environment);
    assert!(file.settings.services.is_empty());
}

#[test]
fn no_value_of_the_environment_adds_a_line() {
    let hostile = |_: &str| Some("10.0.0.1\n[Socks5]\nBindAddress = :1".to_owned());
    let (file, diagnostics) = config::read(b"[Interface]\nAddress = $A\n[Socks5]\nBindAddress = $B\n", &hostile);
    assert_eq!(diagnostics.len(), 2);
    assert!(file.settings.services.is_empty() && !file.tunnel.contains(&b'S'));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_do() {
    for (text, said) in [
        ("[Sock5]\nBindAddress = :1\n", "1:1: unknown section (did you mean [Socks5]?)"),
        ("[Sock]\nBindAddress = :1\n", "1:1: unknown section (there are [Interface]"),
        ("[Socks5]\n", "1:1: [Socks5] has no BindAddress (add BindAddress = …)"),
        ("[Socks5]\nBindAdress = :1\n", "2:1: unknown setting in [Socks5] (did you mean BindAddress?)"),
        ("[SNI]\nBindAddress = :1\nHost = a\n", "3:1: unknown setting in [SNI] (there are BindAddress)"),
        ("[Socks5]\nBindAddress = proxy.lan:1\n", "2:15: BindAddress is not a local address with a port"),
        ("[Socks5]\nBindAddress = :1\nBindAddress = :2\n", "3:1: BindAddress is set twice"),
        ("[Socks5]\nBindAddress = :1\nUsername = a\n", "3:12: Username is set without Password"),
        ("[http]\nBindAddress = :1\nKeyFile = a\n", "3:11: KeyFile is set without CertFile"),
        ("[TCPClientTunnel]\nBindAddress = :1\nTarget = a\n", "3:10: Target is not an address or a name with a port"),
        ("[TCPServerTunnel]\nListenPort = 0\nTarget = a:1\n", "2:14: ListenPort is not a port"),
        (
            "[UDPProxyTunnel]\nBindAddress = :1\nTarget = a:1\nInactivityTimeout = 1m\n",
            "4:21: InactivityTimeout is not",
        ),
        ("[Resolve]\nResolveStrategy = ipv5\n", "2:19: unknown ResolveStrategy (there are auto, ipv4, ipv6)"),
        ("[Interface]\nCheckAlive = a\n", "2:14: CheckAlive has something that is not an address"),
        ("[Interface]\nCheckAliveInterval = 5\n", "1:1: CheckAliveInterval is 5 and there is nothing to check"),
        ("#! [Peer]\n", "1:1: a section of the tunnel is behind `#!`"),
        ("[SNI]\nwhat\n", "2:1: this line is neither a section nor a setting"),
        ("[SNI]\nBindAddress =\n", "2:14: BindAddress has no value"),
    ] {
        let found = complaints(text);
        assert!(found.iter().any(|found| found.starts_with(said)), "{text}: {found:?}");
        // One mistake is one complaint, but for those that leave something missing.
        assert!(found.len() <= 2, "{text}: {found:?}");
    }
}
