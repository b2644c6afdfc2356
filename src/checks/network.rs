//! Network checks: requests to push services over the outbound route of deliveries, and to the public URL.
//!
//! All URLs come from the settings or the program. Input of callers and apps never selects a host, and redirects are not
//! followed.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use sqlx::PgPool;
use tokio::time::{Instant, timeout};
use url::Url;

use super::rules::outside::{self, Greeted, OutsideResponse};
use super::{CheckResult, PATIENCE, Setup};
use bellwire_core::clock::Clock;
use bellwire_core::lane::Gateway;
use bellwire_gateway::Gateways;
use bellwire_net::outbound::{OutboundClient, OutboundLimits, PlainHttp};
use bellwire_store::audience::audience_counts;
use bellwire_store::operations::setup;

/// Push services with fixed hosts. Other hosts depend on apps.
const ASKED: [Gateway; 4] = [Gateway::Fcm, Gateway::Mozilla, Gateway::Wns, Gateway::Apple];

/// Limits of a request to this server or to a site.
pub(super) const LIMITS: OutboundLimits =
    OutboundLimits { timeout: PATIENCE, body_max_bytes: 1 << 20, idle_connections: 0 };

/// Runs all network checks. Returns no findings unless the settings allow requests.
pub(crate) async fn look(pool: &PgPool, gateways: &Gateways, setup: &Setup) -> Vec<CheckResult> {
    if !setup.asks_others {
        return Vec::new();
    }
    let (mut findings, of_ourselves) = tokio::join!(of_gateways(pool, gateways), of_ourselves(pool, setup));
    findings.extend(of_ourselves);
    findings
}

async fn of_gateways(pool: &PgPool, gateways: &Gateways) -> Vec<CheckResult> {
    let counted = timeout(PATIENCE, audience_counts::by_gateway(pool)).await;
    let counted = counted.ok().and_then(Result::ok).unwrap_or_default();
    let asked = ASKED.map(async |gateway| {
        let (host, answer) = gateways.greet(gateway, PATIENCE).await?;
        let answer = answer.map(|reply| (reply.status, reply.headers.get(header::DATE).and_then(date)));
        let subscriptions = counted.iter().find(|(known, _)| *known == gateway).map_or(0, |(_, n)| *n);
        Some(Greeted { gateway, host, subscriptions, answer })
    });
    let greeted: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let mut findings = outside::gateways(&greeted);
    findings.extend(outside::gateway_clock(&greeted, Clock::system().now()));
    findings
}

/// Parses the `Date` header (RFC 9110 section 5.6.7).
fn date(value: &HeaderValue) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(value.to_str().ok()?).ok().map(|at| at.to_utc())
}

async fn of_ourselves(pool: &PgPool, setup: &Setup) -> Vec<CheckResult> {
    let Some(url) = &setup.public_url else { return Vec::new() };
    let Ok(client) = OutboundClient::new(None, None, PlainHttp::like(url), LIMITS) else { return Vec::new() };
    if !client.admits(url) {
        return Vec::new(); // without TLS, which another check tells of
    }
    let apps = timeout(PATIENCE, setup::origins(pool)).await.ok().and_then(Result::ok).unwrap_or_default();
    let preflights = join_all(apps.iter().map(async |(app, origin)| {
        let ask = preflight(url, app, origin)?;
        let at = url.join(&format!("v1/apps/{app}/subscriptions")).ok()?;
        outside::cors(&at, app, origin, &hear(&client, ask).await.0)
    }));
    let script =
        async { outside::worker_script(url, &hear(&client, get(&at(url, "sdk/service-worker.js")?)?).await.0) };
    let health = async {
        let (heard, took) = hear(&client, get(&at(url, "healthz")?)?).await;
        Some(outside::own_address(url, &heard, took))
    };
    let (health, script, preflights) = tokio::join!(health, script, preflights);
    // One finding for all apps, because the cause is the proxy.
    let preflights = preflights.into_iter().flatten().min_by_key(|finding| finding.health);
    health.into_iter().chain(script).chain(preflights).collect()
}

async fn hear(client: &OutboundClient, request: Request<Full<Bytes>>) -> (OutsideResponse, Duration) {
    let began = Instant::now();
    let heard = match client.exchange(request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            Ok((head.status, head.headers, body.to_vec()))
        }
        Err(error) => Err(error.reason.to_string()),
    };
    (heard, began.elapsed())
}

fn at(url: &Url, path: &str) -> Option<Url> {
    Url::parse(&format!("{}/{path}", url.as_str().trim_end_matches('/'))).ok()
}

pub(super) fn get(url: &Url) -> Option<Request<Full<Bytes>>> {
    Request::builder().uri(url.as_str()).body(Full::default()).ok()
}

/// Builds the preflight that a browser sends before a page of this origin registers its subscription.
fn preflight(url: &Url, app: &str, origin: &str) -> Option<Request<Full<Bytes>>> {
    Request::builder()
        .method(Method::OPTIONS)
        .uri(at(url, &format!("v1/apps/{app}/subscriptions"))?.as_str())
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "content-type")
        .body(Full::default())
        .ok()
}
