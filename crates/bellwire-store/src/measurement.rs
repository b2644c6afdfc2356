//! Results of campaigns: [`conversions`] that sites report, the [`periods`] in which they count, the people who are compared
//! ([`enrolment`]), and the [`figures`] of both.

pub mod conversions;
pub mod enrolment;
pub mod figures;
pub mod periods;

use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};

use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_rules::campaign::measurement::{LinkTags, MeasurementRule};

/// Returns the settings by which an app measures its campaigns. `None`: it does not.
pub async fn rule(executor: impl PgExecutor<'_>, app: AppId) -> sqlx::Result<Option<MeasurementRule>> {
    let found = fetch_optional!(
        executor,
        scalar,
        r#"SELECT measurement AS "rule: Json<MeasurementRule>" FROM apps WHERE id = $1"#,
        (app.0)
    )?;
    Ok(found.flatten().map(|rule| rule.0))
}

pub async fn set_rule(executor: impl PgExecutor<'_>, app: AppId, rule: Option<&MeasurementRule>) -> sqlx::Result<()> {
    let rule = rule.map(Json);
    execute!(
        executor,
        "UPDATE apps SET measurement = $2 WHERE id = $1",
        (app.0, rule as Option<Json<&MeasurementRule>>)
    )
}

/// A message whose links get parameters.
#[derive(Debug)]
pub struct TaggedMessage {
    pub tags: Json<LinkTags>,
    pub campaign: Option<CampaignId>,
    pub slug: Option<String>,
    /// Encrypted plan of the campaign.
    pub plan: Option<Vec<u8>>,
    pub variant: Option<i16>,
}

/// Returns the link tags for a message. `None`: the app has none, or the message was deleted.
pub async fn of_message(pool: &PgPool, app: AppId, message: MessageId) -> sqlx::Result<Option<TaggedMessage>> {
    fetch_optional!(
        pool,
        TaggedMessage,
        r#"SELECT a.measurement->'link_tags' AS "tags!: Json<LinkTags>", c.id AS "campaign?: CampaignId", c.slug AS "slug?",
             c.plan AS "plan?", m.variant
           FROM apps a JOIN messages m ON m.app = a.id LEFT JOIN campaigns c ON c.id = m.campaign
           WHERE a.id = $1 AND m.id = $2 AND jsonb_typeof(a.measurement->'link_tags') = 'object'"#,
        (app.0, message.0)
    )
}
