//! wg-easy from version 15: the tables of its SQLite database. Columns differ between its versions; those that are
//! missing have defaults.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_control::tunnel_file::Phase;
use serde::Deserialize;

use super::text::{self, Loose, Secret};
use super::value::{Client, Import, same};
use super::{Error, Input, Kind};

#[derive(Deserialize)]
struct Interface {
    name: String,
    #[serde(default)]
    device: String,
    port: Loose,
    private_key: Secret,
    ipv4_cidr: String,
    #[serde(default)]
    ipv6_cidr: String,
    #[serde(default)]
    mtu: Loose,
    #[serde(default)]
    firewall_enabled: Loose,
    #[serde(default)]
    routing_table: Loose,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    interface_id: String,
    ipv4_address: String,
    #[serde(default)]
    ipv6_address: String,
    #[serde(default)]
    private_key: Secret,
    public_key: String,
    #[serde(default)]
    pre_shared_key: Secret,
    #[serde(default)]
    expires_at: Loose,
    #[serde(default)]
    allowed_ips: Loose,
    #[serde(default)]
    server_allowed_ips: Loose,
    #[serde(default)]
    firewall_ips: Loose,
    #[serde(default)]
    dns: Loose,
    #[serde(default)]
    mtu: Loose,
    #[serde(default)]
    persistent_keepalive: Loose,
    #[serde(default)]
    server_endpoint: Loose,
    enabled: Loose,
    #[serde(default)]
    created_at: Loose,
    #[serde(default)]
    pre_up: String,
    #[serde(default)]
    post_up: String,
    #[serde(default)]
    pre_down: String,
    #[serde(default)]
    post_down: String,
}

#[derive(Deserialize)]
struct UserConfig {
    id: String,
    #[serde(default)]
    default_mtu: Loose,
    #[serde(default)]
    default_persistent_keepalive: Loose,
    #[serde(default)]
    default_dns: Loose,
    #[serde(default)]
    default_allowed_ips: Loose,
    #[serde(default)]
    host: String,
    port: Loose,
}

#[derive(Deserialize)]
struct Hooks {
    id: String,
    pre_up: String,
    post_up: String,
    pre_down: String,
    post_down: String,
}

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    let rows = |name: &str| input.table(name).ok_or_else(|| Error::new(format!("the database has no {name}")));
    let table = rows("interfaces_table")?;
    let place = format!("{} ({})", table.database, table.name);
    let mut interfaces: Vec<Interface> = text::rows(table)?;
    let mut interface = match (interfaces.pop(), interfaces.len()) {
        (Some(only), 0) => only,
        (None, _) => return Err(Error::at(place, "there is no interface")),
        _ => return Err(Error::at(place, "there are several interfaces: wg-easy itself uses one")),
    };
    let Some(private_key) = interface.private_key.0.take() else {
        return Err(Error::at(place, "this wg-easy has never started: there is no key yet"));
    };
    let mut import = Import::new(Kind::WgEasy15, &interface.name, private_key);
    import.listen_port = Some(text::number(&interface.port.0, &place)?);
    import.mtu = interface.mtu.positive(&place)?;
    if let Some(table) = interface.routing_table.text().filter(|table| *table != "auto") {
        import.other.push(("Table", text::one_line(table)));
    }
    // The server has the first address of each network.
    let has_ipv6 = has_ipv6(input, &interface.name);
    for cidr in [Some(&interface.ipv4_cidr), Some(&interface.ipv6_cidr).filter(|_| has_ipv6)].into_iter().flatten() {
        let net = text::net(cidr, &place)?;
        let first = net.trunc().hosts().next().map(|first| next_after(net.network(), first));
        let address = first.ok_or_else(|| Error::at(&place, "this network has no address"))?;
        import.addresses.push(IpNet::new(address, net.prefix_len()).map_err(|_| Error::at(&place, "a bad prefix"))?);
    }
    defaults(&mut import, input)?;
    hooks(&mut import, input, &interface)?;
    let firewall = interface.firewall_enabled.truth(&place)?.unwrap_or(false);
    let table = rows("clients_table")?;
    for row in text::rows::<Row>(table)? {
        if row.interface_id == interface.name {
            let place = format!("{} ({}, {})", table.database, table.name, text::short(&row.name));
            let client = client(row, &import, firewall, has_ipv6, &place)?;
            import.clients.push(client);
        }
    }
    Ok(import)
}

/// Whether IPv6 is on: its container can switch it off, and only the file that it writes says so.
fn has_ipv6(input: &Input, interface: &str) -> bool {
    let written = input.files.iter().find(|file| file.name() == format!("{interface}.conf"));
    written.is_none_or(|file| {
        text::lines(&file.bytes).any(|(_, line)| line.starts_with(b"Address") && line.contains(&b':'))
    })
}

/// The address after the network's own; `hosts` begins with that one in IPv6.
fn next_after(network: IpAddr, first: IpAddr) -> IpAddr {
    match (network, first) {
        (IpAddr::V6(network), IpAddr::V6(first)) if network == first => {
            IpAddr::V6(std::net::Ipv6Addr::from_bits(u128::from(network).saturating_add(1)))
        }
        _ => first,
    }
}

fn defaults(import: &mut Import, input: &Input) -> Result<(), Error> {
    let Some(table) = input.table("user_configs_table") else { return Ok(()) };
    let place = format!("{} ({})", table.database, table.name);
    let config = text::rows::<UserConfig>(table)?.into_iter().find(|config| config.id == import.interface);
    let Some(config) = config else { return Ok(()) };
    import.client_mtu = config.default_mtu.positive(&place)?;
    import.client_keepalive = Some(config.default_persistent_keepalive.positive(&place)?.unwrap_or(0));
    import.client_dns = list(&config.default_dns, &place)?.unwrap_or_default();
    import.client_allowed_ips = prefixes(&config.default_allowed_ips, &place)?.unwrap_or_default();
    if !config.host.is_empty() {
        let port = text::number(&config.port.0, &place)?;
        import.set_endpoint(&config.host, Some(port), &place)?;
    }
    Ok(())
}

fn hooks(import: &mut Import, input: &Input, interface: &Interface) -> Result<(), Error> {
    let Some(table) = input.table("hooks_table") else { return Ok(()) };
    let hooks = text::rows::<Hooks>(table)?.into_iter().find(|hooks| hooks.id == import.interface);
    let Some(hooks) = hooks else { return Ok(()) };
    let all = [
        (Phase::PreUp, hooks.pre_up),
        (Phase::PostUp, hooks.post_up),
        (Phase::PreDown, hooks.pre_down),
        (Phase::PostDown, hooks.post_down),
    ];
    for (phase, command) in all {
        let command = command
            .replace(['\r', '\n'], " ")
            .replace("{{ipv4Cidr}}", &interface.ipv4_cidr)
            .replace("{{ipv6Cidr}}", &interface.ipv6_cidr)
            .replace("{{device}}", &interface.device)
            .replace("{{port}}", &interface.port.0);
        if !command.trim().is_empty() {
            import.hooks.push((phase, command.trim().to_owned()));
        }
    }
    Ok(())
}

fn client(row: Row, import: &Import, firewall: bool, ipv6: bool, place: &str) -> Result<Client, Error> {
    let mut client = Client::new(&row.name, text::public_key(&row.public_key, place)?);
    client.private_key = row.private_key.0;
    client.preshared_key = row.pre_shared_key.0;
    client.allowed_ips.push(text::net(&row.ipv4_address, place)?);
    if ipv6 && !row.ipv6_address.is_empty() {
        client.allowed_ips.push(text::net(&row.ipv6_address, place)?);
    }
    client.allowed_ips.extend(prefixes(&row.server_allowed_ips, place)?.unwrap_or_default());
    client.endpoint = row.server_endpoint.text().map(text::one_line);
    client.expires = row.expires_at.text().map(|time| text::time(time, place)).transpose()?;
    client.created = row.created_at.text().map(|time| text::time(time, place)).transpose()?;
    client.enabled = row.enabled.truth(place)?.unwrap_or(true);
    let own = prefixes(&row.allowed_ips, place)?;
    if firewall {
        destinations(&mut client, &row.firewall_ips, own.as_deref().unwrap_or(&import.client_allowed_ips), place)?;
    } else if row.firewall_ips.text().is_some_and(|list| list != "[]") {
        client.remarks.dropped("its destinations: wg-easy's firewall was off, so they did not count");
    }
    client.client_allowed_ips = own.filter(|own| !same(own, &import.client_allowed_ips));
    let dns = list(&row.dns, place)?;
    if let Some(dns) = dns.filter(|dns| *dns != import.client_dns) {
        client
            .remarks
            .dropped(format!("its own DNS ({}): its file keeps it, a new one gets the server's", dns.join(", ")));
    }
    if row.mtu.positive(place)? != import.client_mtu {
        client.remarks.dropped(format!("its own MTU ({}): its file keeps it", row.mtu.0));
    }
    if row.persistent_keepalive.positive(place)?.unwrap_or(0) != import.client_keepalive.unwrap_or(0) {
        client
            .remarks
            .dropped(format!("its own PersistentKeepalive ({}): its file keeps it", row.persistent_keepalive.0));
    }
    if [&row.pre_up, &row.post_up, &row.pre_down, &row.post_down].iter().any(|hook| !hook.is_empty()) {
        client.remarks.dropped("the commands in its file: its file keeps them");
    }
    Ok(client)
}

/// What wg-easy's firewall lets a client reach. Ours knows no ports: what was allowed on some ports only is not
/// allowed, so that nothing is open that was not.
fn destinations(client: &mut Client, own: &Loose, default: &[IpNet], place: &str) -> Result<(), Error> {
    let Some(entries) = list(own, place)?.filter(|entries| !entries.is_empty()) else {
        let all = default.iter().any(|net| net.prefix_len() == 0);
        client.destinations = if all { Vec::new() } else { default.to_vec() };
        return Ok(());
    };
    for entry in entries {
        let plain = entry.trim_start_matches('[').trim_end_matches(']');
        match text::net(plain, place) {
            Ok(net) => client.destinations.push(net.trunc()),
            Err(_) => client.remarks.dropped(format!(
                "its destination {}: Destinations has no ports, so it cannot be reached",
                text::short(&entry)
            )),
        }
    }
    if client.destinations.is_empty() {
        client.enabled = false;
        client.remarks.changed("it is disabled, because none of its destinations could be taken");
    }
    Ok(())
}

/// A list in a column: JSON in text, or null for the default.
fn list(column: &Loose, place: &str) -> Result<Option<Vec<String>>, Error> {
    let Some(text) = column.text() else { return Ok(None) };
    let list = serde_json::from_str(text).map_err(|_| Error::at(place, "a column is not a list in JSON"))?;
    Ok(Some(list))
}

fn prefixes(column: &Loose, place: &str) -> Result<Option<Vec<IpNet>>, Error> {
    let list = list(column, place)?;
    list.map(|list| list.iter().map(|item| text::net(item, place)).collect()).transpose()
}
