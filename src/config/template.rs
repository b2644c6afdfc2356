//! The settings as texts for people who write a `bellwire.toml`.

use std::fmt::Write;

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::SETTINGS;
use super::settings::Setting;

/// How long the lines of the template may be.
const WIDTH: usize = 120;
/// Where the data is on machines that have this file. It is not commented out: the default depends on who starts the program, and
/// commands are to find the data of the server.
const DATA_DIR: &str = "/var/lib/bellwire";

const INTRODUCTION: &str = "Settings of Bellwire. Each line that is commented out shows a setting's default: remove the # to change it. \
    What the command line and the environment say comes first. Servers read this file when they start; `bellwire serve \
    --print-config` shows what is in force and `bellwire doctor` whether a server can start on it. Where it holds secrets, nobody \
    but root and the user of the server should be able to read it.";

/// A file of all settings, each explained and, but for the data directory, commented out at its default.
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
         /etc/bellwire/bellwire.toml. Flags of the command line and variables of the environment come before it. It must belong to \
         root or the user who runs Bellwire, and nobody else may be able to write to it.",
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

/// By which other names it can be set.
fn elsewhere(setting: &Setting) -> Vec<Inline> {
    let variables = [bold(setting.variable()), roman(" in the environment")];
    let flag = [bold(format!("--{}", setting.flag())), roman(" on the command line, ")];
    flag.into_iter().filter(|_| !setting.secret).chain(variables).collect()
}

fn explanation(setting: &Setting) -> String {
    setting.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Its default as TOML.
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
