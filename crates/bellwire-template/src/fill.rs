//! Renders a template for a recipient.

use std::sync::Arc;

use minijinja::value::Value;

use super::compile::{Compiled, CompiledLocale, TemplateEngine, TemplatePart, Unfilled};
use super::fault::TemplateFault;
use super::language::FUEL;
use super::person::{TemplateNames, TemplatePerson};
use bellwire_core::locale::served_by;
use bellwire_core::message::{Content, Notification, TextField};
use bellwire_core::template::TooLong;
use bellwire_webpush::payload;
use bellwire_webpush::shrink::cut_to_fit;

/// A rendered template.
#[derive(Debug)]
pub struct Filled {
    /// Content to send.
    pub content: Content,
    /// Content, serialised for the payload.
    pub written: payload::PayloadTemplate,
}

impl Compiled {
    /// Number of variants, including the template's own language.
    pub fn variants(&self) -> usize {
        self.variants.len()
    }

    /// Returns the language of a variant. `None`: the default.
    pub fn locale(&self, variant: usize) -> Option<&str> {
        self.variants[variant].locale.as_deref()
    }

    /// Returns the variant for a recipient: that of their locale, else of the nearest language by CLDR, else the default.
    pub fn variant_for(&self, locale: Option<&str>) -> usize {
        let Some(locale) = locale.filter(|_| !self.by_locale.is_empty()) else { return 0 };
        if let Some(variant) = self.by_locale.get(&locale.to_lowercase().replace('_', "-")) {
            return *variant;
        }
        served_by(locale).iter().find_map(|language| self.by_likely.get(language)).copied().unwrap_or(0)
    }

    /// Whether any variant uses recipient data.
    pub fn is_personal(&self) -> bool {
        self.variants.iter().any(|variant| !variant.is_same())
    }

    /// Returns the rendered variant if it is equal for all recipients.
    pub fn same(&self, variant: usize) -> Option<Filled> {
        let variant = &self.variants[variant];
        // It was tried when the template was compiled.
        variant.is_same().then(|| self.engine.whole(variant, &Arc::default()).ok()).flatten()
    }

    /// Renders a variant for a recipient. Its compact form is omitted if rendering it fails.
    pub fn fill(&self, variant: usize, person: &Arc<TemplatePerson>) -> Result<Filled, TemplateFault> {
        self.engine.whole(&self.variants[variant], person)
    }

    /// Returns the faults of a variant for a recipient, its compact form included.
    pub fn faults(&self, variant: usize, person: &Arc<TemplatePerson>) -> Vec<TemplateFault> {
        let variant = &self.variants[variant];
        let compact = variant.compact.as_ref().and_then(|compact| self.engine.fault_of_compact(compact, person));
        self.engine.whole(variant, person).err().into_iter().chain(compact).collect()
    }

    /// Returns the faults of a variant that is the same for all recipients. Its texts were checked one by one, but not their
    /// total size.
    pub(super) fn faults_of_what_is_the_same(&self) -> Vec<TemplateFault> {
        let same = (0..self.variants.len()).filter(|variant| self.variants[*variant].is_same());
        same.flat_map(|variant| self.faults(variant, &Arc::default())).collect()
    }
}

impl CompiledLocale {
    fn is_same(&self) -> bool {
        self.content.gaps.is_empty() && self.compact.as_ref().is_none_or(|compact| compact.gaps.is_empty())
    }
}

impl TemplateEngine {
    fn names(&self, person: &Arc<TemplatePerson>) -> Value {
        Value::from_object(TemplateNames { known: self.known.clone(), person: Some(person.clone()) })
    }

    fn fault_of_compact(&self, compact: &TemplatePart, person: &Arc<TemplatePerson>) -> Option<TemplateFault> {
        match self.part(compact, &self.names(person)) {
            Ok(content) => payload::PayloadTemplate::of_content(&content)
                .err()
                .map(|too_large| TemplateFault::too_long(&*compact.at, too_large.to_string())),
            Err(fault) => Some(fault),
        }
    }

    fn whole(&self, variant: &CompiledLocale, person: &Arc<TemplatePerson>) -> Result<Filled, TemplateFault> {
        let names = self.names(person);
        let compact = variant.compact.as_ref().and_then(|compact| self.part(compact, &names).ok());
        let content = self.part(&variant.content, &names)?;
        let (content, written) = match payload::PayloadTemplate::of_content(&content) {
            Ok(written) => (content, written),
            Err(too_large) => {
                let cut = if self.too_long == TooLong::Dead { None } else { cut_to_fit(content) };
                cut.ok_or_else(|| TemplateFault::too_long(&*variant.content.at, too_large.to_string()))?
            }
        };
        let content = Content::Notification { content: Box::new(content), compact: compact.map(Box::new) };
        Ok(Filled { content, written })
    }

    fn part(&self, part: &TemplatePart, names: &Value) -> Result<Notification, TemplateFault> {
        let mut filled = part.base.clone();
        let (mut has_own_link, mut steps_left) = (false, FUEL);
        for gap in &part.gaps {
            let text = self.fill(gap, names, &mut steps_left).map_err(|unfilled| {
                let pointer = format!("{}/{}", part.at, gap.place.name());
                match unfilled {
                    Unfilled::Unfit(detail) => TemplateFault::unfit(pointer, detail),
                    Unfilled::TooLong(detail) => TemplateFault::too_long(pointer, detail),
                }
            })?;
            has_own_link |= gap.place.is_link();
            gap.place.set(&mut filled, text);
        }
        if has_own_link {
            filled.complete(self.site.as_deref());
        }
        let names_own_action = part.gaps.iter().any(|gap| matches!(gap.place, TextField::ActionName(_)));
        let repeated =
            |filled: &Notification| (0..filled.actions.len()).find_map(|i| filled.repeated_action(i, &part.at));
        match names_own_action.then(|| repeated(&filled)).flatten() {
            Some(problem) => Err(problem.into()),
            None => Ok(filled),
        }
    }
}
