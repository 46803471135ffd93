//! wireguard-ui: a folder of JSON, `clients/ID.json` and `server/{keypair,interfaces,global_settings}.json`. Numbers
//! may be in quotes, and files may be missing or empty.

use ipnet::IpNet;
use linerate_control::tunnel_file::Phase;
use serde::Deserialize;

use super::text::{self, Loose, Secret};
use super::value::{Client, Import, same};
use super::{Error, Input, InputFile, Kind};

#[derive(Deserialize)]
struct Keypair {
    private_key: Secret,
}

#[derive(Deserialize)]
struct Interface {
    addresses: Vec<String>,
    listen_port: Loose,
    #[serde(default)]
    post_up: Loose,
    #[serde(default)]
    pre_down: Loose,
    #[serde(default)]
    post_down: Loose,
}

#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    endpoint_address: String,
    #[serde(default)]
    dns_servers: Option<Vec<String>>,
    #[serde(default)]
    mtu: Loose,
    #[serde(default)]
    persistent_keepalive: Loose,
    #[serde(default)]
    table: Loose,
    #[serde(default)]
    config_file_path: String,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    private_key: Secret,
    public_key: String,
    #[serde(default)]
    preshared_key: Secret,
    #[serde(default)]
    name: String,
    #[serde(default)]
    email: String,
    #[serde(default)]
    allocated_ips: Option<Vec<String>>,
    #[serde(default)]
    allowed_ips: Option<Vec<String>>,
    #[serde(default)]
    extra_allowed_ips: Option<Vec<String>>,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    additional_notes: String,
    #[serde(default)]
    use_server_dns: bool,
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    created_at: Loose,
}

/// Whether the input has files of its state.
pub(super) fn is_its(input: &Input) -> bool {
    let names = ["server/keypair.json", "server/interfaces.json", "server/global_settings.json"];
    input.files.iter().any(|file| names.iter().any(|name| file.path.ends_with(name)))
}

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    let keypair = find(input, "server/keypair.json")?;
    let pair: Keypair = text::json(&keypair.bytes, &keypair.path)?;
    let Some(private_key) = pair.private_key.0 else {
        return Err(Error::at(&keypair.path, "the server has no private key"));
    };
    let settings = input.files.iter().find(|file| file.path.ends_with("server/global_settings.json"));
    let settings =
        settings.map(|file| Ok::<_, Error>((file, text::json::<Settings>(&file.bytes, &file.path)?))).transpose()?;
    let path = settings.as_ref().map(|(_, settings)| settings.config_file_path.as_str()).unwrap_or_default();
    let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".conf")).unwrap_or("wg0");
    let mut import = Import::new(Kind::WireguardUi, name, private_key);
    server(&mut import, find(input, "server/interfaces.json")?)?;
    match settings {
        Some((file, settings)) => defaults(&mut import, settings, &file.path)?,
        None => import.remarks.changed(
            "server/global_settings.json is not among these files: the interface is taken for wg0, and clients get no \
             defaults",
        ),
    }
    for file in input.files.iter().filter(|file| is_client(&file.path)) {
        let row: Row = text::json(&file.bytes, &file.path)?;
        import.clients.push(client(row, &file.path)?);
    }
    lists(&mut import);
    Ok(import)
}

fn is_client(path: &str) -> bool {
    path.strip_suffix(".json")
        .and_then(|path| path.rsplit_once('/'))
        .is_some_and(|(folder, _)| folder == "clients" || folder.ends_with("/clients"))
}

fn find<'a>(input: &'a Input, end: &str) -> Result<&'a InputFile, Error> {
    let file = input.files.iter().find(|file| file.path.ends_with(end));
    file.ok_or_else(|| Error::new(format!("{end} is missing: name the folder db of wireguard-ui")))
}

fn server(import: &mut Import, file: &InputFile) -> Result<(), Error> {
    let path = &file.path;
    let interface: Interface = text::json(&file.bytes, path)?;
    import.listen_port = Some(text::number(&interface.listen_port.0, path)?);
    for address in &interface.addresses {
        import.addresses.push(text::net(address, path)?);
    }
    let hooks = [
        (Phase::PostUp, interface.post_up),
        (Phase::PreDown, interface.pre_down),
        (Phase::PostDown, interface.post_down),
    ];
    for (phase, Loose(command)) in hooks {
        if !command.is_empty() {
            import.hooks.push((phase, command.replace(['\r', '\n'], " ")));
        }
    }
    Ok(())
}

fn defaults(import: &mut Import, settings: Settings, path: &str) -> Result<(), Error> {
    let mtu = settings.mtu.positive(path)?;
    (import.mtu, import.client_mtu) = (mtu, mtu);
    let keepalive = settings.persistent_keepalive.positive(path)?;
    import.client_keepalive = Some(keepalive.unwrap_or(0));
    import.client_dns = settings.dns_servers.unwrap_or_default();
    if let Some(table) = settings.table.text().filter(|table| *table != "auto") {
        import.other.push(("Table", text::one_line(table)));
    }
    let address = settings.endpoint_address.trim();
    if !address.is_empty() {
        // A port after the host stands for the public one.
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(text::number(port, path)?)),
            _ => (address, None),
        };
        import.set_endpoint(host, port, path)?;
    }
    Ok(())
}

fn client(row: Row, path: &str) -> Result<Client, Error> {
    let all = |list: Option<Vec<String>>| {
        list.unwrap_or_default().iter().map(|net| text::net(net, path)).collect::<Result<Vec<IpNet>, Error>>()
    };
    let mut client = Client::new(&row.name, text::public_key(&row.public_key, path)?);
    client.private_key = row.private_key.0;
    client.preshared_key = row.preshared_key.0;
    client.allowed_ips = all(row.allocated_ips)?;
    client.allowed_ips.extend(all(row.extra_allowed_ips)?);
    client.client_allowed_ips = Some(all(row.allowed_ips)?);
    client.endpoint = Some(text::one_line(&row.endpoint)).filter(|endpoint| !endpoint.is_empty());
    client.enabled = row.enabled;
    client.created = row.created_at.text().map(|time| text::time(time, path)).transpose()?;
    client.add_note(&row.email);
    client.add_note(&row.additional_notes);
    if !row.use_server_dns {
        client.remarks.dropped("that its file has no DNS: a new file gets the server's");
    }
    Ok(client)
}

/// The default is what most clients have.
fn lists(import: &mut Import) {
    let of = |client: &Client| client.client_allowed_ips.clone().unwrap_or_default();
    let count = |list: &Vec<IpNet>| import.clients.iter().filter(|client| same(&of(client), list)).count();
    let most = import.clients.iter().map(of).max_by_key(|list| (count(list), std::cmp::Reverse(list.clone())));
    import.client_allowed_ips = most.unwrap_or_default();
    let default = import.client_allowed_ips.clone();
    for client in &mut import.clients {
        client.client_allowed_ips = client.client_allowed_ips.take().filter(|list| !same(list, &default));
    }
}
