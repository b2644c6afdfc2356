//! Values that a browser may not set for its subscription. They are reported in the response, and do not cause a refusal.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::http::problem::{Faults, FieldError};
use bellwire_core::permission::{BrowserRight, RefusedField};
use bellwire_store::audience::topics::BROWSER_TOPICS_MAX;
use bellwire_store::keys::apps::App;

/// Maximum invalid members in a response.
const UNREADABLE_MAX: usize = 100;

/// A value that was omitted from a browser's request, while the other values were stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PartialWarning {
    /// RFC 6901 pointer into the body.
    pointer: String,
    /// Reason: `unreadable`, `topic_unknown`, `topic_closed`, `topics_of_browsers`, `tags_of_browsers` or
    /// `attributes_of_browsers`.
    code: &'static str,
    /// Reason in words, and how to allow the value.
    detail: String,
}

/// Converts faults of optional members to warnings.
pub(crate) fn unreadable(faults: Faults) -> Vec<PartialWarning> {
    let view = |FieldError { pointer, detail, .. }| PartialWarning {
        pointer: pointer.unwrap_or_default(),
        code: "unreadable",
        detail: format!("Left out: this {detail}."),
    };
    faults.into_errors().into_iter().take(UNREADABLE_MAX).map(view).collect()
}

/// Returns warnings about omitted values. `topics` are those in the request.
pub(crate) fn tell(app: &App, topics: &[String], refused: Vec<RefusedField>) -> Vec<PartialWarning> {
    let at = |name: &str| {
        let place = topics.iter().position(|topic| topic == name);
        place.map_or_else(|| "/topics".to_owned(), |place| format!("/topics/{place}"))
    };
    refused.into_iter().map(|refused| one(app, at, refused)).collect()
}

fn one(app: &App, at: impl Fn(&str) -> String, refused: RefusedField) -> PartialWarning {
    let slug = &app.slug;
    let letting = |right| {
        let rights = app.browsers_may.and(right).names().join(",");
        format!("`bellwire app change {slug} --browsers-may {rights}`")
    };
    match refused {
        RefusedField::TopicUnknown(name) => PartialWarning {
            pointer: at(&name),
            code: "topic_unknown",
            detail: format!(
                "There is no topic `{name}`. Make it with `bellwire topic create {name} --app {slug}`, or let browsers \
                 make topics with {}.",
                letting(BrowserRight::CreateTopics)
            ),
        },
        RefusedField::TopicClosed(name) => PartialWarning {
            pointer: at(&name),
            code: "topic_closed",
            detail: format!(
                "Only servers put subscriptions into the topic `{name}`. Let browsers join it with `bellwire topic \
                 change {name} --app {slug} --join anyone`."
            ),
        },
        RefusedField::TopicLimit(name) => PartialWarning {
            pointer: at(&name),
            code: "topics_of_browsers",
            detail: format!(
                "There is no topic `{name}`, and browsers make at most {BROWSER_TOPICS_MAX} topics of an app. Make it with \
                 `bellwire topic create {name} --app {slug}`."
            ),
        },
        RefusedField::Tags => PartialWarning {
            pointer: "/tags".to_owned(),
            code: "tags_of_browsers",
            detail: format!(
                "Only servers set tags in this app. Let browsers set them with {}.",
                letting(BrowserRight::SetTags)
            ),
        },
        RefusedField::Attributes => PartialWarning {
            pointer: "/attributes".to_owned(),
            code: "attributes_of_browsers",
            detail: format!(
                "Only servers set attributes in this app. Let browsers set them with {}.",
                letting(BrowserRight::SetAttributes)
            ),
        },
    }
}
