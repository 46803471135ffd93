//! The arguments of `linerate client`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use linerate_control::keys::PublicKey;
use linerate_control::rate::Rate;
use linerate_control::tunnel_file::{ByteCount, QuotaReset, settings};
use linerate_server::{PRIVATE, Properties, Roster, expiry, without};
use linerate_tunnel::Error;

#[derive(Args)]
pub(crate) struct ClientArguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Add clients, and print their files
    ///
    /// Makes a key pair and a preshared key for each, gives it the lowest free address of the pool in each family, adds
    /// it to the tunnel's file and to the running tunnel, and prints its file; on a terminal also as a QR code. The
    /// private key is shown this once and then forgotten, unless --keep-key is given.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate client add laptop --output laptop.conf\n\
        \x20 sudo linerate client add phone --expires 30d --quota 50G --reset monthly\n\
        \x20 sudo linerate client add alice bob carol --output /root/clients/\n\
        \x20 sudo linerate client add \"Müller's iPhone\" --output /root/clients/\n\
        \x20 sudo linerate client add router --pubkey KEY --split")]
    Add(Add),
    /// List all clients, or those with a text in their name, addresses or note
    #[command(after_long_help = "EXAMPLE\n  sudo linerate client list müller")]
    List(List),
    /// Show all about clients
    Show(Named),
    /// Keep clients out until they are enabled again
    ///
    /// Their sections become comments, so no other tool lets them in either. They keep their addresses.
    Disable(Named),
    /// Let disabled clients in again
    Enable(Named),
    /// Let clients in until another time, also those that have expired
    #[command(after_long_help = "EXAMPLE\n  sudo linerate client renew laptop --expires 1y")]
    Renew(Renew),
    /// Give clients new keys, and print their files
    ///
    /// The old key is valid until the new one is used for the first time, so nobody is cut off meanwhile.
    Rekey(Rekey),
    /// Give a client another name
    Rename(Rename),
    /// Change the expiry, quota, rate, destinations or note of clients
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate client set laptop phone --quota 100Gi --reset monthly\n\
        \x20 sudo linerate client set laptop phone --rate 20M/5M\n\
        \x20 sudo linerate client set laptop --quota none --note 'the one in the kitchen'")]
    Set(Set),
    /// Remove clients
    ///
    /// Their addresses are given to no other client for 24 hours, unless the pool is otherwise full.
    Remove(Named),
    /// Print the files of clients
    ///
    /// The private key is in them if it was kept (--keep-key).
    Export(Export),
    /// Show a client's file as a QR code
    ///
    /// Needs the private key: if it was not kept (--keep-key), `linerate client rekey` makes another.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate client qr phone\n\
        \x20 sudo linerate client qr phone --output phone.png")]
    Qr(Qr),
}

impl Command {
    /// The names of all clients that it is about, if it may be about several.
    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Add(arguments) => &arguments.names,
            Self::Show(named) | Self::Disable(named) | Self::Enable(named) | Self::Remove(named) => &named.names,
            Self::Renew(arguments) => &arguments.named.names,
            Self::Rekey(arguments) => &arguments.named.names,
            Self::Set(arguments) => &arguments.named.names,
            Self::Export(arguments) => &arguments.named.names,
            Self::List(_) | Self::Rename(_) | Self::Qr(_) => &[],
        }
    }
}

#[derive(Args)]
pub(super) struct Which {
    /// The server: the tunnel of /etc/wireguard/NAME.conf, or the path of its file (default: the only server)
    #[arg(short, long, value_name = "NAME")]
    pub(super) server: Option<String>,

    /// Print as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct List {
    /// Part of a name, an address or a note; case and accents do not matter
    #[arg(value_name = "TEXT")]
    pub(super) part: Option<String>,

    #[command(flatten)]
    pub(super) which: Which,
}

#[derive(Args)]
pub(super) struct Named {
    /// Names of clients, or of their files without .conf, in any case
    #[arg(value_name = "NAME", required = true)]
    pub(super) names: Vec<String>,

    #[command(flatten)]
    pub(super) which: Which,
}

#[derive(Args)]
pub(super) struct Add {
    /// Names: any text of 1 to 64 characters
    #[arg(value_name = "NAME", required = true)]
    pub(super) names: Vec<String>,

    #[command(flatten)]
    pub(super) properties: GivenProperties,

    /// The client's own public key: its private key never leaves it
    #[arg(long, value_name = "KEY", value_parser = public_key, conflicts_with = "keep_key")]
    pub(super) pubkey: Option<PublicKey>,

    /// Keep the private key in the server's file, so that `export` and `qr` can show it again
    #[arg(long)]
    pub(super) keep_key: bool,

    /// Write the file there, readable by its owner only; into a folder: NAME.conf, or a name of at most 15 letters,
    /// digits, `-`, `_` or `.` that is made from it
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) which: Which,
}

#[derive(Args)]
pub(super) struct Renew {
    #[command(flatten)]
    pub(super) named: Named,

    /// Until when: 30d, 2030-01-31 (the end of that day), 2030-01-31T18:00, or never
    #[arg(long, value_name = "TIME")]
    pub(super) expires: String,
}

#[derive(Args)]
pub(super) struct Rekey {
    #[command(flatten)]
    pub(super) named: Named,

    /// The client's own new public key: its private key never leaves it
    #[arg(long, value_name = "KEY", value_parser = public_key, conflicts_with = "keep_key")]
    pub(super) pubkey: Option<PublicKey>,

    /// Keep the private key in the server's file
    #[arg(long)]
    pub(super) keep_key: bool,

    /// Refuse the old key from now on: for one that was lost or stolen
    #[arg(long)]
    pub(super) now: bool,

    /// Write the file there, readable by its owner only; into a folder: NAME.conf
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Rename {
    /// The client
    #[arg(value_name = "NAME")]
    pub(super) old: String,

    /// Its new name
    #[arg(value_name = "NEW")]
    pub(super) new: String,

    #[command(flatten)]
    pub(super) which: Which,
}

#[derive(Args)]
pub(super) struct Set {
    #[command(flatten)]
    pub(super) named: Named,

    #[command(flatten)]
    pub(super) properties: GivenProperties,
}

#[derive(Args)]
pub(super) struct Export {
    #[command(flatten)]
    pub(super) named: Named,

    /// Write the file there, readable by its owner only; into a folder: NAME.conf
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Qr {
    /// The client
    #[arg(value_name = "NAME")]
    pub(super) name: String,

    /// Write a picture: a path that ends in .png or .svg
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,

    /// The server: the tunnel of /etc/wireguard/NAME.conf, or the path of its file (default: the only server)
    #[arg(short, long, value_name = "NAME")]
    pub(super) server: Option<String>,
}

#[derive(Args)]
pub(super) struct GivenProperties {
    /// Until when it is let in: 30d, 2030-01-31 (the end of that day), 2030-01-31T18:00, or never
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,

    /// How many bytes it may send and receive: 50G (decimal), 50Gi (binary), or none
    #[arg(long, value_name = "BYTES")]
    quota: Option<String>,

    /// When the quota begins anew; without a quota this does nothing
    #[arg(long, value_name = "WHEN")]
    reset: Option<Reset>,

    /// How many bits per second it may receive and send: 20M each, 20M/5M (down/up), or none
    #[arg(long, value_name = "DOWN[/UP]")]
    rate: Option<String>,

    /// Forward its packets only to these networks, separated by commas, or to any: all
    #[arg(long, value_name = "NET,...")]
    dest: Option<String>,

    /// Its file sends only what is for the server's networks, and for these, through the tunnel
    #[arg(
        long,
        value_name = "NET,...",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["full", "exclude_lan"]
    )]
    split: Option<String>,

    /// Its file sends everything through the tunnel
    #[arg(long, conflicts_with = "exclude_lan")]
    full: bool,

    /// Its file sends everything through the tunnel but private networks
    #[arg(long)]
    exclude_lan: bool,

    /// Any text, for you
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Reset {
    /// Never
    Never,
    /// Each month, on the day on which the client was made
    Monthly,
}

impl GivenProperties {
    /// Whether there is any.
    pub(super) fn has_any(&self) -> bool {
        let texts = [&self.expires, &self.quota, &self.rate, &self.dest, &self.split, &self.note];
        texts.iter().any(|text| text.is_some()) || self.reset.is_some() || self.full || self.exclude_lan
    }

    /// What does not depend on the server.
    pub(super) fn read(&self, now: Timestamp) -> Result<Properties, String> {
        let expires = self.expires.as_deref().map(|text| expiry::parse(text, now, &TimeZone::system()));
        let quota = self.quota.as_deref().map(|text| match text {
            "none" => Ok(None),
            text => text.parse::<ByteCount>().map(Some),
        });
        let rate = self.rate.as_deref().map(|text| match text {
            "none" => Ok(None),
            text => text.parse::<Rate>().map(Some),
        });
        let destinations = self.dest.as_deref().map(|text| match text {
            "all" => Ok(String::new()),
            text => match &*networks(text)? {
                [] => Err("--dest names no network; `--dest all' allows any".to_owned()),
                nets => Ok(joined(nets)),
            },
        });
        Ok(Properties {
            expires: expires.transpose().map_err(|error| error.to_string())?,
            quota: quota.transpose().map_err(|error| error.to_string())?,
            quota_reset: self.reset.map(|reset| match reset {
                Reset::Never => QuotaReset::Never,
                Reset::Monthly => QuotaReset::Monthly,
            }),
            rate: rate.transpose().map_err(|error| error.to_string())?,
            note: self.note.clone(),
            others: destinations.transpose()?.map(|text| (settings::DESTINATIONS, text)).into_iter().collect(),
            ..Properties::default()
        })
    }

    /// What the client sends through the tunnel, which depends on the server's networks.
    pub(super) fn narrow(&self, properties: &mut Properties, roster: &Roster) -> Result<(), Error> {
        let own = roster.networks();
        let all = own.iter().map(|net| if net.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" });
        let all: Vec<IpNet> = all.filter_map(|net| net.parse().ok()).collect();
        properties.allowed_ips = if let Some(nets) = &self.split {
            Some([own, networks(nets).map_err(Error::State)?].concat())
        } else if self.exclude_lan {
            let private: Vec<IpNet> = PRIVATE.iter().filter_map(|net| net.parse().ok()).collect();
            // The server itself is in a private network.
            Some(all.into_iter().flat_map(|net| without(net, &private)).chain(own).collect())
        } else {
            self.full.then_some(all)
        };
        Ok(())
    }
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    PublicKey::from_base64(text.as_bytes()).ok_or_else(|| "a key is 44 base64 characters and ends in `='".to_owned())
}

/// Networks separated by commas; an address is one of its full length.
fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let parsed = items.map(|item| {
        let address = || item.parse().map(|address: std::net::IpAddr| IpNet::from(address));
        let net = item.parse::<IpNet>().or_else(|_| address());
        net.map(|net| net.trunc())
            .map_err(|_| format!("`{item}' is not a network: write 192.168.5.0/24 or fd00:5::/64"))
    });
    parsed.collect()
}

fn joined(nets: &[IpNet]) -> String {
    nets.iter().map(IpNet::to_string).collect::<Vec<String>>().join(", ")
}
