//! angristan/wireguard-install: `params`, and a file of wg-quick with `### Client NAME` above each peer.

use super::shell::Assignments;
use super::value::Import;
use super::{Context, Error, Input, Kind, text};

pub(super) fn read(input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    let Some(params) = input.named("params").next() else {
        let import = input.server_conf(None, context)?.into_import(Kind::Angristan)?;
        return Ok(import);
    };
    let params = Assignments::sourced(params);
    let (interface, _) = params.require("SERVER_WG_NIC")?;
    let mut import = input.server_conf(Some(&interface), context)?.into_import(Kind::Angristan)?;
    let port = match params.get("SERVER_PORT")? {
        Some((port, place)) => Some(text::number(&port, &place)?),
        None => None,
    };
    let (host, place) = params.require("SERVER_PUB_IP")?;
    import.set_endpoint(&host, port, &place)?;
    for name in ["CLIENT_DNS_1", "CLIENT_DNS_2"] {
        import.client_dns.extend(params.get(name)?.map(|(server, _)| server));
    }
    import.client_dns.dedup();
    if let Some((list, place)) = params.get("ALLOWED_IPS")? {
        import.client_allowed_ips = text::nets(&list, &place)?;
    }
    Ok(import)
}
