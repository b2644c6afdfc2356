//! Number of an audience's subscriptions that a filter accepts, estimated from a sample or counted, and the list of them.
//!
//! A sample consists of a random share of the table's pages. Its cost hardly depends on the size of the audience or the table.
//! Subscriptions on one page were registered at about the same time and may be similar, so the margin is computed from
//! differences between pages.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

use super::audience_counts;
use super::candidates::{self, Stretch};
use super::segment_filter::{self, Judge};
use crate::connections::engine;
use crate::keyset::Keyset;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_segment::AudienceFilter;

/// Size of a preview's sample. The margin is then at most 1 % of the audience if pages are dissimilar.
const LOOKED_AT_BY_PREVIEW: i64 = 10_000;
/// Size of the sample while a sender waits for the response.
const LOOKED_AT_BY_SENDING: i64 = 2_000;
/// Maximum pages that a sample reads. If the audience is a small part of the table, the sample is smaller and its margin
/// larger.
const PAGES_MAX: i64 = 10_000;
/// Candidates read per statement when counting.
const COUNTED_AT_ONCE: usize = 5_000;
const COUNTING_MAX: Duration = Duration::from_secs(20);
/// Maximum candidates read by a search for members.
const SEARCHED_MAX: usize = 50_000;
/// Candidates read per statement by a search for members.
const SEARCHED_AT_ONCE: i64 = 2_000;
/// Number of standard errors of a 95 % confidence interval.
const Z: f64 = 1.96;

/// Number of a segment's active subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AudienceReachResponse)]
pub struct AudienceReach {
    /// Number of members.
    pub count: i64,
    /// Margin of error of the count, plus or minus, at 95 % confidence. 0: counted exactly.
    pub margin: i64,
    /// Number of all active subscriptions of the app.
    pub of: i64,
    /// Whether members were counted and not estimated from a sample.
    #[serde(rename = "exact")]
    pub is_exact: bool,
}

/// Audience without a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub app: AppId,
    pub filter: &'a AudienceFilter,
    /// Topic of the audience. `None`: all subscribers.
    pub topic: Option<i32>,
    /// Number of subscriptions by lane.
    pub lanes: &'a [(LaneId, i64)],
}

impl Whole<'_> {
    fn total(&self) -> i64 {
        self.lanes.iter().map(|(_, n)| n).sum()
    }

    fn ids(&self) -> Vec<LaneId> {
        self.lanes.iter().map(|(lane, _)| *lane).collect()
    }
}

/// Returns the lanes in which a filter can accept any subscription.
pub(crate) async fn narrowed(
    conn: &mut PgConnection, filter: &AudienceFilter, mut lanes: Vec<(LaneId, i64)>,
) -> sqlx::Result<Vec<(LaneId, i64)>> {
    let ids: Vec<LaneId> = lanes.iter().map(|(lane, _)| *lane).collect();
    let facts = segment_filter::lanes(conn, &ids).await?;
    lanes.retain(|(lane, _)| facts.get(lane).is_some_and(|lane| filter.may_take_any_of(lane)));
    Ok(lanes)
}

/// Estimates the recipients of a message while its sender waits.
pub(crate) async fn of_message(
    conn: &mut PgConnection, whole: &Whole<'_>, now: Timestamp,
) -> sqlx::Result<AudienceReach> {
    estimate(conn, whole, LOOKED_AT_BY_SENDING, now).await
}

/// Estimates how many of an app's active subscriptions a filter accepts. Counts them instead if requested and possible within
/// [`COUNTING_MAX`].
pub async fn of_everyone(
    pool: &PgPool, app: AppId, filter: &AudienceFilter, exactly: bool, now: Timestamp,
) -> sqlx::Result<AudienceReach> {
    let mut conn = pool.acquire().await?;
    let all = audience_counts::of_everyone(&mut conn, app).await?;
    let of = all.iter().map(|(_, n)| n).sum();
    let lanes = narrowed(&mut conn, filter, all).await?;
    let whole = Whole { app, filter, topic: None, lanes: &lanes };
    let counted = match exactly {
        true => count(&mut conn, &whole, COUNTING_MAX, now).await?,
        false => None,
    };
    let reach = match counted {
        Some(count) => AudienceReach { count, margin: 0, of, is_exact: true },
        None => estimate(&mut conn, &whole, LOOKED_AT_BY_PREVIEW, now).await?,
    };
    Ok(AudienceReach { of, ..reach })
}

async fn estimate(
    conn: &mut PgConnection, whole: &Whole<'_>, looked_at: i64, now: Timestamp,
) -> sqlx::Result<AudienceReach> {
    let of = whole.total();
    if of <= looked_at
        && let Some(count) = count(conn, whole, COUNTING_MAX, now).await?
    {
        return Ok(AudienceReach { count, margin: 0, of, is_exact: true });
    }
    let judge = Judge::new(conn, whole.app, whole.filter, &whole.ids(), now).await?;
    let share = looked_at as f64 / of as f64;
    let rows = match whole.topic {
        None => {
            let percent = percent(share, pages(conn, "subscriptions").await?);
            candidates::sample(conn, &whole.ids(), &judge.needs, percent).await?
        }
        Some(topic) => {
            let percent = percent(share, pages(conn, "topic_members").await?);
            candidates::sample_members(conn, topic, &whole.ids(), &judge.needs, percent).await?
        }
    };
    let mut by_page = HashMap::<Option<i64>, SamplePage>::new();
    for (row, (_, verdict)) in rows.iter().zip(judge.judge(conn, &rows).await?) {
        let page = by_page.entry(row.page).or_default();
        page.looked_at += 1.0;
        page.taken += f64::from(u8::from(verdict.is_taken()));
    }
    let (share, margin) = share_of(&by_page.into_values().collect::<Vec<_>>());
    let scaled = |share: f64| (share * of as f64).round() as i64;
    Ok(AudienceReach { count: scaled(share), margin: scaled(margin).max(1), of, is_exact: false })
}

async fn pages(conn: &mut PgConnection, table: &str) -> sqlx::Result<i64> {
    if engine::is_distributed() {
        // A function that plain Postgres does not have: the macros could not check it.
        let pages = "SELECT citus_relation_size($1::regclass) / current_setting('block_size')::bigint";
        return sqlx::query_scalar(pages).bind(table).fetch_one(conn).await;
    }
    fetch_one!(
        conn,
        scalar,
        r#"SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint AS "pages!""#,
        (table)
    )
}

/// Returns the percentage of pages to sample for an audience of this share of the table.
fn percent(share: f64, pages: i64) -> f32 {
    let affordable = PAGES_MAX as f64 / pages.max(1) as f64;
    (share.min(affordable).min(1.0) * 100.0) as f32
}

#[derive(Debug, Clone, Copy, Default)]
struct SamplePage {
    looked_at: f64,
    taken: f64,
}

/// Returns the share of accepted subscriptions on the sampled pages, and its margin: a ratio estimate over clusters. The margin
/// is never below that of a sample without a hit, or without a miss (three divided by the size).
fn share_of(pages: &[SamplePage]) -> (f64, f64) {
    let looked_at: f64 = pages.iter().map(|page| page.looked_at).sum();
    if looked_at == 0.0 {
        return (0.0, 1.0);
    }
    let n = pages.len() as f64;
    let share = pages.iter().map(|page| page.taken).sum::<f64>() / looked_at;
    let deviations: f64 = pages.iter().map(|page| (page.taken - share * page.looked_at).powi(2)).sum();
    let variance = if n > 1.0 { deviations * n / (n - 1.0) / looked_at.powi(2) } else { 1.0 };
    (share, (Z * variance.sqrt()).max(3.0 / looked_at).min(1.0))
}

/// Counts the accepted subscriptions in many short statements. `None`: it would take longer than `within`.
async fn count(
    conn: &mut PgConnection, whole: &Whole<'_>, within: Duration, now: Timestamp,
) -> sqlx::Result<Option<i64>> {
    let began = Instant::now();
    let judge = Judge::new(conn, whole.app, whole.filter, &whole.ids(), now).await?;
    let mut n = 0;
    let lanes = whole.lanes.iter().flat_map(|(lane, _)| engine::parts().into_iter().map(move |shard| (*lane, shard)));
    for (lane, shard) in lanes {
        let nobody = SubscriptionId(Uuid::nil());
        let mut stretch = Stretch { lane, topic: whole.topic, shard, after: nobody, accepted_at: now };
        loop {
            let rows = candidates::next(conn, &stretch, &judge.needs, COUNTED_AT_ONCE, now).await?;
            let is_last = rows.len() < COUNTED_AT_ONCE;
            let judged = judge.judge(conn, &rows).await?;
            stretch.after = judged.last().map_or(stretch.after, |(id, _)| *id);
            n += judged.iter().filter(|(_, verdict)| verdict.is_taken()).count();
            if is_last {
                break;
            }
            if began.elapsed() > within {
                return Ok(None);
            }
        }
    }
    Ok(Some(i64::try_from(n).unwrap_or(i64::MAX)))
}

/// Returns an app's newest active subscriptions with ids below `before` that a filter accepts, up to `limit`. If the search
/// stopped early, also returns the id that it reached.
pub async fn members(
    pool: &PgPool, app: AppId, filter: &AudienceFilter, page: Keyset, now: Timestamp,
) -> sqlx::Result<(Vec<SubscriptionId>, Option<Uuid>)> {
    let mut conn = pool.acquire().await?;
    let all: Vec<LaneId> =
        audience_counts::of_everyone(&mut conn, app).await?.into_iter().map(|(lane, _)| lane).collect();
    let judge = Judge::new(&mut conn, app, filter, &all, now).await?;
    let (mut members, mut chunk, mut searched) = (Vec::new(), Keyset { limit: SEARCHED_AT_ONCE, ..page }, 0);
    loop {
        let rows = candidates::of_app(&mut conn, app, chunk, &judge.needs).await?;
        let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < SEARCHED_AT_ONCE;
        for (id, verdict) in judge.judge(&mut conn, &rows).await? {
            (chunk.beyond, searched) = (id.0, searched + 1);
            if verdict.is_taken() {
                members.push(id);
            }
            if members.len() as i64 == page.limit {
                return Ok((members, None));
            }
        }
        if is_last {
            return Ok((members, None));
        }
        if searched >= SEARCHED_MAX {
            return Ok((members, Some(chunk.beyond)));
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/audience/reach.rs"]
mod tests;
