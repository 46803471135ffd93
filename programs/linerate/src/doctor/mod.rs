//! `linerate doctor`: examines tunnels and says what is wrong, why, and what mends it.
//!
//! The rules are those of `linerate_doctor`; here the evidence is gathered: from the daemons, the kernel's netlink, /proc
//! and /sys, `nft`, and by echo requests through the tunnels. Nothing is changed.

mod bundle;
mod confinement;
mod echo;
mod gather;
mod machine;
mod network;
mod process;
mod protection;
mod render;
mod supervisor;

use std::path::PathBuf;
use std::process::ExitCode;

use linerate_cli::{eprint_line, print};
use linerate_control::interface::InterfaceName;
use linerate_doctor::{Finding, Severity};
use linerate_tunnel::status::status;
use serde::Serialize;

use self::gather::Examination;

#[derive(clap::Args)]
pub(super) struct DoctorArguments {
    /// Tunnel to examine (default: all)
    #[arg(value_name = "NAME")]
    interface: Option<InterfaceName>,

    /// Check only the protection of tunnels and this host: confinement of daemons, firewall and routes
    #[arg(long, conflicts_with_all = ["bundle", "no_probe"])]
    security: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,

    /// Send nothing through the tunnels: find only what can be read
    #[arg(long)]
    no_probe: bool,

    /// Write an archive for a bug report to FILE, without keys: findings, states, counters, files, network
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "linerate-bundle.tar.gz")]
    bundle: Option<PathBuf>,

    /// With --bundle: keep the names of peers, of endpoints and of this host
    #[arg(long, requires = "bundle")]
    names: bool,
}

/// The process of a tunnel's daemon, if it is of this PID namespace.
pub(crate) fn daemon(tunnel: &str) -> Option<u32> {
    gather::daemon(tunnel)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    tunnels: Vec<&'a str>,
    findings: Vec<&'a Finding>,
}

/// Examines the tunnels and prints the findings. Exits with 1 if one is an error, or a tunnel cannot be examined.
pub(super) fn main(arguments: &DoctorArguments) -> Result<ExitCode, String> {
    let named = arguments.interface.as_ref();
    if arguments.security {
        return confinement::main(named, arguments.json);
    }
    let all = status(named.map(InterfaceName::as_str)).map_err(|error| error.to_string())?;
    let mut failed = false;
    let mut examinations = Vec::new();
    for outcome in gather::examine_all(&all, !arguments.no_probe) {
        match outcome {
            Ok(examination) => examinations.push(examination),
            Err(error) if named.is_some() => return Err(error),
            Err(error) => {
                failed = true;
                eprint_line(&format!("linerate: {error}"));
            }
        }
    }
    if let Some(file) = &arguments.bundle {
        bundle::write(file, &examinations, &all, arguments.names)?;
    } else if arguments.json {
        print_json(&examinations)?;
    } else if all.is_empty() {
        eprint_line("there are no tunnels; `linerate up NAME` brings one up");
    } else {
        print(render::text(&examinations).as_bytes())?;
    }
    let mut findings = examinations.iter().flat_map(|examination| &examination.findings);
    failed |= findings.any(|finding| finding.severity == Severity::Error);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_json(examinations: &[Examination]) -> Result<ExitCode, String> {
    print(&json(examinations)?)
}

fn json(examinations: &[Examination]) -> Result<Vec<u8>, String> {
    let report = Report {
        tunnels: examinations.iter().map(|examination| examination.name.as_str()).collect(),
        findings: examinations.iter().flat_map(|examination| &examination.findings).collect(),
    };
    let mut text = serde_json::to_vec_pretty(&report).map_err(|error| format!("cannot write JSON: {error}"))?;
    text.push(b'\n');
    Ok(text)
}
