//! Template language: accepted and refused sources, and hostile templates and values.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwire_core::message::{Content, Notification};
use bellwire_core::template::{AppNames, Template, Templated};
use bellwire_template::{COMPLAINTS, Compiled, TemplateFault, TemplateFaultKind, TemplatePerson};
use bellwire_webpush::payload;
use serde_json::{Map, Value, json};

const SITE: &str = "https://shop.example";

fn templated(template: Value, data: Value) -> Templated {
    Templated {
        name: None,
        template: serde_json::from_value(template).unwrap(),
        data: data.as_object().unwrap().clone(),
        app: AppNames { slug: "shop".into(), name: "The Shop".into() },
        site: Some(SITE.into()),
    }
}

fn compiled(template: Value, data: Value) -> Compiled {
    Compiled::new(&templated(template, data)).unwrap()
}

fn person(attributes: Value) -> Arc<TemplatePerson> {
    let attributes: Map<String, Value> = attributes.as_object().unwrap().clone();
    Arc::new(TemplatePerson { attributes, ..TemplatePerson::default() })
}

fn content(compiled: &Compiled, to: &Arc<TemplatePerson>) -> Result<Notification, TemplateFault> {
    let variant = compiled.variant_for(to.locale.as_deref());
    match compiled.fill(variant, to)?.content {
        Content::Notification { content, .. } => Ok(*content),
        Content::Raw { .. } => panic!("a notification"),
    }
}

fn body(source: &str, data: Value, attributes: Value) -> Result<String, String> {
    let template = json!({"content": {"title": "T", "body": source}});
    let told = |fault: TemplateFault| fault.detail;
    let compiled = Compiled::new(&templated(template, data)).map_err(|mut faults| told(faults.remove(0)))?;
    content(&compiled, &person(attributes)).map(|made| made.body.unwrap_or_default()).map_err(told)
}

#[test]
fn text_is_filled_from_recipient_message_and_app() {
    let template = json!({"content": {
        "title": "{{ attributes.name }}, {{ user_id }}", "url": "/orders/{{ data.order }}?for={{ user_id }}",
        "body": "{% for item in data.items %}{{ loop.index }}. {{ item.title }}{% if not loop.last %}, {% endif %}{% endfor %} — {{ app.name }}",
        "data": {"of": ["{{ tags | join('+') }}", 7]}, "lang": "{{ locale }}",
        "actions": [{"action": "open", "title": "{{ timezone }}", "url": "{{ data.link }}"}]
    }});
    let data =
        json!({"order": "7/8", "items": [{"title": "Tea"}, {"title": "Cup"}], "link": "https://other.example/a?b=c"});
    let to = Arc::new(TemplatePerson {
        user_id: Some("ann & co".into()),
        attributes: json!({"name": "Ann"}).as_object().unwrap().clone(),
        tags: vec!["a".into(), "b".into()],
        locale: Some("de-AT".into()),
        timezone: Some("Europe/Vienna".into()),
    });
    let made = content(&compiled(template, data), &to).unwrap();
    assert_eq!(
        serde_json::to_value(&made).unwrap(),
        json!({
            "title": "Ann, ann & co", "url": "https://shop.example/orders/7%2F8?for=ann%20%26%20co",
            "body": "1. Tea, 2. Cup — The Shop", "data": {"of": ["a+b", 7]}, "lang": "de-AT",
            "actions": [{"action": "open", "title": "Europe/Vienna", "url": "https://other.example/a?b=c"}]
        })
    );
}

#[test]
fn impersonal_template_is_filled_at_compile_time() {
    let same = compiled(
        json!({"content": {"title": "{{ data.city | upper }}", "image": "/{{ data.city }}.png"}}),
        json!({"city": "Linz"}),
    );
    assert!(!same.is_personal() && same.variants() == 1);
    let made = same.same(0).unwrap();
    assert!(matches!(made.content, Content::Notification { content, .. }
        if content.title == "LINZ" && content.image.as_deref() == Some("https://shop.example/Linz.png")));
    let languages = compiled(
        json!({"content": {"title": "Hi"}, "locales": {"de": {"content": {"title": "{{ user_id }}"}}}}),
        json!({}),
    );
    assert!(languages.is_personal() && languages.same(0).is_some() && languages.same(1).is_none());
}

#[test]
fn recipient_gets_the_nearest_language() {
    let template = |title: &str| json!({"content": {"title": title}});
    let all = json!({
        "content": {"title": "own"}, "locales": {"de": template("de"), "pt-BR": template("pt-BR"), "zh-Hant": template("zh-Hant"),
            "zh-Hans": template("zh-Hans"), "nb": template("nb"), "es-419": template("es-419"), "he": template("he"), "sr": template("sr")}
    });
    let all = compiled(all, json!({}));
    for (locale, title, lang) in [
        (None, "own", None),
        (Some("fr"), "own", None),
        (Some("de"), "de", Some("de")),
        (Some("DE_at"), "de", Some("de")),
        (Some("pt-br"), "pt-BR", Some("pt-BR")),
        (Some("pt"), "pt-BR", Some("pt-BR")),
        (Some("pt-PT"), "pt-BR", Some("pt-BR")),
        (Some("zh-TW"), "zh-Hant", Some("zh-Hant")),
        (Some("zh-HK"), "zh-Hant", Some("zh-Hant")),
        (Some("zh-CN"), "zh-Hans", Some("zh-Hans")),
        (Some("zh-SG"), "zh-Hans", Some("zh-Hans")),
        (Some("zh"), "zh-Hans", Some("zh-Hans")),
        (Some("no"), "nb", Some("nb")),
        (Some("nb-NO"), "nb", Some("nb")),
        (Some("es-MX"), "es-419", Some("es-419")),
        (Some("es-ES"), "own", None),
        (Some("iw"), "he", Some("he")),
        (Some("iw-IL"), "he", Some("he")),
        (Some("sr-RS"), "sr", Some("sr")),
        (Some("sr-Latn"), "own", None),
        (Some("zh-Hant-TW"), "zh-Hant", Some("zh-Hant")),
        (Some("-"), "own", None),
    ] {
        let to = Arc::new(TemplatePerson { locale: locale.map(str::to_owned), ..TemplatePerson::default() });
        let made = content(&all, &to).unwrap();
        assert_eq!((made.title.as_str(), made.lang.as_deref()), (title, lang), "{locale:?}");
    }
}

#[test]
fn undefined_variable_is_refused_with_its_place() {
    for source in [
        "a\nüb {{ attributes.name }}",
        "a\nüb {{ attributes.name | upper }}",
        "a\nüb {% if attributes.name %}x{% endif %}",
    ] {
        let told = body(source, json!({}), json!({})).unwrap_err();
        assert!(told.starts_with("line 2, column ") && told.contains("is not defined"), "{told}");
        assert!(
            body(source, json!({}), json!({"name": null})).unwrap_err().contains("is not defined"),
            "null is nothing"
        );
    }
    let told = body("a\nüb {{ attributes.name }}", json!({}), json!({})).unwrap_err();
    assert!(told.starts_with("line 2, column 7: `attributes.name` is not defined"), "{told}");
    for (source, made) in [
        ("{{ attributes.name | default('you') }}", "you"),
        ("{% if attributes.name is defined %}x{% else %}y{% endif %}", "y"),
        ("{{ 'x' if false }}", ""),
        ("{{ data.none | d('none') }}", "none"),
    ] {
        assert_eq!(body(source, json!({"none": null}), json!({})).as_deref(), Ok(made), "{source}");
    }
}

#[test]
fn all_template_mistakes_are_found_at_once() {
    let template: Template = serde_json::from_value(json!({
        "content": {"title": "{{ nme }} {{ plce }}", "body": "a\n{% if %}", "url": "{{ 'x' ~ 'y' }}", "data": {"a": ["{{ now() }}"], "bellwire": 1}},
        "compact": {"title": ""}, "locales": {"d e": {"content": {"title": "T"}}}
    }))
    .unwrap();
    let at = |faults: Vec<TemplateFault>| faults.into_iter().map(|fault| fault.pointer).collect::<Vec<_>>();
    assert_eq!(at(Compiled::check(&template)), ["/locales/d e"]);
    let template = Template { locales: Default::default(), ..template };
    let faults = Compiled::check(&template);
    assert!(
        faults.iter().any(|fault| fault.detail.starts_with("line 1, column 4: `nme` is not defined; known are")),
        "{faults:?}"
    );
    assert!(faults.iter().any(|fault| fault.detail.starts_with("line 2, column ")), "{faults:?}");
    assert_eq!(
        at(faults),
        [
            "/content/data/bellwire",
            "/content/title",
            "/content/title",
            "/content/body",
            "/content/url",
            "/content/data/a/0",
            "/compact/title"
        ]
    );
}

#[test]
fn growing_or_foreign_functions_are_unknown() {
    for source in [
        "{{ 'x' * 1000000000 }}",
        "{{ data.x * data.n }}",
        "{{ ['a'] * 1000000000 }}",
        "{{ 'a' + 'b' }}",
        "{{ data.x + data.x }}",
        "{{ data.x ~ data.x }}",
        "{{ range(1000000000) }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% set x = [data.x, data.x] %}{{ x }}",
        "{% set x = (data.x, data.x) %}{{ x }}",
        "{% set x = {'a': data.x} %}{{ x }}",
        "{% set x %}{{ data.x }}{{ data.x }}{% endset %}{{ x }}",
        "{% set attributes = 1 %}",
        "{% set loop = 1 %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as x %}",
        "{% block x %}{% endblock %}",
        "{% filter upper %}x{% endfilter %}",
        "{% autoescape false %}x{% endautoescape %}",
        "{% with x = 1 %}x{% endwith %}",
        "{% do data.x() %}",
        "{% for x in data.xs recursive %}{{ loop(x) }}{% endfor %}",
        "{{ data.x.upper() }}",
        "{{ data.x | format }}",
        "{{ data.x | tojson }}",
        "{{ data.x | safe }}",
        "{{ data.x | indent(1000000000) }}",
        "{{ data.x | truncate(n=3) }}",
        "{{ data.x is divisibleby(3) }}",
        "{{ env }}",
        "{{",
        "{% if data.x %}",
    ] {
        let data = json!({"x": "xxxxxxxx", "n": 1_000_000_000, "xs": [[]]});
        let began = Instant::now();
        assert!(body(source, data, json!({})).is_err(), "{source}");
        assert!(began.elapsed() < Duration::from_secs(5), "{source}");
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(1_500), ")".repeat(1_500));
    let long = format!("{{{{ 1{} }}}}", "+1".repeat(1_500));
    let chain = format!("{{{{ data.x{} }}}}", "|d(1)".repeat(800));
    let path = format!("{{{{ data{} }}}}", ".a".repeat(1_500));
    let ifs = format!("{}x{}", "{% if 1 %}".repeat(200), "{% endif %}".repeat(200));
    for source in [deep, long, chain, path, ifs, "{{ data.x }}".repeat(400)] {
        assert!(body(&source, json!({"x": 1}), json!({})).is_err(), "{}", &source[..40]);
    }
}

#[test]
fn all_texts_of_a_notification_share_its_steps() {
    let loops = "{% for a in attributes.l %}{% endfor %}T";
    let one = compiled(json!({"content": {"title": "T", "body": loops}}), json!({}));
    let two = compiled(json!({"content": {"title": loops, "body": loops}}), json!({}));
    let told = |compiled: &Compiled, n: usize| {
        content(compiled, &person(json!({"l": vec![1; n]}))).err().map(|fault| (fault.pointer, fault.detail))
    };
    let most = (0..2_000).take_while(|n| told(&one, *n).is_none()).last().expect("a few");
    assert!(most > 100, "{most}");
    let (pointer, detail) = told(&two, most).expect("each alone would do");
    assert_eq!((&*pointer, detail.contains("together with the texts before it")), ("/content/body", true), "{detail}");
    assert_eq!(told(&two, most / 2 - 10), None);
}

#[test]
fn fuel_bounds_work_and_output() {
    let list: Vec<u32> = (0..1_000).collect();
    let told = body(
        "{% for a in data.l %}{% for b in data.l %}{% for c in data.l %}x{% endfor %}{% endfor %}{% endfor %}",
        json!({"l": list}),
        json!({}),
    );
    assert!(told.unwrap_err().contains("takes more than 2000 steps"));
    let long = json!({"t": "ö".repeat(2_000), "l": vec![1; 100]});
    let told = body("{% for a in data.l %}{{ data.t }}{% endfor %}", long.clone(), json!({})).unwrap_err();
    assert!(told.contains("came to more than 16384 octets"), "{told}");
    for grows in [
        "{{ data.t | replace('ö', data.t) }}",
        "{% set a = data.t | replace('ö', 'öööö') %}{{ a }}",
        "{{ data.l | join(data.t) }}",
        "{{ data.l }}",
    ] {
        let told = body(grows, long.clone(), json!({})).unwrap_err();
        assert!(COMPLAINTS.iter().any(|known| told.contains(known)), "{grows}: {told}");
    }
    let huge = body("{{ 1 }}", json!({"t": "x".repeat(9_000)}), json!({})).unwrap_err();
    assert!(huge.contains("at most 8192 octets"), "{huge}");
}

#[test]
fn values_stay_data_whatever_they_hold() {
    for hostile in [
        "\"},\"navigate\":\"https://evil.example\"",
        "{{ data.secret }}",
        "{% for %}",
        "\\",
        "</script>",
        "a\u{2028}b",
        "a\nb",
    ] {
        let made = body("{{ attributes.x }}", json!({"secret": "s"}), json!({"x": hostile})).unwrap();
        assert_eq!(made, hostile);
    }
    for (hostile, clean) in
        [("a\u{0}b\u{7}", "ab"), ("\u{202e}moc\u{202c}", "moc"), ("\u{2066}x\u{2069}", "x"), ("\u{1b}[31m", "[31m")]
    {
        assert_eq!(body("<{{ attributes.x }}>", json!({}), json!({"x": hostile})).unwrap(), format!("<{clean}>"));
    }
    let to = person(json!({"x": "\"},\"bellwire\":{\"id\":\"forged\"}"}));
    let own =
        compiled(json!({"content": {"title": "{{ attributes.x }}", "data": {"k": "{{ attributes.x }}"}}}), json!({}));
    let mut plaintext = Vec::new();
    let stamp = payload::Stamp { id: [0; 16], receipt: [b'r'; 64], retried: 0, replaces: None, content_type: None };
    own.fill(0, &to).unwrap().written.render(&stamp, &mut plaintext);
    let read: Value = serde_json::from_slice(&plaintext).unwrap();
    assert_eq!(read["notification"]["data"]["bellwire"]["receipt"], "r".repeat(64));
    assert_eq!(read["notification"]["title"], to.attributes["x"]);
}

#[test]
fn a_value_never_decides_where_a_link_leads() {
    let link = |source: &str, x: &str| {
        let own = Compiled::new(&templated(
            json!({"content": {"title": "T", "url": source}}),
            json!({"link": "javascript:alert(1)"}),
        ));
        own.map_err(|faults| faults[0].kind).and_then(|own| {
            content(&own, &person(json!({"x": x}))).map(|made| made.url.unwrap()).map_err(|fault| fault.kind)
        })
    };
    for (source, x, leads) in [
        ("https://a.example/{{ attributes.x }}", "../b?c#d", "https://a.example/..%2Fb%3Fc%23d"),
        ("https://a.example?q={{ attributes.x }}&r=1", "1&r=2", "https://a.example?q=1%26r%3D2&r=1"),
        ("/{{ attributes.x }}", "/evil.example", "https://shop.example/%2Fevil.example"),
        ("/{{ attributes.x }}", "\\evil.example", "https://shop.example/%5Cevil.example"),
        ("/{{ attributes.x }}", "", "https://shop.example/"),
        (
            "{% if attributes.x == 'b' %}https://b.example/{% else %}/a/{% endif %}{{ attributes.x }}",
            "b",
            "https://b.example/b",
        ),
        (
            "{% if attributes.x == 'b' %}https://b.example/{% else %}/a/{% endif %}{{ attributes.x }}",
            "c",
            "https://shop.example/a/c",
        ),
        ("{{ '' if attributes.x }}", "x", "https://shop.example/"),
    ] {
        assert_eq!(link(source, x).as_deref(), Ok(leads), "{source} {x}");
    }
    for (source, x) in [
        ("{{ attributes.x }}", "https://evil.example/"),
        ("{{ attributes.x }}", "/fine"),
        ("https://{{ attributes.x }}", "evil.example/"),
        ("https://{{ attributes.x }}/", "evil.example"),
        ("https://a.example{{ attributes.x }}/", ".evil.example"),
        ("https://a.example@{{ attributes.x }}/", "evil.example"),
        ("{{ attributes.x }}://a.example/", "javascript"),
        ("java{{ attributes.x }}", "script:alert(1)"),
        ("/{{ attributes.x }}/evil.example", ""),
        ("{{ data.link }}", ""),
        ("\u{1}{{ attributes.x }}", "x"),
    ] {
        assert_eq!(link(source, x), Err(TemplateFaultKind::Unfit), "{source} {x}");
    }
}

#[test]
fn empty_optional_member_is_left_out() {
    let own = compiled(
        json!({"content": {"title": "T", "image": "{% if attributes.image is defined %}/{{ attributes.image }}{% endif %}", "body": " {{ data.b }} "}}),
        json!({"b": ""}),
    );
    let made = content(&own, &person(json!({}))).unwrap();
    assert_eq!((made.image, made.body), (None, None));
    let made = content(&own, &person(json!({"image": "a.png"}))).unwrap();
    assert_eq!(made.image.as_deref(), Some("https://shop.example/a.png"));
    let blank = compiled(json!({"content": {"title": "{{ attributes.x }}"}}), json!({}));
    assert_eq!(content(&blank, &person(json!({"x": " "}))).unwrap_err().pointer, "/content/title");
}

#[test]
fn overlong_text_is_cut_or_dead() {
    let long = person(json!({"x": "é".repeat(3_000)}));
    let template = |rule: Value, member: &str| {
        let mut template = json!({"content": {"title": "T", "body": "B"}, "too_long": rule});
        template["content"][member] = json!("{{ attributes.x }}");
        compiled(template, json!({}))
    };
    let dead = content(&template(json!("dead"), "body"), &long).unwrap_err();
    assert_eq!((dead.kind, dead.pointer.as_str()), (TemplateFaultKind::TooLong, "/content/body"));
    assert!(!dead.line().contains('é'));
    let cut = content(&template(json!({"cut": "body"}), "body"), &long).unwrap();
    let kept = cut.body.as_deref().unwrap();
    assert!(kept.ends_with('…') && kept.chars().count() <= 2_000);
    assert!(payload::PayloadTemplate::of_content(&cut).is_ok(), "and all of it fits a push");
    assert!(payload::PayloadTemplate::content_octets(&cut) > 3_820, "no more is cut than has to be");
    let title = content(&template(json!({"cut": "body"}), "title"), &long).unwrap_err();
    assert_eq!((title.kind, title.pointer.as_str()), (TemplateFaultKind::TooLong, "/content/title"));
    let sum = json!({"content": {"title": "T", "body": "{{ attributes.x }}", "data": {"a": "{{ attributes.y }}"}}, "too_long": {"cut": "body"}});
    let own = compiled(sum, json!({}));
    let made = content(&own, &person(json!({"x": "b".repeat(1_900), "y": "d".repeat(2_000)}))).unwrap();
    assert!(made.body.unwrap().ends_with("b…") && made.data.unwrap()["a"].as_str().unwrap().len() == 2_000);
    let helpless = content(&own, &person(json!({"x": "b", "y": "d".repeat(4_000)}))).unwrap_err();
    assert_eq!((helpless.kind, helpless.pointer.as_str()), (TemplateFaultKind::TooLong, "/content"));
}

#[test]
fn compact_form_is_filled_on_demand() {
    let own = compiled(
        json!({"content": {"title": "T {{ attributes.x }}"}, "compact": {"title": "{{ attributes.y }}"}}),
        json!({}),
    );
    let compact = |to: &Arc<TemplatePerson>| match own.fill(0, to).unwrap().content {
        Content::Notification { compact, .. } => compact.map(|compact| compact.title),
        Content::Raw { .. } => panic!("a notification"),
    };
    let (both, one) = (person(json!({"x": 1, "y": 2})), person(json!({"x": 1})));
    assert_eq!((compact(&both).as_deref(), compact(&one)), (Some("2"), None));
    assert!(own.faults(0, &both).is_empty());
    assert_eq!(own.faults(0, &one)[0].pointer, "/compact/title");
}

#[test]
fn filters_do_what_the_guide_says() {
    let data =
        json!({"t": "gRÜße an alle", "n": 12.345, "s": "7", "l": ["a", "b", "c"], "e": [], "neg": -3, "big": 1e300});
    for (source, made) in [
        ("{{ data.t | upper }}", "GRÜSSE AN ALLE"),
        ("{{ data.t | lower }}", "grüße an alle"),
        ("{{ data.t | capitalize }}", "Grüße an alle"),
        ("{{ '  x ' | trim }}", "x"),
        ("{{ data.t | truncate(6) }}", "gRÜße…"),
        ("{{ data.t | truncate(13) }}", "gRÜße an alle"),
        ("{{ data.t | truncate(0) }}", ""),
        ("{{ data.t | replace('an', 'von') }}", "gRÜße von alle"),
        ("{{ data.t | replace('', 'x') }}", "gRÜße an alle"),
        ("{{ data.l | join(', ') }}", "a, b, c"),
        ("{{ data.l | join }}", "abc"),
        ("{{ data.l | first }}{{ data.l | last }}{{ data.t | first }}{{ data.t | last }}", "acge"),
        ("{{ data.l | length }} {{ data.t | length }}", "3 13"),
        ("{{ data.n | round }} {{ data.n | round(1) }} {{ data.n | fixed(2) }}", "12 12.3 12.35"),
        ("{{ data.n | int }} {{ data.s | int + 1 }} {{ data.s | float * 2 }}", "12 8 14.0"),
        ("{{ data.neg | abs }}", "3"),
        ("{{ data.missing | default('d') }}{{ data.missing | d('d') }}", "dd"),
        ("{% if 'b' in data.l and data.s in ['6', '7'] %}yes{% endif %}", "yes"),
        ("{{ data.t[:5] }}", "gRÜße"),
        ("{{ data.l[1] }}", "b"),
        ("{% for x in data.e %}x{% else %}none{% endfor %}", "none"),
        ("{% set k = 'l' %}{{ data[k] | length }}", "3"),
    ] {
        assert_eq!(body(source, data.clone(), json!({})).as_deref(), Ok(made), "{source}");
    }
    for source in
        ["{{ data.l | int }}", "{{ data.t | float }}", "{{ data.t | join }}", "{{ data.e | first }}", "{{ data.l }}"]
    {
        assert!(body(source, data.clone(), json!({})).is_err(), "{source}");
    }
    let text = body("{{ data.big | round(9) }}", data, json!({}));
    assert!(text.is_err(), "what is no number any more is none: {text:?}");
}

#[test]
fn what_went_wrong_never_tells_a_value() {
    let secret = "s3cr3t";
    for source in [
        "{{ attributes.x - 1 }}",
        "{{ attributes.x | int }}",
        "{{ attributes.x < 3 }}{{ attributes.x / 2 }}",
        "{{ attributes.l }}",
        "{{ attributes.x[attributes.x] }}",
    ] {
        let told = body(source, json!({}), json!({"x": secret, "l": [secret]}));
        assert!(told.as_ref().is_err_and(|told| !told.contains(secret)), "{source}: {told:?}");
    }
    let own = compiled(
        json!({"content": {"title": "T", "url": "https://a.example/{{ attributes.x }}", "tag": "{{ attributes.l }}"}}),
        json!({}),
    );
    let fault = content(&own, &person(json!({"x": secret, "l": [secret]}))).unwrap_err();
    assert!(!format!("{fault:?} {own:?} {:?}", person(json!({"x": secret}))).contains(secret));
}
