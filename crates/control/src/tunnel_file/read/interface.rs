//! The settings of `[Interface]`.

use ipnet::IpNet;

use super::{Diagnostics, Located, Reader};
use crate::document::Setting;
use crate::tunnel_file::values::{self, InvalidValue, items};
use crate::tunnel_file::{ExcludeLan, Hook, Inbound, OnHookError, Phase, RouteConflict, settings};

const YES_OR_NO: [(&str, bool); 2] = [("true", true), ("false", false)];

const CONFLICTS: [(&str, RouteConflict); 4] = [
    ("skip", RouteConflict::Skip),
    ("metric", RouteConflict::Metric),
    ("replace", RouteConflict::Replace),
    ("fail", RouteConflict::Fail),
];

const EXCLUDES: [(&str, ExcludeLan); 3] =
    [("true", ExcludeLan::Always), ("false", ExcludeLan::Never), ("auto", ExcludeLan::Auto)];

const HOOK_ERRORS: [(&str, OnHookError); 2] = [("warn", OnHookError::Warn), ("abort", OnHookError::Abort)];

const INBOUND: [(&str, Inbound); 2] = [("replies", Inbound::Replies), ("all", Inbound::All)];

impl Reader<'_> {
    pub(super) fn interface_entry(&mut self, setting: &Setting, at: &Located<'_>, value: &str) {
        let Self { file, diagnostics, names, .. } = self;
        let span = at.value();
        match *setting {
            settings::PRIVATE_KEY => {
                diagnostics.store(span, values::secret_key(setting, value).map(Some), &mut file.private_key)
            }
            settings::PRIVATE_KEY_FILE => {
                diagnostics.store(span, values::key_file(value).map(Some), &mut file.private_key_file);
                self.key_file = Some(at.name());
            }
            settings::LISTEN_PORT => {
                diagnostics.store(span, values::listen_port(value, *names).map(Some), &mut file.listen_port);
            }
            settings::FWMARK => diagnostics.store(span, values::mark(value).map(Some), &mut file.fwmark),
            settings::ADDRESS => file.addresses.extend(list(at, value, values::address, diagnostics)),
            settings::DNS => self.dns(at, value),
            settings::MTU => diagnostics.store(span, values::mtu(value).map(Some), &mut file.mtu),
            settings::TABLE => diagnostics.store(span, values::table(value, *names), &mut file.table),
            settings::PRE_UP => self.hook(Phase::PreUp, value),
            settings::POST_UP => self.hook(Phase::PostUp, value),
            settings::PRE_DOWN => self.hook(Phase::PreDown, value),
            settings::POST_DOWN => self.hook(Phase::PostDown, value),
            settings::SAVE_CONFIG => {
                diagnostics.store(span, values::one_of(setting, value, &YES_OR_NO), &mut file.save_config);
            }
            settings::ROUTE_CONFLICT => {
                diagnostics.store(span, values::one_of(setting, value, &CONFLICTS), &mut file.route_conflict);
            }
            settings::KILL_SWITCH => {
                diagnostics.store(span, values::one_of(setting, value, &YES_OR_NO), &mut file.kill_switch);
            }
            settings::EXCLUDED_IPS => {
                file.excluded_ips.extend(list(at, value, values::prefix, diagnostics).iter().map(IpNet::trunc));
            }
            settings::EXCLUDE_LAN => {
                diagnostics.store(span, values::one_of(setting, value, &EXCLUDES), &mut file.exclude_lan)
            }
            settings::ON_HOOK_ERROR => {
                let found = values::one_of(setting, value, &HOOK_ERRORS);
                diagnostics.store(span, found.map(Some), &mut file.on_hook_error);
            }
            settings::USER => diagnostics.store(span, values::user(value).map(Some), &mut file.user),
            settings::SPIN => diagnostics.store(span, values::spin(value).map(Some), &mut file.spin),
            settings::PUBLIC_ENDPOINT => {
                diagnostics.store(span, values::public_endpoint(value).map(Some), &mut file.public_endpoint);
            }
            settings::GATEWAY => {
                diagnostics.store(span, values::gateway(value, &file.interface), &mut file.gateway);
            }
            settings::MASQUERADE => diagnostics.store(span, values::masquerade(value), &mut file.masquerade),
            settings::CLIENT_ISOLATION => {
                diagnostics.store(span, values::one_of(setting, value, &YES_OR_NO), &mut file.client_isolation);
            }
            settings::INBOUND => {
                diagnostics.store(span, values::one_of(setting, value, &INBOUND), &mut file.inbound);
            }
            settings::FIX_FIREWALL => {
                diagnostics.store(span, values::one_of(setting, value, &YES_OR_NO), &mut file.fix_firewall);
            }
            settings::FLEET => diagnostics.store(span, values::fleet(value).map(Some), &mut file.fleet),
            settings::POOL => {
                file.clients.pool = list(at, value, values::prefix, diagnostics).iter().map(IpNet::trunc).collect();
            }
            settings::CLIENT_DNS => {
                for (offset, word) in items(value, true).filter(|(_, word)| !word.is_empty()) {
                    if let Some(word) = diagnostics.check(at.inside(offset), values::dns_word(word)) {
                        file.clients.dns.push(word);
                    }
                }
            }
            settings::CLIENT_ALLOWED_IPS => {
                let prefixes = list(at, value, values::prefix, diagnostics);
                file.clients.allowed_ips.extend(prefixes.iter().map(IpNet::trunc));
            }
            settings::CLIENT_MTU => diagnostics.store(span, values::mtu(value).map(Some), &mut file.clients.mtu),
            settings::CLIENT_KEEPALIVE => {
                diagnostics.store(span, values::interval(value).map(Some), &mut file.clients.keepalive);
            }
            settings::RELEASED => {
                if let Some(released) = diagnostics.check(span, values::released(value)) {
                    file.clients.released.push(released);
                }
            }
            _ => {}
        }
    }

    fn dns(&mut self, at: &Located<'_>, value: &str) {
        for (offset, word) in items(value, true).filter(|(_, word)| !word.is_empty()) {
            let taken = if values::looks_like_server(word) {
                values::server(word).map(|server| self.file.dns_servers.push(server))
            } else {
                values::search_domain(word).map(|domain| self.file.search_domains.push(domain))
            };
            // A tunnel works without name servers.
            if let Err(InvalidValue { message, hint }) = taken {
                self.diagnostics.warn(at.inside(offset), format!("{message} and is ignored"), hint);
            }
        }
    }

    fn hook(&mut self, phase: Phase, value: &str) {
        let command = value.replace("%i", self.file.interface.as_str());
        self.file.hooks.push(Hook { phase, command });
    }
}

/// The prefixes of a list, separated by commas or white space.
pub(super) fn list(
    at: &Located<'_>,
    value: &str,
    read: fn(&str) -> Result<IpNet, InvalidValue>,
    diagnostics: &mut Diagnostics,
) -> Vec<IpNet> {
    let items = items(value, true).filter(|(_, item)| !item.is_empty());
    items.filter_map(|(offset, item)| diagnostics.check(at.inside(offset), read(item))).collect()
}
