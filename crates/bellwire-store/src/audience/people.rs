//! Data of subscriptions for templates.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use super::candidates;
use super::segment_filter::Judge;
use super::user_shards;
use crate::connections::engine::{self, shard_column, shards_of};
use crate::queue::sending::Audience;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_segment::AudienceFilter;
use bellwire_template::TemplatePerson;

/// Reads the data of these subscriptions for templates: all data, or only the locales. Missing subscriptions are omitted.
pub async fn of(
    pool: &PgPool, ids: &[SubscriptionId], all: bool,
) -> sqlx::Result<HashMap<SubscriptionId, Arc<TemplatePerson>>> {
    macro_rules! people {
        ($within:literal $(, $shards:expr)?) => {
            query!(
                SubscriberRow,
                r#"
        SELECT s.id, s.lane, CASE WHEN $3 THEN s.user_id END AS user_id, CASE WHEN $3 THEN s.attributes END AS attributes,
               CASE WHEN $3 THEN s.tags END AS tags, s.locale, CASE WHEN $3 THEN s.timezone END AS timezone
        FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
        JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
        "# + $within,
                ids,
                |id| (id.shard()),
                (ids as &[SubscriptionId], all $(, $shards)?)
            )
        };
    }
    let rows = match engine::is_distributed() {
        false => people!("").fetch_all(pool).await?,
        true => people!("WHERE s.shard = ANY ($4)", &shards_of(ids)).fetch_all(pool).await?,
    };
    Ok(rows.into_iter().map(|row| (row.id, Arc::new(row.into_person()))).collect())
}

/// Position in an audience: after this subscription, in the audience's order.
#[derive(Debug, Clone, Copy)]
pub struct Behind {
    lane: LaneId,
    id: SubscriptionId,
}

impl Behind {
    /// Position before the first subscription.
    pub const NONE: Self = Self { lane: LaneId(0), id: SubscriptionId(Uuid::nil()) };
}

#[derive(Debug)]
pub struct Member {
    pub id: SubscriptionId,
    pub person: Arc<TemplatePerson>,
    /// Start of the next page.
    pub behind: Behind,
}

/// Returns up to `limit` recipients that a message to this audience would reach now, from a position on.
pub async fn page(
    pool: &PgPool, app: AppId, audience: &Audience, behind: Behind, limit: i64, now: Timestamp,
) -> sqlx::Result<Vec<Member>> {
    let Behind { lane, id: SubscriptionId(after) } = behind;
    let rows = match audience {
        Audience::Subscriptions(ids) | Audience::BrowsersOf(_, ids) => fetch_all!(
            pool,
            SubscriberRow,
            r#"
                SELECT s.id, s.lane, s.user_id, s.attributes AS "attributes?", s.tags AS "tags?", s.locale, s.timezone
                FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
                JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
                WHERE s.app = $3 AND s.id > $4 AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $6)
                ORDER BY s.id LIMIT $5
                "#,
            (&shard_column(ids), ids as &[SubscriptionId], app.0, after, limit, now)
        )?,
        Audience::Users(users) => {
            let shards = user_shards::of(pool, app, Some(users)).await?;
            fetch_all!(
                pool,
                SubscriberRow,
                r#"
                SELECT s.id, s.lane, s.user_id, s.attributes AS "attributes?", s.tags AS "tags?", s.locale, s.timezone
                FROM subscriptions s
                WHERE s.app = $1 AND s.user_id = ANY ($2) AND s.id > $3 AND s.state = 'active'
                  AND ($6::smallint[] IS NULL OR s.shard = ANY ($6))
                  AND (s.expires_at IS NULL OR s.expires_at > $5)
                ORDER BY s.id LIMIT $4
                "#,
                (app.0, users, after, limit, now, shards.as_deref())
            )?
        }
        Audience::Topic { name, .. } => fetch_all!(
            pool,
            SubscriberRow,
            r#"
                SELECT s.id, s.lane, s.user_id, s.attributes AS "attributes?", s.tags AS "tags?", s.locale, s.timezone
                FROM topic_members m JOIN subscriptions s ON s.shard = m.shard AND s.id = m.subscription
                WHERE m.topic = (SELECT id FROM topics WHERE app = $1 AND name = $2) AND (m.lane, m.subscription) > ($3, $4)
                  AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $6)
                ORDER BY m.lane, m.subscription LIMIT $5
                "#,
            (app.0, name, lane.0, after, limit, now)
        )?,
        Audience::All => fetch_all!(
            pool,
            SubscriberRow,
            r#"
                SELECT s.id, s.lane, s.user_id, s.attributes AS "attributes?", s.tags AS "tags?", s.locale, s.timezone
                FROM subscriptions s
                WHERE s.app = $1 AND s.id > $2 AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $4)
                ORDER BY s.id LIMIT $3
                "#,
            (app.0, after, limit, now)
        )?,
    };
    let member = |row: SubscriberRow| Member {
        id: row.id,
        behind: Behind { lane: row.lane, id: row.id },
        person: Arc::new(row.into_person()),
    };
    Ok(rows.into_iter().map(member).collect())
}

/// Returns the members that a filter accepts, in their order.
pub async fn taken_by(
    pool: &PgPool, app: AppId, filter: &AudienceFilter, members: Vec<Member>, now: Timestamp,
) -> sqlx::Result<Vec<Member>> {
    let mut conn = pool.acquire().await?;
    let ids: Vec<SubscriptionId> = members.iter().map(|member| member.id).collect();
    let candidates = candidates::of_ids(&mut conn, &ids).await?;
    let lanes: BTreeSet<LaneId> = candidates.iter().filter_map(|candidate| candidate.lane).collect();
    let judge = Judge::new(&mut conn, app, filter, &Vec::from_iter(lanes), now).await?;
    let judged = judge.judge(&mut conn, &candidates).await?;
    let taken: HashSet<SubscriptionId> =
        judged.into_iter().filter_map(|(id, verdict)| verdict.is_taken().then_some(id)).collect();
    Ok(members.into_iter().filter(|member| taken.contains(&member.id)).collect())
}

struct SubscriberRow {
    id: SubscriptionId,
    lane: LaneId,
    user_id: Option<String>,
    attributes: Option<Value>,
    tags: Option<Vec<String>>,
    locale: Option<String>,
    timezone: Option<String>,
}

impl SubscriberRow {
    fn into_person(self) -> TemplatePerson {
        let attributes = match self.attributes {
            Some(Value::Object(members)) => members,
            _ => serde_json::Map::new(),
        };
        TemplatePerson {
            user_id: self.user_id,
            attributes,
            tags: self.tags.unwrap_or_default(),
            locale: self.locale,
            timezone: self.timezone,
        }
    }
}
