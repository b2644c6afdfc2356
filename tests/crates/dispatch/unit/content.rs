//! Unit tests of `crates/bellwire-dispatch/src/content.rs`, which includes them.

use serde_json::{Value, json};

use super::*;

fn says(template: Value) -> Says {
    let app = json!({"slug": "shop", "name": "Shop"});
    let templated = json!({"template": template, "data": {"city": "Linz"}, "app": app});
    Says::new(MessageContent::Template(serde_json::from_value(templated).unwrap())).unwrap()
}

#[test]
fn recipient_data_is_read_on_demand() {
    let same = says(json!({"content": {"title": "In {{ data.city }}"}}));
    assert!(same.wants().is_none() && matches!(same, Says::Same(_)));
    let german = json!({"content": {"title": "Aus {{ data.city }}"}});
    let languages = says(json!({"content": {"title": "In {{ data.city }}"}, "locales": {"de": german}}));
    assert_eq!(languages.wants(), Some(Wants::Locale));
    let Says::Each(each) = &languages else { panic!("two languages") };
    let person =
        |locale: &str| Arc::new(TemplatePerson { locale: Some(locale.to_owned()), ..TemplatePerson::default() });
    let [one, other] = [person("de"), person("de-AT")].map(|person| each.written(&person).unwrap());
    assert!(Arc::ptr_eq(&one, &other), "it was filled in once");
    assert_eq!(says(json!({"content": {"title": "{{ user_id }}"}})).wants(), Some(Wants::All));
}
