//! Reads members of a JSON object, and collects each fault with its pointer (RFC 6901).

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// Fault of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{pointer}: {detail}")]
pub struct PolicyError {
    /// Pointer into the policy (RFC 6901).
    pub pointer: String,
    /// Description for the caller.
    pub detail: String,
}

/// A given value, or the default of an absent one. Error messages distinguish them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FieldValue<T> {
    pub value: T,
    pub is_default: bool,
}

impl<T: fmt::Display> fmt::Display for FieldValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.value, if self.is_default { " (the default)" } else { "" })
    }
}

/// Reader of one JSON object.
pub(super) struct Fields<'a> {
    pointer: &'static str,
    members: &'a Map<String, Value>,
    errors: &'a mut Vec<PolicyError>,
}

impl<'a> Fields<'a> {
    /// Creates a reader of the object at `pointer`, and reports members that are not in `allowed`. `None` if the value is not
    /// an object.
    pub(super) fn of(
        value: &'a Value, pointer: &'static str, allowed: &[&str], errors: &'a mut Vec<PolicyError>,
    ) -> Option<Self> {
        Self::read(value, pointer, allowed, |_| None, errors)
    }

    /// Creates a reader of the whole policy. `elsewhere` returns the right place of a misplaced member, for the error.
    pub(super) fn at_top(
        value: &'a Value, allowed: &[&str], elsewhere: impl Fn(&str) -> Option<&'static str>,
        errors: &'a mut Vec<PolicyError>,
    ) -> Option<Self> {
        Self::read(value, "", allowed, elsewhere, errors)
    }

    fn read(
        value: &'a Value, pointer: &'static str, allowed: &[&str], elsewhere: impl Fn(&str) -> Option<&'static str>,
        errors: &'a mut Vec<PolicyError>,
    ) -> Option<Self> {
        let Value::Object(members) = value else {
            errors.push(PolicyError { pointer: pointer.into(), detail: "must be an object".into() });
            return None;
        };
        let mut fields = Self { pointer, members, errors };
        for name in members.keys().filter(|name| !allowed.contains(&name.as_str())) {
            match elsewhere(name) {
                Some(where_to) => fields.refuse(name, where_to),
                None => fields.refuse(name, format!("unknown member; known here: {}", allowed.join(", "))),
            }
        }
        Some(fields)
    }

    /// Returns the member unless it is absent or null.
    pub(super) fn raw(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// Whether the member is present, null included.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Reads an object member at `pointer`.
    pub(super) fn inside<T>(
        &mut self, value: &Value, pointer: &'static str, allowed: &[&str],
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        read(&mut Fields::of(value, pointer, allowed, self.errors)?)
    }

    /// Adds a fault of a member. An empty name means the object itself.
    pub(super) fn refuse(&mut self, name: &str, detail: impl Into<String>) {
        let separator = if name.is_empty() { "" } else { "/" };
        let name = name.replace('~', "~0").replace('/', "~1");
        let pointer = format!("{}{separator}{name}", self.pointer);
        self.errors.push(PolicyError { pointer, detail: detail.into() });
    }

    /// Reads an integer from 0 to 4,294,967,295.
    pub(super) fn integer(&mut self, name: &str, default: u32) -> FieldValue<u32> {
        let Some(value) = self.raw(name) else { return FieldValue { value: default, is_default: true } };
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        if number.is_none() {
            self.refuse(name, "must be an integer from 0 to 4294967295");
        }
        FieldValue { value: number.unwrap_or(default), is_default: false }
    }

    pub(super) fn number(&mut self, name: &str, default: f64) -> f64 {
        let Some(value) = self.raw(name) else { return default };
        value.as_f64().unwrap_or_else(|| {
            self.refuse(name, "must be a number");
            default
        })
    }

    pub(super) fn word<T: Copy>(&mut self, name: &str, default: T, words: &[T], spelled: fn(T) -> &'static str) -> T {
        let Some(value) = self.raw(name) else { return default };
        let word = words.iter().copied().find(|word| value == spelled(*word));
        word.unwrap_or_else(|| {
            let known: Vec<_> = words.iter().copied().map(spelled).collect();
            self.refuse(name, format!("must be one of {}", known.join(", ")));
            default
        })
    }

    /// Checks that a value is within bounds, and adds a fault otherwise.
    pub(super) fn within(&mut self, name: &str, given: FieldValue<u32>, lowest: u32, highest: u32) {
        if !(lowest..=highest).contains(&given.value) {
            self.refuse(name, format!("must be from {lowest} to {highest}; it is {given}"));
        }
    }

    /// Returns the number of faults so far, of all readers.
    pub(super) fn mistakes(&self) -> usize {
        self.errors.len()
    }
}
