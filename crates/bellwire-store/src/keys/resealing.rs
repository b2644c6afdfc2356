//! Encrypts stored values again with the current seal key. Values with a short life (content of messages, webhook requests,
//! responses under idempotency keys, retry tokens, cookies) are omitted: they are deleted in time.

use serde::Serialize;
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_vault::{
    ADDRESS, Column, IDENTITY_SECRET, PASSWORD, PLAN, PROPERTIES, TEMPLATE, VAPID_PRIVATE, Vault, WEBHOOK_SECRET,
    WEBHOOK_URL,
};

/// Rows read per statement.
const CHUNK: i64 = 500;

/// A column of encrypted values. The `id` of its row is authenticated with each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedColumn {
    place: Column,
    table: &'static str,
    column: &'static str,
}

impl SealedColumn {
    fn is_sharded(self) -> bool {
        self.table == "subscriptions"
    }
}

pub const SEALED: [SealedColumn; 10] = [
    SealedColumn { place: VAPID_PRIVATE, table: "vapid_keys", column: "private_key" },
    SealedColumn { place: IDENTITY_SECRET, table: "identity_keys", column: "secret" },
    SealedColumn { place: WEBHOOK_URL, table: "webhooks", column: "url" },
    SealedColumn { place: WEBHOOK_SECRET, table: "webhooks", column: "secret" },
    SealedColumn { place: WEBHOOK_SECRET, table: "webhooks", column: "former_secret" },
    SealedColumn { place: PASSWORD, table: "teammates", column: "password_sealed" },
    SealedColumn { place: TEMPLATE, table: "templates", column: "content" },
    SealedColumn { place: PLAN, table: "campaigns", column: "plan" },
    SealedColumn { place: PROPERTIES, table: "user_events", column: "properties" },
    SealedColumn { place: ADDRESS, table: "subscriptions", column: "address" },
];

/// Position in a column: after this row. Subscriptions are in 64 shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResealCursor {
    shard: i16,
    id: Uuid,
}

impl ResealCursor {
    pub const START: Self = Self { shard: 0, id: Uuid::nil() };
}

/// Encrypts a chunk of a column again. Returns the next position; `None` at the end. Values that change meanwhile are encrypted
/// with the new key by their writers.
pub async fn reseal(
    pool: &PgPool, vault: &Vault, of: SealedColumn, after: ResealCursor,
) -> sqlx::Result<Option<ResealCursor>> {
    let SealedColumn { place, table, column } = of;
    let (shard, key) = if of.is_sharded() { ("shard", "(shard, id) > ($1, $2)") } else { ("$1::smallint", "id > $2") };
    let select =
        format!("SELECT {shard} AS shard, id, {column} AS sealed FROM {table} WHERE {key} ORDER BY 1, id LIMIT $3");
    let rows = sqlx::query(AssertSqlSafe(select)).bind(after.shard).bind(after.id).bind(CHUNK).fetch_all(pool).await?;
    let number = vault.seal_keys().1.to_be_bytes();
    let (mut shards, mut ids, mut before, mut anew) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for row in &rows {
        let (shard, id): (i16, Uuid) = (row.try_get("shard")?, row.try_get("id")?);
        last = Some(ResealCursor { shard, id });
        let Some(sealed) = row.try_get::<Option<Vec<u8>>, _>("sealed")? else { continue };
        if sealed.starts_with(&number) {
            continue;
        }
        match vault.open(place, id, &sealed) {
            Ok(plain) => {
                let plain = zeroize::Zeroizing::new(plain);
                anew.push(vault.seal(place, id, &plain));
                shards.push(shard);
                ids.push(id);
                before.push(sealed);
            }
            // It stays unchanged: its readers report the error.
            Err(error) => tracing::warn!(%error, table, "a value cannot be sealed anew"),
        }
    }
    if !ids.is_empty() {
        let by_shard = if of.is_sharded() { "t.shard = n.shard AND" } else { "" };
        let update = format!(
            "UPDATE {table} t SET {column} = n.anew FROM unnest($1::smallint[], $2::uuid[], $3::bytea[], $4::bytea[])
               AS n (shard, id, before, anew)
             WHERE {by_shard} t.id = n.id AND t.{column} = n.before"
        );
        let update = sqlx::query(AssertSqlSafe(update)).bind(shards).bind(ids).bind(before).bind(anew);
        update.execute(pool).await?;
    }
    Ok(last.filter(|_| i64::try_from(rows.len()) == Ok(CHUNK)))
}

/// Returns the number of the current seal key if values under earlier keys remain.
pub async fn due(pool: &PgPool, now: Timestamp) -> sqlx::Result<Option<i16>> {
    fetch_optional!(
        pool,
        scalar,
        "SELECT number FROM data_keys
         WHERE purpose = 'seal' AND seals_from <= $1 AND resealed_at IS NULL
           AND number = (SELECT max(number) FROM data_keys WHERE purpose = 'seal')",
        (now)
    )
}

/// Records that no permanent value is encrypted with earlier keys.
pub async fn done(pool: &PgPool, number: i16, now: Timestamp) -> sqlx::Result<()> {
    execute!(pool, "UPDATE data_keys SET resealed_at = $2 WHERE number = $1", (number, now))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SealKey {
    pub number: i32,
    pub seals_from: Timestamp,
    /// Time since which no permanent value is encrypted with earlier keys. Null: some may be, or no earlier key exists.
    pub resealed_at: Option<Timestamp>,
    /// Number of permanent values encrypted with this key.
    pub sealed: i64,
    /// Number of values ever encrypted with this key. At most 2^32 are safe.
    pub sealed_values: i64,
}

/// Returns all seal keys, the newest last, with the number of values encrypted with each. Reads every encrypted value.
pub async fn seal_keys(pool: &PgPool) -> sqlx::Result<Vec<SealKey>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT number::integer AS "number!", coalesce(seals_from, created_at) AS "seals_from!", resealed_at, sealed_values FROM data_keys
           WHERE purpose = 'seal' ORDER BY number"#
    )?;
    let mut keys: Vec<_> = rows
        .into_iter()
        .map(|row| SealKey {
            number: row.number,
            seals_from: row.seals_from,
            resealed_at: row.resealed_at,
            sealed: 0,
            sealed_values: row.sealed_values,
        })
        .collect();
    for SealedColumn { table, column, .. } in SEALED {
        let counts = format!(
            "SELECT get_byte({column}, 0) * 256 + get_byte({column}, 1) AS number, count(*) AS n FROM {table}
             WHERE length({column}) > 1 GROUP BY 1"
        );
        for row in sqlx::query(AssertSqlSafe(counts)).fetch_all(pool).await? {
            let (number, n): (i32, i64) = (row.try_get("number")?, row.try_get("n")?);
            keys.iter_mut().filter(|key| key.number == number).for_each(|key| key.sealed += n);
        }
    }
    Ok(keys)
}
