//! Candidates: the columns of subscriptions that a filter needs. Addresses, most of a row, are not read.

use std::fmt;

use futures_util::TryStreamExt;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::types::{Json, JsonValue};
use sqlx::{Decode, PgConnection, Postgres, Type};

use crate::connections::engine::{self, shard_column};
use crate::keyset::{Keyset, paged};
use bellwire_core::assignment::{Assigned, Former};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_segment::{Attributes, Candidate, LaneFacts, Needs, position_of};

/// Column of type `jsonb` as unparsed JSON.
pub(crate) struct Document(Vec<u8>);

impl Type<Postgres> for Document {
    fn type_info() -> PgTypeInfo {
        <Json<JsonValue> as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for Document {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        // The version of the format, of which there is one, then text (Postgres, `jsonb_send`).
        let text = value.as_bytes()?.strip_prefix(&[1]).ok_or("a jsonb of an unknown version")?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} octets)", self.0.len())
    }
}

/// Columns of a candidate. Those that the filter does not [need](Needs) are `None`: writing and reading columns is a large part
/// of the cost of a candidate.
#[derive(Debug)]
pub(crate) struct CandidateRow {
    pub id: SubscriptionId,
    /// Lane. `None` only in rows of [`next`], which sets it afterwards.
    pub lane: Option<LaneId>,
    pub origin_id: Option<SubscriptionId>,
    pub user_id: Option<String>,
    pub tags: Option<Vec<String>>,
    pub attributes: Option<Document>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub last_seen: Timestamp,
    pub created_at: Option<Timestamp>,
    pub consent_at: Option<Timestamp>,
    pub consent_source: Option<String>,
    pub former: Option<Json<Vec<Former>>>,
    /// Page of the table or of a shard. Only in rows of a sample.
    pub page: Option<i64>,
}

impl CandidateRow {
    /// Returns the values that were assigned at a time. `None`: the current ones.
    fn assigned(&self, at: Option<Timestamp>) -> Assigned<'_> {
        let former = self.former.as_ref().zip(at);
        former.map(|(former, at)| Assigned::at(&former.0, at)).unwrap_or_default()
    }

    /// Returns the person of the browser at a time, if the column was read.
    pub(crate) fn person(&self, app: AppId, at: Option<Timestamp>) -> Option<Person> {
        let origin = self.origin_id?;
        Some(match self.assigned(at).user {
            None => Person::of(app, self.user_id.as_deref(), origin),
            Some(None) => Person::of_browser(origin),
            Some(Some(user)) => Person::of_former_user(user),
        })
    }

    /// Returns the position of that person for [portions](bellwire_segment::Portion) with a salt.
    pub(crate) fn position(&self, salt: &str, at: Option<Timestamp>) -> u16 {
        position_of(salt, self.user_id.as_deref(), self.origin_id, self.assigned(at))
    }

    /// Converts to the form that a filter evaluates, with values assigned at a time.
    pub(crate) fn judged_in<'a>(&'a self, lane: &'a LaneFacts, at: Option<Timestamp>) -> Candidate<'a> {
        let assigned = self.assigned(at);
        Candidate {
            id: self.id,
            origin_id: self.origin_id,
            lane,
            user_id: self.user_id.as_deref(),
            tags: self.tags.as_deref().unwrap_or_default(),
            attributes: self.attributes.as_ref().map(|it| Attributes::from_json(&it.0)).unwrap_or_default(),
            locale: self.locale.as_deref(),
            timezone: assigned.timezone.unwrap_or(self.timezone.as_deref()),
            last_seen: self.last_seen,
            created_at: self.created_at,
            consent_at: self.consent_at,
            consent_source: self.consent_source.as_deref(),
            assigned,
        }
    }
}

/// Subscriptions of a lane, or of a topic in it, that may be recipients of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub lane: LaneId,
    pub topic: Option<i32>,
    /// Shard of the subscriptions. `None`: all.
    pub shard: Option<i16>,
    /// Last id before the stretch.
    pub after: SubscriptionId,
    /// Acceptance of the message. Later subscribers are not recipients.
    pub accepted_at: Timestamp,
}

/// Declares the statements of [`next`], for all shards or one.
macro_rules! next {
    ($of:ident, $needs:ident, $n:ident, $now:ident, $within:literal $(, $shard:expr)?) => {
        query!(
            CandidateRow,
            r#"
            SELECT id, NULL::integer AS "lane: LaneId", last_seen, CASE WHEN $6 THEN tags END AS tags,
                   CASE WHEN $7 THEN attributes END AS "attributes: _", CASE WHEN $8 THEN consent_at END AS consent_at,
                   CASE WHEN $8 THEN consent_source END AS consent_source,
                   CASE WHEN $9 THEN origin_id END AS "origin_id: SubscriptionId", CASE WHEN $9 THEN user_id END AS user_id,
                   CASE WHEN $9 THEN locale END AS locale, CASE WHEN $9 THEN timezone END AS timezone,
                   CASE WHEN $9 THEN created_at END AS created_at, CASE WHEN $9 THEN former END AS "former: _",
                   NULL::bigint AS page
            FROM subscriptions
            WHERE lane = $1 AND state = 'active' AND id > $2 AND since <= $3 AND (expires_at IS NULL OR expires_at > $4)
            "# + $within + r#"
            ORDER BY id LIMIT $5
            "#,
            ($of.lane.0, $of.after.0, $of.accepted_at, $now, $n, $needs.tags, $needs.attributes, $needs.consent),
            ($needs.profile $(, $shard)?)
        )
    };
    ($topic:ident; $of:ident, $needs:ident, $n:ident, $now:ident, $within:literal $(, $shard:expr)?) => {
        query!(
            CandidateRow,
            r#"
        SELECT s.id, NULL::integer AS "lane: LaneId", s.last_seen, CASE WHEN $7 THEN s.tags END AS tags,
               CASE WHEN $8 THEN s.attributes END AS "attributes: _", CASE WHEN $9 THEN s.consent_at END AS consent_at,
               CASE WHEN $9 THEN s.consent_source END AS consent_source,
               CASE WHEN $10 THEN s.origin_id END AS "origin_id: SubscriptionId", CASE WHEN $10 THEN s.user_id END AS user_id,
               CASE WHEN $10 THEN s.locale END AS locale, CASE WHEN $10 THEN s.timezone END AS timezone,
               CASE WHEN $10 THEN s.created_at END AS created_at, CASE WHEN $10 THEN s.former END AS "former: _",
               NULL::bigint AS page
        FROM topic_members t JOIN subscriptions s ON s.shard = t.shard AND s.id = t.subscription
        WHERE t.topic = $1 AND t.lane = $2 AND t.subscription > $3 AND t.joined_at <= $4
          AND s.state = 'active' AND s.since <= $4 AND (s.expires_at IS NULL OR s.expires_at > $5)
        "# + $within + r#"
        ORDER BY t.subscription LIMIT $6
        "#,
            ($topic, $of.lane.0, $of.after.0, $of.accepted_at, $now, $n, $needs.tags, $needs.attributes),
            ($needs.consent, $needs.profile $(, $shard)?)
        )
    };
}

/// Returns the next candidates of a stretch, in order of id.
pub(crate) async fn next(
    conn: &mut PgConnection, of: &Stretch, needs: &Needs, n: usize, now: Timestamp,
) -> sqlx::Result<Vec<CandidateRow>> {
    let mut next = Vec::with_capacity(n);
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    let mut rows = match (of.topic, of.shard) {
        (None, None) => next!(of, needs, n, now, "").fetch(conn),
        (None, Some(shard)) => next!(of, needs, n, now, "AND shard = $10", shard).fetch(conn),
        (Some(topic), None) => next!(topic; of, needs, n, now, "").fetch(conn),
        (Some(topic), Some(shard)) => next!(topic; of, needs, n, now, "AND t.shard = $11", shard).fetch(conn),
    };
    while let Some(mut row) = rows.try_next().await? {
        row.lane = Some(of.lane);
        next.push(row);
    }
    Ok(next)
}

/// Returns these subscriptions with all columns that a filter may need.
pub(crate) async fn of_ids(conn: &mut PgConnection, ids: &[SubscriptionId]) -> sqlx::Result<Vec<CandidateRow>> {
    fetch_all!(
        conn,
        CandidateRow,
        r#"SELECT s.id, s.lane AS "lane?: LaneId", s.origin_id AS "origin_id?: SubscriptionId", s.user_id, s.tags AS "tags?",
                  s.attributes AS "attributes: _", s.locale, s.timezone, s.last_seen, s.created_at AS "created_at?", s.consent_at,
                  s.consent_source, s.former AS "former: _", NULL::bigint AS page
           FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.shard = ANY ($3)"#,
        (&shard_column(ids), ids as &[SubscriptionId], &engine::shards_of(ids))
    )
}

/// Returns active subscriptions of an app beyond the page's key, the nearest ids first.
pub(crate) async fn of_app(
    conn: &mut PgConnection, app: AppId, page: Keyset, needs: &Needs,
) -> sqlx::Result<Vec<CandidateRow>> {
    paged!(conn, page, CandidateRow,
        [r#"
        SELECT id, lane AS "lane?: LaneId", last_seen, CASE WHEN $4 THEN tags END AS tags,
               CASE WHEN $5 THEN attributes END AS "attributes: _", CASE WHEN $6 THEN consent_at END AS consent_at,
               CASE WHEN $6 THEN consent_source END AS consent_source,
               CASE WHEN $7 THEN origin_id END AS "origin_id: SubscriptionId", CASE WHEN $7 THEN user_id END AS user_id,
               CASE WHEN $7 THEN locale END AS locale, CASE WHEN $7 THEN timezone END AS timezone,
               CASE WHEN $7 THEN created_at END AS created_at, NULL::jsonb AS "former: _", NULL::bigint AS page
        FROM subscriptions WHERE app = $1 AND id"# < "$2 AND state = 'active' ORDER BY id" DESC "LIMIT $3
        "],
        (app.0, page.beyond, page.limit, needs.tags, needs.attributes, needs.consent, needs.profile)
    )
}

/// Reads the active subscriptions of these lanes on a random share of the table's pages, each with its page. Repeats return the
/// same pages while the table does not grow.
pub(crate) async fn sample(
    conn: &mut PgConnection, lanes: &[LaneId], needs: &Needs, percent: f32,
) -> sqlx::Result<Vec<CandidateRow>> {
    fetch_all!(
        conn,
        CandidateRow,
        r#"
        SELECT (ctid::text::point)[0]::bigint + CASE WHEN $7 THEN shard::bigint << 40 ELSE 0 END AS page, id,
               lane AS "lane?: LaneId", last_seen,
               CASE WHEN $3 THEN tags END AS tags, CASE WHEN $4 THEN attributes END AS "attributes: _",
               CASE WHEN $5 THEN consent_at END AS consent_at, CASE WHEN $5 THEN consent_source END AS consent_source,
               CASE WHEN $6 THEN origin_id END AS "origin_id: SubscriptionId", CASE WHEN $6 THEN user_id END AS user_id,
               CASE WHEN $6 THEN locale END AS locale, CASE WHEN $6 THEN timezone END AS timezone,
               CASE WHEN $6 THEN created_at END AS created_at, NULL::jsonb AS "former: _"
        FROM subscriptions TABLESAMPLE SYSTEM ($1) REPEATABLE (1) WHERE lane = ANY ($2) AND state = 'active'
        "#,
        (percent, lanes as &[LaneId], needs.tags, needs.attributes, needs.consent, needs.profile),
        (engine::is_distributed())
    )
}

/// Reads the members of a topic on a random share of the pages of the membership table, each with its page.
pub(crate) async fn sample_members(
    conn: &mut PgConnection, topic: i32, lanes: &[LaneId], needs: &Needs, percent: f32,
) -> sqlx::Result<Vec<CandidateRow>> {
    fetch_all!(
        conn,
        CandidateRow,
        r#"
        SELECT (t.ctid::text::point)[0]::bigint + CASE WHEN $8 THEN t.shard::bigint << 40 ELSE 0 END AS page, s.id,
               s.lane AS "lane?: LaneId", s.last_seen, CASE WHEN $4 THEN s.tags END AS tags, CASE WHEN $5 THEN s.attributes END AS "attributes: _",
               CASE WHEN $6 THEN s.consent_at END AS consent_at, CASE WHEN $6 THEN s.consent_source END AS consent_source,
               CASE WHEN $7 THEN s.origin_id END AS "origin_id: SubscriptionId", CASE WHEN $7 THEN s.user_id END AS user_id,
               CASE WHEN $7 THEN s.locale END AS locale, CASE WHEN $7 THEN s.timezone END AS timezone,
               CASE WHEN $7 THEN s.created_at END AS created_at, NULL::jsonb AS "former: _"
        FROM topic_members t TABLESAMPLE SYSTEM ($1) REPEATABLE (1)
        JOIN subscriptions s ON s.shard = t.shard AND s.id = t.subscription
        WHERE t.topic = $2 AND t.lane = ANY ($3) AND s.state = 'active'
        "#,
        (percent, topic, lanes as &[LaneId], needs.tags, needs.attributes, needs.consent, needs.profile),
        (engine::is_distributed())
    )
}
