//! Rules for responses of push services, and of the public URL.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, StatusCode, header};
use url::Url;

use crate::checks::CheckResult;
use bellwire_core::lane::Gateway;
use bellwire_rules::classify::Failure;

/// Clock difference in seconds for a warning (confusing logs) and a failure (certificates and VAPID tokens are refused).
const OFF_S: [i64; 2] = [10, 300];
/// Domains of examples in documentation.
const PLACEHOLDERS: [&str; 4] = ["example.com", "example.org", "example.net", "example"];

/// Result of an empty POST to a push service.
pub(in crate::checks) struct Greeted {
    pub gateway: Gateway,
    pub host: String,
    pub subscriptions: i64,
    /// Status and `Date` of any response.
    pub answer: Result<(u16, Option<DateTime<Utc>>), Failure>,
}

/// Checks whether push services are reachable. Without subscriptions a failure is a warning.
pub(in crate::checks) fn gateways(greeted: &[Greeted]) -> Vec<CheckResult> {
    let one = |greeted: &Greeted| {
        let check = match greeted.gateway {
            Gateway::Fcm => "push service fcm",
            Gateway::Mozilla => "push service mozilla",
            Gateway::Wns => "push service wns",
            Gateway::Apple => "push service apple",
            Gateway::Other => "push service other",
        };
        let Greeted { host, subscriptions, answer, .. } = greeted;
        let failure = match answer {
            Ok((status, _)) => return CheckResult::ok(check, format!("{host} can be reached: it answered {status}.")),
            Err(failure) => *failure,
        };
        let waiting = match subscriptions {
            0 => String::new(),
            n => format!(" {n} subscriptions are there."),
        };
        let detail = format!("{host} cannot be reached: {}.{waiting}", what_failed(failure));
        let finding =
            if *subscriptions > 0 { CheckResult::failure(check, detail) } else { CheckResult::warning(check, detail) };
        finding.advise(what_to_do(failure, host)).by(format!("curl -sv -o /dev/null https://{host}/"))
    };
    greeted.iter().map(one).collect()
}

fn what_failed(failure: Failure) -> &'static str {
    match failure {
        Failure::Resolve | Failure::InvalidHost => "DNS gives no address",
        Failure::Forbidden => "DNS gives an address that is not public",
        Failure::Connect => "no connection could be made",
        Failure::Proxy => "the proxy lets nothing through to it",
        Failure::Tls => "its certificate was refused, or there is no TLS",
        Failure::Deadline => "it did not answer within three seconds",
        Failure::Unprocessed | Failure::Withdrawn | Failure::Reset | Failure::Protocol => "the connection broke off",
    }
}

fn what_to_do(failure: Failure, host: &str) -> String {
    match failure {
        Failure::Resolve | Failure::InvalidHost => {
            "Check the name servers of this machine in /etc/resolv.conf.".to_owned()
        }
        Failure::Forbidden => {
            "The DNS server of this machine returns an inner address. Nothing is sent there.".to_owned()
        }
        Failure::Proxy => format!("Configure the proxy in BELLWIRE_EGRESS_PROXY to allow {host}:443."),
        Failure::Tls => {
            "Check the clock. If a proxy intercepts TLS, trust its authority with BELLWIRE_GATEWAY_CA_FILE.".to_owned()
        }
        _ => format!("Allow connections from this machine to {host}, port 443: a firewall or the network blocks them."),
    }
}

/// Checks the clock of this host against the median of the push services. Returns `None` without a `Date`.
pub(in crate::checks) fn gateway_clock(greeted: &[Greeted], now: DateTime<Utc>) -> Option<CheckResult> {
    const CHECK: &str = "clock of push services";
    let mut offs: Vec<TimeDelta> =
        greeted.iter().filter_map(|greeted| Some(greeted.answer.as_ref().ok()?.1? - now)).collect();
    offs.sort_unstable();
    let off_s = offs.get(offs.len() / 2)?.num_seconds();
    let which = if off_s > 0 { "behind" } else { "ahead of" };
    let finding = match off_s.abs() {
        off if off < OFF_S[0] => {
            return Some(CheckResult::ok(CHECK, "This host's clock agrees with the clocks of push services."));
        }
        off if off < OFF_S[1] => {
            CheckResult::warning(CHECK, format!("This host's clock is {off} s {which} push services'."))
        }
        off => CheckResult::failure(
            CHECK,
            format!("This host's clock is {off} s {which} push services': certificates and VAPID tokens are refused."),
        ),
    };
    Some(
        finding
            .advise("Synchronize the clocks of this host and of the database's host.")
            .by("timedatectl set-ntp true"),
    )
}

/// Checks the VAPID subjects of the apps. Push services send reports to them, and some require one.
pub(in crate::checks) fn subjects(subjects: &[(String, String)]) -> CheckResult {
    const CHECK: &str = "VAPID subjects";
    let is_placeholder = |subject: &str| {
        let host = match subject.strip_prefix("mailto:") {
            Some(address) => address.rsplit('@').next().unwrap_or_default().to_owned(),
            None => Url::parse(subject).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default(),
        };
        PLACEHOLDERS.iter().any(|known| host.eq_ignore_ascii_case(known) || host.ends_with(&format!(".{known}")))
    };
    let wrong = subjects.iter().find_map(|(app, subject)| {
        if let Err(error) = bellwire_webpush::keys::check_subject(subject) {
            return Some((app, format!("the contact `{subject}` {error}")));
        }
        is_placeholder(subject).then(|| (app, format!("the domain of `{subject}` is reserved for examples")))
    });
    match wrong {
        None => CheckResult::ok(CHECK, "The apps have contacts for push services."),
        Some((app, why)) => {
            CheckResult::warning(CHECK, format!("Push services cannot write to the operator of the app {app}: {why}."))
                .advise("Set a monitored mail address for each VAPID key; Apple refuses keys without one.")
                .by(format!("bellwire vapid subject --app {app} mailto:ADDRESS"))
        }
    }
}

/// Response at the public URL, or the reason for a failed request.
pub(in crate::checks) type OutsideResponse = Result<(StatusCode, HeaderMap, Vec<u8>), String>;

/// Checks whether this server responds at its public URL.
pub(in crate::checks) fn own_address(url: &Url, heard: &OutsideResponse, took: Duration) -> CheckResult {
    const CHECK: &str = "own address";
    let look = format!("curl -sv {}healthz", with_slash(url));
    match heard {
        Ok((StatusCode::OK, _, body)) if body == br#"{"status":"ok"}"# => {
            let tls = if url.scheme() == "https" { ", by a certificate that browsers trust" } else { "" };
            CheckResult::ok(CHECK, format!("This server answers at {url}{tls}, within {} ms.", took.as_millis().max(1)))
        }
        Ok((status @ (StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT), ..)) => {
            CheckResult::failure(CHECK, format!("The proxy at {url} does not reach a server: {}.", status.as_u16()))
                .advise("Is `bellwire serve` running, where the proxy looks for it (BELLWIRE_LISTEN)?")
                .by(look)
        }
        Ok((status, ..)) => {
            CheckResult::failure(CHECK, format!("Something else answers at {url}: {} for /healthz.", status.as_u16()))
                .advise("Configure the proxy to forward all paths of that host to Bellwire, unchanged.")
                .by(look)
        }
        Err(why) if why.contains("certificate") => {
            CheckResult::failure(CHECK, format!("Browsers refuse the certificate of {url}: {why}."))
                .advise("Renew it for exactly that name, and configure the proxy to send the whole chain. If the authority is your own, browsers must trust it.")
                .by(look)
        }
        Err(why) => CheckResult::warning(CHECK, format!("{url} does not answer requests from this machine: {why}."))
            .advise("Check DNS and the proxy. If browsers can reach the URL, only this machine cannot reach its own public address.")
            .by(look),
    }
}

fn with_slash(url: &Url) -> String {
    let url = url.as_str();
    if url.ends_with('/') { url.to_owned() } else { format!("{url}/") }
}

/// Checks whether browsers can run the service worker script that the proxy returns. Returns `None` without a response,
/// which [`own_address`] reports.
pub(in crate::checks) fn worker_script(url: &Url, heard: &OutsideResponse) -> Option<CheckResult> {
    const CHECK: &str = "service worker script";
    let Ok((status, headers, body)) = heard else { return None };
    let is_script = one(headers, &header::CONTENT_TYPE).is_some_and(|kind| kind.contains("javascript"));
    let wrong = match () {
        () if *status != StatusCode::OK => format!("is answered by {}", status.as_u16()),
        () if !is_script || body.is_empty() => "is not served as a script, so browsers do not run it".to_owned(),
        () if one(headers, &header::ACCESS_CONTROL_ALLOW_ORIGIN) != Some("*") => {
            "lacks `Access-Control-Allow-Origin: *`, or has it twice, so that module workers cannot load it".to_owned()
        }
        () if one(headers, &HeaderName::from_static("service-worker-allowed")) != Some("/") => {
            "lacks `Service-Worker-Allowed: /`, so that a worker registered from there controls no page outside /sdk/"
                .to_owned()
        }
        () => return Some(CheckResult::ok(CHECK, "Browsers get it as a script, from any origin, for any scope.")),
    };
    Some(
        CheckResult::failure(CHECK, format!("{}sdk/service-worker.js {wrong}.", with_slash(url)))
            .advise("Configure the proxy to forward the script with its headers unchanged, and not to serve its own page instead.")
            .by(format!("curl -si {}sdk/service-worker.js", with_slash(url))),
    )
}

/// Checks whether a page of this origin can register a subscription. Returns `None` without a response.
pub(in crate::checks) fn cors(url: &Url, app: &str, origin: &str, heard: &OutsideResponse) -> Option<CheckResult> {
    const CHECK: &str = "CORS";
    let Ok((status, headers, _)) = heard else { return None };
    let allowed: Vec<_> = headers.get_all(header::ACCESS_CONTROL_ALLOW_ORIGIN).iter().collect();
    let lists = |name: &HeaderName, wanted: &str| {
        one(headers, name).is_some_and(|list| list.split(',').any(|item| item.trim().eq_ignore_ascii_case(wanted)))
    };
    let wrong = match allowed.as_slice() {
        _ if !status.is_success() => format!("the preflight is answered by {}", status.as_u16()),
        [] => "`Access-Control-Allow-Origin` is missing".to_owned(),
        [only] if *only != origin => "`Access-Control-Allow-Origin` names something else".to_owned(),
        [_] if !lists(&header::ACCESS_CONTROL_ALLOW_METHODS, "POST") => "POST is not allowed".to_owned(),
        [_] if !lists(&header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type") => {
            "`Content-Type` is not allowed".to_owned()
        }
        [_] => return Some(CheckResult::ok(CHECK, format!("Pages of {origin} may subscribe with the app {app}."))),
        _ => "`Access-Control-Allow-Origin` is there twice, which browsers refuse".to_owned(),
    };
    Some(
        CheckResult::failure(CHECK, format!("Pages of {origin} cannot subscribe with the app {app}: {wrong}."))
            .advise("Bellwire answers preflights itself: configure the proxy to forward OPTIONS, and not to add or remove CORS headers.")
            .by(format!("curl -si -X OPTIONS -H 'Origin: {origin}' -H 'Access-Control-Request-Method: POST' {url}")),
    )
}

/// Returns the value of a header that occurs exactly once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
#[path = "../../../tests/unit/checks/rules/outside.rs"]
mod tests;
