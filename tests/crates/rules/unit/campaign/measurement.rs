use super::*;
use crate::campaign::lift::Estimate;

fn lift(effect: Effect, relative: Option<(f64, f64)>, additional: (f64, f64)) -> Lift {
    let estimate = |(low, high): (f64, f64)| Estimate { low, value: f64::midpoint(low, high), high };
    Lift {
        effect,
        relative: relative.map(estimate),
        additional: Some(estimate(additional)),
        standard_error: 1.0,
        people_needed: None,
    }
}

#[test]
fn an_effect_is_a_sentence_with_its_interval() {
    let more = lift(Effect::More, Some((0.142, 0.198)), (31.0, 44.0));
    let money = lift(Effect::More, None, (1_912.0, 3_388.0));
    assert_eq!(sentence("order", &more, &[("EUR", money)], true), "14.2 to 19.8 % more `order`, 1,900 to 3,400 EUR.");
    let fewer = lift(Effect::Fewer, Some((-0.2, -0.1)), (-40.0, -20.0));
    let less = lift(Effect::Fewer, None, (-900.0, -50.0));
    assert_eq!(
        sentence("order", &fewer, &[("EUR", less)], false),
        "10.0 to 20.0 % fewer `order`, 50 to 900 EUR less, so far."
    );
    let unclear = lift(Effect::None, None, (-900.0, 50.0));
    assert_eq!(sentence("order", &more, &[("EUR", unclear)], true), "14.2 to 19.8 % more `order`.");
}

#[test]
fn no_effect_names_the_missing_people() {
    let none = Lift { people_needed: Some(12_000), ..lift(Effect::None, Some((-0.1, 0.1)), (-5.0, 5.0)) };
    assert_eq!(
        sentence("order", &none, &[], true),
        "No measurable effect on `order`; 12,000 more recipients would be needed."
    );
    let few = lift(Effect::TooFew, None, (0.0, 0.0));
    assert_eq!(sentence("order", &few, &[], false), "Too few conversions of `order` to compare, so far.");
}

#[test]
fn numbers_have_two_significant_digits_and_commas() {
    let cases = [(0.0, "0"), (999.4, "999"), (1_049.0, "1,000"), (1_951.0, "2,000"), (1_234_567.0, "1,200,000")];
    for (number, text) in cases {
        assert_eq!(grouped(number), text);
    }
}

#[test]
fn link_parameters_name_campaign_and_variant() {
    let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let tags = LinkTags {
        hosts: vec!["shop.example".to_owned()],
        parameters: of(&[
            ("utm_source", "push"),
            ("utm_campaign", "{campaign}"),
            ("utm_content", "{campaign}-{variant}"),
        ]),
    };
    let own = of(&[("utm_source", "app"), ("ref", "x")]);
    let whole = of(&[("utm_source", "app"), ("ref", "x"), ("utm_campaign", "spring"), ("utm_content", "spring-b")]);
    assert_eq!(tags.filled(&own, Some("spring"), Some("b")), whole);
    let without_variant = of(&[("utm_source", "push"), ("utm_campaign", "spring")]);
    assert_eq!(tags.filled(&BTreeMap::new(), Some("spring"), None), without_variant);
    assert_eq!(tags.filled(&BTreeMap::new(), None, None), of(&[("utm_source", "push")]));
}
