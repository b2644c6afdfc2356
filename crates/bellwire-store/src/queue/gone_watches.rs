//! Confirmation of mass prunes: the state of each lane, and the subscriptions that wait for a second response.
//! [`mass_gone`](bellwire_rules::policy::mass_gone) has the rule.

use std::collections::HashMap;

use sqlx::{PgConnection, PgPool};

use crate::audience::restoring::{Pruned, restore_some};
use crate::operations::retrying::retrying;
use crate::operations::workers::StateRow;
use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_rules::policy::mass_gone::{AnswerSum, GoneWatch};
use bellwire_vault::Vault;

/// Time after an alarm during which prunes of other replicas may still be committed.
const PRUNES_LATE: std::time::Duration = std::time::Duration::from_secs(60);

/// Response of a push service to one POST, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct GoneAnswer {
    pub subscription: SubscriptionId,
    /// Whether the subscription is gone. Otherwise the push was accepted.
    pub gone: bool,
    /// Whether a push to the subscription was accepted before.
    pub proven: bool,
}

/// Decision about the subscriptions of a lane that were reported as gone.
#[derive(Debug, Default)]
pub struct Reviewed {
    /// Subscriptions that are not pruned yet, each with the time from which another such response prunes it.
    pub waiting: HashMap<SubscriptionId, Timestamp>,
    /// End of the hold of the lane.
    pub held_until: Option<Timestamp>,
    /// New hold of the lane, for all workers.
    pub state: Option<LaneState>,
    pub suspected_until: Option<Timestamp>,
}

/// Processes responses of one lane in order. `before` is the number of earlier acceptances. An alarm holds the lane, raises an
/// alert, and restores the subscriptions that were pruned before it, in one transaction.
pub async fn review(
    pool: &PgPool, vault: &Vault, lane: LaneId, before: AnswerSum, answers: &[GoneAnswer], now: Timestamp,
) -> sqlx::Result<Reviewed> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        // Dependent changes are committed later, and make this one durable with them.
        fetch_one!(&mut *tx, scalar, "SELECT set_config('synchronous_commit', 'off', true)")?;
        let reviewed = review_within(&mut tx, vault, lane, before, answers, now).await?;
        tx.commit().await?;
        Ok(reviewed)
    })
    .await
}

async fn review_within(
    conn: &mut PgConnection, vault: &Vault, lane: LaneId, mut sum: AnswerSum, answers: &[GoneAnswer], now: Timestamp,
) -> sqlx::Result<Reviewed> {
    let mut watch = lock(conn, lane, now).await?;
    watch.follow_clock(now);
    let suspects = suspects(conn, answers, &watch, now).await?;
    let is_known = |answer: &&GoneAnswer| suspects.contains_key(&answer.subscription);
    let recovered: Vec<_> = answers.iter().filter(|answer| !answer.gone).filter(is_known).collect();
    if !recovered.is_empty() {
        watch.recovered_at = Some(now);
    }
    for answer in answers {
        match answer.gone {
            false => sum.accepted(),
            true if answer.proven && !is_known(&answer) => sum.gone(),
            true => {}
        }
    }
    let mut state = None;
    let gone: Vec<&GoneAnswer> = answers.iter().filter(|answer| answer.gone).collect();
    if gone.is_empty() {
        watch.reopened = true;
    } else {
        let alarm = watch.add(&sum, size(conn, lane).await?, now);
        if let Some(hold) = alarm.hold {
            state = hold_lane(conn, vault, lane, &mut watch, (hold, alarm.begins), now).await?;
        }
    }
    let (mut waiting, mut first) = (HashMap::new(), HashMap::new());
    let mut over: Vec<_> = recovered.iter().map(|answer| answer.subscription).collect();
    for GoneAnswer { subscription, .. } in gone {
        let first_at = suspects.get(subscription).copied().unwrap_or(now);
        let confirms_at = watch.confirms_at(first_at);
        if watch.suspects(now) && now < confirms_at {
            waiting.insert(*subscription, confirms_at);
            first.insert(*subscription, first_at);
        } else {
            over.push(*subscription);
        }
    }
    write(conn, lane, &watch).await?;
    remember(conn, lane, first, over).await?;
    let held_until = watch.held_until.filter(|until| now < *until);
    Ok(Reviewed { waiting, held_until, state, suspected_until: watch.suspected_until })
}

/// Reads the state of a lane, and locks it until the transaction ends.
async fn lock(conn: &mut PgConnection, lane: LaneId, now: Timestamp) -> sqlx::Result<GoneWatch> {
    // Sets nothing in a row that exists, but locks it, and returns it.
    fetch_one!(
        conn,
        GoneWatch,
        r#"INSERT INTO gone_watches AS w (lane, score, scored_at, rising_since, reopened) VALUES ($1, 0, $2, $2, false)
           ON CONFLICT (lane) DO UPDATE SET lane = excluded.lane
           RETURNING score, scored_at, rising_since, suspected_at, suspected_until, held_until, reopened, recovered_at"#,
        (lane.0, now)
    )
}

async fn write(conn: &mut PgConnection, lane: LaneId, watch: &GoneWatch) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE gone_watches SET score = $2, scored_at = $3, rising_since = $4, suspected_at = $5, suspected_until = $6,
           held_until = $7, reopened = $8, recovered_at = $9 WHERE lane = $1",
        (lane.0, watch.score, watch.scored_at, watch.rising_since, watch.suspected_at, watch.suspected_until),
        (watch.held_until, watch.reopened, watch.recovered_at)
    )
}

/// Returns the subscriptions that were reported as gone before in this suspicion, with the time of the first such response.
/// Times in the future come from a clock that was set back, and are corrected.
async fn suspects(
    conn: &mut PgConnection, answers: &[GoneAnswer], watch: &GoneWatch, now: Timestamp,
) -> sqlx::Result<HashMap<SubscriptionId, Timestamp>> {
    let found = fetch_all!(
        conn,
        r#"SELECT subscription AS "subscription: SubscriptionId", first_at FROM gone_suspects
           WHERE subscription = ANY ($1) AND first_at >= $2"#,
        answers,
        |answer| (answer.subscription),
        (watch.suspected_at.filter(|_| watch.suspects(now)).unwrap_or(now))
    )?;
    Ok(found.into_iter().map(|row| (row.subscription, row.first_at.min(now))).collect())
}

/// Stores suspects with the time of the first response, and deletes those that are pruned now or accepted a push.
async fn remember(
    conn: &mut PgConnection, lane: LaneId, suspects: HashMap<SubscriptionId, Timestamp>, over: Vec<SubscriptionId>,
) -> sqlx::Result<()> {
    let (ids, first): (Vec<SubscriptionId>, Vec<Timestamp>) = suspects.into_iter().unzip();
    execute!(
        conn,
        "WITH over AS (DELETE FROM gone_suspects WHERE subscription = ANY ($4))
         INSERT INTO gone_suspects (subscription, lane, first_at) SELECT id, $2, first_at FROM unnest($1::uuid[], $3::timestamptz[]) AS t (id, first_at)
         ON CONFLICT (subscription) DO UPDATE SET first_at = excluded.first_at",
        (&ids as &[SubscriptionId], lane.0, &first, &over as &[SubscriptionId])
    )
}

async fn size(conn: &mut PgConnection, lane: LaneId) -> sqlx::Result<i64> {
    fetch_one!(
        conn,
        scalar,
        r#"SELECT coalesce(sum(n), 0)::bigint AS "n!" FROM audiences WHERE topic = 0 AND lane = $1"#,
        (lane.0)
    )
}

/// Holds a suspected lane, restores subscriptions pruned before the alarm, and raises an alert at the start of the suspicion.
/// Returns the lane's state for all workers. `None`: not held, because an operator released it, or the push service is not a
/// known one.
async fn hold_lane(
    conn: &mut PgConnection, vault: &Vault, lane: LaneId, watch: &mut GoneWatch, (hold, begins): (HoldReason, bool),
    now: Timestamp,
) -> sqlx::Result<Option<LaneState>> {
    let found =
        query!(r#"SELECT app AS "app: AppId", gateway AS "gateway: Gateway" FROM lanes WHERE id = $1"#, (lane.0));
    let (app, gateway) = found.fetch_one(&mut *conn).await.map(|row| (row.app, row.gateway))?;
    let until = watch.suspected_at.map_or(now, |at| at + PRUNES_LATE).max(watch.rising_since);
    let pruned = Pruned { app, lane: Some(lane), since: watch.rising_since, until };
    let restored = restore_some(conn, vault, &pruned, true, None, now).await?;
    let suspected_at = watch.suspected_at.unwrap_or(now);
    let state = match gateway {
        Gateway::Other => None,
        _ => write_hold(conn, lane, hold, suspected_at).await?,
    };
    watch.held_until = state.as_ref().map(|_| hold.until);
    if begins {
        let detail = format!(
            "{} suddenly reports many working subscriptions of lane {lane} as gone: each is pruned only after a second report 15 \
             minutes later; {} that were pruned before the detection are active again",
            gateway.name(),
            restored.ids.len()
        );
        let subject = lane.to_string();
        let alert = Alert { app: Some(app), kind: AlertKind::MassGone, subject: &subject, detail: &detail };
        alerts::raise(conn, &alert, now).await?;
    }
    Ok(state)
}

async fn write_hold(
    conn: &mut PgConnection, lane: LaneId, hold: HoldReason, suspected_at: Timestamp,
) -> sqlx::Result<Option<LaneState>> {
    let held = fetch_optional!(
        conn,
        StateRow,
        r#"INSERT INTO lane_states AS s (lane, origin, held_at, held_until, reason, changed_at) VALUES ($1, '*', $2, $3, 'mass_gone', $2)
           ON CONFLICT (lane, origin) DO UPDATE
           SET held_at = excluded.held_at, held_until = excluded.held_until, reason = excluded.reason, note = NULL,
               changed_at = excluded.changed_at
           WHERE coalesce(s.held_until, '-infinity') < excluded.held_until AND coalesce(s.released_at, '-infinity') <= $4
           RETURNING lane, origin, held_at, held_until, released_at, key_held_at, key_held_until, key_released_at, breaker,
             breaker_of IS NOT NULL AS "alone!", open_until, open_ms, breaker_changed_at, payload_max, payload_at"#,
        (lane.0, hold.at, hold.until, suspected_at)
    )?;
    Ok(held.map(LaneState::from))
}

/// Returns the end of each message's time to live.
pub async fn expiries(pool: &PgPool, messages: &[MessageId]) -> sqlx::Result<HashMap<MessageId, Timestamp>> {
    let found = fetch_all!(
        pool,
        r#"SELECT id AS "id: MessageId", expires_at FROM messages WHERE id = ANY ($1)"#,
        (messages as &[MessageId])
    )?;
    Ok(found.into_iter().map(|row| (row.id, row.expires_at)).collect())
}

/// Returns suspected lanes, each with the end of its suspicion.
pub async fn suspected(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<(LaneId, Timestamp)>> {
    query!(
        r#"SELECT lane AS "lane: LaneId", suspected_until AS "until!" FROM gone_watches WHERE suspected_until > $1"#,
        (now)
    )
    .map(|row| (row.lane, row.until))
    .fetch_all(pool)
    .await
}
