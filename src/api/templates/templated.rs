//! Templates of messages: resolves a template by name or inline, and renders it for a few real recipients before acceptance.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::extract::{TEMPLATE_NAME_RULE, TemplateName};
use crate::api::http::problem::{Faults, FieldError, Problem};
use bellwire_core::id::AppId;
use bellwire_core::template::{AppNames, Template, Templated};
use bellwire_store::audience::people::{self, Behind, Member};
use bellwire_store::keys::apps::App;
use bellwire_store::queue::sending::Addressed;
use bellwire_store::queue::templates::{self, TemplateRow};
use bellwire_template::{Compiled, TemplateFault, TemplateFaultKind};
use bellwire_vault::TEMPLATE;

/// Number of sample recipients of a message's template.
const TRIED: i64 = 5;
/// Subscriptions that are searched for these recipients, if the message has a segment.
const SEARCHED: i64 = 1_000;

/// Template in a request: the name of a stored template, or an inline one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TemplateRef {
    Named(String),
    Inline(Box<Template>),
}

/// Implemented by hand, because an untagged enum would hide the faults of the template.
impl<'de> Deserialize<'de> for TemplateRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTemplate;
        impl<'de> Visitor<'de> for NameOrTemplate {
            type Value = TemplateRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a template, or a template")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<TemplateRef, E> {
                Ok(TemplateRef::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TemplateRef, A::Error> {
                Template::deserialize(de::value::MapAccessDeserializer::new(map)).map(Box::new).map(TemplateRef::Inline)
            }
        }
        deserializer.deserialize_any(NameOrTemplate)
    }
}

/// Template of a message: the name of a stored one, or the template itself.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = TemplateRef)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum TemplateRefSchema {
    /// Name of a stored template.
    Named(String),
    /// Inline template, in the same form as a stored one.
    Inline(Template),
}

impl utoipa::PartialSchema for TemplateRef {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        TemplateRefSchema::schema()
    }
}

impl ToSchema for TemplateRef {
    fn name() -> std::borrow::Cow<'static, str> {
        "TemplateRef".into()
    }

    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
        TemplateRefSchema::schemas(schemas);
    }
}

/// A resolved template, and the pointer for faults about it.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedTemplate {
    template: Template,
    name: Option<String>,
}

impl ResolvedTemplate {
    /// Creates a resolved template from an inline one.
    #[cfg(test)]
    pub(in crate::api) fn inline(template: Template) -> Self {
        Self { template, name: None }
    }

    /// Converts a fault to an error of the request's body. A fault of a stored template points to its name.
    pub(in crate::api) fn complaint(&self, fault: &TemplateFault, rest: &str) -> FieldError {
        match &self.name {
            _ if fault.pointer.starts_with("/data") => FieldError::member(&*fault.pointer, &*fault.detail),
            Some(_) => FieldError::member("/template", format!("{}{rest}", fault.line())),
            None => FieldError::member(format!("/template{}", fault.pointer), format!("{}{rest}", fault.detail)),
        }
    }

    /// Compiles the template for a message of this app with the variables `data`.
    pub(in crate::api) fn compile(
        &self, app: &App, data: Option<Map<String, Value>>,
    ) -> Result<(Templated, Compiled), Vec<FieldError>> {
        let templated = Templated {
            name: self.name.clone(),
            template: self.template.clone(),
            data: data.unwrap_or_default(),
            app: AppNames { slug: app.slug.clone(), name: app.name.clone() },
            site: app.origins.first().cloned(),
        };
        match Compiled::new(&templated) {
            Ok(compiled) => Ok((templated, compiled)),
            Err(faults) => Err(faults.iter().map(|fault| self.complaint(fault, "")).collect()),
        }
    }
}

/// Template of a message, to be rendered for sample recipients.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(in crate::api) of: ResolvedTemplate,
    pub(in crate::api) compiled: Compiled,
}

#[derive(Default)]
pub(crate) struct Templates {
    stored: HashMap<String, Template>,
    tried: HashMap<String, Arc<[Member]>>,
}

impl Templates {
    /// Resolves the template of a request. 422: it does not exist.
    pub(crate) async fn resolve(
        &mut self, state: &ApiState, app: AppId, wanted: Option<TemplateRef>,
    ) -> Result<Option<ResolvedTemplate>, Problem> {
        let name = match wanted {
            None => return Ok(None),
            Some(TemplateRef::Inline(template)) => {
                return Ok(Some(ResolvedTemplate { template: *template, name: None }));
            }
            Some(TemplateRef::Named(name)) => name,
        };
        if name.parse::<TemplateName>().is_err() {
            return Err(Problem::invalid_member("/template", TEMPLATE_NAME_RULE));
        }
        if let Some(template) = self.stored.get(&name) {
            return Ok(Some(ResolvedTemplate { template: template.clone(), name: Some(name) }));
        }
        let row = templates::find(&state.pool, app, &name).await?;
        let row = row
            .ok_or_else(|| Problem::invalid_member("/template", "names a template that does not exist in this app"))?;
        let template = open(state, &row)?;
        self.stored.insert(name.clone(), template.clone());
        Ok(Some(ResolvedTemplate { template, name: Some(name) }))
    }

    /// Renders a message's template for a few of its recipients. 422: rendering fails for one of them. A result that is too
    /// long is only a warning, because the template's own rule decides about it. Messages of one request that share a stored
    /// template are rendered for the recipients of the first.
    pub(crate) async fn try_out(
        &mut self, state: &ApiState, app: AppId, Trial { of, compiled }: Trial, addressed: &Addressed,
        warnings: &mut Vec<FieldError>,
    ) -> Result<(), Problem> {
        let members = match of.name.as_ref().and_then(|name| self.tried.get(name)) {
            Some(members) => members.clone(),
            None => {
                let members: Arc<[Member]> = sample(state, app, addressed).await?.into();
                self.tried.extend(of.name.clone().map(|name| (name, members.clone())));
                members
            }
        };
        let mut found: Vec<(TemplateFault, usize)> = Vec::new();
        for member in &*members {
            for fault in compiled.faults(compiled.variant_for(member.person.locale.as_deref()), &member.person) {
                match found.iter_mut().find(|(known, _)| *known == fault) {
                    Some((_, times)) => *times += 1,
                    None => found.push((fault, 1)),
                }
            }
        }
        let mut faults = Faults::default();
        for (fault, times) in found {
            let complaint =
                of.complaint(&fault, &format!(" (for {times} of {} recipients that were tried)", members.len()));
            match fault.kind {
                TemplateFaultKind::Unfit => faults.refuse(complaint.pointer.unwrap_or_default(), complaint.detail),
                TemplateFaultKind::TooLong => warnings.push(complaint),
            }
        }
        faults.finish()
    }
}

/// Returns some recipients of a message. A template may rely on its segment, so only members are returned.
async fn sample(state: &ApiState, app: AppId, addressed: &Addressed) -> Result<Vec<Member>, Problem> {
    let Addressed { message, audience } = addressed;
    let now = message.accepted_at;
    let Some(filter) = &message.filter else {
        return Ok(people::page(&state.pool, app, audience, Behind::NONE, TRIED, now).await?);
    };
    let some = people::page(&state.pool, app, audience, Behind::NONE, SEARCHED, now).await?;
    let mut taken = people::taken_by(&state.pool, app, filter, some, now).await?;
    taken.truncate(TRIED as usize);
    Ok(taken)
}

pub(in crate::api) fn open(state: &ApiState, row: &TemplateRow) -> Result<Template, Problem> {
    let plain = zeroize::Zeroizing::new(state.vault.open(TEMPLATE, row.id, &row.content)?);
    serde_json::from_slice(&plain).map_err(|_| Problem::internal())
}
