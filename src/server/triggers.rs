//! Sends the messages of triggers: each entry that is due becomes a message to one person. A step is a transaction on the
//! entries of one campaign: they end, their messages are stored, and follow-ups begin to wait, together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use chrono_tz::Tz;
use serde_json::{Map, Value, json};
use sqlx::{PgConnection, PgPool};
use tracing::{error, warn};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::planned::{self, LIFE_MIN};
use bellwire_core::clock::{Clock, Timestamp, derived_uuid_of};
use bellwire_core::id::{CampaignId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_core::template::MessageContent;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_rules::campaign::measurement::group_number;
use bellwire_rules::campaign::parts;
use bellwire_rules::campaign::plan::{Pace, Plan, PlannedMessage};
use bellwire_rules::campaign::trigger::Cause;
use bellwire_rules::policy::calendar;
use bellwire_segment::{OwnHour, SLOTS, part_of};
use bellwire_store::measurement::{enrolment, periods};
use bellwire_store::operations::retrying::is_collision;
use bellwire_store::queue::sending::{self, Addressed, Audience, NewMessage};
use bellwire_store::transactions::begin;
use bellwire_store::triggers::counts::{self, EntryCounts};
use bellwire_store::triggers::due::{self, DueEntry, LockedTrigger};
use bellwire_store::triggers::observing::{Observed, apply};
use bellwire_store::triggers::recipients;
use bellwire_vault::{Unopenable, Vault};

/// Maximum entries of one transaction. While it runs, events of the app wait, since people share 64 locks.
const AT_ONCE: i64 = 200;
/// Interval of looks at the next due entry while triggers run.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval of looks while no trigger runs, or after an error.
const IDLE_EVERY: Duration = Duration::from_secs(2);
/// Delay of a campaign whose plan cannot be opened, or whose step failed.
const LATER: TimeDelta = TimeDelta::seconds(60);
/// Minimum time by which an entry may be late. A message with a short time to live survives a short interruption.
const LATE_MIN: TimeDelta = TimeDelta::minutes(5);

pub(crate) async fn send_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    loop {
        let (look, at_rest) = match send_due(&pool, &vault, &clock).await {
            Ok(waits) => waits,
            Err(error) => {
                warn!(%error, "entries of triggers could not be sent; it is tried again");
                (IDLE_EVERY, IDLE_EVERY)
            }
        };
        rest.pause(look, at_rest).await;
    }
}

/// Sends due entries, one step of each campaign, so that a long one delays no other. Returns the time until the next look, and that in
/// idle mode.
pub async fn send_due(pool: &PgPool, vault: &Vault, clock: &Clock) -> sqlx::Result<(Duration, Duration)> {
    let running = due::running(pool).await?;
    let is_due = |next_at: Option<Timestamp>| next_at.is_some_and(|at| at <= clock.now());
    let mut has_more = false;
    for campaign in running.iter().filter(|trigger| is_due(trigger.next_at)).map(|trigger| trigger.campaign) {
        match step(pool, vault, campaign, clock.now()).await {
            Ok(more) => has_more |= more,
            // The next look tries again.
            Err(error) if is_collision(&error) => {}
            Err(error) => {
                error!(%error, %campaign, "entries of a campaign could not be sent; they wait");
                due::pace(&mut *pool.acquire().await?, campaign, clock.now() + LATER).await?;
            }
        }
    }
    if has_more {
        return Ok((Duration::ZERO, Duration::ZERO));
    }
    if running.is_empty() {
        return Ok((IDLE_EVERY, AT_REST));
    }
    let next = running.iter().filter_map(|trigger| trigger.next_at).min();
    let wait = next.map_or(AT_REST, |at| (at - clock.now()).to_std().unwrap_or_default());
    Ok((LOOK_EVERY, wait.clamp(LOOK_EVERY, AT_REST)))
}

/// Sends some due entries of a campaign. Returns whether there may be more.
async fn step(pool: &PgPool, vault: &Vault, campaign: CampaignId, now: Timestamp) -> sqlx::Result<bool> {
    let mut tx = begin(pool).await?;
    let Some(trigger) = due::lock(&mut tx, campaign).await? else { return Ok(false) };
    if trigger.paced_at.is_some_and(|at| at > now) {
        return Ok(false);
    }
    let Some(plan) = planned::open(vault, campaign, &trigger.plan) else {
        error!(%campaign, "the plan of a campaign cannot be opened; its entries wait");
        due::pace(&mut tx, campaign, now + LATER).await?;
        return tx.commit().await.map(|()| false);
    };
    // The scheduler ends it, and its entries.
    if plan.expires_at.is_some_and(|end| end - LIFE_MIN <= now) {
        return Ok(false);
    }
    let step = DueStep { vault, trigger: &trigger, plan: &plan, now };
    let limit = step.allowed();
    let entries = due::entries(&mut tx, &trigger, limit, now).await?;
    let n = entries.len();
    if n > 0 {
        step.send(&mut tx, entries).await?;
        tx.commit().await?;
    }
    Ok(n as i64 == limit)
}

/// One transaction on due entries of a campaign.
struct DueStep<'a> {
    vault: &'a Vault,
    trigger: &'a LockedTrigger,
    plan: &'a Plan,
    now: Timestamp,
}

/// An entry with the index of its variant.
type Assigned = (DueEntry, usize);

impl DueStep<'_> {
    /// Returns the time from one message to the next in microseconds. `None`: no send rate.
    fn interval_us(&self) -> Option<i64> {
        match self.plan.pace {
            Some(Pace::PerMinute(per_minute)) => Some(60_000_000 / i64::from(per_minute.max(1))),
            _ => None,
        }
    }

    /// Returns the time from which messages at the send rate count: at most the last second is made up for.
    fn paced_since(&self) -> Timestamp {
        self.trigger.paced_at.unwrap_or(self.now).max(self.now - TimeDelta::seconds(1))
    }

    /// Returns the maximum number of entries to send now.
    fn allowed(&self) -> i64 {
        let waited_us = (self.now - self.paced_since()).num_microseconds().unwrap_or(0);
        self.interval_us().map_or(AT_ONCE, |us| (waited_us / us.max(1) + 1).min(AT_ONCE))
    }

    async fn send(&self, conn: &mut PgConnection, entries: Vec<DueEntry>) -> sqlx::Result<()> {
        // Those who will be excluded are included: in the control group it is not known.
        let measured = entries.iter().map(|entry| (recipients::person(self.trigger.app, entry), self.group_of(entry)));
        let measured: Vec<(Person, i16)> = measured.collect();
        let (app, campaign) = (self.trigger.app, self.trigger.campaign);
        let period = periods::at(conn, app, campaign, self.plan, (self.now, self.now)).await?;
        let mut counts = EntryCounts::default();
        let (mut ended, mut held_out): (Vec<Uuid>, Vec<Uuid>) = Default::default();
        let mut assigned = Vec::new();
        for entry in entries {
            match self.variant_of(&entry) {
                None => held_out.push(entry.person),
                Some(variant) if self.is_late(&entry, variant) => {
                    counts.expired += 1;
                    ended.push(entry.person);
                }
                Some(variant) => assigned.push((entry, variant)),
            }
        }
        let assigned = self.at_own_hours(conn, assigned).await?;
        let (mut messages, mut recipients) = (Vec::new(), Vec::new());
        for ((entry, variant), browsers) in self.with_recipients(conn, assigned).await? {
            if browsers.is_empty() {
                counts.excluded += 1;
                ended.push(entry.person);
                continue;
            }
            match self.compose(&entry, variant, browsers) {
                Ok(message) => {
                    messages.push(message);
                    recipients.push((entry, variant));
                }
                Err(error) => {
                    error!(%error, campaign = %self.trigger.campaign, "a person gets no message of a trigger");
                    counts.excluded += 1;
                    ended.push(entry.person);
                }
            }
        }
        let mut sent = Vec::new();
        let stored = self.store(conn, &messages).await?;
        for ((message, (entry, variant)), is_stored) in messages.into_iter().zip(recipients).zip(stored) {
            match is_stored {
                true => sent.push((message.message.id, entry, variant)),
                // One of the browsers has just been deleted.
                false => {
                    counts.excluded += 1;
                    ended.push(entry.person);
                }
            }
        }
        (counts.sent, counts.held_out) = (sent.len() as i64, held_out.len() as i64);
        self.assign(conn, &sent).await?;
        // `at_most` also limits the control group, or its people would enter more often.
        let people: Vec<Uuid> = sent.iter().map(|(_, entry, _)| entry.person).chain(held_out).collect();
        due::finish(conn, self.trigger, &people, &ended, self.now).await?;
        if let Some(us) = self.interval_us() {
            let taken = counts.sent;
            let paced_at = self.paced_since() + TimeDelta::microseconds(us.saturating_mul(taken));
            due::pace(conn, self.trigger.campaign, paced_at).await?;
        }
        let mut all = self.follow_up(conn, &sent).await?;
        all.insert(self.trigger.campaign, counts);
        counts::add(&mut *conn, &all, self.now).await?;
        match period.filter(|period| period.compared) {
            Some(period) => enrolment::add(conn, period.id, &measured, self.now).await,
            None => Ok(()),
        }
    }

    fn group_of(&self, entry: &DueEntry) -> i16 {
        group_number(self.plan, self.position(entry))
    }

    fn position(&self, entry: &DueEntry) -> u16 {
        part_of(&self.trigger.campaign.to_string(), recipients::share_of(entry))
    }

    /// Returns the index of a person's variant. `None`: the person is in the control group.
    fn variant_of(&self, entry: &DueEntry) -> Option<usize> {
        parts::variant_at(self.plan, self.position(entry))
    }

    fn is_late(&self, entry: &DueEntry, variant: usize) -> bool {
        self.now > entry.due_at + TimeDelta::seconds(self.plan.variants[variant].body.ttl_s.into()).max(LATE_MIN)
    }

    /// Moves entries of variants at own hours to these hours. Returns the others.
    async fn at_own_hours(&self, conn: &mut PgConnection, entries: Vec<Assigned>) -> sqlx::Result<Vec<Assigned>> {
        let waits = |(entry, variant): &Assigned| self.plan.variants[*variant].at_own_hour && !entry.postponed;
        let (waiting, mut due): (Vec<_>, Vec<_>) = entries.into_iter().partition(waits);
        if waiting.is_empty() {
            return Ok(due);
        }
        let (app, home) = (self.trigger.app, calendar::zone(&self.trigger.timezone).unwrap_or(Tz::UTC));
        let only: Vec<DueEntry> = waiting.iter().map(|(entry, _)| entry.clone()).collect();
        let browsers = recipients::browsers(conn, self.vault, app, &only, self.now).await?;
        let first: Vec<Option<SubscriptionId>> = browsers.iter().map(|ids| ids.first().copied()).collect();
        let people = only.iter().zip(&first).filter_map(|(entry, id)| Some(((*id)?, recipients::person(app, entry))));
        let habits = recipients::habits(conn, app, &people.collect::<Vec<_>>()).await?;
        let mut postponed = Vec::new();
        for ((entry, variant), id) in waiting.into_iter().zip(first) {
            let known = id.and_then(|id| habits.get(&id));
            let slot = known.map_or(0, |(habits, zone)| {
                let own = |slot| OwnHour { from: self.now, slot, home };
                let best = habits.own_hour_at(own(0).as_of());
                (0..SLOTS).find(|slot| own(*slot).holds(best, zone.as_deref())).unwrap_or(0)
            });
            match slot {
                0 => due.push((entry, variant)),
                slot => postponed.push((entry.person, self.now + TimeDelta::hours(slot.into()))),
            }
        }
        due::postpone(conn, self.trigger.campaign, &postponed).await?;
        Ok(due)
    }

    /// Returns the browsers of each entry that its campaign's audience contains.
    async fn with_recipients(
        &self, conn: &mut PgConnection, entries: Vec<Assigned>,
    ) -> sqlx::Result<Vec<(Assigned, Vec<SubscriptionId>)>> {
        let app = self.trigger.app;
        let only: Vec<DueEntry> = entries.iter().map(|(entry, _)| entry.clone()).collect();
        let mut browsers = recipients::browsers(conn, self.vault, app, &only, self.now).await?;
        for (index, variant) in self.plan.variants.iter().enumerate() {
            let of_variant = || entries.iter().zip(&browsers).filter(|((_, variant), _)| *variant == index);
            let ids: Vec<SubscriptionId> = of_variant().flat_map(|(_, ids)| ids).copied().collect();
            if ids.is_empty() {
                continue;
            }
            let audience = (&variant.body.audience, variant.body.filter.as_ref());
            let within = recipients::in_audience(conn, app, audience, &ids, self.now).await?;
            for (_, ids) in entries.iter().zip(&mut browsers).filter(|((_, variant), _)| *variant == index) {
                ids.retain(|id| within.contains(id));
            }
        }
        if let Some(reaction) = self.trigger.rule.did_not {
            let followed: Vec<MessageId> = entries.iter().filter_map(|(entry, _)| entry.follows).collect();
            let all: Vec<SubscriptionId> = browsers.iter().flatten().copied().collect();
            let open = recipients::without_reaction(conn, &followed, reaction, &all).await?;
            for ((entry, _), ids) in entries.iter().zip(&mut browsers) {
                if entry.follows.is_some_and(|message| !open.contains(&message)) {
                    ids.clear();
                }
            }
        }
        Ok(entries.into_iter().zip(browsers).collect())
    }

    fn compose(
        &self, entry: &DueEntry, variant: usize, browsers: Vec<SubscriptionId>,
    ) -> Result<Addressed, Unopenable> {
        let body = &self.plan.variants[variant].body;
        let content = Zeroizing::new(content(body, entry.properties(self.vault)?));
        let message = planned::message(self.vault, self.trigger.app, self.plan, body, &content, self.now);
        let to = match (&entry.user_id, entry.subscription) {
            (Some(user), None) => json!({"users": [user]}),
            _ => json!({"subscriptions": browsers}),
        };
        let message = NewMessage { audience: to, ..message };
        let audience = match &entry.user_id {
            Some(user) => Audience::BrowsersOf(vec![user.clone()], browsers),
            None => Audience::Subscriptions(browsers),
        };
        Ok(Addressed { message, audience })
    }

    /// Stores the messages. Returns for each whether it has a recipient.
    async fn store(&self, conn: &mut PgConnection, messages: &[Addressed]) -> sqlx::Result<Vec<bool>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let sent = sending::send(conn, self.vault, &messages.iter().collect::<Vec<_>>(), None, self.now).await?;
        Ok(sent.into_iter().map(|sent| sent.unknown.is_empty()).collect())
    }

    /// Assigns the messages to the campaign. Their delivery ids derive from the event, so that browsers show a message once that a
    /// restored server sends again.
    async fn assign(&self, conn: &mut PgConnection, sent: &[(MessageId, DueEntry, usize)]) -> sqlx::Result<()> {
        let campaign = self.trigger.campaign.0;
        let root = |entry: &DueEntry| {
            let at = entry.caused_at.timestamp_micros().to_be_bytes();
            let event = entry.event_id.as_deref().unwrap_or_default().as_bytes();
            derived_uuid_of(
                entry.caused_at,
                &[b"entry of a trigger", campaign.as_bytes(), entry.person.as_bytes(), &at, event],
            )
        };
        let variant = |variant: usize| i16::try_from(variant).unwrap_or(i16::MAX);
        let assigned: Vec<_> = sent.iter().map(|(id, entry, index)| (*id, variant(*index), root(entry))).collect();
        due::assign(conn, self.trigger.campaign, &assigned).await
    }

    /// Lets the recipients enter the campaigns that follow up this one. Returns the counts of these campaigns.
    async fn follow_up(
        &self, conn: &mut PgConnection, sent: &[(MessageId, DueEntry, usize)],
    ) -> sqlx::Result<BTreeMap<CampaignId, EntryCounts>> {
        let app = self.trigger.app;
        let observed = sent.iter().map(|(id, entry, _)| Observed {
            cause: Cause::Sent(self.trigger.campaign),
            person: recipients::person(app, entry),
            browser: None,
            at: self.now,
            since: entry.caused_at,
            user: entry.user_id.as_deref(),
            subscription: entry.subscription.zip(entry.life),
            event: entry.event(),
            follows: Some(*id),
            properties: None,
        });
        apply(conn, app, &observed.collect::<Vec<_>>(), self.now).await
    }
}

/// Returns the content of a message with the properties of its event as data of the template.
fn content(body: &PlannedMessage, properties: Option<Vec<u8>>) -> Vec<u8> {
    let plain = serde_json::to_vec(&body.content).expect("texts and numbers");
    let Some(properties) = properties.and_then(|it| serde_json::from_slice::<Map<String, Value>>(&it).ok()) else {
        return plain;
    };
    match MessageContent::from_json(&plain) {
        Ok(MessageContent::Template(mut template)) => {
            template.data.extend(properties);
            MessageContent::Template(template).to_json().unwrap_or(plain)
        }
        _ => plain,
    }
}
