//! What integration tests, benchmarks and fuzz targets take from inside, by the names that it has inside. No interface for
//! anybody else: it changes with the code.

pub mod api {
    pub use crate::api::session::cookie::Cookies;
    pub use crate::api::session::relying_party::RelyingParty;
    pub use crate::api::{ApiState, EngineHandle, ApiConfig, Work, local_router, router};
    pub mod example {
        pub use crate::api::example::Example;
    }
    pub mod limits {
        pub use crate::api::limits::RequestRate;
    }
    pub mod oidc {
        pub use crate::api::session::oidc::OidcSignInConfig;
    }
}
pub mod checks {
    pub use crate::checks::Setup;
}
pub mod cli {
    pub mod admin {
        pub use crate::cli::admin::raise_open_files;
    }
}
pub mod dispatch {
    pub use crate::dispatch::{Dispatcher, DispatchConfig};
}
pub mod hooks {
    pub use crate::hooks::{Sender, pack};
}
pub mod http_server {
    pub use crate::http_server::slots::{ConnectionSlot, ConnectionSlots, Full};
    pub use crate::http_server::{ListenerLimits, serve};

    use std::sync::Arc;

    use crate::http_server::certificate::{Certificate, CurrentCertificate};
    use crate::http_server::tls::{Challenges, Tls};

    /// TLS with this certificate and key, both PEM.
    ///
    /// # Panics
    /// If they are not a pair.
    pub fn tls(chain: &str, key: &str) -> Tls {
        tls_with(chain, key, None)
    }

    /// The same, and an authority that asks for a domain is told what this finds.
    ///
    /// # Panics
    /// If they are not a pair.
    pub fn tls_with_challenge<F>(chain: &str, key: &str, find: impl Fn(String) -> F + Send + Sync + 'static) -> Tls
    where
        F: Future<Output = Option<[u8; 32]>> + Send + 'static,
    {
        tls_with(chain, key, Some(Arc::new(move |domain| Box::pin(find(domain)))))
    }

    fn tls_with(chain: &str, key: &str, challenges: Option<Challenges>) -> Tls {
        let shown = CurrentCertificate::default();
        shown.show(Certificate::parse(chain.as_bytes(), key.as_bytes()).expect("a pair"));
        Tls::new(shown.into(), challenges).expect("TLS")
    }
}
pub mod live {
    pub use crate::live::LiveConfig;
}
pub mod metrics {
    pub use crate::metrics::Metrics;
}
pub mod otlp {
    pub use crate::otlp::Tracer;
}
pub mod oidc {
    pub use crate::oidc::{ClientSecret, Provider, OidcConfig};
}
pub mod panics {
    pub use crate::panics::{counted, watch_too};
    #[cfg(debug_assertions)]
    pub use crate::panics::{inject, injected};
}
pub mod receipts {
    pub use crate::receipts::{Receipts, ReceiptConfig};
}
pub mod server {
    pub use crate::server::engine;
    pub mod campaigns {
        pub use crate::server::campaigns::advance;
    }
    pub mod maintenance {
        pub use crate::server::maintenance::{
            Retention, erase, fold_habits, fold_metrics, keep_house, refresh_statistics, remove_apps, reseal, sweep,
            tend_partitions,
        };
    }
}
pub mod store {
    pub use crate::store::{
        Beside, ChunkProgress, SchemaError, by_index_only, check_schema, connect, connect_lazily, database_now,
        is_lock_timeout, is_transient, migrate, transactions::begin,
    };
    pub mod audience {
        pub mod audience_counts {
            pub use crate::store::audience::audience_counts::{by_gateway, fold};
        }
        pub mod erasures {
            pub use crate::store::audience::erasures::{begin, erase_subscription};
        }
        pub mod registration {
            pub use crate::store::audience::registration::endpoint_mac;
        }
    }
    pub mod keys {
        pub mod api_keys {
            pub use crate::store::keys::api_keys::{create, revoke};
        }
        pub mod audit {
            pub use crate::store::keys::audit::{AuditAction, Actor, AuditEntry};
        }
        pub mod data_keys {
            pub use crate::store::keys::data_keys::{
                Error, TAKES_OVER_AFTER, add_seal_key, check, count_sealed, open, refresh, rotate_master,
            };
        }
        pub mod resealing {
            pub use crate::store::keys::resealing::seal_keys;
        }
        pub mod vapid_keys {
            pub use crate::store::keys::vapid_keys::active;
        }
    }
    pub mod operations {
        pub mod distribution {
            pub use crate::store::operations::distribution::{Distribution, DistributionError, distribute};
        }
        pub mod idempotency {
            pub use crate::store::operations::idempotency::{Claim, KeyScope, KeyedRequest, claim, hold, store};
        }
        pub mod partitions {
            pub use crate::store::operations::partitions::{clear_defaults, drop_before, ensure};
        }
        pub mod schema {
            pub use crate::store::operations::schema::{Contents, SCHEMA, SchemaError, inspect};
        }
        pub mod takeover {
            pub use crate::store::operations::takeover::{TakenOver, end_silent};
        }
        pub mod workers {
            pub use crate::store::operations::workers::{lane_states, lease_probe};
        }
    }
    pub mod outcomes {
        pub mod alerts {
            pub use crate::store::outcomes::alerts::{Alert, AlertKind, raise};
        }
        pub mod copy {
            pub use crate::store::outcomes::copy::Rows;
        }
        pub mod events {
            pub use crate::store::outcomes::events::{Event, record};
        }
        pub mod reliability {
            pub use crate::store::outcomes::reliability::{add, watch};
        }
        pub mod receipts {
            pub use crate::store::outcomes::receipts::{Receipt, kept_since, write};
        }
        pub mod rollups {
            pub use crate::store::outcomes::rollups::{MetricsKept, fold};
        }
        pub mod ledger {
            pub use crate::store::outcomes::ledger::{
                Attempt, Delivery, ClaimableAt, End, Fate, MessageOrigin, RowSettlement, Settlement, settle_rows,
            };
        }
    }
    pub mod queue {
        pub mod claims {
            pub use crate::store::queue::claims::{
                ClaimedRow, LEASE, DueSpan, TakeBatchResult, claim_rows, due_lanes, lease_lost_batch, take_batch,
            };
        }
        pub mod guards {
            pub use crate::store::queue::guards::watch;
        }
        pub mod lanes {
            pub use crate::store::queue::lanes::{ensure, hold_key};
        }
        pub mod steering {
            pub use crate::store::queue::steering::{MessageOrder, Steered, go_on, steer};
        }
        pub mod stops {
            pub use crate::store::queue::stops::{StopsRead, StopKind, read};
        }
    }
}
pub mod vault {
    pub use crate::vault::{ADDRESS, CONTENT, Purpose, Vault};
    pub mod delivery_token {
        pub use crate::vault::delivery_token::{delivery_id, receipt_token};
    }
    pub mod master_key {
        pub use crate::vault::master_key::{Error, MasterKey, MasterKeySource};
    }
}
