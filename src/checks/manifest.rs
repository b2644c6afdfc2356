//! Check of a site's web app manifest, for `bellwire doctor --site`. The operator names the site, so it may be a private host.

use http::StatusCode;
use http::header::LOCATION;
use serde_json::{Map, Value};
use url::Url;

use super::network::{LIMITS, get};
use super::rules::manifest::{PageLinks, faults};
use super::{CheckResult, Finding};
use bellwire_net::outbound::{OutboundClient, PlainHttp};

const CHECK: &str = "web app manifest";
/// Maximum redirects of one request.
const REDIRECTS_MAX: usize = 5;
const EXAMPLE: &str = r#"{"id": "/", "name": "NAME", "start_url": "/", "display": "standalone", "icons": [{"src": "/icon.png", "sizes": "192x192", "type": "image/png"}]}"#;

/// Checks the manifest that a page links. Redirects are followed.
pub(crate) async fn look(page: &Url) -> CheckResult {
    let client = match OutboundClient::new(None, None, PlainHttp::Anywhere, LIMITS) {
        Ok(client) => client,
        Err(error) => return CheckResult::unknown(CHECK, error),
    };
    match examine(&client, page).await {
        Ok(faults) if faults.is_empty() => CheckResult::ok(CHECK, format!("{page}: iPhones and iPads can add it")),
        Ok(faults) => warning(page, "iPhones and iPads cannot use the manifest").advise(faults.join(" ")).by(EXAMPLE),
        Err(reason) => warning(page, &reason)
            .advise("Serve the page and its manifest without a login, and link the manifest from every page.")
            .by("<link rel=\"manifest\" href=\"/manifest.webmanifest\">"),
    }
}

fn warning(page: &Url, detail: &str) -> Finding {
    CheckResult::warning(CHECK, format!("{page}: {detail}"))
}

/// Returns the faults of a manifest, or why there is none.
async fn examine(client: &OutboundClient, page: &Url) -> Result<Vec<String>, String> {
    let (page, html) = read(client, page.clone()).await?;
    let links = PageLinks::of(&String::from_utf8_lossy(&html));
    let href = links.manifest.ok_or("it links no manifest")?;
    let at = page.join(&href).map_err(|error| format!("the link of its manifest is not a URL: {error}"))?;
    let (at, json) = read(client, at).await?;
    let manifest: Map<String, Value> =
        serde_json::from_slice(&json).map_err(|error| format!("{at} is not a JSON object: {error}"))?;
    Ok(faults(&manifest, &page, &at, links.has_touch_icon))
}

/// Requests a URL and follows its redirects. Returns the last URL and its content.
async fn read(client: &OutboundClient, mut url: Url) -> Result<(Url, Vec<u8>), String> {
    for _ in 0..=REDIRECTS_MAX {
        let request = get(&url).ok_or_else(|| format!("{url} cannot be requested"))?;
        let response = client.exchange(request).await.map_err(|error| error.to_string())?;
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        match (response.status(), location) {
            (StatusCode::OK, _) => return Ok((url, response.into_body().to_vec())),
            (status, Some(location)) if status.is_redirection() => {
                url = url.join(location).map_err(|error| format!("the redirect of {url} is not a URL: {error}"))?;
            }
            (status, _) => return Err(format!("{url} answers {status}")),
        }
    }
    Err(format!("more than {REDIRECTS_MAX} redirects, the last to {url}"))
}
