//! NetworkManager: a keyfile of a connection of type wireguard (nm-settings-keyfile(5)).

use linerate_control::interface::InterfaceName;
use linerate_control::keys::SecretKey;

use super::ini::{self, Dialect, Section};
use super::text;
use super::value::{Client, Import};
use super::{Error, Input, Kind};

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    let mut tunnels = Vec::new();
    for file in input.files.iter().filter(|file| file.path.ends_with(".nmconnection")) {
        let sections = ini::sections(file, Dialect::Keyfile)?;
        let kind = sections.iter().find(|section| section.name == "connection").and_then(|section| section.get("type"));
        match kind.map(|kind| kind.value.clone()) {
            Some(kind) if kind == "wireguard" => tunnels.push((file, sections)),
            Some(_) => {}
            None => return Err(Error::at(&file.path, "there is no type in [connection]: is the file whole?")),
        }
    }
    let (file, sections) = match (tunnels.pop(), tunnels.len()) {
        (Some(only), 0) => only,
        (None, _) => return Err(Error::new("no connection of these has type=wireguard")),
        _ => return Err(Error::new("several tunnels are among these: import one at a time, by its file")),
    };
    let section = |name: &str| sections.iter().find(|section| section.name == name);
    let Some(wireguard) = section("wireguard") else { return Err(Error::at(&file.path, "there is no [wireguard]")) };
    let connection = section("connection");
    let name = connection.and_then(|section| section.get("interface-name")).map_or(file.stem(), |name| &name.value);
    // NetworkManager makes a name up for a connection that has none.
    let name = if name.parse::<InterfaceName>().is_ok() { name } else { "wg0" };
    let Some(private_key) = secret(wireguard, "private-key")? else {
        return Err(Error::at(&wireguard.place, "there is no private-key"));
    };
    let mut import = Import::new(Kind::NetworkManager, name, private_key);
    let positive = |key: &str| {
        wireguard.get(key).filter(|entry| entry.value != "0").map(|entry| (entry.value.clone(), entry.place.clone()))
    };
    if let Some((port, place)) = positive("listen-port") {
        import.listen_port = Some(text::number(&port, &place)?);
    }
    if let Some((mtu, place)) = positive("mtu") {
        import.mtu = Some(text::number(&mtu, &place)?);
    }
    if let Some((mark, _)) = positive("fwmark") {
        import.other.push(("FwMark", text::one_line(&mark)));
    }
    for section in &sections {
        if let Some(key) = section.name.strip_prefix("wireguard-peer.") {
            import.clients.push(peer(section, key)?);
        }
    }
    for (at, name) in ["ipv4", "ipv6"].iter().enumerate() {
        let Some(section) = section(name) else { continue };
        addresses(&mut import, section)?;
        if section.get("method").is_some_and(|method| method.value == "shared") {
            import.gateway = Some(Vec::new());
            import.masquerade[at] = true;
            import.remarks.dropped(format!("the name server and DHCP of [{name}] method=shared"));
        }
    }
    let addresses = import.addresses.clone();
    import.clients.iter_mut().for_each(|client| client.settle_role(&addresses, false));
    Ok(import)
}

/// A secret, unless it is kept elsewhere.
fn secret(section: &Section<'_>, key: &str) -> Result<Option<SecretKey>, Error> {
    let flags = format!("{key}-flags");
    let elsewhere = section.get(&flags).filter(|flags| matches!(&*flags.value, "1" | "2" | "3"));
    match (section.get(key), elsewhere) {
        (Some(entry), _) => text::secret_key(entry.value.as_bytes(), &entry.place).map(Some),
        (None, Some(flags)) => Err(Error::at(
            &flags.place,
            format!(
                "the {key} is not in this file but in a user's keyring: set {flags} to 0 in NetworkManager first",
                flags = flags.key
            ),
        )),
        (None, None) => Ok(None),
    }
}

fn peer(section: &Section<'_>, key: &str) -> Result<Client, Error> {
    let mut client = Client::new("", text::public_key(key, &section.place)?);
    client.preshared_key = secret(section, "preshared-key")?;
    if let Some(list) = section.get("allowed-ips") {
        client.allowed_ips = text::nets(&list.value, &list.place)?;
    }
    client.endpoint = section.get("endpoint").map(|endpoint| text::one_line(&endpoint.value));
    if let Some(seconds) = section.get("persistent-keepalive").filter(|seconds| seconds.value != "0") {
        client.keepalive = Some(text::number(&seconds.value, &seconds.place)?);
    }
    Ok(client)
}

/// `address1=ADDRESS/LENGTH[,GATEWAY]` and so on.
fn addresses(import: &mut Import, section: &Section<'_>) -> Result<(), Error> {
    for entry in &section.entries {
        let number = entry.key.strip_prefix("address").or_else(|| entry.key.strip_prefix("addresses"));
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            let address = entry.value.split(',').next().unwrap_or_default();
            import.addresses.push(text::net(address, &entry.place)?);
        }
        if entry.key == "dns" && !entry.value.is_empty() {
            import.remarks.dropped("DNS: it changed the server's own name servers while the tunnel was up");
        }
        if entry.key.starts_with("route") && entry.key["route".len()..].bytes().all(|byte| byte.is_ascii_digit()) {
            import.remarks.dropped(format!("the route at {}: routes come from AllowedIPs", entry.place));
        }
    }
    Ok(())
}
