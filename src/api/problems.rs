//! The kinds of problems: what each code means and what to do about it, for the pages under `/docs/problems/` to which the
//! `type` of every problem leads.

/// Where the pages are.
pub(super) const PAGES: &str = "/docs/problems/";

/// A kind of problem.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its name for programs, which never changes.
    pub code: &'static str,
    /// Its HTTP status.
    pub status: u16,
    /// What it says.
    pub means: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The kind of that code.
pub(super) fn kind(code: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.code == code)
}

const fn k(code: &'static str, status: u16, means: &'static str, remedy: &'static str) -> Kind {
    Kind { code, status, means, remedy }
}

const LATER: &str = "Wait as long as `Retry-After` says, then ask again.";

/// All of them, by code.
#[rustfmt::skip] // a row each
pub(super) const KINDS: &[Kind] = &[
    k("app_listeners_full", 429, "The app has as many listeners on its event stream as one app may have.", "Close streams that nobody reads, or let one listener pass on what it hears."),
    k("belongs_to_user", 409, "The subscription belongs to a user, and nothing in the request proves that it is theirs.", "Show the subscription's token, that user's `user_token` or an API key; `\"user_id\": null` begins anew, as nobody's."),
    k("body_too_large", 413, "The body has more octets than this route takes.", "Send less at a time; `detail` says how much is allowed. The limit is a setting of the server."),
    k("body_too_slow", 408, "The body did not come in time.", "Send it at once, not as it is made."),
    k("campaign_exists", 409, "The app has a campaign of this slug.", "Choose another slug. To make a request safe to repeat, send an `Idempotency-Key`."),
    k("campaign_past", 409, "The time of the campaign has passed.", "If it is a draft, change its plan, then start it; if it is paused, cancel it."),
    k("campaign_started", 409, "The campaign was started, so its plan stays as it is.", "Clone it, and change the copy."),
    k("campaign_state", 409, "The campaign does not stand so that this could be done to it.", "Read its `state`: a draft is started, one that runs is paused or cancelled, one that is paused is resumed."),
    k("campaign_under_way", 409, "The campaign is under way.", "Cancel it first."),
    k("charts_busy", 503, "More charts are asked for than this process makes at a time.", LATER),
    k("commits_unconfirmed", 503, "Postgres does not confirm commits, since the standbys that it waits for are missing. What was asked for may have been done, or may be done once they are back.", "Tell whoever runs the server; then repeat, with an `Idempotency-Key` where the operation takes one."),
    k("cross_site", 403, "A request with a session's cookie came from another site's page, or did not say where from.", "Call from this server's own pages. Programs use an API key."),
    k("database_unavailable", 503, "The database cannot be reached.", LATER),
    k("dead_letter_closed", 409, "What is gone or expired has no way back: its letter is kept for the record only.", "Nothing; send a new message if it still matters."),
    k("dead_letter_settled", 409, "The dead letter was replayed or discarded before.", "Nothing: it is done."),
    k("delivery_not_waiting", 409, "The delivery does not wait: it has ended, is being sent, or its message is paused.", "Read the delivery's `state`, and resume the message if that is paused."),
    k("edits_busy", 503, "More is being changed with `If-Match` than this server does at a time.", LATER),
    k("email_taken", 409, "There is a teammate of that address.", "Change their roles, or reset them to make a new link."),
    k("endpoint_taken", 409, "The endpoint is registered, with other keys.", "Refresh it with the same keys, its token, or an API key."),
    k("example_unavailable", 409, "The example page cannot be used from here.", "`detail` says what it takes."),
    k("forbidden", 403, "Whoever asks is known, but may not do this.", "Use a key with the scope, or a teammate with the role, that the operation names."),
    k("idempotency_key_in_progress", 409, "The first request with this `Idempotency-Key` has not come to its end.", "Repeat it after `Retry-After`: it then gets the first one's answer."),
    k("idempotency_key_reused", 422, "This `Idempotency-Key` was used for another request: its path, its body or its headers differ.", "Make a new key for every new request, and repeat a request only as it was."),
    k("import_elsewhere", 409, "Another request goes on with this import, or has ended it.", "Look at the import: it says how far it has come and whether it has ended."),
    k("internal", 500, "Something went wrong in the server.", "Tell whoever runs it the `request_id`, by which the log knows it."),
    k("invalid", 422, "The body is well-formed, but members are wrong.", "`errors` points to each, and says what is allowed."),
    k("invalid_header", 400, "A header is wrong.", "`errors` names it, and says what is allowed."),
    k("invalid_parameter", 400, "A parameter of the path or the query is wrong, or there is no such parameter.", "`errors` names it, and says what is allowed."),
    k("invalid_path", 400, "The path is not percent-encoded UTF-8.", "Encode what is put into it."),
    k("invalid_receipt", 400, "The receipt's token is none of this server's.", "Report what came with the push, unchanged."),
    k("key_listeners_full", 429, "The API key has as many listeners on event streams as one key may have.", "Close streams that nobody reads."),
    k("listeners_full", 503, "The process has as many listeners on event streams as it lets in.", LATER),
    k("malformed_json", 400, "The body is no JSON, or broke off.", "Send one JSON object."),
    k("message_cancelled", 409, "The message was cancelled.", "Send it anew."),
    k("message_done", 409, "Every delivery of the message has ended.", "Nothing: it is done."),
    k("message_key_taken", 409, "A message with this `key` is under way; `detail` names it.", "Cancel that one, wait for its end, or choose another key."),
    k("method_not_allowed", 405, "There is no such method on this path.", "`Allow` lists those that there are."),
    k("not_found", 404, "There is no such thing, or not for whoever asks.", "Check the id, and that the key is one of the app."),
    k("not_yourself", 409, "Nobody changes, resets or removes themselves.", "Another admin can, or `bellwire admin` on the server."),
    k("origin_not_allowed", 403, "The app does not let pages of that origin in.", "Add the origin to the app: `detail` says how."),
    k("passkey_known", 409, "This passkey was added before.", "Nothing: it can be used."),
    k("passkeys_unavailable", 409, "The server has no public URL that passkeys could be made for.", "Set `BELLWIRE_PUBLIC_URL` to its https address."),
    k("precondition_failed", 412, "What the request would change is not what its `If-Match` names, or is there although `If-None-Match` says that it must not be.", "Read it again, look what has changed, and repeat with the new `ETag`."),
    k("rate_limited", 429, "Whoever asks has asked too often.", LATER),
    k("schema_differs", 503, "The database has the schema of another version of the program.", "Run `bellwire migrate`, or wait for whoever is at it."),
    k("searches_busy", 503, "More searches are asked for than this process makes at a time.", LATER),
    k("sign_in_again", 403, "This takes a sign-in within the last ten minutes.", "Sign in again."),
    k("sign_in_busy", 503, "Too many people are signing in at this moment.", LATER),
    k("sign_in_refused", 401, "What was shown lets nobody in.", "Check it; a one-time link works once, and an admin can make a new one."),
    k("simulation_too_long", 422, "The simulation would take more steps than the server makes for one.", "Simulate fewer deliveries, or a policy of fewer retries."),
    k("simulations_busy", 503, "More simulations are asked for than this process makes at a time.", LATER),
    k("slug_taken", 409, "Another app has this slug, or had it and is still being deleted.", "Choose another slug, or wait until the deletion has come to its end."),
    k("subscription_ended", 409, "The subscription has ended.", "Let the browser register again, which brings it back."),
    k("template_exists", 409, "Another request made a template of this name at the same moment.", "Repeat the request."),
    k("too_many_campaigns", 409, "The app has as many campaigns as it may.", "Delete some that are over."),
    k("too_many_identity_keys", 409, "The app has as many identity keys as it may.", "Delete one that is not in use any more."),
    k("too_many_messages", 503, "Too many messages wait to be stored. Nothing of this request was.", LATER),
    k("too_many_passkeys", 409, "You have as many passkeys as one may.", "Remove one first."),
    k("too_many_receipts", 503, "Too many receipts wait to be stored.", LATER),
    k("too_many_segments", 409, "The app has as many segments as it may.", "Delete some that are not used."),
    k("too_many_templates", 409, "The app has as many templates as it may.", "Delete some that are not used."),
    k("too_many_topics", 409, "The app has as many topics as it may.", "Delete some that are not used."),
    k("too_many_webhooks", 409, "The app has as many webhooks as one app may have.", "Delete one that is not in use any more."),
    k("topic_exists", 409, "The app has a topic of this name.", "Use it, or choose another name."),
    k("topic_in_use", 409, "A message is still being fanned out to the topic.", "Wait until it is, or cancel the message."),
    k("transfers_busy", 503, "More imports and exports are under way than the process, or the app, may make at a time.", LATER),
    k("unauthorized", 401, "The request shows no key or token, or one that is not valid (any more).", "Send `Authorization: Bearer` and a valid API key, or sign in."),
    k("unreachable", 409, "The subscription of this dead letter is not active any more.", "Discard the letter."),
    k("unsupported_media_type", 415, "The body is not sent as JSON.", "Send `Content-Type: application/json`."),
    k("user_left", 409, "The dead letter was addressed to somebody who has left that browser: a replay would show it to another.", "Discard the letter."),
    k("user_token_algorithm", 403, "The user token is signed by an algorithm that is not taken.", "Sign with HS256 or ES256."),
    k("user_token_audience", 403, "The user token's `aud` names others only.", "Leave `aud` out, or name the app there by id or slug."),
    k("user_token_expired", 403, "The user token has expired.", "Have your backend sign a new one."),
    k("user_token_form", 403, "The user token has one form, and the app's identity keys are for the other: JWT or plain HMAC.", "Sign in the form that the key was made for, or make a key for this one."),
    k("user_token_key_unknown", 403, "The user token is signed with a key that the app does not have, or has no more.", "Sign with one of the app's identity keys."),
    k("user_token_malformed", 403, "The user token is neither a JWT nor the HMAC of a user id.", "Pass on what your backend signed, unchanged."),
    k("user_token_not_yet_valid", 403, "The user token's `nbf` or `iat` lies ahead.", "Compare the clocks of your backend and this server."),
    k("user_token_of_another_user", 403, "The user token is for another user.", "Let `sub` be the `user_id`."),
    k("user_token_signature", 403, "The user token's signature is wrong: it was changed, or made with another key or for another user.", "Sign it with the app's own secret or private key."),
    k("user_token_user_mistakable", 403, "The user token is the HMAC of a user id that reads like the beginning of a JWT.", "Have your backend sign a JWT for such a user."),
    k("user_token_valid_too_long", 403, "The user token would be valid for more than 7 days.", "Let `exp` lie at most 7 days ahead."),
    k("user_token_without_expiry", 403, "The user token has no `exp`.", "Add the time when it expires, in seconds since 1970."),
    k("vapid_key_differs", 409, "The endpoint is registered under another VAPID key.", "Let the browser subscribe with the app's present key."),
    k("vapid_key_known", 409, "The app has this VAPID key already.", "Nothing: it can be used."),
    k("webhook_disabled", 409, "The webhook is disabled, so nothing is sent to it.", "Enable it, then ask again."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Code literals behind these words are those of problems.
    const BEFORE: [&str; 4] =
        ["Problem::conflict(\"", "Self::conflict(\"", "Busy { code: \"", "Problem::new( StatusCode::"];

    fn sources(directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("api/problems.rs")
            {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let mut texts = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
        let mut used = BTreeSet::new();
        for text in &texts {
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let line = production.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in BEFORE {
                for rest in line.split(word).skip(1) {
                    // Behind a status stands the code, if it is written there.
                    let code = match word.ends_with("StatusCode::") {
                        true => rest.split_once(", ").and_then(|(_, rest)| rest.strip_prefix('"')),
                        false => Some(rest),
                    };
                    used.extend(code.and_then(|code| code.split('"').next()).map(str::to_owned));
                }
            }
            used.extend(
                KINDS
                    .iter()
                    .map(|kind| kind.code)
                    .filter(|code| production.contains(&format!("\"{code}\"")))
                    .map(str::to_owned),
            );
        }
        let known: BTreeSet<String> = KINDS.iter().map(|kind| kind.code.to_owned()).collect();
        assert_eq!(used, known);
        assert!(KINDS.is_sorted_by(|a, b| a.code < b.code));
        for kind in KINDS {
            assert!((400..600).contains(&kind.status) && kind.means.ends_with('.'), "{}", kind.code);
        }
    }
}
