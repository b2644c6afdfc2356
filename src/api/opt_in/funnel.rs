//! `GET /v1/apps/{app}/prompt/funnel`: visitors by the steps that they took towards a subscription.

use axum::extract::State;
use chrono::{NaiveDate, TimeDelta};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::Query;
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use bellwire_core::named;
use bellwire_rules::campaign::winner::VariantCount;
use bellwire_store::audience::opt_in::{self, OptInCounts};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show))
}

const DAYS_DEFAULT: TimeDelta = TimeDelta::days(29);
const DAYS_MAX: i64 = 400;
/// Groups in a response. The last one sums up all others.
const GROUPS_MAX: usize = 400;

named! {
    /// Dimension of the funnel.
    pub(crate) enum FunnelDimension {
        /// Variant of the prompt.
        Variant = "variant",
        /// Form of the prompt, or the preferences.
        Layout = "layout",
        /// Page on which the visitor was.
        Page = "page",
        /// Family of the browser.
        Browser = "browser",
        /// Day of the steps.
        Day = "day",
    }
}

/// Period and dimension of the funnel.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FunnelQuery {
    /// First day, in UTC. By default 29 days before the last.
    since: Option<NaiveDate>,
    /// Last day, at most 400 days after the first. By default today.
    until: Option<NaiveDate>,
    /// Dimension of the groups. By default `variant`.
    by: Option<FunnelDimension>,
}

/// Visitors by the steps that they took towards a subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptFunnel {
    /// First day, in UTC.
    since: NaiveDate,
    /// Last day.
    until: NaiveDate,
    /// Dimension of the groups.
    by: FunnelDimension,
    /// Counts by the value of the dimension, at most 400: days in order, others by the number of visitors.
    groups: Vec<PromptFunnelGroup>,
}

/// Counts of visitors with one value of the dimension.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptFunnelGroup {
    /// Value of the dimension. Null: no variant, or other pages.
    value: Option<String>,
    /// The prompt was shown, once a visit.
    shown: i64,
    /// A guide was shown instead, because the browser cannot ask.
    guided: i64,
    /// The visitor accepted.
    accepted: i64,
    /// The visitor chose "not now".
    later: i64,
    /// The visitor declined.
    no: i64,
    /// The browser's own prompt was shown.
    asked: i64,
    /// The visitor subscribed.
    granted: i64,
    /// The visitor refused in the browser's own prompt.
    denied: i64,
    /// The visitor closed the browser's own prompt.
    dismissed: i64,
    /// Subscribers whose seventh day is over.
    due_7_days: i64,
    /// Those of them who were still subscribed then.
    kept_7_days: i64,
    /// Subscribers whose thirtieth day is over.
    due_30_days: i64,
    /// Those of them who were still subscribed then.
    kept_30_days: i64,
    /// Those who subscribed by the prompt, divided by `shown`. Null: nothing was shown.
    granted_share: Option<ShareInterval>,
}

/// A share with its confidence interval of 95 %.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShareInterval {
    /// Lower bound of the interval.
    low: f64,
    /// The share, 0 to 1.
    value: f64,
    /// Upper bound of the interval.
    high: f64,
}

impl ShareInterval {
    fn of(part: i64, whole: i64) -> Option<Self> {
        let (low, high) = VariantCount { accepted: whole, clicked: part.min(whole) }.interval()?;
        Some(Self { low, value: part.min(whole) as f64 / whole as f64, high })
    }
}

impl PromptFunnelGroup {
    fn new(it: OptInCounts) -> Self {
        Self {
            value: Some(it.value).filter(|value| !value.is_empty()),
            shown: it.shown,
            guided: it.guided,
            accepted: it.accepted,
            later: it.later,
            no: it.no,
            asked: it.asked,
            granted: it.granted,
            denied: it.denied,
            dismissed: it.dismissed,
            due_7_days: it.due_7,
            kept_7_days: it.kept_7,
            due_30_days: it.due_30,
            kept_30_days: it.kept_30,
            granted_share: ShareInterval::of(it.granted_by_prompt, it.shown),
        }
    }
}

/// Returns the opt-in funnel of some days: visitors by the steps that they took towards a subscription, as pages with the opt-in kit
/// report them.
#[utoipa::path(get, path = "/v1/apps/{app}/prompt/funnel", tag = "Apps", responses((status = 200, body = PromptFunnel)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, Query(asked): Query<FunnelQuery>,
) -> Result<axum::Json<PromptFunnel>, Problem> {
    let until = asked.until.unwrap_or_else(|| state.clock.now().date_naive());
    let since = asked.since.unwrap_or_else(|| until.checked_sub_signed(DAYS_DEFAULT).unwrap_or(until));
    let by = asked.by.unwrap_or(FunnelDimension::Variant);
    if !(0..=DAYS_MAX).contains(&(until - since).num_days()) {
        return Err(Problem::invalid_parameter("since", "must be at most 400 days before `until`, and not after it"));
    }
    let mut counts = opt_in::funnel(&state.pool, server.app.id, by.name(), (since, until)).await?;
    if by == FunnelDimension::Day {
        counts.sort_by(|a, b| a.value.cmp(&b.value));
    }
    let groups = grouped(counts).into_iter().map(PromptFunnelGroup::new).collect();
    Ok(axum::Json(PromptFunnel { since, until, by, groups }))
}

/// Returns the first groups, and the sum of all others. Those without a value are among the others.
fn grouped(counts: Vec<OptInCounts>) -> Vec<OptInCounts> {
    if counts.len() <= GROUPS_MAX {
        return counts;
    }
    let (named, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|it| !it.value.is_empty());
    let mut groups = named;
    let rest = groups.split_off(groups.len().min(GROUPS_MAX - 1));
    groups.push(rest.into_iter().chain(others).fold(OptInCounts::default(), |sum, it| sum.plus(&it)));
    groups
}
