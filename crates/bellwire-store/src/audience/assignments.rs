//! Stores earlier values of a subscription's user and time zone, for campaigns in progress: see [`bellwire_core::assignment`].

use chrono::TimeDelta;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::audience::subscriptions::row::SubscriptionRow;
use bellwire_core::assignment::{CHANGES_MAX, Former, FormerUser, FormerValue};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_core::person::Person;
use bellwire_segment::part_of;

/// Time for which a change is stored: longer than a campaign run takes.
const KEPT_FOR: TimeDelta = TimeDelta::days(60);
/// Maximum running campaigns for which a former user's parts are stored, the newest first.
const CAMPAIGNS_MAX: i64 = 20;

/// Stores the previous values of a locked subscription before it changes to `row`.
pub(super) async fn note(
    conn: &mut PgConnection, app: AppId, before: &SubscriptionRow, row: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<()> {
    let changed = changes(&mut *conn, app, before, row, now).await?;
    append(conn, row, changed, now).await
}

/// Copies the stored changes of a replaced subscription to its successor. Both are locked.
pub(super) async fn inherit(
    conn: &mut PgConnection, app: AppId, old: &SubscriptionRow, new: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<()> {
    let former = fetch_optional!(
        &mut *conn,
        scalar,
        r#"SELECT former AS "former: Json<Vec<Former>>" FROM subscriptions WHERE shard = $1 AND id = $2"#,
        (old.id.shard(), old.id.0)
    )?;
    let mut former = former.flatten().map(|former| former.0).unwrap_or_default();
    former.extend(changes(&mut *conn, app, old, new, now).await?);
    append(conn, new, former, now).await
}

async fn append(
    conn: &mut PgConnection, row: &SubscriptionRow, changed: Vec<Former>, now: Timestamp,
) -> sqlx::Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        "UPDATE subscriptions SET former = jsonb_path_query_array(
           jsonb_path_query_array(coalesce(former, '[]') || $3, '$[*] ? (@.until > $since)', jsonb_build_object('since', $4::bigint)),
           '$[last - $before to last]', jsonb_build_object('before', $5::integer))
         WHERE shard = $1 AND id = $2",
        (row.id.shard(), row.id.0, Json(changed) as Json<Vec<Former>>, (now - KEPT_FOR).timestamp_micros()),
        (CHANGES_MAX - 1)
    )
}

async fn changes(
    conn: &mut PgConnection, app: AppId, before: &SubscriptionRow, row: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<Vec<Former>> {
    let mut was = Vec::new();
    if before.timezone != row.timezone {
        was.push(FormerValue::Timezone(before.timezone.clone()));
    }
    if before.user_id != row.user_id {
        was.push(FormerValue::User(match before.user_id.as_deref() {
            Some(user) => Some(former_user(conn, app, user).await?),
            None => None,
        }));
    }
    Ok(was.into_iter().map(|was| Former { until: now.timestamp_micros(), was }).collect())
}

async fn former_user(conn: &mut PgConnection, app: AppId, user: &str) -> sqlx::Result<FormerUser> {
    let campaigns = fetch_all!(
        conn,
        scalar,
        r#"SELECT id AS "id: CampaignId" FROM campaigns
           WHERE app = $1 AND runs > 0 AND state IN ('scheduled', 'sending', 'paused') ORDER BY id DESC LIMIT $2"#,
        (app.0, CAMPAIGNS_MAX)
    )?;
    let salts = campaigns.into_iter().map(|campaign| campaign.to_string());
    let parts = salts.map(|salt| (salt.clone(), part_of(&salt, user.as_bytes()))).collect();
    Ok(FormerUser { person: Person::of_user(app, user).id(), parts })
}
