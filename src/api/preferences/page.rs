//! HTML of the preferences of a user. It runs no scripts, and loads only style sheets of this server.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::form::Choice;
use crate::api::http::problem::Problem;

type Texts = BTreeMap<String, String>;

/// Texts of a language that the opt-in kit does not have.
struct OwnTexts {
    language: &'static str,
    /// Button that stores the choices.
    save: &'static str,
    /// Text for an invalid link.
    invalid: &'static str,
}

macro_rules! languages {
    ($($language:literal $save:literal $invalid:literal)+) => {
        [$((
            OwnTexts { language: $language, save: $save, invalid: $invalid },
            include_str!(concat!("../../../static/sdk/src/ui/texts/", $language, ".json")),
        )),+]
    };
}

/// Languages with all texts. English is the first.
static LANGUAGES: LazyLock<[(OwnTexts, Texts); 12]> = LazyLock::new(|| {
    let languages = languages! {
        "en" "Save" "This link has expired or is incomplete. Ask the sender for a new one."
        "ar" "حفظ" "انتهت صلاحية هذا الرابط أو أنه غير مكتمل. اطلب رابطًا جديدًا من المرسل."
        "de" "Speichern" "Dieser Link ist abgelaufen oder unvollständig. Bitten Sie den Absender um einen neuen."
        "es" "Guardar" "Este enlace ha caducado o está incompleto. Pida uno nuevo al remitente."
        "fr" "Enregistrer" "Ce lien a expiré ou est incomplet. Demandez-en un nouveau à l’expéditeur."
        "it" "Salva" "Questo link è scaduto o incompleto. Chiedine uno nuovo al mittente."
        "ja" "保存" "このリンクは期限切れか不完全です。送信者に新しいリンクを依頼してください。"
        "nl" "Opslaan" "Deze link is verlopen of onvolledig. Vraag de afzender om een nieuwe."
        "pl" "Zapisz" "Ten link wygasł lub jest niekompletny. Poproś nadawcę o nowy."
        "pt" "Guardar" "Este link expirou ou está incompleto. Peça um novo ao remetente."
        "tr" "Kaydet" "Bu bağlantının süresi dolmuş ya da bağlantı eksik. Göndericiden yenisini isteyin."
        "zh" "保存" "此链接已过期或不完整。请向发送者索取新链接。"
    };
    languages.map(|(own, texts)| (own, serde_json::from_str(texts).expect("an object of strings")))
});

const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Texts of one language.
pub(super) struct PageTexts {
    of: &'static OwnTexts,
    /// Language tag as it was asked for, such as `pt-BR`.
    tag: String,
    texts: &'static Texts,
    /// Texts of the app, which come first.
    own: Texts,
}

impl PageTexts {
    /// Selects the language of the link, or else the browser's first one that is known.
    pub(super) fn select(locale: Option<&str>, headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|list| list.to_str().ok()).unwrap_or_default();
        let wanted = locale.into_iter().chain(accepted.split(',').map(|item| item.split(';').next().unwrap_or(item)));
        let find = |tag: &str| {
            let language = tag.trim().split('-').next().unwrap_or_default().to_ascii_lowercase();
            Some((tag.trim().to_owned(), LANGUAGES.iter().find(|(known, _)| known.language == language)?))
        };
        let (tag, (of, texts)) = wanted.into_iter().find_map(find).unwrap_or_else(|| ("en".to_owned(), &LANGUAGES[0]));
        Self { of, tag, texts, own: Texts::new() }
    }

    /// Adds the texts of the app's prompt in this language, or in its base language.
    pub(super) fn with(mut self, mut texts: BTreeMap<String, Texts>) -> Self {
        self.own = texts.remove(&self.tag).or_else(|| texts.remove(self.of.language)).unwrap_or_default();
        self
    }

    fn text(&self, name: &str) -> &str {
        self.own.get(name).or_else(|| self.texts.get(name)).map_or("", String::as_str)
    }
}

/// Renders the preferences. `data`: last part of the page's address, if it offers the stored data. `is_saved`: they were stored just now.
pub(super) fn preferences(app: &str, t: &PageTexts, choice: &Choice, data: Option<&str>, is_saved: bool) -> Response {
    let body = html! {
        h1 { (t.text("preferences")) }
        p.soft { (app) }
        @if is_saved { p role="status" { (t.text("saved")) } }
        @if choice.browsers == 0 {
            p { (t.text("bell")) ": " (t.text("bell_off")) }
        } @else {
            form method="post" {
                input type="hidden" name="form" value="1";
                @if !choice.offered.is_empty() { (topics(t, choice)) }
                (frequency(t, choice))
                p.actions {
                    button.main { (t.of.save) }
                    button name="unsubscribe" value="1" { (t.text("turn_off")) }
                }
            }
        }
        @if let Some(link) = data { p { a href={ (link) "/data" } download="data.json" { (t.text("data")) ": " (t.text("data_download")) } } }
    };
    page(StatusCode::OK, t.of.language, t.text("preferences"), &body)
}

fn topics(t: &PageTexts, choice: &Choice) -> Markup {
    html! {
        fieldset {
            legend { (t.text("topics")) }
            @for topic in &choice.offered {
                @let (title, description) = topic.texts_in(&t.tag, t.of.language);
                @let is_joined = choice.joined.contains(topic.name());
                @if is_joined { input type="hidden" name="topic_before" value=(topic.name()); }
                label {
                    input type="checkbox" name="topic" value=(topic.name()) checked[is_joined];
                    span { (title) @if let Some(description) = description { small { (description) } } }
                }
            }
        }
    }
}

fn frequency(t: &PageTexts, choice: &Choice) -> Markup {
    let (is_important, until) = (choice.is_important(), choice.paused_until());
    html! {
        fieldset {
            legend { (t.text("bell")) }
            @if is_important { input type="hidden" name="important_before" value="1"; }
            @if until.is_some() { input type="hidden" name="pause_before" value="1"; }
            label { input type="checkbox" name="important" value="1" checked[is_important]; span { (t.text("important")) } }
            label {
                input type="checkbox" name="pause" value="1" checked[until.is_some()];
                span {
                    (t.text("pause"))
                    @if let Some(until) = until { small { (until.format("%Y-%m-%d")) } }
                }
            }
        }
    }
}

/// Page for a person whose request failed, in place of the problem.
pub(super) fn failed(problem: Problem, locale: Option<&str>, headers: &HeaderMap) -> Response {
    let t = PageTexts::select(locale, headers);
    let body = html! {
        h1 { (t.text("preferences")) }
        p role="status" { (t.text("failed")) }
    };
    let status = problem.into_response().status();
    page(status, t.of.language, t.text("preferences"), &body)
}

/// Page for a link that is invalid or has expired.
pub(super) fn invalid(headers: &HeaderMap) -> Response {
    let t = PageTexts::select(None, headers);
    let body = html! {
        h1 { (t.text("preferences")) }
        p role="status" { (t.of.invalid) }
    };
    page(StatusCode::NOT_FOUND, t.of.language, t.text("preferences"), &body)
}

fn page(status: StatusCode, language: &str, title: &str, body: &Markup) -> Response {
    let direction = if language == "ar" { "rtl" } else { "ltr" };
    let document = html! {
        (DOCTYPE)
        html lang=(language) dir=(direction) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) }
                link rel="stylesheet" href="../shared/tokens.css";
                link rel="stylesheet" href="../shared/preferences.css";
            }
            body { main { (body) } }
        }
    };
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (status, headers, document.into_string()).into_response()
}
