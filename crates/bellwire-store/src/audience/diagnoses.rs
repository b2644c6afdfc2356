//! Diagnoses: findings of a browser and the server about a subscription, which support staff look up by a code.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgPool};

use crate::audience::subscriptions::row::{Right, lock};
use crate::transactions;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_vault::Vault;

/// Time for which a diagnosis is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Maximum diagnoses of a subscription. Older ones are deleted.
const KEPT_MAX: i64 = 10;
/// Maximum diagnoses that a subscription can begin within [`WINDOW`]. Each sends a notification and searches deliveries.
const BEGUN_MAX: usize = 3;
const WINDOW: Duration = Duration::from_secs(600);

/// Digits of Crockford's base32, which omits ambiguous letters.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CODE_LEN: usize = 8;

/// Code of a diagnosis: 40 random bits, which people read aloud and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnosisCode(pub String);

impl DiagnosisCode {
    /// Encodes the lowest 40 bits.
    pub fn from_bits(bits: u64) -> Self {
        Self((0..CODE_LEN).map(|n| char::from(DIGITS[(bits >> (5 * n)) as usize & 31])).collect())
    }
}

impl std::str::FromStr for DiagnosisCode {
    type Err = &'static str;

    /// Parses a code in either case, with spaces and hyphens, O for 0, and I or L for 1.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digit = |c: char| match c.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            c => c,
        };
        let code: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).map(digit).take(CODE_LEN + 1).collect();
        let fits = code.len() == CODE_LEN && code.bytes().all(|digit| DIGITS.contains(&digit));
        if fits { Ok(Self(code)) } else { Err("must be 8 digits and letters, as the browser showed them") }
    }
}

/// Result of [`begin`].
#[derive(Debug)]
pub enum Begun {
    Done,
    /// The subscription does not exist, or the caller may not act for it.
    Unknown,
    /// The subscription has begun too many recently. The next can begin at this time.
    TooMany(Timestamp),
}

/// Begins a diagnosis of a subscription, with a new code.
pub async fn begin(
    pool: &PgPool, vault: &Vault, (app, id): (AppId, SubscriptionId), right: Right<'_>, code: &DiagnosisCode,
    now: Timestamp,
) -> sqlx::Result<Begun> {
    let mut tx = transactions::begin(pool).await?;
    // The lock also keeps the count exact while several requests come at once.
    if lock(&mut tx, app, id).await?.is_none_or(|row| !right.covers(vault, &row)) {
        return Ok(Begun::Unknown);
    }
    let begun: Vec<Timestamp> = fetch_all!(
        &mut *tx,
        scalar,
        "SELECT created_at FROM diagnoses WHERE subscription = $1 AND created_at > $2 ORDER BY created_at",
        (id.0, now - WINDOW)
    )?;
    if let Some(at) = begun.len().checked_sub(BEGUN_MAX).map(|n| begun[n]) {
        return Ok(Begun::TooMany(at + WINDOW));
    }
    execute!(
        &mut *tx,
        "DELETE FROM diagnoses WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM diagnoses WHERE subscription = $1 ORDER BY created_at DESC OFFSET $2))",
        (id.0, KEPT_MAX - 1)
    )?;
    execute!(
        &mut *tx,
        "INSERT INTO diagnoses (app, code, subscription, created_at) VALUES ($1, $2, $3, $4)",
        (app.0, code.0, id.0, now)
    )?;
    tx.commit().await?;
    Ok(Begun::Done)
}

/// Adds the server's data and the id of the test notification, before that is sent.
pub async fn add_server_view(
    pool: &PgPool, app: AppId, code: &DiagnosisCode, server: &Value, message: Option<MessageId>,
) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE diagnoses SET server = $3, message = $4 WHERE app = $1 AND code = $2",
        (app.0, code.0, server, message.map(|message| message.0))
    )
}

/// Adds the browser's findings.
pub async fn add_checks(pool: &PgPool, app: AppId, code: &DiagnosisCode, checks: &Value) -> sqlx::Result<()> {
    execute!(pool, "UPDATE diagnoses SET checks = $3 WHERE app = $1 AND code = $2", (app.0, code.0, checks))
}

/// A row of `diagnoses`.
#[derive(Debug)]
pub struct DiagnosisRow {
    pub subscription: SubscriptionId,
    pub message: Option<MessageId>,
    pub server: Option<Value>,
    pub checks: Option<Value>,
    pub created_at: Timestamp,
}

/// Returns an app's diagnosis by its code, unless it has expired.
pub async fn find(
    pool: &PgPool, app: AppId, code: &DiagnosisCode, now: Timestamp,
) -> sqlx::Result<Option<DiagnosisRow>> {
    fetch_optional!(
        pool,
        DiagnosisRow,
        r#"SELECT subscription AS "subscription: SubscriptionId", message AS "message: MessageId", server, checks, created_at
           FROM diagnoses WHERE app = $1 AND code = $2 AND created_at > $3"#,
        (app.0, code.0, now - KEPT_FOR)
    )
}

/// Deletes all diagnoses of a subscription.
pub(crate) async fn forget(conn: &mut PgConnection, id: SubscriptionId) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM diagnoses WHERE subscription = $1", (id.0))
}
