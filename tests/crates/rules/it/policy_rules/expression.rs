//! Expressions of retry delays: values, precedence, and errors with their positions.

use bellwire_rules::policy::expression::Expression;

/// Deepest nesting of parentheses, functions and signs.
const DEPTH_MAX: usize = 32;

fn value(text: &str, retried: u32) -> f64 {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).value(retried)
}

#[test]
fn the_published_expressions_give_the_published_delays() {
    for (text, expected) in [
        ("1000", [1000.0, 1000.0, 1000.0, 1000.0, 1000.0]),
        ("1000 * (1 + retried)", [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]),
        ("pow(2, retried) * 1000", [1000.0, 2000.0, 4000.0, 8000.0, 16000.0]),
        ("max(1000, pow(2, retried) * 100)", [1000.0, 1000.0, 1000.0, 1000.0, 1600.0]),
    ] {
        assert_eq!([0, 1, 2, 3, 4].map(|retried| value(text, retried)), expected, "{text}");
    }
}

#[test]
fn operators_bind_and_associate_as_in_arithmetic() {
    for (text, expected) in [
        ("1+2*3", 7.0),
        ("(1+2)*3", 9.0),
        ("10-4-3", 3.0),
        ("100/10/2", 5.0),
        ("2*-3+10", 4.0),
        ("--3", 3.0),
        ("-(1+2)", -3.0),
        (" \t1.5 + .25\n", 1.75),
        ("sqrt(16)+abs(-2)+floor(2.9)+ceil(2.1)+round(2.5)", 14.0),
        ("exp(0)", 1.0),
        ("min(3, 1, 2)", 1.0),
        ("max(3)", 3.0),
        ("max(min(5,4),pow(3,2)/3)", 4.0),
        ("retried*retried", 49.0),
    ] {
        assert_eq!(value(text, 7), expected, "{text}");
    }
    assert!(value("min(0/0, 5)", 0).is_nan() && value("max(5, 0/0)", 0).is_nan());
    assert!(value("sqrt(-1)", 0).is_nan() && value("1/retried", 0).is_infinite());
}

#[test]
fn a_mistake_is_told_with_its_position() {
    for (text, position, word) in [
        ("", 1, "found the end"),
        ("  ", 3, "found the end"),
        ("1 +", 4, "found the end"),
        ("1 2", 3, "an operator or the end, found '2'"),
        ("1e3", 2, "found 'e'"),
        ("+1", 1, "found '+'"),
        ("2 ^ 3", 3, "found '^'"),
        ("2 ** 3", 4, "found '*'"),
        ("retries * 2", 1, "unknown name 'retries'"),
        ("1 + sin(2)", 5, "unknown name 'sin'"),
        ("pow(2, retried", 15, "',' or ')', found the end"),
        ("pow 2", 5, "'(' after"),
        ("1 + pow(2)", 5, "does not take 1 arguments"),
        ("max()", 1, "does not take 0 arguments"),
        ("abs(1, 2)", 1, "does not take 2 arguments"),
        ("min(1,)", 7, "found ')'"),
        ("(1", 3, "')', found the end"),
        ("1)", 2, "found ')'"),
        ("1.2.3", 1, "'1.2.3' is not a number"),
        (".", 1, "'.' is not a number"),
        ("5.", 1, "'5.' is not a number"),
        ("ä", 1, "found 'ä'"),
        ("1 + ä + $", 5, "found 'ä'"),
        ("1\0", 2, "found '\\0'"),
    ] {
        let error = Expression::parse(text).unwrap_err();
        assert!(error.position == position && error.what.contains(word), "{text}: {error}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
    assert!(Expression::parse(&nested(DEPTH_MAX - 1)).is_ok());
    assert!(Expression::parse(&nested(DEPTH_MAX)).unwrap_err().what.contains("deeper"));
    assert!(Expression::parse(&format!("{}1", "-".repeat(200))).unwrap_err().what.contains("deeper"));
    assert!(Expression::parse(&"1+".repeat(200)).unwrap_err().what.contains("longer"));
    assert_eq!(value(&format!("1{}", "+1".repeat(127)), 0), 128.0);
    assert_eq!(value(&format!("max({}1)", "1,".repeat(120)), 0), 1.0);
}
