//! A change of clients, by `linerate client` in a process of its own: the same code, the same words of refusal, and a
//! signal ends only that.

use std::process::{Command, ExitStatus, Stdio};

use linerate_page::{Change, Reply};
use linerate_server::ClientName;
use serde_json::Value;
use zeroize::Zeroizing;

/// Makes the change on the server `tunnel`.
pub(super) fn change(tunnel: &str, change: &Change) -> Reply {
    let arguments = match arguments(tunnel, change) {
        Ok(arguments) => arguments,
        Err(message) => return Reply::Refused { message },
    };
    let output = match run(&arguments) {
        Ok(output) => output,
        Err(message) => return Reply::Refused { message },
    };
    match (change, file(&output.printed)) {
        // Even if the command fails because the running tunnel does not follow: the client is in the server's file.
        (Change::Add { .. }, Some((file_name, text))) => Reply::File { file_name, text, notes: output.said },
        (Change::Add { .. }, None) if output.status.success() => {
            Reply::Refused { message: "the client was added, and its file was not understood".to_owned() }
        }
        _ if output.status.success() => Reply::Done,
        _ => Reply::Refused { message: output.refusal() },
    }
}

/// The result of a command of this program.
pub(super) struct Output {
    status: ExitStatus,
    printed: Zeroizing<Vec<u8>>,
    /// Its sentences on standard error.
    said: Vec<String>,
}

impl Output {
    fn refusal(&self) -> String {
        if self.said.is_empty() {
            return format!("linerate {}", self.status);
        }
        self.said.join(" ").trim_start_matches("error: ").to_owned()
    }
}

/// Runs this program.
fn run(arguments: &[String]) -> Result<Output, String> {
    let failed = |error| format!("cannot run linerate: {error}");
    let output = Command::new("/proc/self/exe").args(arguments).stdin(Stdio::null()).output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(|line| line.strip_prefix("linerate: ").unwrap_or(line).trim());
    // After its error, clap says how the command is used: this is no command line for the reader.
    let lines = lines.take_while(|line| !line.starts_with("Usage:")).filter(|line| !line.is_empty());
    let said = lines.map(str::to_owned).collect();
    Ok(Output { status: output.status, printed: Zeroizing::new(output.stdout), said })
}

/// Returns the name and the text of the added client's file.
fn file(output: &[u8]) -> Option<(String, Zeroizing<String>)> {
    let mut added: Value = serde_json::from_slice(output).ok()?;
    let added = added.get_mut(0)?;
    match (added.get_mut("fileName")?.take(), added.get_mut("file")?.take()) {
        (Value::String(file_name), Value::String(text)) => Some((file_name, Zeroizing::new(text))),
        _ => None,
    }
}

/// The command line. Values are in one word with their option, so that none of them is taken for an option.
fn arguments(tunnel: &str, change: &Change) -> Result<Vec<String>, String> {
    let (verb, options, names): (&str, Vec<String>, Vec<&str>) = match change {
        Change::Add { name, expires, quota, rate, monthly, note, split, keep_key } => {
            let given = |option: &str, value: &str| (!value.is_empty()).then(|| format!("--{option}={value}"));
            let options = [
                given("expires", expires),
                given("quota", quota),
                given("rate", rate),
                monthly.then(|| "--reset=monthly".to_owned()),
                given("note", note),
                split.then(|| "--split".to_owned()),
                keep_key.then(|| "--keep-key".to_owned()),
            ];
            ("add", options.into_iter().flatten().collect(), vec![name])
        }
        Change::Disable { client } => ("disable", vec![], vec![client]),
        Change::Enable { client } => ("enable", vec![], vec![client]),
        Change::Renew { client, expires } => ("renew", vec![format!("--expires={expires}")], vec![client]),
        Change::Rename { client, name } => ("rename", vec![], vec![client, name]),
        Change::Set { client, quota, rate, monthly, note } => {
            let reset = if *monthly { "monthly" } else { "never" };
            let [quota, rate] = [quota, rate].map(|text| if text.is_empty() { "none" } else { text });
            (
                "set",
                vec![
                    format!("--quota={quota}"),
                    format!("--rate={rate}"),
                    format!("--reset={reset}"),
                    format!("--note={note}"),
                ],
                vec![client],
            )
        }
        Change::Remove { client } => ("remove", vec![], vec![client]),
    };
    let names = names.into_iter().map(|name| name.parse().map_err(|error| format!("{error}")));
    let names: Vec<ClientName> = names.collect::<Result<_, String>>()?;
    let words = ["client".to_owned(), verb.to_owned(), format!("--server={tunnel}"), "--json".to_owned()];
    Ok(words
        .into_iter()
        .chain(options)
        .chain(["--".to_owned()])
        .chain(names.iter().map(ClientName::to_string))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_an_option_and_a_name_is_a_clients_name() {
        let renew = |client: &str, expires: &str| Change::Renew { client: client.into(), expires: expires.into() };
        let words = arguments("wg0", &renew("phone", "--output=/etc/shadow")).unwrap();
        assert_eq!(
            words,
            ["client", "renew", "--server=wg0", "--json", "--expires=--output=/etc/shadow", "--", "phone"]
        );
        for name in ["--json", "../x", "a b", "$(id)", "家"] {
            let words = arguments("wg0", &renew(name, "1d")).unwrap();
            assert_eq!(words[words.len() - 2..], ["--", name]);
        }
        for name in ["", "a\nb", "a\u{202e}b"] {
            assert!(arguments("wg0", &renew(name, "1d")).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_is_left_empty_is_not_given_to_a_new_client() {
        let add = Change::Add {
            name: "phone".into(),
            expires: String::new(),
            quota: String::new(),
            rate: String::new(),
            monthly: false,
            note: String::new(),
            split: false,
            keep_key: true,
        };
        let words = arguments("wg0", &add).unwrap();
        assert_eq!(words, ["client", "add", "--server=wg0", "--json", "--keep-key", "--", "phone"]);
    }
}
