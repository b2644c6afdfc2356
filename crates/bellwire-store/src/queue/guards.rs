//! Runaway guard: compares what an app sent recently with its size, and holds an app that sends too much.
//!
//! It uses metrics that exist anyway: a check reads a few rows for each lane with deliveries. A hold is a part of the app's
//! flow, so workers read it like flows.

use sqlx::{PgConnection, PgPool};

use super::flows::{self, Flow};
use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::outcomes::rollups::{EVERY_MESSAGE, RollupStep};
use crate::transactions::begin;
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::fact::Fact;
use bellwire_core::id::AppId;
use bellwire_rules::policy::runaway::{Flood, Guard, WINDOW};

/// Endings that count as sent. Retries are not counted: an outage is not a runaway.
const SENT: [Ending; 4] = [Ending::Accepted, Ending::Gone, Ending::Expired, Ending::Dead];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Set {
    /// Deliveries allowed for each active subscription. `None`: the server's setting.
    pub factor: Option<i32>,
    /// Deliveries allowed in addition. `None`: the server's setting.
    pub floor: Option<i64>,
}

impl Set {
    pub fn or(self, server: Guard) -> Guard {
        Guard {
            factor: self.factor.and_then(|factor| u32::try_from(factor).ok()).unwrap_or(server.factor),
            floor: self.floor.and_then(|floor| u64::try_from(floor).ok()).unwrap_or(server.floor),
        }
    }
}

pub async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Set> {
    let row = fetch_optional!(pool, Set, "SELECT factor, floor FROM guards WHERE app = $1", (app.0))?;
    Ok(row.unwrap_or_default())
}

pub async fn write(conn: &mut PgConnection, app: AppId, set: Set) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO guards (app, factor, floor) VALUES ($1, $2, $3)
         ON CONFLICT (app) DO UPDATE SET factor = excluded.factor, floor = excluded.floor",
        (app.0, set.factor, set.floor)
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentDeliveries {
    pub flood: Flood,
    /// Number of deliveries.
    pub deliveries: u64,
}

/// Returns the deliveries of an app within [`WINDOW`], to the minute, since its last release. Tiers without deliveries are
/// omitted.
pub async fn sent(pool: &PgPool, app: AppId, now: Timestamp) -> sqlx::Result<Vec<RecentDeliveries>> {
    Ok(suspects(pool, Some(app), Guard { factor: 1, floor: 0 }, now)
        .await?
        .into_iter()
        .map(|found| found.sent)
        .collect())
}

struct Suspect {
    app: AppId,
    slug: String,
    sent: RecentDeliveries,
    set: Set,
}

/// Returns apps (or only `app`) that sent more than the floor, and whose guard is enabled.
async fn suspects(pool: &PgPool, app: Option<AppId>, server: Guard, now: Timestamp) -> sqlx::Result<Vec<Suspect>> {
    let rows = fetch_all!(
        pool,
        r#"WITH sent AS (
             SELECT l.app, r.tier = $1 AS is_transactional, sum(u.n)::bigint AS n
             FROM rollups r JOIN lanes l ON l.id = r.lane LEFT JOIN guards g ON g.app = l.app,
                  unnest(r.facts, r.ns) AS u (fact, n)
             WHERE r.step = $2 AND r.message = $3 AND r.start > greatest($4, g.released_at) AND u.fact = ANY ($5)
               AND ($6::uuid IS NULL OR l.app = $6)
             GROUP BY 1, 2)
           SELECT s.app, a.slug, s.is_transactional AS "is_transactional!", s.n AS "n!", g.factor AS "factor?", g.floor AS "floor?"
           FROM sent s JOIN apps a ON a.id = s.app LEFT JOIN guards g ON g.app = s.app
           WHERE s.n > coalesce(g.floor, $8) AND coalesce(g.factor, $7) > 0 OR $6 IS NOT NULL
           ORDER BY s.app, 3 DESC"#,
        (Tier::Transactional.code(), RollupStep::Minute as i16, EVERY_MESSAGE.0, now - WINDOW),
        (&SENT.map(|ending| Fact::Ended(ending).code()), app.map(|app| app.0)),
        (i32::try_from(server.factor).unwrap_or(i32::MAX), i64::try_from(server.floor).unwrap_or(i64::MAX))
    )?;
    let flood = |is_transactional| if is_transactional { Flood::Transactional } else { Flood::Other };
    Ok(rows
        .into_iter()
        .map(|row| Suspect {
            app: AppId(row.app),
            slug: row.slug,
            sent: RecentDeliveries { flood: flood(row.is_transactional), deliveries: row.n.unsigned_abs() },
            set: Set { factor: row.factor, floor: row.floor },
        })
        .collect())
}

pub async fn subscriptions(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let n = fetch_one!(
        pool,
        scalar,
        r#"SELECT coalesce(sum(n), 0)::bigint AS "n!" FROM audiences
           WHERE topic = 0 AND lane IN (SELECT id FROM lanes WHERE app = $1)"#,
        (app.0)
    )?;
    Ok(n.unsigned_abs())
}

/// Holds every app that sent more than its guard allows, and raises an alert for each. Returns the number of new holds.
pub async fn watch(pool: &PgPool, server: Guard, now: Timestamp) -> sqlx::Result<usize> {
    let mut held = 0;
    for suspect in suspects(pool, None, server, now).await? {
        let size = subscriptions(pool, suspect.app).await?;
        let limit = suspect.set.or(server).limit(size);
        if let Some(limit) = limit.filter(|limit| suspect.sent.deliveries > *limit) {
            held += usize::from(hold(pool, &suspect, size, limit, now).await?);
        }
    }
    Ok(held)
}

/// Holds an app. Returns `false` if it is held already, or was released since the check.
async fn hold(pool: &PgPool, suspect: &Suspect, size: u64, limit: u64, now: Timestamp) -> sqlx::Result<bool> {
    let Suspect { app, slug, sent: RecentDeliveries { flood, deliveries }, .. } = suspect;
    let tiers: Vec<i16> = flood.tiers().iter().map(|tier| tier.code()).collect();
    let mut tx = begin(pool).await?;
    let flow = rows_affected!(
        &mut *tx,
        "INSERT INTO flows AS f (id, app, reset_at, changed_at, held_tiers, held_at)
         SELECT $1, $2, $3, $3, $4, $3 WHERE NOT EXISTS (SELECT FROM guards WHERE app = $2 AND released_at >= $3)
         ON CONFLICT (app, lane) DO UPDATE
         SET held_tiers = f.held_tiers || excluded.held_tiers, held_at = coalesce(f.held_at, excluded.held_at),
             changed_at = greatest(excluded.changed_at, f.changed_at + interval '1 microsecond')
         WHERE NOT f.held_tiers @> excluded.held_tiers",
        (uuid_of(now), app.0, now, &tiers)
    )?;
    if flow == 0 {
        return Ok(false);
    }
    let names: Vec<_> = flood.tiers().iter().map(|tier| tier.name()).collect();
    let detail = format!(
        "{slug} is held: {deliveries} {} deliveries in {} minutes are more than {limit}, which its {size} active subscriptions \
         explain",
        names.join(" and "),
        WINDOW.as_secs() / 60
    );
    let alert = Alert { app: Some(*app), kind: AlertKind::Runaway, subject: &app.to_string(), detail: &detail };
    alerts::raise(&mut tx, &alert, now).await?;
    tx.commit().await?;
    Ok(true)
}

/// Releases an app, whose count of deliveries starts at 0. Returns the new flow for workers. `None`: it is not held.
pub async fn release(conn: &mut PgConnection, app: AppId, now: Timestamp) -> sqlx::Result<Option<Flow>> {
    let released = rows_affected!(
        &mut *conn,
        "UPDATE flows SET held_tiers = '{}', held_at = NULL,
           changed_at = greatest($2, changed_at + interval '1 microsecond')
         WHERE app = $1 AND lane IS NULL AND held_at IS NOT NULL",
        (app.0, now)
    )?;
    if released == 0 {
        return Ok(None);
    }
    execute!(
        &mut *conn,
        "INSERT INTO guards (app, released_at) VALUES ($1, $2)
         ON CONFLICT (app) DO UPDATE SET released_at = excluded.released_at",
        (app.0, now)
    )?;
    alerts::resolve_all(&mut *conn, AlertKind::Runaway, &app.to_string(), now).await?;
    flows::find(conn, app, None).await
}

pub async fn held(pool: &PgPool) -> sqlx::Result<Vec<String>> {
    fetch_all!(
        pool,
        scalar,
        "SELECT a.slug FROM flows f JOIN apps a ON a.id = f.app WHERE f.held_at IS NOT NULL ORDER BY f.held_at LIMIT 100"
    )
}
