//! Tests of the rules for responses.

use chrono::TimeZone as _;

use super::*;
use crate::checks::Health;

fn greeted(subscriptions: i64, answer: Result<(u16, Option<DateTime<Utc>>), Failure>) -> Greeted {
    Greeted { gateway: Gateway::Fcm, host: "fcm.googleapis.com".to_owned(), subscriptions, answer }
}

fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2030, 1, 31, 12, 0, 0).unwrap()
}

#[track_caller]
fn is(finding: &CheckResult, health: Health, named: &str) {
    assert_eq!(finding.health, health, "{finding:?}");
    let has = [finding.advice.is_some(), finding.line.is_some()];
    assert_eq!(has, [health != Health::Ok; 2], "{finding:?}");
    let all = [Some(&finding.detail), finding.advice.as_ref(), finding.line.as_ref()];
    let all = all.into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    assert!(all.contains(named) && finding.detail.ends_with('.'), "{named}: {finding:?}");
}

#[test]
fn any_response_makes_a_push_service_reachable() {
    for (subscriptions, answer, health, named) in [
        (7, Ok((404, None)), Health::Ok, "it answered 404"),
        (0, Err(Failure::Connect), Health::Warning, "port 443"),
        (7, Err(Failure::Connect), Health::Failure, "7 subscriptions"),
        (7, Err(Failure::Resolve), Health::Failure, "resolv.conf"),
        (7, Err(Failure::Forbidden), Health::Failure, "not public"),
        (7, Err(Failure::Tls), Health::Failure, "BELLWIRE_GATEWAY_CA_FILE"),
        (7, Err(Failure::Deadline), Health::Failure, "curl -sv -o /dev/null https://fcm.googleapis.com/"),
    ] {
        is(&gateways(&[greeted(subscriptions, answer)])[0], health, named);
    }
}

#[test]
fn clock_is_compared_with_most_push_services() {
    let shown = |seconds: i64| greeted(0, Ok((404, Some(now() + TimeDelta::seconds(seconds)))));
    assert_eq!(gateway_clock(&[greeted(0, Ok((404, None))), greeted(0, Err(Failure::Tls))], now()), None);
    for (seconds, health, named) in [
        (0, Health::Ok, "agrees with"),
        (-9, Health::Ok, "agrees with"),
        (10, Health::Warning, "10 s behind"),
        (-299, Health::Warning, "299 s ahead of"),
        (86_400, Health::Failure, "VAPID tokens are refused"),
    ] {
        is(&gateway_clock(&[shown(seconds)], now()).unwrap(), health, named);
    }
    let one_is_wrong = [shown(0), shown(86_400), shown(1)];
    is(&gateway_clock(&one_is_wrong, now()).unwrap(), Health::Ok, "agrees with");
}

#[test]
fn subject_is_a_usable_contact() {
    for (subject, health, named) in [
        ("mailto:push@shop.test.example.net", Health::Warning, "reserved for examples"),
        ("mailto:ops@shop.example", Health::Warning, "reserved for examples"),
        ("mailto:ops@example.com", Health::Warning, "bellwire vapid subject --app shop mailto:ADDRESS"),
        ("https://example.org/contact", Health::Warning, "reserved for examples"),
        ("mailto:ops", Health::Warning, "whole mail address"),
        ("mailto:ops@bellwire.dev", Health::Ok, "have contacts"),
        ("https://bellwire.dev/contact", Health::Ok, "have contacts"),
    ] {
        is(&subjects(&[("shop".to_owned(), subject.to_owned())]), health, named);
    }
}

fn url() -> Url {
    Url::parse("https://push.example.com").unwrap()
}

fn heard(status: u16, headers: &[(&str, &str)], body: &str) -> OutsideResponse {
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        all.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    Ok((StatusCode::from_u16(status).unwrap(), all, body.as_bytes().to_vec()))
}

#[test]
fn public_url_leads_to_this_server() {
    for (heard, health, named) in [
        (heard(200, &[], r#"{"status":"ok"}"#), Health::Ok, "by a certificate that browsers trust"),
        (heard(200, &[], "<html>"), Health::Failure, "Something else answers"),
        (heard(404, &[], ""), Health::Failure, "forward all paths"),
        (heard(502, &[], ""), Health::Failure, "bellwire serve"),
        (Err("no connection: invalid peer certificate: Expired".to_owned()), Health::Failure, "Renew it"),
        (Err("no response within 3 s".to_owned()), Health::Warning, "its own public address"),
    ] {
        is(&own_address(&url(), &heard, Duration::from_millis(12)), health, named);
    }
}

#[test]
fn worker_script_needs_its_content_type() {
    const RIGHT: [(&str, &str); 3] = [
        ("content-type", "text/javascript; charset=utf-8"),
        ("access-control-allow-origin", "*"),
        ("service-worker-allowed", "/"),
    ];
    let [kind, origin, scope] = RIGHT;
    for (heard, health, named) in [
        (heard(200, &RIGHT, "x"), Health::Ok, "for any scope"),
        (heard(200, &RIGHT, ""), Health::Failure, "not served as a script"),
        (heard(200, &[("content-type", "text/html"), origin, scope], "x"), Health::Failure, "not served as a script"),
        (heard(200, &[kind, scope], "x"), Health::Failure, "Access-Control-Allow-Origin"),
        (heard(200, &[kind, origin, origin, scope], "x"), Health::Failure, "has it twice"),
        (heard(200, &[kind, origin], "x"), Health::Failure, "Service-Worker-Allowed"),
        (heard(403, &[], "x"), Health::Failure, "403"),
    ] {
        is(&worker_script(&url(), &heard).unwrap(), health, named);
    }
    assert_eq!(worker_script(&url(), &Err("x".to_owned())), None);
}

#[test]
fn a_preflight_is_judged_as_browsers_judge_it() {
    const ORIGIN: &str = "https://shop.example.com";
    const METHODS: (&str, &str) = ("access-control-allow-methods", "GET, POST, PATCH, DELETE");
    const HEADERS: (&str, &str) = ("access-control-allow-headers", "Authorization, Content-Type");
    let allowed = |origin| ("access-control-allow-origin", origin);
    for (heard, health, named) in [
        (heard(204, &[allowed(ORIGIN), METHODS, HEADERS], ""), Health::Ok, "may subscribe"),
        (heard(403, &[], ""), Health::Failure, "403"),
        (heard(204, &[METHODS, HEADERS], ""), Health::Failure, "is missing"),
        (heard(204, &[allowed("*"), METHODS, HEADERS], ""), Health::Failure, "something else"),
        (heard(204, &[allowed(ORIGIN), allowed("*"), METHODS, HEADERS], ""), Health::Failure, "twice"),
        (heard(204, &[allowed(ORIGIN), HEADERS], ""), Health::Failure, "POST"),
        (heard(204, &[allowed(ORIGIN), METHODS], ""), Health::Failure, "Content-Type"),
    ] {
        is(&cors(&url(), "shop", ORIGIN, &heard).unwrap(), health, named);
    }
    assert_eq!(cors(&url(), "shop", ORIGIN, &Err("x".to_owned())), None);
}
