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
    RequestLabels { method: String, route: String, status: u16 }
    OutcomeLabel { outcome: &'static str }
    PoolLabels { pool: &'static str, state: &'static str }
    FaultLabel { fault: &'static str }
    SliLabels { sli: &'static str, lane: i32, gateway: &'static str, tier: &'static str }
}
