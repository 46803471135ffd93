//! The store: etcd, by the JSON of its gRPC gateway (`/v3/…`; keys and values in base64, numbers as strings). What is in it is
//! [`layout`]'s; here are reads at one revision, transactions, leases and the watch.
//!
//! Each endpoint is tried in turn, and each wait has an end. Whoever calls decides when to try again.

mod http;
pub mod layout;
#[cfg(test)]
pub mod model;
mod watch;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

pub use http::Endpoint;
pub use watch::{Batch, Change, Watch};

/// Keys that are read at a time.
const PAGE: u32 = 500;

/// The most operations of a transaction, by etcd's default (`--max-txn-ops`).
pub const OPERATIONS_MAX: usize = 128;

/// The code of gRPC for a revision that is gone.
const OUT_OF_RANGE: u64 = 11;
/// The code of gRPC for a token that is not valid any more.
const UNAUTHENTICATED: u64 = 16;

/// Why the store has not done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// No endpoint answers: why, for each.
    Silent(String),
    /// The revision was compacted.
    Compacted,
    /// The token has run out.
    Unauthenticated(String),
    /// It refuses, or what it says cannot be understood.
    Refused(String),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent(why) => write!(
                f,
                "the store does not answer ({why}); is etcd running there (`etcdctl endpoint health'), and may this host \
                 reach it?"
            ),
            Self::Compacted => f.write_str("the store has forgotten the revision (compaction)"),
            Self::Unauthenticated(why) => {
                write!(f, "the store does not let us in: {why}; are user and password right?")
            }
            Self::Refused(why) => write!(f, "the store refuses: {why}"),
        }
    }
}

impl StoreError {
    /// What an answer without success says.
    fn of_answer(endpoint: &str, status: u16, text: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Refusal {
            message: String,
            error: String,
            code: u64,
        }
        // What is not JSON is what something else than etcd says, or a server of TLS to who speaks without.
        let refusal: Refusal = serde_json::from_slice(text).unwrap_or_default();
        let text: String = String::from_utf8_lossy(text).chars().take(200).collect();
        let said = [refusal.message, refusal.error, text].into_iter().find(|said| !said.is_empty()).unwrap_or_default();
        let said = said.trim();
        let hint = match said.starts_with("CommonName of client") {
            true => {
                "; with users, etcd's JSON takes only certificates without a common name: make one with -subj /O=NAME"
            }
            false => "",
        };
        let said = format!("{endpoint}: {said} (HTTP {status}){hint}");
        match refusal.code {
            OUT_OF_RANGE => Self::Compacted,
            UNAUTHENTICATED => Self::Unauthenticated(said),
            // A member that has lost the others, or is starting.
            _ if status >= 500 => Self::Silent(said),
            _ => Self::Refused(said),
        }
    }
}

/// Where the store is, and what it asks of its clients.
pub struct Access {
    /// Its members.
    pub endpoints: Vec<Endpoint>,
    /// The authority of their certificates.
    pub authority: Option<PathBuf>,
    /// Our own certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A user and its password.
    pub login: Option<(String, Zeroizing<String>)>,
}

/// A key with what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that made it.
    pub created: i64,
    /// The revision that changed it last.
    pub modified: i64,
}

/// What has to hold for a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(String),
    /// The key exists.
    Present(String),
    /// The key was last changed by this revision.
    Unchanged(String, i64),
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gives a key a value.
    Put(String, Vec<u8>),
    /// Gives a key a value for as long as a lease lives.
    PutLeased(String, Vec<u8>, i64),
    /// Removes a key.
    Delete(String),
    /// Removes all keys that begin so.
    DeleteAll(String),
}

/// All of the operations if all comparisons hold, else none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What has to hold.
    pub compares: Vec<Compare>,
    /// What is done.
    pub operations: Vec<Operation>,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it was done.
    pub is_done: bool,
    /// The revision of the store.
    pub revision: i64,
    /// What the compared keys have, if it was not.
    pub found: Vec<KeyValue>,
}

/// A client of the store.
pub struct Client {
    endpoints: Vec<Endpoint>,
    /// The one that answered last.
    current: AtomicUsize,
    tls: Option<TlsConnector>,
    login: Option<(String, Zeroizing<String>)>,
    token: Mutex<Option<Zeroizing<String>>>,
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// There is no endpoint, or a file of TLS cannot be used.
    pub fn new(access: Access) -> Result<Self, String> {
        let Access { endpoints, authority, certificate, login } = access;
        if endpoints.is_empty() {
            return Err("there is no store: name one with --store https://HOST:2379".to_owned());
        }
        let own = certificate.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let tls = match &authority {
            Some(authority) => Some(http::tls(authority, own)?),
            None if endpoints.iter().any(Endpoint::is_tls) => {
                return Err("https needs the authority of the store's certificate: add --store-ca FILE".to_owned());
            }
            None => None,
        };
        Ok(Self { endpoints, current: AtomicUsize::new(0), tls, login, token: Mutex::default() })
    }

    /// Which of the endpoints is asked: what it is told of later changes as soon as another one has to be.
    pub fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// A key, and the revision of the store.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn get(&self, key: &str) -> Result<(i64, Option<KeyValue>), StoreError> {
        let page: Page = self.call("/v3/kv/range", &json!({ "key": encoded(key) })).await?;
        Ok((page.header.revision, page.key_values()?.pop()))
    }

    /// All keys that begin with `prefix`, page by page, as they are at one revision.
    ///
    /// # Errors
    /// See [`StoreError`]; the revision may be compacted before the last page.
    pub async fn list(&self, prefix: &str) -> Result<(i64, Vec<KeyValue>), StoreError> {
        let (mut from, end) = (prefix.as_bytes().to_vec(), end_of(prefix));
        let (mut all, mut revision) = (Vec::new(), 0);
        loop {
            let (key, range_end) = (BASE64.encode(&from), BASE64.encode(&end));
            let request = json!({
                "key": key, "range_end": range_end, "limit": PAGE.to_string(), "revision": revision.to_string(),
            });
            let page: Page = self.call("/v3/kv/range", &request).await?;
            if revision == 0 {
                revision = page.header.revision;
            }
            let has_more = page.more;
            all.extend(page.key_values()?);
            let Some(last) = all.last().filter(|_| has_more) else { return Ok((revision, all)) };
            from.clone_from(&last.key);
            from.push(0);
        }
    }

    /// Does a transaction. If no answer came it may have been done.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn transact(&self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let answer: TransactionAnswer = self.call("/v3/kv/txn", &transaction.json()).await?;
        let mut found = Vec::new();
        for response in answer.responses {
            if let Some(page) = response.response_range {
                found.extend(page.key_values()?);
            }
        }
        Ok(Outcome { is_done: answer.succeeded, revision: answer.header.revision, found })
    }

    /// A lease of so many seconds.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn grant(&self, seconds: u32) -> Result<i64, StoreError> {
        let lease: Lease = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await?;
        Ok(lease.id)
    }

    /// Renews a lease; false if it is over.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, StoreError> {
        #[derive(Deserialize)]
        struct Answer {
            result: Lease,
        }
        let answer: Answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        Ok(answer.result.ttl > 0)
    }

    /// Ends a lease, and with it the keys that have it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        let _: Value = self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() })).await?;
        Ok(())
    }

    /// Watches the keys from `from` up to `end` from a revision on.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn watch(&self, from: &str, end: &[u8], revision: i64) -> Result<Watch, StoreError> {
        let request = json!({ "create_request": {
            "key": encoded(from), "range_end": BASE64.encode(end), "start_revision": revision.to_string(),
            "progress_notify": true, "fragment": true,
        }});
        Ok(Watch::new(self.post("/v3/watch", &request).await?))
    }

    async fn call<T: DeserializeOwned>(&self, path: &str, request: &Value) -> Result<T, StoreError> {
        let body = http::collect(self.post(path, request).await?).await.map_err(StoreError::Silent)?;
        serde_json::from_slice(&body).map_err(|error| not_understood(path, &error))
    }

    /// Posts to the endpoint that answered last, then to the others.
    async fn post(&self, path: &str, request: &Value) -> Result<http::Stream, StoreError> {
        let body = Bytes::from(request.to_string());
        let mut silent = Vec::new();
        for step in 0..self.endpoints.len() {
            let index = (self.current() + usize::from(step > 0)) % self.endpoints.len();
            self.current.store(index, Ordering::Relaxed);
            match self.post_to(&self.endpoints[index], path, body.clone()).await {
                Err(StoreError::Silent(why)) => silent.push(why),
                outcome => return outcome,
            }
        }
        Err(StoreError::Silent(silent.join(", ")))
    }

    async fn post_to(&self, endpoint: &Endpoint, path: &str, body: Bytes) -> Result<http::Stream, StoreError> {
        let Some(login) = &self.login else {
            return http::post(endpoint, self.tls.as_ref(), None, path, body).await;
        };
        let known = self.token.lock().ok().and_then(|token| token.clone());
        if let Some(token) = known {
            match http::post(endpoint, self.tls.as_ref(), Some(&token), path, body.clone()).await {
                Err(StoreError::Unauthenticated(_)) => {}
                outcome => return outcome,
            }
        }
        let token = self.log_in(endpoint, login).await?;
        http::post(endpoint, self.tls.as_ref(), Some(&token), path, body).await
    }

    async fn log_in(
        &self,
        endpoint: &Endpoint,
        (user, password): &(String, Zeroizing<String>),
    ) -> Result<Zeroizing<String>, StoreError> {
        #[derive(Deserialize)]
        struct Answer {
            token: String,
        }
        let path = "/v3/auth/authenticate";
        let request = Bytes::from(json!({ "name": user, "password": password.as_str() }).to_string());
        let answer = http::post(endpoint, self.tls.as_ref(), None, path, request).await?;
        let answer = http::collect(answer).await.map_err(StoreError::Silent)?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|error| not_understood(path, &error))?;
        let token = Zeroizing::new(answer.token);
        if let Ok(mut kept) = self.token.lock() {
            *kept = Some(token.clone());
        }
        Ok(token)
    }
}

impl Transaction {
    fn json(&self) -> Value {
        let compares = self.compares.iter().map(|compare| match compare {
            Compare::Absent(key) => compared(key, "CREATE", "EQUAL", "create_revision", 0),
            Compare::Present(key) => compared(key, "CREATE", "GREATER", "create_revision", 0),
            Compare::Unchanged(key, revision) => compared(key, "MOD", "EQUAL", "mod_revision", *revision),
        });
        let operations = self.operations.iter().map(|operation| match operation {
            Operation::Put(key, value) => {
                json!({ "request_put": { "key": encoded(key), "value": BASE64.encode(value) } })
            }
            Operation::PutLeased(key, value, lease) => json!({ "request_put": {
                "key": encoded(key), "value": BASE64.encode(value), "lease": lease.to_string(),
            }}),
            Operation::Delete(key) => json!({ "request_delete_range": { "key": encoded(key) } }),
            Operation::DeleteAll(prefix) => json!({ "request_delete_range": {
                "key": encoded(prefix), "range_end": BASE64.encode(end_of(prefix)),
            }}),
        });
        let reads = self.compares.iter().map(|compare| {
            let (Compare::Absent(key) | Compare::Present(key) | Compare::Unchanged(key, _)) = compare;
            json!({ "request_range": { "key": encoded(key) } })
        });
        json!({
            "compare": compares.collect::<Vec<_>>(),
            "success": operations.collect::<Vec<_>>(),
            "failure": reads.collect::<Vec<_>>(),
        })
    }
}

fn compared(key: &str, target: &str, result: &str, field: &str, revision: i64) -> Value {
    json!({ "key": encoded(key), "target": target, "result": result, field: revision.to_string() })
}

fn encoded(key: &str) -> String {
    BASE64.encode(key)
}

/// The end of the range of keys that begin with `prefix`, which ends with a character of ASCII.
pub fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn not_understood(path: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Refused(format!(
        "the answer to {path} cannot be understood: {error}; is it an etcd of version 3.4 or later?"
    ))
}

// --- answers: what is zero is left out -----------------------------------------------------------------------------

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    header: Header,
    kvs: Vec<RawKeyValue>,
    more: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawKeyValue {
    key: String,
    value: String,
    #[serde(deserialize_with = "number")]
    create_revision: i64,
    #[serde(deserialize_with = "number")]
    mod_revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TransactionAnswer {
    header: Header,
    succeeded: bool,
    responses: Vec<Response>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    response_range: Option<Page>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: i64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    ttl: i64,
}

impl Page {
    fn key_values(self) -> Result<Vec<KeyValue>, StoreError> {
        self.kvs.into_iter().map(KeyValue::try_from).collect()
    }
}

impl TryFrom<RawKeyValue> for KeyValue {
    type Error = StoreError;

    fn try_from(raw: RawKeyValue) -> Result<Self, StoreError> {
        let decode =
            |text: &str| BASE64.decode(text).map_err(|error| StoreError::Refused(format!("not base64: {error}")));
        let RawKeyValue { key, value, create_revision, mod_revision } = raw;
        Ok(Self { key: decode(&key)?, value: decode(&value)?, created: create_revision, modified: mod_revision })
    }
}

/// A number of 64 bits, which JSON has as a string.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(i64),
    }
    match Written::deserialize(from)? {
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Written::Number(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_etcd_writes_it() {
        let text = br#"{"header":{"cluster_id":"1","revision":"7"},"kvs":[{"key":"YQ==","create_revision":"2",
            "mod_revision":"5","version":"3","value":"Yg=="}],"count":"1"}"#;
        let page: Page = serde_json::from_slice(text).unwrap();
        assert_eq!(page.header.revision, 7);
        let expected = KeyValue { key: b"a".to_vec(), value: b"b".to_vec(), created: 2, modified: 5 };
        assert_eq!(page.key_values().unwrap(), [expected]);
        for hostile in ["", "{", "[]", r#"{"kvs":[{"key":7}]}"#, r#"{"header":{"revision":"x"}}"#] {
            assert!(serde_json::from_str::<Page>(hostile).is_err() || hostile == "[]", "{hostile}");
        }
        let raw = RawKeyValue { key: "%".to_owned(), ..RawKeyValue::default() };
        assert!(KeyValue::try_from(raw).is_err());
    }

    #[test]
    fn a_refusal_says_what_to_do_about_it() {
        let of = |status, text: &str| StoreError::of_answer("http://a:1", status, text.as_bytes());
        let compacted = r#"{"error":"x","message":"required revision has been compacted","code":11}"#;
        assert_eq!(of(400, compacted), StoreError::Compacted);
        assert!(matches!(of(401, r#"{"message":"invalid auth token","code":16}"#), StoreError::Unauthenticated(_)));
        assert!(matches!(of(503, r#"{"error":"no leader","code":14}"#), StoreError::Silent(_)));
        assert!(matches!(of(404, "not found"), StoreError::Refused(_)));
        assert!(of(503, "").to_string().contains("etcdctl endpoint health"));
    }

    #[test]
    fn a_transaction_reads_what_it_compares_if_it_is_not_done() {
        let transaction = Transaction {
            compares: vec![Compare::Unchanged("a".to_owned(), 5), Compare::Absent("b".to_owned())],
            operations: vec![Operation::Put("a".to_owned(), b"x".to_vec()), Operation::DeleteAll("p/".to_owned())],
        };
        let json = transaction.json();
        assert_eq!(json["compare"][0]["mod_revision"], "5");
        assert_eq!(json["compare"][1]["create_revision"], "0");
        assert_eq!(json["success"][1]["request_delete_range"]["range_end"], BASE64.encode("p0"));
        assert_eq!(json["failure"].as_array().unwrap().len(), 2);
    }
}
