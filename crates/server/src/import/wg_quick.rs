//! A plain file of wg-quick, with the clients' files beside it if they are there.

use super::value::Import;
use super::{Context, Error, Input, Kind};

pub(super) fn read(input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    input.server_conf(None, context)?.into_import(Kind::WgQuick)
}
