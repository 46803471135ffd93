//! WGDashboard: files of wg-quick, a database with a table of peers for each, one of those that are disabled
//! (`NAME_restrict_access`), and one of jobs that disable or delete a peer at a time or after some traffic.

use ipnet::IpNet;
use serde::Deserialize;

use super::text::{self, Loose, Secret};
use super::value::{Client, Import, same};
use super::{Context, Error, Input, Kind, ini};

#[derive(Deserialize)]
struct Row {
    id: String,
    #[serde(default)]
    private_key: Secret,
    #[serde(default, rename = "DNS")]
    dns: Loose,
    #[serde(default)]
    endpoint_allowed_ip: Loose,
    #[serde(default)]
    name: Loose,
    #[serde(default)]
    allowed_ip: Loose,
    #[serde(default)]
    mtu: Loose,
    #[serde(default)]
    keepalive: Loose,
    #[serde(default)]
    preshared_key: Secret,
    #[serde(default)]
    notes: Loose,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Job {
    configuration: String,
    peer: String,
    field: String,
    operator: String,
    value: Loose,
    action: String,
}

pub(super) fn read(input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    let file = input.named("wg-dashboard.ini").next().ok_or_else(|| Error::new("wg-dashboard.ini is missing"))?;
    let sections = ini::sections(file, ini::Dialect::Python)?;
    let get = |section: &str, key: &str| {
        let section = sections.iter().find(|other| other.name == section)?;
        let entry = section.entries.iter().rfind(|entry| entry.key.eq_ignore_ascii_case(key))?;
        Some((entry.value.clone(), entry.place.clone())).filter(|(value, _)| !value.is_empty())
    };
    if let Some((kind, place)) = get("Database", "type").filter(|(kind, _)| kind != "sqlite") {
        return Err(Error::at(
            place,
            format!(
                "its database is {}, and only SQLite can be read: set `type = sqlite` in WGDashboard, or import its \
                 wg0.conf with --from wg-quick and the clients' files",
                text::short(&kind)
            ),
        ));
    }
    let mut import = input.server_conf(None, context)?.into_import(Kind::WgDashboard)?;
    if let Some((host, place)) = get("Peers", "remote_endpoint") {
        import.set_endpoint(&host, None, &place)?;
    }
    import.client_dns = get("Peers", "peer_global_DNS")
        .map(|(dns, _)| text::items(&dns).map(str::to_owned).collect())
        .unwrap_or_default();
    if let Some((list, place)) = get("Peers", "peer_endpoint_allowed_ip") {
        import.client_allowed_ips = text::nets(&list, &place)?;
    }
    if let Some((mtu, place)) = get("Peers", "peer_MTU") {
        import.client_mtu = Some(text::number(&mtu, &place)?);
    }
    if let Some((seconds, place)) = get("Peers", "peer_keep_alive") {
        import.client_keepalive = Some(text::number(&seconds, &place)?);
    }
    for (name, enabled) in [(import.interface.clone(), true), (format!("{}_restrict_access", import.interface), false)]
    {
        let table = input.table(&name);
        if enabled && table.is_none() {
            return Err(Error::new(format!("the table {name} is missing: name the folder db of WGDashboard, too")));
        }
        let Some(table) = table else { continue };
        for row in text::rows::<Row>(table)? {
            let place = format!("{} ({name}, {})", table.database, text::short(&row.name.0));
            peer(&mut import, row, enabled, &place)?;
        }
    }
    if let Some(table) = input.table("PeerJobs") {
        for job in text::rows::<Job>(table)? {
            apply(&mut import, &job, &table.database)?;
        }
    }
    Ok(import)
}

/// What the database says of a peer; the file has it only while it is enabled.
fn peer(import: &mut Import, row: Row, enabled: bool, place: &str) -> Result<(), Error> {
    let key = text::public_key(&row.id, place)?;
    let at = import.clients.iter().position(|client| client.public_key == key);
    let mut client = match at {
        Some(at) => import.clients.remove(at),
        None => Client::new("", key),
    };
    if enabled && at.is_none() {
        client.enabled = false;
        client.remarks.changed("it is disabled, because the tunnel's file does not have it");
    }
    client.enabled &= enabled || at.is_some();
    client.old_name = row.name.0;
    client.private_key = row.private_key.0;
    if client.allowed_ips.is_empty() && row.allowed_ip.0 != "N/A" {
        client.allowed_ips = text::nets(&row.allowed_ip.0, place)?;
    }
    client.preshared_key = client.preshared_key.or(row.preshared_key.0);
    client.add_note(&row.notes.0);
    // A peer with an endpoint may still be a client that this panel made.
    client.is_site &= client.private_key.is_none() && client.old_name.is_empty();
    client.forget_saved_endpoint(import.endpoints_are_saved);
    let own: Vec<IpNet> = text::nets(&row.endpoint_allowed_ip.0, place)?;
    client.client_allowed_ips = Some(own).filter(|own| !own.is_empty() && !same(own, &import.client_allowed_ips));
    let dns: Vec<String> = text::items(&row.dns.0).map(str::to_owned).collect();
    if dns != import.client_dns {
        client
            .remarks
            .dropped(format!("its own DNS ({}): its file keeps it, a new one gets the server's", dns.join(", ")));
    }
    if row.mtu.positive(place)? != import.client_mtu {
        client.remarks.dropped(format!("its own MTU ({}): its file keeps it", text::short(&row.mtu.0)));
    }
    if row.keepalive.positive(place)?.unwrap_or(0) != import.client_keepalive.unwrap_or(0) {
        client
            .remarks
            .dropped(format!("its own PersistentKeepalive ({}): its file keeps it", text::short(&row.keepalive.0)));
    }
    import.clients.insert(at.unwrap_or(import.clients.len()), client);
    Ok(())
}

/// A job that ends a peer becomes its expiry or its quota.
fn apply(import: &mut Import, job: &Job, place: &str) -> Result<(), Error> {
    if job.configuration != import.interface {
        return Ok(());
    }
    let key = text::public_key(&job.peer, place)?;
    let Some(client) = import.clients.iter_mut().find(|client| client.public_key == key) else { return Ok(()) };
    let what = format!("{} {} {}", text::short(&job.field), text::short(&job.operator), text::short(&job.value.0));
    let ends = matches!(&*job.action, "restrict" | "delete");
    match (&*job.field, &*job.operator) {
        ("date", "lgt") if ends => {
            let time = text::time(&job.value.0, place)?;
            client.expires = Some(client.expires.map_or(time, |other| other.min(time)));
            client.remarks.changed(format!("the job `{}` if {what} is its expiry, in UTC", text::short(&job.action)));
        }
        ("total_data", "lgt") if ends => {
            // The panel counts in units of 1024 to the power of three.
            let gigabytes = job.value.0.parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value));
            let bytes = gigabytes.ok_or_else(|| Error::at(place, "a job's amount of data is not a number"))?;
            let bytes = (bytes * 1_073_741_824.0) as u64;
            client.quota = Some(client.quota.map_or(bytes, |other| other.min(bytes)));
            client.remarks.changed(format!(
                "the job `{}` if {what} is its quota; it counts from the import",
                text::short(&job.action)
            ));
        }
        _ => client.remarks.dropped(format!("the job `{}` if {what}", text::short(&job.action))),
    }
    Ok(())
}
