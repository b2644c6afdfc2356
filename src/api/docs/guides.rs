//! `/docs/guides/`: the guides of this version as pages, and a search in them. `….md` is a guide's source.

mod markdown;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::Value;

use super::{operations, page, text};
use crate::api::http::extract::Query;
use crate::api::http::problem::Problem;
use crate::api::site;

/// Path of the guides on a server, and below which build.rs embeds them.
pub(in crate::api) const ROOT: &str = "/docs/guides/";
const QUERY_MAX_CHARS: usize = 100;
const TERMS_MAX: usize = 8;
const RESULTS_MAX: usize = 30;
/// Bytes of an excerpt before and after the first search term.
const EXCERPT: (usize, usize) = (60, 180);
/// Maximum occurrences in a section that count for its score.
const OCCURRENCES_MAX: usize = 3;
/// Score of a section that contains the whole search text.
const PHRASE_POINTS: usize = 2;

pub(super) struct Guide {
    /// Path below [`ROOT`]. Empty for the list of guides.
    pub name: String,
    pub title: String,
    /// First paragraph: the purpose of the guide.
    pub about: String,
    /// Body without its first heading.
    html: String,
    /// Text by heading. The first section has the title of the guide.
    sections: Vec<Section>,
}

#[derive(Default)]
struct Section {
    /// Empty for the beginning of the guide.
    anchor: String,
    heading: String,
    text: String,
    /// Level of the heading: 1 is the title.
    level: u8,
}

/// Returns all guides by name. The first call renders them.
pub(super) fn all(description: &Value) -> &'static BTreeMap<String, Guide> {
    static GUIDES: OnceLock<BTreeMap<String, Guide>> = OnceLock::new();
    GUIDES.get_or_init(|| {
        let routes = operations(description).map(|(path, method, operation)| {
            let route = format!("{} {path}", method.to_uppercase());
            (markdown::unnamed(&route), text(&operation["operationId"]).to_owned())
        });
        let routes = routes.collect();
        let sources = site::paths().filter_map(|path| path.strip_prefix(ROOT)?.strip_suffix(".md"));
        sources.map(|name| markdown::read(name, &routes)).map(|guide| (guide.name.clone(), guide)).collect()
    })
}

#[derive(Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    q: String,
}

/// Returns the list of guides, or the search results.
pub(super) async fn index(
    State(description): State<Arc<Value>>, Query(Search { q }): Query<Search>,
) -> Result<Response, Problem> {
    if q.chars().count() > QUERY_MAX_CHARS {
        return Err(Problem::invalid_parameter("q", format!("must have at most {QUERY_MAX_CHARS} characters")));
    }
    let guides = all(&description);
    match (q.trim(), guides.get("")) {
        ("", Some(guide)) => Ok(page(&guide.title, "", &body(guide))),
        ("", None) => Err(Problem::not_found("guide")),
        (wanted, _) => Ok(page("Search the guides", wanted, &results(guides, wanted))),
    }
}

/// Returns a guide, its source, or a picture.
pub(super) async fn show(
    State(description): State<Arc<Value>>, uri: Uri, headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(response) = site::embedded(uri.path(), &headers) {
        return Ok(response);
    }
    let name = uri.path().strip_prefix(ROOT).filter(|name| !name.is_empty());
    let guide = name.and_then(|name| all(&description).get(name)).ok_or_else(|| Problem::not_found("guide"))?;
    Ok(page(&guide.title, "", &body(guide)))
}

fn body(guide: &Guide) -> Markup {
    let parts: Vec<_> = guide.sections.iter().filter(|section| section.level == 2).collect();
    html! {
        @if parts.len() > 2 {
            nav.contents aria-label="On this page" {
                ul { @for part in parts { li { a href={ "#" (part.anchor) } { (part.heading) } } } }
            }
        }
        (PreEscaped(&guide.html))
        p.soft { "Guide of Bellwire " (env!("CARGO_PKG_VERSION")) }
    }
}

fn results(guides: &BTreeMap<String, Guide>, wanted: &str) -> Markup {
    let terms = terms(wanted);
    let found = found(guides.values(), &terms, &wanted.to_ascii_lowercase());
    html! {
        @if found.is_empty() {
            p role="status" { "No guide contains “" (wanted) "”. Check the spelling, or see the " a href=(ROOT) { "list of guides" } "." }
        } @else {
            p role="status" { (found.len()) @if found.len() == RESULTS_MAX { " or more" } " sections contain “" (wanted) "”." }
        }
        @for (guide, section) in found {
            h2 {
                a href={ (ROOT) (guide.name) @if !section.anchor.is_empty() { "#" (section.anchor) } } {
                    (guide.title) @if section.heading != guide.title { ": " (section.heading) }
                }
            }
            p { (excerpt(&section.text, &terms)) }
        }
    }
}

/// Returns the distinct words of a search text, in lower case.
fn terms(wanted: &str) -> Vec<String> {
    let wanted = wanted.to_ascii_lowercase();
    let mut terms: Vec<String> = Vec::new();
    for term in wanted.split(|c: char| !is_of_word(c)).filter(|term| !term.is_empty()) {
        if terms.len() < TERMS_MAX && !terms.iter().any(|known| known == term) {
            terms.push(term.to_owned());
        }
    }
    terms
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the offsets of words that begin with a term. `text` and `term` are in lower case.
fn occurrences<'a>(text: &'a str, term: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(term).map(|(at, _)| at).filter(|&at| !text[..at].chars().next_back().is_some_and(is_of_word))
}

/// Returns the matching sections, the best first: those with the most terms, and of these the ones with terms in headings.
fn found<'a>(guides: impl Iterator<Item = &'a Guide>, terms: &[String], phrase: &str) -> Vec<(&'a Guide, &'a Section)> {
    let mut found = Vec::new();
    for guide in guides {
        let title = guide.title.to_ascii_lowercase();
        for section in &guide.sections {
            let [heading, text] = [&section.heading, &section.text].map(|part| part.to_ascii_lowercase());
            let points = terms.iter().map(|term| {
                let has = |part: &str| usize::from(occurrences(part, term).next().is_some());
                let here = 8 * has(&heading) + occurrences(&text, term).take(OCCURRENCES_MAX).count();
                here + if here > 0 { 2 * has(&title) } else { 0 }
            });
            let points: Vec<_> = points.filter(|&points| points > 0).collect();
            if !points.is_empty() {
                let phrases = PHRASE_POINTS * occurrences(&text, phrase).take(OCCURRENCES_MAX).count();
                found.push(((points.len(), points.iter().sum::<usize>() + phrases), guide, section));
            }
        }
    }
    found.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
    found.into_iter().take(RESULTS_MAX).map(|(_, guide, section)| (guide, section)).collect()
}

/// Part of a text around its first term, with all terms marked.
fn excerpt(text: &str, terms: &[String]) -> Markup {
    let lower = text.to_ascii_lowercase(); // of the same length
    let mut places: Vec<_> =
        terms.iter().flat_map(|term| occurrences(&lower, term).map(|at| (at, term.len()))).collect();
    places.sort_unstable_by_key(|&(at, length)| (at, std::cmp::Reverse(length)));
    let first = places.first().map_or(0, |&(at, _)| at);
    let start = match first.checked_sub(EXCERPT.0) {
        Some(earliest) => text[..first]
            .char_indices()
            .rev()
            .take_while(|&(at, _)| at > earliest)
            .filter(|(_, c)| *c == ' ')
            .last()
            .map_or(first, |(at, _)| at + 1),
        None => 0,
    };
    let end =
        text[first..].char_indices().skip(EXCERPT.1).find(|(_, c)| *c == ' ').map_or(text.len(), |(at, _)| first + at);
    let mut at = start;
    let mut parts = Vec::new();
    for (place, length) in places.into_iter().filter(|&(place, length)| place + length <= end) {
        if place >= at {
            parts.push((&text[at..place], &text[place..place + length]));
            at = place + length;
        }
    }
    html! {
        @if start > 0 { "… " }
        @for (before, term) in parts { (before) mark { (term) } }
        (&text[at..end])
        @if end < text.len() { " …" }
    }
}
