//! Label sets of the series.

/// Labels with their values.
pub type Labels = Vec<(&'static str, String)>;

pub(super) trait LabelSet: Clone + Ord + std::fmt::Debug + Send + Sync + 'static {
    fn labels(&self) -> Labels;
}

/// Declares label sets by the names of their labels and the types of their values.
macro_rules! label_sets {
    ($($Labels:ident { $($label:ident: $Value:ty),+ })+) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $Labels {
            $(pub(super) $label: $Value,)+
        }

        impl LabelSet for $Labels {
            fn labels(&self) -> Labels {
                vec![$((stringify!($label), self.$label.to_string())),+]
            }
        }
    )+};
}

label_sets! {
    AttemptLabels { gateway: &'static str, status: &'static str, tier: &'static str }
    GatewayLabel { gateway: &'static str }
    EndingLabels { ending: &'static str, tier: &'static str }
    TierLabel { tier: &'static str }
    KindLabel { kind: &'static str }
    OutcomeLabel { outcome: &'static str }
    PoolLabels { pool: &'static str, state: &'static str }
    FaultLabel { fault: &'static str }
    StepLabel { step: &'static str }
    SliLabels { sli: &'static str, lane: i32, gateway: &'static str, tier: &'static str }
}

/// Labels of a request, with the names of OpenTelemetry's semantic conventions as Prometheus spells them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestLabels {
    pub(super) method: &'static str,
    pub(super) route: String,
    pub(super) status: u16,
    pub(super) scheme: &'static str,
}

impl LabelSet for RequestLabels {
    /// Omits the route of a request without one, and the error unless the server failed.
    fn labels(&self) -> Labels {
        let status = self.status.to_string();
        let error = (self.status >= 500).then(|| ("error_type", status.clone()));
        let route = (!self.route.is_empty()).then(|| ("http_route", self.route.clone()));
        let labels = [
            ("http_request_method", self.method.to_owned()),
            ("http_response_status_code", status),
            ("url_scheme", self.scheme.to_owned()),
        ];
        labels.into_iter().chain(route).chain(error).collect()
    }
}
