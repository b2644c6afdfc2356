//! HTTPS without a proxy: where the certificate comes from that a listener shows, and how it is kept up to date.

mod files;
mod orders;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tracing::info;

use super::context::Context;
use crate::config::Config;
use crate::http_server::certificate::{Certificate, Shown};
use crate::http_server::tls::Tls;
use crate::metrics::Metrics;

/// HTTPS, and what keeps its certificate up to date, for ever.
pub(super) struct Https {
    /// For the listener.
    pub tls: Tls,
    /// To be run beside it.
    pub keep: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What is shown, told to everybody who wants to know.
#[derive(Clone)]
struct Show {
    shown: Arc<Shown>,
    metrics: Arc<Metrics>,
}

impl Show {
    /// Shows a certificate from now on.
    fn show(&self, certificate: Certificate) {
        self.metrics.certificate_expires_s.set(certificate.not_after.timestamp() as f64);
        info!(until = %certificate.not_after, "a certificate is shown");
        self.shown.show(certificate);
    }
}

/// Opens what the settings ask for; none: no HTTPS. Fails where files cannot be used; a certificate that is still to be ordered keeps nobody
/// from starting.
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
