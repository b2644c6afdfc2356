//! Conversions: events of users that a site counts as a success, with their value. A conversion is stored with its event, and
//! attributed once, by the receipts that are known then.

use std::collections::HashMap;

use chrono::TimeDelta;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::user_shards;
use crate::connections::engine;
use crate::triggers::user_events::{self, EventBrowser, EventSubject, NewEvent, Recorded};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::id::{AppId, CampaignId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::measurement::{Attribution, MeasurementRule, TouchKind};
use bellwire_vault::Vault;

/// Maximum browsers of a user whose receipts count.
const BROWSERS_MAX: usize = 50;
/// Maximum time from a message to a receipt that counts: the maximum time to live. Older partitions are not read.
const RECEIPT_AFTER_MAX: TimeDelta = TimeDelta::days(28);

/// A conversion as a site reports it.
#[derive(Debug, Clone)]
pub struct NewConversion {
    pub event: NewEvent,
    pub value: Option<Money>,
}

/// An amount in ten-thousandths of a currency (ISO 4217).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Money {
    pub amount: i64,
    pub currency: String,
}

/// Stores conversions that are not known yet, with their events.
pub async fn record(
    conn: &mut PgConnection, vault: &Vault, app: AppId, conversions: &[NewConversion], now: Timestamp,
) -> sqlx::Result<Recorded> {
    let events: Vec<NewEvent> = conversions.iter().map(|conversion| conversion.event.clone()).collect();
    let recorded = user_events::record(&mut *conn, vault, app, &events, now).await?;
    let new: Vec<(&NewConversion, Person)> =
        conversions.iter().filter_map(|it| Some((it, *recorded.new.get(&it.event.id)?))).collect();
    if new.is_empty() {
        return Ok(recorded);
    }
    let browsers = browsers(&mut *conn, app, &new, &recorded.browsers).await?;
    let touches = match super::rule(&mut *conn, app).await? {
        Some(rule) => touches(&mut *conn, &rule, &new, &browsers).await?,
        None => HashMap::new(),
    };
    let people = |(it, person): &(&NewConversion, Person)| {
        let origins = browsers.get(&it.event.id).into_iter().flatten().map(|browser| browser.origin);
        let mut people: Vec<Uuid> = std::iter::once(person.id()).chain(origins).collect();
        let mut known = std::collections::HashSet::new();
        people.retain(|id| known.insert(*id));
        format!("{{{}}}", people.iter().map(Uuid::to_string).collect::<Vec<_>>().join(","))
    };
    let touch = |it: &NewConversion| touches.get(&it.event.id);
    let value = |it: &NewConversion| it.value.clone().map(|value| value.currency);
    execute!(
        conn,
        "INSERT INTO conversions (event, app, people, name, at, value, currency, message, campaign, variant)
         SELECT t.event, $1, t.people::uuid[], t.name, t.at, t.value, t.currency, t.message, t.campaign, t.variant
         FROM unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::text[], $8::uuid[], $9::uuid[], $10::smallint[])
           AS t (event, people, name, at, value, currency, message, campaign, variant)",
        (app.0),
        new,
        |it| (
            it.0.event.id,
            people(it),
            it.0.event.name.clone(),
            it.0.event.at,
            it.0.value.as_ref().map(|value| value.amount),
            value(it.0),
            touch(it.0).map(|touch| touch.message),
            touch(it.0).map(|touch| touch.campaign),
            touch(it.0).and_then(|touch| touch.variant)
        )
    )?;
    Ok(recorded)
}

/// A browser whose receipts are those of a conversion's person.
struct ReceiptBrowser {
    id: SubscriptionId,
    origin: Uuid,
    /// Earlier receipts are another person's.
    since: Timestamp,
}

/// Returns the browsers of each conversion: that which it names with its predecessors, and those of its user.
async fn browsers(
    conn: &mut PgConnection, app: AppId, new: &[(&NewConversion, Person)],
    known: &HashMap<SubscriptionId, EventBrowser>,
) -> sqlx::Result<HashMap<Uuid, Vec<ReceiptBrowser>>> {
    let mut users: Vec<(Uuid, String)> = Vec::new();
    let mut named: Vec<(Uuid, SubscriptionId)> = Vec::new();
    let mut browsers = HashMap::<Uuid, Vec<ReceiptBrowser>>::new();
    let mut add = |event, id, origin, left_at: Option<Timestamp>| {
        let since = left_at.unwrap_or(Timestamp::UNIX_EPOCH);
        let all = browsers.entry(event).or_default();
        if all.len() < BROWSERS_MAX && all.iter().all(|browser: &ReceiptBrowser| browser.id != id) {
            all.push(ReceiptBrowser { id, origin, since });
        }
    };
    for (it, _) in new {
        match &it.event.subject {
            EventSubject::User(user) => users.push((it.event.id, user.clone())),
            EventSubject::Browser(id) => {
                let Some(browser) = known.get(id) else { continue };
                add(it.event.id, browser.id, browser.origin.0, browser.left_at);
                users.extend(browser.user.clone().map(|user| (it.event.id, user)));
                named.push((it.event.id, browser.id));
            }
        }
    }
    if !named.is_empty() {
        let rows = fetch_all!(
            &mut *conn,
            r#"SELECT t.event AS "event!", s.id AS "id: SubscriptionId", s.origin_id, s.user_left_at
               FROM unnest($2::uuid[], $3::uuid[]) AS t (event, id) JOIN subscriptions s ON s.replaced_by = t.id
               WHERE s.app = $1"#,
            (app.0),
            named,
            |(event, id)| (*event, id.0)
        )?;
        rows.into_iter().for_each(|row| add(row.event, row.id, row.origin_id, row.user_left_at));
    }
    if !users.is_empty() {
        let names: Vec<String> = users.iter().map(|(_, user)| user.clone()).collect();
        let shards = user_shards::of(&mut *conn, app, Some(&names)).await?;
        let rows = fetch_all!(
            conn,
            r#"SELECT t.event AS "event!", s.id AS "id: SubscriptionId", s.origin_id, s.user_left_at
               FROM unnest($2::uuid[], $3::text[]) AS t (event, user_id) JOIN subscriptions s ON s.app = $1 AND s.user_id = t.user_id
               WHERE $4::smallint[] IS NULL OR s.shard = ANY ($4) ORDER BY s.id DESC"#,
            (app.0),
            users,
            |(event, user)| (*event, user.clone()),
            (shards.as_deref())
        )?;
        rows.into_iter().for_each(|row| add(row.event, row.id, row.origin_id, row.user_left_at));
    }
    Ok(browsers)
}

/// The message to which a conversion is attributed.
struct Touch {
    message: Uuid,
    campaign: Uuid,
    variant: Option<i16>,
}

/// Returns the receipt of a campaign's message to which each conversion is attributed. Those without one are omitted.
async fn touches(
    conn: &mut PgConnection, rule: &MeasurementRule, new: &[(&NewConversion, Person)],
    browsers: &HashMap<Uuid, Vec<ReceiptBrowser>>,
) -> sqlx::Result<HashMap<Uuid, Touch>> {
    let of = |it: &NewConversion| browsers.get(&it.event.id).into_iter().flatten();
    let receipts: Vec<(&NewConversion, &ReceiptBrowser)> =
        new.iter().flat_map(|(it, _)| of(it).map(move |browser| (*it, browser))).collect();
    let Some(window_s) = rule.window_s else { return Ok(HashMap::new()) };
    let window = TimeDelta::seconds(window_s);
    let kinds = match rule.after {
        TouchKind::Displayed => vec![ReceiptKind::Displayed.code(), ReceiptKind::Clicked.code()],
        TouchKind::Clicked => vec![ReceiptKind::Clicked.code()],
    };
    let shards = engine::is_distributed()
        .then(|| engine::shards_of(&receipts.iter().map(|(_, browser)| browser.id).collect::<Vec<_>>()));
    let rows = fetch_all!(
        conn,
        r#"/* touches_of_conversions */ SELECT DISTINCT ON (t.event) t.event AS "event!", m.id AS "message!", m.campaign AS "campaign!", m.variant
           FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::uuid[]) AS t (event, subscription, since, at, first)
             CROSS JOIN LATERAL (
               SELECT r.message, r.at FROM receipts r
               WHERE r.subscription = t.subscription AND r.kind IN (1, 2) AND r.kind = ANY ($6) AND r.message >= t.first
                 AND r.at >= t.since AND r.at <= t.at AND ($7::smallint[] IS NULL OR r.shard = ANY ($7))) r
             JOIN messages m ON m.id = r.message AND m.campaign IS NOT NULL
           ORDER BY t.event, CASE WHEN $8 THEN r.at END, r.at DESC"#,
        receipts,
        |it| (
            it.0.event.id,
            it.1.id.0,
            it.1.since.max(it.0.event.at - window),
            it.0.event.at,
            first_uuid_of(it.0.event.at - window - RECEIPT_AFTER_MAX)
        ),
        (&kinds, shards.as_deref()),
        (rule.attribution == Attribution::First)
    )?;
    let touch = |message, campaign, variant| Touch { message, campaign, variant };
    Ok(rows.into_iter().map(|row| (row.event, touch(row.message, row.campaign, row.variant))).collect())
}

/// Conversions that are attributed to a campaign, of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Attributed {
    pub name: String,
    /// `None`: all of them; else those with a value in this currency.
    pub currency: Option<String>,
    pub conversions: i64,
    /// Number of people.
    pub people: i64,
    /// Sum of the values, in units of the currency.
    pub value: f64,
}

/// Returns the conversions of a time that are attributed to a campaign, by kind.
pub async fn attributed(
    pool: &PgPool, campaign: CampaignId, (from, to): (Timestamp, Timestamp),
) -> sqlx::Result<Vec<Attributed>> {
    fetch_all!(
        pool,
        Attributed,
        r#"SELECT name, currency, sum(n)::bigint AS "conversions!", count(*) AS "people!", sum(value) / 10000 AS "value!"
           FROM (SELECT name, currency, GROUPING(currency) AS is_all, count(*) AS n, coalesce(sum(value::float8), 0) AS value
                 FROM conversions WHERE campaign = $1 AND at >= $2 AND at < $3
                 GROUP BY people[1], name, GROUPING SETS ((currency), ())) AS of_people
           WHERE is_all = 1 OR currency IS NOT NULL GROUP BY name, currency ORDER BY name, currency NULLS FIRST"#,
        (campaign.0, from, to)
    )
}
