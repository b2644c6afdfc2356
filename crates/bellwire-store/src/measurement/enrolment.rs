//! People who are compared: everyone in the audience of a campaign with a control group or variants, by the group that the
//! person's share gives. Assignments never change, so repeating an interrupted enrolment adds what is missing.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::candidates::{self, Stretch};
use crate::audience::reach::narrowed;
use crate::audience::segment_filter::Judge;
use crate::audience::{audience_counts, topics};
use crate::connections::engine;
use crate::triggers::waits::lock_everyone;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, LaneId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::measurement::group_number;
use bellwire_rules::campaign::parts::{self, Narrow};
use bellwire_rules::campaign::plan::{CampaignAudience, Plan, WHOLE};
use bellwire_segment::{AudienceFilter, Portion};

/// Candidates that one transaction assigns.
const AT_ONCE: usize = 2_000;
/// Rows that one transaction deletes.
const CHUNK: i64 = 20_000;

/// A run whose audience is to be assigned to groups.
#[derive(Debug)]
pub struct Enrolment {
    pub measurement: Uuid,
    pub campaign: CampaignId,
    pub app: AppId,
    /// Encrypted plan of the campaign.
    pub plan: Vec<u8>,
    pub at: Timestamp,
}

/// Returns the runs whose audiences are to be assigned to groups, up to 100.
pub async fn waiting(pool: &PgPool) -> sqlx::Result<Vec<Enrolment>> {
    fetch_all!(
        pool,
        Enrolment,
        r#"SELECT m.id AS measurement, c.id AS "campaign: CampaignId", m.app AS "app: AppId", c.plan, m.enrol_at AS "at!"
           FROM measurements m JOIN campaigns c ON c.id = m.campaign WHERE m.enrol_at IS NOT NULL ORDER BY m.enrol_at LIMIT 100"#
    )
}

/// Records that a run's audience is assigned, and has its messages made, unless another run has begun meanwhile.
pub async fn done(conn: &mut PgConnection, of: &Enrolment, now: Timestamp) -> sqlx::Result<()> {
    execute!(&mut *conn, "UPDATE campaigns SET next_at = $2 WHERE id = $1 AND next_at > $2", (of.campaign.0, now))?;
    execute!(conn, "UPDATE measurements SET enrol_at = NULL WHERE id = $1 AND enrol_at = $2", (of.measurement, of.at))
}

/// Assigns the audience of a run to groups. It has the people of all variants and the control group, whether or not they get a
/// message.
pub async fn enrol(pool: &PgPool, of: &Enrolment, plan: &Plan, now: Timestamp) -> sqlx::Result<()> {
    let Some(body) = plan.variants.first().map(|variant| &variant.body) else { return Ok(()) };
    // An unreadable filter was refused when the messages were made, so that there are no people to compare.
    let Some(filter) = parts::filter(plan, of.campaign, body, &Narrow::default()) else { return Ok(()) };
    let mut filter = filter.unwrap_or_default();
    filter.sunset = None; // who is left out by clicks depends on the campaign itself
    // The whole: it only has the person read.
    filter.portions.push(Portion { salt: of.campaign.to_string(), from: 0, to: WHOLE });
    let mut conn = pool.acquire().await?;
    let topic = match &body.audience {
        CampaignAudience::All => None,
        CampaignAudience::Topic { name, .. } => match topics::find(&mut conn, of.app, name).await? {
            Some(topic) => Some(topic),
            None => return Ok(()),
        },
    };
    let lanes = match topic {
        Some(topic) => audience_counts::of_topic(&mut conn, topic).await?,
        None => audience_counts::of_everyone(&mut conn, of.app).await?,
    };
    let lanes: Vec<LaneId> = narrowed(&mut conn, &filter, lanes).await?.into_iter().map(|(lane, _)| lane).collect();
    for lane in &lanes {
        for shard in engine::parts() {
            let after = SubscriptionId(Uuid::nil());
            let stretch = Stretch { lane: *lane, topic, shard, after, accepted_at: of.at };
            stretch_of_lane(&mut conn, of, plan, &filter, stretch, now).await?;
        }
    }
    Ok(())
}

async fn stretch_of_lane(
    conn: &mut PgConnection, of: &Enrolment, plan: &Plan, filter: &AudienceFilter, mut stretch: Stretch, now: Timestamp,
) -> sqlx::Result<()> {
    let judge = Judge::new(conn, of.app, filter, &[stretch.lane], now).await?.assigned_at(Some(of.at));
    let salt = of.campaign.to_string();
    loop {
        let mut tx = conn.begin().await?;
        // An erasure comes before or after all of it.
        lock_everyone(&mut tx, of.app).await?;
        let rows = candidates::next(&mut tx, &stretch, &judge.needs, AT_ONCE, now).await?;
        let judged = judge.judge(&mut tx, &rows).await?;
        let taken = rows.iter().zip(&judged).filter(|(_, (_, verdict))| verdict.is_taken());
        let people = taken.filter_map(|(row, _)| {
            let position = row.position(&salt, Some(of.at));
            Some((row.person(of.app, Some(of.at))?, group_number(plan, position)))
        });
        let people: Vec<(Person, i16)> = people.collect();
        add(&mut tx, of.measurement, &people, of.at).await?;
        tx.commit().await?;
        stretch.after = judged.last().map_or(stretch.after, |(id, _)| *id);
        if rows.len() < AT_ONCE {
            return Ok(());
        }
    }
}

/// Adds people to the groups of a measurement. Known ones keep their group and time.
pub async fn add(
    conn: &mut PgConnection, measurement: Uuid, people: &[(Person, i16)], at: Timestamp,
) -> sqlx::Result<()> {
    if people.is_empty() {
        return Ok(());
    }
    let added = fetch_all!(
        &mut *conn,
        scalar,
        "INSERT INTO measured_people (measurement, person, part, at)
         SELECT DISTINCT ON (t.person) $1::uuid, t.person, t.part, $2::timestamptz
         FROM unnest($3::uuid[], $4::smallint[]) AS t (person, part) ORDER BY t.person
         ON CONFLICT (measurement, person) DO NOTHING RETURNING part",
        (measurement, at),
        people,
        |(person, part)| (person.id(), *part)
    )?;
    let mut groups = BTreeMap::<i16, i64>::new();
    for part in added {
        *groups.entry(part).or_default() += 1;
    }
    let groups: Vec<(i16, i64)> = groups.into_iter().collect();
    execute!(
        conn,
        "INSERT INTO measured_groups AS g (measurement, part, people)
         SELECT $1, t.part, t.people FROM unnest($2::smallint[], $3::bigint[]) AS t (part, people)
         ON CONFLICT (measurement, part) DO UPDATE SET people = g.people + excluded.people",
        (measurement),
        groups,
        |(part, people)| (*part, *people)
    )
}

/// Removes a person from the groups of an app's measurements.
pub(crate) async fn forget(conn: &mut PgConnection, app: AppId, person: Person) -> sqlx::Result<()> {
    execute!(
        conn,
        "WITH gone AS (
           DELETE FROM measured_people p USING measurements m
           WHERE m.app = $1 AND m.result IS NULL AND p.measurement = m.id AND p.person = $2 RETURNING p.measurement, p.part)
         UPDATE measured_groups g SET people = g.people - 1
         FROM (SELECT g.measurement, g.part FROM gone JOIN measured_groups g USING (measurement, part)
               ORDER BY measurement, part FOR UPDATE OF g) locked
         WHERE g.measurement = locked.measurement AND g.part = locked.part",
        (app.0, person.id())
    )
}

/// Deletes a chunk of the people of closed and deleted measurements. Returns the number.
pub async fn clear(pool: &PgPool) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "WITH RECURSIVE measured (id) AS (
           (SELECT measurement FROM measured_people ORDER BY measurement LIMIT 1)
           UNION ALL SELECT (SELECT measurement FROM measured_people WHERE measurement > d.id ORDER BY measurement LIMIT 1)
           FROM measured d WHERE d.id IS NOT NULL)
         DELETE FROM measured_people WHERE ctid = ANY (ARRAY(
           SELECT p.ctid FROM measured d JOIN measured_people p ON p.measurement = d.id
           WHERE NOT EXISTS (SELECT FROM measurements WHERE id = d.id AND result IS NULL) LIMIT $1))",
        (CHUNK)
    )
}
