//! Counts of a message equal its log, for any responses of push services and any time of a stop.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwire_core::delivery::Ending;
use bellwire_core::id::MessageId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::support::TestApp;

const RECIPIENTS: u32 = 16;
const CASES: u32 = 6;

/// Course of one message: responses to the first requests of each recipient, its time to live, and later steps.
#[derive(Debug, Clone)]
struct Course {
    responses: Vec<Vec<u16>>,
    ttl_s: u32,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Wait(u64),
    Pause,
    Resume,
    Cancel,
}

fn courses() -> impl Strategy<Value = Course> {
    let status = prop::sample::select(vec![201, 201, 201, 400, 404, 410, 413, 429, 500, 503]);
    let responses = prop::collection::vec(prop::collection::vec(status, 0..4), RECIPIENTS as usize);
    let step = prop_oneof![
        4 => (1..600u64).prop_map(Step::Wait),
        1 => Just(Step::Pause),
        1 => Just(Step::Resume),
        1 => Just(Step::Cancel),
    ];
    let ttl_s = prop_oneof![Just(0), 1..3_000u32];
    (responses, ttl_s, prop::collection::vec(step, 1..8)).prop_map(|(responses, ttl_s, steps)| Course {
        responses,
        ttl_s,
        steps,
    })
}

/// Final endings in the log of a message, each with the number of recipients it was logged for.
async fn logged(app: &TestApp, message: &str) -> BTreeMap<String, i64> {
    let sql = "SELECT ending, count(*), count(DISTINCT subscription) FROM attempts WHERE message = $1 GROUP BY 1";
    let id: MessageId = message.parse().expect("an id");
    let rows: Vec<(i16, i64, i64)> = sqlx::query_as(sql).bind(id.0).fetch_all(&app.pool).await.expect("the log");
    let mut endings = BTreeMap::new();
    for (ending, n, recipients) in rows {
        let ending = Ending::ALL.iter().find(|known| known.code() == ending).expect("a known ending");
        if *ending != Ending::Retry {
            assert_eq!(n, recipients, "a delivery ends once as {}", ending.name());
            endings.insert(ending.name().to_owned(), n);
        }
    }
    endings
}

async fn run(app: &TestApp, first: u32, course: &Course) {
    for (endpoint, responses) in (first..).zip(&course.responses) {
        for (attempt, status) in (1..).zip(responses) {
            let action = RuleAction::Answer { status: *status, headers: Vec::new(), body: String::new() };
            let rule =
                Rule { endpoints: Some([endpoint].into()), attempts: Some([attempt, attempt]), ..Rule::always(action) };
            app.simulator.add_rule(rule).expect("a valid rule");
        }
    }
    let recipients = app.subscribe("fcm", first..first + RECIPIENTS).await;
    let ids: Vec<&String> = recipients.iter().map(|recipient| &recipient.id).collect();
    let message = app.send(json!({"subscriptions": ids}), json!({"ttl": course.ttl_s})).await;
    app.run_until_idle().await;
    for step in &course.steps {
        match step {
            Step::Wait(seconds) => app.advance(Duration::from_secs(*seconds)).await,
            Step::Pause | Step::Resume | Step::Cancel => {
                let verb = format!("{step:?}").to_lowercase();
                // A message that ended, or was cancelled, takes no further step: then the response is a conflict.
                app.call(axum::http::Method::POST, &format!("/v1/apps/shop/messages/{message}/{verb}"), json!(null))
                    .await;
            }
        }
        app.run_until_idle().await;
    }
    // The time to live ends all waiting deliveries.
    for _ in 0..2 {
        app.advance(Duration::from_secs(u64::from(course.ttl_s) + 3_600)).await;
        app.sweep().await;
        app.run_until_idle().await;
    }
    let mut counts = app.counts(&message).await;
    let targeted = counts.remove("targeted").expect("the number of recipients");
    assert_eq!(targeted, i64::from(RECIPIENTS), "{course:?}");
    let endings = logged(app, &message).await;
    counts.retain(|name, _| Ending::ALL.iter().any(|ending| ending.name() == name));
    assert_eq!((endings.values().sum::<i64>(), &endings), (targeted, &counts), "{course:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn message_counts_equal_its_log() {
    let app = TestApp::start().await;
    let mut runner = TestRunner::deterministic();
    for case in 0..CASES {
        let course = courses().new_tree(&mut runner).expect("a course").current();
        run(&app, case * RECIPIENTS, &course).await;
    }
    app.finish().await;
}
