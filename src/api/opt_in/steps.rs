//! `POST /v1/apps/{app}/prompt/steps`: steps from visitors to subscribers, as pages report them. The report has no id of the
//! visitor.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::PromptSettings;
use crate::api::ApiState;
use crate::api::http::auth::{MayChangeSubscribers, RegistrationCaller};
use crate::api::http::cors::allowed_origin;
use crate::api::http::draft::Draft;
use crate::api::http::extract::is_plain_text;
use crate::api::http::problem::{Faults, Problem};
use crate::api::http::routes::routes;
use bellwire_core::id::SubscriptionId;
use bellwire_core::named;
use bellwire_core::opt_in::{BrowserFamily, OptInStep};
use bellwire_store::audience::opt_in::{self, OptInView};
use bellwire_store::keys::apps;
use bellwire_store::operations::retrying::retrying;

/// Routes that browsers may call.
pub(in crate::api) fn public_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(report))
}

const PAGE_MAX: usize = 200;
const PAGE_RULE: &str = "must be a path of 1 to 200 characters, without query and fragment, such as `/cart`";

named! {
    /// Element in which visitors subscribe.
    pub(crate) enum OptInLayout {
        /// Card in a corner of the page.
        Card = "card",
        /// Bar at the bottom of the page.
        Bar = "bar",
        /// Dialog in front of the page.
        Dialog = "dialog",
        /// `<bellwire-preferences>`.
        Preferences = "preferences",
    }
}

/// Maximum characters of a part of a path that is stored.
const PART_MAX: usize = 24;

/// Replaces the parts of a path that may identify a person or a thing: `/users/ann@example.com/orders/17` is `/users/*/orders/*`.
fn generic(path: &str) -> String {
    let is_name =
        |part: &str| part.len() <= PART_MAX && part.bytes().all(|b| b.is_ascii_alphabetic() || b"-_.~".contains(&b));
    path.split('/').map(|part| if is_name(part) { part } else { "*" }).collect::<Vec<_>>().join("/")
}

/// Steps of a visitor.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OptInReport {
    /// Steps that were taken at once, 1 to 4.
    #[schema(min_items = 1, max_items = 4)]
    steps: Vec<OptInStep>,
    /// Element in which they were taken.
    layout: OptInLayout,
    /// Variant of the prompt. Null, or a variant that the prompt no longer has: none.
    #[schema(min_length = 1, max_length = 64)]
    variant: Option<String>,
    /// Path of the page, without query and fragment: 1 to 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    page: String,
    /// The new subscription, with the step `granted`, which counts once in 30 days for it. Whether it is still there is counted after 7
    /// and 30 days.
    subscription: Option<SubscriptionId>,
}

impl OptInReport {
    fn check(&self, faults: &mut Faults) {
        faults.require((1..=4).contains(&self.steps.len()), "/steps", "must hold 1 to 4 steps");
        let is_path = self.page.starts_with('/') && !self.page.contains(['?', '#']);
        faults.require(is_path && is_plain_text(&self.page, PAGE_MAX), "/page", PAGE_RULE);
        let is_granted = self.steps.contains(&OptInStep::Granted);
        faults.require(
            is_granted == self.subscription.is_some(),
            "/subscription",
            "must be there with the step `granted`, and only then",
        );
    }
}

/// Reports steps from a visitor to a subscriber, by a page. They are counted by day, page, element, variant and browser, without an id
/// of the visitor. The browser's name is read from `User-Agent`. Parts of the path that may be ids or names are stored as `*`.
#[utoipa::path(post, path = "/v1/apps/{app}/prompt/steps", tag = "Subscriptions", request_body = OptInReport, security(()),
    responses((status = 204)))]
pub(crate) async fn report(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>, headers: HeaderMap,
    Draft(mut report, mut faults, _): Draft<OptInReport>,
) -> Result<StatusCode, Problem> {
    if !client.server && allowed_origin(&headers, &client.app.origins).is_none() {
        return Err(Problem::forbidden("Browsers must report from one of the app's origins."));
    }
    let (app, now) = (client.app.id, state.clock.now());
    report.check(&mut faults);
    faults.finish()?;
    let settings = PromptSettings::restore(apps::read_prompt(&state.pool, app).await?);
    report.variant.take_if(|variant| !settings.has_variant(variant));
    report.steps.sort_unstable();
    report.steps.dedup();
    let page = generic(&report.page);
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let view = OptInView {
        page: &page,
        layout: report.layout.name(),
        variant: report.variant.as_deref().unwrap_or_default(),
        browser: BrowserFamily::of(agent.unwrap_or_default()),
    };
    let counted = retrying(|| async {
        let mut tx = state.begin().await?;
        let counted = opt_in::record(&mut tx, app, &view, &report.steps, report.subscription, now).await?;
        tx.commit().await.map(|()| counted)
    });
    let Some(counted) = counted.await? else {
        return Err(Problem::invalid_member("/subscription", "names no subscription of this app"));
    };
    counted.iter().for_each(|step| state.metrics.opt_in_step(step.name(), 1));
    Ok(StatusCode::NO_CONTENT)
}
