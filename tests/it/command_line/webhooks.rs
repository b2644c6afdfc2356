//! The verbs about webhooks.

use serde_json::json;

use super::shell::Shell;
use super::{error_text, line};

#[tokio::test]
pub async fn webhooks_are_managed_at_the_shell() {
    let shell = Shell::with_app().await;
    let url = "https://fcm.googleapis.com/in";
    let about = ["webhook", "create", "--app", "shop", "--name", "CRM", "--url", url, "--event"];
    let refused = shell.refused(&[&about[..], &["delivery.eaten"]].concat()).await;
    assert!(refused.starts_with("bellwire: --event"), "{refused}");
    let refused = shell.refused(&[&about[..], &["delivery.gone", "--max-events", "501"]].concat()).await;
    assert!(refused.starts_with("bellwire: --max-events: must be 1 to 500"), "{refused}");
    let made = shell.ok(&[&about[..], &["delivery.gone,delivery.clicked", "--max-events", "7"]].concat()).await;
    let secret = line(&made);
    assert!(secret.starts_with("whsec_") && error_text(&made).contains("shown only now"), "{made:?}");

    let listed = shell.json(&["webhook", "list", "--app", "shop"]).await;
    let id = listed["data"][0]["id"].as_str().expect("an id").to_owned();
    let about = |verb: &'static str| ["webhook", verb, id.as_str(), "--app", "shop"].map(str::to_owned);
    let args = |verb: &'static str, more: &[&str]| -> Vec<String> {
        about(verb).into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect()
    };
    let json = async |verb: &'static str, more: &[&str]| {
        let args = args(verb, more);
        shell.json(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let shown = json("show", &[]).await;
    assert_eq!(
        (&shown["url"], &shown["max_events"], &shown["events"], &shown["secret"]),
        (&json!(url), &json!(7), &json!(["delivery.gone", "delivery.clicked"]), &json!(null))
    );
    let rotated = json("rotate", &["--overlap-hours", "2"]).await;
    assert!(rotated["secret"].as_str().is_some_and(|new| new != secret), "{rotated}");
    assert!(rotated["former_secret_until"].is_string(), "{rotated}");

    let delivery = json("test", &[]).await["id"].as_str().expect("an id").to_owned();
    let pending = json("deliveries", &["--state", "pending"]).await;
    assert_eq!((&pending["data"][0]["id"], &pending["data"][1]), (&json!(delivery), &json!(null)));
    assert_eq!(json("deliveries", &["--state", "failed"]).await["data"], json!([]));
    let story = json("deliveries", &[&delivery]).await;
    assert_eq!((&story["body"][0]["type"], &story["recent_attempts"]), (&json!("webhook.test"), &json!([])));
    assert_eq!(json("replay", &["--delivery", &delivery]).await["replayed"], 0, "it has not failed");
    assert_eq!(json("replay", &["--since", "2026-01-01T00:00:00Z"]).await["replayed"], 0);

    let disabled = json("change", &["--disable", "--name", "Old CRM"]).await;
    assert_eq!(
        (&disabled["state"], &disabled["disabled_why"], &disabled["name"]),
        (&json!("disabled"), &json!("asked"), &json!("Old CRM"))
    );
    let refused = shell.refused(&["webhook", "test", &id, "--app", "shop"]).await;
    assert!(refused.contains("disabled"), "{refused}");
    assert_eq!(json("change", &["--enable"]).await["state"], "active");
    assert_eq!(json("delete", &[]).await["deleted"], true);
    assert_eq!(shell.json(&["webhook", "list", "--app", "shop"]).await["data"], json!([]));
    let refused = shell.refused(&["webhook", "show", &id, "--app", "shop"]).await;
    assert!(refused.starts_with("bellwire: There is no such webhook."), "{refused}");
}
