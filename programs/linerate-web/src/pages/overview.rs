//! All tunnels.

use jiff::tz::TimeZone;
use linerate_page::Tunnel;
use maud::{Markup, html};

use super::{Traffic, Viewer, counted, page, traffic};

/// So many tunnels have a plot: the others are a link and their facts.
const MOST_PLOTS: usize = 24;

/// The page of all tunnels.
pub(crate) fn overview(viewer: &Viewer, tunnels: &[(Tunnel, Traffic)], zone: &TimeZone) -> Markup {
    page(
        "Tunnels",
        Some(viewer),
        "/",
        &html! {
            h1 { "Tunnels" }
            @if tunnels.is_empty() {
                p { "No tunnel is up. " code { "sudo linerate up wg0" } " brings one up; "
                    code { "sudo linerate server init" } " makes a server." }
            }
            div #tunnels.tunnels data-live {
                @for (index, (tunnel, of)) in tunnels.iter().enumerate() {
                    section.tunnel aria-labelledby={ "tunnel-" (tunnel.name) } {
                        h2 id={ "tunnel-" (tunnel.name) } { a href={ "/tunnels/" (tunnel.name) } { (tunnel.name) } }
                        (facts(tunnel))
                        @if index < MOST_PLOTS { (traffic(&tunnel.name, of, zone)) }
                    }
                }
            }
        },
    )
}

/// What there is to say of a tunnel in a line.
pub(super) fn facts(tunnel: &Tunnel) -> Markup {
    html! {
        @if let Some(failure) = &tunnel.failure { p.refusal { (failure) } }
        p.facts {
            span { (counted(tunnel.peers, "peer")) ", " (tunnel.online) " online" }
            @if tunnel.listen_port != 0 { span.soft { "port " (tunnel.listen_port) } }
            @if !tunnel.addresses.is_empty() { span.soft { (tunnel.addresses.join(", ")) } }
        }
    }
}
