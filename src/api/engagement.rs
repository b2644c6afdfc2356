//! `/v1/apps/{app}/engagement`: shares of displayed notifications that were clicked, closed or ignored, by push service, and
//! their change.

use std::collections::BTreeMap;

use axum::extract::State;
use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayRead, Server};
use super::http::extract::Query;
use super::http::problem::{FieldError, Problem};
use super::http::routes::routes;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::fact::{Fact, FactCounts};
use bellwire_core::id::AppId;
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::engagement::{Engagement, Level};
use bellwire_store::outcomes::rollups::{self, Piece, RollupFilter, RollupStep};
use bellwire_store::transactions::begin_with;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Default number of days.
const DAYS_DEFAULT: u32 = 28;
const DAYS_MAX: u32 = 366;

/// Begins a transaction with a lock timeout of 50 ms: a send request does not wait longer for metrics.
const BEGIN_BRIEFLY: &str = "BEGIN READ ONLY; SET LOCAL lock_timeout = '50ms'; SET LOCAL statement_timeout = '250ms'";

/// Period of the report.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EngagementQuery {
    /// Days in UTC, today included: 1 to 366; 28 by default.
    days: Option<u32>,
}

/// Engagement with an app's notifications.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngagementResponse {
    /// Start of the first day.
    from: DateTime<Utc>,
    /// End of the last day.
    until: DateTime<Utc>,
    /// Engagement by push service, for those with accepted pushes in this period or the previous one.
    gateways: Vec<GatewayEngagement>,
}

/// Engagement at one push service.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GatewayEngagement {
    /// Name of the push service.
    gateway: Gateway,
    /// Rating of the engagement.
    level: Level,
    /// Counts of this period.
    now: PolicyPeriod,
    /// Counts of the previous period of the same length.
    before: PolicyPeriod,
}

/// Counts of receipts by the time of the receipt. A notification that is clicked in this period may have been sent before.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyPeriod {
    /// Pushes accepted by the push service.
    accepted: u64,
    /// Accepted pushes that request receipts. Only these can be reported.
    receipts_asked: u64,
    /// Displayed notifications; each counts once.
    displayed: u64,
    /// Clicked notifications; each counts once.
    clicked: u64,
    /// Closed notifications. Null if no browser reported one, and for Firefox, which cannot distinguish a person from a timeout.
    closed: Option<u64>,
    /// Notifications displayed and neither clicked nor closed. Null: unknown.
    ignored: Option<u64>,
    /// `displayed` divided by `receipts_asked`. Null: no receipt was requested, or browsers do not report them.
    display_share: Option<f64>,
    /// `clicked` divided by `displayed`. Null: no display is known.
    click_share: Option<f64>,
    /// `closed` divided by `displayed`. Null: unknown.
    close_share: Option<f64>,
    /// `ignored` divided by `displayed`. Null: unknown.
    ignored_share: Option<f64>,
}

impl From<Engagement> for PolicyPeriod {
    fn from(it: Engagement) -> Self {
        let of_displayed = |part: Option<u64>| part.and_then(|part| it.of_displayed(part));
        Self {
            accepted: it.accepted,
            receipts_asked: it.asked,
            displayed: it.displayed,
            clicked: it.clicked,
            closed: it.closed(),
            ignored: it.ignored(),
            display_share: it.display_share(),
            click_share: of_displayed(Some(it.clicked)),
            close_share: of_displayed(it.closed()),
            ignored_share: of_displayed(it.ignored()),
        }
    }
}

/// Counts by push service in a period and in the previous one of the same length.
struct GatewayPeriods {
    from: Timestamp,
    until: Timestamp,
    gateways: BTreeMap<Gateway, [Engagement; 2]>,
}

async fn count(state: &ApiState, conn: &mut PgConnection, app: AppId, days: u32) -> Result<GatewayPeriods, Problem> {
    let now = state.clock.now();
    let (day, span) = (TimeDelta::days(1), TimeDelta::days(days.into()));
    let until = now.duration_trunc(day).unwrap_or(now) + day;
    let from = until - span;
    let lanes = rollups::lanes(state.reads.pool(), Some(app), &[]).await?;
    let wanted = RollupFilter {
        lanes: Some(lanes.into_iter().map(|lane| lane.lane).collect()),
        messages: Vec::new(),
        gateways: Vec::new(),
        tiers: Vec::new(),
        facts: Fact::Ended(Ending::Accepted).code()..=Fact::Receipt(ReceiptKind::Closed).code(),
    };
    let mut counted = BTreeMap::<Gateway, [FactCounts; 2]>::new();
    let mut rows = rollups::read(conn, &wanted, Piece { step: RollupStep::Day, from: from - span, until });
    while let Some(row) = rows.try_next().await? {
        let counts = &mut counted.entry(row.gateway).or_default()[usize::from(row.start < from)];
        row.facts.iter().zip(&row.ns).for_each(|(fact, n)| counts.add_stored(*fact, *n));
    }
    let gateways = counted
        .iter()
        .map(|(gateway, counts)| (*gateway, counts.each_ref().map(|counts| Engagement::of(*gateway, counts))));
    let was_used = |[now, before]: &[Engagement; 2]| now.accepted + before.accepted + now.displayed > 0;
    Ok(GatewayPeriods { from, until, gateways: gateways.filter(|(_, counts)| was_used(counts)).collect() })
}

/// Returns the shares of displayed notifications that were clicked, closed and ignored, by push service, and their change. Values
/// that browsers do not report are null.
#[utoipa::path(get, path = "/v1/apps/{app}/engagement", tag = "Operations",
    responses((status = 200, body = EngagementResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, Query(EngagementQuery { days }): Query<EngagementQuery>,
) -> Result<axum::Json<EngagementResponse>, Problem> {
    let days = days.unwrap_or(DAYS_DEFAULT);
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(Problem::invalid_parameter("days", format!("must be 1 to {DAYS_MAX}")));
    }
    let mut conn = state.reads.pool().acquire().await?;
    let GatewayPeriods { from, until, gateways } = count(&state, &mut conn, server.app.id, days).await?;
    let view = |(gateway, [now, before]): (Gateway, [Engagement; 2])| GatewayEngagement {
        gateway,
        level: now.level(&before),
        now: now.into(),
        before: before.into(),
    };
    Ok(axum::Json(EngagementResponse { from, until, gateways: gateways.into_iter().map(view).collect() }))
}

/// Returns warnings for the sender of a broadcast: push services whose users click too little or close too much. Fails if
/// metrics cannot be read within 50 ms, so that no message waits for them.
pub(super) async fn warnings(state: &ApiState, app: AppId) -> Result<Vec<FieldError>, Problem> {
    let mut tx = begin_with(&state.pool, BEGIN_BRIEFLY).await?;
    let counted = count(state, &mut tx, app, DAYS_DEFAULT).await?;
    tx.commit().await?;
    let unwelcome = counted.gateways.into_iter().filter(|(_, [now, before])| now.level(before) == Level::Warning);
    Ok(unwelcome.map(|(gateway, [now, _])| FieldError::member("/to", describe(gateway, &now))).collect())
}

fn describe(gateway: Gateway, now: &Engagement) -> String {
    let percent = |part: u64| format!("{:.1} %", now.of_displayed(part).unwrap_or_default() * 100.0);
    let closed = now.closed().map(|closed| format!(" and {} closed", percent(closed))).unwrap_or_default();
    format!(
        "of the {} notifications that browsers of {} displayed in the last {DAYS_DEFAULT} days {} were clicked{closed}: \
         one more to everybody may make browsers throttle this site, and people block it",
        now.displayed,
        gateway.name(),
        percent(now.clicked)
    )
}
