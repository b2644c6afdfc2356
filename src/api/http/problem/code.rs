//! Table of problem codes, from which the responses, the pages under `/docs/problems/` and the OpenAPI description are
//! generated.

use axum::http::StatusCode;
use serde::{Serialize, Serializer};

/// A row of the table: properties shared by all occurrences of a problem (RFC 9457 section 3.1).
#[derive(Debug)]
pub(crate) struct ProblemKind {
    /// Stable code for programs.
    pub code: &'static str,
    pub status: StatusCode,
    pub means: &'static str,
    pub remedy: &'static str,
}

impl ProblemKind {
    pub(crate) fn find(code: &str) -> Option<&'static Self> {
        PROBLEM_KINDS.iter().find(|kind| kind.code == code)
    }

    /// Returns the summary of the problem: its code in words.
    pub(crate) fn title(&self) -> String {
        let mut title = self.code.replace('_', " ");
        title[..1].make_ascii_uppercase();
        title
    }

    /// Returns the path of the page about the problem, which is also its `type`.
    pub(crate) fn page(&self) -> String {
        format!("/docs/problems/{}", self.code)
    }
}

/// Declares [`ProblemCode`] and [`PROBLEM_KINDS`], in the same order. The table constructs no variant, so the compiler reports a code that
/// no caller uses.
macro_rules! problem_codes {
    ($($Variant:ident = $code:literal, $status:ident, $means:literal, $remedy:expr;)+) => {
        /// Kind of problem, with its name for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum ProblemCode {
            $(#[doc = $means] $Variant,)+
        }

        /// All kinds of problems, by code.
        pub(crate) const PROBLEM_KINDS: &[ProblemKind] =
            &[$(ProblemKind { code: $code, status: StatusCode::$status, means: $means, remedy: $remedy },)+];
    };
}

impl ProblemCode {
    pub(crate) const fn kind(self) -> &'static ProblemKind {
        &PROBLEM_KINDS[self as usize]
    }

    pub(crate) const fn name(self) -> &'static str {
        self.kind().code
    }
}

impl Serialize for ProblemCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

const LATER: &str = "Wait for the time in `Retry-After`, then repeat the request.";
const DONE: &str = "Nothing: it is done.";

problem_codes! {
    AppListenersFull = "app_listeners_full", TOO_MANY_REQUESTS, "The app has the maximum number of listeners on its event stream.", "Close streams that are not read, or forward the events from one listener.";
    BelongsToUser = "belongs_to_user", CONFLICT, "The subscription belongs to a user, and the request does not prove to come from that user.", "Send the subscription's token, that user's `user_token` or an API key. `\"user_id\": null` starts a new subscription without a user.";
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The body is larger than this route accepts.", "Send less at a time; `detail` states the limit. The limit is a setting of the server.";
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "The body did not arrive in time.", "Build the body first, then send it at once.";
    CampaignExists = "campaign_exists", CONFLICT, "The app already has a campaign with this slug.", "Choose another slug. To make a request safe to repeat, send an `Idempotency-Key`.";
    CampaignPast = "campaign_past", CONFLICT, "The scheduled time of the campaign has passed.", "If the campaign is a draft, change its plan, then start it. If it is paused, cancel it.";
    CampaignStarted = "campaign_started", CONFLICT, "The campaign was started, so its plan cannot be changed.", "Clone the campaign, and change the copy.";
    CampaignState = "campaign_state", CONFLICT, "The state of the campaign does not allow this order.", "Read its `state`. A draft can be started, a running campaign paused or cancelled, a paused campaign resumed.";
    CampaignUnderWay = "campaign_under_way", CONFLICT, "The campaign is scheduled, running or paused.", "Cancel it first.";
    ChartsBusy = "charts_busy", SERVICE_UNAVAILABLE, "This process already computes the maximum number of charts.", LATER;
    CommitsUnconfirmed = "commits_unconfirmed", SERVICE_UNAVAILABLE, "Postgres does not confirm commits, because its synchronous standbys are missing. The request may have been carried out, or may be carried out once a standby is back.", "Tell the operator of the server. Then repeat the request, with an `Idempotency-Key` where the operation takes one.";
    CrossSite = "cross_site", FORBIDDEN, "A request with a session's cookie came from a page of another site, or did not state its origin.", "Call from this server's own pages. Programs use an API key.";
    DatabaseConflict = "database_conflict", SERVICE_UNAVAILABLE, "The request conflicted with other transactions (a lock timeout, a deadlock or a serialization failure). It was rolled back.", LATER;
    DatabaseTimeout = "database_timeout", SERVICE_UNAVAILABLE, "A statement of the request took longer than the statement timeout. The request was rolled back.", "Wait for the time in `Retry-After`, then repeat the request. If it fails again, request less at a time, or inform the operator of the server.";
    DatabaseUnavailable = "database_unavailable", SERVICE_UNAVAILABLE, "The database cannot be reached.", LATER;
    DeadLetterClosed = "dead_letter_closed", CONFLICT, "The subscription is gone, or the delivery has expired: its dead letter is kept for the record only.", "Send a new message if its content still matters.";
    DeadLetterSettled = "dead_letter_settled", CONFLICT, "The dead letter was already replayed or discarded.", DONE;
    DeliveryNotWaiting = "delivery_not_waiting", CONFLICT, "The delivery is not waiting: it has ended, is being sent, or its message is paused.", "Read the delivery's `state`. If its message is paused, resume the message.";
    EditsBusy = "edits_busy", SERVICE_UNAVAILABLE, "This server already handles the maximum number of changes with `If-Match`.", LATER;
    EmailTaken = "email_taken", CONFLICT, "A teammate with this email address exists.", "Change the teammate's roles, or reset the teammate to get a new link.";
    EndpointTaken = "endpoint_taken", CONFLICT, "The endpoint is registered with other keys that take precedence, or its user unsubscribed.", "Register it with the same keys, or let the browser create a new subscription.";
    ExampleUnavailable = "example_unavailable", CONFLICT, "The example page cannot be used from this address.", "Follow the instruction in `detail`.";
    Forbidden = "forbidden", FORBIDDEN, "The caller is known, but may not do this.", "Use a key with the scope, or a teammate with the role, that the operation names.";
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "Path, query and headers of the request are larger than the server accepts.", "Send fewer and shorter headers; cookies count, too. `detail` states the limit, a setting of the server.";
    IdempotencyKeyInProgress = "idempotency_key_in_progress", CONFLICT, "The first request with this `Idempotency-Key` has not finished.", "Repeat the request after `Retry-After`: it then gets the response of the first request.";
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "This `Idempotency-Key` was used for another request: the path, the body or the headers differ.", "Use a new key for every new request, and repeat a request without changes.";
    ImportElsewhere = "import_elsewhere", CONFLICT, "Another request continues this import, or has ended it.", "Read the import: it shows its progress and whether it has ended.";
    Internal = "internal", INTERNAL_SERVER_ERROR, "The server failed.", "Send the `request_id` to the operator of the server, who finds the log entries by it.";
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "The body is well-formed, but some of its members are wrong.", "`errors` points to each wrong member and states the allowed values.";
    InvalidHeader = "invalid_header", BAD_REQUEST, "A header is wrong.", "`errors` names the header and states the allowed values.";
    InvalidParameter = "invalid_parameter", BAD_REQUEST, "A parameter of the path or the query is wrong or unknown.", "`errors` names the parameter and states the allowed values.";
    InvalidPath = "invalid_path", BAD_REQUEST, "The path is not percent-encoded UTF-8.", "Percent-encode each value in the path.";
    InvalidReceipt = "invalid_receipt", BAD_REQUEST, "This server did not issue the token of the receipt.", "Report the token that came with the push, unchanged.";
    KeyListenersFull = "key_listeners_full", TOO_MANY_REQUESTS, "The API key has the maximum number of listeners on event streams.", "Close streams that are not read.";
    LinkChecksBusy = "link_checks_busy", SERVICE_UNAVAILABLE, "This process already checks the maximum number of links.", LATER;
    ListenersFull = "listeners_full", SERVICE_UNAVAILABLE, "This process has the maximum number of listeners on event streams.", LATER;
    MalformedHead = "malformed_head", BAD_REQUEST, "The request line and headers are not valid HTTP/1.1, or are ambiguous.", "Use a common HTTP library. If a proxy forwards the request, check its settings.";
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not JSON, or was cut off.", "Send one JSON object.";
    MessageCancelled = "message_cancelled", CONFLICT, "The message was cancelled.", "Send a new message.";
    MessageDone = "message_done", CONFLICT, "Every delivery of the message has ended.", DONE;
    MessageKeyTaken = "message_key_taken", CONFLICT, "A message with this `key` is still being delivered; `detail` names it.", "Cancel that message, wait for its end, or choose another key.";
    MessageSending = "message_sending", CONFLICT, "A push of the message may be on its way.", "Repeat the request in a few seconds.";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "This path does not support the method.", "`Allow` lists the methods of the path.";
    NotFound = "not_found", NOT_FOUND, "The resource does not exist, or the caller may not see it.", "Check the id, and that the key belongs to the app.";
    NotYourself = "not_yourself", CONFLICT, "Teammates cannot change, reset or remove themselves.", "Ask another admin, or use `bellwire admin` on the server.";
    OriginNotAllowed = "origin_not_allowed", FORBIDDEN, "The app does not allow requests from pages of this origin.", "Add the origin to the app, or serve the page over HTTPS: `detail` states which.";
    PasskeyKnown = "passkey_known", CONFLICT, "This passkey was already added.", "Nothing: the passkey can be used.";
    PasskeysUnavailable = "passkeys_unavailable", CONFLICT, "The server has no public URL for which passkeys could be created.", "Set `BELLWIRE_PUBLIC_URL` to the server's https address.";
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, "The resource does not have the `ETag` that `If-Match` names, or exists although `If-None-Match` forbids it.", "Read the resource again, check what has changed, and repeat the request with the new `ETag`.";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "The caller has exceeded a rate limit.", LATER;
    SchemaDiffers = "schema_differs", SERVICE_UNAVAILABLE, "The database has the schema of another version of the program.", "Run `bellwire migrate`, or wait for a migration that is running.";
    SearchesBusy = "searches_busy", SERVICE_UNAVAILABLE, "This process already runs the maximum number of searches.", LATER;
    SignInAgain = "sign_in_again", FORBIDDEN, "The operation requires a sign-in within the last ten minutes.", "Sign in again.";
    SignInBusy = "sign_in_busy", SERVICE_UNAVAILABLE, "Too many people are signing in at this moment.", LATER;
    SignInRefused = "sign_in_refused", UNAUTHORIZED, "The credentials are wrong.", "Check them. A one-time link works once; an admin can create a new one.";
    SimulationTooLong = "simulation_too_long", UNPROCESSABLE_ENTITY, "The simulation would take more steps than the server allows.", "Simulate fewer deliveries, or a policy with fewer retries.";
    SimulationsBusy = "simulations_busy", SERVICE_UNAVAILABLE, "This process already runs the maximum number of simulations.", LATER;
    SlugTaken = "slug_taken", CONFLICT, "Another app has this slug, or an app with this slug is still being deleted.", "Choose another slug, or wait until the deletion has finished.";
    SubscriptionEnded = "subscription_ended", CONFLICT, "The subscription has ended.", "Let the browser register again, which reactivates the subscription.";
    TemplateExists = "template_exists", CONFLICT, "Another request created a template with this name at the same moment.", "Repeat the request.";
    TooManyCampaigns = "too_many_campaigns", CONFLICT, "The app has the maximum number of campaigns.", "Delete campaigns that have ended.";
    TooManyConnections = "too_many_connections", SERVICE_UNAVAILABLE, "The server, or the address of the client, has the maximum number of connections.", "Reuse connections. Wait for the time in `Retry-After`, then repeat the request.";
    TooManyIdentityKeys = "too_many_identity_keys", CONFLICT, "The app has the maximum number of identity keys.", "Delete a key that is no longer used.";
    TooManyMessages = "too_many_messages", SERVICE_UNAVAILABLE, "Too many messages wait to be stored. Nothing of this request was stored.", LATER;
    TooManyPasskeys = "too_many_passkeys", CONFLICT, "The account has the maximum number of passkeys.", "Remove a passkey first.";
    TooManyReceipts = "too_many_receipts", SERVICE_UNAVAILABLE, "Too many receipts wait to be stored.", LATER;
    TooManySegments = "too_many_segments", CONFLICT, "The app has the maximum number of segments.", "Delete segments that are not used.";
    TooManyTemplates = "too_many_templates", CONFLICT, "The app has the maximum number of templates.", "Delete templates that are not used.";
    TooManyTopics = "too_many_topics", CONFLICT, "The app has the maximum number of topics.", "Delete topics that are not used.";
    TooManyWebhooks = "too_many_webhooks", CONFLICT, "The app has the maximum number of webhooks.", "Delete a webhook that is no longer used.";
    TopicInUse = "topic_in_use", CONFLICT, "The fan-out of a message to the topic has not finished.", "Wait until it has, or cancel the message.";
    TransfersBusy = "transfers_busy", SERVICE_UNAVAILABLE, "The process, or the app, already runs the maximum number of imports and exports.", LATER;
    Unauthorized = "unauthorized", UNAUTHORIZED, "The request has no key or token, or one that is not valid.", "Send `Authorization: Bearer` and a valid API key, or sign in.";
    Unreachable = "unreachable", CONFLICT, "The subscription of this dead letter is no longer active.", "Discard the dead letter.";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body is not sent as JSON.", "Send `Content-Type: application/json`.";
    UriTooLong = "uri_too_long", URI_TOO_LONG, "Path and query of the request are longer than the server accepts.", "Send long values in a body.";
    UserLeft = "user_left", CONFLICT, "The recipient of the dead letter no longer uses that browser: a replay would reach another user.", "Discard the dead letter.";
    UserTokenAlgorithm = "user_token_algorithm", FORBIDDEN, "The user token is signed with an unsupported algorithm.", "Sign with HS256 or ES256.";
    UserTokenAudience = "user_token_audience", FORBIDDEN, "The `aud` of the user token does not name this app.", "Leave `aud` out, or name the app there by id or slug.";
    UserTokenExpired = "user_token_expired", FORBIDDEN, "The user token has expired.", "Let your backend sign a new one.";
    UserTokenExtension = "user_token_extension", FORBIDDEN, "The header of the user token has `crit` or `zip`.", "Sign without header extensions.";
    UserTokenForm = "user_token_form", FORBIDDEN, "The user token is a JWT and the app's identity keys are for plain HMACs, or the reverse.", "Sign in the form of the key, or create a key for this form.";
    UserTokenKeyUnknown = "user_token_key_unknown", FORBIDDEN, "The user token is signed with a key that the app does not have.", "Sign with one of the app's identity keys.";
    UserTokenMalformed = "user_token_malformed", FORBIDDEN, "The user token is neither a JWT nor the HMAC of a user id.", "Pass on the token from your backend, unchanged.";
    UserTokenNotYetValid = "user_token_not_yet_valid", FORBIDDEN, "The `nbf` or `iat` of the user token is in the future.", "Compare the clocks of your backend and this server.";
    UserTokenOfAnotherUser = "user_token_of_another_user", FORBIDDEN, "The user token is for another user.", "Let `sub` be the `user_id`.";
    UserTokenSignature = "user_token_signature", FORBIDDEN, "The signature of the user token is wrong: the token was changed, or signed with another key or for another user.", "Sign it with the app's own secret or private key.";
    UserTokenUserMistakable = "user_token_user_mistakable", FORBIDDEN, "The user token is the HMAC of a user id that looks like the beginning of a JWT.", "Let your backend sign a JWT for such a user.";
    UserTokenValidTooLong = "user_token_valid_too_long", FORBIDDEN, "The user token would be valid for more than 7 days.", "Let `exp` be at most 7 days ahead.";
    UserTokenWithoutExpiry = "user_token_without_expiry", FORBIDDEN, "The user token has no `exp`.", "Add the time of expiry, in seconds since 1970.";
    VapidKeyDiffers = "vapid_key_differs", CONFLICT, "The endpoint is registered under another VAPID key.", "Let the browser subscribe with the app's current key.";
    VapidKeyKnown = "vapid_key_known", CONFLICT, "The app already has this VAPID key.", "Nothing: the key can be used.";
    WebhookDisabled = "webhook_disabled", CONFLICT, "The webhook is disabled, so nothing is sent to it.", "Enable it, then repeat the request.";
}

#[cfg(test)]
#[path = "../../../../tests/unit/api/http/problem/code.rs"]
mod tests;
