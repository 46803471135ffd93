//! The command line: wireproxy's options, and ssh's forwards.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use linerate_cli::documents;

use crate::config::{Local, Service, Settings, command_line};
use crate::target::{self, Host, Target};

/// The arguments of `linerate-proxy`.
#[derive(Parser)]
#[command(
    name = "linerate-proxy",
    version,
    about = "A tunnel without root: SOCKS5, HTTP, forwards.",
    long_about = "Uses a WireGuard tunnel without root and without an interface of the host: as a SOCKS5 or HTTP proxy, by \
        forwards of TCP and UDP in both directions, or as standard input and output of one connection.\n\n\
        FILE is wireproxy's as it is, or a tunnel's file; what it says of proxies and forwards is added to the options. Names \
        are looked up by the file's DNS, through the tunnel; this host's resolver is never asked unless the file says \
        so (Names = system in [Proxy]).",
    after_long_help = "EXAMPLES\n\
        \x20 linerate proxy wg0.conf -D 1080                      a SOCKS5 proxy on 127.0.0.1:1080\n\
        \x20 curl --proxy socks5h://127.0.0.1:1080 http://intranet.example/\n\
        \x20 linerate proxy wg0.conf -L 5432:db.corp.example:5432 a database of the other side on this host\n\
        \x20 linerate proxy wg0.conf --http 8080                  an HTTP proxy\n\
        \x20 linerate proxy wg0.conf -L 5353:10.0.0.1:53/udp      datagrams\n\
        \x20 linerate proxy wg0.conf -R 80:localhost:8080         a server of this host in the tunnel\n\
        \x20 ssh -o ProxyCommand='linerate proxy wg0.conf -W \"[%h]:%p\"' host.corp.example\n\n\
        With curl write socks5h, not socks5: otherwise it looks names up itself, outside of the tunnel.\n\n\
        THE FILE\n\
        \x20 [Interface] and [Peer] are those of wg-quick. In a tunnel's file the sections below stand behind #!, at its end.\n\n\
        \x20   [Socks5]           BindAddress, Username, Password: SOCKS5, as -D\n\
        \x20   [http]             BindAddress, Username, Password, CertFile, KeyFile: HTTP, as --http\n\
        \x20   [TCPClientTunnel]  BindAddress, Target: a port here is a server there, as -L\n\
        \x20   [TCPServerTunnel]  ListenPort, Target: a port there is a server here, as -R\n\
        \x20   [UDPProxyTunnel]   BindAddress, Target, InactivityTimeout: as -L .../udp\n\
        \x20   [UDPServerTunnel]  ListenPort, Target, InactivityTimeout: as -R .../udp\n\
        \x20   [STDIOTunnel]      Target: standard input and output, as -W\n\
        \x20   [SNI]              BindAddress: TLS goes to port 443 of the name in it\n\
        \x20   [Resolve]          ResolveStrategy: auto, ipv4 or ipv6 first\n\
        \x20   [Proxy]            Stack (auto, kernel, embedded), Congestion (bbr, ...), Names (tunnel,\n\
        \x20                      system), Info, CheckAlive, CheckAliveInterval\n\
        \x20   before all         WGConfig: the file that has [Interface] and [Peer]\n\n\
        \x20 A value $NAME is that of an environment variable; $$ is a dollar sign.\n\n\
        ENVIRONMENT\n\
        \x20 LOG_LEVEL          what the engine says: silent, error, info or debug\n\
        \x20 LINERATE_AEAD      cipher implementation, as for linerated(8)\n\
        \x20 LINERATE_SECCOMP   action for a system call that is not needed: refuse (the default), kill, log, off\n\n\
        EXIT STATUS\n\
        \x20 0 after SIGINT or SIGTERM, and when the connection of -W is through; 1 if there is no tunnel, no connection\n\
        \x20 of -W or it was reset, or something is wrong with the files; 2 for arguments that cannot be understood.\n\n\
        FILES\n\
        \x20 /etc/wireguard/NAME.conf                          the file of the service linerate-proxy@NAME\n\
        \x20 /usr/share/doc/linerate-proxy/proxy.md.gz         the guide: names, leaks, bounds, services, containers\n\
        \x20 /usr/share/doc/linerate-proxy/no-root.md.gz       which command when: run, proxy or up\n\n\
        SEE ALSO\n\
        linerate(1), linerate.conf(5), linerated(8)"
)]
pub struct Arguments {
    /// wireproxy's file, or a tunnel's
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// The same as FILE, for those who are used to wireproxy
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// SOCKS5 proxy
    #[arg(short = 'D', long = "socks", value_name = "[BIND:]PORT", value_parser = command_line::listener)]
    socks: Vec<Local>,

    /// HTTP proxy
    #[arg(long, value_name = "[BIND:]PORT", value_parser = command_line::listener)]
    http: Vec<Local>,

    /// Pass what comes to PORT here on to HOST in the tunnel
    #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:HOSTPORT[/udp]")]
    local: Vec<String>,

    /// Pass what comes to PORT in the tunnel on to HOST as this host sees it
    #[arg(short = 'R', value_name = "PORT:HOST:HOSTPORT[/udp]")]
    remote: Vec<String>,

    /// Connect standard input and output to HOST in the tunnel
    #[arg(short = 'W', value_name = "[HOST]:PORT", value_parser = target)]
    stdio: Option<Target>,

    /// Serve /livez, /readyz and /metrics
    #[arg(short, long, value_name = "[BIND:]PORT", value_parser = command_line::listener)]
    info: Option<Local>,

    /// Write the manual page into this directory, and do nothing else
    #[arg(long, value_name = "DIRECTORY", exclusive = true, hide = true)]
    man: Option<PathBuf>,

    /// Print the completions for this shell, and do nothing else
    #[arg(long, value_name = "SHELL", exclusive = true, hide = true)]
    completions: Option<Shell>,

    /// Look names up for the proxy that started this, and do nothing else
    #[arg(long = "resolve", exclusive = true, hide = true)]
    pub resolves: bool,

    /// Only check the files
    #[arg(short = 'n', long = "configtest")]
    pub only_check: bool,
}

/// With brackets around any host: who puts the two together, as ssh does, need not know what it is.
fn target(text: &str) -> Result<Target, String> {
    let bracketed = || {
        let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
        Some(Target { host: Host::parse(host)?, port: target::port(port)? })
    };
    let target = bracketed().or_else(|| text.parse().ok());
    target.ok_or_else(|| format!("`{text}' is not HOST:PORT or [HOST]:PORT; an IPv6 address needs the brackets"))
}

impl Arguments {
    /// The file.
    pub fn file(&self) -> PathBuf {
        self.file.clone().or_else(|| self.config.clone()).unwrap_or_default()
    }

    /// Writes the manual page or the completions, if that is what is asked for.
    pub fn documents(&self) -> Option<Result<ExitCode, String>> {
        let page = |folder: &PathBuf| documents::write_pages(Self::command(), "1", folder).map(|()| ExitCode::SUCCESS);
        let completions = || self.completions.map(|shell| documents::print_completions(Self::command(), shell));
        self.man.as_ref().map(page).or_else(completions)
    }

    /// Adds what the options ask for to what the file says.
    ///
    /// # Errors
    /// A sentence about an option, or about there being nothing to do.
    pub fn add_to(self, settings: &mut Settings) -> Result<(), String> {
        let services = &mut settings.services;
        services.extend(self.socks.into_iter().map(|local| Service::Socks { local, login: None }));
        services.extend(self.http.into_iter().map(|local| Service::Http { local, login: None, tls: None }));
        for text in self.local {
            services.push(command_line::forward_out(&text).map_err(|error| format!("-L {error}"))?);
        }
        for text in self.remote {
            services.push(command_line::forward_in(&text).map_err(|error| format!("-R {error}"))?);
        }
        services.extend(self.stdio.map(|target| Service::Stdio { target }));
        settings.info = self.info.or(settings.info.take());
        if services.is_empty() {
            return Err(
                "there is nothing to do: add -D 1080 for a SOCKS5 proxy, or a section such as [Socks5] to the \
                        file"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(arguments: &[&str]) -> Result<Settings, String> {
        let arguments = [&["linerate-proxy"], arguments].concat();
        let arguments = Arguments::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let mut settings = Settings::default();
        arguments.add_to(&mut settings)?;
        Ok(settings)
    }

    #[test]
    fn every_argument_has_help() {
        documents::assert_documented(Arguments::command());
    }

    #[test]
    fn options_may_repeat_and_are_as_for_ssh() {
        let all =
            ["wg0.conf", "-D", "1080", "-D1081", "--http", "8080", "-L", "1:a.example:2", "-R", "3:localhost:4/udp"];
        let settings = added(&[&all[..], &["-W", "a.example:22", "-i", "9080"]].concat()).unwrap();
        let kinds: Vec<_> = settings
            .services
            .iter()
            .map(|service| match service {
                Service::Socks { local, .. } => format!("D {local}"),
                Service::Http { local, .. } => format!("http {local}"),
                Service::TcpOut { local, target } => format!("L {local} {target}"),
                Service::UdpIn { port, target, .. } => format!("R {port} {target}"),
                Service::Stdio { target } => format!("W {target}"),
                _ => panic!(),
            })
            .collect();
        let expected = [
            "D localhost:1080",
            "D localhost:1081",
            "http localhost:8080",
            "L localhost:1 a.example:2",
            "R 3 localhost:4",
            "W a.example:22",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(settings.info.unwrap().to_string(), "localhost:9080");
    }

    #[test]
    fn one_form_of_w_is_for_names_and_for_addresses_of_both_families() {
        let stdio = |text: &str| -> Result<String, String> {
            match &added(&["wg0.conf", "-W", text])?.services[..] {
                [Service::Stdio { target }] => Ok(target.to_string()),
                _ => panic!(),
            }
        };
        for host in ["a.example", "192.0.2.1"] {
            assert_eq!(stdio(&format!("[{host}]:22")).unwrap(), format!("{host}:22"));
            assert_eq!(stdio(&format!("{host}:22")).unwrap(), format!("{host}:22"));
        }
        assert_eq!(stdio("[2001:db8::1]:22").unwrap(), "[2001:db8::1]:22");
        for wrong in ["2001:db8::1:22", "[a.example]", "[]:22", "[a.example]:0", "a b:22"] {
            assert!(stdio(wrong).is_err_and(|said| said.contains("[HOST]:PORT")), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_words() {
        assert!(added(&["wg0.conf"]).is_err_and(|said| said.contains("add -D 1080")));
        assert!(added(&["wg0.conf", "-L", "1"]).is_err_and(|said| said.starts_with("-L `1' is not ")));
        assert!(added(&["wg0.conf", "-D", "a"]).is_err_and(|said| said.contains("[BIND_ADDRESS:]PORT")));
        assert!(added(&["-D", "1"]).is_err_and(|said| said.contains("required")));
        assert!(added(&["a", "-c", "b", "-D", "1"]).is_err());
    }
}
