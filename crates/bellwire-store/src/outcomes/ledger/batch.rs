//! Settles whole batches: fence, counts and notes in one statement, the attempts in a COPY.
//!
//! Each settlement begins by deleting the leased row under its lease, or updating it if it stays. Only the rows found are
//! written. Zero rows after a lost connection mean that the first try was committed, or that another worker took over. In both
//! cases the stored result stays, and this one is dropped and counted.

use sqlx::{PgConnection, PgPool};
use tracing::warn;
use uuid::Uuid;

use super::closing::Closing;
use super::consequences;
use super::enqueue::{NewRow, enqueue, overtake};
use super::log::{self, LogEntry};
use super::settlement::{ClaimableAt, Fate, Fenced, Settlement, stored};
use crate::audience::refusals;
use crate::hooks;
use crate::outcomes::notes;
use crate::outcomes::tally::Tally;
use crate::queue::subscription_holds;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_vault::Vault;

/// Settles a batch. Recipients with a logged attempt already are skipped: see [`settle_others`].
pub async fn settle_batch(
    pool: &PgPool, vault: &Vault, batch: Uuid, lease: Uuid, settlements: &[Settlement], now: Timestamp,
) -> sqlx::Result<Fenced> {
    match write(pool, vault, (batch, lease), (settlements, &[]), now).await {
        Err(error) if log::is_there_already(&error) => {
            settle_others(pool, vault, (batch, lease), settlements, error, now).await
        }
        written => written,
    }
}

/// Settles a batch after one of its attempts was found in the log. A queue row was for the same recipient and was faster. Its
/// result stays, and both deliveries count as one. More attempts may be logged between the search and the settlement, so it
/// repeats while it finds more.
async fn settle_others(
    pool: &PgPool, vault: &Vault, batch: (Uuid, Uuid), settlements: &[Settlement], mut error: sqlx::Error,
    now: Timestamp,
) -> sqlx::Result<Fenced> {
    let key = |entry: LogEntry<'_>| (entry.message, entry.subscription, entry.number);
    let keys: Vec<_> = settlements.iter().flat_map(Settlement::logged).map(key).collect();
    let mut found = 0;
    loop {
        let logged = log::logged(pool, &keys).await?;
        let is_logged = |settlement: &Settlement| settlement.logged().any(|entry| logged.contains(&key(entry)));
        let (twice, others): (Vec<_>, Vec<_>) = settlements.iter().cloned().partition(is_logged);
        if twice.len() <= found {
            return Err(error);
        }
        found = twice.len();
        warn!(batch = %batch.0, recipients = found, "attempts of a batch are logged already: what is there stands");
        match write(pool, vault, batch, (&others, &twice), now).await {
            Err(again) if log::is_there_already(&again) => error = again,
            written => return written,
        }
    }
}

/// Closes a batch: logs the attempts of `settlements`, counts, prunes, and turns unfinished deliveries into queue rows.
/// Deliveries settled `twice` are targeted once. If this changes subscriptions, counts are written last (see [the order of
/// locks](crate)), otherwise at once, which saves statements. The function is long because of its first statement.
async fn write(
    pool: &PgPool, vault: &Vault, (batch, lease): (Uuid, Uuid), (settlements, twice): (&[Settlement], &[Settlement]),
    now: Timestamp,
) -> sqlx::Result<Fenced> {
    let Some(first) = settlements.iter().chain(twice).next() else { return Ok(Fenced::Out) };
    let counted_last = settlements.iter().any(consequences::changes_subscription);
    let mut tx = begin(pool).await?;
    subscription_holds::write(&mut tx, settlements.iter()).await?;
    let handed_on = if counted_last { hand_on(&mut tx, (batch, lease), settlements, now).await? } else { None };
    let settlements = handed_on.as_deref().unwrap_or(settlements);
    let ended = || settlements.iter().filter_map(Settlement::end);
    let count = |ending| ended().filter(|end| end.ending() == ending).count() as i64;
    let (facts, ns) = notes::of_batch(settlements);
    let leases: Option<i16> = fetch_one!(
        &mut *tx,
        scalar,
        r#"/* settle_batch */
        WITH fence AS (DELETE FROM batches WHERE id = $1 AND lease = $2 RETURNING message, lane, tier, leases),
        counted AS (
            UPDATE message_counts AS c
            SET accepted = c.accepted + $3, gone = c.gone + $4, expired = c.expired + $5, dead = c.dead + $6,
                cancelled = c.cancelled + $7, capped = c.capped + $8
            FROM fence WHERE c.message = fence.message AND c.lane = fence.lane AND NOT $12
        ),
        noted AS (
            INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
            SELECT date_trunc('minute', $9::timestamptz), fence.lane, fence.tier, $13, f.fact, f.n
            FROM fence, unnest($10::smallint[], $11::bigint[]) AS f (fact, n)
        )
        SELECT max(leases) AS leases FROM fence
        "#,
        (batch, lease, count(Ending::Accepted), count(Ending::Gone), count(Ending::Expired), count(Ending::Dead)),
        (count(Ending::Cancelled), count(Ending::Capped), now, &facts, &ns, counted_last),
        (first.charted().map(|message| message.0))
    )?;
    let Some(leases) = leases else { return Ok(Fenced::Out) };
    log_attempts(&mut tx, settlements).await?;
    hooks::notes::write(&mut tx, settlements.iter(), now).await?;
    let mut closing = Closing::of(if counted_last { Tally::of(settlements.iter()) } else { Tally::default() });
    twice.iter().map(Settlement::delivery).for_each(|of| closing.merged(of.message, of.lane));
    queue_rest(&mut tx, vault, (lease, leases), settlements, &mut closing, now).await?;
    refusals::count(&mut tx, settlements.iter(), now).await?;
    consequences::write(&mut tx, settlements.iter(), closing, now).await?; // last: see there
    tx.commit().await?;
    Ok(Fenced::Written)
}

/// Locks a batch and the subscriptions that its endings change. Returns its settlements; those of subscriptions with a
/// successor become retries. `None`: no subscription has a successor.
async fn hand_on(
    conn: &mut PgConnection, (batch, lease): (Uuid, Uuid), settlements: &[Settlement], now: Timestamp,
) -> sqlx::Result<Option<Vec<Settlement>>> {
    let ours = fetch_optional!(
        &mut *conn,
        scalar,
        "SELECT id FROM batches WHERE id = $1 AND lease = $2 FOR UPDATE",
        (batch, lease)
    )?;
    if ours.is_none() {
        return Ok(None); // the fence of the settling finds the same
    }
    let replaced = consequences::lock(conn, settlements.iter()).await?;
    let settle = |settlement: &Settlement| match replaced.contains(&settlement.delivery().subscription) {
        true => settlement.to_successor(now),
        false => settlement.clone(),
    };
    Ok((!replaced.is_empty()).then(|| settlements.iter().map(settle).collect()))
}

async fn log_attempts(connection: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<()> {
    let entries: Vec<LogEntry<'_>> = settlements.iter().flat_map(Settlement::logged).collect();
    log::copy(connection, entries.into_iter()).await
}

/// Enqueues every unfinished delivery of a batch.
async fn queue_rest(
    conn: &mut PgConnection, vault: &Vault, (lease, leases): (Uuid, i16), settlements: &[Settlement],
    closing: &mut Closing, now: Timestamp,
) -> sqlx::Result<()> {
    let rows = |of: &mut dyn Iterator<Item = &Settlement>| -> Vec<NewRow> {
        of.filter_map(|settlement| rest(vault, settlement, (lease, leases), now)).collect()
    };
    let there = enqueue(conn, &rows(&mut settlements.iter())).await?;
    let is_there = |settlement: &&Settlement| {
        let of = settlement.delivery();
        there.contains(&(of.subscription, of.message))
    };
    for of in settlements.iter().filter(is_there).map(Settlement::delivery) {
        closing.merged(of.message, of.lane);
    }
    // The row that waits knows nothing of the attempt that was logged just now.
    let is_retry = |settlement: &&Settlement| matches!(settlement.fate(), Fate::Retry { .. });
    overtake(conn, &rows(&mut settlements.iter().filter(is_there).filter(is_retry))).await
}

/// Builds the queue row of an unfinished delivery. `None`: it has ended. A worker that lost a lease of the batch may have sent it: the
/// row keeps that as a lease of its own, by which a withdrawal finds it.
fn rest(vault: &Vault, settlement: &Settlement, (lease, leases): (Uuid, i16), now: Timestamp) -> Option<NewRow> {
    let of = settlement.delivery();
    let (retries, due, scheduled_at, lease) = match *settlement.fate() {
        Fate::Ended(..) => return None,
        Fate::Retry { retries, due, .. } => (retries, ClaimableAt::At(due), due, None),
        Fate::Deferred(due @ ClaimableAt::Reopening(_)) => (0, due, now, None),
        Fate::Deferred(due) => (0, due, due.time(now), None),
        Fate::InFlight { retries, lease_until } => (retries, ClaimableAt::At(lease_until), now, Some(lease)),
    };
    Some(NewRow {
        subscription: of.subscription,
        message: of.message,
        lane: of.lane,
        tier: of.tier.code(),
        retries: stored(retries),
        due_at: due.time(now),
        parked: due == ClaimableAt::Parked,
        scheduled_at,
        lease,
        leases: i16::from(lease.is_some() || leases > 1),
        token: settlement.queued(retries, scheduled_at).sign(vault).to_vec(),
        failed_at: settlement.failed_at(),
        has_turn: due.is_turn(),
        life: of.life,
    })
}
