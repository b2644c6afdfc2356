//! Files in packages match the program that they contain.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::support::TempDir;
use crate::support::program::{run_bellwire, stdout_of};
use crate::support::repository::{assert_no_findings, container_tool, read_file, root};

/// The verbs that `--help` shows below these.
fn verbs(of: &[&str]) -> BTreeSet<String> {
    let help = stdout_of(run_bellwire(&[of, &["--help"]].concat()));
    let (commands, _) = help.split_once("\nOptions:\n").expect("options");
    let is_command = |line: &&str| line.strip_prefix("  ").is_some_and(|line| line.starts_with(char::is_lowercase));
    let names = commands.lines().filter(is_command).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn systemd_unit_has_the_strictest_sandbox() {
    const EXPOSURE_MAX: &str = "20"; // tenths
    let unit = root().join("packaging/bellwire.service");
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE_MAX]).arg(unit);
    let output =
        command.output().unwrap_or_else(|error| panic!("systemd-analyze: {error}; run `make deps NEEDS=--test`"));
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("Overall exposure level"), "{told}\n{said}");
}

#[test]
fn units_agree_with_settings_and_each_other() {
    let (service, socket) = (read_file("packaging/bellwire.service"), read_file("packaging/bellwire.socket"));
    let listen = stdout_of(run_bellwire(&["serve", "--print-config"]));
    let default =
        listen.lines().find_map(|line| line.strip_prefix("listen = \"")?.split('"').next()).expect("a default");
    assert!(socket.contains(&format!("\nListenStream={default}\n")), "{default}");
    assert!(service.contains("\nRequires=bellwire.socket\n"));
    let command =
        service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/bellwire ")).expect("a command");
    run_bellwire(&[command, "--help"]);
    let sysusers = read_file("packaging/bellwire.sysusers");
    let user = service.lines().find_map(|line| line.strip_prefix("User=")).expect("a user");
    assert!(sysusers.lines().any(|line| line.starts_with(&format!("u {user} "))), "{user} is not made");
}

#[test]
fn packaged_settings_file_matches_the_program() {
    let printed = stdout_of(run_bellwire(&["serve", "--print-template"]));
    assert_eq!(
        printed,
        read_file("packaging/bellwire.toml"),
        "bellwire serve --print-template > packaging/bellwire.toml"
    );
    let active: Vec<&str> = printed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(active, ["data_dir = \"/var/lib/bellwire\""], "all others are commented out");
    let dir = TempDir::new();
    let file = dir.path().join("bellwire.toml");
    let all = |text: &str| {
        text.replace("\n#", "\n").lines().filter(|line| !line.starts_with(' ')).collect::<Vec<_>>().join("\n")
    };
    std::fs::write(&file, all(&printed)).expect("a file");
    let in_force = stdout_of(run_bellwire(&["serve", "--print-config", "--config", file.to_str().expect("UTF-8")]));
    let given = |line: &&str| line.ends_with(&format!("# {}", file.display()));
    assert_eq!(
        in_force.lines().filter(given).count(),
        in_force.lines().count(),
        "each can be taken as it is:\n{in_force}"
    );
    for line in stdout_of(run_bellwire(&["serve", "--print-config"])).lines().filter(|line| !line.contains("data_dir"))
    {
        let (setting, _) = line.rsplit_once(" # ").expect("an origin");
        assert!(in_force.contains(&format!("{setting} # ")), "{setting} is not the default there");
    }
}

#[test]
fn completions_list_verbs_without_hidden_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = stdout_of(run_bellwire(&["completions", shell]));
        let words: BTreeSet<&str> = completions.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
        for verb in verbs(&[]).iter().chain(&verbs(&["app"])) {
            assert!(words.contains(verb.as_str()), "{shell}: {verb}");
        }
        // All settings are flags of `serve`, and taken by all verbs, which show but two of them.
        let setting = completions.matches("webhook-retention-days").count();
        assert!((1..30).contains(&setting), "{shell}: {setting}");
    }
    let dir = TempDir::new();
    let script = dir.path().join("bellwire");
    std::fs::write(&script, stdout_of(run_bellwire(&["completions", "bash"]))).expect("a file");
    let complete = format!(
        "source {}; COMP_WORDS=(bellwire app re); COMP_CWORD=2; _bellwire bellwire re app; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let output = Command::new("bash").args(["-c", &complete]).output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "release restore-pruned", "{output:?}");
}

#[test]
fn man_pages_cover_verbs_and_settings() {
    let dir = TempDir::new();
    run_bellwire(&["man", dir.path().join("man").to_str().expect("UTF-8")]);
    let page = |name: &str| {
        let path: PathBuf = dir.path().join("man").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}")).replace("\\-", "-")
    };
    let top = page("bellwire.1");
    for verb in verbs(&[]) {
        assert!(top.contains(&format!("bellwire-{verb}(1)")), "{verb}");
        page(&format!("bellwire-{verb}.1"));
        for below in verbs(&[&verb]) {
            page(&format!("bellwire-{verb}-{below}.1"));
        }
    }
    let file = page("bellwire.toml.5");
    for setting in stdout_of(run_bellwire(&["serve", "--print-config"])).lines() {
        let key = setting.trim_start_matches("# ").split(' ').next().expect("a key");
        assert!(file.contains(key), "{key}");
    }
}

#[test]
fn container_files_meet_their_specifications() {
    let mut compose = container_tool("check-jsonschema");
    assert_no_findings(compose.args(["--builtin-schema", "vendor.compose-spec", "contrib/compose/compose.yaml"]));
    assert_no_findings(container_tool("hadolint").args(["--failure-threshold", "style", "Containerfile"]));
}

#[test]
fn containers_are_locked_down_and_use_real_settings() {
    let (image, compose) = (read_file("Containerfile"), read_file("contrib/compose/compose.yaml"));
    let last_stage = image.rsplit("\nFROM ").next().expect("a stage");
    assert!(last_stage.starts_with("scratch\n"), "nothing but the program");
    assert!(last_stage.contains("\nUSER 65532:65532\n"), "not root");
    let health = last_stage.split("CMD [\"/bellwire\", \"").nth(1).and_then(|rest| rest.split('"').next());
    run_bellwire(&[health.expect("a health check"), "--help"]);
    let compose: serde_json::Value = serde_norway::from_str(&compose).expect("YAML");
    let server = &compose["services"]["server"];
    assert_eq!((&server["read_only"], &server["cap_drop"][0]), (&true.into(), &"ALL".into()));
    let known = stdout_of(run_bellwire(&["serve", "--print-config"]));
    let named = last_stage.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    let environment = server["environment"].as_object().expect("variables");
    let ours = named.chain(environment.keys().map(String::as_str)).filter_map(|name| name.strip_prefix("BELLWIRE_"));
    let ours: Vec<String> = ours.map(str::to_lowercase).collect();
    assert!(ours.len() >= 5, "variables are not found: {ours:?}");
    for key in ours {
        assert!(known.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = "))), "{key}");
    }
}
