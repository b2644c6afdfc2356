//! The verbs about topics, segments, caps and templates.

use serde_json::json;

use super::shell::Shell;
use super::{error_text, line};

#[tokio::test]
pub async fn topics_are_made_listed_changed_and_deleted() {
    let shell = Shell::new().await;
    let create = ["app", "create", "shop", "--subject", "mailto:push@example.com", "--topic", "a", "--topic", "b"];
    let made = shell.json(&[&create[..], &["--browsers-may", "set_tags,create_topics"]].concat()).await;
    assert_eq!(made["browsers_may"], json!(["create_topics", "set_tags"]));
    let topic = |verb: &'static str, name: &'static str| ["topic", verb, name, "--app", "shop"];
    shell.ok(&[&topic("create", "staff")[..], &["--join", "server"]].concat()).await;
    let list = String::from_utf8(shell.ok(&["topic", "list", "--app", "shop"]).await.stdout).expect("UTF-8");
    assert_eq!(list.lines().count(), 4, "{list}");
    assert!(list.lines().any(|line| line.starts_with("staff  server  server   0 ")), "{list}");
    let changed = shell.json(&[&topic("change", "staff")[..], &["--join", "anyone"]].concat()).await;
    assert_eq!(changed["join"], "anyone");
    shell.ok(&topic("delete", "staff")).await;
    let gone = shell.refused(&topic("delete", "staff")).await;
    assert_eq!(gone, "bellwire: There is no topic \"staff\". `bellwire topic list` shows those that there are.\n");
    assert!(shell.refused(&topic("create", "a/b")).await.starts_with("bellwire: TOPIC: must be 1 to 128"));
    for (rights, expected) in [("set_attributes", json!(["set_attributes"])), ("nothing", json!([]))] {
        let changed = shell.json(&["app", "change", "shop", "--browsers-may", rights]).await;
        assert_eq!(changed["browsers_may"], expected);
    }
    let wrong = shell.refused(&["app", "change", "shop", "--browsers-may", "all"]).await;
    assert!(wrong.starts_with("bellwire: --browsers-may \"all\": must be `create_topics`"), "{wrong}");
}

#[tokio::test]
pub async fn segments_are_managed_at_the_shell() {
    let shell = Shell::with_app().await;
    let set = ["segment", "set", "paying", "plan = 'pro' or tag('beta')", "--app", "shop", "--description", "Who pays"];
    let made = shell.json(&set).await;
    assert_eq!(made["expression"], "plan = \"pro\" or tag(\"beta\")");
    let segment = |verb: &'static str, name: &'static str| ["segment", verb, name, "--app", "shop"];
    let shown = String::from_utf8(shell.ok(&segment("show", "paying")).await.stdout).expect("UTF-8");
    assert!(shown.contains("description  Who pays"), "{shown}");
    let list = shell.json(&["segment", "list", "--app", "shop"]).await;
    assert_eq!((&list["data"][0]["name"], &list["data"][1]), (&json!("paying"), &json!(null)));
    for (segment, exact) in [("paying", "--exact"), ("browser = 'firefox' and topic('x')", "--json")] {
        let counted = shell.ok(&["segment", "count", segment, "--app", "shop", exact]).await;
        let said = String::from_utf8(counted.stdout.clone()).expect("UTF-8");
        assert!(said.contains("0 of 0 active subscriptions, counted") || said.contains("\"of\":0"), "{counted:?}");
    }
    let members = shell.json(&[&segment("members", "paying")[..], &["--limit", "5"]].concat()).await;
    assert_eq!(members["data"], json!([]));
    let dry = shell.json(&["send", "--app", "shop", "--segment", "paying", "--title", "T", "--dry-run"]).await;
    assert_eq!((&dry["audience_estimate"], &dry["audience_margin"]), (&json!(0), &json!(0)));
    let sent = shell.ok(&["send", "--app", "shop", "--all", "--segment", "plan = 'pro'", "--title", "T"]).await;
    let shown = shell.json(&["message", "show", "--app", "shop", &line(&sent)]).await;
    assert_eq!(shown["to"], json!({"all": true, "segment": "plan = 'pro'"}));
    for (args, told) in [
        (
            ["segment", "set", "x", "plan =", "--app", "shop"],
            "EXPRESSION: at character 7: expected a text between quotes",
        ),
        (
            ["segment", "count", "plan", "--app", "shop", "--exact"],
            "SEGMENT: is neither the name of a segment of this app",
        ),
        (["send", "--app", "shop", "--title=T", "--segment", "a ="], "--segment: at character 4: expected"),
    ] {
        let refused = shell.refused(&args).await;
        assert!(refused.contains(told), "{args:?}: {refused}");
    }
    shell.ok(&segment("delete", "paying")).await;
    let gone = shell.refused(&segment("delete", "paying")).await;
    assert_eq!(gone, "bellwire: There is no segment \"paying\". `bellwire segment list` shows those that there are.\n");
    let both = shell.run(&["send", "--app", "shop", "--user", "1", "--segment", "x", "--title", "T"]).await;
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[tokio::test]
pub async fn caps_are_set_shown_and_cleared() {
    let shell = Shell::with_app().await;
    let set = ["cap", "set", "--app", "shop", "2/1d", "5/7d:promotional"];
    let expected = json!({"caps": [
        {"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"},
        {"tiers": ["promotional"], "max": 5, "window": "7d"},
    ]});
    assert_eq!(shell.json(&set).await, expected);
    assert_eq!(shell.json(&["cap", "show", "--app", "shop"]).await, expected);
    let refused = shell.refused(&["cap", "set", "--app", "shop", "2/1d", "0/1y"]).await;
    assert!(refused.contains("CAP (/1/max): must be 1 to 50"), "{refused}");
    assert_eq!(shell.run(&["cap", "set", "--app", "shop", "2"]).await.status.code(), Some(2));
    assert_eq!(shell.json(&["cap", "clear", "--app", "shop"]).await, json!({"caps": []}));
}

#[tokio::test]
pub async fn templates_are_managed_at_the_shell() {
    let shell = Shell::with_app().await;
    let of_shop = ["--app", "shop"];
    let put = ["template", "put", "welcome", "--app", "shop", "--file", "-"];
    let wrong = shell.fed(&put, r#"{"content": {"title": "{{ nmae }}"}}"#).await;
    assert!(error_text(&wrong).contains("/content/title: line 1, column 4: `nmae` is not defined"), "{wrong:?}");
    let made =
        shell.fed(&put, r#"{"content": {"title": "{{ data.city }} greets {{ user_id | default('you') }}"}}"#).await;
    assert_eq!(line(&made), "The template welcome is stored.");
    let listed = shell.json(&["template", "list", "--app", "shop"]).await;
    assert_eq!(listed["data"][0]["name"], "welcome");
    let shown = shell.json(&[&["template", "show", "welcome"][..], &of_shop].concat()).await;
    assert_eq!(shown["name"], "welcome");
    let data = ["--data", r#"{"city": "Linz"}"#];
    let preview = shell.ok(&[&["template", "preview", "welcome"][..], &of_shop, &data].concat()).await;
    let preview = String::from_utf8(preview.stdout).unwrap();
    assert!(preview.contains("\"title\": \"Linz greets you\"") && preview.contains("octets"), "{preview}");
    let lacking = shell.ok(&[&["template", "preview", "welcome"][..], &of_shop].concat()).await;
    let lacking = String::from_utf8(lacking.stdout).unwrap();
    assert!(lacking.contains("/content/title: line 1, column 4: `data.city` is not defined"), "{lacking}");
    let check = shell.ok(&[&["template", "check", "welcome", "--all"][..], &of_shop, &data].concat()).await;
    assert_eq!(line(&check), "tried on 0 (all of them): 0 cannot be filled in, 0 too long");
    let send = ["send", "--all", "--template", "welcome", "--json"];
    shell.ok(&[&send[..], &of_shop, &data].concat()).await;
    let refused = shell.refused(&["send", "--app", "shop", "--all", "--template", "welcome", "--data", "{"]).await;
    assert!(refused.contains("--data is not JSON"), "{refused}");
    shell.ok(&[&["template", "delete", "welcome"][..], &of_shop].concat()).await;
    let gone = shell.refused(&[&["template", "show", "welcome"][..], &of_shop].concat()).await;
    assert!(
        gone.contains("There is no template \"welcome\". `bellwire template list` shows those that there are."),
        "{gone}"
    );
}

#[tokio::test]
pub async fn pruned_subscriptions_are_counted_and_restored() {
    let shell = Shell::with_app().await;
    let restore = ["app", "restore-pruned", "shop", "--since", "2020-01-31"];
    let done = shell.json(&[&restore[..], &["--dry-run"]].concat()).await;
    assert_eq!(done, json!({"dry_run": true, "restored": 0, "more": false}));
    let said =
        String::from_utf8(shell.ok(&[&restore[..], &["--until", "2020-02-01"]].concat()).await.stdout).expect("UTF-8");
    assert_eq!(said, "0 subscriptions are active again.\n");
    let refused = shell.refused(&[&restore[..], &["--until", "2020-01-30", "--lane", "7"]].concat()).await;
    assert!(refused.contains("--until") && refused.contains("--lane"), "{refused}");
}
