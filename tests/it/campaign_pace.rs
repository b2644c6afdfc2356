//! A campaign's pace holds for all of its messages together.

use std::time::Duration;

use bellwire::testkit::server::campaigns;
use serde_json::{Value, json};

use crate::support::campaigns::{accepted, plan, show, started};
use crate::support::{TestApp, seed};

/// Starts a campaign at so many a second to 300 browsers of two push services, and checks each second that it keeps to that.
async fn check(slug: &str, per_second: i64, more: Value, seconds: i64) {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..200).await;
    seed(&app, "mozilla", 200..300).await;
    let mut whole = json!({"pace": {"per_minute": 60 * per_second}});
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    started(&app, plan(slug, whole)).await;
    for second in 0..seconds {
        campaigns::advance(&app.pool, &app.vault, &app.clock).await.unwrap();
        app.run_until_idle().await;
        let n = accepted(&show(&app, slug).await);
        let (least, most) = (per_second * (second - 15), per_second * (second + 2));
        assert!((least.min(300)..=most).contains(&n), "{slug}: {n} after {second} s");
        app.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(accepted(&show(&app, slug).await), 300, "{slug}");
    app.finish().await;
}

fn variants(n: usize) -> Value {
    (0..n).map(|n| json!({"name": n.to_string(), "message": {}})).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_share_the_pace() {
    check("variants", 10, json!({"variants": variants(4)}), 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_and_rest_share_the_pace() {
    let test = json!({"share": 0.5, "after": 60});
    check("test", 2, json!({"variants": variants(2), "test": test}), 180).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn campaigns_keep_paces_of_their_own() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..100).await;
    for slug in ["one", "two"] {
        started(&app, plan(slug, json!({"pace": {"per_minute": 600}}))).await;
    }
    let run_for = async |seconds: u32| {
        for _ in 0..seconds {
            campaigns::advance(&app.pool, &app.vault, &app.clock).await.unwrap();
            app.clock.advance(Duration::from_secs(1));
            app.run_until_idle().await;
        }
    };
    for (seconds, expected) in [(5, 40..=65), (25, 100..=100)] {
        run_for(seconds).await;
        for slug in ["one", "two"] {
            let n = accepted(&show(&app, slug).await);
            assert!(expected.contains(&n), "{slug}: {n}");
        }
    }
    app.finish().await;
}
