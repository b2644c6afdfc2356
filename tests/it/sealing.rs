//! Wrong results of the eight-lane accelerator lose no delivery.

use std::array::from_fn;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::encoding::{AsBigEndian as _, EcPrivateKeyBin};
use axum::http::Method;
use bellwire_dispatch::DispatchConfig;
use bellwire_webpush::sealer::{Accelerator, ExchangeRecord, LANES, Sealer};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::support::{Setup, TestApp};

/// AWS-LC, eight times in a row, right in as many passes and wrong from then on.
#[derive(Debug)]
struct Aging(AtomicU32);

impl Accelerator for Aging {
    fn name(&self) -> String {
        "an imitation".into()
    }

    fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<ExchangeRecord> {
        let errs = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
        let keys: [_; LANES] = from_fn(|_| PrivateKey::generate(&ECDH_P256).unwrap());
        let secret = |lane: usize| {
            let browser = UnparsedPublicKey::new(&ECDH_P256, &browsers[lane]);
            agree(&keys[lane], browser, (), |shared| {
                let mut shared: [u8; 32] = shared.try_into().unwrap();
                shared[0] ^= u8::from(errs);
                Ok(Zeroizing::new(shared))
            })
        };
        let private: EcPrivateKeyBin = keys[shown].as_be_bytes().unwrap();
        Some(ExchangeRecord {
            public: from_fn(|lane| keys[lane].compute_public_key().unwrap().as_ref().try_into().unwrap()),
            shared: Box::new(from_fn(|lane| secret(lane).ok())),
            private: Zeroizing::new(private.as_ref().try_into().unwrap()),
        })
    }
}

async fn sent_by(passes: u32, n: u32) -> (TestApp, &'static Sealer) {
    let sealer: &'static Sealer = Box::leak(Box::new(Sealer::watching(Box::new(Aging(passes.into())), 1)));
    let app =
        TestApp::with(Setup { dispatch: DispatchConfig { sealer, ..DispatchConfig::default() }, ..Setup::default() })
            .await;
    app.subscribe("fcm", 0..n).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await.get("accepted"), Some(&i64::from(n)));
    let report = app.simulator.report();
    assert_eq!(report.accepted, u64::from(n));
    assert_eq!(report.deliveries, u64::from(n));
    assert_eq!(report.duplicates, 0);
    app.run_until_idle().await; // the engine tells what it has found
    (app, sealer)
}

async fn alerts(app: &TestApp) -> Vec<Value> {
    app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200)["data"].as_array().unwrap().clone()
}

fn gauge(app: &TestApp) -> bool {
    app.metrics.render().contains("\nbellwire_multi_buffer 1\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_sealed_campaign_is_readable_by_browsers() {
    let (app, sealer) = sent_by(u32::MAX, 150).await;
    assert!(sealer.is_accelerated() && gauge(&app));
    assert!(alerts(&app).await.is_empty());
    app.finish().await; // the simulator could decrypt all of them
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_accelerator_is_switched_off_without_loss() {
    let (app, sealer) = sent_by(8 + 2, 150).await; // eight passes before its use, and two in it
    assert!(sealer.is_faulty() && !gauge(&app));
    app.run_until_idle().await;
    let alerts = alerts(&app).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!((&alerts[0]["kind"], &alerts[0]["n"]), (&json!("sealing"), &json!(1)), "{alerts:?}");
    assert!(alerts[0]["detail"].as_str().unwrap().contains("an imitation"));
    app.finish().await;
}
