//! hwdsl2/wireguard-install and Nyr's: a file of wg-quick with `# ENDPOINT` at its top and `# BEGIN_PEER NAME` above
//! each peer. NAT is outside of the file, in a unit or in firewalld.

use super::value::Import;
use super::{Context, Error, Input, InputFile, Kind, text};

pub(super) fn read(input: &Input, context: &Context<'_>) -> Result<Import, Error> {
    let mut import = input.server_conf(None, context)?.into_import(Kind::Hwdsl2)?;
    let is_server = |file: &&InputFile| file.stem() == import.interface;
    let endpoint = input.files.iter().filter(is_server).find_map(|file| {
        let (number, host) =
            text::lines(&file.bytes).find_map(|(number, line)| Some((number, line.strip_prefix(b"# ENDPOINT ")?)))?;
        Some((String::from_utf8_lossy(host).into_owned(), format!("{}:{number}", file.path)))
    });
    if let Some((host, place)) = endpoint {
        import.set_endpoint(&host, None, &place)?;
    }
    // The script masquerades both families of the pool, in a unit or by firewalld.
    import.gateway = Some(Vec::new());
    import.masquerade = [true; 2];
    Ok(import)
}
