//! Requests with an `Idempotency-Key`. Key and response are written in the transaction that does the work.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;
use zeroize::Zeroizing;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::AppId;
use bellwire_vault::{IDEMPOTENT_RESPONSE, Purpose, Unopenable, Vault};

/// Scope of an idempotency key. The same text in another scope is another key.
#[derive(Debug, Clone, Copy)]
pub struct KeyScope<'a> {
    /// Id of the API key or teammate. Nil: the command line.
    pub caller: Uuid,
    /// App in the path. `None`: the path has no app.
    pub app: Option<AppId>,
    /// Method and route of the request.
    pub route: &'a str,
}

/// A request with an idempotency key. The database stores only HMACs of key and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRequest {
    /// App in the path. Nil: the path has no app.
    app: Uuid,
    id: Uuid,
    fingerprint: [u8; 32],
}

impl KeyedRequest {
    /// Builds the identity of a request. `parts` are its contents, which a repeat must have unchanged.
    pub fn new(vault: &Vault, scope: KeyScope<'_>, key: &str, parts: &[&[u8]]) -> Self {
        let app = scope.app.map_or(Uuid::nil(), |app| app.0);
        let scope: [&[u8]; 3] = [scope.caller.as_bytes(), app.as_bytes(), scope.route.as_bytes()];
        let name = vault.mac(Purpose::IdempotencyKey, &[&scope[..], &[key.as_bytes()]].concat());
        let fingerprint = vault.mac(Purpose::IdempotencyKey, &[&[&name[..]], parts].concat());
        let id = Uuid::from_bytes(*name.first_chunk().expect("32 octets"));
        Self { app, id, fingerprint }
    }

    /// Returns an id computed from caller, app, route and key.
    pub fn id(&self) -> Uuid {
        self.id
    }
}

/// Result of claiming an idempotency key.
#[derive(Debug)]
pub enum Claim {
    /// No request used the key: do the work, then [`store`] the response or [`release`] the key before the commit.
    First,
    /// The same request has a stored response.
    Answered(StoredResponse),
    /// The key was used for another request.
    OtherRequest,
    /// The first request is still running.
    InProgress,
}

/// Response to the first request with a key.
#[derive(Debug)]
pub struct StoredResponse {
    id: Uuid,
    status: i16,
    sealed: Vec<u8>,
}

impl StoredResponse {
    /// Decrypts status and body.
    pub fn open(&self, vault: &Vault) -> Result<(i16, Zeroizing<Vec<u8>>), Unopenable> {
        Ok((self.status, Zeroizing::new(vault.open(IDEMPOTENT_RESPONSE, self.id, &self.sealed)?)))
    }
}

/// Returns the claim of a used key. `None`: the key is unused, or its first request is still running.
pub async fn find(executor: impl PgExecutor<'_>, request: &KeyedRequest) -> sqlx::Result<Option<Claim>> {
    Ok(find_all(executor, &[request]).await?.remove(&request.id))
}

async fn find_all(executor: impl PgExecutor<'_>, requests: &[&KeyedRequest]) -> sqlx::Result<HashMap<Uuid, Claim>> {
    let (apps, ids): (Vec<_>, Vec<_>) = requests.iter().map(|request| (request.app, request.id)).unzip();
    let rows = fetch_all!(
        executor,
        "SELECT i.id, i.fingerprint, i.status, i.response FROM unnest($1::uuid[], $2::uuid[]) AS t (app, id)
         JOIN idempotency_keys i ON i.app = t.app AND i.id = t.id",
        (&apps, &ids)
    )?;
    let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
    let claims = requests.iter().filter_map(|request| {
        let row = rows.remove(&request.id)?;
        let claim = match row.fingerprint == request.fingerprint {
            true => Claim::Answered(StoredResponse { id: row.id, status: row.status, sealed: row.response }),
            false => Claim::OtherRequest,
        };
        Some((request.id, claim))
    });
    Ok(claims.collect())
}

/// Claims keys, each at most once, in the transaction that does the work. Waits for a key claimed by another transaction: after
/// its commit the response is found, after its rollback this request is the first. `None`: a wait took longer than `patience`,
/// and the transaction has failed.
pub async fn claim(
    conn: &mut PgConnection, requests: &[&KeyedRequest], patience: Duration, now: Timestamp,
) -> sqlx::Result<Option<Vec<Claim>>> {
    let patience = crate::milliseconds(patience);
    fetch_one!(&mut *conn, scalar, "SELECT set_config('lock_timeout', $1, true)", (patience))?;
    match claim_each(&mut *conn, requests, Wait::InTurn, now).await {
        Ok(claims) => {
            // Patience is for the keys alone: later statements wait as without a key.
            fetch_one!(conn, scalar, "SELECT set_config('lock_timeout', $1, true)", ("0"))?;
            Ok(Some(claims))
        }
        Err(error) if crate::is_lock_timeout(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Claims keys without waiting: a key claimed by another transaction is [`Claim::InProgress`].
pub async fn claim_free(
    conn: &mut PgConnection, requests: &[&KeyedRequest], now: Timestamp,
) -> sqlx::Result<Vec<Claim>> {
    claim_each(conn, requests, Wait::Never, now).await
}

/// Treatment of a key that another transaction has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    InTurn,
    Never,
}

/// Claims keys under advisory locks until the end of the transaction, because an uncommitted row can only be waited for. To
/// prevent deadlocks, the locks are taken in order of id.
async fn claim_each(
    conn: &mut PgConnection, requests: &[&KeyedRequest], wait: Wait, now: Timestamp,
) -> sqlx::Result<Vec<Claim>> {
    let mut sorted = requests.to_vec();
    sorted.sort_unstable_by_key(|request| request.id);
    let (apps, ids, fingerprints): (Vec<_>, Vec<_>, Vec<_>) =
        sorted.iter().map(|request| (request.app, request.id, &request.fingerprint[..])).collect();
    let first = fetch_all!(
        &mut *conn,
        scalar,
        "INSERT INTO idempotency_keys (app, id, fingerprint, status, response, created_at)
         SELECT t.app, t.id, t.fingerprint, 0, '', $4
         FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS t (app, id, fingerprint),
           LATERAL (SELECT hashtextextended('bellwire.idempotency_keys ' || t.id::text, 0)) AS lock (id)
         WHERE CASE WHEN $5 THEN pg_advisory_xact_lock(lock.id) IS NOT NULL ELSE pg_try_advisory_xact_lock(lock.id) END
         ON CONFLICT (app, id) DO NOTHING RETURNING id",
        (&apps, &ids, &fingerprints as &[&[u8]], now, wait == Wait::InTurn)
    )?;
    let first: HashSet<Uuid> = first.into_iter().collect();
    let mut used = match first.len() < requests.len() {
        true => find_all(conn, requests).await?,
        false => HashMap::new(),
    };
    let claims = requests.iter().map(|request| match first.contains(&request.id) {
        true => Claim::First,
        // Not found: claimed by another transaction, or deleted by retention since the first statement. The caller may retry.
        false => used.remove(&request.id).unwrap_or(Claim::InProgress),
    });
    Ok(claims.collect())
}

/// Locks a key for the life of the connection, without a transaction. [`claim`] then succeeds only on this connection. Returns
/// `false` if another request holds the key for longer than `patience`.
pub async fn hold(conn: &mut PgConnection, request: &KeyedRequest, patience: Duration) -> sqlx::Result<bool> {
    let patience = crate::milliseconds(patience);
    fetch_one!(&mut *conn, scalar, "SELECT set_config('lock_timeout', $1, false)", (patience))?;
    let lock = query!(
        "SELECT pg_advisory_lock(hashtextextended('bellwire.idempotency_keys ' || $1::uuid::text, 0))",
        (request.id)
    );
    match lock.execute(conn).await {
        Ok(_) => Ok(true),
        Err(error) if crate::is_lock_timeout(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Stores responses with the same status to claimed requests.
pub async fn store<B: AsRef<[u8]>>(
    conn: &mut PgConnection, vault: &Vault, responses: &[(&KeyedRequest, B)], status: i16,
) -> sqlx::Result<()> {
    if responses.is_empty() {
        return Ok(());
    }
    let seal = |(request, body): &(&KeyedRequest, B)| {
        (request.app, request.id, vault.seal(IDEMPOTENT_RESPONSE, request.id, body.as_ref()))
    };
    let (apps, ids, sealed): (Vec<_>, Vec<_>, Vec<_>) = responses.iter().map(seal).collect();
    execute!(
        conn,
        "UPDATE idempotency_keys i SET status = $4, response = t.response
         FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS t (app, id, response)
         WHERE i.app = t.app AND i.id = t.id",
        (&apps, &ids, &sealed, status)
    )
}

/// Deletes claims of refused requests. Their keys are unused again.
pub async fn release(conn: &mut PgConnection, requests: &[&KeyedRequest]) -> sqlx::Result<()> {
    if requests.is_empty() {
        return Ok(());
    }
    let (apps, ids): (Vec<_>, Vec<_>) = requests.iter().map(|request| (request.app, request.id)).unzip();
    execute!(
        conn,
        "DELETE FROM idempotency_keys i USING unnest($1::uuid[], $2::uuid[]) AS t (app, id)
         WHERE i.app = t.app AND i.id = t.id",
        (&apps, &ids)
    )
}
