//! A plain file of wg-quick, with the clients' files beside it if they are there.

use super::value::Import;
use super::{Error, Input, Kind};

pub(super) fn read(input: &Input) -> Result<Import, Error> {
    input.server_conf(None)?.into_import(Kind::WgQuick)
}
