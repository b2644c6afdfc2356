//! Scheduler of campaigns: makes messages of those that are due. All replicas with the maintenance role run it. Each
//! step is a transaction on a campaign that no other replica has locked.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use chrono_tz::Tz;
use sqlx::{Connection as _, PgConnection, PgPool};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::planned::{self, LIFE_MIN};
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::CampaignId;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_rules::campaign::parts;
use bellwire_rules::campaign::plan::{CampaignAudience, Otherwise, Pace, Plan, PlannedMessage, Test, WHOLE};
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::CampaignState;
use bellwire_rules::campaign::winner::judge;
use bellwire_rules::policy::calendar;
use bellwire_segment::AudienceFilter;
use bellwire_store::campaigns::scheduler::{self, Ahead, DueCampaign, DuePart, FollowedRun};
use bellwire_store::campaigns::transitions;
use bellwire_store::measurement::{figures, periods};
use bellwire_store::operations::retrying::is_collision;
use bellwire_store::queue::sending::{self, Addressed, Audience as SentTo, NewMessage};
use bellwire_store::transactions::begin;
use bellwire_vault::Vault;

/// Interval of the check whether the last deliveries of a campaign have ended.
const WATCHED_EVERY: TimeDelta = TimeDelta::seconds(10);
/// Delay of a campaign whose plan cannot be opened, whose step failed, or whose predecessor has not run.
const LATER: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn advance_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    loop {
        let wait = match advance_if_due(&pool, &vault, &clock).await {
            Ok(wait) => wait,
            Err(error) => {
                warn!(%error, "campaigns could not be moved on; it is tried again");
                LOOK_EVERY
            }
        };
        rest.pause(LOOK_EVERY, wait).await;
    }
}

/// Advances due campaigns. Returns the time until the next one.
async fn advance_if_due(pool: &PgPool, vault: &Vault, clock: &Clock) -> sqlx::Result<Duration> {
    let (next, now) = (scheduler::next_due(pool).await?, clock.now());
    if next.is_some_and(|at| at <= now) {
        advance(pool, vault, clock).await?;
    }
    let wait = next.map_or(AT_REST, |at| (at - now).to_std().unwrap_or_default());
    Ok(wait.clamp(LOOK_EVERY, AT_REST))
}

/// Advances all due campaigns: makes messages, decides tests, and applies state changes to messages. A failed step is
/// rolled back and retried later, and does not delay other campaigns.
pub async fn advance(pool: &PgPool, vault: &Vault, clock: &Clock) -> sqlx::Result<()> {
    while step(pool, vault, clock.now()).await? {}
    let mut after = CampaignId(Uuid::nil());
    loop {
        let turned = transitions::unsteered(pool, after).await?;
        let Some(last) = turned.last() else { return Ok(()) };
        after = *last;
        for id in turned {
            // Dispatch reads the result from the database within a second.
            if let Err(error) = transitions::follow_through(pool, id, clock.now()).await {
                warn!(%error, campaign = %id, "the messages of a campaign could not be turned; it is tried again");
            }
        }
    }
}

/// Runs one step of one campaign. A step makes at most one message, so that an order waits for one only. Returns
/// `false` if no campaign is due.
async fn step(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<bool> {
    let mut tx = begin(pool).await?;
    let Some(due) = scheduler::lock_due(&mut tx, now).await? else { return Ok(false) };
    let mut savepoint = tx.begin().await?;
    match go(&mut savepoint, vault, &due, now).await {
        Ok(()) => savepoint.commit().await?,
        Err(error) => {
            // The rollback fails, too, if the connection is lost.
            savepoint.rollback().await?;
            let wait = if is_collision(&error) { LOOK_EVERY } else { LATER };
            error!(%error, campaign = %due.id, "a step of a campaign failed; it waits");
            scheduler::put_off(&mut tx, due.id, now + wait).await?;
        }
    }
    tx.commit().await?;
    Ok(true)
}
async fn go(conn: &mut PgConnection, vault: &Vault, due: &DueCampaign, now: Timestamp) -> sqlx::Result<()> {
    let Some(plan) = planned::open(vault, due.id, &due.plan) else {
        error!(campaign = %due.id, "the plan of a campaign cannot be opened; it waits");
        return scheduler::put_off(conn, due.id, now + LATER).await;
    };
    let step = CampaignStep { vault, due, plan: &plan, now };
    if let When::Trigger(_) = plan.when {
        return step.await_events(conn).await;
    }
    let next_run = step.begin_run(conn).await?;
    if periods::is_enrolling(conn, due.id, now).await? {
        step.set_out(conn, next_run).await?;
        // The end of the enrolment makes it due.
        return scheduler::put_off(conn, due.id, now + periods::ENROLS_FOR).await;
    }
    step.decide(conn).await?;
    if let Some(part) = scheduler::due_part(conn, due.id, now).await? {
        step.make_message(conn, &part).await?;
    }
    if let Some(Pace::PerMinute(per_minute)) = plan.pace {
        scheduler::share_pace(conn, due.id, per_minute).await?;
    }
    step.set_out(conn, next_run).await
}

enum NextRun {
    Never,
    At(Timestamp),
}

struct CampaignStep<'a> {
    vault: &'a Vault,
    due: &'a DueCampaign,
    plan: &'a Plan,
    now: Timestamp,
}

impl CampaignStep<'_> {
    /// Returns the time from which on the campaign makes no messages.
    fn ends_at(&self) -> Option<Timestamp> {
        self.plan.expires_at.map(|end| end - LIFE_MIN)
    }

    fn has_expired(&self) -> bool {
        self.ends_at().is_some_and(|end| end <= self.now)
    }

    /// Keeps a campaign with a trigger running until it expires. Events create its messages, not the schedule.
    async fn await_events(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.has_expired() {
            scheduler::expire(conn, self.due.id).await?;
            return scheduler::set_out(conn, self.due.id, CampaignState::Done, None, self.now).await;
        }
        scheduler::set_out(conn, self.due.id, CampaignState::Sending, self.ends_at(), self.now).await
    }

    /// Starts a run if it is due. Returns the time of the next run.
    async fn begin_run(&self, conn: &mut PgConnection) -> sqlx::Result<NextRun> {
        if self.has_expired() {
            scheduler::expire(conn, self.due.id).await?;
            return Ok(NextRun::Never);
        }
        let has_run = self.due.runs > 0;
        let at = match &self.plan.when {
            _ if has_run && !matches!(self.plan.when, When::Cron(_)) => return Ok(NextRun::Never),
            When::Now | When::Recipients { .. } | When::Trigger(_) => self.due.started_at,
            When::At(at) => *at,
            When::After(seconds) => match self.followed(conn).await? {
                Some(FollowedRun { at: Some(at), .. }) => at + TimeDelta::seconds(*seconds),
                Some(FollowedRun { is_on: true, .. }) => return Ok(NextRun::At(self.now + LATER)),
                Some(FollowedRun { is_on: false, .. }) | None => {
                    info!(campaign = %self.due.id, "a campaign ends: the one that it follows has ended without a run, was withdrawn or deleted");
                    return Ok(NextRun::Never);
                }
            },
            When::Cron(recurrence) => {
                let next = recurrence.next(self.now).map_or(NextRun::Never, NextRun::At);
                let since = scheduler::last_at(conn, self.due).await?.unwrap_or(self.due.started_at);
                // Of several missed runs only the last is made.
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

    /// Returns the run that this campaign follows. `None` if it cannot be determined.
    async fn followed(&self, conn: &mut PgConnection) -> sqlx::Result<Option<FollowedRun>> {
        match self.plan.follows.as_ref().and_then(|follow| follow.campaign.parse().ok()) {
            Some(campaign) => scheduler::followed(conn, self.due.app, campaign, self.due.started_at).await,
            None => Ok(None),
        }
    }

    async fn run(&self, conn: &mut PgConnection, at: Timestamp) -> sqlx::Result<()> {
        let home = calendar::zone(&self.due.timezone).unwrap_or(Tz::UTC);
        let parts = parts::of_run(self.plan, at, home);
        let decide_at = self.plan.test.map(|test| self.now + TimeDelta::seconds(test.after_s));
        let root = parts::root(self.plan, self.due.id, at);
        let run = scheduler::begin_run(conn, self.due, at, root, decide_at, &parts).await?;
        let last_at = parts.iter().map(|part| part.due_at).max().unwrap_or(at);
        // A run that was missed begins now.
        let span = (at.max(self.now), last_at.max(self.now));
        periods::measure_run(conn, self.due.app, self.due.id, self.plan, span).await?;
        info!(campaign = %self.due.id, run, messages = parts.len(), "a run of a campaign begins");
        Ok(())
    }

    /// Decides the test of the variants if it is due.
    async fn decide(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        let Some(test) = self.plan.test else { return Ok(()) };
        let variants = self.plan.variants.len();
        let Some(undecided) = scheduler::undecided(conn, self.due.id, variants, self.now).await? else { return Ok(()) };
        let counts = match &self.plan.decided_by {
            Some(name) => figures::of_variants(conn, self.due.id, name, variants).await?,
            None => undecided.counts,
        };
        let verdict = judge(&counts);
        let winner = verdict.filter(|verdict| verdict.confidence >= test.confidence).map(|verdict| verdict.best);
        scheduler::decided(conn, self.due.id, undecided.run, verdict, winner).await?;
        let chosen = winner.or((test.otherwise == Otherwise::First).then_some(0));
        if let Some(variant) = chosen.filter(|_| !self.has_expired() && reaches_rest(self.plan, test)) {
            let rest = parts::of_rest(self.plan, test, variant, self.now);
            scheduler::add_parts(conn, self.due.id, undecided.run, &[rest]).await?;
        }
        Ok(())
    }

    async fn make_message(&self, conn: &mut PgConnection, part: &DuePart) -> sqlx::Result<()> {
        let variant = usize::try_from(part.variant).ok().and_then(|place| self.plan.variants.get(place));
        let Some(variant) = variant else { return scheduler::part_dropped(conn, self.due.id, part).await };
        let Some(filter) = parts::filter(self.plan, self.due.id, &variant.body, &part.narrow.0) else {
            error!(campaign = %self.due.id, "a message of a campaign has a filter that cannot be read; it is left out");
            return scheduler::part_dropped(conn, self.due.id, part).await;
        };
        let addressed = self.addressed(&variant.body, filter);
        let id = addressed.message.id;
        let sent = sending::send(conn, self.vault, &[&addressed], None, self.now).await?.pop();
        if sent.is_none_or(|sent| sent.lacks_topic) {
            // The topic was removed after the check, so the part has no recipients.
            return scheduler::part_dropped(conn, self.due.id, part).await;
        }
        scheduler::part_made(conn, self.due.id, part, id).await?;
        if let Some(Pace::SpreadOver(seconds)) = self.plan.pace {
            let share = part.narrow.share.map_or(WHOLE, |share| share.to - share.from);
            scheduler::spread(conn, id, seconds, share.into()).await?;
        }
        Ok(())
    }

    fn addressed(&self, body: &PlannedMessage, filter: Option<AudienceFilter>) -> Addressed {
        let content = serde_json::to_vec(&body.content).expect("texts and numbers").into();
        let message = planned::message(self.vault, self.due.app, self.plan, body, &content, self.now);
        let message = NewMessage { filter, by_cursors: self.plan.pace.is_some(), ..message };
        let audience = match body.audience.clone() {
            CampaignAudience::Topic { name, may_be_missing } => SentTo::Topic { name, may_be_missing },
            CampaignAudience::All => SentTo::All,
        };
        Addressed { message, audience }
    }

    /// Stores the state of the campaign and the time of its next step.
    async fn set_out(&self, conn: &mut PgConnection, next_run: NextRun) -> sqlx::Result<()> {
        let ahead = scheduler::ahead(conn, self.due.id).await?;
        let ends_at = self.ends_at().filter(|_| !self.has_expired());
        let (state, next_at) = outlook(&ahead, next_run, ends_at, self.now);
        scheduler::set_out(conn, self.due.id, state, next_at, self.now).await
    }
}

fn reaches_rest(plan: &Plan, test: Test) -> bool {
    u32::from(plan.holdout) + u32::from(test.share) < u32::from(WHOLE)
}

/// Returns the state of a campaign and the time of its next step. `ends_at`: time at which its messages are cancelled.
fn outlook(
    ahead: &Ahead, next_run: NextRun, ends_at: Option<Timestamp>, now: Timestamp,
) -> (CampaignState, Option<Timestamp>) {
    let run_at = match next_run {
        NextRun::At(at) => Some(at),
        NextRun::Never => None,
    };
    let is_under_way = ahead.has_begun && (ahead.part_at.is_some() || ahead.decide_at.is_some());
    let state = match ahead {
        _ if ahead.is_moving || is_under_way => CampaignState::Sending,
        Ahead { part_at: None, decide_at: None, .. } if run_at.is_none() => CampaignState::Done,
        _ => CampaignState::Scheduled,
    };
    let [watched_at, ends_at] = [Some(now + WATCHED_EVERY), ends_at].map(|at| at.filter(|_| ahead.is_moving));
    (state, [ahead.part_at, ahead.decide_at, run_at, watched_at, ends_at].into_iter().flatten().min())
}

#[cfg(test)]
#[path = "../../tests/unit/server/campaigns.rs"]
mod tests;
