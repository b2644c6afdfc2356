//! Files and values as other systems and browsers write them: the cases of practice.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{TestApi, fcm, push_subscription, registration, same_browser};
use crate::support::imports::{CSV, NDJSON, import_counts, list_subscriptions, send_import};
use crate::support::json::assert_members;

macro_rules! case {
    ($name:literal) => {
        include_bytes!(concat!("../../cases/", $name)).as_slice()
    };
}

#[tokio::test]
async fn odd_zones_and_locales_still_subscribe() {
    let api = TestApi::start().await;
    for (body, zone, locale, refused) in [
        (case!("browser-says-odd-zone-or-locale/zone-offset.json"), json!("Etc/GMT-3"), json!(null), json!([])),
        (case!("browser-says-odd-zone-or-locale/zone-empty.json"), json!(null), json!(null), json!(["/timezone"])),
        (case!("browser-says-odd-zone-or-locale/locale-posix.json"), json!(null), json!("en-US"), json!([])),
    ] {
        let body = serde_json::from_slice(body).unwrap();
        let made = api.browse(Method::POST, "/subscriptions", None, Some(body)).await.ok(201);
        assert_eq!((&made["timezone"], &made["locale"]), (&zone, &locale), "{made}");
        assert_eq!(pointers(&made), refused, "{made}");
    }
}

fn pointers(made: &Value) -> Value {
    let refused = made["refused"].as_array().map(Vec::as_slice).unwrap_or_default();
    refused.iter().map(|refused| refused["pointer"].clone()).collect()
}

#[tokio::test]
async fn unreadable_details_of_browsers_are_listed() {
    let api = TestApi::start().await;
    let rights = json!({"browsers_may": ["set_tags", "set_attributes", "create_topics"]});
    api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(rights)).await.ok(200);
    let more = json!({"tags": ["ok", "", 7], "attributes": {"a": 1, "b": [1]}, "topics": ["news", "no name"], "locale": ["*", "de_at"],
        "timezone": 3});
    let mut body = registration(&fcm("odd"), more);
    body["subscription"]["expirationTime"] = json!("yesterday");
    let made = api.browse(Method::POST, "/subscriptions", None, Some(body)).await.ok(201);
    assert_eq!(
        (&made["tags"], &made["attributes"], &made["topics"], &made["locale"]),
        (&json!(["ok"]), &json!({"a": 1}), &json!(["news"]), &json!("de-AT"))
    );
    let mut all: Vec<_> =
        pointers(&made).as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    all.sort();
    let expected = ["/attributes/b", "/subscription/expirationTime", "/tags/1", "/tags/2", "/timezone", "/topics/1"];
    assert_eq!(all, expected);
    let at = format!("/subscriptions/{}", made["id"].as_str().unwrap());
    let change = json!({"topics": ["news", "sports", "//"], "timezone": "UTC+2", "locale": "POSIX"});
    let changed = api.browse(Method::PATCH, &at, made["token"].as_str(), Some(change.clone())).await.ok(200);
    assert_eq!((&changed["topics"], &changed["timezone"]), (&json!(["news", "sports"]), &json!("Etc/GMT-2")));
    assert_eq!(changed["locale"], "de-AT", "what cannot be read changes nothing");
    assert_eq!(pointers(&changed).as_array().unwrap().len(), 2, "{changed}");
    let by_server = api.call(Method::PATCH, &format!("/v1/apps/shop{at}"), Some(&api.key), Some(change)).await;
    assert_eq!(by_server.refusal(), (422, "invalid", vec!["/topics/2", "/locale"]));
}

#[tokio::test]
async fn endpoint_hosts_have_one_spelling() {
    let api = TestApi::start().await;
    let mut browser = same_browser(&fcm("Aa"));
    let again = json!({"subscription": browser});
    browser["endpoint"] = json!("HTTPS://FCM.GoogleApis.com:443/fcm/send/Aa");
    let made = api.post("/subscriptions", json!({"subscription": browser})).await.ok(201);
    let again = api.post("/subscriptions", again).await.ok(200);
    assert_eq!(made["id"], again["id"]);
    api.post("/subscriptions", registration("https://LOCALHOST/x", json!({}))).await.refusal();
}

#[tokio::test]
async fn details_never_cost_the_subscriber() {
    let api = TestApi::start().await;
    let file = case!("import-detail-costs-the-subscriber/details.ndjson");
    let import = send_import(&api, "", NDJSON, file).await.ok(201);
    assert_eq!(import_counts(&import), [9, 9, 0, 0, 0], "{import}");
    assert_eq!(import["warned"], 3, "{import}");
    assert_eq!(
        import["warnings"][0],
        json!({"line": 1, "field": "timezone", "reason": import["warnings"][0]["reason"]})
    );
    assert_eq!(import["faults"], json!([]));
    let locales: Vec<_> =
        list_subscriptions(&api).await.iter().map(|it| it["locale"].clone()).filter(|it| !it.is_null()).collect();
    assert_eq!(locales, ["en-US", "en-US"]);
}

#[tokio::test]
async fn database_nulls_are_empty_cells() {
    let api = TestApi::start().await;
    let import = send_import(&api, "", CSV, case!("import-nulls/phpmyadmin.csv")).await.ok(201);
    assert_eq!(import_counts(&import), [5, 4, 0, 0, 0], "{import}");
    let users: Vec<_> = list_subscriptions(&api).await.iter().map(|it| it["user_id"].clone()).collect();
    assert_eq!(users, [json!(null), json!(null), json!(null), json!("7")]);
    let import = send_import(&api, "", CSV, case!("import-nulls/zero-dates.csv")).await.ok(201);
    assert_eq!(import_counts(&import), [5, 4, 0, 0, 0], "{import}");
    for (n, null) in
        ["NULL", "null", "\\N", "None", "nil", "NA", "(NULL)", "[NULL]", "<null>", "NaN", "undefined", "#N/A"]
            .iter()
            .enumerate()
    {
        let row = csv_row(&format!("null-{n}"));
        let file = format!(
            "endpoint,p256dh,auth,user_id,tags,topics,timezone,deleted_at\n{row},{null},{null},{null},{null},{null}\n"
        );
        let import = send_import(&api, "", CSV, file).await.ok(201);
        assert_eq!((import_counts(&import), &import["warned"]), ([2, 1, 0, 0, 0], &json!(0)), "{null}: {import}");
        let newest = &list_subscriptions(&api).await[0];
        assert_eq!((&newest["user_id"], &newest["tags"]), (&json!(null), &json!([])), "{null}");
    }
    let quoted = format!("endpoint,p256dh,auth,user_id\n{},\"NULL\"\n", csv_row("quoted"));
    let import = send_import(&api, "", CSV, quoted).await.ok(201);
    assert_eq!(
        (import_counts(&import), &import["warnings"][0]["field"]),
        ([2, 1, 0, 0, 0], &json!("user_id")),
        "{import}"
    );
    assert_eq!(list_subscriptions(&api).await[0]["user_id"], "NULL", "a quoted word is a value");
}

fn csv_row(name: &str) -> String {
    let it = push_subscription(&fcm(name));
    [&it["endpoint"], &it["keys"]["p256dh"], &it["keys"]["auth"]]
        .map(|cell| cell.as_str().unwrap().to_owned())
        .join(",")
}

#[tokio::test]
async fn times_of_databases_and_languages_are_read() {
    let api = TestApi::start().await;
    let import = send_import(&api, "", CSV, case!("import-postgres-times/django-push-notifications.csv")).await.ok(201);
    assert_eq!((import_counts(&import), &import["warned"]), ([3, 2, 0, 0, 0], &json!(0)), "{import}");
    for (n, time) in [
        json!("2024-01-23T08:25:00Z"),
        json!("2024-01-23 08:25:00.000000+00"),
        json!("2024-01-23 09:25:00+0100"),
        json!("2024-01-23 08:25:00 UTC"),
        json!("2024-01-23 08:25:00 +0000"),
        json!("2024-01-23 08:25:00.0000000 +00:00"),
        json!("2024-01-23 08:25:00.123456789 +0000 UTC m=+0.000012"),
        json!("2024-01-23T08:25Z[UTC]"),
        json!("2024-01-23T08:25"),
        json!("Tue Jan 23 2024 09:25:00 GMT+0100 (Central European Standard Time)"),
        json!("Tue, 23 Jan 2024 08:25:00 GMT"),
        json!("Jan 23 2024  8:25AM"),
        json!("20240123082500"),
        json!("/Date(1705998300000)/"),
        json!("Tue Jan 23 08:25:00 UTC 2024"),
        json!("20240123T082500Z"),
        json!("23-JAN-24 08.25.00.000000 AM"),
        json!("23.01.2024 08:25"),
        json!("January 23, 2024, 8:25 AM"),
        json!("45314.350694444445"),
        json!("638415951000000000"),
        json!([2024, 1, 23, 8, 25]),
        json!({"__type": "Date", "iso": "2024-01-23T08:25:00.000Z"}),
        json!({"seconds": 1_705_998_300, "nanos": 0}),
        json!(1_705_998_300),
        json!("1705998300.0"),
        json!(1_705_998_300_000_i64),
        json!(1_705_998_300_000_000_i64),
        json!({"$date": "2024-01-23T08:25:00Z"}),
        json!({"$date": {"$numberLong": "1705998300000"}}),
        json!({"_seconds": 1_705_998_300, "_nanoseconds": 0}),
        json!({"timestampValue": "2024-01-23T08:25:00Z"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut line = push_subscription(&fcm(&format!("time-{n}")));
        line["created_at"] = time.clone();
        let import = send_import(&api, "", NDJSON, line.to_string()).await.ok(201);
        assert_eq!((import_counts(&import), &import["warned"]), ([1, 1, 0, 0, 0], &json!(0)), "{time}: {import}");
        let made = list_subscriptions(&api).await[0]["created_at"].as_str().unwrap().to_owned();
        assert!(made.starts_with("2024-01-23T08:25:00"), "{time}: {made}");
    }
}

#[tokio::test]
async fn state_columns_decide_who_is_subscribed() {
    let api = TestApi::start().await;
    let import = send_import(&api, "", CSV, case!("import-onesignal-opted-out/players.csv")).await.ok(201);
    assert_eq!(import_counts(&import), [3, 1, 0, 1, 0], "{import}");
    for (n, (column, cell, expected)) in [
        ("notification_types", "-10", "left_out"),
        ("notification_types", "0", "left_out"),
        ("notification_types", "1", "added"),
        ("is_subscribed", "f", "left_out"),
        ("enabled", "1", "added"),
        ("deleted_at", "2024-01-23 08:25:00", "left_out"),
        ("deleted_at", "0000-00-00", "added"),
        ("opted_out", "false", "added"),
        ("opted_out", "yes", "left_out"),
        ("status", "unsubscribed", "left_out"),
        ("status", "subscribed", "added"),
        ("status", "mystery", "refused"),
        ("permission", "denied", "left_out"),
        ("permission", "granted", "added"),
        ("test_type", "1", "left_out"),
        ("subscribable_type", "App\\Models\\User", "added"),
        ("subscribable_type", "App\\Models\\Team", "refused"),
        ("mail_optout", "f", "refused"),
        ("isMuted", "f", "refused"),
        ("last_active", "2024-01-23", "added"),
        ("status_updated_at", "2024-01-23", "added"),
        ("last_unsubscribed", "2024-01-23", "refused"),
        ("withdrawn_at", "", "refused"),
        ("suppressed", "0", "refused"),
        ("pushEnabled", "1", "refused"),
        ("marketing_opt_in", "1", "refused"),
        ("consent", "false", "left_out"),
        ("consent", "1", "added"),
        ("consent", "2024-01-23 08:25:00", "added"),
        ("consent", "who knows", "refused"),
        ("deleted_at", "9999-12-31 23:59:59", "added"),
        ("active", "FALSCH", "left_out"),
        ("device_type", "5", "added"),
        ("device_type", "1", "added"),
        ("session_count", "3", "added"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("endpoint,p256dh,auth,{column}\n{},{cell}\n", csv_row(&format!("state-{n}")));
        let import = send_import(&api, "", CSV, file.clone()).await.ok(201);
        let is = |name: &str| i64::from(name == expected);
        assert_eq!(
            import_counts(&import),
            [2, is("added"), 0, is("left_out"), is("refused")],
            "{column}={cell}: {import}"
        );
        if expected == "refused" {
            let import = send_import(&api, &format!("?map={column}:"), CSV, file).await.ok(201);
            assert_eq!(import_counts(&import), [2, 1, 0, 0, 0], "{column} is ignored: {import}");
        }
    }
    let app = "identifier,device_type,web_auth,web_p256\n0123abcd,1,,\n0123abce,5,,\n";
    assert_eq!(
        import_counts(&send_import(&api, "", CSV, app).await.ok(201)),
        [3, 0, 0, 1, 1],
        "apps have no keys, browsers have"
    );
    let mut line = push_subscription(&fcm("hidden"));
    line["preferences"] = json!({"web": {"unsubscribed": true}});
    let import = send_import(&api, "", NDJSON, line.to_string()).await.ok(201);
    assert_eq!(
        (import_counts(&import), &import["faults"][0]["field"]),
        ([1, 0, 0, 0, 1], &json!("preferences")),
        "{import}"
    );
    let mut line = push_subscription(&fcm("muted"));
    line["isMuted"] = json!(true);
    let import = send_import(&api, "", NDJSON, line.to_string()).await.ok(201);
    assert_eq!(
        (import_counts(&import), &import["faults"][0]["field"]),
        ([1, 0, 0, 0, 1], &json!("isMuted")),
        "{import}"
    );
}

#[tokio::test]
async fn files_not_understood_are_faults() {
    let api = TestApi::start().await;
    let object = push_subscription(&fcm("single")).to_string();
    for (kind, file, found) in [
        (CSV, case!("import-nothing/empty.csv").to_vec(), "an empty file"),
        (CSV, case!("import-nothing/no-heading.csv").to_vec(), "values and no names"),
        (CSV, b"endpoint,p256dh,auth\n".to_vec(), "no row below"),
        (CSV, b"name,mail\nann,a@b.example\n".to_vec(), "`name`, `mail`"),
        (CSV, b"endpoint,name\nx,y\n".to_vec(), "`endpoint`, `name`"),
        (CSV, b"PK\x03\x04\x14\0\x06\0".to_vec(), "ZIP"),
        (CSV, b"\x1f\x8b\x08\0".to_vec(), "gzip"),
        (CSV, object.clone().into_bytes(), "ndjson"),
        (NDJSON, Vec::new(), "an empty file"),
        (NDJSON, format!("[{object}]").into_bytes(), "`json`"),
        (NDJSON, b"endpoint,p256dh,auth\nx,y,z\n".to_vec(), "`csv`"),
        (NDJSON, b"INSERT INTO subscriptions VALUES (1);\n".to_vec(), "SQL"),
        ("application/json", b"[]".to_vec(), "no subscription"),
        ("application/json", b"<html>".to_vec(), "HTML"),
        ("application/json", format!("{{\"data\": [{object}]}}").into_bytes(), "`data`"),
        ("application/json", format!("{{\"a\": {object}, \"b\": {object}}}").into_bytes(), "by name"),
        ("application/json", format!("{{\"subs\": {{\"a\": {object}, \"b\": {object}}}}}").into_bytes(), "by name"),
    ] {
        let import = send_import(&api, "", kind, file.clone()).await.ok(201);
        let reason = import["faults"][0]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(found), "{found}: {import}");
        assert_eq!(import["faults"][0]["line"], 1, "{import}");
        assert_members(&import, json!({"refused": 1, "added": 0}));
        assert!(!import["finished_at"].is_null());
    }
    assert_eq!(
        import_counts(&send_import(&api, "", "application/json", object).await.ok(201)),
        [1, 1, 0, 0, 0],
        "a single object is read"
    );
}

#[tokio::test]
async fn subscriptions_are_found_at_any_depth() {
    let api = TestApi::start().await;
    let mut with_user = push_subscription(&fcm("deep"));
    let whole = with_user.clone();
    with_user["user_id"] = json!(7);
    let php = format!("{{\"uid\": \"7\", \"subscription\": {}}}", json!(serialize(&whole)));
    let double = json!({"uid": "7", "subscription": json!(whole.to_string()).to_string()});
    for line in [
        with_user.to_string(),
        json!({"subscription": whole, "user_id": "7"}).to_string(),
        json!({"subscription_info": whole.to_string(), "uid": "7"}).to_string(),
        json!({"payload": {"after": {"push": whole, "uid": 7}}}).to_string(),
        double.to_string(),
        php,
        format!("\u{1e}{with_user}"),
        format!("{with_user},"),
        with_user.to_string().replace("\":", "\"=>").replace("null", "nil"),
        with_user.to_string().replace("\"endpoint\":", "endpoint: ").replace("\"user_id\":7", "user_id: NumberLong(7)"),
    ] {
        let import = send_import(&api, "", NDJSON, line.clone()).await.ok(201);
        assert_eq!(import_counts(&import)[3..], [0, 0], "{line}: {import}");
        let all = list_subscriptions(&api).await;
        assert_eq!((all.len(), &all[0]["user_id"], &import["warned"]), (1, &json!("7"), &json!(0)), "{line}: {import}");
    }
}

/// As PHP's `serialize` writes it.
fn serialize(value: &Value) -> String {
    match value {
        Value::String(text) => format!("s:{}:\"{text}\";", text.len()),
        Value::Number(number) => format!("i:{number};"),
        Value::Bool(is) => format!("b:{};", u8::from(*is)),
        Value::Null => "N;".to_owned(),
        Value::Array(items) => {
            let all: String =
                items.iter().enumerate().map(|(at, item)| format!("i:{at};{}", serialize(item))).collect();
            format!("a:{}:{{{all}}}", items.len())
        }
        Value::Object(members) => {
            let all: String = members.iter().map(|(name, item)| serialize(&json!(name)) + &serialize(item)).collect();
            format!("a:{}:{{{all}}}", members.len())
        }
    }
}

#[tokio::test]
async fn mappings_go_before_known_names() {
    let api = TestApi::start().await;
    let file = format!("abo,p256dh,auth,uid,tags\n{},7,x\n", csv_row("mapped"));
    let import = send_import(&api, "?map=abo:endpoint,uid:attributes.number,tags:", CSV, file).await.ok(201);
    assert_eq!(import_counts(&import), [2, 1, 0, 0, 0], "{import}");
    let made = &list_subscriptions(&api).await[0];
    assert_eq!(
        (&made["user_id"], &made["attributes"], &made["tags"]),
        (&json!(null), &json!({"number": "7"}), &json!([]))
    );
    for bad in ["abo", "abo:nonsense", "abo:identifier", "abo:keys"] {
        let path = format!("?map={bad}");
        assert_eq!(send_import(&api, &path, CSV, "x").await.refusal().0, 400, "{bad}");
    }
}

#[tokio::test]
async fn lines_of_exports_keep_their_state() {
    let api = TestApi::start().await;
    let line = |name: &str, more: Value| {
        let mut line = push_subscription(&fcm(name));
        line["type"] = json!("subscription");
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let file = [
        json!({"type": "app", "id": "x"}),
        line("ended", json!({"state": "unsubscribed", "unsubscribed_at": "2024-01-01T00:00:00Z"})),
        line("odd", json!({"state": "hush"})),
        line("undated", json!({"state": "unsubscribed"})),
    ];
    let file: String = file.iter().map(|line| format!("{line}\n")).collect();
    let import = send_import(&api, "", NDJSON, file.clone()).await.ok(201);
    assert_eq!(import_counts(&import), [4, 0, 0, 2, 3], "{import}");
    let faults = import["faults"].as_array().unwrap();
    let fields: Vec<_> = faults.iter().map(|fault| fault["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["state", "unsubscribed_at", "type"], "the last line is missing: {import}");
    assert!(!import.to_string().contains("hush"));
    let import =
        send_import(&api, "", NDJSON, format!("{file}{}\n", json!({"type": "end", "counts": {}}))).await.ok(201);
    assert_eq!(import["faults"].as_array().unwrap().len(), 2, "{import}");
}

#[tokio::test]
async fn files_of_spreadsheets_are_read() {
    let api = TestApi::start().await;
    let file = |name: &str, separator: &str, end: &str| {
        let line = format!("endpoint,p256dh,auth,tags{end}{},Köln{end}", csv_row(name));
        line.replace(',', separator)
    };
    let utf16 =
        |text: &str| [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let bare = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let latin = |text: &str| text.chars().map(|c| c as u8).collect::<Vec<u8>>();
    for (query, octets) in [
        ("", utf16(&file("excel-unicode", "\t", "\r\n"))),
        ("", bare(&file("no-mark", ",", "\n"))),
        ("", format!("\u{feff}{}", file("excel-utf-8", ";", "\r\n")).into_bytes()),
        ("", file("old-mac", ",", "\r").into_bytes()),
        ("", format!("sep=;\r\n{}", file("sep", ";", "\r\n")).into_bytes()),
        ("?charset=windows-1252", latin(&file("western", ";", "\r\n"))),
    ] {
        let import = send_import(&api, query, CSV, octets).await.ok(201);
        assert_eq!((&import["added"], &import["warned"]), (&json!(1), &json!(0)), "{query}: {import}");
        assert_eq!(list_subscriptions(&api).await[0]["tags"], json!(["Köln"]));
    }
    let named = send_import(&api, "", "text/csv; charset=ISO-8859-1", latin(&file("named", ";", "\n"))).await.ok(201);
    assert_eq!((&named["added"], &named["warned"]), (&json!(1), &json!(0)), "{named}");
    let import = send_import(&api, "", CSV, latin(&file("unnamed", ";", "\r\n"))).await.ok(201);
    assert_eq!((&import["added"], &import["faults"][0]["line"]), (&json!(0), &json!(1)), "{import}");
    assert!(import["faults"][0]["reason"].as_str().unwrap().contains("charset"));
    let broken = [file("broken", ",", "\n").as_bytes(), csv_row("one").as_bytes(), b",K\xf6ln\n"].concat();
    let import = send_import(&api, "", CSV, broken).await.ok(201);
    assert_eq!((&import["added"], &import["warnings"][0]["field"]), (&json!(2), &json!("tags")), "{import}");
    assert!(import["warnings"][0]["reason"].as_str().unwrap().contains("charset"));
    send_import(&api, "?charset=none", CSV, "x").await.refusal();
}

#[tokio::test]
async fn dry_runs_show_ten_rows() {
    let api = TestApi::start().await;
    let rows: String = (0..12).map(|n| format!("{},user-{n},{n}\n", csv_row(&format!("sample-{n}")))).collect();
    let file = format!("endpoint,p256dh,auth,uid,shoe\n{rows}");
    let import = send_import(&api, "?dry_run=true", CSV, file.clone()).await.ok(201);
    let sample = import["sample"].as_array().unwrap();
    assert_eq!((sample.len(), &sample[0]["line"], &sample[0]["outcome"]), (10, &json!(2), &json!("read")));
    let cells = sample[0]["cells"].as_array().unwrap();
    assert!(cells.contains(&json!({"column": "uid", "field": "user_id", "value": "user-0"})), "{cells:?}");
    assert!(cells.contains(&json!({"column": "shoe", "field": null, "value": null})));
    assert!(cells.contains(&json!({"column": "endpoint", "field": "endpoint", "value": "fcm.googleapis.com/…"})));
    assert!(cells.contains(&json!({"column": "auth", "field": "auth", "value": null})), "keys are secrets");
    assert_eq!(send_import(&api, "", CSV, file).await.ok(201)["sample"], json!(null));
}

#[tokio::test]
async fn headings_without_endpoint_list_unknown_columns() {
    let api = TestApi::start().await;
    let row = csv_row("unknown");
    for (heading, ignored) in [
        ("abo,p256dh,auth,kunde".to_owned(), json!(["abo", "kunde"])),
        ("abo,schlüssel,geheim,kunde".to_owned(), json!(["abo", "schlüssel", "geheim", "kunde"])),
        (format!("{row},eve"), json!([])), // values, which may be secrets
    ] {
        let import = send_import(&api, "?dry_run=true", CSV, format!("{heading}\n{row},ann\n")).await.ok(201);
        assert_eq!(import["ignored"], ignored, "{import}");
        assert_eq!((&import["added"], &import["faults"][0]["line"]), (&json!(0), &json!(1)), "{import}");
    }
    let file = format!("abo,p256dh,auth,kunde\n{row},ann\n");
    let import = send_import(&api, "?map=abo:endpoint,kunde:user_id", CSV, file).await.ok(201);
    assert_eq!((&import["added"], &import["ignored"]), (&json!(1), &json!([])), "{import}");
}
