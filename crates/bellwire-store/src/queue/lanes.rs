//! Lanes: one row for each VAPID key and push service that ever had a subscription, never deleted. Also operators' orders to
//! lanes.

use chrono::TimeDelta;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::keys::audit::AuditEntry;
use crate::keyset::{Keyset, paged};
use crate::operations::workers::StateRow;
use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::transactions::begin;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, LaneId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::breaker::Breaker;
use bellwire_rules::policy::hold::{HoldReason, of_refused_key};
use bellwire_rules::policy::lane_state::{ALL_ORIGINS, LaneState};

/// Returns the lane of a VAPID key and push service, and creates it if missing. Scheduled messages of the app get a cursor in a
/// new lane.
pub async fn ensure(
    conn: &mut PgConnection, app: AppId, key: VapidKeyId, gateway: Gateway, now: Timestamp,
) -> Result<LaneId, sqlx::Error> {
    let find = || query!(scalar, "SELECT id FROM lanes WHERE vapid_key = $1 AND gateway = $2", (key.0, gateway.name()));
    if let Some(id) = find().fetch_optional(&mut *conn).await? {
        return Ok(LaneId(id));
    }
    // A sender that holds the lock has not stored its message for this lane: it commits first, and the join below reads the message.
    // A sender that comes later waits, and reads this lane.
    execute!(
        &mut *conn,
        "SELECT FROM pg_advisory_xact_lock(hashtextextended('bellwire.lanes:' || $1::uuid::text, 0))",
        (app.0)
    )?;
    let made = rows_affected!(
        &mut *conn,
        "INSERT INTO lanes (app, vapid_key, gateway) VALUES ($1, $2, $3) ON CONFLICT (vapid_key, gateway) DO NOTHING",
        (app.0, key.0, gateway.name())
    )?;
    let made = made == 1;
    let lane = find().fetch_one(&mut *conn).await.map(LaneId)?;
    if made {
        join_messages_for_later(conn, app, lane, now).await?;
    }
    Ok(lane)
}

/// Prevents new lanes of an app until the transaction ends, so that a scheduled message gets a cursor in each lane. Senders
/// share this lock; [`ensure`] takes it exclusively. Call it in a separate statement before reading the lanes, because a
/// statement reads as of its start.
pub(crate) async fn keep_out(conn: &mut PgConnection, app: AppId) -> sqlx::Result<()> {
    execute!(
        conn,
        "SELECT FROM pg_advisory_xact_lock_shared(hashtextextended('bellwire.lanes:' || $1::uuid::text, 0))",
        (app.0)
    )
}

/// Adds cursors for all scheduled messages of the app to a new lane. A concurrent transaction that pauses, resumes or cancels
/// one of them ends first or waits, because it changes every cursor of its message.
async fn join_messages_for_later(
    conn: &mut PgConnection, app: AppId, lane: LaneId, now: Timestamp,
) -> Result<(), sqlx::Error> {
    execute!(
        conn,
        "INSERT INTO cursors (message, lane, tier, topic, after, due_at)
         SELECT m.id, $2, m.tier, m.topic, '00000000-0000-0000-0000-000000000000',
           CASE m.state WHEN 'paused' THEN 'infinity' ELSE m.accepted_at END
         FROM campaigns_in_motion k JOIN messages m ON m.id = k.message
         WHERE k.app = $1 AND k.message > $3 AND m.accepted_at > $4 AND m.state <> 'cancelled'
         ORDER BY m.id FOR SHARE OF m",
        (app.0, lane.0, first_uuid_of(now), now)
    )
}

#[derive(Debug, Clone)]
pub struct LaneRow {
    pub id: LaneId,
    pub app: AppId,
    pub vapid_key: VapidKeyId,
    pub gateway: Gateway,
    pub subscriptions: i64,
}

/// State of a lane at one origin, for operators.
#[derive(Debug, Clone)]
pub struct OriginRow {
    pub lane: LaneId,
    /// `https://host[:port]`. `*`: an order for all origins.
    pub origin: String,
    /// End of the hold. No POST starts before it.
    pub held_until: Option<Timestamp>,
    /// Reason, if not throttling: `operator`, `key_refused`, `mass_gone`.
    pub reason: Option<String>,
    pub note: Option<String>,
    /// State of the breaker: `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Only worker with this breaker state, because it cannot reach the push service. `None`: all workers.
    pub breaker_of: Option<Uuid>,
    pub open_until: Option<Timestamp>,
    /// Duration of the last opening, in milliseconds.
    pub open_ms: Option<i32>,
    pub prober: Option<Uuid>,
    /// End of the right to probe.
    pub probe_until: Option<Timestamp>,
    /// Estimated maximum plaintext size that the push service accepts, in bytes.
    pub payload_max: Option<i32>,
    pub payload_at: Option<Timestamp>,
    pub changed_at: Timestamp,
}

/// Returns lanes beyond the page's key, the nearest numbers first, of all apps or of these.
pub async fn list(pool: &PgPool, apps: Option<&[AppId]>, page: Keyset) -> Result<Vec<LaneRow>, sqlx::Error> {
    paged!(pool, page, LaneRow,
        [r#"SELECT l.id, l.app, l.vapid_key, l.gateway AS "gateway: Gateway",
             coalesce((SELECT sum(n) FROM audiences WHERE topic = 0 AND lane = l.id), 0)::bigint AS "subscriptions!"
         FROM lanes l WHERE l.id"# < "$1 AND ($3::uuid[] IS NULL OR l.app = ANY ($3)) ORDER BY l.id" DESC "LIMIT $2"],
        (page.number(), page.limit, apps as Option<&[AppId]>)
    )
}

pub async fn find(pool: &PgPool, lane: LaneId) -> Result<Option<LaneRow>, sqlx::Error> {
    Ok(list(pool, None, Keyset::from_number(lane.0)).await?.pop().filter(|row| row.id == lane))
}

pub async fn states(executor: impl PgExecutor<'_>, lanes: &[LaneId]) -> Result<Vec<OriginRow>, sqlx::Error> {
    fetch_all!(
        executor,
        OriginRow,
        r#"SELECT lane, origin, greatest(held_until, key_held_until) AS held_until,
             CASE WHEN by_key THEN 'key_refused' ELSE reason END AS reason, CASE WHEN NOT by_key THEN note END AS note,
             -- The observation of a single replica is void after its death.
             CASE WHEN breaker_of IS NULL OR EXISTS (SELECT FROM workers WHERE id = breaker_of) THEN coalesce(breaker, 'closed')
                  ELSE 'closed' END AS "breaker!",
             breaker_of, open_until, open_ms, prober, probe_until, payload_max, payload_at,
             changed_at
         FROM lane_states, LATERAL (SELECT coalesce(key_held_until > coalesce(held_until, '-infinity'), false) AS by_key) h
         WHERE lane = ANY($1) ORDER BY lane, origin"#,
        (lanes as &[LaneId])
    )
}

/// Returns how often these lanes' breakers opened by themselves since a time, to the minute. Lanes without openings are
/// omitted.
pub async fn trips_since(pool: &PgPool, lanes: &[LaneId], since: Timestamp) -> Result<Vec<(LaneId, i64)>, sqlx::Error> {
    query!(
        r#"SELECT lane, sum(n)::bigint AS "n!" FROM breaker_trips
         WHERE minute > $2::timestamptz - interval '1 minute' AND lane = ANY($1) GROUP BY lane ORDER BY lane"#,
        (lanes as &[LaneId], since)
    )
    .map(|row| (LaneId(row.lane), row.n))
    .fetch_all(pool)
    .await
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneOrder {
    Hold {
        until: Timestamp,
        note: Option<String>,
    },
    /// Ends all holds. Later responses of the push service may set new ones.
    Release,
    Open {
        until: Timestamp,
    },
    /// Sets open breakers to half open: they send probes now, and close with the first success.
    Close,
    Probe,
}

/// Stores an operator's order for one origin of a lane, or for [all](ALL_ORIGINS). Returns the states for workers. `None`: the
/// lane does not exist. Writes `entry` to the audit log of the lane's app.
///
/// Orders to one lane run one after the other. Each is dated later than all known states, so it wins in the row and in each
/// worker.
pub async fn order(
    pool: &PgPool, lane: LaneId, origin: &str, order: &LaneOrder, entry: AuditEntry, now: Timestamp,
) -> Result<Option<Vec<LaneState>>, sqlx::Error> {
    let mut tx = begin(pool).await?;
    let app = query!(scalar, "SELECT app FROM lanes WHERE id = $1 FOR NO KEY UPDATE", (lane.0));
    let Some(app) = app.fetch_optional(&mut *tx).await? else { return Ok(None) };
    let rows = fetch_all!(
        &mut *tx,
        StateRow,
        r#"SELECT lane, origin, held_at, held_until, released_at, key_held_at, key_held_until, key_released_at, breaker,
             breaker_of IS NOT NULL AS "alone!", open_until, open_ms, breaker_changed_at, payload_max, payload_at
         FROM lane_states WHERE lane = $1 AND ($2 = '*' OR origin = $2) ORDER BY origin FOR UPDATE"#,
        (lane.0, origin)
    )?;
    let mut states: Vec<_> = rows.into_iter().map(LaneState::from).collect();
    if states.iter().all(|state| &*state.origin != origin) {
        states.push(LaneState::of(lane, origin.into()));
    }
    for state in &mut states {
        obey(state, order, now);
        write(&mut tx, state, order, now).await?;
    }
    AuditEntry { app: Some(AppId(app)), ..entry }.record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(Some(states))
}

fn obey(state: &mut LaneState, order: &LaneOrder, now: Timestamp) {
    let held_at = |held: Option<HoldReason>| held.map(|held| held.at);
    let breaker_at = state.breaker.map(|breaker| breaker.changed_at);
    let known = [state.released_at, held_at(state.held), held_at(state.key_held), breaker_at];
    let at = known.into_iter().flatten().fold(now, |at, known| at.max(known + TimeDelta::microseconds(1)));
    let mut breaker = state.breaker.map_or_else(|| Breaker::closed(now), Breaker::restore);
    match order {
        LaneOrder::Hold { until, .. } => {
            (state.released_at, state.key_held) = (Some(at), None);
            state.held = Some(HoldReason { at, until: *until });
            return;
        }
        LaneOrder::Release => {
            (state.released_at, state.held, state.key_held) = (Some(at), None, None);
            return;
        }
        LaneOrder::Open { until } => breaker.force_open(at, *until),
        LaneOrder::Close => breaker.force_close(at),
        LaneOrder::Probe => breaker.force_probe(at),
    }
    state.alone = false; // what is ordered is for all
    if state.breaker.is_some() || breaker.snapshot() != Breaker::closed(now).snapshot() {
        state.breaker = Some(breaker.snapshot());
    }
}

async fn write(
    conn: &mut PgConnection, state: &LaneState, order: &LaneOrder, now: Timestamp,
) -> Result<(), sqlx::Error> {
    let holds = matches!(order, LaneOrder::Hold { .. } | LaneOrder::Release);
    let (reason, note) = match order {
        LaneOrder::Hold { note, .. } => (Some("operator"), note.as_deref()),
        _ => (None, None),
    };
    execute!(
        conn,
        r#"
        INSERT INTO lane_states AS s (lane, origin, held_at, held_until, released_at, reason, note, breaker, open_until,
                                      open_ms, breaker_changed_at, changed_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (lane, origin) DO UPDATE
        SET held_at = excluded.held_at, held_until = excluded.held_until, released_at = excluded.released_at,
            key_held_at = CASE WHEN NOT $13 THEN s.key_held_at END,
            key_held_until = CASE WHEN NOT $13 THEN s.key_held_until END,
            reason = CASE WHEN $13 THEN excluded.reason ELSE s.reason END,
            note = CASE WHEN $13 THEN excluded.note ELSE s.note END,
            breaker = excluded.breaker, breaker_of = CASE WHEN $13 THEN s.breaker_of END, open_until = excluded.open_until, open_ms = excluded.open_ms,
            breaker_changed_at = excluded.breaker_changed_at,
            prober = CASE WHEN $13 THEN s.prober END, probe_until = CASE WHEN $13 THEN s.probe_until END,
            changed_at = excluded.changed_at
        "#,
        (state.lane.0, &*state.origin, state.held.map(|held| held.at), state.held.map(|held| held.until)),
        (state.released_at, reason, note, state.breaker.map(|breaker| breaker.state.name())),
        (state.breaker.and_then(|breaker| breaker.open_until()), state.breaker.map(|breaker| breaker.open_ms())),
        (state.breaker.map(|breaker| breaker.changed_at), now, holds)
    )
}

/// Holds a lane whose push service refuses its VAPID key, and raises an alert. If two known push services refuse the key, all
/// its lanes are held; unknown push services do not count. Returns the states for workers. An existing hold for that reason is
/// unchanged.
pub async fn hold_key(pool: &PgPool, lane: LaneId, now: Timestamp) -> Result<Vec<LaneState>, sqlx::Error> {
    let mut tx = begin(pool).await?;
    let refused = RefusedKey::lock(&mut tx, lane).await?;
    let before = query!(
        r#"SELECT key_held_at AS "at!", key_held_until AS "until!" FROM lane_states
         WHERE lane = $1 AND origin = '*' AND key_held_at IS NOT NULL AND key_held_until IS NOT NULL"#,
        (lane.0)
    )
    .map(|row| HoldReason { at: row.at, until: row.until })
    .fetch_optional(&mut *tx)
    .await?;
    let held = of_refused_key(before, now);
    let everywhere = fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT count(*) >= 2 AS "is_so!" FROM lanes l
         WHERE l.vapid_key = $1 AND l.gateway <> 'other' AND (l.id = $2 OR EXISTS (
             SELECT FROM lane_states WHERE lane = l.id AND origin = '*' AND key_held_until > $3))"#,
        (refused.key.0, lane.0, now)
    )?;
    let lanes = fetch_all!(
        &mut *tx,
        scalar,
        r#"
        INSERT INTO lane_states AS s (lane, origin, key_held_at, key_held_until, changed_at)
        SELECT id, '*', $3, $4, $5 FROM lanes WHERE vapid_key = $1 AND (id = $2 OR $6) ORDER BY id
        ON CONFLICT (lane, origin) DO UPDATE
        SET key_held_at = excluded.key_held_at, key_held_until = excluded.key_held_until, changed_at = excluded.changed_at
        WHERE coalesce(s.key_held_until, '-infinity') < excluded.key_held_until
          AND greatest(s.released_at, s.key_released_at, '-infinity') <= excluded.key_held_at
        RETURNING lane
        "#,
        (refused.key.0, lane.0, held.at, held.until, now, everywhere)
    )?;
    let (gateway, for_minutes) = (refused.gateway.name(), (held.until - held.at).num_minutes());
    let elsewhere =
        if everywhere { " and, since another push service refuses it, too, wherever it is used," } else { "" };
    let detail = format!(
        "{gateway} refuses this VAPID key: what goes there{elsewhere} is held for {for_minutes} minutes, but for probes; look \
         at its subject, this server's clock, and whether the key was replaced"
    );
    refused.raise(&mut tx, &detail, now).await?;
    tx.commit().await?;
    let state = |lane| LaneState { key_held: Some(held), ..LaneState::of(LaneId(lane), ALL_ORIGINS.into()) };
    Ok(lanes.into_iter().map(state).collect())
}

/// Raises an alert about a VAPID key that is refused only for subscriptions that never accepted a push, or by an unknown push
/// service. Nothing is held.
pub async fn doubt_key(pool: &PgPool, lane: LaneId, now: Timestamp) -> Result<(), sqlx::Error> {
    let mut tx = begin(pool).await?;
    let refused = RefusedKey::lock(&mut tx, lane).await?;
    let detail = if refused.gateway == Gateway::Other {
        "push services of unknown kinds refuse this VAPID key; no lane is held, since anyone can run such a service; the dead \
         letters contain their hosts"
            .to_owned()
    } else {
        format!(
            "{} refuses this VAPID key for subscriptions for which nothing was ever accepted: if that is so of all of them, look \
             at its subject and this server's clock; if others are accepted, some subscriptions were created with another key",
            refused.gateway.name()
        )
    };
    refused.raise(&mut tx, &detail, now).await?;
    tx.commit().await
}

struct RefusedKey {
    key: VapidKeyId,
    app: AppId,
    gateway: Gateway,
}

impl RefusedKey {
    /// Locks the key of a lane, because several workers may notice the refusal at the same time.
    async fn lock(conn: &mut PgConnection, lane: LaneId) -> Result<Self, sqlx::Error> {
        fetch_one!(
            conn,
            Self,
            r#"SELECT v.id AS key, l.app, l.gateway AS "gateway: Gateway" FROM lanes l JOIN vapid_keys v ON v.id = l.vapid_key
             WHERE l.id = $1 FOR NO KEY UPDATE OF v"#,
            (lane.0)
        )
    }

    async fn raise(&self, conn: &mut PgConnection, detail: &str, now: Timestamp) -> Result<(), sqlx::Error> {
        let subject = self.key.to_string();
        let alert = Alert { app: Some(self.app), kind: AlertKind::KeyRefused, subject: &subject, detail };
        alerts::raise(conn, &alert, now).await.map(drop)
    }
}

/// Ends the hold of a lane for its key, if it was set before `posted_at`: a push of that time was accepted.
pub async fn release_key(pool: &PgPool, lane: LaneId, posted_at: Timestamp, now: Timestamp) -> Result<(), sqlx::Error> {
    execute!(
        pool,
        "UPDATE lane_states SET key_held_at = NULL, key_held_until = NULL, key_released_at = $2, changed_at = $3
         WHERE lane = $1 AND origin = '*' AND key_held_at <= $2",
        (lane.0, posted_at, now)
    )
}
