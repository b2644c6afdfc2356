//! Internal items for integration tests and benchmarks, under their internal paths. Not a public interface: it changes with the code.

pub mod api {
    pub use crate::api::session::cookie::Cookies;
    pub use crate::api::session::relying_party::RelyingParty;
    pub use crate::api::{
        ApiConfig, ApiState, EngineHandle, Example, OidcSignInConfig, RequestRate, Work, local_router, router,
    };
}
pub mod checks {
    pub use crate::checks::Setup;
}
pub mod cli {
    pub mod admin {
        pub use crate::cli::admin::raise_open_files;
    }
}
pub mod config {
    pub use crate::config::McpAccess;
}
pub mod hooks {
    pub use crate::hooks::{Sender, pack};
}
pub mod http_server {
    use std::sync::Arc;

    use bellwire_net::http_server::certificate::{Certificate, CurrentCertificate};
    use bellwire_net::http_server::tls::{Challenges, Tls};

    /// Returns TLS with this certificate and key, both PEM.
    ///
    /// # Panics If they do not match.
    pub fn tls(chain: &str, key: &str) -> Tls {
        tls_with(chain, key, None)
    }

    /// Builds TLS whose TLS-ALPN-01 challenges are answered with the result of this function.
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
pub mod receipts {
    pub use crate::receipts::{ReceiptConfig, Receipts};
}
pub mod server {
    pub use crate::server::engine;
    pub mod campaigns {
        pub use crate::server::campaigns::advance;
    }
    pub mod measuring {
        pub use crate::server::measuring::measure;
    }
    pub mod triggers {
        pub use crate::server::triggers::send_due;
    }
    pub mod maintenance {
        pub use crate::server::maintenance::{
            Retention, erase, fold_habits, fold_metrics, keep_house, refresh_statistics, remove_apps, reseal, sweep,
            tend_partitions,
        };
    }
}
