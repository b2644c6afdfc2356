//! Unit tests of `crates/bellwire-core/src/named.rs`, which includes them.

use serde_json::json;
use utoipa::PartialSchema as _;

use crate::delivery::{Ending, ReceiptKind, Urgency};
use crate::event_type::EventType;
use crate::hook::{DeliveryState, WebhookDisabledReason, WebhookState};
use crate::lane::Gateway;
use crate::message::MessageState;
use crate::permission::{Maker, TopicJoin};
use crate::role::Role;
use crate::subscription::SubscriptionState;

#[test]
fn value_has_one_name_everywhere() {
    macro_rules! check {
        ($($Enum:ty),+) => {$(
            let names = <$Enum>::ALL.map(<$Enum>::name);
            let described = serde_json::to_value(<$Enum>::schema()).unwrap();
            let described: Vec<_> = match described["oneOf"].as_array() {
                Some(values) => values.iter().flat_map(|value| value["enum"].as_array().unwrap()).cloned().collect(),
                None => described["enum"].as_array().unwrap().clone(),
            };
            assert_eq!(described, names.map(|name| json!(name)));
            for value in <$Enum>::ALL {
                assert_eq!(<$Enum>::from_name(value.name()), Some(value));
                assert_eq!(serde_json::to_value(value).unwrap(), value.name());
                assert_eq!(serde_json::from_value::<$Enum>(json!(value.name())).unwrap(), value);
            }
            assert_eq!(<$Enum>::from_name("nonsense"), None);
        )+};
    }
    check!(
        SubscriptionState,
        Gateway,
        MessageState,
        Maker,
        TopicJoin,
        Role,
        EventType,
        WebhookState,
        WebhookDisabledReason,
        DeliveryState,
        Urgency,
        Ending,
        ReceiptKind
    );
}
