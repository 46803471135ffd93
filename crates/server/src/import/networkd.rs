//! systemd-networkd: `NAME.netdev` and `NAME.network` with their drop-ins (systemd.netdev(5), systemd.network(5)).

use ipnet::IpNet;
use linerate_control::keys::SecretKey;

use super::ini::{self, Dialect, Entry, Section};
use super::text;
use super::value::{Client, Import};
use super::{Error, Input, InputFile, Kind};

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    let (mut tunnels, mut damaged) = (Vec::new(), Vec::new());
    for file in input.files.iter().filter(|file| file.path.ends_with(".netdev")) {
        let sections = with_drop_ins(input, file)?;
        let kind = value(&sections, "NetDev", "Kind").map(|entry| entry.value.clone());
        match kind.as_deref() {
            Some("wireguard") => tunnels.push((file, sections)),
            Some(_) => {}
            // An empty file masks another file of the same name.
            None => damaged.push(file.path.as_str()),
        }
    }
    let (file, netdev) = match (tunnels.pop(), tunnels.len()) {
        (Some(only), 0) => only,
        (None, _) if !damaged.is_empty() => {
            return Err(Error::at(damaged.join(", "), "there is no Kind in [NetDev]: is the file whole?"));
        }
        (None, _) => return Err(Error::new("no .netdev of these has Kind=wireguard")),
        _ => return Err(Error::new("several tunnels are among these: import one at a time, by its files")),
    };
    let Some(name) = value(&netdev, "NetDev", "Name") else {
        return Err(Error::at(&file.path, "[NetDev] has no Name"));
    };
    let mut import = Import::new(Kind::Networkd, &name.value, server_key(input, &netdev, &file.path)?);
    if let Some(port) = value(&netdev, "WireGuard", "ListenPort").filter(|port| port.value != "auto") {
        import.listen_port = Some(text::number(&port.value, &port.place)?);
    }
    if let Some(mark) = value(&netdev, "WireGuard", "FirewallMark") {
        import.other.push(("FwMark", mark.value.clone()));
    }
    if let Some(mtu) = value(&netdev, "NetDev", "MTUBytes") {
        import.mtu = Some(bytes(mtu)?);
    }
    match value(&netdev, "WireGuard", "RouteTable").map(|table| table.value.as_str()) {
        // Without a table networkd makes no routes to what peers have; a server has one by its own address.
        None | Some("off" | "main") => {}
        Some(table) => import.other.push(("Table", text::one_line(table))),
    }
    for section in netdev.iter().filter(|section| section.name == "WireGuardPeer") {
        import.clients.push(peer(input, section)?);
    }
    for file in input.files.iter().filter(|file| file.path.ends_with(".network")) {
        let network = with_drop_ins(input, file)?;
        if value(&network, "Match", "Name")
            .is_some_and(|matched| text::items(&matched.value).any(|name| name == import.interface))
        {
            addresses(&mut import, &network)?;
        }
    }
    let addresses = import.addresses.clone();
    import.clients.iter_mut().for_each(|client| client.settle_role(&addresses, false));
    Ok(import)
}

/// The sections of a file and of the drop-ins that belong to it.
fn with_drop_ins<'a>(input: &'a Input, file: &'a InputFile) -> Result<Vec<Section<'a>>, Error> {
    let folder = format!("{}.d/", file.path);
    let mut drop_ins: Vec<&InputFile> = input.files.iter().filter(|other| other.path.starts_with(&folder)).collect();
    drop_ins.sort_by_key(|file| &file.path);
    let mut sections = ini::sections(file, Dialect::Systemd)?;
    for drop_in in drop_ins {
        sections.extend(ini::sections(drop_in, Dialect::Systemd)?);
    }
    Ok(sections)
}

/// The last value of a setting.
fn value<'s>(sections: &'s [Section<'_>], section: &str, key: &'s str) -> Option<&'s Entry<'s>> {
    sections.iter().rev().filter(|other| other.name == section).find_map(|section| section.get(key))
}

fn server_key(input: &Input, netdev: &[Section<'_>], path: &str) -> Result<SecretKey, Error> {
    if let Some(file) = value(netdev, "WireGuard", "PrivateKeyFile") {
        return key_file(input, file);
    }
    let key =
        value(netdev, "WireGuard", "PrivateKey").ok_or_else(|| Error::at(path, "[WireGuard] has no PrivateKey"))?;
    secret(key)
}

fn secret(entry: &Entry<'_>) -> Result<SecretKey, Error> {
    if entry.value.starts_with('@') {
        return Err(Error::at(&entry.place, "the key is a credential of systemd: write it to a PrivateKeyFile first"));
    }
    text::secret_key(entry.value.as_bytes(), &entry.place)
}

fn key_file(input: &Input, entry: &Entry<'_>) -> Result<SecretKey, Error> {
    let name = entry.value.rsplit('/').next().unwrap_or_default();
    let Some(file) = input.named(name).next() else {
        return Err(Error::at(
            &entry.place,
            format!("the key is in {}: name that file, too", text::one_line(&entry.value)),
        ));
    };
    text::secret_key(&file.bytes, &file.path)
}

fn peer(input: &Input, section: &Section<'_>) -> Result<Client, Error> {
    let key = section.get("PublicKey").ok_or_else(|| Error::at(&section.place, "this peer has no PublicKey"))?;
    let mut client = Client::new("", text::public_key(&key.value, &key.place)?);
    client.preshared_key = match (section.get("PresharedKeyFile"), section.get("PresharedKey")) {
        (Some(file), _) => Some(key_file(input, file)?),
        (None, Some(key)) => Some(secret(key)?),
        (None, None) => None,
    };
    for list in section.all("AllowedIPs") {
        client.allowed_ips.extend(text::nets(&list.value, &list.place)?);
    }
    client.endpoint = section.get("Endpoint").map(|endpoint| text::one_line(&endpoint.value));
    if let Some(seconds) = section.get("PersistentKeepalive").filter(|seconds| seconds.value != "off") {
        client.keepalive = Some(text::number(&seconds.value, &seconds.place)?);
    }
    Ok(client)
}

fn addresses(import: &mut Import, network: &[Section<'_>]) -> Result<(), Error> {
    for section in network.iter().filter(|section| ["Network", "Address"].contains(&section.name)) {
        for address in section.all("Address") {
            import.addresses.push(text::net(&address.value, &address.place)?);
        }
    }
    if let Some(mtu) = value(network, "Link", "MTUBytes") {
        import.mtu = Some(bytes(mtu)?);
    }
    if value(network, "Network", "DNS").is_some() {
        import.remarks.dropped("DNS: it changed the server's own name servers while the tunnel was up");
    }
    let masquerade = value(network, "Network", "IPMasquerade").map(|entry| entry.value.as_str());
    import.masquerade = match masquerade {
        Some("both") => [true, true],
        Some("ipv4" | "yes" | "true" | "1") => [true, false],
        Some("ipv6") => [false, true],
        _ => [false, false],
    };
    let on = |key: &'static str| {
        value(network, "Network", key).is_some_and(|entry| !["no", "false", "0", "off"].contains(&&*entry.value))
    };
    if import.masquerade != [false; 2] || on("IPForward") || on("IPv4Forwarding") || on("IPv6Forwarding") {
        import.gateway = Some(Vec::new());
    }
    for section in network.iter().filter(|section| section.name == "Route") {
        let nets =
            section.all("Destination").iter().filter_map(|entry| entry.value.parse::<IpNet>().ok()).collect::<Vec<_>>();
        let routed =
            |net: &IpNet| import.clients.iter().flat_map(|client| &client.allowed_ips).any(|other| other.contains(net));
        if nets.is_empty() || !nets.iter().all(routed) {
            import.remarks.dropped(format!("the [Route] at {}: routes come from AllowedIPs", section.place));
        }
    }
    Ok(())
}

/// A number of bytes, perhaps with a suffix to the base of 1024 (systemd.network(5)).
fn bytes(entry: &Entry<'_>) -> Result<u32, Error> {
    match entry.value.strip_suffix(['K', 'k']) {
        Some(number) => Ok(text::number::<u16>(number, &entry.place).map(u32::from)? * 1024),
        None => text::number(&entry.value, &entry.place),
    }
}
