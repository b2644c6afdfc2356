//! Audit log: actions of people by key, session or command line. An entry is written in the transaction of its action, so both
//! exist or neither. The database refuses changes of entries.

use std::fmt::Display;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{FromRow, PgConnection, PgPool, QueryBuilder};
use uuid::Uuid;

use crate::keyset::Keyset;
use crate::transactions::begin;
use bellwire_core::clock::{Timestamp, first_uuid_of, uuid_of};
use bellwire_core::id::{ApiKeyId, AppId, EntryId, TeammateId};
use bellwire_core::named;

/// Name of the actor at the command line, which needs no key.
pub const LOCAL: &str = "local";
/// Name of an actor without proof of identity.
pub const NOBODY: &str = "nobody";
const TEAMMATE: &str = "teammate";

/// Entries that one transaction deletes.
const CHUNK: i64 = 10_000;

named! {
    /// Action in the audit log. Names never change. Each changing route has one.
    pub enum AuditAction {
        /// An app was created.
        AppCreated = "app.created",
        /// An app's name, origins or the like were changed.
        AppChanged = "app.changed",
        /// An app was deleted.
        AppDeleted = "app.deleted",
        /// An API key was created.
        ApiKeyCreated = "api_key.created",
        /// An API key was revoked, with keys created with it.
        ApiKeyRevoked = "api_key.revoked",
        /// An identity key was created.
        IdentityKeyCreated = "identity_key.created",
        /// An identity key was deleted.
        IdentityKeyRemoved = "identity_key.removed",
        /// A VAPID key was generated.
        VapidKeyCreated = "vapid_key.created",
        /// A VAPID key was imported.
        VapidKeyImported = "vapid_key.imported",
        /// A VAPID key became active.
        VapidKeyActivated = "vapid_key.activated",
        /// A VAPID key's contact was changed.
        VapidKeyChanged = "vapid_key.changed",
        /// A VAPID private key was exported.
        VapidKeyExported = "vapid_key.exported",
        /// An export of an app or its subscriptions started.
        AppExported = "app.exported",
        /// An import of subscriptions began.
        ImportBegun = "import.begun",
        /// An import of subscriptions reached the end of its file.
        ImportFinished = "import.finished",
        /// Subscriptions reported as gone were restored.
        SubscriptionsRestored = "subscriptions.restored",
        /// Dead letters were replayed.
        DeadLettersReplayed = "dead_letters.replayed",
        /// Dead letters were discarded.
        DeadLettersDiscarded = "dead_letters.discarded",
        /// Dead letters were exported.
        DeadLettersExported = "dead_letters.exported",
        /// A message was paused.
        MessagePaused = "message.paused",
        /// A message was resumed.
        MessageResumed = "message.resumed",
        /// A message was cancelled.
        MessageCancelled = "message.cancelled",
        /// A message that was sent got new content.
        MessageUpdated = "message.updated",
        /// A message was withdrawn.
        MessageWithdrawn = "message.withdrawn",
        /// A campaign was created.
        CampaignCreated = "campaign.created",
        /// The plan of a draft was changed.
        CampaignChanged = "campaign.changed",
        /// A draft or a finished campaign was deleted.
        CampaignDeleted = "campaign.deleted",
        /// A campaign was started.
        CampaignStarted = "campaign.started",
        /// A campaign was paused.
        CampaignPaused = "campaign.paused",
        /// A campaign was resumed.
        CampaignResumed = "campaign.resumed",
        /// A campaign was cancelled.
        CampaignCancelled = "campaign.cancelled",
        /// A campaign was withdrawn, with its messages.
        CampaignWithdrawn = "campaign.withdrawn",
        /// A topic was created.
        TopicCreated = "topic.created",
        /// The callers that may join a topic were changed.
        TopicChanged = "topic.changed",
        /// A topic was removed.
        TopicRemoved = "topic.removed",
        /// A segment was created or changed.
        SegmentSet = "segment.set",
        /// A segment was removed.
        SegmentRemoved = "segment.removed",
        /// A template was created or replaced.
        TemplateSet = "template.set",
        /// A template was removed.
        TemplateRemoved = "template.removed",
        /// A webhook was created.
        WebhookCreated = "webhook.created",
        /// A webhook was changed, enabled or disabled.
        WebhookChanged = "webhook.changed",
        /// A webhook was removed.
        WebhookRemoved = "webhook.removed",
        /// The secret of a webhook was replaced.
        WebhookSecretRotated = "webhook.secret_rotated",
        /// Failed requests to a webhook's receiver were replayed.
        WebhookReplayed = "webhook.replayed",
        /// A delivery policy was set.
        PolicySet = "policy.set",
        /// A delivery policy was deleted.
        PolicyRemoved = "policy.removed",
        /// An app's calendar was changed.
        CalendarChanged = "calendar.changed",
        /// An app's SLAs were changed.
        SlasChanged = "slas.changed",
        /// An app's frequency caps were changed.
        CapsChanged = "caps.changed",
        /// An app's runaway guard was changed.
        GuardChanged = "guard.changed",
        /// An app that the runaway guard held was released.
        AppReleased = "app.released",
        /// Flow control was set.
        FlowSet = "flow.set",
        /// Flow control was removed.
        FlowRemoved = "flow.removed",
        /// An app or a lane was paused.
        FlowPaused = "flow.paused",
        /// An app or a lane was resumed.
        FlowResumed = "flow.resumed",
        /// The rate period of a flow was reset.
        FlowReset = "flow.reset",
        /// A lane was held.
        LaneHeld = "lane.held",
        /// A lane was released.
        LaneReleased = "lane.released",
        /// A lane's breaker was opened.
        LaneOpened = "lane.opened",
        /// A lane's breaker was closed.
        LaneClosed = "lane.closed",
        /// A lane's breakers were set to half open.
        LaneProbed = "lane.probed",
        /// The erasure of a user was requested, with the number of subscriptions.
        UserErased = "user.erased",
        /// The erasure of a user was completed. The actor is the caller of the request.
        UserErasureCompleted = "user.erasure_completed",
        /// The data of a user were exported.
        UserExported = "user.exported",
        /// All data of a browser's subscriptions were erased.
        SubscriptionErased = "subscription.erased",
        /// The database was restored from a backup.
        DatabaseRestored = "database.restored",
        /// The master key was replaced.
        MasterKeyRotated = "master_key.rotated",
        /// A seal key was added. Stored values are then encrypted again with it.
        SealKeyAdded = "seal_key.added",
        /// A temporary log level was set.
        LogLevelSet = "log_level.set",
        /// The log level was reset to that of each process's start.
        LogLevelReset = "log_level.reset",
        /// A tool of the Model Context Protocol was called.
        ToolCalled = "tool.called",
        /// An alert was resolved.
        AlertResolved = "alert.resolved",
        /// A teammate was invited.
        TeammateInvited = "teammate.invited",
        /// The roles of a teammate were changed, or the teammate was enabled or disabled.
        TeammateChanged = "teammate.changed",
        /// A teammate's password was deleted, their sessions ended, and a new link created.
        TeammateReset = "teammate.reset",
        /// A teammate was removed.
        TeammateRemoved = "teammate.removed",
        /// A person with an account at the OpenID provider was added without an invitation.
        TeammateJoined = "teammate.joined",
        /// A teammate's account at the OpenID provider was linked at the first sign-in.
        TeammateLinked = "teammate.linked",
        /// A teammate's account at the OpenID provider was unlinked.
        TeammateUnlinked = "teammate.unlinked",
        /// A teammate set a password.
        PasswordSet = "password.set",
        /// A teammate added a passkey.
        PasskeyAdded = "passkey.added",
        /// A teammate renamed a passkey.
        PasskeyRenamed = "passkey.renamed",
        /// A teammate removed a passkey.
        PasskeyRemoved = "passkey.removed",
        /// Another person removed all passkeys of a teammate and ended their sessions.
        PasskeysReset = "passkeys.reset",
        /// A person signed in.
        SessionBegun = "session.begun",
        /// A sign-in or change of password was refused because the proof was wrong.
        SessionRefused = "session.refused",
        /// A person signed out, or a session was ended.
        SessionEnded = "session.ended",
    }
}

/// Identity of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Caller with an app's API key.
    ApiKey(ApiKeyId),
    /// Caller with an operator's key.
    Operator(ApiKeyId),
    /// Signed-in teammate.
    Teammate(TeammateId),
    /// Caller at the command line, with access to database and master key.
    Local,
    /// Unauthenticated caller.
    Nobody,
}

impl Who {
    fn kind(self) -> &'static str {
        match self {
            Self::ApiKey(_) => "api_key",
            Self::Operator(_) => "operator",
            Self::Teammate(_) => TEAMMATE,
            Self::Local => LOCAL,
            Self::Nobody => NOBODY,
        }
    }

    /// Returns the id of the API key, if the actor used one.
    pub fn key(self) -> Option<ApiKeyId> {
        match self {
            Self::ApiKey(key) | Self::Operator(key) => Some(key),
            Self::Teammate(_) | Self::Local | Self::Nobody => None,
        }
    }

    /// Returns the id of the teammate, if the actor is one.
    pub fn teammate(self) -> Option<TeammateId> {
        if let Self::Teammate(id) = self { Some(id) } else { None }
    }

    /// Returns the id of the API key or teammate.
    pub fn id(self) -> Option<Uuid> {
        self.key().map(Uuid::from).or(self.teammate().map(Uuid::from))
    }

    /// Returns the id of the API key or teammate, or else `local` or `nobody`.
    pub fn name(self) -> String {
        name_of(self.kind(), self.id())
    }
}

/// Returns the name of an actor in a row.
fn name_of(kind: &str, actor: Option<Uuid>) -> String {
    match actor {
        None => kind.to_owned(),
        Some(id) if kind == TEAMMATE => TeammateId(id).to_string(),
        Some(id) => ApiKeyId(id).to_string(),
    }
}

/// Actor of an action, with the client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// Identity of the actor.
    pub who: Who,
    /// Address of the client. `None`: the command line.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// The command line.
    pub const LOCAL: Self = Self { who: Who::Local, address: None };
}

/// Action to write into the log.
#[derive(Debug, Clone)]
#[must_use = "it has to be recorded"]
pub struct AuditEntry {
    /// Actor of the action.
    pub actor: Actor,
    /// App of the object. `None`: the server.
    pub app: Option<AppId>,
    /// Kind of the action.
    pub action: AuditAction,
    /// Object of the action: a typed id, or a name. Never a secret, nor a user of the app.
    pub target: String,
    /// Further details, a small JSON object. Never a secret, nor a user of the app.
    pub detail: Value,
}

impl AuditEntry {
    /// Creates an entry without details.
    pub fn new(actor: Actor, app: Option<AppId>, action: AuditAction, target: impl Display) -> Self {
        Self { actor, app, action, target: target.to_string(), detail: json!({}) }
    }

    /// Adds details to the entry.
    pub fn with(self, detail: Value) -> Self {
        Self { detail, ..self }
    }

    /// Writes the entry in the transaction of its action. `n` is the number of objects affected.
    pub async fn record(&self, conn: &mut PgConnection, n: i64, now: Timestamp) -> sqlx::Result<()> {
        execute!(
            conn,
            "INSERT INTO audit_log (id, at, app, actor_kind, actor, address, action, target, n, detail)
             VALUES ($1, $2, $3, $4, $5, $6::text::inet, $7, $8, $9, $10)",
            (uuid_of(now), now, self.app.map(|app| app.0), self.actor.who.kind(), self.actor.who.id()),
            (self.actor.address.map(|address| address.to_canonical().to_string()), self.action.name(), self.target, n),
            (self.detail)
        )
    }
}

/// Writes an entry that follows from an earlier one of an app at time `at`, with the same actor and target.
pub async fn repeat(
    conn: &mut PgConnection, app: AppId, (earlier, at): (AuditAction, Timestamp), action: AuditAction, detail: Value,
    now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO audit_log (id, at, app, actor_kind, actor, address, action, target, n, detail)
         SELECT $1, $2, app, actor_kind, actor, address, $3, target, 1, $4 FROM audit_log
         WHERE app = $5 AND id >= $6 AND at = $7 AND action = $8 AND detail ->> 'erasure' = $4::jsonb ->> 'erasure' ORDER BY id LIMIT 1",
        (uuid_of(now), now, action.name(), detail, app.0, first_uuid_of(at), at, earlier.name())
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorFilter {
    Id(Uuid),
    /// Actor without an id: [`LOCAL`] or [`NOBODY`].
    Kind(&'static str),
}

/// Filter of entries. All given values must match.
#[derive(Debug, Default)]
pub struct AuditFilter {
    pub app: Option<AppId>,
    pub actor: Option<ActorFilter>,
    pub action: Option<AuditAction>,
    pub target: Option<String>,
    /// Earliest time, to the millisecond.
    pub since: Option<DateTime<Utc>>,
    /// Time before which the actions happened.
    pub until: Option<DateTime<Utc>>,
}

#[derive(Debug, FromRow)]
pub struct AuditRow {
    /// Id of the entry, a UUIDv7.
    pub id: EntryId,
    pub at: Timestamp,
    /// App. `None`: all entries.
    pub app: Option<AppId>,
    /// Kind: `api_key`, `operator`, `teammate`, `local` or `nobody`.
    pub actor_kind: String,
    pub actor: Option<Uuid>,
    pub address: Option<String>,
    /// Name from [`AuditAction::name`].
    pub action: String,
    pub target: String,
    pub n: i64,
    /// Further details.
    pub detail: Value,
}

impl AuditRow {
    /// Returns the actor: the id of an API key or a teammate, `local` or `nobody`.
    pub fn actor(&self) -> String {
        name_of(&self.actor_kind, self.actor)
    }
}

/// Returns entries beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, filter: &AuditFilter, page: Keyset) -> sqlx::Result<Vec<AuditRow>> {
    let mut query = QueryBuilder::new(
        "SELECT id, at, app, actor_kind, actor, host(address) AS address, action, target, n, detail FROM audit_log",
    );
    query.push(" WHERE id").push(page.towards.comparison()).push_bind(page.beyond);
    if let Some(app) = filter.app {
        query.push(" AND app = ").push_bind(app);
    }
    match filter.actor {
        Some(ActorFilter::Id(id)) => drop(query.push(" AND actor = ").push_bind(id)),
        // The first condition is what the index knows.
        Some(ActorFilter::Kind(kind)) => drop(query.push(" AND actor IS NULL AND actor_kind = ").push_bind(kind)),
        None => {}
    }
    if let Some(action) = filter.action {
        query.push(" AND action = ").push_bind(action.name());
    }
    if let Some(target) = &filter.target {
        query.push(" AND target = ").push_bind(target);
    }
    if let Some(since) = filter.since {
        query.push(" AND id >= ").push_bind(first_uuid_of(since));
    }
    if let Some(until) = filter.until {
        query.push(" AND id < ").push_bind(first_uuid_of(until));
    }
    query.push(" ORDER BY id").push(page.towards.order()).push("LIMIT ").push_bind(page.limit);
    query.build_query_as().persistent(false).fetch_all(pool).await
}

/// Deletes a chunk of entries older than `cutoff`, and returns their number. The database allows deletions only to this
/// function.
pub async fn clear(pool: &PgPool, cutoff: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin(pool).await?;
    execute!(&mut *tx, "SET LOCAL bellwire.audit_log_retention = 'on'")?;
    let done = rows_affected!(
        &mut *tx,
        "DELETE FROM audit_log WHERE id = ANY (ARRAY(SELECT id FROM audit_log WHERE id < $1 ORDER BY id LIMIT $2))",
        (first_uuid_of(cutoff), CHUNK)
    )?;
    tx.commit().await?;
    Ok(done)
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/audit.rs"]
mod tests;
