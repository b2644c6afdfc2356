//! The scheduler of campaigns: makes messages of those that are due. Any replica in the maintenance role does it; each step is a
//! transaction of its own on a campaign that no other replica is at.

use std::time::Duration;

use chrono::TimeDelta;
use chrono_tz::Tz;
use sqlx::{PgConnection, PgPool};
use tracing::{error, info, warn};

use crate::campaign::parts;
use crate::campaign::plan::{Audience, Body, DidNot, Otherwise, Plan, Test, WHOLE};
use crate::campaign::schedule::When;
use crate::campaign::state::State;
use crate::campaign::winner::judge;
use crate::campaign::zones::Zones;
use crate::model::clock::{Clock, Timestamp, uuid_of};
use crate::model::filter::{Expression, Filter, Portion};
use crate::model::id::MessageId;
use crate::policy::calendar;
use crate::store::campaigns::steps::{self, Ahead, Due, DuePart};
use crate::store::queue::sending::{self, Addressed, Audience as SentTo, NewMessage};
use crate::vault::{CONTENT, PLAN, Vault};

/// Messages that one step makes.
const MADE_AT_ONCE: i64 = 20;
/// How often it is looked whether the last deliveries of a campaign have ended.
const WATCHED_EVERY: TimeDelta = TimeDelta::seconds(10);
/// Zones in one list of an expression, which may not hold all there are.
const ZONES_OF_LIST: usize = 400;
/// When a campaign is looked at again whose plan does not open, or that follows one that has not run.
const LATER: Duration = Duration::from_secs(60);

/// How often it is looked for what is due.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks for what is due, for ever.
pub(crate) async fn advance_on(pool: PgPool, vault: Vault, clock: Clock) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = advance(&pool, &vault, clock.now()).await {
            warn!(%error, "campaigns could not be moved on; it is tried again");
        }
    }
}

/// Does all that is due: makes messages, decides tests, and steers what belongs to campaigns that were turned. A step that fails
/// is undone; the campaign is due still.
pub async fn advance(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    // Dispatch reads what it has to obey from the database within a second.
    drop(steps::follow_through(pool, None, now).await?);
    while step(pool, vault, now).await? {}
    Ok(())
}

/// One step of one campaign. False: none is due.
async fn step(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<bool> {
    let mut tx = pool.begin().await?;
    let Some(due) = steps::lock_due(&mut tx, now).await? else { return Ok(false) };
    let Some(plan) = open(vault, &due) else {
        error!(campaign = %due.id, "the plan of a campaign cannot be opened; it waits");
        steps::set_out(&mut tx, due.id, State::Scheduled, Some(now + LATER), now).await?;
        tx.commit().await?;
        return Ok(true);
    };
    let step = Step { vault, due: &due, plan: &plan, now };
    let next_run = step.begin_run(&mut tx).await?;
    step.decide(&mut tx).await?;
    step.make_messages(&mut tx).await?;
    step.set_out(&mut tx, next_run).await?;
    tx.commit().await?;
    Ok(true)
}

fn open(vault: &Vault, due: &Due) -> Option<Plan> {
    /// What is sealed, but for what its author wrote.
    #[derive(serde::Deserialize)]
    struct Stored {
        checked: Plan,
    }
    let plain = zeroize::Zeroizing::new(vault.open(PLAN, due.id.0, &due.plan).ok()?);
    serde_json::from_slice::<Stored>(&plain).ok().map(|stored| stored.checked)
}

/// When a campaign runs next.
enum NextRun {
    /// It has run, or never will.
    Never,
    /// Then.
    At(Timestamp),
}

/// A step of a locked campaign.
struct Step<'a> {
    vault: &'a Vault,
    due: &'a Due,
    plan: &'a Plan,
    now: Timestamp,
}

impl Step<'_> {
    fn has_expired(&self) -> bool {
        self.plan.expires_at.is_some_and(|end| end <= self.now)
    }

    /// Begins a run if it is time. Returns when the next one is.
    async fn begin_run(&self, conn: &mut PgConnection) -> sqlx::Result<NextRun> {
        if self.has_expired() {
            steps::forget_parts(conn, self.due.id).await?;
            return Ok(NextRun::Never);
        }
        let has_run = self.due.runs > 0;
        let at = match &self.plan.when {
            _ if has_run && !matches!(self.plan.when, When::Cron(_)) => return Ok(NextRun::Never),
            When::Now | When::Recipients { .. } => self.now,
            When::At(at) => *at,
            When::After(seconds) => match self.followed(conn).await? {
                Some(at) => at + TimeDelta::seconds(*seconds),
                None => return Ok(NextRun::At(self.now + LATER)),
            },
            When::Cron(recurrence) => {
                let next = recurrence.next(self.now).map_or(NextRun::Never, NextRun::At);
                let since = self.due.last_at.unwrap_or(self.due.started_at);
                // Of all that were missed only the last is made up for.
                if let Some(at) = recurrence.last(since, self.now) {
                    self.run(conn, at).await?;
                }
                return Ok(next);
            }
        };
        if at > self.now {
            return Ok(NextRun::At(at));
        }
        self.run(conn, at).await?;
        Ok(NextRun::Never)
    }

    /// When the last run of the campaign was for that this one follows.
    async fn followed(&self, conn: &mut PgConnection) -> sqlx::Result<Option<Timestamp>> {
        match self.plan.follows.as_ref().and_then(|follow| follow.campaign.parse().ok()) {
            Some(campaign) => steps::last_run_of(conn, self.due.app, campaign).await,
            None => Ok(None),
        }
    }

    async fn run(&self, conn: &mut PgConnection, at: Timestamp) -> sqlx::Result<()> {
        let home = calendar::zone(&self.due.timezone).unwrap_or(Tz::UTC);
        let parts = parts::of_run(self.plan, at, home, self.now);
        let decide_at = self.plan.test.map(|test| self.now + TimeDelta::seconds(test.after_s));
        let root = uuid_of(self.now);
        let run = steps::begin_run(conn, self.due, at, root, decide_at, &parts).await?;
        info!(campaign = %self.due.id, run, messages = parts.len(), "a run of a campaign begins");
        Ok(())
    }

    /// Decides the test of its variants if it is time.
    async fn decide(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        let Some(test) = self.plan.test else { return Ok(()) };
        let variants = self.plan.variants.len();
        let Some(undecided) = steps::undecided(conn, self.due.id, variants, self.now).await? else { return Ok(()) };
        let verdict = judge(&undecided.counts);
        let winner = verdict.filter(|verdict| verdict.confidence >= test.confidence).map(|verdict| verdict.best);
        steps::decided(conn, self.due.id, undecided.run, verdict, winner).await?;
        let chosen = winner.or((test.otherwise == Otherwise::First).then_some(0));
        if let Some(variant) = chosen.filter(|_| !self.has_expired() && reaches_rest(self.plan, test)) {
            let rest = parts::of_rest(self.plan, test, variant, self.now);
            steps::add_parts(conn, self.due.id, undecided.run, &[rest]).await?;
        }
        Ok(())
    }

    async fn make_messages(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for part in steps::due_parts(conn, self.due.id, MADE_AT_ONCE, self.now).await? {
            self.make_message(conn, &part).await?;
        }
        Ok(())
    }

    async fn make_message(&self, conn: &mut PgConnection, part: &DuePart) -> sqlx::Result<()> {
        let variant = usize::try_from(part.variant).ok().and_then(|place| self.plan.variants.get(place));
        let Some(variant) = variant else { return steps::part_dropped(conn, self.due.id, part).await };
        let Some(filter) = self.filter(&variant.body, part) else {
            error!(campaign = %self.due.id, "a message of a campaign has a filter that cannot be read; it is left out");
            return steps::part_dropped(conn, self.due.id, part).await;
        };
        let addressed = self.addressed(&variant.body, filter);
        let id = addressed.message.id;
        let sent = sending::send(conn, self.vault, &[&addressed], None).await?.pop();
        if sent.is_none_or(|sent| sent.lacks_topic) {
            // Its topic was removed since it was checked: there is nobody left in it.
            return steps::part_dropped(conn, self.due.id, part).await;
        }
        steps::part_made(conn, self.due.id, part, id).await?;
        match self.plan.pace {
            Some(pace) => {
                let share = part.narrow.share.map_or(WHOLE, |share| share.to - share.from);
                steps::set_pace(conn, id, pace, share.into()).await
            }
            None => Ok(()),
        }
    }

    /// Whom of its audience a part is for: who fits the campaign's own segment, lies in the part's share and zones, has their own hour
    /// then, and did not do what a follow-up asks for. None: it cannot be said.
    fn filter(&self, body: &Body, part: &DuePart) -> Option<Option<Filter>> {
        let mut filter = body.filter.clone().unwrap_or_default();
        let narrow = &part.narrow.0;
        let zones = narrow.zones.as_ref().map(in_zones);
        let followed = self.plan.follows.as_ref().map(|follow| {
            let act = match follow.did_not {
                DidNot::Click => "clicked",
                DidNot::Display => "displayed",
            };
            format!("received(\"{of}\") and not {act}(\"{of}\")", of = follow.campaign)
        });
        let more: Vec<String> = zones.into_iter().chain(followed).collect();
        if !more.is_empty() {
            let own = filter.segment.iter().map(|segment| format!("({segment})"));
            let text = own.chain(more).collect::<Vec<_>>().join(" and ");
            filter.segment = Some(serde_json::from_value::<Expression>(text.into()).ok()?);
        }
        if let Some(share) = narrow.share {
            filter.portions.push(Portion { salt: self.due.id.to_string(), from: share.from, to: share.to });
        }
        filter.own_hour = narrow.own_hour.clone();
        Some((filter != Filter::default()).then_some(filter))
    }

    fn addressed(&self, body: &Body, filter: Option<Filter>) -> Addressed {
        let id = MessageId(uuid_of(self.now));
        let content = zeroize::Zeroizing::new(serde_json::to_vec(&body.content).expect("texts and numbers"));
        let left_s = self.plan.expires_at.map(|end| (end - self.now).num_seconds());
        let ttl_s = left_s.and_then(|left| i32::try_from(left).ok()).map_or(body.ttl_s, |left| body.ttl_s.min(left));
        let message = NewMessage {
            id,
            app: self.due.app,
            tier: body.tier,
            audience: body.to.clone(),
            filter,
            content: self.vault.seal(CONTENT, id, &content),
            ttl_s: ttl_s.max(0),
            urgency: body.urgency,
            topic_header: body.topic_header.clone(),
            policy: body.policy.clone(),
            enveloped: body.enveloped,
            accepted_at: self.now,
            is_for_later: false,
            by_cursors: self.plan.pace.is_some(),
            key: None,
            traceparent: None,
            sent_by: None,
        };
        let audience = match body.audience.clone() {
            Audience::Topic { name, may_be_missing } => SentTo::Topic { name, may_be_missing },
            Audience::All => SentTo::All,
        };
        Addressed { message, audience }
    }

    /// Writes down where the campaign stands now, and when it is to be looked at again.
    async fn set_out(&self, conn: &mut PgConnection, next_run: NextRun) -> sqlx::Result<()> {
        let ahead = steps::ahead(conn, self.due.id).await?;
        let (state, next_at) = outlook(&ahead, next_run, self.now);
        steps::set_out(conn, self.due.id, state, next_at, self.now).await
    }
}

/// An expression for who is in these zones.
fn in_zones(zones: &Zones) -> String {
    let (not, joint, names) = match zones {
        Zones::In(names) => ("", " or ", names),
        Zones::NotIn(names) => ("not ", " and ", names),
    };
    let of_list = |names: &[String]| {
        let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("{not}timezone in ({})", quoted.join(", "))
    };
    let lists: Vec<String> = names.chunks(ZONES_OF_LIST).map(of_list).collect();
    format!("({})", lists.join(joint))
}

/// Whether there is a rest that a test decides for.
fn reaches_rest(plan: &Plan, test: Test) -> bool {
    u32::from(plan.holdout) + u32::from(test.share) < u32::from(WHOLE)
}

/// Where a campaign stands, and when it is to be looked at again.
fn outlook(ahead: &Ahead, next_run: NextRun, now: Timestamp) -> (State, Option<Timestamp>) {
    let run_at = match next_run {
        NextRun::At(at) => Some(at),
        NextRun::Never => None,
    };
    let is_under_way = ahead.has_begun && (ahead.part_at.is_some() || ahead.decide_at.is_some());
    let state = match ahead {
        _ if ahead.is_moving || is_under_way => State::Sending,
        Ahead { part_at: None, decide_at: None, .. } if run_at.is_none() => State::Done,
        _ => State::Scheduled,
    };
    let watched_at = ahead.is_moving.then_some(now + WATCHED_EVERY);
    (state, [ahead.part_at, ahead.decide_at, run_at, watched_at].into_iter().flatten().min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_campaign_stands_follows_from_what_is_still_to_come() {
        let now: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
        let later = now + TimeDelta::hours(1);
        let ahead = |part_at, decide_at, has_begun, is_moving| Ahead { part_at, decide_at, has_begun, is_moving };
        let soon = Some(now + WATCHED_EVERY);
        for (ahead, next_run, state, next_at) in [
            (ahead(None, None, true, false), NextRun::Never, State::Done, None),
            (ahead(None, None, true, true), NextRun::Never, State::Sending, soon),
            (ahead(None, None, true, false), NextRun::At(later), State::Scheduled, Some(later)),
            (ahead(None, None, false, false), NextRun::At(later), State::Scheduled, Some(later)),
            (ahead(Some(later), None, false, false), NextRun::Never, State::Scheduled, Some(later)),
            (ahead(Some(later), None, true, false), NextRun::Never, State::Sending, Some(later)),
            (ahead(Some(later), None, true, true), NextRun::Never, State::Sending, soon),
            (ahead(None, Some(later), true, false), NextRun::Never, State::Sending, Some(later)),
        ] {
            assert_eq!(outlook(&ahead, next_run, now), (state, next_at), "{ahead:?}");
        }
    }
}
