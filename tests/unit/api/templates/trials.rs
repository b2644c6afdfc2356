//! Unit tests of `src/api/templates/trials.rs`, which includes them.

use std::cell::Cell;

use serde_json::json;
use uuid::Uuid;

use super::*;
use bellwire_core::template::{AppNames, Templated};

#[tokio::test]
async fn timed_out_check_stops_and_is_incomplete() {
    let template: bellwire_core::template::Template =
        serde_json::from_value(json!({"content": {"title": "Hi {{ user_id }}"}})).unwrap();
    let app = AppNames { slug: "shop".into(), name: "Shop".into() };
    let templated = Templated { name: None, template: template.clone(), data: Map::new(), app, site: None };
    let (of, compiled) = (ResolvedTemplate::inline(template), Compiled::new(&templated).unwrap());
    let members = |n: u128| {
        let member = |n| {
            let person =
                Arc::new(TemplatePerson { user_id: (n > 2).then(|| "ann".into()), ..TemplatePerson::default() });
            Member { id: SubscriptionId(Uuid::from_u128(n)), person, behind: Behind::NONE }
        };
        (1..=n).map(member).collect::<Vec<_>>()
    };
    let looks = Cell::new(0);
    let is_over = || looks.replace(looks.get() + 1) == 3;
    let mut told = TemplateCheck::default();
    assert!(!told.try_on(&of, &compiled, members(500), is_over).await);
    assert_eq!((told.checked, told.unrenderable, told.done), (3, 2, false), "not one more than there was time for");
    let mut told = TemplateCheck::default();
    assert!(told.try_on(&of, &compiled, members(50), || false).await);
    assert_eq!((told.checked, told.unrenderable), (50, 2));
}
