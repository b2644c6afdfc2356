//! Sources of settings: the command line, the environment, the file, or the defaults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::file::Values;
use super::value::ValueKind;
use super::{Error, MASK, Setting, wrong};

/// Maximum size of the file of a secret.
const SECRET_MAX_BYTES: u64 = 16_384;

#[derive(Debug, Clone)]
pub(super) struct RawValue {
    pub text: String,
    pub origin: ValueSource,
}

#[derive(Debug, Clone)]
pub(super) enum ValueSource {
    Flag(String),
    Variable(String),
    File(PathBuf),
    Default,
}

/// Sources in order of precedence.
pub(super) struct Sources<'a> {
    pub flags: &'a BTreeMap<&'static str, String>,
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub file: Option<Values>,
    pub passed_over: Option<PathBuf>,
    pub default_data_dir: String,
    pub search_path: Option<std::ffi::OsString>,
    pub variables: Vec<String>,
}

impl Sources<'_> {
    fn given(&self, setting: &Setting) -> Result<RawValue, Error> {
        if let Some(text) = self.flags.get(setting.key) {
            return Ok(RawValue { text: text.clone(), origin: ValueSource::Flag(setting.flag()) });
        }
        for variable in std::iter::once(setting.variable()).chain(setting.common_variable().map(str::to_owned)) {
            let text = (self.environment)(&variable);
            let file = setting.file_variable(&variable).and_then(|named| Some(((self.environment)(&named)?, named)));
            match (text, file) {
                (Some(_), Some((_, named))) => {
                    return Err(wrong(&named, "is given", &format!("empty with {variable}")));
                }
                (Some(text), None) => return Ok(RawValue { text, origin: ValueSource::Variable(variable) }),
                (None, Some((file, named))) => {
                    let text = read_secret(&named, Path::new(&file))?;
                    return Ok(RawValue { text, origin: ValueSource::Variable(named) });
                }
                (None, None) => {}
            }
        }
        Ok(if let Some((file, text)) = self.file.as_ref().and_then(|(f, keys)| Some((f, keys.get(setting.key)?))) {
            RawValue { text: text.clone(), origin: ValueSource::File(file.clone()) }
        } else if setting.key == "data_dir" {
            RawValue { text: self.default_data_dir.clone(), origin: ValueSource::Default }
        } else {
            RawValue { text: setting.default.to_owned(), origin: ValueSource::Default }
        })
    }

    pub(super) fn value<T: 'static>(
        &self, setting: &'static Setting, kind: &ValueKind<T>, all: &mut Vec<(&'static Setting, RawValue)>,
    ) -> Result<T, Error> {
        let given = self.given(setting)?;
        let value = kind.parse(given.text.trim()).ok_or_else(|| refusal(setting, &given, kind.allowed()))?;
        let secret = setting.secret && !given.text.is_empty();
        all.push((setting, if secret { RawValue { text: MASK.to_owned(), ..given } } else { given }));
        Ok(value)
    }
}

/// Reads the file that a variable names. Errors may show its name, but not its content.
fn read_secret(variable: &str, file: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(SECRET_MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.trim().is_empty() => Err(wrong(variable, "names an empty file", "a file with the value")),
        Ok(_) if text.len() as u64 <= SECRET_MAX_BYTES => Ok(text),
        Ok(_) => Err(wrong(variable, "names a larger file", &format!("a file of at most {SECRET_MAX_BYTES} bytes"))),
        Err(error) => {
            let found = format!("names {}, which cannot be read ({error})", file.display());
            Err(wrong(variable, &found, "a file that this user can read"))
        }
    }
}

/// Returns the name of a setting for errors, by its source.
pub(super) fn name_of(setting: &Setting, given: &RawValue) -> String {
    match &given.origin {
        ValueSource::Flag(flag) => format!("--{flag}"),
        ValueSource::Variable(variable) => variable.clone(),
        ValueSource::File(file) => format!("`{}` in {}", setting.key, file.display()),
        ValueSource::Default => setting.variable(),
    }
}

fn refusal(setting: &Setting, given: &RawValue, allowed: &str) -> Error {
    let name = name_of(setting, given);
    let allowed = allowed.to_owned();
    match setting.secret {
        true => Error::Secret { name, allowed },
        false => Error::Value { name, found: format!("is {:?}", given.text), allowed },
    }
}

/// Default data directory, by the conventions of the platform.
pub(super) fn default_data_dir(root: bool, environment: &dyn Fn(&str) -> Option<String>) -> String {
    if root {
        return "/var/lib/bellwire".to_owned();
    }
    let absolute = |name| environment(name).filter(|path| path.starts_with('/'));
    match (absolute("XDG_DATA_HOME"), absolute("HOME")) {
        (Some(data), _) => format!("{data}/bellwire"),
        (None, Some(home)) => format!("{home}/.local/share/bellwire"),
        (None, None) => ".bellwire".to_owned(),
    }
}
