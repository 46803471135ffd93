//! PiVPN: a file of wg-quick with `### begin NAME ###` above each peer, `setupVars.conf`, `configs/clients.txt`, keys
//! in files. NAT is outside of the file, in rules of iptables-persistent or ufw.

use std::collections::HashMap;

use super::shell::Assignments;
use super::value::Import;
use super::{Context, Error, Input, Kind, text};

pub(super) fn read(input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    let setup = input.named("setupVars.conf").next().map(Assignments::sourced);
    let get = |name: &str| setup.as_ref().map_or(Ok(None), |setup| setup.get(name));
    if get("VPN")?.is_some_and(|(vpn, _)| vpn != "wireguard") {
        return Err(Error::new("this PiVPN is one of OpenVPN, which is another protocol"));
    }
    let device = setup.as_ref().map(|setup| setup.require("pivpnDEV")).transpose()?.map(|(device, _)| device);
    let mut import = input.server_conf(device.as_deref(), context)?.into_import(Kind::Pivpn)?;
    if let Some((host, place)) = get("pivpnHOST")? {
        let port = match get("pivpnPORT")? {
            Some((port, place)) => Some(text::number(&port, &place)?),
            None => None,
        };
        import.set_endpoint(&host, port, &place)?;
    }
    for name in ["pivpnDNS1", "pivpnDNS2", "pivpnSEARCHDOMAIN"] {
        import.client_dns.extend(get(name)?.map(|(server, _)| server));
    }
    if let Some((list, place)) = get("ALLOWED_IPS")? {
        import.client_allowed_ips = text::nets(&list, &place)?;
    }
    if let Some((seconds, place)) = get("pivpnPERSISTENTKEEPALIVE")? {
        import.client_keepalive = Some(text::number(&seconds, &place)?);
    }
    let made = made(input)?;
    for client in &mut import.clients {
        client.created = made.get(&client.public_key.to_string()).copied();
        let name = format!("{}_priv", client.old_name);
        if let Some(key) = input.named(&name).next() {
            client.private_key = Some(text::secret_key(&key.bytes, &key.path)?);
        }
    }
    import.gateway = Some(get("IPv4dev")?.map(|(device, _)| device).into_iter().collect());
    import.masquerade = [true; 2];
    Ok(import)
}

/// When each client was made, by its public key: `NAME KEY EPOCH ADDRESS`, of which old lines lack the address.
fn made(input: &Input) -> Result<HashMap<String, std::time::SystemTime>, Error> {
    let mut made = HashMap::new();
    for file in input.named("clients.txt") {
        for (number, line) in text::lines(&file.bytes).filter(|(_, line)| !line.is_empty()) {
            let place = format!("{}:{number}", file.path);
            let fields: Vec<&str> = text::utf8(line, &place)?.split(' ').collect();
            let [_, key, time, ..] = fields[..] else {
                return Err(Error::at(place, "this line has no name, key and time"));
            };
            made.insert(key.to_owned(), text::epoch(time, &place)?);
        }
    }
    Ok(made)
}
