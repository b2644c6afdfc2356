//! Language tags (BCP 47), read from the forms that browsers, operating systems and databases write.

use icu_locale::{LocaleCanonicalizer, LocaleExpander, LocaleFallbacker};
use icu_locale_core::subtags::Script;
use icu_locale_core::{LanguageIdentifier, Locale};

use super::message::LANG_MAX;

/// Returns the first language of a text as a BCP 47 tag in its usual case: `de_at.UTF-8` is `de-AT`. `None`: no language is named,
/// as in `C`, `*` or `German (Austria)`.
///
/// Reads POSIX names with code set and modifier, and lists in order of preference (`de-AT,de;q=0.9`, `de_AT:de`).
pub fn language_tag(text: &str) -> Option<String> {
    text.split([',', ':']).filter_map(|item| item.split(';').next()).find_map(|item| one(item.trim()))
}

fn one(item: &str) -> Option<String> {
    let (name, modifier) = item.split_once('@').unwrap_or((item, ""));
    let name = name.split('.').next()?.replace('_', "-");
    if !name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-') {
        return None;
    }
    let mut locale = longest(&name)?;
    // Longer subtags are reserved: these are words such as `German`, not codes.
    if locale.id.language.is_unknown() || locale.id.language.as_str().len() > 3 {
        return None;
    }
    match modifier {
        "latin" => locale.id.script = Script::try_from_str("Latn").ok(),
        "cyrillic" => locale.id.script = Script::try_from_str("Cyrl").ok(),
        "devanagari" => locale.id.script = Script::try_from_str("Deva").ok(),
        _ => {}
    }
    // A tag that is too long loses its extensions.
    [locale.to_string(), locale.id.to_string()].into_iter().find(|tag| tag.len() <= LANG_MAX)
}

/// Parses the longest valid beginning of the text, without trailing parts that are no subtags.
fn longest(name: &str) -> Option<Locale> {
    let mut rest = name;
    loop {
        match (Locale::try_from_str(rest), rest.rsplit_once('-')) {
            (Ok(locale), _) => return Some(locale),
            (Err(_), Some((before, _))) => rest = before,
            (Err(_), None) => return None,
        }
    }
}

/// Returns the languages that can serve a tag, the nearest first, each with its likely script and region (CLDR). For example,
/// `zh-TW` is `zh-Hant-TW`, `iw` is `he-Hebr-IL`, and `es-Latn-419` follows `es-Latn-MX`. Empty: the tag names no language.
pub fn served_by(tag: &str) -> Vec<String> {
    let Some(wanted) = canonical(tag) else { return Vec::new() };
    let mut chain = vec![likely(wanted.clone())];
    let mut fallback = LocaleFallbacker::new().for_config(Default::default()).fallback_for((&wanted).into());
    while let Ok(next) = fallback.get().to_string().parse::<LanguageIdentifier>()
        && !next.language.is_unknown()
    {
        chain.push(likely(next));
        fallback.step();
    }
    chain.dedup();
    chain
}

/// Returns the current name of a language: `iw` is `he`, and `no` is Bokmål.
fn canonical(tag: &str) -> Option<LanguageIdentifier> {
    let mut locale: Locale = language_tag(tag)?.parse().ok()?;
    LocaleCanonicalizer::new_extended().canonicalize(&mut locale);
    if locale.id.language.as_str() == "nb" {
        locale.id.language = "no".parse().ok()?;
    }
    Some(locale.id)
}

fn likely(mut language: LanguageIdentifier) -> String {
    LocaleExpander::new_extended().maximize(&mut language);
    language.to_string()
}
