//! The watch: what changes, as a stream of JSON, a line for each message.

use memchr::memchr;
use serde::Deserialize;
use serde_json::Value;

use super::http::Stream;
use super::{Header, KeyValue, RawKeyValue, StoreError, number};

/// The longest message in bytes: a transaction of the most operations, with room.
const LINE_MAX: usize = 64 << 20;

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Put(KeyValue),
    /// It is gone.
    Deleted(Vec<u8>),
}

/// All changes up to a revision since the last batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The revision.
    pub revision: i64,
    /// The changes in their order; none if this only tells of progress.
    pub changes: Vec<Change>,
}

/// A watch that is open.
pub struct Watch {
    stream: Stream,
    reader: Reader,
}

impl Watch {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, reader: Reader::default() }
    }

    /// The next batch.
    ///
    /// # Errors
    /// The connection or the watch has ended, or the revision to begin with was compacted.
    pub async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            if let Some(batch) = self.reader.batch()? {
                return Ok(batch);
            }
            match self.stream.next().await {
                Ok(Some(piece)) => self.reader.bytes.extend_from_slice(&piece),
                Ok(None) => return Err(StoreError::Silent("the watch has ended".to_owned())),
                Err(error) => return Err(StoreError::Silent(format!("the watch has ended: {error}"))),
            }
        }
    }
}

/// What has come of a watch, as bytes and as changes whose batch is not whole.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// The latest of them.
    revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    result: Answer,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    header: Header,
    created: bool,
    canceled: bool,
    cancel_reason: String,
    #[serde(deserialize_with = "number")]
    compact_revision: i64,
    fragment: bool,
    events: Vec<Event>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: String,
    kv: RawKeyValue,
}

impl Reader {
    /// The next batch, if it has come.
    fn batch(&mut self) -> Result<Option<Batch>, StoreError> {
        while let Some(end) = memchr(b'\n', &self.bytes) {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            if let Some(batch) = self.message(&line)? {
                return Ok(Some(batch));
            }
        }
        match self.bytes.len() > LINE_MAX {
            true => Err(StoreError::Refused("a message of the watch is too long".to_owned())),
            false => Ok(None),
        }
    }

    fn message(&mut self, line: &[u8]) -> Result<Option<Batch>, StoreError> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let message: Message = serde_json::from_slice(line)
            .map_err(|error| StoreError::Refused(format!("the watch says what cannot be understood: {error}")))?;
        if let Some(error) = message.error {
            return Err(StoreError::Silent(format!("the watch has ended: {error}")));
        }
        let answer = message.result;
        if answer.compact_revision > 0 {
            return Err(StoreError::Compacted);
        }
        if answer.canceled {
            return Err(StoreError::Silent(format!("the watch was ended: {}", answer.cancel_reason)));
        }
        for Event { r#type, kv } in answer.events {
            let kv = KeyValue::try_from(kv)?;
            self.revision = self.revision.max(kv.modified);
            self.changes.push(if r#type == "DELETE" { Change::Deleted(kv.key) } else { Change::Put(kv) });
        }
        // The revision of the first message is that of the store, whose changes may still be on their way.
        match answer.created || answer.fragment {
            true => Ok(None),
            // With changes, the header's may be one whose changes come later.
            false if self.changes.is_empty() => {
                Ok(Some(Batch { revision: answer.header.revision, changes: Vec::new() }))
            }
            false => Ok(Some(Batch { revision: self.revision, changes: std::mem::take(&mut self.changes) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Batch>, StoreError> {
        let mut reader = Reader::default();
        let mut batches = Vec::new();
        for byte in text.bytes() {
            reader.bytes.push(byte);
            batches.extend(reader.batch()?);
        }
        Ok(batches)
    }

    #[test]
    fn fragments_are_one_batch_and_a_message_may_come_in_pieces() {
        let event = |key: &str| format!(r#"{{"kv":{{"key":"{key}","mod_revision":"9","value":"Yg=="}}}}"#);
        let text = format!(
            "{}\n{}\n{}\n{}\n",
            r#"{"result":{"header":{"revision":"8"},"created":true}}"#,
            format_args!(
                r#"{{"result":{{"header":{{"revision":"9"}},"fragment":true,"events":[{}]}}}}"#,
                event("YQ==")
            ),
            r#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"Yw=="}}]}}"#,
            r#"{"result":{"header":{"revision":"12"}}}"#,
        );
        let [first, progress] = &read(&text).unwrap()[..] else { panic!("two batches") };
        assert_eq!(first.revision, 9);
        assert!(matches!(&first.changes[0], Change::Put(kv) if kv.key == b"a" && kv.value == b"b" && kv.modified == 9));
        assert_eq!(first.changes[1], Change::Deleted(b"c".to_vec()));
        assert_eq!(*progress, Batch { revision: 12, changes: Vec::new() });
    }

    #[test]
    fn the_end_of_a_watch_is_told_apart_from_compaction() {
        let compacted = r#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#;
        assert_eq!(read(&format!("{compacted}\n")), Err(StoreError::Compacted));
        let canceled = r#"{"result":{"canceled":true,"cancel_reason":"no leader"}}"#;
        assert!(matches!(read(&format!("{canceled}\n")), Err(StoreError::Silent(why)) if why.contains("no leader")));
        assert!(matches!(read("{\"error\":{\"message\":\"x\"}}\n"), Err(StoreError::Silent(_))));
        assert!(matches!(read("hello\n"), Err(StoreError::Refused(_))));
        assert_eq!(read("\n{\"resu").unwrap(), []);
    }
}
