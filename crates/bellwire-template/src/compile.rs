//! Compiles a template. Texts that are the same for all recipients are rendered at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::Environment;
use minijinja::value::Value;
use serde_json::Map;

use super::fault::{Position, TemplateFault};
use super::grammar;
use super::language::{self, COMPLAINTS, FUEL, MARK, OUTPUT_MAX, Sink};
use super::person::{SharedValues, TemplateNames};
use super::{DATA_MAX, LOCALES_MAX, TEMPLATE_MAX};
use bellwire_core::locale::served_by;
use bellwire_core::message::{BODY_MAX, DATA_DEPTH_MAX, Notification, TextField, deeper, is_language_tag};
use bellwire_core::template::{AppNames, Template, Templated, TooLong};

/// Compiled template, ready to render. `Debug` prints no content.
pub struct Compiled {
    pub(super) engine: TemplateEngine,
    /// Variants, the default language first.
    pub(super) variants: Vec<CompiledLocale>,
    pub(super) by_locale: HashMap<String, usize>,
    /// Indices by language with its likely script and region.
    pub(super) by_likely: HashMap<String, usize>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled(…)")
    }
}

/// Texts of a template in one language.
pub(super) struct CompiledLocale {
    /// Language of the variant. `None`: the default.
    pub(super) locale: Option<String>,
    pub(super) content: TemplatePart,
    pub(super) compact: Option<TemplatePart>,
}

pub(super) struct TemplatePart {
    pub(super) at: String,
    pub(super) base: Notification,
    pub(super) gaps: Vec<Gap>,
}

pub(super) struct Gap {
    pub(super) place: TextField,
    name: String,
    is_whole_link: bool,
}

pub(super) struct TemplateEngine {
    environment: Environment<'static>,
    pub(super) known: Arc<SharedValues>,
    pub(super) too_long: TooLong,
    pub(super) site: Option<String>,
}

impl Compiled {
    /// Compiles a template. The error lists all faults of the template and of `data`, with pointers into the template.
    pub fn new(templated: &Templated) -> Result<Self, Vec<TemplateFault>> {
        let mut faults = Vec::new();
        check_limits(templated, &mut faults);
        if !faults.is_empty() {
            return Err(faults); // no more work for what is too large
        }
        let (template, engine) = (&templated.template, TemplateEngine::new(templated));
        let mut compiler = Compiler { engine, texts: 0, faults, fills_in: true };
        let (variants, by_locale) = compiler.variants(template);
        let Compiler { engine, mut faults, .. } = compiler;
        // Of two that are likely the same the first holds.
        let likely = template.locales.keys().enumerate().rev();
        let by_likely = likely.filter_map(|(i, locale)| Some((served_by(locale).into_iter().next()?, i + 1))).collect();
        let compiled = Self { engine, variants, by_locale, by_likely };
        if faults.is_empty() {
            faults = compiled.faults_of_what_is_the_same();
        }
        if faults.is_empty() { Ok(compiled) } else { Err(faults) }
    }

    /// Returns all faults of a template that do not depend on the data of a message.
    pub fn check(template: &Template) -> Vec<TemplateFault> {
        let app = AppNames { slug: String::new(), name: String::new() };
        let templated = Templated { name: None, template: template.clone(), data: Map::new(), app, site: None };
        let mut faults = Vec::new();
        check_limits(&templated, &mut faults);
        if !faults.is_empty() {
            return faults;
        }
        let engine = TemplateEngine::new(&templated);
        let mut compiler = Compiler { engine, texts: 0, faults, fills_in: false };
        compiler.variants(template);
        compiler.faults
    }
}

fn check_limits(templated: &Templated, faults: &mut Vec<TemplateFault>) {
    let Templated { template, data, .. } = templated;
    let octets = |json: Result<Vec<u8>, _>| json.map_or(usize::MAX, |json| json.len());
    if octets(serde_json::to_vec(template)) > TEMPLATE_MAX {
        faults.push(TemplateFault::unfit("", format!("may have at most {TEMPLATE_MAX} octets as JSON")));
    }
    if octets(serde_json::to_vec(data)) > DATA_MAX {
        faults.push(TemplateFault::unfit("/data", format!("may have at most {DATA_MAX} octets as JSON")));
    } else if data.values().any(|value| deeper(value, DATA_DEPTH_MAX - 1)) {
        faults.push(TemplateFault::unfit("/data", format!("may be nested at most {DATA_DEPTH_MAX} deep")));
    }
    if template.locales.len() > LOCALES_MAX {
        faults.push(TemplateFault::unfit("/locales", format!("may hold at most {LOCALES_MAX} languages")));
    }
    let mut seen = HashMap::new();
    for locale in template.locales.keys() {
        let at = format!("/locales/{}", locale.replace('~', "~0").replace('/', "~1"));
        if !is_language_tag(locale) {
            faults.push(TemplateFault::unfit(at, "must be a BCP 47 language tag such as `de` or `pt-BR`"));
        } else if seen.insert(locale.to_lowercase(), ()).is_some() {
            faults.push(TemplateFault::unfit(at, "is there twice, in other letters"));
        }
    }
}

struct Compiler {
    engine: TemplateEngine,
    texts: usize,
    faults: Vec<TemplateFault>,
    /// Whether content that is the same for all recipients is rendered. Otherwise it is only checked.
    fills_in: bool,
}

impl Compiler {
    fn variants(&mut self, template: &Template) -> (Vec<CompiledLocale>, HashMap<String, usize>) {
        let mut variants = vec![self.variant(None, &template.content, template.compact.as_deref())];
        let mut by_locale = HashMap::new();
        for (locale, variant) in &template.locales {
            by_locale.insert(locale.to_lowercase(), variants.len());
            variants.push(self.variant(Some(locale), &variant.content, variant.compact.as_deref()));
        }
        (variants, by_locale)
    }

    fn variant(
        &mut self, locale: Option<&str>, content: &Notification, compact: Option<&Notification>,
    ) -> CompiledLocale {
        let at = locale.map(|locale| format!("/locales/{locale}")).unwrap_or_default();
        let content = self.part(format!("{at}/content"), content, locale);
        let compact = compact.map(|compact| self.part(format!("{at}/compact"), compact, locale));
        CompiledLocale { locale: locale.map(str::to_owned), content, compact }
    }

    fn part(&mut self, at: String, notification: &Notification, locale: Option<&str>) -> TemplatePart {
        let mut problems = Vec::new();
        let is_worth_it = notification.check_form(&at, &mut problems);
        self.faults.extend(problems.into_iter().map(TemplateFault::from));
        let mut base = notification.clone();
        let mut gaps = Vec::new();
        let places = if is_worth_it { base.places() } else { Vec::new() };
        for place in places {
            let source = place.get(&base).unwrap_or_default().to_owned();
            match self.text(&place, &source) {
                Ok(Text::Same(text)) => place.set(&mut base, text),
                Ok(Text::Own(gap)) => gaps.push(gap),
                Err(details) => {
                    let fault = |detail| TemplateFault::unfit(format!("{at}/{}", place.name()), detail);
                    self.faults.extend(details.into_iter().map(fault));
                }
            }
        }
        if let Some(locale) = locale {
            base.lang.get_or_insert_with(|| locale.to_owned());
        }
        if !gaps.iter().any(|gap| matches!(gap.place, TextField::ActionName(_))) && is_worth_it {
            let repeated = (0..base.actions.len()).filter_map(|i| base.repeated_action(i, &at));
            self.faults.extend(repeated.map(TemplateFault::from));
        }
        // What is left open comes with the recipient; here it would be taken for a path that it may not become.
        for gap in gaps.iter().filter(|gap| gap.place.is_optional()) {
            gap.place.set(&mut base, String::new());
        }
        base.complete(self.engine.site.as_deref());
        TemplatePart { at, base, gaps }
    }

    fn text(&mut self, place: &TextField, source: &str) -> Result<Text, Vec<String>> {
        if !grammar::is_template(source) {
            return place.fault(source).map_or_else(|| Ok(Text::Same(source.to_owned())), |fault| Err(vec![fault]));
        }
        let reading = grammar::read(source)?;
        if place.is_link() && source.contains(MARK) {
            return Err(vec!["must not hold control characters".into()]);
        }
        let is_whole_link = place.is_link() && reading.is_data_alone;
        let name = language::name(self.texts, place.is_link() && !is_whole_link);
        self.texts += 1;
        let added = self.engine.environment.add_template_owned(name.clone(), source.to_owned());
        added
            .map_err(|error| explain(&error, source).unwrap_or_else(|| "is no template".into()))
            .map_err(|detail| vec![detail])?;
        let gap = Gap { place: place.clone(), name, is_whole_link };
        if reading.is_personal || !self.fills_in {
            return Ok(Text::Own(gap));
        }
        let names = Value::from_object(TemplateNames { known: self.engine.known.clone(), person: None });
        let mut steps_left = FUEL;
        self.engine.fill(&gap, &names, &mut steps_left).map(Text::Same).map_err(|fault| vec![fault.into_detail()])
    }
}

enum Text {
    Same(String),
    Own(Gap),
}

pub(super) enum Unfilled {
    Unfit(String),
    TooLong(String),
}

impl Unfilled {
    fn into_detail(self) -> String {
        match self {
            Self::Unfit(detail) | Self::TooLong(detail) => detail,
        }
    }
}

impl TemplateEngine {
    fn new(templated: &Templated) -> Self {
        let Templated { template, site, .. } = templated;
        Self {
            environment: language::engine(),
            known: Arc::new(SharedValues::of(templated)),
            too_long: template.too_long,
            site: site.clone(),
        }
    }

    /// Renders a text within the remaining steps of a notification, and checks the result against the rules of its field. An
    /// empty text is valid for an optional field.
    pub(super) fn fill(&self, gap: &Gap, names: &Value, steps_left: &mut u64) -> Result<String, Unfilled> {
        let Gap { place, name, is_whole_link } = gap;
        let mut sink = Sink::default();
        let template = self.environment.get_template(name).map_err(|_| Unfilled::Unfit("is no template".into()))?;
        let may_be_cut = matches!((place, self.too_long), (TextField::Body, TooLong::Cut(_)));
        match template.render_captured_to(names.clone(), &mut sink) {
            Ok(filled) => {
                // The engine counts each text's steps from the beginning: one alone cannot take more than all may.
                let steps = filled.state().fuel_levels().map_or(FUEL, |(steps, _)| steps);
                let left = steps_left.checked_sub(steps);
                *steps_left = left.ok_or_else(|| Unfilled::Unfit(too_many_steps()))?;
            }
            Err(_) if sink.is_full && may_be_cut => {}
            Err(_) if sink.is_full => return Err(Unfilled::TooLong(format!("came to more than {OUTPUT_MAX} octets"))),
            Err(error) => {
                let detail = explain(&error, template.source()).unwrap_or_else(|| "cannot be evaluated".into());
                return Err(Unfilled::Unfit(detail));
            }
        }
        let mut text = sink.text;
        if place.is_optional() && text.trim().is_empty() {
            return Ok(String::new());
        }
        if place.is_link() {
            text = settled_link(text.trim(), *is_whole_link).map_err(Unfilled::Unfit)?;
        }
        if may_be_cut && place.is_too_long(&text) {
            text = text.chars().take(BODY_MAX - 1).chain(['…']).collect();
        }
        match place.fault(&text) {
            None => Ok(text),
            Some(rule) if place.is_too_long(&text) => Err(Unfilled::TooLong(rule)),
            Some(rule) => Err(Unfilled::Unfit(rule)),
        }
    }
}

fn too_many_steps() -> String {
    format!("takes more than {FUEL} steps, together with the texts before it")
}

/// Returns a rendered link without the marks before its values. Its host must be determined before the first value.
fn settled_link(text: &str, is_whole: bool) -> Result<String, String> {
    match text.find(MARK) {
        Some(at) if !is_whole && !settles(&text[..at]) => {
            Err("a value is allowed only after the fixed target of a link: `https://`, host and a slash; or `/`".into())
        }
        _ => Ok(text.replace(MARK, "")),
    }
}

/// Whether the beginning of a link determines its host.
fn settles(beginning: &str) -> bool {
    beginning.starts_with('/') || beginning.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?', '#']))
}

/// Describes an error in a text, with its position. `None`: the description would contain values.
fn explain(error: &minijinja::Error, source: &str) -> Option<String> {
    use minijinja::ErrorKind::{InvalidOperation, OutOfFuel, SyntaxError, UndefinedError};
    let range = error.range().filter(|range| source.get(range.clone()).is_some());
    let at = |what: &str| match &range {
        Some(range) => Position::of(source, range.start).complain(what),
        None => what.to_owned(),
    };
    Some(match error.kind() {
        UndefinedError => {
            let name = range.as_ref().map(|range| source[range.clone()].trim());
            let is_path =
                |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
            let name = name.filter(is_path).map_or_else(|| "something here".to_owned(), |name| format!("`{name}`"));
            at(&format!("{name} is not defined; `| default(…)` gives it a value"))
        }
        OutOfFuel => too_many_steps(),
        SyntaxError => at(error.detail()?),
        InvalidOperation => match COMPLAINTS.into_iter().find(|known| error.detail() == Some(*known)) {
            Some(known) => at(known),
            None => at("this does not work with the values that it has"),
        },
        _ => at("cannot evaluate this expression"),
    })
}
