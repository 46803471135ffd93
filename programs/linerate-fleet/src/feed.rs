//! What keeps a gateway and the store together: [`follow`] lists and watches, [`keep_alive`] keeps the gateway's own key and
//! finds out whether the store answers. Each wait is bounded and grows while nothing answers.

use std::sync::Arc;
use std::time::Duration;

use linerate_cli::eprint_line;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::seal::Seal;
use crate::store::layout::{self, Applied, Gateway, Keys, LEASE};
use crate::store::{Batch, Client, Compare, KeyValue, Operation, StoreError, Transaction, end_of};

/// The first wait, and the longest.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(3)];

/// How often the lease is renewed.
const RENEWAL: Duration = Duration::from_millis(1500);

/// How long the end may wait for the store.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the store says.
pub enum Said {
    /// All that it has, at a revision.
    All(i64, Vec<KeyValue>),
    /// What has changed since.
    Changed(Batch),
}

/// Waits that grow.
struct BackOff(Duration);

impl BackOff {
    fn new() -> Self {
        Self(BACK_OFF[0])
    }

    async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(BACK_OFF[1]);
    }
}

/// Lists, then watches from the next revision on. After a compaction, which a watch cannot pass, it lists again. Ends when
/// nobody listens. A watch that stays open at an endpoint which does not answer others' questions (`moved`) is left.
pub async fn follow(client: Arc<Client>, keys: Keys, heard: mpsc::Sender<Said>, mut moved: watch::Receiver<usize>) {
    let mut back_off = BackOff::new();
    while !heard.is_closed() {
        let mut revision = match client.list(keys.all()).await {
            Ok((revision, all)) => {
                if heard.send(Said::All(revision, all)).await.is_err() {
                    return;
                }
                revision
            }
            Err(error) => {
                complain(&error);
                back_off.wait().await;
                continue;
            }
        };
        back_off = BackOff::new();
        while !heard.is_closed() {
            moved.mark_unchanged();
            match watch(&client, &keys, &mut revision, &heard, &mut moved).await {
                StoreError::Compacted => break,
                error => {
                    complain(&error);
                    back_off.wait().await;
                }
            }
        }
    }
}

/// Watches until it ends. `revision` is the last that was heard.
async fn watch(
    client: &Client,
    keys: &Keys,
    revision: &mut i64,
    heard: &mpsc::Sender<Said>,
    moved: &mut watch::Receiver<usize>,
) -> StoreError {
    let mut watch = match client.watch(&keys.watched(), &end_of(keys.all()), *revision + 1).await {
        Ok(watch) => watch,
        Err(error) => return error,
    };
    loop {
        let batch = tokio::select! {
            batch = watch.next() => batch,
            _ = moved.changed() => Err(StoreError::Silent("another endpoint is asked".to_owned())),
            () = heard.closed() => Err(StoreError::Silent("the service ends".to_owned())),
        };
        match batch {
            Ok(batch) => {
                *revision = batch.revision.max(*revision);
                if heard.send(Said::Changed(batch)).await.is_err() {
                    return StoreError::Silent("the service ends".to_owned());
                }
            }
            Err(error) => return error,
        }
    }
}

/// That nothing answers is said by who keeps the lease, once.
fn complain(error: &StoreError) {
    if !matches!(error, StoreError::Silent(_)) {
        eprint_line(&format!("linerate-fleet: {error}"));
    }
}

/// What a gateway tells the store.
pub struct Alive {
    /// Its client.
    pub client: Arc<Client>,
    /// The keys of the fleet.
    pub keys: Keys,
    /// The seal of the fleet.
    pub seal: Seal,
    /// Its number.
    pub number: u8,
    /// What it says of itself.
    pub gateway: Gateway,
    /// The revision that it follows.
    pub applied: watch::Receiver<i64>,
    /// Whether the store answers.
    pub seen: watch::Sender<bool>,
    /// Which endpoint does.
    pub moved: watch::Sender<usize>,
}

impl Alive {
    /// Keeps the gateway's key alive and its applied revision published, until `ends`.
    pub async fn keep(mut self, mut ends: watch::Receiver<bool>) {
        let (mut lease, mut back_off, mut complaint) = (None, BackOff::new(), None::<StoreError>);
        let mut published = 0;
        loop {
            let outcome = self.renew(&mut lease, &mut published).await;
            let is_moved =
                |before: &mut usize| std::mem::replace(before, self.client.current()) != self.client.current();
            self.moved.send_if_modified(is_moved);
            self.seen.send_if_modified(|seen| std::mem::replace(seen, outcome.is_ok()) != outcome.is_ok());
            let wait = async {
                match &outcome {
                    Ok(()) => {
                        back_off = BackOff::new();
                        tokio::select! {
                            () = sleep(RENEWAL) => {}
                            // At most some a second: the next ones are told together.
                            _ = self.applied.changed() => sleep(BACK_OFF[0]).await,
                        }
                    }
                    Err(_) => back_off.wait().await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = ends.wait_for(|ends| *ends) => break,
            }
            let error = outcome.err();
            if error.is_some() != complaint.is_some() {
                match &error {
                    Some(error) => eprint_line(&format!("linerate-fleet: {error} The tunnel goes on without it")),
                    None => eprint_line("linerate-fleet: the store answers again"),
                }
            }
            complaint = error;
        }
        if let Some(lease) = lease {
            let _ = timeout(LAST_WORDS, self.client.revoke(lease)).await;
        }
    }

    async fn renew(&mut self, lease: &mut Option<i64>, published: &mut i64) -> Result<(), StoreError> {
        if let Some(known) = *lease
            && !self.client.keep_alive(known).await?
        {
            *lease = None;
        }
        if lease.is_none() {
            let new = self.client.grant(LEASE).await?;
            let key = self.keys.gateway(self.number);
            let value = layout::signed(&self.seal, &key, &self.gateway);
            self.put(Operation::PutLeased(key, value, new)).await?;
            *lease = Some(new);
        }
        let applied = *self.applied.borrow_and_update();
        if applied > *published {
            let value = Applied { revision: applied, time: now() };
            self.put(layout::put(&self.seal, self.keys.applied(self.number), &value)).await?;
            *published = applied;
        }
        Ok(())
    }

    /// Only a member says anything; that it is none any more, the watch tells.
    async fn put(&self, operation: Operation) -> Result<(), StoreError> {
        let compares = vec![Compare::Present(self.keys.member(self.number))];
        self.client.transact(&Transaction { compares, operations: vec![operation] }).await.map(drop)
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}
