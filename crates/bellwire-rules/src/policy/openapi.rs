//! OpenAPI schemas of delivery policies, whose JSON is parsed by hand ([`Layer`](super::Layer)).

use std::borrow::Cow;

use serde::Serialize;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{Backoff, Preset};

/// Rate limit of deliveries to one subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ThrottlePolicy {
    /// Maximum deliveries per second.
    #[schema(minimum = 1, maximum = 4_294_967_295_u64)]
    max_receives_per_second: Option<u32>,
}

/// Properties of the request to the push service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestPolicy {
    /// Media type of the payload (RFC 9110 section 8.3.1).
    #[schema(min_length = 3, max_length = 255)]
    header_content_type: Option<String>,
}

/// Phases of retries, in the form of Amazon SNS.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HealthyRetryPolicy {
    /// Shortest delay in seconds. By default 20.
    #[schema(minimum = 0, maximum = 3_600)]
    min_delay_target: Option<u32>,
    /// Longest delay in seconds. By default 20.
    #[schema(minimum = 0, maximum = 3_600)]
    max_delay_target: Option<u32>,
    /// Retries of all phases together. By default 3.
    #[schema(minimum = 0, maximum = 100)]
    num_retries: Option<u32>,
    /// Initial retries without delay.
    #[schema(minimum = 0, maximum = 100)]
    num_no_delay_retries: Option<u32>,
    /// Retries at the shortest delay, before the backoff.
    #[schema(minimum = 0, maximum = 100)]
    num_min_delay_retries: Option<u32>,
    /// Retries at the longest delay, after the backoff.
    #[schema(minimum = 0, maximum = 100)]
    num_max_delay_retries: Option<u32>,
    /// Growth of the delays in the backoff phase. By default `linear`.
    backoff_function: Option<Backoff>,
}

/// Declares one form of a policy, with the members that each form may have for a tier or a topic.
macro_rules! form {
    ($(#[$about:meta])* $Name:ident { $($(#[$field_about:meta])* $field:ident: $Type:ty,)* }) => {
        $(#[$about])*
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct $Name {
            $($(#[$field_about])* $field: $Type,)*
            /// Topics only: ignores the policies of subscriptions.
            disable_subscription_overrides: Option<bool>,
            /// Tiers only: share of failed attempts that opens a lane's circuit breaker.
            #[schema(exclusive_minimum = 0, maximum = 1)]
            circuit_failure_threshold: Option<f64>,
            /// Tiers only: minimum number of attempts to compute that share.
            #[schema(minimum = 1, maximum = 1_000_000)]
            circuit_min_attempts: Option<u32>,
            /// Tiers only: consecutive failures that open the circuit breaker.
            #[schema(minimum = 1, maximum = 1_000)]
            circuit_consecutive_failures: Option<u32>,
            /// Tiers only: duration of the circuit breaker's first opening, in milliseconds.
            #[schema(minimum = 1_000, maximum = 600_000)]
            circuit_open_ms: Option<u32>,
            /// Tiers only: longest opening of the circuit breaker, in milliseconds.
            #[schema(minimum = 1_000, maximum = 600_000)]
            circuit_open_max_ms: Option<u32>,
            /// Tiers only: validity of a retry token in seconds. A later retry reads its state again.
            #[schema(minimum = 1, maximum = 86_400)]
            retry_token_ttl_sec: Option<u32>,
        }
    };
}

form! {
    /// Policy in the form of the web-push retry guide: exponential backoff with jitter.
    GuidePolicy {
        /// `guide`: the values of the guide.
        #[schema(pattern = "^guide$")]
        preset: Option<String>,
        /// Delay before the first retry, in milliseconds.
        #[schema(minimum = 1, maximum = 86_400_000)]
        base_delay_ms: Option<u32>,
        /// Longest delay, in milliseconds.
        #[schema(minimum = 1, maximum = 86_400_000)]
        max_delay_ms: Option<u32>,
        /// Maximum retries.
        #[schema(minimum = 0, maximum = 100)]
        max_attempts: Option<u32>,
        /// Jitter as a share of the delay, 0 to 1.
        #[schema(minimum = 0, maximum = 1)]
        jitter_percent: Option<f64>,
        /// Initial retries without delay.
        #[schema(minimum = 0, maximum = 100)]
        immediate_retries: Option<u32>,
    }
}

form! {
    /// Policy in the form of QStash: a number of retries, and an expression for the delay.
    ScriptedPolicy {
        /// Maximum retries. By default the app's `max_retries`.
        #[schema(minimum = 0, maximum = 1_000)]
        retries: Option<u32>,
        /// Delay in milliseconds, as an expression over `retried` such as `pow(2, retried) * 1000`.
        #[schema(min_length = 1, max_length = 256)]
        retry_delay: Option<String>,
        /// In responses only, if request headers set the retries: rate limit in the policy of the body.
        throttle_policy: Option<ThrottlePolicy>,
        /// In responses only, if request headers set the retries: request properties in the policy of the body.
        request_policy: Option<RequestPolicy>,
    }
}

form! {
    /// Policy in the form of Amazon SNS: phases of retries, or a preset.
    PhasedPolicy {
        /// Name of a predefined timetable, instead of `healthyRetryPolicy`.
        preset: Option<Preset>,
        healthy_retry_policy: Option<HealthyRetryPolicy>,
        throttle_policy: Option<ThrottlePolicy>,
        request_policy: Option<RequestPolicy>,
        /// Deprecated, without effect.
        #[schema(value_type = Option<Object>)]
        sickly_retry_policy: Option<()>,
        /// Deprecated, without effect.
        guaranteed: Option<bool>,
    }
}

/// Delivery policy in one of three forms. Members of several forms cannot be combined.
#[derive(Debug)]
pub struct DeliveryPolicy;

impl PartialSchema for DeliveryPolicy {
    fn schema() -> RefOr<Schema> {
        let forms = [GuidePolicy::name(), PhasedPolicy::name(), ScriptedPolicy::name()];
        let refs = forms.into_iter().map(Ref::from_schema_name);
        let about = "Delivery policy in one of three forms. Members of several forms cannot be combined.";
        let any = refs.fold(AnyOfBuilder::new(), AnyOfBuilder::item).description(Some(about)).build();
        Schema::AnyOf(any).into()
    }
}

impl ToSchema for DeliveryPolicy {
    fn name() -> Cow<'static, str> {
        "DeliveryPolicy".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend([
            (GuidePolicy::name().into_owned(), GuidePolicy::schema()),
            (PhasedPolicy::name().into_owned(), PhasedPolicy::schema()),
            (ScriptedPolicy::name().into_owned(), ScriptedPolicy::schema()),
        ]);
        PhasedPolicy::schemas(schemas);
    }
}
