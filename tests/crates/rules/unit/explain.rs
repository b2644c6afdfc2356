//! Compares every sentence with the facts from which it is written.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::phrases::{rfc3339, span};
use super::*;
use crate::campaign::parts::CampaignGroup;
use crate::policy::{Layer, Places, Terms, TierSettings};
use bellwire_core::engagement_stats::Hours;

fn at(text: &str) -> Timestamp {
    format!("2027-01-15T{text}Z").parse().unwrap()
}

/// Returns facts about a promotional campaign of 08:00, ten minutes later, without any delivery.
fn facts() -> Facts {
    Facts {
        now: at("08:10:00"),
        message: ExplainedMessage {
            id: MessageId(Uuid::from_u128(1)),
            tier: Tier::Promotional,
            state: MessageState::Sending,
            audience: json!({"all": true}),
            ttl_s: 86_400,
            accepted_at: at("08:00:00"),
            expires_at: at("08:00:00") + Duration::from_secs(86_400),
            replay_of: None,
            withdraws: None,
            withdrawn_at: None,
            removal: None,
            content_deleted: false,
            history_deleted: false,
            enveloped: true,
            topic: None,
        },
        subscription: Some(Subscription {
            state: SubscriptionState::Active,
            since: at("07:00:00"),
            ended_at: None,
            timezone: None,
            joined_at: None,
            replaced_by: None,
            is_successor: false,
            is_past: false,
        }),
        gateway: Some(Gateway::Fcm),
        policy: InForce { policy: Policy::tier_default(Tier::Promotional), retry_set_by: None },
        calendar: Calendar::restore("UTC", None, None),
        attempts: Vec::new(),
        reports: Vec::new(),
        waiting: None,
        letter: None,
        origins: Vec::new(),
        subscription_held_until: None,
        flows: Vec::new(),
        worker_lives: true,
        judged: None,
        part: None,
    }
}

/// Returns facts with a sunset rule, for a person with this number of displays in sixty days, and a click at six or none.
fn judged(verdict: FilterVerdict, unclicked: i16, clicked_at: Option<Timestamp>) -> Facts {
    let between = (at("07:30:00") - chrono::TimeDelta::days(60), at("07:30:00"));
    let mut hours = Hours::default();
    hours.0[18] = if clicked_at.is_some() { 5 } else { 0 };
    let unclicked_between = (unclicked > 0).then_some(between);
    let habits = Habits { clicked_at, unclicked, unclicked_between, hours, ..Habits::default() };
    let sunset = Some(Sunset { unclicked: Some(10), unclicked_for_s: Some(5_184_000), welcome_s: 0 });
    let own_hour = habits.hours.best();
    Facts { judged: Some(Judged { verdict, habits, own_hour, sunset }), ..facts() }
}

/// Returns facts about a message for another group of its campaign.
fn of_group(group: Option<CampaignGroup>) -> Facts {
    let part = Some(ExplainedPart { zone: None, follows: None, group });
    Facts { part, ..judged(FilterVerdict::NotInPortion(0), 0, None) }
}

/// Returns facts about a message by local time that is for other time zones.
fn of_zone(timezone: Option<&str>, due_at: Option<Timestamp>) -> Facts {
    let mut facts = judged(FilterVerdict::NotInSegment, 0, None);
    facts.subscription.as_mut().unwrap().timezone = timezone.map(str::to_owned);
    let zone = Some(ByZone { is_its: false, due_at });
    Facts { part: Some(ExplainedPart { zone, follows: None, group: None }), ..facts }
}

/// Returns facts about a follow-up to recipients who did not click `spring`.
fn following(received: bool, did: bool) -> Facts {
    let follows = Some(FollowedCampaign { campaign: "spring".into(), did_not: "click", received, did });
    Facts {
        part: Some(ExplainedPart { zone: None, follows, group: None }),
        ..judged(FilterVerdict::NotInSegment, 0, None)
    }
}

fn policy(place: PolicyLevel, written: Value) -> InForce {
    let terms = Terms { place, ..Terms::default() };
    let layer = Layer::parse(&written, &terms).unwrap().layer;
    let places = match place {
        PolicyLevel::Message => Places { message: Some(&layer), ..Places::default() },
        PolicyLevel::Subscription => Places { subscription: Some(&layer), ..Places::default() },
        PolicyLevel::Topic => Places { topic: Some(&layer), ..Places::default() },
        PolicyLevel::Tier => Places { tier: Some(&layer), ..Places::default() },
    };
    let places = Places { server: TierSettings::DEFAULT, ..places };
    InForce { policy: Policy::in_force(Tier::Promotional, &places), retry_set_by: places.set_by().retry }
}

fn attempt(number: u32, time: &str, ending: Ending, status: impl Into<Option<u16>>, reason: &str) -> ExplainedAttempt {
    let reason = Some(reason).filter(|reason| !reason.is_empty()).map(str::to_owned);
    ExplainedAttempt { number, at: at(time), ending, status: status.into(), took_ms: Some(100), reason }
}

fn unsent(number: u32, time: &str, ending: Ending, reason: &str) -> ExplainedAttempt {
    ExplainedAttempt { took_ms: None, ..attempt(number, time, ending, None, reason) }
}

fn tried(attempts: Vec<ExplainedAttempt>) -> Facts {
    Facts { attempts, ..facts() }
}

fn row(retries: u32, due_at: &str) -> SingleRow {
    SingleRow {
        retries,
        due_at: Some(at(due_at)),
        scheduled_at: at(due_at),
        failed_at: None,
        leased: false,
        leases: 0,
        has_turn: false,
    }
}

fn waiting(row: SingleRow) -> Facts {
    Facts { waiting: Some(WaitingDelivery::Alone(row)), ..facts() }
}

fn letter(reason: &str, state: &str) -> Letter {
    let settled = matches!(state, "replayed" | "discarded");
    Letter {
        id: DeadLetterId(Uuid::from_u128(9)),
        reason: reason.into(),
        retries: 0,
        policy: None,
        state: state.into(),
        at: at("08:05:00"),
        settled_at: settled.then(|| at("08:06:00")),
        replay: (state == "replayed").then(|| MessageId(Uuid::from_u128(2))),
    }
}

fn origin(breaker: &str) -> OriginState {
    OriginState { held_until: None, reason: None, breaker: breaker.into(), breaker_of_one: false, open_until: None }
}

fn subscription(facts: Facts, change: impl FnOnce(&mut Subscription)) -> Facts {
    let mut facts = facts;
    change(facts.subscription.as_mut().unwrap());
    facts
}

fn message(facts: Facts, change: impl FnOnce(&mut ExplainedMessage)) -> Facts {
    let mut facts = facts;
    change(&mut facts.message);
    facts
}

const MESSAGE: &str = "msg_00000000-0000-0000-0000-000000000001";
const OTHER: &str = "msg_00000000-0000-0000-0000-000000000002";
const HEIR: &str = "sub_00000000-0000-0000-0000-000000000003";
const LETTER: &str = "dl_00000000-0000-0000-0000-000000000009";

/// Returns facts with the expected sentence code and text.
#[rustfmt::skip]
fn table() -> Vec<(Facts, Code, String)> {
    use Code::*;
    let down = || attempt(0, "08:00:01", Ending::Retry, 503, "overloaded");
    let heir = SubscriptionId(Uuid::from_u128(3));
    let held = || SingleRow { leased: true, leases: 1, ..row(0, "08:10:20") };
    let batch = |until| Facts { waiting: Some(WaitingDelivery::InBatch { recipients: 500, lease_until: at(until) }), ..facts() };
    let case = |facts: Facts, code, text: &str| (facts, code, text.to_owned());
    let throttled = policy(PolicyLevel::Message, json!({"throttlePolicy": {"maxReceivesPerSecond": 2}}));
    let quiet = |facts| Facts { calendar: Calendar::restore("Europe/Berlin", Some(json!({"from": "22:00", "to": "10:30"})), None), ..facts };
    vec![
        case(facts(), MessageAccepted, &format!("Message {MESSAGE} of tier promotional was accepted at 2027-01-15T08:00:00Z (10 min ago); its time to live of 1 d ends at 2027-01-16T08:00:00Z (in 23 h 50 min).")),
        case(message(facts(), |m| { m.ttl_s = 60; m.expires_at = at("08:01:00"); }), MessageAccepted, &format!("Message {MESSAGE} of tier promotional was accepted at 2027-01-15T08:00:00Z (10 min ago); its time to live of 1 min ended at 2027-01-15T08:01:00Z (9 min ago).")),
        case(message(facts(), |m| m.ttl_s = 0), MessageAccepted, &format!("Message {MESSAGE} of tier promotional was accepted at 2027-01-15T08:00:00Z (10 min ago); its time to live is 0 s: it gets exactly one POST.")),
        case(message(facts(), |m| m.replay_of = Some(MessageId(Uuid::from_u128(2)))), MessageReplays, &format!("It replays message {OTHER}; a browser that showed that one drops this one.")),
        case(message(facts(), |m| { m.withdrawn_at = Some(at("08:05:00")); m.removal = Some(other()); }), MessageWithdrawn, &format!("It was withdrawn at 2027-01-15T08:05:00Z (5 min ago): message {} removes it from browsers.", other())),
        case(message(facts(), |m| m.withdrawn_at = Some(at("08:05:00"))), MessageWithdrawn, "It was withdrawn at 2027-01-15T08:05:00Z (5 min ago): no browser needs a removal, or its last pushes have not ended."),
        case(message(facts(), |m| m.withdraws = Some(other())), MessageRemoves, &format!("It removes message {} from the browsers that may have it.", other())),
        case(facts(), Addressed, "It is addressed to everybody."),
        case(message(facts(), |m| m.audience = json!({"users": [null, null]})), Addressed, "It is addressed to 2 users by id."),
        case(message(facts(), |m| m.audience = json!({"subscriptions": ["sub_1"]})), Addressed, "It is addressed to 1 subscription by id."),
        case(subscription(message(facts(), |m| m.topic = Some("news".into())), |s| s.joined_at = Some(at("07:30:00"))), Addressed, "It is addressed to topic news, which this subscription joined at 2027-01-15T07:30:00Z (40 min ago)."),
        case(message(facts(), |m| m.topic = Some("news".into())), Addressed, "It is addressed to topic news, which this subscription is not a member of now."),
        case(message(facts(), |m| m.content_deleted = true), ContentDeleted, "Its content was deleted: every delivery had ended, and no open dead letter needed it."),
        case(facts(), PolicyInForce, "By what is in force now, it is retried by the built-in policy of tier promotional: 10 retries at most."),
        case(Facts { policy: policy(PolicyLevel::Message, json!({"retries": 1})), ..facts() }, PolicyInForce, "By what is in force now, it is retried by the message's own policy: 1 retry at most."),
        case(Facts { policy: policy(PolicyLevel::Subscription, json!({"retries": 2})), ..facts() }, PolicyInForce, "By what is in force now, it is retried by the policy of its subscription: 2 retries at most."),
        case(Facts { policy: policy(PolicyLevel::Topic, json!({"retries": 2})), ..facts() }, PolicyInForce, "By what is in force now, it is retried by the policy of the message's topic: 2 retries at most."),
        case(Facts { policy: policy(PolicyLevel::Tier, json!({"retries": 2})), ..facts() }, PolicyInForce, "By what is in force now, it is retried by the app's policy for tier promotional: 2 retries at most."),
        case(Facts { letter: Some(Letter { policy: Some(json!({"maxAttempts": 3, "throttlePolicy": {"maxReceivesPerSecond": 1}})), ..letter("bad_request", "open") }), ..facts() }, PolicyWhenItDied, "When it died, its policy allowed 3 retries."),
        case(subscription(waiting(row(2, "08:09:00")), |s| s.is_successor = true), AttemptsElsewhere, "2 attempts were made to the subscription whose place this one took."),
        case(tried(vec![attempt(1, "08:01:00", Ending::Accepted, 201, "")]), AttemptsElsewhere, "1 attempt was made of which nothing is known here."),
        // What the gateway said.
        case(tried(vec![attempt(0, "08:00:01", Ending::Accepted, 201, "")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 201 after 100 ms: it took the push."),
        case(tried(vec![down()]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 503 after 100 ms, in its words “overloaded”: it could not cope, which counts as a failure for the breaker."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, 429, "")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 429 after 100 ms: it takes nothing more for this subscription for a while, and all deliveries to it wait."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, 200, "busy")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 200 after 100 ms, in its words “busy”: a header of its response states that it did not accept the push."),
        case(Facts { gateway: Some(Gateway::Mozilla), ..tried(vec![attempt(0, "08:00:01", Ending::Retry, 503, r#"sent without image: more than this gateway takes; {"errno": 202}"#)]) }, Answered, r#"POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago), without image, since mozilla takes less; mozilla answered 503 after 100 ms, in its words “{"errno": 202}”: it could not cope, and invites another try at once."#),
        case(Facts { gateway: Some(Gateway::Mozilla), ..tried(vec![attempt(0, "08:00:01", Ending::Retry, 503, r#"{"errno": 202}"#)]) }, Answered, r#"POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); mozilla answered 503 after 100 ms, in its words “{"errno": 202}”: it could not cope, and invites another try at once."#),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, 413, "too large at 3993; left out: padding")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 413 after 100 ms, in its words “too large at 3993; left out: padding”: the payload is larger than it takes."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Gone, 410, "")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 410 after 100 ms: the subscription no longer exists."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Dead, 400, "")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 400 after 100 ms: it finds the request itself wrong, so no retry would help."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Dead, 403, "")]), Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); fcm answered 403 after 100 ms: it refuses the VAPID key or its signature."),
        case(Facts { gateway: None, ..tried(vec![attempt(0, "08:00:01", Ending::Dead, 307, "")]) }, Answered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago); the push service answered 307 after 100 ms: redirects are never followed."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, None, "deadline")]), NotAnswered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago) and got no answer from fcm within 100 ms (deadline): no complete answer came before the deadline."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, None, "?")]), NotAnswered, "POST 1 left at 2027-01-15T08:00:00.900Z (9 min 59 s ago) and got no answer from fcm within 100 ms (?): why is not known."),
        // Why then.
        case(tried(vec![down(), attempt(1, "08:00:03.200", Ending::Accepted, 201, "")]), RetryByPolicy, "Retry 1 of 10 left 2.1 s after the failure before it: the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s."),
        case(tried(vec![down(), attempt(1, "08:01:01.100", Ending::Accepted, 201, "")]), RetryLater, "Retry 1 of 10 left 1 min after the failure before it, though the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s. What made it later is not stored: the push service asked for it, its lane was held or its breaker open, or quiet hours, a throttle, flow control or a pause deferred it, or a wave of retries was spread."),
        case(tried(vec![down(), attempt(1, "08:00:01.600", Ending::Accepted, 201, "")]), RetrySooner, "Retry 1 of 10 left 500 ms after the failure before it, though the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s. What made it sooner is not stored: the push service set the time or invited a retry, it was retried by request, or the policy was different then."),
        case(Facts { policy: policy(PolicyLevel::Message, json!({"retries": 0})), ..tried(vec![down(), attempt(1, "08:00:03", Ending::Accepted, 201, "")]) }, RetryUnknown, "Retry 1 of 0 left 1.9 s after the failure before it; the policy in force now has no such retry, so by what rule is not known."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Retry, 413, &size_note::tell(3_993, &["image", "actions"])), attempt(1, "08:00:01.200", Ending::Accepted, 201, "")]), RetrySmaller, "Retry 1 of 10 followed after 100 ms, made smaller: without image, actions."),
        case(Facts { policy: policy(PolicyLevel::Message, json!({"retries": 3, "retryDelay": "pow(2, retried) * 1000"})), ..tried(vec![down(), attempt(1, "08:00:02.100", Ending::Retry, 503, ""), attempt(2, "08:00:04.200", Ending::Accepted, 201, "")]) }, RetryByPolicy, "Retry 2 of 3 left 2 s after the failure before it: the policy gives 2 s, by `pow(2, retried) * 1000` ms with retried = 1."),
        case(Facts { policy: policy(PolicyLevel::Message, json!({"preset": "sns-aws-managed"})), ..tried(vec![attempt(0, "08:00:01", Ending::Retry, 429, ""), attempt(1, "08:00:10", Ending::Accepted, 201, "")]) }, RetryByPolicy, "Retry 1 of 100015 left 8.9 s after the failure before it: the policy gives 10 s, by minDelayTarget = 10 s, which jitter makes 8 s to 10 s."),
        // How it ended.
        case(tried(vec![attempt(0, "08:00:01", Ending::Accepted, 201, "")]), EndedAccepted, "It ended as accepted at 2027-01-15T08:00:01Z (9 min 59 s ago): fcm has it. Whether it was displayed, only the browser can report."),
        case(tried(vec![unsent(1, "08:00:01", Ending::Accepted, "a receipt came")]), EndedByReceipt, "It ended as accepted at 2027-01-15T08:00:01Z (9 min 59 s ago): its browser reported it, though no answer to its POST was known."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Gone, 410, "")]), EndedGone, "It ended as gone at 2027-01-15T08:00:01Z (9 min 59 s ago): its subscription was pruned, with everything that waited for it."),
        case(tried(vec![unsent(0, "08:00:01", Ending::Gone, "subscription gone")]), EndedGone, "It ended as gone at 2027-01-15T08:00:01Z (9 min 59 s ago): its subscription no longer existed."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Expired, 503, "")]), EndedExpired, "It ended as expired at 2027-01-15T08:00:01Z (9 min 59 s ago): retry 1, due 1.6 s to 2.4 s later or when the push service asked for, would have come after its time to live, which ended at 2027-01-16T08:00:00Z."),
        case(tried(vec![unsent(0, "08:00:01", Ending::Expired, "time to live is over")]), EndedExpired, "It ended as expired at 2027-01-15T08:00:01Z (9 min 59 s ago): its time to live, which ended at 2027-01-16T08:00:00Z, was over before its turn came."),
        case(tried(vec![unsent(0, "08:00:01", Ending::Expired, "held beyond its time to live")]), EndedExpired, "It ended as expired at 2027-01-15T08:00:01Z (9 min 59 s ago): quiet hours or off-peak windows would have held it beyond its time to live, which ended at 2027-01-16T08:00:00Z."),
        case(tried(vec![unsent(0, "08:00:01", Ending::Expired, "throttled beyond its time to live")]), EndedExpired, "It ended as expired at 2027-01-15T08:00:01Z (9 min 59 s ago): its subscription's throttle would have held it beyond its time to live, which ended at 2027-01-16T08:00:00Z."),
        case(Facts { letter: Some(letter("retries_exhausted", "open")), ..tried(vec![attempt(10, "08:05:00", Ending::Dead, 503, "")]) }, EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (retries_exhausted): it had used up what the policy in force now allows, 10 retries."),
        case(Facts { letter: Some(Letter { policy: Some(json!({"maxAttempts": 1})), ..letter("retries_exhausted", "open") }), ..tried(vec![attempt(1, "08:05:00", Ending::Dead, 503, "")]) }, EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (retries_exhausted): it had used up what its policy allowed, 1 retry."),
        case(Facts { letter: Some(Letter { policy: Some(json!({"maxAttempts": 10})), ..letter("retries_exhausted", "open") }), ..tried(vec![attempt(4, "08:05:00", Ending::Dead, 503, "")]) }, EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (retries_exhausted): after 4 retries the 24 hours of the guide's form were over."),
        case(Facts { letter: Some(letter("retries_exhausted", "open")), ..tried(vec![attempt(4, "08:05:00", Ending::Dead, 503, "")]) }, EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (retries_exhausted): after 4 retries its policy allowed no more; the policy of that time is no longer known."),
        case(Facts { letter: Some(letter("non_retryable", "open")), ..tried(vec![attempt(0, "08:05:00", Ending::Dead, 489, "")]) }, EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (non_retryable): it forbids another try."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Dead, "lease_exhausted")]), EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (lease_exhausted): it was claimed five times without an end, because its workers crashed."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Dead, "tampered")]), EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (tampered): its row was changed by hand."),
        case(tried(vec![attempt(0, "08:05:00", Ending::Dead, 400, "")]), EndedDead, "It ended as dead at 2027-01-15T08:05:00Z (5 min ago) (not known): why is not known."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Cancelled, "delivery cancelled")]), EndedCancelled, "It ended as cancelled at 2027-01-15T08:05:00Z (5 min ago) (delivery cancelled): this delivery was cancelled by request."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Cancelled, "unsubscribed")]), EndedCancelled, "It ended as cancelled at 2027-01-15T08:05:00Z (5 min ago) (unsubscribed): its subscription was ended."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Cancelled, "stopped")]), EndedCancelled, "It ended as cancelled at 2027-01-15T08:05:00Z (5 min ago) (stopped): its message was cancelled, or its subscription had ended, when its turn came."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Capped, "")]), EndedCapped, "It ended as capped at 2027-01-15T08:05:00Z (5 min ago): a frequency cap held it back."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Capped, "2 promotional+engagement in 1d until 2027-01-15T09:10:00Z")]), EndedCapped, "It ended as capped at 2027-01-15T08:05:00Z (5 min ago): its person had had 2 promotional or engagement messages in 1d, and may have no more until 2027-01-15T09:10:00Z (in 1 h)."),
        case(tried(vec![unsent(0, "08:05:00", Ending::Capped, "as in another browser")]), EndedCapped, "It ended as capped at 2027-01-15T08:05:00Z (5 min ago): a frequency cap had held it back in another browser of the same user, and all of them get it or none."),
        case(Facts { letter: Some(letter("bad_request", "open")), ..tried(vec![attempt(0, "08:05:00", Ending::Dead, 400, "")]) }, DeadLetter, &format!("Its dead letter {LETTER} is open: it can be replayed or discarded.")),
        case(Facts { letter: Some(letter("bad_request", "replayed")), ..facts() }, DeadLetter, &format!("Its dead letter {LETTER} was replayed at 2027-01-15T08:06:00Z (4 min ago), by message {OTHER}.")),
        case(Facts { letter: Some(letter("bad_request", "discarded")), ..facts() }, DeadLetter, &format!("Its dead letter {LETTER} was discarded at 2027-01-15T08:06:00Z (4 min ago).")),
        case(Facts { letter: Some(letter("gone", "closed")), ..facts() }, DeadLetter, &format!("Its dead letter {LETTER} is closed: it is kept for the record.")),
        case(Facts { reports: vec![ReceiptReport { kind: ReceiptKind::Clicked, at: at("08:02:00") }], ..tried(vec![attempt(0, "08:00:01", Ending::Accepted, 201, "")]) }, Reported, "Its browser reported at 2027-01-15T08:02:00Z (8 min ago) that it was clicked."),
        case(message(facts(), |m| m.history_deleted = true), HistoryDeleted, "What was attempted is not known: history as old as its message's is deleted."),
        // Where it waits.
        case(Facts { attempts: vec![down()], ..waiting(SingleRow { failed_at: Some(at("08:09:59")), ..row(1, "08:10:01") }) }, WaitsForRetry, "It waits for retry 1 of 10, planned for 2027-01-15T08:10:01Z (in 1 s): 2 s after the failure; the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s."),
        case(Facts { attempts: vec![down()], ..waiting(SingleRow { failed_at: Some(at("08:09:59")), ..row(1, "08:12:00") }) }, WaitsForRetry, "It waits for retry 1 of 10, planned for 2027-01-15T08:12:00Z (in 2 min): 2 min 1 s after the failure, though the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s: the push service asked for a later time, or a wave of retries was spread; which is not stored."),
        case(Facts { attempts: vec![down()], ..waiting(SingleRow { failed_at: Some(at("08:09:59.900")), ..row(1, "08:10:00.500") }) }, WaitsForRetry, "It waits for retry 1 of 10, planned for 2027-01-15T08:10:00.500Z (in 500 ms): 600 ms after the failure, though the policy gives 2 s, by min(600000, 2000 · 2^0) ms, which jitter makes 1.6 s to 2.4 s: the push service set the time or invited a retry, or the policy was another one then; which is not stored."),
        case(Facts { policy: policy(PolicyLevel::Message, json!({"retries": 0})), ..waiting(SingleRow { failed_at: Some(at("08:09:59")), ..row(1, "08:10:01") }) }, WaitsForRetry, "It waits for retry 1 of 0, planned for 2027-01-15T08:10:01Z (in 1 s): 2 s after the failure; the policy in force now has no such retry, so by what rule is not known."),
        case(message(waiting(row(0, "09:10:00")), |m| m.accepted_at = at("09:10:00")), WaitsScheduled, "It waits since its message is for later: it is scheduled for 2027-01-15T09:10:00Z (in 1 h)."),
        case(waiting(row(0, "08:09:00")), WaitsForTurn, "It has been due since 2027-01-15T08:09:00Z (1 min ago), and waits for its turn in its lane."),
        case(message(waiting(SingleRow { due_at: None, ..row(0, "08:09:00") }), |m| m.state = MessageState::Paused), WaitsPaused, "It waits since its message is paused; its time to live keeps running."),
        case(quiet(waiting(row(0, "09:30:00"))), WaitsForHours, "It waits for the end of quiet hours or for an off-peak window of its app: tier promotional may be sent at 2027-01-15T09:30:00Z (in 1 h 20 min) (its recipient's zone counts as Europe/Berlin, the app's is Europe/Berlin)."),
        case(subscription(quiet(waiting(row(0, "15:30:00"))), |s| s.timezone = Some("America/New_York".into())), WaitsForHours, "It waits for the end of quiet hours or for an off-peak window of its app: tier promotional may be sent at 2027-01-15T15:30:00Z (in 7 h 20 min) (its recipient's zone counts as America/New_York, the app's is Europe/Berlin)."),
        case(Facts { policy: throttled, ..waiting(SingleRow { has_turn: true, ..row(0, "08:10:03") }) }, WaitsForThrottle, "Its policy limits what one subscription receives per second to 2; its turn is at 2027-01-15T08:10:03Z (in 3 s)."),
        case(waiting(SingleRow { has_turn: true, ..row(0, "08:10:03") }), WaitsForThrottle, "Its policy limits what one subscription receives per second to a number that is no longer in force; its turn is at 2027-01-15T08:10:03Z (in 3 s)."),
        case(waiting(SingleRow { scheduled_at: at("08:00:00"), ..row(0, "08:10:30") }), WaitsPutOff, "It was deferred until 2027-01-15T08:10:30Z (in 30 s) without using up a retry. What deferred it is not stored: a hold or a breaker of its lane, or a push service that did not take the request."),
        case(waiting(SingleRow { leased: true, leases: 1, ..row(0, "08:10:20") }), HeldByWorker, "A worker holds it (leased 1 time so far); its lease lasts until 2027-01-15T08:10:20Z (in 20 s), unless renewed."),
        case(Facts { waiting: Some(WaitingDelivery::InBatch { recipients: 500, lease_until: at("08:10:20") }), ..facts() }, HeldByWorker, "A worker holds it in a batch of 500 deliveries; its lease lasts until 2027-01-15T08:10:20Z (in 20 s), unless renewed."),
        case(Facts { waiting: Some(WaitingDelivery::InBatch { recipients: 500, lease_until: at("08:09:00") }), ..facts() }, LeaseRanOut, "A worker held it in a batch of 500 deliveries, and its lease ran out at 2027-01-15T08:09:00Z (1 min ago): that worker is gone."),
        case(waiting(SingleRow { leased: true, leases: 2, ..row(0, "08:09:00") }), LeaseRanOut, "A worker held it (leased 2 times so far), and its lease ran out at 2027-01-15T08:09:00Z (1 min ago): that worker is gone."),
        case(Facts { waiting: Some(WaitingDelivery::BehindCursor { due_at: Some(at("08:10:00")) }), ..facts() }, NotFannedOut, "The fan-out of its message has not come to this subscription: it is among the recipients still to be taken."),
        case(Facts { waiting: Some(WaitingDelivery::BehindCursor { due_at: None }), ..facts() }, WaitsPaused, "It waits since its message is paused; its time to live keeps running."),
        case(subscription(facts(), |s| s.since = at("08:05:00")), NotTargeted, "The message was not for this subscription: it registered at 2027-01-15T08:05:00Z, after the message was accepted."),
        case(subscription(facts(), |s| { s.state = SubscriptionState::Unsubscribed; s.ended_at = Some(at("07:50:00")); }), NotTargeted, "The message was not for this subscription: it has been unsubscribed since 2027-01-15T07:50:00Z."),
        case(message(facts(), |m| m.topic = Some("news".into())), NotTargeted, "The message was not for this subscription: it is not a member of topic news now."),
        case(subscription(message(facts(), |m| m.topic = Some("news".into())), |s| s.joined_at = Some(at("08:01:00"))), NotTargeted, "The message was not for this subscription: it joined topic news at 2027-01-15T08:01:00Z, after the message was accepted."),
        case(message(facts(), |m| m.audience = json!({"subscriptions": []})), NotTargeted, "The message was not for this subscription: it is not among those whom the message names, or was another user's then."),
        case(judged(FilterVerdict::Sunset, 12, None), NotTargeted, "The message was not for this subscription: the message's sunset rule left it out, since its person was shown 12 messages over 60 d and never clicked one."),
        case(judged(FilterVerdict::Sunset, 12, Some(at("07:00:00"))), NotTargeted, "The message was not for this subscription: the message's sunset rule left it out, since its person was shown 12 messages over 60 d since they last clicked one, at 2027-01-15T07:00:00Z (1 h 10 min ago)."),
        case(of_group(None), NotTargeted, "The message was not for this subscription: its person is in another share of the audience: another variant, or the control group."),
        case(of_group(Some(CampaignGroup::HeldOut)), NotTargeted, "The message was not for this subscription: its person is held out: the control group of the campaign gets nothing."),
        case(of_group(Some(CampaignGroup::Variant)), NotTargeted, "The message was not for this subscription: its person gets another variant of the campaign."),
        case(of_group(Some(CampaignGroup::AfterTest)), NotTargeted, "The message was not for this subscription: its person is not in the test group of the campaign, and gets the variant that wins, if one does."),
        case(judged(FilterVerdict::AtAnotherHour, 0, Some(at("07:00:00"))), NotTargeted, "The message was not for this subscription: its person clicks most at 18:00 by their clock, and gets the campaign then."),
        case(judged(FilterVerdict::AtAnotherHour, 0, None), NotTargeted, "The message was not for this subscription: its person's own hour is not known, so that they get the campaign when it is due."),
        case(Facts { waiting: Some(WaitingDelivery::BehindCursor { due_at: Some(at("08:10:00")) }), ..judged(FilterVerdict::Taken, 0, None) }, NotFannedOut, "The fan-out of its message has not come to this subscription: whether the message is for it is decided then."),
        case(of_zone(Some("Asia/Tokyo"), Some(at("09:00:00"))), NotTargeted, "The message was not for this subscription: its campaign goes by the recipients' clock, and this message of it is for other time zones; that for Asia/Tokyo is another one, due at 2027-01-15T09:00:00Z (in 50 min)."),
        case(of_zone(None, None), NotTargeted, "The message was not for this subscription: its campaign goes by the recipients' clock, and this message of it is for other time zones; there is none for its zone (not known: it counts as the app's): its time had passed when the campaign was started, or comes after it expires."),
        case(following(false, false), NotTargeted, "The message was not for this subscription: it follows up campaign spring for recipients whose message was not clicked, which it did not get within what is remembered of spring."),
        case(following(true, true), NotTargeted, "The message was not for this subscription: it follows up campaign spring for recipients whose message was not clicked, and it was clicked there."),
        case(following(true, false), NotTargeted, "The message was not for this subscription: why is not known."),
        case(judged(FilterVerdict::Taken, 0, None), NotTargeted, "The message was not for this subscription: why is not known."),
        case(facts(), NotTargeted, "The message was not for this subscription: why is not known."),
        case(Facts { subscription: None, ..facts() }, NotTargeted, "The message was not for this subscription: why is not known."),
        case(subscription(tried(vec![down()]), |s| s.replaced_by = Some(heir)), HandedOn, &format!("Subscription {HEIR} has replaced this one, with its waiting deliveries: look there.")),
        case(subscription(waiting(row(0, "08:09:00")), |s| { s.state = SubscriptionState::Replaced; s.replaced_by = Some(heir); }), HandedOn, &format!("Subscription {HEIR} has taken the place of its own: a worker hands it on.")),
        case(message(waiting(row(0, "08:09:00")), |m| m.state = MessageState::Cancelled), WillEnd, "Its message was cancelled: when a worker claims it, it ends as cancelled without a POST."),
        case(subscription(waiting(row(0, "08:09:00")), |s| s.state = SubscriptionState::Gone), WillEnd, "Its subscription no longer exists: when a worker claims it, it ends as gone without a POST."),
        case(subscription(waiting(row(0, "08:09:00")), |s| s.state = SubscriptionState::Suspended), WillEnd, "Its subscription has ended or is suspended: when a worker claims it, it ends as cancelled without a POST."),
        case(subscription(waiting(row(0, "08:09:00")), |s| s.is_past = true), WillEnd, "It was for an earlier life of its subscription, or for another user: when a worker claims it, it ends as cancelled without a POST."),
        // What stands in its way.
        case(Facts { subscription_held_until: Some(at("08:11:00")), ..waiting(row(0, "08:09:00")) }, SubscriptionHeld, "Its push service refuses more pushes to this subscription: none is sent to it before 2027-01-15T08:11:00Z (in 1 min)."),
        case(Facts { origins: vec![OriginState { held_until: Some(at("08:11:00")), ..origin("closed") }], ..waiting(row(0, "08:09:00")) }, LaneHeld, "Its lane sends nothing before 2027-01-15T08:11:00Z (in 1 min) (throttled): its push service takes nothing more for a while."),
        case(Facts { origins: vec![OriginState { held_until: Some(at("08:11:00")), reason: Some("operator".into()), ..origin("closed") }], ..waiting(row(0, "08:09:00")) }, LaneHeld, "Its lane sends nothing before 2027-01-15T08:11:00Z (in 1 min) (operator): an operator holds it."),
        case(Facts { origins: vec![OriginState { held_until: Some(at("08:11:00")), reason: Some("key_refused".into()), ..origin("closed") }], ..waiting(row(0, "08:09:00")) }, LaneHeld, "Its lane sends nothing before 2027-01-15T08:11:00Z (in 1 min) (key_refused): its push service refuses the VAPID key."),
        case(Facts { origins: vec![OriginState { open_until: Some(at("08:10:30")), ..origin("open") }], ..waiting(row(0, "08:09:00")) }, BreakerOpen, "The breaker of its lane is open: nothing is sent before 2027-01-15T08:10:30Z (in 30 s)."),
        case(Facts { origins: vec![OriginState { open_until: Some(at("08:10:30")), breaker_of_one: true, ..origin("open") }], ..waiting(row(0, "08:09:00")) }, BreakerOpen, "The breaker of its lane, for one replica that reaches no push service, is open: nothing is sent before 2027-01-15T08:10:30Z (in 30 s)."),
        case(Facts { origins: vec![OriginState { open_until: Some(at("08:09:30")), ..origin("open") }], ..waiting(row(0, "08:09:00")) }, BreakerHalfOpen, "The breaker of its lane is half open: only probes are sent until one succeeds."),
        case(Facts { flows: vec![FlowLimit { of_lane: false, rate: None, parallelism: None, paused: true, held_at: None }], ..waiting(row(0, "08:09:00")) }, FlowPaused, "Flow control of its app is paused: nothing is let through."),
        case(Facts { flows: vec![FlowLimit { of_lane: false, rate: None, parallelism: None, paused: false, held_at: Some(at("08:07:00")) }], ..waiting(row(0, "08:09:00")) }, AppHeld, "Its app has been held since 2027-01-15T08:07:00Z (3 min ago): it sent far more than its size explains, and an operator has to release it."),
        case(Facts { flows: vec![FlowLimit { of_lane: true, rate: Some(Rate { n: 90, period: Duration::from_secs(60) }), parallelism: Some(7), paused: false, held_at: None }], ..waiting(row(0, "08:09:00")) }, FlowLimited, "Flow control lets through of its lane at most 90 per 1 min, and 7 at a time."),
        case(Facts { worker_lives: false, ..waiting(row(0, "08:09:00")) }, NoWorker, "No worker lives: nothing is sent until a process with the role worker starts."),
        // What comes next.
        case(waiting(row(0, "08:09:00")), NextPost, "Next: it is POSTed as soon as it has its turn. Its time to live ends at 2027-01-16T08:00:00Z (in 23 h 50 min); then it expires."),
        case(message(waiting(row(0, "08:10:03")), |m| m.ttl_s = 0), NextPost, "Next: it is POSTed at 2027-01-15T08:10:03Z (in 3 s) at the earliest."),
        case(Facts { origins: vec![OriginState { held_until: Some(at("08:11:00")), ..origin("closed") }], ..waiting(row(0, "08:09:00")) }, NextPost, "Next: it is POSTed at 2027-01-15T08:11:00Z (in 1 min) at the earliest. Its time to live ends at 2027-01-16T08:00:00Z (in 23 h 50 min); then it expires."),
        case(message(waiting(row(0, "08:30:00")), |m| { m.ttl_s = 900; m.expires_at = at("08:15:00"); }), NextExpires, "Next: it expires, since its time to live ends at 2027-01-15T08:15:00Z (in 5 min), before it may be sent."),
        case(message(waiting(SingleRow { due_at: None, ..row(0, "08:09:00") }), |m| m.state = MessageState::Paused), NextOpen, "Next: nothing, until the message is resumed. Its time to live ends at 2027-01-16T08:00:00Z (in 23 h 50 min); then it expires."),
        case(waiting(SingleRow { leased: true, leases: 1, ..row(0, "08:10:20") }), NextOpen, "Next: the worker POSTs it, unless it has, and settles it by the answer; should the worker die, another one takes it over after the lease."),
        case(message(waiting(held()), |m| m.state = MessageState::Paused), NextOpen, "Next: the worker parks it until its message is resumed, unless it has POSTed it already."),
        case(message(waiting(held()), |m| m.state = MessageState::Cancelled), NextOpen, "Next: unless it has POSTed it already, the worker ends it as cancelled. Its message was cancelled."),
        case(subscription(waiting(held()), |s| s.state = SubscriptionState::Gone), NextOpen, "Next: unless it has POSTed it already, the worker ends it as gone. Its subscription no longer exists."),
        case(message(batch("08:09:00"), |m| m.state = MessageState::Cancelled), WillEnd, "Its message was cancelled: when a worker claims it, it ends as cancelled without a POST."),
        case(message(batch("08:09:00"), |m| m.state = MessageState::Paused), WaitsPaused, "It waits since its message is paused; its time to live keeps running."),
        case(Facts { flows: vec![FlowLimit { of_lane: false, rate: None, parallelism: None, paused: true, held_at: None }], ..waiting(row(0, "08:09:00")) }, NextOpen, "Next: nothing, until flow control is resumed. Its time to live ends at 2027-01-16T08:00:00Z (in 23 h 50 min); then it expires."),
        case(Facts { worker_lives: false, ..waiting(row(0, "08:09:00")) }, NextOpen, "Next: nothing, until a worker starts. Its time to live ends at 2027-01-16T08:00:00Z (in 23 h 50 min); then it expires."),
        case(tried(vec![down()]), NextOpen, "Its last attempt is to be followed by a retry, which is just being written, or was ended by hand."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Accepted, 201, "")]), NextNothing, "Next: nothing from here; its browser may report that it was displayed, clicked or closed."),
        case(Facts { letter: Some(letter("bad_request", "open")), ..tried(vec![attempt(0, "08:05:00", Ending::Dead, 400, "")]) }, NextNothing, "Next: nothing automatic; its dead letter waits for an operator."),
        case(tried(vec![attempt(0, "08:00:01", Ending::Gone, 410, "")]), NextNothing, "Next: nothing."),
    ]
}

fn other() -> MessageId {
    "msg_01980000-0000-7000-8000-000000000001".parse().unwrap()
}

#[test]
fn every_sentence_says_what_the_facts_are() {
    for (facts, code, text) in table() {
        let story = tell(&facts);
        let told: Vec<_> = story.iter().filter(|sentence| sentence.code == code).map(|it| it.text.as_str()).collect();
        assert!(told.contains(&text.as_str()), "{}:\n expected {text}\n told {told:#?}\n of {story:#?}", code.name());
    }
}

#[test]
fn every_code_has_a_case() {
    let covered: BTreeSet<Code> = table().into_iter().map(|(_, code, _)| code).collect();
    let all: BTreeSet<Code> = Code::ALL.into();
    assert_eq!(covered, all);
}

/// Each statement has a fact, and each fact is stated.
#[test]
fn sentence_facts_appear_in_its_text() {
    // Whole objects, names of places that the text writes in words, and what only programs want.
    let unsaid = [
        "policy",
        "cap",
        "sunset",
        "set_by",
        "ending",
        "is_successor",
        "of_one_replica",
        "of_lane",
        "reason",
        "all",
        "to",
        "gateway",
        "earliest",
        "lease_until",
        "scheduled_at",
        "waited_s",
        "nominal_s",
        "leases",
        "retries_made",
        "retries",
        "expires_at",
        "failure",
        "settled_at",
        "since",
        "ended_at",
        "retry",
        "received",
        "did",
    ];
    for (facts, ..) in table() {
        for Sentence { code, text, facts, .. } in tell(&facts) {
            for (name, value) in facts.as_object().unwrap().iter().filter(|(name, _)| !unsaid.contains(&name.as_str()))
            {
                let said = match value {
                    Value::Null => continue,
                    Value::String(word) => word.clone(),
                    Value::Number(n) if name.ends_with("_s") => span(n.as_f64().unwrap()),
                    other => other.to_string(),
                };
                assert!(text.contains(&said), "{} says nothing of {name} = {value}: {text}", code.name());
            }
        }
    }
}

#[test]
fn story_begins_with_message_ends_with_next() {
    for (facts, ..) in table() {
        let story = tell(&facts);
        assert_eq!(story[0].code, Code::MessageAccepted);
        let last = story.last().unwrap().code;
        let ends = [
            Code::NextPost,
            Code::NextExpires,
            Code::NextOpen,
            Code::NextNothing,
            Code::NotTargeted,
            Code::HandedOn,
            Code::WillEnd,
            Code::HistoryDeleted,
            Code::NoWorker,
        ];
        assert!(ends.contains(&last), "{story:#?}");
        assert_eq!(rfc3339(facts.message.accepted_at), story[0].facts["accepted_at"]);
    }
}

#[test]
fn the_state_is_where_the_delivery_stands() {
    for (facts, state) in [
        (facts(), "none"),
        (waiting(row(0, "08:09:00")), "queued"),
        (waiting(row(1, "08:09:00")), "retrying"),
        (waiting(SingleRow { leased: true, ..row(1, "08:11:00") }), "dispatching"),
        (waiting(SingleRow { leased: true, ..row(1, "08:09:00") }), "retrying"),
        (Facts { waiting: Some(WaitingDelivery::BehindCursor { due_at: None }), ..facts() }, "queued"),
        (tried(vec![attempt(0, "08:00:01", Ending::Retry, 503, "")]), "retrying"),
        (tried(vec![attempt(0, "08:00:01", Ending::Expired, 503, "")]), "expired"),
        (Facts { letter: Some(letter("bad_request", "open")), ..facts() }, "dead"),
    ] {
        assert_eq!(facts.state(), state, "{facts:?}");
    }
}
