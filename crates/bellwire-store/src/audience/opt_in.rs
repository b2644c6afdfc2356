//! The opt-in funnel: steps of visitors, counted without ids, and whether those who subscribed are still there after 7 and 30 days.

use std::collections::{HashMap, HashSet};

use chrono::{NaiveDate, TimeDelta};
use sqlx::{PgConnection, PgPool};

use crate::audience::aliases;
use crate::connections::engine::{shard_column, shards_of};
use crate::operations::retrying::retrying;
use crate::transactions;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::opt_in::{BrowserFamily, OptInStep};
use bellwire_vault::Vault;

/// Maximum pages of an app that are counted by themselves on a day, and as many again that were counted the day before. Further ones
/// are counted together, as a stranger may invent pages.
const PAGES_MAX: i64 = 200;
const CHUNK: i64 = 500;
/// Time for which counts are kept.
const KEPT_FOR: TimeDelta = TimeDelta::days(400);
const FIRST_CHECK: TimeDelta = TimeDelta::days(7);
/// Time from the subscription to its second check, in hours.
const SECOND_CHECK_H: i32 = 30 * 24;

/// Circumstances of steps.
#[derive(Debug)]
pub struct OptInView<'a> {
    /// Path of the page.
    pub page: &'a str,
    /// Form of the prompt, or `preferences`.
    pub layout: &'a str,
    /// Variant of the prompt. Empty: none.
    pub variant: &'a str,
    pub browser: BrowserFamily,
}

/// Counts steps, and returns them without a repeated `granted`. `subscription`: the new subscription of that step, which is checked
/// after 7 and 30 days. `None`: it does not exist, and nothing is stored.
pub async fn record(
    conn: &mut PgConnection, app: AppId, view: &OptInView<'_>, steps: &[OptInStep],
    subscription: Option<SubscriptionId>, now: Timestamp,
) -> sqlx::Result<Option<Vec<OptInStep>>> {
    let OptInView { page, layout, variant, browser } = view;
    // Locked before the counts, whose row is locked until the commit.
    let known = match subscription {
        Some(id) => is_counted(&mut *conn, app, id).await?,
        None => Some(true),
    };
    let Some(is_counted) = known else { return Ok(None) };
    let steps: Vec<OptInStep> =
        steps.iter().copied().filter(|step| !is_counted || *step != OptInStep::Granted).collect();
    let counts = OptInStep::ALL.map(|step| i64::from(steps.contains(&step)));
    let day = now.date_naive();
    let page: String = fetch_one!(
        &mut *conn,
        scalar,
        r#"INSERT INTO opt_in_counts AS c (app, day, page, layout, variant, browser,
             shown, guided, accepted, later, no, asked, granted, denied, dismissed)
           SELECT $1, $2, CASE
               WHEN EXISTS (SELECT FROM opt_in_counts WHERE app = $1 AND day = $2 AND page = $3) THEN $3
               WHEN (SELECT count(DISTINCT page) FROM opt_in_counts WHERE app = $1 AND day = $2)
                 < $8::bigint * CASE WHEN EXISTS (SELECT FROM opt_in_counts WHERE app = $1 AND day = $2::date - 1 AND page = $3)
                          THEN 2 ELSE 1 END THEN $3 ELSE '' END,
             $4, $5, $6, ($7::bigint[])[1], ($7::bigint[])[2], ($7::bigint[])[3], ($7::bigint[])[4], ($7::bigint[])[5],
             ($7::bigint[])[6], ($7::bigint[])[7], ($7::bigint[])[8], ($7::bigint[])[9]
           ON CONFLICT (app, day, page, layout, variant, browser) DO UPDATE SET shown = c.shown + excluded.shown,
             guided = c.guided + excluded.guided, accepted = c.accepted + excluded.accepted,
             later = c.later + excluded.later, no = c.no + excluded.no, asked = c.asked + excluded.asked,
             granted = c.granted + excluded.granted, denied = c.denied + excluded.denied,
             dismissed = c.dismissed + excluded.dismissed
           RETURNING page"#,
        (app.0, day, page, layout, variant, browser.name(), counts.as_slice(), PAGES_MAX)
    )?;
    let Some(id) = subscription.filter(|_| !is_counted) else { return Ok(Some(steps)) };
    execute!(
        conn,
        "INSERT INTO opt_in_subscribers (subscription, app, day, page, layout, variant, browser, granted_at, check_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        (id.0, app.0, day, page, layout, variant, browser.name(), now, now + FIRST_CHECK)
    )?;
    Ok(Some(steps))
}

/// Locks a subscription. Returns whether its `granted` was counted; `None`: it does not exist.
async fn is_counted(conn: &mut PgConnection, app: AppId, id: SubscriptionId) -> sqlx::Result<Option<bool>> {
    let found = rows_affected!(
        &mut *conn,
        "SELECT FROM subscriptions WHERE shard = $1 AND id = $2 AND app = $3 FOR NO KEY UPDATE",
        (id.shard(), id.0, app.0)
    )?;
    if found == 0 {
        return Ok(None);
    }
    // A statement of its own: one that waited for the lock would not see what was counted meanwhile.
    let is_counted: bool = fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM opt_in_subscribers WHERE subscription = $1) AS "is!""#,
        (id.0)
    )?;
    Ok(Some(is_counted))
}

/// Numbers of checked subscribers, and of those who were still there, by the name of the check.
pub type Checks = [(&'static str, u64); 4];

/// Counts a chunk of the subscribers whose 7 or 30 days are over.
pub async fn check_due(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<Checks> {
    // Replicas that check at once may meet in the counts in different orders.
    retrying(|| async {
        let mut tx = transactions::begin(pool).await?;
        let due = due(&mut tx, now).await?;
        let mut by_app = HashMap::<AppId, Vec<SubscriptionId>>::new();
        for of in &due {
            by_app.entry(of.app).or_default().push(of.subscription);
        }
        let mut all_kept = HashSet::new();
        for (app, ids) in by_app {
            let kept = subscribed(&mut tx, vault, app, &ids).await?;
            let are_kept: Vec<bool> = ids.iter().map(|id| kept.contains(id)).collect();
            count(&mut tx, &ids, &are_kept).await?;
            all_kept.extend(kept);
        }
        tx.commit().await?;
        let number = |is_second: bool, is_kept: bool| {
            let counts = |of: &&Due| of.is_second == is_second && (!is_kept || all_kept.contains(&of.subscription));
            due.iter().filter(counts).count() as u64
        };
        Ok([
            ("due_7_days", number(false, false)),
            ("kept_7_days", number(false, true)),
            ("due_30_days", number(true, false)),
            ("kept_30_days", number(true, true)),
        ])
    })
    .await
}

/// Locks a chunk of the subscribers that are to be checked.
async fn due(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Vec<Due>> {
    fetch_all!(
        conn,
        Due,
        r#"SELECT app AS "app: AppId", subscription AS "subscription: SubscriptionId",
             check_at >= granted_at + make_interval(hours => $3) AS "is_second!" FROM opt_in_subscribers
           WHERE check_at <= $1 ORDER BY check_at LIMIT $2 FOR UPDATE SKIP LOCKED"#,
        (now, CHUNK, SECOND_CHECK_H)
    )
}

struct Due {
    app: AppId,
    subscription: SubscriptionId,
    is_second: bool,
}

/// Returns those whose browser is still subscribed, also after the subscription was replaced.
async fn subscribed(
    conn: &mut PgConnection, vault: &Vault, app: AppId, ids: &[SubscriptionId],
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let successors = aliases::resolve(conn, vault, app, ids).await?;
    let present: Vec<(SubscriptionId, SubscriptionId)> =
        ids.iter().filter_map(|id| Some((*id, successors.get(id).copied().unwrap_or(Some(*id))?))).collect();
    let latest: Vec<SubscriptionId> = present.iter().map(|(_, latest)| *latest).collect();
    let active: Vec<SubscriptionId> = fetch_all!(
        conn,
        scalar,
        r#"SELECT s.id AS "id: SubscriptionId" FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
           JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id WHERE s.state = 'active' AND s.shard = ANY ($3)"#,
        (&shard_column(&latest), &latest as &[SubscriptionId], &shards_of(&latest))
    )?;
    let active: HashSet<SubscriptionId> = active.into_iter().collect();
    Ok(present.into_iter().filter(|(_, latest)| active.contains(latest)).map(|(id, _)| id).collect())
}

/// Adds checked subscribers to the counts, and plans their second check.
async fn count(conn: &mut PgConnection, ids: &[SubscriptionId], are_kept: &[bool]) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "UPDATE opt_in_counts c SET due_7 = c.due_7 + s.due_7, kept_7 = c.kept_7 + s.kept_7,
           due_30 = c.due_30 + s.due_30, kept_30 = c.kept_30 + s.kept_30
         FROM (SELECT p.app, p.day, p.page, p.layout, p.variant, p.browser,
                 count(*) FILTER (WHERE p.check_at < p.granted_at + make_interval(hours => $3)) AS due_7,
                 count(*) FILTER (WHERE p.check_at < p.granted_at + make_interval(hours => $3) AND t.kept) AS kept_7,
                 count(*) FILTER (WHERE p.check_at >= p.granted_at + make_interval(hours => $3)) AS due_30,
                 count(*) FILTER (WHERE p.check_at >= p.granted_at + make_interval(hours => $3) AND t.kept) AS kept_30
               FROM unnest($1::uuid[], $2::bool[]) AS t (id, kept) JOIN opt_in_subscribers p ON p.subscription = t.id
               GROUP BY 1, 2, 3, 4, 5, 6) s
         WHERE c.app = s.app AND c.day = s.day AND c.page = s.page AND c.layout = s.layout AND c.variant = s.variant
           AND c.browser = s.browser",
        (ids as &[SubscriptionId], are_kept, SECOND_CHECK_H)
    )?;
    execute!(
        &mut *conn,
        "DELETE FROM opt_in_subscribers WHERE subscription = ANY ($1) AND check_at >= granted_at + make_interval(hours => $2)",
        (ids as &[SubscriptionId], SECOND_CHECK_H)
    )?;
    execute!(
        conn,
        "UPDATE opt_in_subscribers SET check_at = granted_at + make_interval(hours => $2) WHERE subscription = ANY ($1)",
        (ids as &[SubscriptionId], SECOND_CHECK_H)
    )
}

/// Deletes old counts. Returns their number.
pub async fn clear(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let first = (now - KEPT_FOR).date_naive();
    Ok(query!("DELETE FROM opt_in_counts WHERE day < $1", (first)).execute(pool).await?.rows_affected())
}

/// Forgets that a subscription is to be checked.
pub(crate) async fn forget(conn: &mut PgConnection, id: SubscriptionId) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM opt_in_subscribers WHERE subscription = $1", (id.0))
}

/// Counts of a group in the funnel.
#[derive(Debug, Clone, Default)]
pub struct OptInCounts {
    /// Value of the dimension. Empty: none, or other pages.
    pub value: String,
    pub shown: i64,
    pub guided: i64,
    pub accepted: i64,
    pub later: i64,
    pub no: i64,
    pub asked: i64,
    pub granted: i64,
    /// Those granted by the prompt, not in the preferences.
    pub granted_by_prompt: i64,
    pub denied: i64,
    pub dismissed: i64,
    pub due_7: i64,
    pub kept_7: i64,
    pub due_30: i64,
    pub kept_30: i64,
}

impl OptInCounts {
    /// Adds the counts of another group. The sum has no value.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            value: String::new(),
            shown: self.shown + other.shown,
            guided: self.guided + other.guided,
            accepted: self.accepted + other.accepted,
            later: self.later + other.later,
            no: self.no + other.no,
            asked: self.asked + other.asked,
            granted: self.granted + other.granted,
            granted_by_prompt: self.granted_by_prompt + other.granted_by_prompt,
            denied: self.denied + other.denied,
            dismissed: self.dismissed + other.dismissed,
            due_7: self.due_7 + other.due_7,
            kept_7: self.kept_7 + other.kept_7,
            due_30: self.due_30 + other.due_30,
            kept_30: self.kept_30 + other.kept_30,
        }
    }
}

/// Returns the counts of some days, by the value of a dimension: `page`, `layout`, `variant`, `browser` or `day`.
pub async fn funnel(
    pool: &PgPool, app: AppId, by: &str, (since, until): (NaiveDate, NaiveDate),
) -> sqlx::Result<Vec<OptInCounts>> {
    fetch_all!(
        pool,
        OptInCounts,
        r#"SELECT CASE $4 WHEN 'page' THEN page WHEN 'layout' THEN layout WHEN 'variant' THEN variant
             WHEN 'browser' THEN browser ELSE day::text END AS "value!",
             sum(shown)::bigint AS "shown!", sum(guided)::bigint AS "guided!", sum(accepted)::bigint AS "accepted!",
             sum(later)::bigint AS "later!", sum(no)::bigint AS "no!", sum(asked)::bigint AS "asked!",
             sum(granted)::bigint AS "granted!",
             coalesce(sum(granted) FILTER (WHERE layout <> 'preferences'), 0)::bigint AS "granted_by_prompt!", sum(denied)::bigint AS "denied!", sum(dismissed)::bigint AS "dismissed!",
             sum(due_7)::bigint AS "due_7!", sum(kept_7)::bigint AS "kept_7!", sum(due_30)::bigint AS "due_30!",
             sum(kept_30)::bigint AS "kept_30!"
           FROM opt_in_counts WHERE app = $1 AND day BETWEEN $2 AND $3
           GROUP BY 1 ORDER BY sum(shown) + sum(granted) DESC, 1"#,
        (app.0, since, until, by)
    )
}
