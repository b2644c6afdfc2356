//! `/metrics` follows the conventions of Prometheus, and the provided dashboard and alert rules use only its metrics.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::metrics::rendered_metrics;
use crate::support::repository::read_file;

/// A metric by its family's name in `# TYPE`.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    /// Names of its samples, each with its labels.
    samples: BTreeMap<String, BTreeSet<String>>,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut last = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "TYPE", name, kind] => {
                last = (*name).to_owned();
                families.entry(last.clone()).or_default().kind = (*kind).to_owned();
            }
            ["#", "HELP", name, help] => families.entry((*name).to_owned()).or_default().help = (*help).to_owned(),
            ["#", ..] => {}
            _ => {
                let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a sample"));
                let labels =
                    rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
                let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
                families.entry(last.clone()).or_default().samples.entry(name.to_owned()).or_default().extend(names);
            }
        }
    }
    families
}

/// Findings of `promtool check metrics`, by its published rules.
fn faults(name: &str, family: &Family) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |holds: bool, what: &str| {
        if holds {
            faults.push(format!("{name}: {what}"));
        }
    };
    let has_part = |parts: &[&str]| name.split('_').any(|part| parts.contains(&part));
    let is_snake = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    fault(!is_snake || name.contains("__") || name.ends_with('_'), "is not in snake case");
    fault(family.help.is_empty(), "has no help");
    fault(has_part(&["counter", "gauge", "histogram", "summary", "info"]), "names its type");
    fault(name.ends_with("_total"), "OpenMetrics adds `_total` to the samples of a counter, and of nothing else");
    let reserved = ["_count", "_sum", "_bucket", "_created"];
    fault(reserved.iter().any(|suffix| name.ends_with(suffix)), "ends in what is reserved for histograms");
    let other_units = [
        "ms",
        "us",
        "ns",
        "milliseconds",
        "microseconds",
        "minutes",
        "hours",
        "days",
        "percent",
        "kilobytes",
        "megabytes",
        "kb",
        "mb",
        "bits",
        "celsius",
    ];
    fault(has_part(&other_units), "is not in a base unit");
    fault(has_part(&["sec", "secs", "avg", "min", "num", "cnt"]), "is abbreviated");
    for (sample, labels) in &family.samples {
        let suffix = sample.strip_prefix(name).unwrap_or("?");
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[],
        };
        fault(!suffixes.contains(&suffix), &format!("a {} has no sample {sample}", family.kind));
        let is_bucket = family.kind == "histogram" && suffix == "_bucket";
        fault(!is_bucket && labels.contains("le") || labels.contains("quantile"), "has a label that is reserved");
        let is_camel = |label: &String| label.bytes().any(|b| b.is_ascii_uppercase());
        fault(labels.iter().any(is_camel), "has a label that is not in snake case");
        fault(labels.iter().any(|label| name.contains(&format!("_by_{label}"))), "repeats a label in its name");
    }
    faults
}

#[test]
fn metrics_keep_to_the_conventions_of_prometheus() {
    let families = families(&rendered_metrics());
    assert!(families.len() > 25, "{families:?}");
    let found: Vec<String> = families.iter().flat_map(|(name, family)| faults(name, family)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let ours = families.keys().filter(|name| !name.starts_with("process_"));
    let conventional: Vec<_> = ours.filter(|name| !name.starts_with("bellwire_")).collect();
    assert_eq!(conventional, ["http_server_request_duration_seconds"]);
}

#[test]
fn the_conventions_find_fault_with_what_breaks_them() {
    for (text, words) in [
        ("# TYPE a_ms gauge\n# HELP a_ms h\na_ms 1\n", "base unit"),
        ("# TYPE aB gauge\n# HELP aB h\naB 1\n", "snake case"),
        ("# TYPE a gauge\na 1\n", "no help"),
        ("# TYPE a_total gauge\n# HELP a_total h\na_total 1\n", "_total"),
        ("# TYPE a counter\n# HELP a h\na 1\n", "has no sample a"),
        ("# TYPE a_count gauge\n# HELP a_count h\na_count 1\n", "reserved for histograms"),
        ("# TYPE a_gauge gauge\n# HELP a_gauge h\na_gauge 1\n", "names its type"),
        ("# TYPE a gauge\n# HELP a h\na{le=\"1\"} 1\n", "label that is reserved"),
        ("# TYPE a gauge\n# HELP a h\na{aB=\"1\"} 1\n", "label that is not"),
    ] {
        let found: Vec<String> = families(text).iter().flat_map(|(name, family)| faults(name, family)).collect();
        assert!(found.len() == 1 && found[0].contains(words), "{text}: {found:?}");
    }
}

/// Samples with their labels; those that Prometheus adds to each included.
fn samples() -> BTreeMap<String, BTreeSet<String>> {
    let mut samples = BTreeMap::from([("up".to_owned(), BTreeSet::new())]);
    samples.extend(families(&rendered_metrics()).into_values().flat_map(|family| family.samples));
    for labels in samples.values_mut() {
        labels.extend(["job", "instance"].map(str::to_owned));
    }
    samples
}

/// Tokens of an expression: words, numbers, strings and operators. `None` for a character or string that PromQL does not allow.
fn tokens(expression: &str) -> Option<Vec<String>> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let of = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let length = match first {
            'a'..='z' | 'A'..='Z' | '_' => of(|c| c.is_ascii_alphanumeric() || c == '_'),
            '0'..='9' => of(|c| c.is_ascii_alphanumeric() || c == '.'),
            '"' => rest[1..].find('"')? + 2,
            '=' | '!' | '<' | '>' => of(|c| "=!<>~".contains(c)),
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | '/' | '*' | '+' | '-' => 1,
            _ => return None,
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

/// Words of PromQL that the rules and the dashboard use.
const WORDS: [&str; 8] = ["sum", "max", "by", "rate", "abs", "histogram_quantile", "and", "time"];

/// Errors of an expression; variables of Grafana are replaced by typical values.
fn wrong_with(expression: &str, samples: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let expression = expression.replace("$__rate_interval", "5m").replace("$job", ".*");
    let Some(tokens) = tokens(&expression) else { return vec![format!("{expression}: is not an expression")] };
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let (mut metric, mut labels, mut grouped) = (None, BTreeSet::new(), Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let is_word = token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_list = open.last() == Some(&'l');
        match token.as_str() {
            "(" if at > 0 && tokens[at - 1] == "by" => open.push('l'),
            "(" | "{" | "[" => open.push(token.chars().next().expect("a sign")),
            ")" | "}" | "]" => {
                let fits = matches!(
                    (open.pop(), token.as_str()),
                    (Some('(' | 'l'), ")") | (Some('{'), "}") | (Some('['), "]")
                );
                if !fits {
                    found.push(format!("{token} closes nothing"));
                }
            }
            label if is_word && is_list => grouped.push(label.to_owned()),
            label if is_word && open.last() == Some(&'{') => {
                let known = metric.is_some_and(|metric: &String| samples[metric].contains(label));
                if !known {
                    found.push(format!("it has no label {label}"));
                }
            }
            word if is_word && WORDS.contains(&word) => {}
            name if is_word => match samples.get_key_value(name) {
                None => found.push(format!("{name} is not shown")),
                Some((name, has)) => {
                    metric = Some(name);
                    labels.extend(has.iter().cloned());
                }
            },
            _ => {}
        }
    }
    if !open.is_empty() {
        found.push("something stays open".to_owned());
    }
    let unknown = grouped.into_iter().filter(|label| !labels.contains(label));
    found.extend(unknown.map(|label| format!("nothing has the label {label}")));
    found.into_iter().map(|what| format!("{expression}: {what}")).collect()
}

#[test]
fn alert_rules_use_existing_metrics_with_remedies() {
    let rules: Value = serde_norway::from_str(&read_file("contrib/prometheus/alerts.yml")).expect("YAML");
    let (samples, guide) = (samples(), read_file("docs/operate/alerts.md"));
    let (mut names, mut found) = (BTreeSet::new(), Vec::new());
    for rule in rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        found.extend(wrong_with(rule["expr"].as_str().expect("an expression"), &samples));
        let annotation = |of: &str| rule["annotations"][of].as_str().unwrap_or_default();
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty(), "{name} says nothing");
        assert_eq!(annotation("runbook_url"), format!("docs/operate/alerts.md#{}", name.to_lowercase()));
        assert!(
            guide.contains(&format!("\n### {name}\n")),
            "docs/operate/alerts.md does not tell what to do about {name}"
        );
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap_or_default()), "{name}");
    }
    assert!(names.len() >= 9 && found.is_empty(), "{found:#?}");
}

#[test]
fn the_dashboard_names_only_what_metrics_show() {
    let dashboard: Value = serde_json::from_str(&read_file("contrib/grafana/bellwire.json")).expect("JSON");
    let samples = samples();
    let (mut ids, mut found, mut seen) = (BTreeSet::new(), Vec::new(), 0);
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "two panels have the id {}", panel["id"]);
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        let mut refs = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(refs.insert(target["refId"].as_str().expect("a name")), "{panel}");
            found.extend(wrong_with(target["expr"].as_str().expect("an expression"), &samples));
            seen += 1;
        }
    }
    assert!(seen > 15 && found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_not_shown_is_found_in_expressions() {
    let samples = samples();
    for (expression, words) in [
        ("sum(rate(bellwire_nothing_total[5m]))", "is not shown"),
        ("bellwire_attempts_total{colour=\"red\"}", "no label colour"),
        ("sum by (colour) (bellwire_attempts_total)", "nothing has the label colour"),
        ("sum(bellwire_attempts_total", "stays open"),
        ("sum(bellwire_attempts_total]", "closes nothing"),
        ("bellwire_attempts_total ; 1", "is not an expression"),
    ] {
        let found = wrong_with(expression, &samples);
        assert!(found.len() == 1 && found[0].contains(words), "{expression}: {found:?}");
    }
    assert_eq!(
        wrong_with("sum by (gateway) (rate(bellwire_attempts_total{status=\"429\"}[5m])) > 1", &samples),
        [""; 0]
    );
}
