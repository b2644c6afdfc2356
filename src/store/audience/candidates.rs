//! What has to be known of subscriptions before a filter can judge them: read in a few fixed statements for many at once.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::{Ending, ReceiptKind};
use crate::model::filter::{Act, Candidate, Deed, Filter, LaneFacts, Needs, Told};
use crate::model::id::{AppId, CampaignId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use crate::model::lane::Gateway;

/// What holds for everybody in each of these lanes.
pub(in crate::store) async fn lanes(
    conn: &mut PgConnection,
    lanes: impl Iterator<Item = LaneId>,
) -> sqlx::Result<HashMap<LaneId, LaneFacts>> {
    let lanes: Vec<LaneId> = lanes.collect();
    let found = sqlx::query!("SELECT id, gateway, vapid_key FROM lanes WHERE id = ANY ($1)", &lanes as &[LaneId])
        .map(|row| {
            let gateway = Gateway::from_name(&row.gateway).expect("checked by the table");
            (LaneId(row.id), LaneFacts::new(gateway, VapidKeyId(row.vapid_key)))
        })
        .fetch_all(conn)
        .await?;
    Ok(found.into_iter().collect())
}

/// What a statement reads of a candidate. What the filter does not [need](Needs) is none.
#[derive(Debug)]
pub(in crate::store) struct CandidateRow {
    pub id: SubscriptionId,
    pub lane: LaneId,
    pub origin_id: SubscriptionId,
    pub user_id: Option<String>,
    pub tags: Option<Vec<String>>,
    pub attributes: Option<Json<Map<String, Value>>>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub last_seen: Timestamp,
    pub created_at: Timestamp,
}

impl CandidateRow {
    fn judged_in(self, lane: &LaneFacts) -> Candidate<'_> {
        Candidate {
            id: self.id,
            origin_id: self.origin_id,
            lane,
            user_id: self.user_id,
            tags: self.tags.unwrap_or_default(),
            attributes: self.attributes.map(|attributes| attributes.0).unwrap_or_default(),
            locale: self.locale,
            timezone: self.timezone,
            last_seen: self.last_seen,
            created_at: self.created_at,
        }
    }
}

/// Messages of a campaign that its name stands for, the newest first: all of a run, and of runs for months.
const MESSAGES_OF_CAMPAIGN_MAX: i64 = 500;

/// Who judges candidates of one app by one filter.
pub(in crate::store) struct Judge<'a> {
    app: AppId,
    filter: &'a Filter,
    /// What is to be read of candidates.
    pub needs: Needs,
    lanes: HashMap<LaneId, LaneFacts>,
    /// The messages that the names in the filter stand for.
    messages: HashMap<String, Vec<MessageId>>,
    now: Timestamp,
}

impl<'a> Judge<'a> {
    /// One for candidates in these lanes.
    pub(in crate::store) async fn new(
        conn: &mut PgConnection,
        app: AppId,
        filter: &'a Filter,
        in_lanes: impl Iterator<Item = LaneId>,
        now: Timestamp,
    ) -> sqlx::Result<Self> {
        let needs = filter.needs();
        let lanes = lanes(conn, in_lanes).await?;
        let names: Vec<&str> = needs.deeds.iter().map(|deed| deed.of.as_str()).collect();
        let messages = messages_named(conn, app, &names).await?;
        Ok(Self { app, filter, needs, lanes, messages, now })
    }

    /// Whether the filter takes each of these.
    pub(in crate::store) async fn judge(
        &self,
        conn: &mut PgConnection,
        candidates: Vec<CandidateRow>,
    ) -> sqlx::Result<Vec<(SubscriptionId, bool)>> {
        let ids: Vec<SubscriptionId> = candidates.iter().map(|candidate| candidate.id).collect();
        let told = self.told_of(conn, &ids).await?;
        let takes = |candidate: CandidateRow| {
            let lane = self.lanes.get(&candidate.lane)?;
            Some(self.filter.takes(&candidate.judged_in(lane), &told))
        };
        Ok(ids.into_iter().zip(candidates.into_iter().map(|candidate| takes(candidate).unwrap_or(false))).collect())
    }

    /// What is known elsewhere of these subscriptions, as far as the filter asks.
    async fn told_of(&self, conn: &mut PgConnection, ids: &[SubscriptionId]) -> sqlx::Result<Told> {
        let topics = match self.needs.topics.is_empty() {
            true => HashMap::new(),
            false => in_topics(conn, self.app, self.needs.topics.iter().cloned().collect(), ids).await?,
        };
        let mut deeds = HashMap::new();
        for deed in &self.needs.deeds {
            if let Some(messages) = self.messages.get(&deed.of) {
                deeds.insert(deed.clone(), doers(conn, deed, messages, ids, self.now).await?);
            }
        }
        Ok(Told { now: self.now, topics, deeds })
    }
}

/// The messages of an app that each of these names stands for; names that stand for none are left out.
pub(crate) async fn messages_named(
    conn: &mut PgConnection,
    app: AppId,
    names: &[&str],
) -> sqlx::Result<HashMap<String, Vec<MessageId>>> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<MessageId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let there =
        sqlx::query_scalar!("SELECT id FROM messages WHERE app = $1 AND id = ANY ($2)", app.0, &ids as &[MessageId])
            .fetch_all(&mut *conn)
            .await?;
    let stands_for = |name: &&str| {
        let id = name.parse().ok().filter(|id: &MessageId| there.contains(&id.0))?;
        Some(((*name).to_owned(), vec![id]))
    };
    let mut named: HashMap<String, Vec<MessageId>> = names.iter().filter_map(stands_for).collect();
    named.extend(campaigns_named(conn, app, names).await?);
    Ok(named)
}

/// The last messages of the campaigns that go by one of these ids or slugs.
async fn campaigns_named(
    conn: &mut PgConnection,
    app: AppId,
    names: &[&str],
) -> sqlx::Result<HashMap<String, Vec<MessageId>>> {
    let ids: Vec<CampaignId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let rows = sqlx::query!(
        r#"SELECT c.id AS "id: CampaignId", c.slug, m.id AS "message: MessageId"
           FROM campaigns c CROSS JOIN LATERAL (
             SELECT id FROM messages WHERE campaign = c.id ORDER BY id DESC LIMIT $4) m
           WHERE c.app = $1 AND (c.slug = ANY ($2) OR c.id = ANY ($3))"#,
        app.0,
        names as &[&str],
        &ids as &[CampaignId],
        MESSAGES_OF_CAMPAIGN_MAX
    )
    .fetch_all(conn)
    .await?;
    let mut named = HashMap::<String, Vec<MessageId>>::new();
    for row in rows {
        for name in [row.id.to_string(), row.slug].into_iter().filter(|name| names.contains(&name.as_str())) {
            named.entry(name).or_default().push(row.message);
        }
    }
    Ok(named)
}

/// Who of these is in which of these topics.
async fn in_topics(
    conn: &mut PgConnection,
    app: AppId,
    names: Vec<String>,
    ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<String, HashSet<SubscriptionId>>> {
    let rows = sqlx::query!(
        "SELECT t.name, m.subscription FROM topics t CROSS JOIN unnest($3::smallint[], $4::uuid[]) AS c (shard, id)
         JOIN topic_members m ON m.shard = c.shard AND m.subscription = c.id AND m.topic = t.id
         WHERE t.app = $1 AND t.name = ANY ($2)",
        app.0,
        &names,
        &ids.iter().map(|id| id.shard()).collect::<Vec<_>>(),
        ids as &[SubscriptionId]
    )
    .fetch_all(conn)
    .await?;
    let mut members: HashMap<String, HashSet<SubscriptionId>> = HashMap::new();
    for row in rows {
        members.entry(row.name).or_default().insert(SubscriptionId(row.subscription));
    }
    Ok(members)
}

/// Who of these did that to one of these messages.
async fn doers(
    conn: &mut PgConnection,
    deed: &Deed,
    messages: &[MessageId],
    ids: &[SubscriptionId],
    now: Timestamp,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let since = deed.within_s.map(|seconds| now - chrono::TimeDelta::seconds(seconds));
    let kind = match deed.act {
        Act::Received => {
            let received = sqlx::query_scalar!(
                "SELECT d.subscription FROM unnest($1::uuid[]) AS m (id), LATERAL (
                   SELECT subscription FROM attempts WHERE message = m.id AND subscription = ANY ($2) AND ending = $3
                     AND ($4::timestamptz IS NULL OR at >= $4)) d",
                messages as &[MessageId],
                ids as &[SubscriptionId],
                Ending::Accepted.code(),
                since
            );
            return Ok(collected(received.fetch_all(conn).await?));
        }
        Act::Displayed => ReceiptKind::Displayed,
        Act::Clicked => ReceiptKind::Clicked,
    };
    let reported = sqlx::query_scalar!(
        "SELECT d.subscription FROM unnest($1::uuid[]) AS m (id), LATERAL (
           SELECT subscription FROM receipts WHERE message = m.id AND subscription = ANY ($2) AND kind = $3
             AND ($4::timestamptz IS NULL OR at >= $4)) d",
        messages as &[MessageId],
        ids as &[SubscriptionId],
        kind.code(),
        since
    );
    Ok(collected(reported.fetch_all(conn).await?))
}

fn collected(ids: Vec<Uuid>) -> HashSet<SubscriptionId> {
    ids.into_iter().map(SubscriptionId).collect()
}
