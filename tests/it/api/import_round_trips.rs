//! Random subscribers, written in every known dialect, are read back with the same values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwire_core::base64url::decode_any;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::support::api::{TestApi, fcm, push_subscription};
use crate::support::imports::{CSV, NDJSON, list_subscriptions, send_import};

/// A subscriber as a file describes it.
struct Subscriber {
    endpoint: String,
    p256dh: String,
    auth: String,
    user: Option<String>,
    tags: Vec<String>,
    created: i64,
}

impl Subscriber {
    fn random(rng: &mut StdRng, dialect: &str) -> Self {
        let it = push_subscription(&fcm(&format!("{dialect}-{}", rng.random::<u64>())));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let user = rng.random_bool(0.7).then(|| rng.random_range(1..1_000_000_u32).to_string());
        let words = ["plain", "two words", "quo\"te", "ümlaut", "a'b", "null"];
        let mut tags: Vec<String> = words.into_iter().filter(|_| rng.random_bool(0.4)).map(str::to_owned).collect();
        tags.sort();
        let created = rng.random_range(1_500_000_000..1_700_000_000);
        Self {
            endpoint: text(&it["endpoint"]),
            p256dh: text(&it["keys"]["p256dh"]),
            auth: text(&it["keys"]["auth"]),
            user,
            tags,
            created,
        }
    }

    fn at(&self, form: &str) -> String {
        chrono::DateTime::from_timestamp_secs(self.created).unwrap().format(form).to_string()
    }

    fn keys(&self) -> Value {
        json!({"p256dh": self.p256dh, "auth": self.auth})
    }

    /// As a line or row of a dialect.
    fn write(&self, dialect: &str) -> String {
        let octets = |text: &str| decode_any(text).unwrap();
        let hex = |text: &str| octets(text).iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let user = |null: &str| self.user.clone().unwrap_or_else(|| null.to_owned());
        let tags = json!(self.tags);
        let array = || {
            let items: Vec<_> = self.tags.iter().map(|tag| format!("\"{}\"", tag.replace('"', "\\\""))).collect();
            format!("{{{}}}", items.join(","))
        };
        let python = || {
            let items: Vec<_> = self.tags.iter().map(|tag| format!("'{}'", tag.replace('\'', "\\'"))).collect();
            format!("[{}]", items.join(", "))
        };
        let (endpoint, p256dh, auth) = (&self.endpoint, &self.p256dh, &self.auth);
        match dialect {
            "web-push" => json!({"endpoint": endpoint, "expirationTime": null, "keys": self.keys(), "user_id": self.user, "tags": tags,
                "created_at": self.created * 1_000})
            .to_string(),
            "node-buffers" => json!({"endpoint": endpoint, "keys": {"p256dh": {"type": "Buffer", "data": octets(p256dh)},
                "auth": octets(auth)}, "user_id": self.user, "tags": tags, "created_at": self.created})
            .to_string(),
            "mongoexport" => json!({"_id": {"$oid": "65af7a0c0000000000000000"}, "subscription": {"endpoint": endpoint, "keys": self.keys()},
                "userId": self.user.as_ref().map(|user| json!({"$numberLong": user})), "tags": tags,
                "createdAt": {"$date": {"$numberLong": (self.created * 1_000).to_string()}}})
            .to_string(),
            "dynamodb" => {
                let items: Value = self.tags.iter().map(|tag| json!({"S": tag})).collect();
                let user = self.user.as_ref().map_or(json!({"NULL": true}), |user| json!({"N": user}));
                json!({"Item": {"endpoint": {"S": endpoint}, "keys": {"M": {"p256dh": {"S": p256dh}, "auth": {"S": auth}}},
                    "user_id": user, "tags": {"L": items}, "created_at": {"N": self.created.to_string()}}})
                .to_string()
            }
            "firestore" => json!({"fields": {"endpoint": {"stringValue": endpoint}, "keys": {"mapValue": {"fields": {
                "p256dh": {"stringValue": p256dh}, "auth": {"stringValue": auth}}}},
                "user_id": self.user.as_ref().map_or(json!({"nullValue": null}), |user| json!({"integerValue": user})),
                "tags": {"arrayValue": {"values": self.tags.iter().map(|tag| json!({"stringValue": tag})).collect::<Value>()}},
                "created_at": {"timestampValue": self.at("%Y-%m-%dT%H:%M:%SZ")}}})
            .to_string(),
            "django-dumpdata" => json!({"model": "push_notifications.webpushdevice", "pk": 1, "fields": {"registration_id": endpoint,
                "p256dh": p256dh, "auth": auth, "user_id": self.user, "tags": tags, "active": true,
                "date_created": self.at("%Y-%m-%dT%H:%M:%S.000Z")}})
            .to_string(),
            "python-repr" => format!(
                "{{'endpoint': '{endpoint}', 'keys': {{'p256dh': '{p256dh}', 'auth': '{auth}'}}, 'user_id': {}, 'tags': {}, 'created_at': {}}}",
                self.user.clone().unwrap_or_else(|| "None".to_owned()), python(), self.created
            ),
            "laravel" => format!(
                "{},{},{endpoint},{p256dh},{auth},aes128gcm,{},{}",
                user("NULL"), quoted("App\\Models\\User"), quoted(&tags.to_string()), self.at("%Y-%m-%d %H:%M:%S")
            ),
            "postgres-copy" => format!(
                "{endpoint},\\x{},\\x{},{},{},{}",
                hex(p256dh), hex(auth), user("\\N"), quoted(&array()), self.at("%Y-%m-%d %H:%M:%S.000001+00")
            ),
            "pandas" => format!(
                "{endpoint},{},{},{},{},{}",
                STANDARD.encode(octets(p256dh)), STANDARD.encode(octets(auth)), user("NaN"), quoted(&python()),
                self.at("%Y-%m-%d %H:%M:%S")
            ),
            "onesignal" => format!(
                "x,{endpoint},5,{},f,{},{auth},{p256dh},1,{}",
                self.at("%Y-%m-%d %H:%M:%S UTC"), user(""), quoted(&tags.to_string())
            ),
            other => panic!("{other}"),
        }
    }
}

/// Dialects, their types, and the headings of those that are tables.
const DIALECTS: [(&str, &str, &str); 11] = [
    ("web-push", NDJSON, ""),
    ("node-buffers", NDJSON, ""),
    ("mongoexport", NDJSON, ""),
    ("dynamodb", NDJSON, ""),
    ("firestore", NDJSON, ""),
    ("django-dumpdata", NDJSON, ""),
    ("python-repr", NDJSON, ""),
    (
        "laravel",
        CSV,
        "subscribable_id,subscribable_type,endpoint,public_key,auth_token,content_encoding,tags,created_at\n",
    ),
    ("postgres-copy", CSV, "endpoint,p256dh,auth,user_id,tags,created_at\n"),
    ("pandas", CSV, "endpoint,p256dh,auth,user_id,tags,created_at\n"),
    (
        "onesignal",
        CSV,
        "id,identifier,device_type,created_at,invalid_identifier,external_user_id,web_auth,web_p256,notification_types,tags\n",
    ),
];

#[tokio::test]
async fn every_dialect_reads_back_the_same() {
    let api = TestApi::start().await;
    let seed = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    for (dialect, kind, heading) in DIALECTS {
        let written: Vec<_> = (0..20).map(|_| Subscriber::random(&mut rng, dialect)).collect();
        let lines: String = written.iter().map(|it| it.write(dialect) + "\n").collect();
        let import = send_import(&api, "", kind, format!("{heading}{lines}")).await.ok(201);
        assert_eq!((&import["added"], &import["warned"]), (&json!(20), &json!(0)), "{dialect}, seed {seed}: {import}");
        let read = list_subscriptions(&api).await;
        let key = |user: &Value, tags: &Value, created: i64| format!("{user} {tags} {created}");
        let mut read: Vec<_> = read[..20]
            .iter()
            .map(|it| {
                let created: chrono::DateTime<chrono::Utc> = it["created_at"].as_str().unwrap().parse().unwrap();
                key(&it["user_id"], &it["tags"], created.timestamp())
            })
            .collect();
        let mut expected: Vec<_> = written.iter().map(|it| key(&json!(it.user), &json!(it.tags), it.created)).collect();
        read.sort();
        expected.sort();
        assert_eq!(read, expected, "{dialect}, seed {seed}");
    }
}
