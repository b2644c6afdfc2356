//! Segment expressions and filters: meaning, normal form, and refused inputs.

use std::collections::{HashMap, HashSet};

use bellwire_core::assignment::Assigned;
use bellwire_core::clock::Timestamp;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_segment::{
    Act, Attributes, AudienceFilter, Candidate, Deed, EvaluationFacts, Expression, FilterVerdict, LaneFacts, Needs,
    OwnHour, Portion, Sunset, TEXT_MAX,
};
use chrono::TimeDelta;
use serde_json::{Value, json};
use uuid::Uuid;

const KEY: &str = "vk_0192a000-0000-7000-8000-000000000001";

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

fn parsed(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Whether an expression matches the tests' usual subscription with these attributes.
fn takes_with(text: &str, attributes: Value) -> bool {
    let lane = LaneFacts::new(Gateway::Fcm, KEY.parse::<VapidKeyId>().unwrap());
    let id = SubscriptionId(Uuid::from_u128(7));
    let attributes = attributes.to_string();
    let tags = ["beta".to_owned(), "Nur für \"Gäste\"".to_owned()];
    let expression = parsed(text);
    let needs = expression.needs(); // no more is read of anybody
    let candidate = Candidate {
        id,
        origin_id: needs.profile.then_some(id),
        lane: &lane,
        user_id: needs.profile.then_some("42"),
        tags: if needs.tags { &tags } else { &[] },
        attributes: Attributes::from_json(if needs.attributes { attributes.as_bytes() } else { b"{}" }),
        locale: needs.profile.then_some("de-AT"),
        timezone: None,
        last_seen: now() - TimeDelta::days(10),
        created_at: needs.profile.then(|| now() - TimeDelta::days(100)),
        consent_at: needs.consent.then(|| now() - TimeDelta::days(80)),
        consent_source: needs.consent.then_some("footer form"),
        assigned: Assigned::default(),
    };
    let told = EvaluationFacts {
        now: now(),
        topics: HashMap::from([("news".into(), HashSet::from([id])), ("sport".into(), HashSet::new())]),
        deeds: HashMap::from([(
            Deed { act: Act::Clicked, of: "spring".into(), within_s: Some(7 * 86_400) },
            HashSet::from([id]),
        )]),
        events: HashMap::new(),
        habits: HashMap::from([(
            id,
            Habits {
                clicked_at: Some(now() - TimeDelta::days(50)),
                unclicked: 12,
                unclicked_between: Some((now() - TimeDelta::days(40), now() - TimeDelta::days(5))),
                ..Habits::default()
            },
        )]),
    };
    expression.takes(&candidate, &told)
}

fn takes(text: &str) -> bool {
    let attributes = json!({
        "plan": "pro", "seats": 12, "ratio": 0.5, "vip": true, "trial": false, "": "blank", "first seen": "x",
        "ordered": "2026-11-20T08:00:00+01:00", "born": "2000-02-29", "ends": "2026-11-25", "größe": "XL", "digits": "12"
    });
    takes_with(text, attributes)
}

#[test]
fn an_expression_fits_whom_it_says() {
    for text in [
        r#"plan = "pro""#,
        "plan = 'pro'",
        r#"plan != "free""#,
        r#"plan in ("free", "pro")"#,
        r#"plan not in ("free", "team")"#,
        r#"not plan in ("free", "team")"#,
        r#"plan >= "pro" and plan < "prz""#,
        "seats = 12",
        "seats > 11.5 and seats <= 12 and seats >= 12 and seats < 12.01",
        "seats in (1, 12)",
        "ratio > -1",
        "vip = true and trial = false and vip != false",
        "exists(plan) and not exists(country)",
        "unclicked >= 12 and unclicked < 13 and not unclicked > 12",
        "unclicked_for >= 35d and unclicked_for < 36d and last_clicked > 49d and last_clicked <= 50d",
        "exists(last_clicked)",
        r#"attribute("first seen") = "x" and attribute("") = "blank" and größe = "XL""#,
        r#"tag("beta") and tag('Nur für "Gäste"') and not tag("Beta")"#,
        r#"topic("news") and not topic("sport") and not topic("unheard-of")"#,
        r#"clicked("spring", 7d) and not clicked("spring") and not displayed("spring", 7d)"#,
        r#"locale = "DE-at" and language = "de" and language in ("en", "DE")"#,
        r#"not exists(timezone) and timezone != "Europe/Vienna""#,
        r#"gateway = "fcm" and browser = "chrome" and browser not in ("firefox", "safari")"#,
        &format!(r#"key = "{KEY}""#),
        r#"user = "42" and user in ("41", "42") and exists(user)"#,
        "age > 99d and age <= 100d and age < 2401h",
        "last_seen < 11d and last_seen >= 10d and not last_seen < 10d",
        "consent_at < 365d and consent_at > 79d and exists(consent_at)",
        r#"consent_source = "footer form" and consent_source not in ("popup") and exists(consent_source)"#,
        "ordered > now - 3d and ordered < now and ordered < now - 2d",
        "ordered >= 2026-11-20T07:00:00Z and ordered <= 2026-11-20T07:00:00Z and ordered = 2026-11-20T09:00:00+02:00",
        "ordered > 2026-11-20 and ordered < 2026-11-21",
        "born < 2008-11-22",
        "ends > now and ends < now + 3d",
        r#"plan = "free" or vip = true"#,
        r#"plan = "free" and vip = true or seats = 12"#,
        r#"not (plan = "free" and vip = true)"#,
        r#"not not vip = true"#,
    ] {
        assert!(takes(text), "{text}");
    }
}

#[test]
fn an_expression_fits_nobody_else() {
    for text in [
        r#"plan = "Pro""#,
        r#"plan != "pro""#,
        "plan = 1",
        "seats = \"12\"",
        "digits = 12",
        "vip = \"true\"",
        "seats < 12 or seats > 12",
        "ratio in (0.25, 0.75)",
        r#"plan = "free" and (vip = true or seats = 12)"#,
        "plan > now - 10000d",
        "seats > 2026-01-01",
        "country < \"ZZ\"",
        "country >= \"\"",
        r#"timezone = "Europe/Vienna""#,
        r#"timezone in ("Europe/Vienna", "")"#,
        "age < 100d",
        "last_seen > 10d",
        "consent_at > 80d",
        r#"consent_source != "footer form""#,
        r#"gateway in ("mozilla", "apple")"#,
        r#"language = "de-AT""#,
    ] {
        assert!(!takes(text), "{text}");
    }
}

#[test]
fn missing_attribute_is_only_ever_unequal() {
    for (text, expected) in [
        (r#"country = "DE""#, false),
        (r#"country != "DE""#, true),
        (r#"country in ("DE")"#, false),
        (r#"country not in ("DE")"#, true),
        ("country < 3", false),
        ("not country < 3", true),
        ("exists(country)", false),
    ] {
        assert_eq!(takes_with(text, json!({})), expected, "{text}");
        // What is neither text, number nor boolean is as if it were not there.
        assert_eq!(takes_with(text, json!({"country": null})), expected, "{text}");
    }
}

#[test]
fn canonical_expression_reads_back_the_same() {
    for (text, normal) in [
        ("plan='pro'", r#"plan = "pro""#),
        ("not plan = 'pro'", r#"plan != "pro""#),
        ("not plan!='pro'", r#"plan = "pro""#),
        ("not plan in('a','b')", r#"plan not in ("a", "b")"#),
        ("not (plan not in ('a'))", r#"plan in ("a")"#),
        ("((a=1) and ((b=2) and c=3)) and d=4", "a = 1 and b = 2 and c = 3 and d = 4"),
        ("(a=1 and b=2) or c=3", "a = 1 and b = 2 or c = 3"),
        ("a=1 and (b=2 or c=3)", "a = 1 and (b = 2 or c = 3)"),
        ("not (a=1 or b=2)", "not (a = 1 or b = 2)"),
        ("not not not vip=true", "vip != true"),
        ("not age<3d", "not age < 3d"),
        (r#"tag('it\'s "so" \\')"#, r#"tag("it's \"so\" \\")"#),
        ("attribute('plan')=1", "plan = 1"),
        ("attribute('and')=1", r#"attribute("and") = 1"#),
        ("attribute('locale')='x'", r#"attribute("locale") = "x""#),
        ("attribute('a b')=1", r#"attribute("a b") = 1"#),
        ("a=007.50", "a = 7.5"),
        ("a=-0", "a = 0"),
        ("a = - 3", "a = -3"),
        ("a=100000000000000000000000", "a = 100000000000000000000000"),
        ("age<48h and age>90m and age>=61s and age<=0d", "age < 2d and age > 90m and age >= 61s and age <= 0s"),
        ("a > now-24h", "a > now - 1d"),
        ("a > now + 0s", "a > now"),
        ("a > 2026-11-01", "a > 2026-11-01T00:00:00Z"),
        ("a > 2026-11-01T12:00:00.5+02:00", "a > 2026-11-01T10:00:00.500Z"),
        ("clicked('spring',168h)", r#"clicked("spring", 7d)"#),
        ("received('x')\n\tor\u{a0}displayed('y')", r#"received("x") or displayed("y")"#),
    ] {
        let expression = parsed(text);
        assert_eq!(expression.to_string(), normal, "{text}");
        assert_eq!(parsed(normal), expression, "{text}");
        let stored = serde_json::to_value(&expression).unwrap();
        assert_eq!(serde_json::from_value::<Expression>(stored).unwrap(), expression, "{text}");
    }
}

#[test]
fn syntax_error_names_position_and_expectation() {
    for (text, position, words) in [
        ("", 1, "expected a condition, `not` or `(`, found the end"),
        ("  ", 3, "found the end"),
        ("plan", 5, "expected `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `not in`, found the end"),
        ("plan = ", 8, "expected a text between quotes, a number, true, false, or a time"),
        ("plan = pro", 8, "found `pro`"),
        ("plan == 'pro'", 7, "found `=`"),
        ("plan = 'pro", 8, "this text has no end: its second ' is missing"),
        ("plan = 'a\\b'", 10, "a backslash stands before a quote or a backslash"),
        ("plan = 'a\0'", 10, "NUL"),
        ("plan = 'pro' vip = true", 14, "expected `and`, `or` or the end, found `vip`"),
        ("plan = 'pro' AND vip = true", 14, "found `AND`"),
        ("plan = 'pro' & vip", 14, "'&' has no meaning here"),
        ("(plan = 'pro'", 14, "expected `and`, `or` or `)`, found the end"),
        ("plan = 'pro')", 13, "found `)`"),
        ("and", 1, "expected a condition, `not` or `(`, found `and`"),
        ("not", 4, "found the end"),
        ("plan not = 'pro'", 10, "expected `in`, found `=`"),
        ("plan in 'pro'", 9, "expected `(`"),
        ("plan in ()", 10, "expected a text"),
        ("plan in ('a' 'b')", 14, "expected `,` or `)`, found `'b'`"),
        ("plan in ('a',)", 14, "expected a text"),
        ("vip < true", 5, "true and false are compared by `=` or `!=`"),
        ("ordered < 30d", 11, "compared with a time, such as now - 30d"),
        ("ordered < now - 30", 17, "expected a span of time such as 12h or 30d, found `30`"),
        ("ordered < 2026-13-01", 11, "'2026-13-01' is not a time"),
        ("ordered < 1026-11-01", 11, "is not a time"),
        ("seats = 5.", 9, "'5.' is not a number"),
        ("seats = 1.2.3", 9, "'1.2.3' is not a number"),
        ("seats = 1e9", 9, "'1e9' is neither a number nor a span of time"),
        ("age < 3", 7, "expected a span of time"),
        ("age < 3w", 7, "'3w' is neither"),
        ("age < 40000d", 7, "'40000d' is neither"),
        ("age = 3d", 5, "expected `<`, `<=`, `>` or `>=`, found `=`"),
        ("age in (3d)", 8, "`age` is compared by `<`"),
        ("locale < 'de'", 8, "expected `=`, `!=`, `in` or `not in`, found `<`"),
        ("locale = 3", 10, "expected a text between quotes, found `3`"),
        ("gateway = 'google'", 11, "`gateway` is one of fcm, mozilla, wns, apple, other"),
        ("browser in ('firefox', 'opera')", 24, "`browser` is one of chrome, firefox, edge, safari, other"),
        ("key = 'x'", 7, "expected an id of the form vk_"),
        ("exists(gateway)", 8, "every subscription has `gateway`"),
        ("exists('plan')", 8, "expected a name, found `'plan'`"),
        ("tag(beta)", 5, "expected a tag between quotes, found `beta`"),
        ("tag('a', 'b')", 8, "expected `)`, found `,`"),
        ("topic 'news'", 7, "expected `(`"),
        ("clicked('spring' 7d)", 18, "expected `,` or `)`"),
        ("clicked('spring', 7)", 19, "expected a span of time"),
        ("größe = ß", 9, "found `ß`"),
        ("ä = 1 and ö = $", 15, "'$' has no meaning here"),
    ] {
        let error = Expression::parse(text).expect_err(text);
        assert!(error.position == position && error.what.contains(words), "{text}: {error}");
    }
}

#[test]
fn size_depth_and_numbers_are_bounded() {
    let refused = |text: &str| Expression::parse(text).expect_err(text).what;
    let nested = |n: usize| format!("{}a = 1{}", "(".repeat(n), ")".repeat(n));
    assert!(Expression::parse(&nested(31)).is_ok());
    assert!(refused(&nested(32)).contains("nested deeper than 32"));
    assert!(refused(&format!("{}a = 1", "not ".repeat(40))).contains("nested deeper"));
    let chained = |n: usize| vec!["a=1"; n].join(" or ");
    assert!(Expression::parse(&chained(200)).is_ok());
    assert!(refused(&chained(201)).contains("more than 200 conditions"));
    let deeds = |n: usize| (1..=n).map(|n| format!("clicked('spring', {n}s)")).collect::<Vec<_>>().join(" or ");
    assert!(Expression::parse(&format!("{0} or {0}", deeds(8))).is_ok(), "the same ones again cost nothing");
    let ninth = Expression::parse(&deeds(9)).expect_err("nine");
    assert!(ninth.position == deeds(8).len() + 5 && ninth.what.contains("more than 8 different"), "{ninth}");
    let listed = |n: usize| format!("a in ({})", vec!["1"; n].join(","));
    assert!(Expression::parse(&listed(500)).is_ok());
    assert!(refused(&listed(501)).contains("more than 500 values"));
    assert!(refused(&" ".repeat(4_097)).contains("longer than 4096 octets"));
    let quoted = format!("tag('{}')", "\"".repeat(60));
    assert!(Expression::parse(&quoted).is_ok());
    let grows = vec![quoted.as_str(); 55].join(" or ");
    assert!(grows.len() < TEXT_MAX && refused(&grows).contains("once written out"));
    assert!(refused(&format!("tag('{}')", "x".repeat(65))).contains("longer than 64 characters"));
    assert!(refused(&format!("{} = 1", "x".repeat(65))).contains("longer than 64 characters"));
}

#[test]
fn combined_expressions_may_exceed_the_input_limit() {
    let long = parsed(&vec!["a = 1"; 200].join(" or "));
    let zones: Vec<String> = (0..400).map(|n| format!("\"America/Argentina/Some_Place_{n}\"")).collect();
    let zones = Expression::parse(&format!("timezone in ({})", zones[..100].join(", "))).unwrap();
    let did = |act: &str| {
        let deeds: Vec<String> = (1..=8).map(|n| format!("{act}('spring', {n}s)")).collect();
        Expression::parse(&deeds.join(" or ")).unwrap()
    };
    let long = long.and(did("clicked")).and(did("received"));
    let both = long.clone().and(zones).and(long.negated());
    let text = both.to_string();
    assert!(text.len() > TEXT_MAX && text.contains(") and timezone in ("), "{text}");
    let filter = AudienceFilter {
        segment: Some(both),
        portions: vec![Portion { salt: "spring".into(), from: 0, to: 1_000 }],
        ..AudienceFilter::default()
    };
    let stored = serde_json::to_value(&filter).unwrap();
    assert_eq!(serde_json::from_value::<AudienceFilter>(stored).unwrap(), filter);
    assert_eq!(serde_json::to_value(AudienceFilter::default()).unwrap(), json!({}));
}

#[test]
fn lane_conditions_are_decided_without_rows() {
    let lane = LaneFacts::new(Gateway::Mozilla, KEY.parse::<VapidKeyId>().unwrap());
    for (text, expected) in [
        ("gateway = 'mozilla'", Some(true)),
        ("browser = 'chrome'", Some(false)),
        ("browser != 'chrome'", Some(true)),
        ("browser in ('chrome', 'firefox')", Some(true)),
        ("browser in ('chrome', 'safari')", Some(false)),
        ("browser = 'firefox' and vip = true", None),
        ("browser = 'chrome' and vip = true", Some(false)),
        ("vip = true or browser = 'firefox'", Some(true)),
        ("not (vip = true and browser = 'chrome')", Some(true)),
        ("vip = true", None),
        ("key = 'vk_0192A000-0000-7000-8000-000000000001'", Some(true)),
        ("key = 'vk_0192a000-0000-7000-8000-000000000002'", Some(false)),
    ] {
        assert_eq!(parsed(text).in_lane(&lane), expected, "{text}");
    }
    let nobody =
        AudienceFilter { portions: vec![Portion { salt: String::new(), from: 3, to: 3 }], ..AudienceFilter::default() };
    assert!(!nobody.may_take_any_of(&lane) && AudienceFilter::default().may_take_any_of(&lane));
}

#[test]
fn expression_needs_only_the_fields_it_names() {
    let needs = parsed("tag('a') and not (topic('x') or topic('x') or clicked('m', 1d)) and browser = 'edge'").needs();
    assert!(needs.tags && !needs.attributes);
    assert_eq!(needs.topics.into_iter().collect::<Vec<_>>(), ["x"]);
    let deed = Deed { act: Act::Clicked, of: "m".into(), within_s: Some(86_400) };
    assert_eq!(needs.deeds.into_iter().collect::<Vec<_>>(), [deed]);
    assert!(parsed("exists(plan)").needs().attributes);
    for text in ["unclicked > 3", "not unclicked_for < 3d", "exists(last_clicked)"] {
        assert_eq!(parsed(text).needs(), Needs { habits: true, profile: true, ..Needs::default() }, "{text}");
    }
    for text in ["consent_at < 365d", "exists(consent_source)", "consent_source = 'popup'"] {
        assert_eq!(parsed(text).needs(), Needs { consent: true, ..Needs::default() }, "{text}");
    }
    for text in ["age < 3d", "user = 'x'", "locale = 'de'", "language = 'de'", "timezone = 'UTC'"] {
        assert_eq!(parsed(text).needs(), Needs { profile: true, ..Needs::default() }, "{text}");
    }
    assert_eq!(parsed("last_seen < 3d and gateway = 'fcm'").needs(), Needs::default());
    let portions = vec![Portion { salt: String::new(), from: 0, to: 3 }];
    assert_eq!(
        AudienceFilter { portions, ..AudienceFilter::default() }.needs(),
        Needs { profile: true, ..Needs::default() }
    );
}

#[test]
fn reasons_list_unclicked_last() {
    let lane = LaneFacts::new(Gateway::Fcm, KEY.parse::<VapidKeyId>().unwrap());
    let id = SubscriptionId(Uuid::from_u128(7));
    let candidate = Candidate {
        id,
        origin_id: Some(id),
        lane: &lane,
        user_id: None,
        tags: &[],
        attributes: Default::default(),
        locale: None,
        timezone: None,
        last_seen: now(),
        created_at: Some(now() - TimeDelta::days(40)),
        consent_at: None,
        consent_source: None,
        assigned: Assigned::default(),
    };
    let mut habits = Habits { unclicked: 10, unclicked_between: Some((now(), now())), ..Habits::default() };
    habits.hours.0[9] = 50;
    let told = EvaluationFacts {
        now: now(),
        topics: HashMap::new(),
        deeds: HashMap::new(),
        events: HashMap::new(),
        habits: HashMap::from([(id, habits)]),
    };
    let portion = |from, to| vec![Portion { salt: "spring".into(), from, to }];
    let own_hour =
        |slot| Some(OwnHour { from: "2026-11-22T08:00:00Z".parse().unwrap(), slot, home: chrono_tz::Tz::UTC });
    let sunset = Sunset { unclicked: Some(10), unclicked_for_s: None, welcome_s: 30 * 86_400 };
    for (text, portions, own_hour, expected) in [
        ("age > 50d", portion(0, 0), own_hour(0), FilterVerdict::NotInSegment),
        ("age > 30d", portion(0, 0), own_hour(0), FilterVerdict::NotInPortion(candidate.part("spring"))),
        ("age > 30d", portion(0, 10_000), own_hour(0), FilterVerdict::AtAnotherHour),
        ("age > 30d", portion(0, 10_000), own_hour(1), FilterVerdict::Sunset),
    ] {
        let filter = AudienceFilter { segment: Some(parsed(text)), portions, own_hour, sunset: Some(sunset.clone()) };
        assert_eq!(filter.verdict(&candidate, &told), expected);
        assert!(filter.needs().habits && filter.needs().profile);
        let stored = serde_json::to_value(&filter).unwrap();
        assert_eq!(serde_json::from_value::<AudienceFilter>(stored).unwrap(), filter, "as stored in a message");
    }
    let filter = AudienceFilter { sunset: Some(Sunset { unclicked: Some(11), ..sunset }), ..AudienceFilter::default() };
    assert_eq!(filter.verdict(&candidate, &told), FilterVerdict::Taken);
}

#[test]
fn filter_takes_people_who_match_all_parts() {
    let lane = LaneFacts::new(Gateway::Fcm, KEY.parse::<VapidKeyId>().unwrap());
    let told = EvaluationFacts {
        now: now(),
        topics: HashMap::new(),
        deeds: HashMap::new(),
        events: HashMap::new(),
        habits: HashMap::new(),
    };
    let tags = ["vip".to_owned()];
    let candidate = |origin: u128, user: Option<&'static str>, vip: bool| Candidate {
        id: SubscriptionId(Uuid::from_u128(99)),
        origin_id: Some(SubscriptionId(Uuid::from_u128(origin))),
        lane: &lane,
        user_id: user,
        tags: if vip { &tags } else { &[] },
        attributes: Default::default(),
        locale: None,
        timezone: None,
        last_seen: now(),
        created_at: Some(now()),
        consent_at: None,
        consent_source: None,
        assigned: Assigned::default(),
    };
    let half = |from, to| Portion { salt: "s".into(), from, to };
    let filter = |portion| AudienceFilter {
        segment: Some(parsed("tag('vip')")),
        portions: vec![portion],
        ..AudienceFilter::default()
    };
    let (first, second) = (filter(half(0, 5_000)), filter(half(5_000, 10_000)));
    for origin in 0..200 {
        let (vip, other) = (candidate(origin, None, true), candidate(origin, None, false));
        assert_ne!(first.verdict(&vip, &told).is_taken(), second.verdict(&vip, &told).is_taken());
        assert!(!first.verdict(&other, &told).is_taken() && !second.verdict(&other, &told).is_taken());
        // Two browsers of one person fall together.
        let (one, two) = (candidate(origin, Some("42"), true), candidate(origin + 1_000, Some("42"), true));
        assert_eq!(first.verdict(&one, &told).is_taken(), first.verdict(&two, &told).is_taken());
    }
}
