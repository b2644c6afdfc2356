//! Content of charts, and its stability.

use bellwire_core::delivery::Tier;
use bellwire_rules::policy::chart::{
    COLOURS, Curve, Panel, count, load_svg, load_text, seconds, timetable_svg, timetable_text,
};
use bellwire_rules::policy::preview::{Timetable, preview};
use bellwire_rules::policy::{Layer, Places, Policy, Terms};
use serde_json::{Value, json};

fn table(policy: &Value) -> Timetable {
    let layer = Layer::parse(policy, &Terms::default()).unwrap().layer;
    preview(&Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() }), None)
}

fn sns(function: &str) -> Timetable {
    table(&json!({"healthyRetryPolicy": {"minDelayTarget": 5, "maxDelayTarget": 260, "numRetries": 10,
        "backoffFunction": function}}))
}

fn panel<'a>(name: &'a str, posts_per_s: &'a [u32]) -> Panel<'a> {
    Panel { name, posts_per_s, bucket_s: 1, shaded_s: &[(2.0, 4.0)] }
}

#[test]
fn four_backoff_functions_draw_four_curves() {
    let tables = ["linear", "arithmetic", "geometric", "exponential"].map(sns);
    let curves: Vec<_> = tables
        .iter()
        .zip(["linear", "a <b> & \"c\"", "geo\u{0}", "d"])
        .map(|(table, name)| Curve { name, table })
        .collect();
    let svg = timetable_svg("Delays", &curves);
    assert_eq!(svg, timetable_svg("Delays", &curves), "the same every time");
    assert_eq!(svg.matches("<circle").count(), 40);
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !svg.contains("<b>") && !svg.contains('\u{0}'));
    assert!(svg.contains("retry 6: 2.4 min") && svg.contains(">delay before it<") && svg.contains(">retry<"));
    assert_eq!(svg.matches("fill=\"#ffffff\"").count(), 1, "its own background");
    for colour in &COLOURS[..4] {
        assert!(svg.contains(colour));
    }
}

#[test]
fn huge_timetable_makes_a_small_picture() {
    let table = table(&json!({"preset": "sns-aws-managed"}));
    let svg = timetable_svg("Delays", &[Curve { name: "aws", table: &table }]);
    assert!(svg.len() < 20_000, "{}", svg.len());
    assert!(svg.contains("continues to retry 100,015") && svg.contains("23.1 d in all"));
    let text = timetable_text(&table, 80);
    assert!(text.lines().count() <= 41 && text.contains("and 99,975 more"), "{text}");
}

#[test]
fn a_policy_without_retries_has_an_empty_chart() {
    let table = table(&json!({"maxAttempts": 0}));
    let svg = timetable_svg("Delays", &[Curve { name: "none", table: &table }]);
    assert!(!svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(timetable_text(&table, 80), "");
    assert!(timetable_svg("Nothing", &[]).contains("</svg>"));
}

#[test]
fn loads_share_a_scale_and_shade_the_outage() {
    let panels = [panel("first", &[0, 10, 40, 20]), panel("second", &[80, 0, 0, 0, 0, 0, 0, 7])];
    let svg = load_svg("Load", &panels);
    assert_eq!(svg, load_svg("Load", &panels));
    assert_eq!(svg.matches("#f3e3e3").count(), 2);
    assert!(svg.contains(">first<") && svg.contains(">second<") && svg.contains(">POSTs/s<") && svg.contains(">time<"));
    let long: Vec<u32> = (0..100_000).map(|n| n % 977).collect();
    assert!(load_svg("Load", &[panel("long", &long)]).len() < 12_000);
    assert!(!load_svg("Load", &[panel("empty", &[])]).contains("NaN"));
}

#[test]
fn loads_as_text_keep_within_their_width() {
    let panels = [panel("first", &[0, 10, 40, 20]), panel("second", &[80, 0, 0, 0, 0, 0, 0, 7])];
    let text = load_text(&panels, 72);
    let expected = "first
      80/s │
           │
           │  ▄
           │  █▂
           │ ▅██
         0 └──▒▒────
second
      80/s │█
           │█
           │█
           │█
           │█      ▄
         0 └──▒▒────
            0 s  8 s
";
    assert_eq!(text, expected, "\n{text}");
    let long: Vec<u32> = (0..100_000).collect();
    for width in [0, 30, 72, 500] {
        let text = load_text(&[panel("long", &long)], width);
        assert!(text.lines().all(|line| line.chars().count() <= width.clamp(30, 200)), "{width}:\n{text}");
    }
}

#[test]
fn delays_as_text_are_bars() {
    let text = timetable_text(&sns("linear"), 60);
    assert_eq!(text.lines().count(), 10);
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(text.contains("         1 │▊ 5 s") && text.ends_with(" 4.3 min\n"), "{text}");
}

#[test]
fn numbers_are_written_for_people() {
    assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    let written = [0.0, 0.25, 1.0, 2.55, 60.0, 90.0, 119.9, 120.0, 3_600.0, 7_200.0, 86_400.0, 172_800.0].map(seconds);
    let expected = ["0 s", "250 ms", "1 s", "2.5 s", "60 s", "90 s", "120 s", "2 min", "60 min", "2 h", "24 h", "2 d"];
    assert_eq!(written, expected);
}
