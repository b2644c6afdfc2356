//! Property tests of expressions.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::expression::{Act, Comparison, Deed, EventCondition, Field, Literal, Node, SubscriptionField, Test};
use super::*;

fn text() -> impl Strategy<Value = String> {
    // Quotes and backslashes often, since they are what is written in another way.
    "[a-z\"'\\\\ ä,()=\n]{0,8}"
}

fn seconds() -> impl Strategy<Value = i64> {
    prop_oneof![0..100i64, (0..3_000i64).prop_map(|days| days * 86_400), (0..1_000i64).prop_map(|minutes| minutes * 60)]
}

/// Generates a field that can be compared with any literal.
fn attribute() -> impl Strategy<Value = Field> {
    let names = prop_oneof!["[a-z_][a-z0-9_.]{0,6}", text(), Just("not".to_owned()), Just("age".to_owned())];
    names.prop_map(Field::Attribute)
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        text().prop_map(Literal::Text),
        (-1e12..1e12f64).prop_map(Literal::Number),
        (-1_000_000..1_000_000i64).prop_map(|n| Literal::Number(n as f64)),
        (0..4_000_000_000i64, 0..3u32).prop_map(|(seconds, fraction)| {
            let nanos = [0, 500_000_000, 123_456_789][fraction as usize];
            Literal::Time(bellwire_core::clock::Timestamp::from_timestamp(seconds, nanos).unwrap())
        }),
        (seconds(), any::<bool>()).prop_map(|(seconds, ago)| Literal::Now(if ago { -seconds } else { seconds })),
    ]
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    prop::sample::select(vec![Equal, Less, LessOrEqual, Greater, GreaterOrEqual])
}

fn test() -> impl Strategy<Value = Test> {
    let own = prop::sample::select(vec![
        SubscriptionField::Locale,
        SubscriptionField::Language,
        SubscriptionField::Timezone,
        SubscriptionField::User,
        SubscriptionField::ConsentSource,
    ])
    .prop_map(Field::Own);
    let since = prop::sample::select(vec![
        SubscriptionField::Age,
        SubscriptionField::LastSeen,
        SubscriptionField::LastClicked,
        SubscriptionField::UnclickedFor,
        SubscriptionField::ConsentAt,
    ])
    .prop_map(Field::Own);
    let ordered = || comparison().prop_filter("by order", |comparison| *comparison != Comparison::Equal);
    let act = prop::sample::select(vec![Act::Received, Act::Displayed, Act::Clicked]);
    prop_oneof![
        text().prop_map(Test::Tag),
        text().prop_map(Test::Topic),
        attribute().prop_map(Test::Exists),
        (attribute(), comparison(), literal()).prop_map(|(field, how, with)| Test::Compare(field, how, with)),
        (attribute(), any::<bool>()).prop_map(|(field, flag)| Test::Compare(
            field,
            Comparison::Equal,
            Literal::Flag(flag)
        )),
        (attribute(), vec(literal(), 1..4)).prop_map(|(field, literals)| Test::OneOf(field, literals)),
        (own, text()).prop_map(|(field, text)| Test::Compare(field, Comparison::Equal, Literal::Text(text))),
        (ordered(), 0..2_000i32).prop_map(|(how, n)| Test::Compare(
            Field::Own(SubscriptionField::Unclicked),
            how,
            Literal::Number(n.into())
        )),
        (since, ordered(), seconds()).prop_map(|(field, how, span)| Test::Compare(field, how, Literal::Span(span))),
        (act, text(), option::of(seconds())).prop_map(|(act, of, within_s)| Test::Did(Deed { act, of, within_s })),
        ("[A-Za-z0-9_.-]{1,64}", 1..=1_000u16, option::of(seconds()))
            .prop_map(|(name, at_least, within_s)| Test::Event(EventCondition { name, at_least, within_s })),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    test().prop_map(Node::Test).prop_recursive(5, 24, 4, |node| {
        prop_oneof![
            vec(node.clone(), 2..4).prop_map(Node::all),
            vec(node.clone(), 2..4).prop_map(Node::any),
            node.prop_map(Node::negated),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_written_down_reads_the_same_again(node in node()) {
        let written = node.to_string();
        let read = Expression::parse(&written);
        prop_assert_eq!(read.as_ref().map(|expression| &expression.0), Ok(&node), "{}", written);
    }

    #[test]
    fn each_refusal_has_text_within_bounds(text in "[a-z0-9\"'()=<>!, \\\\.+-]{0,40}") {
        if let Err(error) = Expression::parse(&text) {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.position), "{}", error);
            prop_assert!(!error.what.is_empty());
        }
    }
}
