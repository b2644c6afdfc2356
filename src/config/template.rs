//! Formats the settings for operators who write a `bellwire.toml`.

use std::fmt::Write;

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::SETTINGS;
use super::setting::Setting;

/// Maximum line length of the template.
const WIDTH: usize = 120;
/// Data directory on machines with a settings file from a package. The line is not commented out: the default depends on the
/// user, and commands must find the server's data.
const DATA_DIR: &str = "/var/lib/bellwire";

const INTRODUCTION: &str = "Settings of Bellwire. Each commented line shows a setting's default: remove the # to change it. \
    The command line and the environment take precedence. Servers read this file when they start; `bellwire serve \
    --print-config` prints the effective settings; `bellwire doctor` checks that a server can start with them. A file with secrets \
    should be readable only by root and the user of the server.";

/// Formats a file of all settings with explanations. All except the data directory are commented out at their defaults.
pub(crate) fn template() -> String {
    let mut text = comment(INTRODUCTION);
    for setting in SETTINGS {
        text.push('\n');
        text += &comment(&explanation(setting));
        let mark = if setting.key == "data_dir" { "" } else { "#" };
        writeln!(text, "{mark}{} = {}", setting.key, value(setting)).expect("a string takes everything");
    }
    text
}

pub(crate) fn man_page() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["bellwire.toml", "5", "", concat!("bellwire ", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]).text([roman("bellwire.toml - settings of Bellwire")]);
    page.control("SH", ["DESCRIPTION"]).text([roman(
        "A TOML file of keys and values: the one that --config or BELLWIRE_CONFIG names, else the one in the data directory, else \
         /etc/bellwire/bellwire.toml. Command-line flags and environment variables take precedence. The owner must be \
         root or the user who runs Bellwire, and no other user may have write permission.",
    )]);
    page.control("SH", ["SETTINGS"]);
    for setting in SETTINGS {
        page.control("TP", []).text([bold(setting.key), roman(" = "), italic(value(setting))]);
        page.text([roman(explanation(setting))]);
        page.control("br", []).text(elsewhere(setting));
    }
    page.control("SH", ["SEE ALSO"]).text([bold("bellwire"), roman("(1), "), bold("bellwire-serve"), roman("(1)")]);
    page
}

/// Returns the flag and variable of a setting.
fn elsewhere(setting: &Setting) -> Vec<Inline> {
    let variables = [bold(setting.variable()), roman(" in the environment")];
    let flag = [bold(format!("--{}", setting.flag())), roman(" on the command line, ")];
    flag.into_iter().filter(|_| !setting.secret).chain(variables).collect()
}

fn explanation(setting: &Setting) -> String {
    setting.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Default value as TOML.
fn value(setting: &Setting) -> String {
    let plain = setting.default.parse::<f64>().is_ok() || setting.default.parse::<bool>().is_ok();
    match setting.key {
        "data_dir" => format!("\"{DATA_DIR}\""),
        _ if plain => setting.default.to_owned(),
        _ => serde_json::Value::from(setting.default).to_string(), // a JSON string is a TOML string, too
    }
}

fn comment(text: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("# {word}"));
        } else {
            *last += " ";
            *last += word;
        }
    }
    lines.join("\n") + "\n"
}
