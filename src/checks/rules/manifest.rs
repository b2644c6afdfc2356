//! Rules for the web app manifest of a site, which iPhones and iPads need for web push (W3C Web Application Manifest).

use html5gum::{Token, Tokenizer};
use serde_json::{Map, Value};
use url::Url;

/// Minimum width of an icon for the Home Screen in pixels.
const ICON_MIN_PX: u32 = 192;

/// Parts of a page that concern the Home Screen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::checks) struct PageLinks {
    /// Address of the manifest, as the page links it.
    pub manifest: Option<String>,
    /// Whether the page links an icon that iPhones use without a manifest.
    pub has_touch_icon: bool,
}

impl PageLinks {
    /// Reads the `link` elements of an HTML page. As in browsers, the first manifest counts.
    pub(in crate::checks) fn of(html: &str) -> Self {
        let mut links = Self::default();
        for Ok(token) in Tokenizer::new(html) {
            let Token::StartTag(tag) = token else { continue };
            if *tag.name != b"link"[..] {
                continue;
            }
            let value = |name: &[u8]| {
                let value = tag.attributes.get(name)?;
                Some(String::from_utf8_lossy(value).trim().to_owned()).filter(|value| !value.is_empty())
            };
            let (Some(rel), Some(href)) = (value(b"rel"), value(b"href")) else { continue };
            let is = |kind: &str| rel.split_ascii_whitespace().any(|rel| rel.eq_ignore_ascii_case(kind));
            let is_touch_icon = is("apple-touch-icon") || is("apple-touch-icon-precomposed");
            links.has_touch_icon |= is_touch_icon && !href.ends_with(".svg");
            if is("manifest") && links.manifest.is_none() {
                links.manifest = Some(href);
            }
        }
        links
    }
}

/// Points of a manifest to correct, one sentence each. `page` is a page that links it, `at` its own address.
pub(in crate::checks) fn faults(
    manifest: &Map<String, Value>, page: &Url, at: &Url, has_touch_icon: bool,
) -> Vec<String> {
    let text = |name: &str| manifest.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let mut faults = Vec::new();
    if text("name").or_else(|| text("short_name")).is_none() {
        faults.push("Set \"name\" or \"short_name\".".to_owned());
    }
    if !matches!(text("display"), Some("standalone" | "fullscreen")) {
        let ignored = match manifest.contains_key("display_override") {
            true => ", because iPhones and iPads ignore \"display_override\"",
            false => "",
        };
        faults.push(format!("Set \"display\" to \"standalone\" or \"fullscreen\"{ignored}."));
    }
    let icons = manifest.get("icons").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !has_touch_icon && !icons.iter().any(is_usable_icon) {
        let kind = "of 192 pixels or more to \"icons\" (PNG, not SVG), or link an apple-touch-icon";
        faults.push(format!("Add an icon {kind}."));
    }
    faults.extend(place_fault(text("start_url"), text("scope"), page, at));
    faults
}

/// Whether an icon can be drawn before iOS 26 and is not only maskable or monochrome.
fn is_usable_icon(icon: &Value) -> bool {
    let text = |name: &str| icon[name].as_str().unwrap_or_default();
    let is_svg = [text("src"), text("type")].iter().any(|text| text.to_ascii_lowercase().contains("svg"));
    let purpose = icon["purpose"].as_str().unwrap_or("any");
    let width = |size: &str| size.split(['x', 'X']).next().and_then(|px| px.parse().ok()).unwrap_or(0u32);
    !is_svg
        && purpose.split_ascii_whitespace().any(|purpose| purpose == "any")
        && text("sizes").split_ascii_whitespace().any(|size| width(size) >= ICON_MIN_PX)
}

/// Fault of `start_url` or `scope`, whose defaults are the page and the directory of `start_url`.
fn place_fault(start_url: Option<&str>, scope: Option<&str>, page: &Url, at: &Url) -> Option<String> {
    let own = page.origin();
    let start = start_url.map_or_else(|| Some(page.clone()), |start| at.join(start).ok());
    let Some(start) = start.filter(|start| start.origin() == own) else {
        return Some(format!("Set \"start_url\" to a page of {}.", own.ascii_serialization()));
    };
    let scope = scope.map_or_else(|| start.join("."), |scope| at.join(scope)).ok()?;
    let covers = |url: &Url| url.origin() == scope.origin() && url.path().starts_with(scope.path());
    let missed: Vec<_> = [&start, page].into_iter().filter(|url| !covers(url)).map(|url| url.path()).collect();
    (!missed.is_empty()).then(|| format!("Set a \"scope\" that covers {}.", missed.join(" and ")))
}

#[cfg(test)]
#[path = "../../../tests/unit/checks/rules/manifest.rs"]
mod tests;
