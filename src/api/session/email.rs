//! E-mail addresses of teammates.

use crate::api::http::extract::is_plain_text;

pub(crate) const EMAIL_RULE: &str = "must be an email address of at most 254 characters, such as ann@example.com";

/// Normalises an e-mail address to the form in which it is stored. `None`: it is invalid.
pub(crate) fn normal_email(text: &str) -> Option<String> {
    let email = text.trim().to_lowercase();
    let (local, domain) = email.rsplit_once('@')?;
    let is_fine = is_plain_text(&email, 254) && !email.contains(char::is_whitespace) && !local.is_empty();
    (is_fine && !domain.is_empty() && !local.contains('@')).then_some(email)
}
