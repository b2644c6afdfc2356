//! Where settings come from: the command line, the environment, the file, or their defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::file::Values;
use super::value::Kind;
use super::{Error, MASK, Setting};

#[derive(Debug, Clone)]
pub(super) struct Given {
    pub text: String,
    pub origin: Origin,
}

#[derive(Debug, Clone)]
pub(super) enum Origin {
    Flag(String),
    Variable(String),
    File(PathBuf),
    Default,
}

/// Where values are looked for, in this order.
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
    fn given(&self, setting: &Setting) -> Given {
        let variables = std::iter::once(setting.variable()).chain(setting.common_variable().map(str::to_owned));
        let mut set = variables.filter_map(|variable| Some(((self.environment)(&variable)?, variable)));
        if let Some(text) = self.flags.get(setting.key) {
            Given { text: text.clone(), origin: Origin::Flag(setting.flag()) }
        } else if let Some((text, variable)) = set.next() {
            Given { text, origin: Origin::Variable(variable) }
        } else if let Some((file, text)) = self.file.as_ref().and_then(|(f, keys)| Some((f, keys.get(setting.key)?))) {
            Given { text: text.clone(), origin: Origin::File(file.clone()) }
        } else if setting.key == "data_dir" {
            Given { text: self.default_data_dir.clone(), origin: Origin::Default }
        } else {
            Given { text: setting.default.to_owned(), origin: Origin::Default }
        }
    }

    pub(super) fn value<T: 'static>(
        &self,
        setting: &'static Setting,
        kind: &Kind<T>,
        all: &mut Vec<(&'static Setting, Given)>,
    ) -> Result<T, Error> {
        let given = self.given(setting);
        let value = kind.parse(given.text.trim()).ok_or_else(|| refusal(setting, &given, kind.allowed()))?;
        let secret = setting.secret && !given.text.is_empty();
        all.push((setting, if secret { Given { text: MASK.to_owned(), ..given } } else { given }));
        Ok(value)
    }
}

/// What a person calls a setting, by where it was given.
pub(super) fn name_of(setting: &Setting, given: &Given) -> String {
    match &given.origin {
        Origin::Flag(flag) => format!("--{flag}"),
        Origin::Variable(variable) => variable.clone(),
        Origin::File(file) => format!("`{}` in {}", setting.key, file.display()),
        Origin::Default => setting.variable(),
    }
}

fn refusal(setting: &Setting, given: &Given, allowed: &str) -> Error {
    let name = name_of(setting, given);
    let found = if setting.secret { "is wrong".to_owned() } else { format!("is {:?}", given.text) };
    Error::Value { name, found, allowed: allowed.to_owned() }
}

/// Where data goes unless a setting says otherwise: by the machine's habits.
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
