//! Smaller versions of a notification that a gateway refused as too large. Raw payloads never shrink, because only the page can identify
//! optional parts.

use std::mem;

use super::payload::PayloadTemplate;
use bellwire_core::message::{Content, Notification};

/// A smaller push, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Renders to at most the wanted octets, which leaves no room for padding beyond them.
    pub template: PayloadTemplate,
    /// Names of what was given up, in order: `content` (the compact variant went out instead), `image`, `actions`,
    /// `data`, `the end of body`. Empty: leaving out the padding is enough.
    pub dropped: Vec<&'static str>,
}

/// Leaves out a part of a notification; false if it was not there.
type ShrinkStep = (&'static str, fn(&mut Notification) -> bool);

const STEPS: [ShrinkStep; 3] = [
    ("image", |it| it.image.take().is_some()),
    ("actions", |it| !mem::take(&mut it.actions).is_empty()),
    ("data", |it| it.data_optional && it.data.take().is_some()),
];

/// Returns the fullest version whose plaintext has at most `limit` octets with any retry count. It loses its padding, then
/// becomes the compact variant, then loses image, actions and optional data, and last a part of its body. `None`: no version
/// fits.
pub fn shrink(content: &Content, limit: usize) -> Option<Shrunk> {
    let Content::Notification { content, compact } = content else { return None };
    let mut dropped = Vec::new();
    let mut candidate = (**content).clone();
    if let Some(template) = fit(&candidate, limit) {
        return Some(Shrunk { template, dropped });
    }
    if let Some(compact) = compact {
        candidate.clone_from(compact);
        dropped.push("content");
        if let Some(template) = fit(&candidate, limit) {
            return Some(Shrunk { template, dropped });
        }
    }
    for (name, leave_out) in STEPS {
        if leave_out(&mut candidate) {
            dropped.push(name);
            if let Some(template) = fit(&candidate, limit) {
                return Some(Shrunk { template, dropped });
            }
        }
    }
    dropped.push("the end of body");
    let (_, template) = cut_body(candidate, |notification| fit(notification, limit))?;
    Some(Shrunk { template, dropped })
}

/// A notification with as much of its body as fits a push, and the same written down. None: it has no body, or would not fit
/// with hardly any of it.
pub fn cut_to_fit(notification: Notification) -> Option<(Notification, PayloadTemplate)> {
    cut_body(notification, |notification| PayloadTemplate::of_content(notification).ok())
}

fn fit(notification: &Notification, limit: usize) -> Option<PayloadTemplate> {
    Some(PayloadTemplate::of_notification(notification)).filter(|template| template.max_len() <= limit)
}

/// Keeps as many characters of the body as fit, and an ellipsis.
fn cut_body(
    mut notification: Notification,
    fit: impl Fn(&Notification) -> Option<PayloadTemplate>,
) -> Option<(Notification, PayloadTemplate)> {
    let body = notification.body.take()?;
    let mut cut_at = |end: usize| {
        notification.body = Some(format!("{}…", &body[..end]));
        fit(&notification)
    };
    let ends: Vec<usize> = body.char_indices().map(|(at, _)| at).collect();
    let fitting = ends.partition_point(|&end| cut_at(end).is_some());
    let template = cut_at(*ends.get(fitting.checked_sub(1)?)?)?;
    Some((notification, template))
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/shrink.rs"]
mod tests;
