//! Figures of the groups that are compared.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::periods::{self, Measurement};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::lift::GroupSums;
use bellwire_rules::campaign::winner::VariantCount;

/// Number of people in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredGroup {
    /// Number of the group: a variant's index, or as [`bellwire_rules::campaign::measurement`] has it.
    pub part: i16,
    pub people: i64,
}

/// Returns the groups of a measurement, the control group first.
pub async fn groups(conn: &mut PgConnection, id: Uuid) -> sqlx::Result<Vec<MeasuredGroup>> {
    fetch_all!(
        conn,
        MeasuredGroup,
        "SELECT part, people FROM measured_groups WHERE measurement = $1 ORDER BY part",
        (id)
    )
}

/// Conversions of one kind in a group: their number, or their value in a currency.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFigures {
    pub name: String,
    /// `None`: the number of conversions.
    pub currency: Option<String>,
    pub part: i16,
    /// Sums of the group's people who have any. `people` is 0.
    pub sums: GroupSums,
}

/// Returns the conversions of the people in each group. Those before their assignment count from as long before the period as it
/// lasts.
pub async fn of_groups(conn: &mut PgConnection, of: &Measurement) -> sqlx::Result<Vec<GroupFigures>> {
    let before = of.began_at - (of.closes_at - of.began_at);
    let rows = fetch_all!(
        conn,
        r#"/* figures_of_groups */ WITH people AS (
             SELECT coalesce(a.part, b.part) AS part, c.name, c.currency, GROUPING(c.currency) AS is_all,
               count(*) FILTER (WHERE c.at >= coalesce(a.at, b.at)) AS n,
               count(*) FILTER (WHERE c.at < coalesce(a.at, b.at)) AS n_before,
               coalesce(sum(c.value::float8) FILTER (WHERE c.at >= coalesce(a.at, b.at)), 0) / 10000 AS value,
               coalesce(sum(c.value::float8) FILTER (WHERE c.at < coalesce(a.at, b.at)), 0) / 10000 AS value_before
             FROM conversions c LEFT JOIN measured_people a ON a.measurement = $1 AND a.person = c.people[1]
               LEFT JOIN LATERAL (
                 SELECT p.part, p.person, p.at FROM unnest(c.people[2:]) WITH ORDINALITY AS u (person, place)
                   JOIN measured_people p ON p.measurement = $1 AND p.person = u.person
                 WHERE a.person IS NULL AND cardinality(c.people) > 1 ORDER BY u.place LIMIT 1) b ON a.person IS NULL
             WHERE c.app = $2 AND c.at >= $3 AND c.at < $4 AND (a.person IS NOT NULL OR b.person IS NOT NULL)
             GROUP BY coalesce(a.person, b.person), coalesce(a.part, b.part), c.name, GROUPING SETS ((c.currency), ())),
           sums AS (
             SELECT part, name, currency, n, CASE WHEN is_all = 1 THEN n ELSE value END AS y,
               CASE WHEN is_all = 1 THEN n_before ELSE value_before END AS x
             FROM people WHERE is_all = 1 OR currency IS NOT NULL)
           SELECT name AS "name!", currency, part AS "part!", count(*) FILTER (WHERE n > 0) AS "converted!", sum(y) AS "y!",
             sum(y * y) AS "yy!", sum(x) AS "x!", sum(x * x) AS "xx!", sum(x * y) AS "xy!"
           FROM sums GROUP BY name, currency, part ORDER BY name, currency NULLS FIRST, part"#,
        (of.id, of.app.0, before, of.closes_at)
    )?;
    let figures = rows.into_iter().map(|row| {
        let (converted, y, yy, x, xx, xy) = (row.converted, row.y, row.yy, row.x, row.xx, row.xy);
        let sums = GroupSums { people: 0, converted, y, yy, x, xx, xy };
        GroupFigures { name: row.name, currency: row.currency, part: row.part, sums }
    });
    Ok(figures.collect())
}

/// Returns the people of each variant of a campaign that is measured, and those with a conversion, for the choice of a winner.
pub async fn of_variants(
    conn: &mut PgConnection, campaign: CampaignId, name: &str, variants: usize,
) -> sqlx::Result<Vec<VariantCount>> {
    let mut counts = vec![VariantCount { accepted: 0, clicked: 0 }; variants];
    let Some(of) = periods::latest(&mut *conn, campaign).await? else { return Ok(counts) };
    let counted = of_groups(&mut *conn, &of).await?;
    for group in groups(conn, of.id).await? {
        let figures = |it: &&GroupFigures| it.part == group.part && it.name == name && it.currency.is_none();
        if let Some(count) = usize::try_from(group.part).ok().and_then(|index| counts.get_mut(index)) {
            let converted = counted.iter().find(figures).map_or(0, |it| it.sums.converted);
            *count = VariantCount { accepted: group.people, clicked: converted };
        }
    }
    Ok(counts)
}

/// Returns the number of deliveries of a campaign that push services accepted, of messages since a time.
pub async fn accepted(pool: &PgPool, campaign: CampaignId, since: Timestamp) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT coalesce(sum(k.accepted), 0)::bigint AS "n!" FROM messages m JOIN message_counts k ON k.message = m.id
           WHERE m.campaign = $1 AND m.accepted_at >= $2"#,
        (campaign.0, since)
    )
}

/// Returns the number of an app's subscriptions that browsers or the site ended in a time.
pub async fn unsubscribed(pool: &PgPool, app: AppId, (from, to): (Timestamp, Timestamp)) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT count(*) AS "n!" FROM subscriptions WHERE app = $1 AND state = 'unsubscribed' AND ended_at >= $2 AND ended_at < $3"#,
        (app.0, from, to)
    )
}
