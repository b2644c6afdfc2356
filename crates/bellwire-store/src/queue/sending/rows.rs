//! Stores messages with individually named recipients, many in one statement. One-time codes use this path: each costs its
//! share of a round trip, a statement and a commit.

use std::collections::HashSet;

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::HELD_MAX;
use super::addressed::{Born, LeaseHolder, NewMessage, ResolvedAudience, ResolvedReach, Sent, count, missing};
use crate::audience::user_shards;
use crate::connections::engine::{self, shard_column};
use crate::outcomes::notes::CHARTED_ABOVE;
use crate::queue::claims::{ClaimedRow, Recipient, Sendability};
use crate::queue::opening::{Conditions, MessageRow, StoredConditions};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_vault::Vault;
use bellwire_vault::retry_token::Queued;

/// A message whose recipients were determined.
pub(super) struct Parcel<'a> {
    pub message: &'a NewMessage,
    pub topic: Option<i32>,
    /// Distinct recipients.
    pub ids: Vec<SubscriptionId>,
    /// Users that the recipients must still belong to, because another user may have logged in since they were read. `None`:
    /// any.
    pub users: Option<&'a [String]>,
    /// Number of users without an active subscription.
    pub unreachable: i64,
    /// Whether its queue rows are inserted already leased.
    pub is_held: bool,
}

impl Parcel<'_> {
    /// Returns the initial state of a queue row, for its retry token.
    fn queued(&self, subscription: SubscriptionId) -> Queued {
        Queued { message: self.message.id, subscription, retries: 0, scheduled_at: self.message.accepted_at }
    }
}

struct RecipientCandidate {
    n: i32,
    id: Uuid,
    user_id: String,
}

/// Finds the subscriptions of several groups of users. Each group belongs to one app and names each user once.
pub(super) async fn of_users(
    conn: &mut PgConnection, groups: &[(AppId, &[String])],
) -> sqlx::Result<Vec<ResolvedAudience>> {
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let (mut places, mut apps, mut users) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (app, named)) in (0..).zip(groups) {
        for user in *named {
            places.push(place);
            apps.push(*app);
            users.push(user.as_str());
        }
    }
    macro_rules! found {
        ($within:literal $(, $shards:expr)?) => {
            query!(
                RecipientCandidate,
                r#"SELECT t.n AS "n!", s.id, t.user_id AS "user_id!"
         FROM unnest($1::integer[], $2::uuid[], $3::text[]) AS t (n, app, user_id)
         JOIN subscriptions s ON s.app = t.app AND s.user_id = t.user_id AND s.state = 'active'"# + $within,
                (&places, &apps as &[AppId], &users as &[&str] $(, $shards)?)
            )
        };
    }
    let rows = match engine::is_distributed() {
        false => found!("").fetch_all(conn).await?,
        true => {
            let shards = user_shards::of_all(&mut *conn, &apps, &users).await?;
            found!(" WHERE s.shard = ANY ($4)", &shards).fetch_all(conn).await?
        }
    };
    let (mut ids, mut reached) = (vec![Vec::new(); groups.len()], vec![HashSet::new(); groups.len()]);
    for row in &rows {
        let group = place(row.n, 0);
        ids[group].push(SubscriptionId(row.id));
        reached[group].insert(row.user_id.as_str());
    }
    let resolved = groups.iter().zip(ids).zip(reached).map(|(((_, named), ids), reached)| {
        let unreachable = count(named.len() - reached.len());
        ResolvedAudience { unreachable, ..ResolvedAudience::new(ResolvedReach::Rows(ids)) }
    });
    Ok(resolved.collect())
}

fn place(n: i32, first: i32) -> usize {
    usize::try_from(n - first).expect("Postgres returns the given positions")
}

/// A recipient, as read by the statement of [`write`].
struct ResolvedRecipient {
    n: i32,
    id: Uuid,
    lane: i32,
    origin_id: Uuid,
    policy: Option<Value>,
    muted_until: Option<Timestamp>,
    timezone: Option<String>,
    user_id: Option<String>,
    proven: bool,
    life: i32,
    live: bool,
    /// Whether another subscription has replaced it.
    replaced: bool,
    token: Vec<u8>,
    address: Vec<u8>,
    // From here on: what its app says about its tier, where that was asked for.
    max_retries: Option<i16>,
    app_timezone: Option<String>,
    quiet_hours: Option<Value>,
    caps: Option<Value>,
    heard: Option<i32>,
    tier_policy: Option<Value>,
    off_peak: Option<Value>,
    sla_seconds: Option<i32>,
}

impl ResolvedRecipient {
    /// Returns its app's delivery settings for this tier, if they were requested.
    fn take_conditions(&mut self, tier: Tier) -> Option<Conditions> {
        let stored = StoredConditions {
            max_retries: self.max_retries?,
            timezone: self.app_timezone.take()?,
            quiet_hours: self.quiet_hours.take(),
            caps: self.caps.take(),
            heard: self.heard?,
            policy: self.tier_policy.take(),
            off_peak: self.off_peak.take(),
            sla_seconds: self.sla_seconds,
        };
        Some(Conditions::restore(tier, stored))
    }
}

/// Stores messages with a queue row for each active recipient, in one statement. A message with an unknown or replaced
/// recipient is not stored. The function is long because of its statement.
pub(super) async fn write(
    conn: &mut PgConnection, vault: &Vault, parcels: &[Parcel<'_>], holder: Option<LeaseHolder>,
) -> sqlx::Result<Vec<Sent>> {
    if parcels.is_empty() {
        return Ok(Vec::new());
    }
    let (mut places, mut ids, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    let (mut user_places, mut users) = (Vec::new(), Vec::new());
    for (place, parcel) in (1..).zip(parcels) {
        for id in &parcel.ids {
            places.push(place);
            ids.push(*id);
            tokens.push(parcel.queued(*id).sign(vault));
        }
        for user in parcel.users.into_iter().flatten() {
            user_places.push(place);
            users.push(user.as_str());
        }
    }
    // What belongs to a message is read out of its array by its place, and its counts are found by bisection: a join of
    // messages and recipients would try all pairs.
    macro_rules! written {
        ($within:literal) => {
            query!(
                ResolvedRecipient,
                r#"WITH named AS (
             SELECT t.n, ($1::uuid[])[t.n] AS message, s.shard, s.id, s.lane, s.origin_id, s.address, s.policy, s.muted_until, s.timezone,
               s.user_id, s.proven, s.life, t.token,
               s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > ($12::timestamptz[])[t.n])
                 AND (NOT ($15::boolean[])[t.n]
                   OR ((t.n, s.user_id) IN (SELECT * FROM unnest($20::integer[], $21::text[]))) IS TRUE) AS live,
               ($16::boolean[])[t.n] AS held, s.state = 'replaced' AND s.replaced_by IS NOT NULL AS replaced,
               count(*) FILTER (WHERE s.state <> 'replaced' OR s.replaced_by IS NULL) OVER (PARTITION BY t.n)
                 = ($14::integer[])[t.n] AS complete
             FROM unnest($17::integer[], $18::smallint[], $19::uuid[], $22::bytea[]) AS t (n, shard, id, token)
             JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id AND s.app = ($2::uuid[])[t.n]"# + $within + r#"),
           counts AS (SELECT n, count(*) FILTER (WHERE NOT replaced) AS known, count(*) FILTER (WHERE live) AS live FROM named GROUP BY n),
           reached AS (
             SELECT array_agg(n ORDER BY n) AS places, array_agg(known ORDER BY n) AS known, array_agg(live ORDER BY n) AS live
             FROM counts),
           stored AS (
             INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, topic_header, policy,
               topic, enveloped, audience_estimate, accepted_at, expires_at, traceparent, sent_by, received_at)
             SELECT m.id, m.app, m.tier, 'sending', m.audience, m.content, m.ttl_s, m.urgency, m.topic_header, m.policy,
               m.topic, m.enveloped, coalesce(live[at], 0), m.accepted_at, m.expires_at,
               ($25::text[])[m.n], ($26::uuid[])[m.n], ($28::timestamptz[])[m.n]
             FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::jsonb[], $5::bytea[], $6::integer[], $7::smallint[],
                 $8::text[], $9::jsonb[], $10::integer[], $11::boolean[], $12::timestamptz[], $13::timestamptz[],
                 $14::integer[]) WITH ORDINALITY AS m (id, app, tier, audience, content, ttl_s, urgency, topic_header,
                 policy, topic, enveloped, accepted_at, expires_at, recipients, n), reached,
               LATERAL (SELECT width_bucket(m.n::integer, places)) AS lower (bound),
               LATERAL (SELECT CASE WHEN places[bound] = m.n THEN bound END) AS counted_at (at)
             WHERE coalesce(known[at], 0) = m.recipients),
           queued AS (
             INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, lease, leases, token, life)
             SELECT shard, id, message, lane, ($3::smallint[])[n],
               CASE WHEN held THEN $24 ELSE ($12::timestamptz[])[n] END, ($12::timestamptz[])[n],
               CASE WHEN held THEN $23::uuid END, CASE WHEN held THEN 1 ELSE 0 END, token, life
             FROM named WHERE live AND complete),
           counted AS (
             INSERT INTO message_counts (message, lane, targeted)
             SELECT message, lane, count(*) FROM named WHERE live AND complete GROUP BY message, lane
             ORDER BY message, lane)
         SELECT n AS "n!", named.id, lane, origin_id, named.policy, muted_until, named.timezone, user_id, proven, life, live AS "live!", replaced AS "replaced!", token AS "token!",
           CASE WHEN live AND held THEN address ELSE '' END AS "address!",
           a.max_retries AS "max_retries?", a.timezone AS "app_timezone?", a.quiet_hours, a.caps, a.heard AS "heard?",
           s.policy AS tier_policy, s.off_peak, s.sla_seconds
         FROM named
         LEFT JOIN apps a ON a.id = CASE WHEN ($27::boolean[])[n] THEN ($2::uuid[])[n] END
         LEFT JOIN tier_settings s ON s.app = a.id AND s.tier = ($3::smallint[])[n]"#,
                parcels,
                |it| (it.message.id, it.message.app, it.message.tier.code(), Json(&it.message.audience)),
                |it| (it.message.content.as_slice(), it.message.ttl_s, it.message.urgency.code()),
                |it| (it.message.topic_header.as_deref(), it.message.policy.as_ref().map(Json), it.topic),
                |it| (it.message.enveloped, it.message.accepted_at, it.message.expires_at()),
                |it| (i32::try_from(it.ids.len()).unwrap_or(i32::MAX), it.users.is_some(), it.is_held),
                (&places, &shard_column(&ids), &ids as &[SubscriptionId], &user_places, &users as &[&str]),
                tokens,
                |token| (token.as_slice()),
                (holder.map(|holder| holder.lease), holder.map(|holder| holder.until)),
                (&traceparents(parcels) as &[Option<&str>]),
                parcels,
                |it| (it.message.sent_by),
                (&askers(parcels)),
                parcels,
                |it| (it.message.received_at)
            )
        };
    }
    let rows = match engine::is_distributed() {
        false => written!("").fetch_all(conn).await?,
        // It asks no other shards than these.
        true => written!(" WHERE s.shard = ANY ($18)").fetch_all(conn).await?,
    };
    let mut known = vec![Vec::new(); parcels.len()];
    let mut sent: Vec<Sent> =
        parcels.iter().map(|parcel| Sent { unreachable: parcel.unreachable, ..Sent::default() }).collect();
    for mut row in rows {
        let at = place(row.n, 1);
        let (parcel, sent) = (&parcels[at], &mut sent[at]);
        let id = SubscriptionId(row.id);
        known[at].push(id);
        if row.replaced {
            sent.replaced.push(id);
            continue;
        }
        if !row.live {
            sent.unreachable += 1;
            continue;
        }
        sent.estimate += 1;
        if parcel.is_held {
            let conditions = row.take_conditions(parcel.message.tier);
            let recipient = Recipient {
                subscription: id,
                origin_id: SubscriptionId(row.origin_id),
                address: row.address,
                standing: Sendability::Sendable,
                policy: row.policy,
                muted_until: row.muted_until,
                timezone: row.timezone,
                user_id: row.user_id,
                proven: row.proven,
                life: row.life,
            };
            let (lane, row) = (LaneId(row.lane), born(parcel.message, recipient, row.token));
            sent.born.push(Born { lane, row, message: stored(parcel.message), conditions });
        }
    }
    for ((parcel, sent), known) in parcels.iter().zip(&mut sent).zip(known) {
        if known.len() < parcel.ids.len() {
            *sent = Sent { unknown: missing(&parcel.ids, known.into_iter()), ..Sent::default() };
        } else if !sent.replaced.is_empty() {
            *sent = Sent { replaced: std::mem::take(&mut sent.replaced), ..Sent::default() };
        }
    }
    Ok(sent)
}

/// Returns which messages read their app's delivery settings: the first of each app and tier whose rows are inserted already
/// leased.
fn askers(parcels: &[Parcel<'_>]) -> Vec<bool> {
    let mut asked = HashSet::new();
    let asks = |parcel: &Parcel<'_>| parcel.is_held && asked.insert((parcel.message.app, parcel.message.tier));
    parcels.iter().map(asks).collect()
}

/// Returns the trace contexts of the requests. Empty if none is traced, so that it costs nothing.
fn traceparents<'a>(parcels: &[Parcel<'a>]) -> Vec<Option<&'a str>> {
    match parcels.iter().any(|parcel| parcel.message.traceparent.is_some()) {
        true => parcels.iter().map(|parcel| parcel.message.traceparent.as_deref()).collect(),
        false => Vec::new(),
    }
}

/// Converts an inserted row to the form of a claimed one.
fn born(message: &NewMessage, recipient: Recipient, token: Vec<u8>) -> ClaimedRow {
    ClaimedRow {
        recipient,
        message: message.id,
        retries: 0,
        scheduled_at: message.accepted_at,
        leases: 1,
        token,
        failed_at: None,
        has_turn: false,
        is_recorded: false,
        is_in_place: true,
    }
}

// Rows created under a lease have no metrics over time of their own, for any number of live recipients.
const _: () = assert!(HELD_MAX as i64 <= CHARTED_ABOVE);

/// Converts an inserted message to the form in which dispatch reads it.
fn stored(message: &NewMessage) -> MessageRow {
    MessageRow {
        id: message.id,
        root: message.id,
        app: message.app,
        tier: message.tier,
        content: Some(message.content.clone()),
        ttl_s: message.ttl_s.unsigned_abs(),
        urgency: message.urgency,
        topic_header: message.topic_header.clone(),
        policy: message.policy.clone(),
        topic_policy: None,
        personal: true,
        accepted_at: message.accepted_at,
        resumed_at: None,
        charted: false,
        expires_at: message.expires_at(),
        traceparent: message.traceparent.clone(),
        withdraws_root: None,
        is_update: false,
    }
}
