//! Smaller versions of a notification that a gateway refused as too large. Raw payloads never shrink, because only the page can identify
//! optional parts.

use std::mem;

use super::payload::PayloadTemplate;
use bellwire_core::message::{Content, Notification};

/// A smaller push, with the parts it omits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Renders to at most the wanted octets, which leaves no room for padding beyond them.
    pub template: PayloadTemplate,
    /// Omitted parts in order: `content` (the compact variant is sent instead), `image`, `actions`, `data`, `the end of body`.
    /// Empty: omitting the padding is enough.
    pub dropped: Vec<&'static str>,
}

/// Function that removes a part of a notification. Returns `false` if it had none.
type ShrinkStep = (&'static str, fn(&mut Notification) -> bool);

const STEPS: [ShrinkStep; 3] = [
    ("image", |it| it.image.take().is_some()),
    ("actions", |it| !mem::take(&mut it.actions).is_empty()),
    ("data", |it| it.data_optional && it.data.take().is_some()),
];

/// Returns the most complete variant whose plaintext has at most `limit` bytes with any retry count. It omits padding, then
/// uses the compact variant, then omits image, actions and optional data, and last truncates its body. `None`: no variant fits.
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

/// Truncates the body of a notification so that it fits into a push. Also returns its serialised form. `None`: it has no body,
/// or would not fit even with hardly any of it.
pub fn cut_to_fit(notification: Notification) -> Option<(Notification, PayloadTemplate)> {
    cut_body(notification, |notification| PayloadTemplate::of_content(notification).ok())
}

fn fit(notification: &Notification, limit: usize) -> Option<PayloadTemplate> {
    Some(PayloadTemplate::of_notification(notification)).filter(|template| template.max_len() <= limit)
}

/// Truncates the body to the characters that fit, with an ellipsis.
fn cut_body(
    mut notification: Notification, fit: impl Fn(&Notification) -> Option<PayloadTemplate>,
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
