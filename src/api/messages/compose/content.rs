//! Checks of the content of a message.

use serde_json::{Map, Value};

use crate::api::http::problem::{Faults, FieldError};
use crate::api::templates::templated::{ResolvedTemplate, Trial};
use bellwire_core::message::{Content, Notification, Payload};
use bellwire_core::template::MessageContent;
use bellwire_rules::policy::Request;
use bellwire_store::keys::apps::App;
use bellwire_webpush::payload::PayloadTemplate;

/// Refuses a raw payload that is too large for the content type in its own policy. Policies of other levels add their content
/// type only where it fits.
pub(super) fn check_label(content: &Content, request: &Request, faults: &mut Faults) {
    let excess = PayloadTemplate::new(content).map_or(0, |template| template.excess_with(&request.header_content_type));
    if excess > 0 {
        let detail = format!("is {excess} octets too long to be sent with the policy's headerContentType");
        faults.refuse("/payload", detail);
    }
}

pub(super) fn check_template(
    template: ResolvedTemplate, app: &App, data: Option<Map<String, Value>>, faults: &mut Faults,
) -> Option<(MessageContent, Trial)> {
    match template.compile(app, data) {
        Ok((templated, compiled)) => {
            Some((MessageContent::Template(Box::new(templated)), Trial { of: template, compiled }))
        }
        Err(errors) => {
            for FieldError { pointer, detail, .. } in errors {
                faults.refuse(pointer.unwrap_or_default(), detail);
            }
            None
        }
    }
}

pub(in crate::api::messages) fn check_content(
    content: Option<Notification>, compact: Option<Notification>, payload: Option<Payload>, envelope: Option<bool>,
    faults: &mut Faults,
) -> Option<Content> {
    let content = match Content::from_request(content, compact, payload, envelope) {
        Ok(content) => content,
        Err(problems) => {
            for problem in problems {
                faults.refuse(problem.pointer, problem.detail);
            }
            return None;
        }
    };
    let mut fits = true;
    let mut measure = |content: &Content, pointer: &str| {
        if let Err(error) = PayloadTemplate::new(content) {
            faults.refuse(pointer, error.to_string());
            fits = false;
        }
    };
    match &content {
        Content::Raw { .. } => measure(&content, "/payload"),
        Content::Notification { content: full, compact } => {
            measure(&content, "/content");
            if let Some(compact) = compact.as_ref().filter(|compact| *compact != full) {
                measure(&Content::Notification { content: compact.clone(), compact: None }, "/compact");
            }
        }
    }
    fits.then_some(content)
}
