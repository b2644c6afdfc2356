//! Check of the expiry of the certificate for HTTPS.

use std::fmt::Display;

use sqlx::PgPool;

use super::{Certificate, CheckResult, Health};
use bellwire_core::clock::Timestamp;
use bellwire_net::http_server::certificate::validity;
use bellwire_store::keys::certificates::{self, AcmeScope};

pub(super) const CHECK: &str = "certificate";
/// Days before the expiry of a certificate from a file at which the result is a warning, and a failure. A certificate from ACME
/// is renewed in time unless an order fails.
const DAYS_LEFT: [i64; 2] = [14, 3];

#[derive(Debug)]
pub(super) struct CertificateFinding {
    place: String,
    is_ordered: bool,
    /// End of validity; `None` before the first order.
    not_after: Option<Timestamp>,
    failure: Option<String>,
}

pub(super) async fn look(
    pool: &PgPool, certificate: &Certificate,
) -> Result<CertificateFinding, Box<dyn Display + Send>> {
    match certificate {
        Certificate::File(file) => {
            let place = file.display().to_string();
            let text = |error: &dyn Display| -> Box<dyn Display + Send> { Box::new(format!("{place}: {error}")) };
            let read = super::blocking({
                let file = file.clone();
                move || std::fs::read(file)
            });
            let chain = read.await.map_err(|error| text(&error))?;
            let (_, not_after) = validity(&chain).map_err(|error| text(&error))?;
            Ok(CertificateFinding { place, is_ordered: false, not_after: Some(not_after), failure: None })
        }
        Certificate::Ordered { directory, domain } => {
            let place = AcmeScope { directory: directory.clone(), domain: domain.clone() };
            let found = certificates::standing(pool, &place).await;
            let standing = found.map_err(|error| -> Box<dyn Display + Send> { Box::new(error) })?;
            Ok(CertificateFinding {
                place: place.domain,
                is_ordered: true,
                not_after: standing.not_after,
                failure: standing.failure,
            })
        }
    }
}

pub(super) fn judge(found: &CertificateFinding, now: Timestamp) -> CheckResult {
    let CertificateFinding { place, is_ordered, not_after, failure } = found;
    let is_good = not_after.is_some_and(|not_after| not_after > now);
    let at = |time: &Timestamp| time.format("%Y-%m-%d %H:%M UTC").to_string();
    let days = not_after.map(|not_after| (not_after - now).num_days());
    let said = match (not_after, days) {
        (Some(not_after), Some(days)) if is_good => {
            format!("The certificate of {place} is good for {days} more days, until {}.", at(not_after))
        }
        (Some(not_after), _) => format!("The certificate of {place} has expired, on {}.", at(not_after)),
        (None, _) => format!("There is no certificate of {place} yet."),
    };
    let detail = failure.as_ref().map_or(said.clone(), |why| format!("{said} The last order failed: {why}."));
    let [little, urgent] = DAYS_LEFT;
    match days {
        Some(days) if failure.is_none() && (days >= little || (*is_ordered && is_good)) => {
            return CheckResult::ok(CHECK, detail);
        }
        Some(days) if days >= urgent => CheckResult::warning(CHECK, detail),
        None if failure.is_none() => CheckResult::warning(CHECK, detail),
        _ => CheckResult::finding(CHECK, Health::Failure, detail),
    }
    .advise("Replace a certificate in a file yourself; the server reads it as soon as it changes. The server orders a certificate by ACME: \
             the authority must reach port 443 of that host.")
    .by(match is_ordered {
        true => format!("curl -sv -o /dev/null https://{place}/healthz"),
        false => format!("openssl x509 -noout -enddate -in {place}"),
    })
}

#[cfg(test)]
#[path = "../../tests/unit/checks/certificate.rs"]
mod tests;
