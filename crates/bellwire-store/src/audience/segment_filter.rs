//! Evaluation of filters. Data from other tables (topics, events, engagement) are read in a few fixed statements for many
//! candidates at once, and only if the filter needs them.

use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;
use sqlx::PgConnection;
use uuid::Uuid;

use super::candidates::{self, CandidateRow};
use super::engagement_stats;
use crate::connections::engine::{self, shard_column, shards_of};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{AppId, CampaignId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::person::Person;
use bellwire_segment::{Act, AudienceFilter, Deed, EvaluationFacts, EventCondition, FilterVerdict, LaneFacts, Needs};

/// Candidates evaluated before the task yields.
const JUDGED_AT_ONCE: usize = 2_000;

/// Evaluates one filter for candidates of one app.
pub(crate) struct Judge<'a> {
    app: AppId,
    filter: &'a AudienceFilter,
    /// Data that the filter needs.
    pub needs: Needs,
    lanes: HashMap<LaneId, LaneFacts>,
    /// Messages by their name in the filter.
    messages: HashMap<String, Vec<MessageId>>,
    now: Timestamp,
    /// Time as of which person and time zone count. `None`: now.
    assigned_at: Option<Timestamp>,
}

impl<'a> Judge<'a> {
    /// Prepares the evaluation of a filter for candidates in these lanes. Candidates of other lanes are rejected.
    pub(crate) async fn new(
        conn: &mut PgConnection, app: AppId, filter: &'a AudienceFilter, in_lanes: &[LaneId], now: Timestamp,
    ) -> sqlx::Result<Self> {
        let needs = filter.needs();
        let lanes = lanes(conn, in_lanes).await?;
        let names: Vec<&str> = needs.deeds.iter().map(|deed| deed.of.as_str()).collect();
        let messages = messages_named(conn, app, &names).await?;
        Ok(Self { app, filter, needs, lanes, messages, now, assigned_at: None })
    }

    /// Evaluates person and time zone as of a time, for a message that assigns its recipients then.
    pub(crate) fn assigned_at(self, assigned_at: Option<Timestamp>) -> Self {
        Self { assigned_at, ..self }
    }

    /// Returns the result of the filter for each candidate, in order.
    pub(crate) async fn judge(
        &self, conn: &mut PgConnection, candidates: &[CandidateRow],
    ) -> sqlx::Result<Vec<(SubscriptionId, FilterVerdict)>> {
        let mut judged = Vec::with_capacity(candidates.len());
        for some in candidates.chunks(JUDGED_AT_ONCE) {
            if !judged.is_empty() {
                tokio::task::yield_now().await;
            }
            let told = self.told_of(conn, some).await?;
            judged.extend(some.iter().map(|candidate| {
                let lane = candidate.lane.and_then(|lane| self.lanes.get(&lane));
                let verdict = lane.map(|lane| self.filter.verdict(&candidate.judged_in(lane, self.assigned_at), &told));
                (candidate.id, verdict.unwrap_or(FilterVerdict::NotInSegment))
            }));
        }
        Ok(judged)
    }

    /// Reads the candidates' data in other tables, as far as the filter needs them.
    async fn told_of(&self, conn: &mut PgConnection, candidates: &[CandidateRow]) -> sqlx::Result<EvaluationFacts> {
        let mut told = EvaluationFacts {
            now: self.now,
            topics: HashMap::new(),
            deeds: HashMap::new(),
            events: HashMap::new(),
            habits: HashMap::new(),
        };
        if self.needs.habits || !self.needs.events.is_empty() {
            let person = |it: &CandidateRow| Some((it.id, it.person(self.app, self.assigned_at)?));
            let people: Vec<(SubscriptionId, Person)> = candidates.iter().filter_map(person).collect();
            if self.needs.habits {
                told.habits = engagement_stats::of(conn, self.app, &people).await?;
            }
            for event in &self.needs.events {
                told.events.insert(event.clone(), with_events(conn, self.app, event, &people, self.now).await?);
            }
        }
        if self.needs.topics.is_empty() && self.needs.deeds.is_empty() {
            return Ok(told);
        }
        let ids: Vec<SubscriptionId> = candidates.iter().map(|candidate| candidate.id).collect();
        if !self.needs.topics.is_empty() {
            let names: Vec<String> = self.needs.topics.iter().cloned().collect();
            told.topics = in_topics(conn, self.app, &names, &ids).await?;
        }
        for deed in &self.needs.deeds {
            if let Some(messages) = self.messages.get(&deed.of) {
                told.deeds.insert(deed.clone(), doers(conn, deed, messages, &ids, self.now).await?);
            }
        }
        Ok(told)
    }
}

/// Whether a filter accepts a subscription that is about to replace another one. It has the topics and history of both.
pub(crate) async fn takes_successor(
    conn: &mut PgConnection, app: AppId, (filter, assigned_at): (&AudienceFilter, Option<Timestamp>),
    old: SubscriptionId, new: SubscriptionId, now: Timestamp,
) -> sqlx::Result<bool> {
    let Some(candidate) = candidates::of_ids(conn, &[new]).await?.pop() else { return Ok(false) };
    let judge = Judge::new(conn, app, filter, candidate.lane.as_slice(), now).await?.assigned_at(assigned_at);
    let judged = judge.judge(conn, &[CandidateRow { id: old, ..candidate }]).await?;
    Ok(judged.iter().any(|(_, verdict)| verdict.is_taken()))
}

/// Returns the filter's current result for a subscription, and its person's engagement. `None`: the subscription does not
/// exist.
pub(crate) async fn verdict_of(
    conn: &mut PgConnection, app: AppId, (filter, assigned_at): (&AudienceFilter, Option<Timestamp>),
    id: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Option<(FilterVerdict, Habits)>> {
    let Some(candidate) = candidates::of_ids(conn, &[id]).await?.pop() else { return Ok(None) };
    let person = candidate.person(app, assigned_at).map(|person| (id, person));
    let habits = engagement_stats::of(conn, app, person.as_slice()).await?.remove(&id).unwrap_or_default();
    let judge = Judge::new(conn, app, filter, candidate.lane.as_slice(), now).await?.assigned_at(assigned_at);
    let verdict = judge.judge(conn, &[candidate]).await?.pop();
    Ok(verdict.map(|(_, verdict)| (verdict, habits)))
}

/// Reads the data shared by all subscriptions of each lane.
pub(crate) async fn lanes(conn: &mut PgConnection, lanes: &[LaneId]) -> sqlx::Result<HashMap<LaneId, LaneFacts>> {
    let found = query!(
        r#"SELECT id, gateway AS "gateway: Gateway", vapid_key FROM lanes WHERE id = ANY ($1)"#,
        (lanes as &[LaneId])
    )
    .map(|row| (LaneId(row.id), LaneFacts::new(row.gateway, VapidKeyId(row.vapid_key))))
    .fetch_all(conn)
    .await?;
    Ok(found.into_iter().collect())
}

/// Maximum messages that a campaign's name in a filter refers to, the newest first: many runs.
const MESSAGES_OF_CAMPAIGN_MAX: i64 = 500;

/// Messages of an app by name. Names without a message are omitted.
pub async fn messages_named(
    conn: &mut PgConnection, app: AppId, names: &[&str],
) -> sqlx::Result<HashMap<String, Vec<MessageId>>> {
    let named = names.iter().filter_map(|name| Some(((*name).to_owned(), name.parse::<MessageId>().ok()?)));
    let mut named: HashMap<String, MessageId> = named.collect();
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<MessageId> = named.values().copied().collect();
    let there = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT id AS "id: MessageId" FROM messages WHERE app = $1 AND id = ANY ($2)"#,
        (app.0, &ids as &[MessageId])
    )?;
    let there: HashSet<MessageId> = there.into_iter().collect();
    named.retain(|_, id| there.contains(id));
    let mut of_campaigns = campaigns_named(conn, app, names).await?;
    of_campaigns.extend(named.into_iter().map(|(name, id)| (name, vec![id])));
    Ok(of_campaigns)
}

/// Returns the last messages of campaigns by id or slug. A campaign without messages gets an empty list.
async fn campaigns_named(
    conn: &mut PgConnection, app: AppId, names: &[&str],
) -> sqlx::Result<HashMap<String, Vec<MessageId>>> {
    let ids: Vec<CampaignId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT c.id AS "id!: CampaignId", c.slug AS "slug!", m.id AS "message?: MessageId"
           FROM campaigns c LEFT JOIN LATERAL (
             SELECT id FROM messages WHERE campaign = c.id ORDER BY id DESC LIMIT $4) m ON true
           WHERE c.app = $1 AND (c.slug = ANY ($2) OR c.id = ANY ($3))"#,
        (app.0, names as &[&str], &ids as &[CampaignId], MESSAGES_OF_CAMPAIGN_MAX)
    )?;
    let mut named = HashMap::<String, Vec<MessageId>>::new();
    for row in rows {
        for name in [row.id.to_string(), row.slug].into_iter().filter(|name| names.contains(&name.as_str())) {
            named.entry(name).or_default().extend(row.message);
        }
    }
    Ok(named)
}

/// Returns the names of topics and messages in a filter that the app does not have.
pub async fn unknown_names(
    conn: &mut PgConnection, app: AppId, filter: &AudienceFilter,
) -> sqlx::Result<(Vec<String>, Vec<String>)> {
    let needs = filter.needs();
    let mut topics: Vec<String> = needs.topics.into_iter().collect();
    if !topics.is_empty() {
        let there = fetch_all!(
            &mut *conn,
            scalar,
            "SELECT name FROM topics WHERE app = $1 AND name = ANY ($2)",
            (app.0, &topics)
        )?;
        topics.retain(|name| !there.contains(name));
    }
    let names: Vec<&str> = needs.deeds.iter().map(|deed| deed.of.as_str()).collect();
    let there = messages_named(conn, app, &names).await?;
    let mut messages: Vec<String> = names.into_iter().map(str::to_owned).collect();
    messages.retain(|name| !there.contains_key(name));
    messages.dedup();
    Ok((topics, messages))
}

/// Returns the subscriptions in each of these topics.
pub(crate) async fn in_topics(
    conn: &mut PgConnection, app: AppId, names: &[String], ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<String, HashSet<SubscriptionId>>> {
    macro_rules! members {
        ($within:literal $(, $shards:expr)?) => {
            query!(
                "SELECT t.name, m.subscription FROM topics t CROSS JOIN unnest($3::smallint[], $4::uuid[]) AS c (shard, id)
         JOIN topic_members m ON m.shard = c.shard AND m.subscription = c.id AND m.topic = t.id
         WHERE t.app = $1 AND t.name = ANY ($2)" + $within,
                (app.0, names, &ids.iter().map(|id| id.shard()).collect::<Vec<_>>()),
                (ids as &[SubscriptionId] $(, $shards)?)
            )
            .map(|row| (row.name, SubscriptionId(row.subscription)))
        };
    }
    let rows = match engine::is_distributed() {
        false => members!("").fetch_all(conn).await?,
        true => members!(" AND m.shard = ANY ($5)", &shards_of(ids)).fetch_all(conn).await?,
    };
    let mut members: HashMap<String, HashSet<SubscriptionId>> = HashMap::new();
    for (name, subscription) in rows {
        members.entry(name).or_default().insert(subscription);
    }
    Ok(members)
}

/// Returns the subscriptions with that event of one of these messages.
async fn doers(
    conn: &mut PgConnection, deed: &Deed, messages: &[MessageId], ids: &[SubscriptionId], now: Timestamp,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let since = deed.within_s.map(|seconds| now - TimeDelta::seconds(seconds));
    let kind = match deed.act {
        Act::Received => return receivers(conn, messages, ids, since).await,
        Act::Displayed => ReceiptKind::Displayed,
        Act::Clicked => ReceiptKind::Clicked,
    };
    if engine::is_distributed() {
        let found = fetch_all!(
            conn,
            scalar,
            r#"SELECT DISTINCT r.subscription AS "id!" FROM unnest($2::smallint[], $3::uuid[]) AS c (shard, id)
               JOIN receipts r ON r.shard = c.shard AND r.subscription = c.id
               WHERE r.message = ANY ($1) AND r.kind = $4 AND ($5::timestamptz IS NULL OR r.at >= $5) AND r.shard = ANY ($6)"#,
            (messages as &[MessageId], &shard_column(ids), ids as &[SubscriptionId], kind.code(), since),
            (&shards_of(ids))
        )?;
        return Ok(collected(found));
    }
    // One probe of the key for each: the limit keeps the planner, which may know nothing yet of what came today, from reading
    // all of a message's receipts and looking for each of them among the candidates.
    let found = fetch_all!(
        conn,
        scalar,
        r#"SELECT c.id AS "id!" FROM unnest($1::uuid[]) AS m (id) CROSS JOIN unnest($2::uuid[]) AS c (id) CROSS JOIN LATERAL (
             SELECT FROM receipts WHERE message = m.id AND subscription = c.id AND kind = $3
               AND ($4::timestamptz IS NULL OR at >= $4) LIMIT 1) d"#,
        (messages as &[MessageId], ids as &[SubscriptionId], kind.code(), since)
    )?;
    Ok(collected(found))
}

/// Returns the subscriptions whose person has enough events of a kind.
async fn with_events(
    conn: &mut PgConnection, app: AppId, event: &EventCondition, people: &[(SubscriptionId, Person)], now: Timestamp,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let mut ids: Vec<Uuid> = people.iter().map(|(_, person)| person.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    let since = event.within_s.map(|seconds| now - TimeDelta::seconds(seconds));
    let found = fetch_all!(
        conn,
        scalar,
        r#"SELECT p.id AS "id!" FROM unnest($2::uuid[]) AS p (id) WHERE (
             SELECT count(*) FROM (SELECT FROM user_events WHERE app = $1 AND person = p.id AND name = $3
               AND ($4::timestamptz IS NULL OR at >= $4) LIMIT $5) e) >= $5"#,
        (app.0, &ids, event.name, since, i64::from(event.at_least))
    )?;
    let found: HashSet<Uuid> = found.into_iter().collect();
    Ok(people.iter().filter(|(_, person)| found.contains(&person.id())).map(|(id, _)| *id).collect())
}

/// Returns the subscriptions for which a push service accepted one of these messages.
async fn receivers(
    conn: &mut PgConnection, messages: &[MessageId], ids: &[SubscriptionId], since: Option<Timestamp>,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    if engine::is_distributed() {
        let found = fetch_all!(
            conn,
            scalar,
            r#"SELECT DISTINCT a.subscription AS "id!" FROM unnest($2::smallint[], $3::uuid[]) AS c (shard, id)
               JOIN attempts a ON a.shard = c.shard AND a.subscription = c.id
               WHERE a.message = ANY ($1) AND a.ending = $4 AND ($5::timestamptz IS NULL OR a.at >= $5) AND a.shard = ANY ($6)"#,
            (messages as &[MessageId], &shard_column(ids), ids as &[SubscriptionId], Ending::Accepted.code(), since),
            (&shards_of(ids))
        )?;
        return Ok(collected(found));
    }
    let found = fetch_all!(
        conn,
        scalar,
        r#"SELECT c.id AS "id!" FROM unnest($1::uuid[]) AS m (id) CROSS JOIN unnest($2::uuid[]) AS c (id) CROSS JOIN LATERAL (
             SELECT FROM attempts WHERE message = m.id AND subscription = c.id AND ending = $3
               AND ($4::timestamptz IS NULL OR at >= $4) LIMIT 1) d"#,
        (messages as &[MessageId], ids as &[SubscriptionId], Ending::Accepted.code(), since)
    )?;
    Ok(collected(found))
}

fn collected(ids: Vec<Uuid>) -> HashSet<SubscriptionId> {
    ids.into_iter().map(SubscriptionId).collect()
}
