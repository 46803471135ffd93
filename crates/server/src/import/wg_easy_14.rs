//! wg-easy up to version 14: `wg0.json`. Port, name servers and the rest are variables of its container, in a file of
//! `NAME=VALUE` lines that `docker inspect` can write; the server's hooks are in the `wg0.conf` that it writes.

use std::collections::BTreeMap;

use ipnet::IpNet;
use linerate_control::tunnel_file::Phase;
use serde::Deserialize;

use super::conf::Conf;
use super::shell::Assignments;
use super::text::{self, Loose, Secret};
use super::value::{Client, Import};
use super::{Error, Input, InputFile, Kind};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    server: Server,
    // Sorted by their identifiers, so that a file gives the same result each time.
    clients: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    #[serde(default)]
    private_key: Secret,
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(default)]
    name: String,
    address: String,
    #[serde(default)]
    private_key: Secret,
    public_key: String,
    #[serde(default)]
    pre_shared_key: Secret,
    #[serde(default)]
    created_at: Loose,
    #[serde(default)]
    expired_at: Loose,
    #[serde(default)]
    enabled: Loose,
}

/// Whether the input has its state.
pub(super) fn is_its(input: &Input) -> bool {
    state(input).is_some()
}

/// Finds wg-easy's state: the file with its name, whatever its content, or else a file with a server and clients.
fn state(input: &Input) -> Option<&InputFile> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "server")]
        _server: serde::de::IgnoredAny,
        #[serde(rename = "clients")]
        _clients: serde::de::IgnoredAny,
    }
    let has_shape = |file: &&InputFile| serde_json::from_slice::<Shape>(text::without_mark(&file.bytes)).is_ok();
    let jsons = || input.files.iter().filter(|file| file.path.ends_with(".json"));
    jsons().find(|file| file.name() == "wg0.json").or_else(|| jsons().find(has_shape))
}

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    let file = state(input).ok_or_else(|| {
        Error::new(
            "wg-easy's state is missing: name the folder with its wg0.json or wg-easy.db. With --from wg-quick its \
             wg0.conf alone is taken, without names and disabled clients",
        )
    })?;
    let path = &file.path;
    let state: State = text::json(&file.bytes, path)?;
    let Some(private_key) = state.server.private_key.0 else {
        return Err(Error::at(path, "the server has no private key"));
    };
    let mut import = Import::new(Kind::WgEasy14, file.stem(), private_key);
    // The network is always a /24, whatever the address.
    let address: std::net::Ipv4Addr =
        state.server.address.parse().map_err(|_| Error::at(path, "the server's address is not one of IPv4"))?;
    import.addresses = IpNet::new(address.into(), 24).into_iter().collect();
    settings(&mut import, input)?;
    for row in state.clients.into_values() {
        let place = format!("{path} ({})", text::short(&row.name));
        let mut client = Client::new(&row.name, text::public_key(&row.public_key, &place)?);
        client.private_key = row.private_key.0;
        client.preshared_key = row.pre_shared_key.0;
        client.allowed_ips = vec![text::net(&row.address, &place)?];
        client.created = row.created_at.text().map(|time| text::time(time, &place)).transpose()?;
        client.expires = row.expired_at.text().map(|time| text::time(time, &place)).transpose()?;
        client.enabled = row.enabled.truth(&place)?.unwrap_or(true);
        import.clients.push(client);
    }
    Ok(import)
}

/// What the container's environment and the file that it has written say.
fn settings(import: &mut Import, input: &Input) -> Result<(), Error> {
    let environments = Assignments::environments(&input.files);
    let given = |name: &str| {
        environments.iter().map(|environment| environment.given(name)).find(|found| !matches!(found, Ok(None)))
    };
    let given = |name: &str| given(name).unwrap_or(Ok(None));
    let get = |name: &str| Ok::<_, Error>(given(name)?.filter(|(value, _)| !value.is_empty()));
    import.client_defaults_of_wg_easy();
    if environments.is_empty() {
        import.remarks.changed(
            "the variables of its container are not in these files: clients get wg-easy's own defaults \
             (the settings ClientDNS, ClientAllowedIPs and ClientKeepalive of the file)",
        );
    }
    if let Some((port, place)) = get("WG_PORT")? {
        import.listen_port = Some(text::number(&port, &place)?);
    }
    let written = input.files.iter().find(|file| file.name() == format!("{}.conf", import.interface));
    if let Some(written) = written {
        let conf = Conf::read(written)?;
        import.listen_port = import.listen_port.or(conf.file.listen_port);
        import.hooks = conf.hooks;
    } else {
        let hooks = [
            (Phase::PreUp, "WG_PRE_UP"),
            (Phase::PostUp, "WG_POST_UP"),
            (Phase::PreDown, "WG_PRE_DOWN"),
            (Phase::PostDown, "WG_POST_DOWN"),
        ];
        for (phase, name) in hooks {
            import.hooks.extend(get(name)?.map(|(command, _)| (phase, command)));
        }
        if !import.hooks.iter().any(|(phase, _)| *phase == Phase::PostUp) {
            // What it does without hooks of the user's.
            let pool = import.addresses.iter().map(|net| net.trunc().to_string()).next().unwrap_or_default();
            let command = format!("iptables -t nat -A POSTROUTING -s {pool} -o eth0 -j MASQUERADE");
            import.hooks.push((Phase::PostUp, command));
        }
    }
    import.listen_port.get_or_insert(51820);
    if let Some((host, place)) = get("WG_HOST")? {
        let port = get("WG_CONFIG_PORT")?.map(|(port, place)| text::number(&port, &place)).transpose()?;
        import.set_endpoint(&host, port, &place)?;
    }
    // Of this one alone an empty value means none instead of the default.
    if let Some((dns, _)) = given("WG_DEFAULT_DNS")? {
        import.client_dns = text::items(&dns).map(str::to_owned).collect();
    }
    if let Some((mtu, place)) = get("WG_MTU")? {
        import.client_mtu = Some(text::number(&mtu, &place)?);
    }
    if let Some((list, place)) = get("WG_ALLOWED_IPS")? {
        import.client_allowed_ips = text::nets(&list, &place)?;
    }
    if let Some((seconds, place)) = get("WG_PERSISTENT_KEEPALIVE")? {
        import.client_keepalive = Some(text::number(&seconds, &place)?);
    }
    Ok(())
}

impl Import {
    /// The values that wg-easy 14 has for variables that are not set.
    fn client_defaults_of_wg_easy(&mut self) {
        self.client_dns = vec!["1.1.1.1".to_owned()];
        self.client_allowed_ips = ["0.0.0.0/0", "::/0"].iter().filter_map(|net| net.parse().ok()).collect();
        self.client_keepalive = Some(0);
    }
}
