//! Has a gateway follow the default routes of the host (`Gateway = auto`): there may be none yet when a host has just
//! started, and later they may be those of other interfaces.

use std::time::Duration;

use linerate_control::tunnel_file::Gateway;
use linerate_host::linux::DefaultRouteWatch;

use super::Supervisor;
use crate::error::Error;
use crate::read::ConfigFile;
use crate::reload;

impl Supervisor<'_> {
    /// Watches default routes if the gateway of `file` is that of their interfaces.
    pub(super) fn watch_default_routes(&mut self, file: &ConfigFile) {
        if file.contents.gateway != Gateway::Auto {
            self.default_routes = None;
        } else if self.default_routes.is_none() {
            self.default_routes = DefaultRouteWatch::new()
                .inspect_err(|error| {
                    let interface = self.interface;
                    self.context.warn(format_args!("{interface}: cannot follow the host's default routes: {error}"));
                })
                .ok();
            self.missed_default_routes = self.default_routes.is_some();
        }
    }

    /// Lets the gateway follow default routes that have changed.
    pub(super) fn follow_default_routes(&mut self) -> Result<(), Error> {
        let Some(routes) = &mut self.default_routes else { return Ok(()) };
        let differ = || reload::default_routes_differ(self.interface).unwrap_or(true);
        let missed = std::mem::take(&mut self.missed_default_routes) && differ();
        // Also if they are as before: an interface of the same name may be another one, which does not forward.
        if !routes.clear() && !missed {
            return Ok(());
        }
        // One is removed and another added, of both families: all of that is one change.
        self.context.interruption.pause(&[], Some(SETTLE)).map_err(Error::system("cannot wait"))?;
        routes.clear();
        if let Err(error) = reload::reload_host(self.interface, self.context) {
            self.context.message(format_args!("{}: {error}", self.interface));
        }
        Ok(())
    }
}

/// How long routes may take to be complete.
const SETTLE: Duration = Duration::from_secs(1);
