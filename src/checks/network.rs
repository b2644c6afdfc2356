//! What is to be seen over the network: push services, reached as pushes reach them, and this server at the address that browsers know.
//!
//! Everything that is asked stands in the settings or in the program, and nothing that a caller, an app or an answer says leads
//! anywhere else: no redirection is followed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use http::{HeaderValue, Method, header};
use openidconnect::{AsyncHttpClient as _, HttpRequest};
use sqlx::PgPool;
use tokio::time::{Instant, timeout};
use url::Url;

use super::rules::outside::{self, Greeted, Heard};
use super::{Finding, PATIENCE, Setup};
use crate::gateway::Gateways;
use crate::model::clock::Clock;
use crate::model::lane::Gateway;
use crate::oidc::Http;
use crate::store::audience::audience_counts;
use crate::store::operations::setup;

/// Push services that have hosts of their own. Others are an app's, and nobody knows one before it is used.
const ASKED: [Gateway; 4] = [Gateway::Fcm, Gateway::Mozilla, Gateway::Wns, Gateway::Apple];

/// Looks at all of it, unless nobody outside is to be asked.
pub(crate) async fn look(pool: &PgPool, gateways: &Gateways, setup: &Setup) -> Vec<Finding> {
    if !setup.asks_others {
        return Vec::new();
    }
    let (mut findings, of_ourselves) = tokio::join!(of_gateways(pool, gateways), of_ourselves(pool, setup));
    findings.extend(of_ourselves);
    findings
}

async fn of_gateways(pool: &PgPool, gateways: &Gateways) -> Vec<Finding> {
    let counted = timeout(PATIENCE, audience_counts::by_gateway(pool)).await;
    let counted = counted.ok().and_then(Result::ok).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    let asked = ASKED.map(async |gateway| {
        let (host, answer) = gateways.greet(gateway, deadline).await?;
        let answer = answer.map(|reply| (reply.status, reply.headers.get(header::DATE).and_then(date)));
        let subscriptions = counted.iter().find(|(known, _)| *known == gateway).map_or(0, |(_, n)| *n);
        Some(Greeted { gateway, host, subscriptions, answer })
    });
    let greeted: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let mut findings = outside::gateways(&greeted);
    findings.extend(outside::gateway_clock(&greeted, Clock::system().now()));
    findings
}

/// A `Date` (RFC 9110 section 5.6.7), as all send it.
fn date(value: &HeaderValue) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(value.to_str().ok()?).ok().map(|at| at.to_utc())
}

async fn of_ourselves(pool: &PgPool, setup: &Setup) -> Vec<Finding> {
    let Some(url) = &setup.public_url else { return Vec::new() };
    let Ok(client) = Http::new(url, None, None, PATIENCE) else { return Vec::new() };
    if !client.admits(url) {
        return Vec::new(); // without TLS, which another check tells of
    }
    let apps = timeout(PATIENCE, setup::origins(pool)).await.ok().and_then(Result::ok).unwrap_or_default();
    let preflights = join_all(apps.iter().map(async |(app, origin)| {
        let ask = preflight(url, app, origin)?;
        outside::cors(app, origin, &hear(&client, ask).await.0)
    }));
    let script = async { outside::worker_script(url, &hear(&client, get(url, "sdk/service-worker.js")?).await.0) };
    let health = async {
        let (heard, took) = hear(&client, get(url, "healthz")?).await;
        Some(outside::own_address(url, &heard, took))
    };
    let (health, script, preflights) = tokio::join!(health, script, preflights);
    // One for all: whatever is wrong with one is the proxy's doing, and so with the others.
    let preflights = preflights.into_iter().flatten().min_by_key(|finding| finding.health);
    health.into_iter().chain(script).chain(preflights).collect()
}

async fn hear(client: &Http, request: HttpRequest) -> (Heard, Duration) {
    let began = Instant::now();
    let heard = match client.call(request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            Ok((head.status, head.headers, body))
        }
        Err(error) => Err(error.to_string()),
    };
    (heard, began.elapsed())
}

/// A place below the public URL.
fn at(url: &Url, path: &str) -> String {
    format!("{}/{path}", url.as_str().trim_end_matches('/'))
}

fn get(url: &Url, path: &str) -> Option<HttpRequest> {
    http::Request::builder().uri(at(url, path)).body(Vec::new()).ok()
}

/// What a browser asks before a page of that origin registers its subscription.
fn preflight(url: &Url, app: &str, origin: &str) -> Option<HttpRequest> {
    http::Request::builder()
        .method(Method::OPTIONS)
        .uri(at(url, &format!("v1/apps/{app}/subscriptions")))
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "content-type")
        .body(Vec::new())
        .ok()
}
