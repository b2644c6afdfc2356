//! HTTPS without a proxy: the source of the certificate, and its renewal.

mod files;
mod orders;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tracing::info;

use super::context::Context;
use crate::config::Config;
use bellwire_net::http_server::certificate::{Certificate, CurrentCertificate};
use bellwire_net::http_server::tls::Tls;
use bellwire_telemetry::metrics::Metrics;

/// TLS of a listener, and the endless task that renews its certificate.
pub(super) struct Https {
    pub tls: Tls,
    pub keep: Pin<Box<dyn Future<Output = ()> + Send>>,
}
#[derive(Clone)]
struct Show {
    shown: Arc<CurrentCertificate>,
    metrics: Arc<Metrics>,
}

impl Show {
    fn show(&self, certificate: Certificate) {
        self.metrics.certificate_expires_s.set(certificate.not_after.timestamp() as f64);
        info!(until = %certificate.not_after, "a certificate is shown");
        self.shown.show(certificate);
    }
}

/// Opens HTTPS as configured; `None` without HTTPS. Fails for unusable files. A certificate that must still be ordered
/// does not delay the start.
pub(super) async fn open(context: &Context, config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Https>> {
    let show = Show { shown: Arc::default(), metrics: metrics.clone() };
    if let (Some(chain), Some(key)) = (&config.tls_cert, &config.tls_key) {
        let files = files::Files { chain: chain.clone(), key: key.clone() };
        let tls = Tls::new(show.shown.clone(), None)?;
        let keep = files::open(files, show, context.clock.clone()).await?;
        return Ok(Some(Https { tls, keep: Box::pin(keep) }));
    }
    let Some(domain) = &config.acme_domain else { return Ok(None) };
    let orders = Arc::new(orders::Orders::new(context, config, domain, show.clone())?);
    orders.show_stored().await;
    let tls = Tls::new(show.shown, Some(orders.clone().challenges()))?;
    Ok(Some(Https { tls, keep: Box::pin(orders.keep()) }))
}
