//! Content of a message: shared by all recipients and rendered once, or personal and rendered right before encryption.

use std::sync::Arc;

use parking_lot::Mutex;

use bellwire_core::message::Content;
use bellwire_core::template::MessageContent;
use bellwire_template::{Compiled, Filled, TemplateFault, TemplatePerson};
use bellwire_webpush::payload::PayloadTemplate;
use bellwire_webpush::shrink::{Shrunk, shrink};

/// Serialised content, ready to be combined with a delivery's envelope.
pub(super) struct RenderedContent {
    content: Content,
    pub(super) template: PayloadTemplate,
    /// Last reduced variant, with the byte limit it was made for.
    shrunk: Mutex<Option<(usize, Option<Arc<Shrunk>>)>>,
}

impl RenderedContent {
    fn new(content: Content, template: PayloadTemplate) -> Self {
        Self { content, template, shrunk: Mutex::default() }
    }

    /// Returns the most complete variant of at most `limit` plaintext bytes. `None`: no variant is small enough. Caches the
    /// last result, because deliveries of one lane need the same one repeatedly.
    pub(super) fn shrink(&self, limit: usize) -> Option<Arc<Shrunk>> {
        let mut last = self.shrunk.lock();
        match &*last {
            Some((known, shrunk)) if *known == limit => shrunk.clone(),
            _ => last.insert((limit, shrink(&self.content, limit).map(Arc::new))).1.clone(),
        }
    }
}

impl From<Filled> for RenderedContent {
    fn from(filled: Filled) -> Self {
        Self::new(filled.content, filled.written)
    }
}

pub(super) enum Says {
    Same(RenderedContent),
    Each(Box<Each>),
}

/// Template whose variants without recipient data are rendered once.
pub(super) struct Each {
    template: Compiled,
    /// Rendered variants. `None`: the variant needs recipient data.
    same: Vec<Option<Arc<RenderedContent>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wants {
    Locale,
    All,
}

impl Says {
    /// Renders the parts that do not depend on the recipient. The error is the reason why no delivery can be sent.
    pub(super) fn new(said: MessageContent) -> Result<Self, String> {
        let templated = match said {
            MessageContent::Literal(content) => {
                let template = PayloadTemplate::new(&content).map_err(|error| error.to_string())?;
                return Ok(Self::Same(RenderedContent::new(content, template)));
            }
            MessageContent::Template(templated) => templated,
        };
        let template = Compiled::new(&templated)
            .map_err(|faults| faults.first().map_or_else(|| "it is no template".into(), TemplateFault::line))?;
        let mut same: Vec<_> = (0..template.variants()).map(|variant| template.same(variant)).collect();
        if let [only @ Some(_)] = same.as_mut_slice() {
            return Ok(Self::Same(only.take().expect("it is there").into()));
        }
        let same = same.into_iter().map(|filled| filled.map(|filled| Arc::new(filled.into()))).collect();
        Ok(Self::Each(Box::new(Each { template, same })))
    }

    /// Returns which recipient data the template needs. `None`: no data.
    pub(super) fn wants(&self) -> Option<Wants> {
        match self {
            Self::Same(_) => None,
            Self::Each(each) if each.template.is_personal() => Some(Wants::All),
            Self::Each(_) => Some(Wants::Locale),
        }
    }
}

impl Each {
    fn written(&self, person: &Arc<TemplatePerson>) -> Result<Arc<RenderedContent>, TemplateFault> {
        let variant = self.template.variant_for(person.locale.as_deref());
        match &self.same[variant] {
            Some(written) => Ok(written.clone()),
            None => self.template.fill(variant, person).map(|filled| Arc::new(filled.into())),
        }
    }
}

/// Personal content of a delivery.
pub(super) enum PersonalContent {
    Person(Arc<TemplatePerson>),
    Written(Arc<RenderedContent>),
}

impl PersonalContent {
    /// Renders the content for its recipient, unless that was done.
    pub(super) fn fill_in(&mut self, says: &Says) -> Result<(), TemplateFault> {
        if let (Self::Person(person), Says::Each(each)) = (&*self, says) {
            *self = Self::Written(each.written(person)?);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/content.rs"]
mod tests;
