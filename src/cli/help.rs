//! Text below the options in `--help`, and the list of commands by subject.

use clap::Command;

pub(super) const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed; standard error has the reason
  2  wrong arguments or settings
  3  doctor found something that needs attention";

pub(super) const MORE_SETTINGS: &str =
    "Every setting of `bellwire serve` is accepted too: as a flag, a variable, or in bellwire.toml.";

pub(super) const BACKUP_EXAMPLES: &str = "Examples:
  bellwire backup --output /backups/bellwire-2030-01-31
  bellwire backup --max-rate 8 --output /backups/bellwire-2030-01-31
  bellwire backup --recipient age1… | ssh backups 'cat > bellwire-2030-01-31.age'";

pub(super) const RESTORE_EXAMPLES: &str = "Examples:
  bellwire restore /backups/bellwire-2030-01-31
  bellwire restore bellwire-2030-01-31.age --identity key.txt --data-dir /var/lib/bellwire
  bellwire restore --in-place --since 2030-01-31T08:00:00Z";

pub(super) const COMPLETIONS_EXAMPLE: &str = "Example:
  bellwire completions bash > ~/.local/share/bash-completion/completions/bellwire";

pub(super) const OPENAPI_EXAMPLE: &str = "Example:
  bellwire openapi > openapi.json";

pub(super) const MCP_EXAMPLES: &str = "Examples:
  bellwire mcp --server https://push.example.com
  bellwire mcp --server https://push.example.com --allow-write";

pub(super) const SIMULATOR_EXAMPLE: &str =
    "Example, with a server that delivers to the simulator (PORT: from the line that the command prints):
  bellwire simulate-gateway --gateway fcm=fcm.bellwire.test --ca-file ca.pem
  bellwire serve --gateways fcm.bellwire.test=fcm@127.0.0.1:PORT --gateway-ca-file ca.pem --allow-loopback

Its HTTP interface: POST /mint, /rules, /reset; GET /report, /received, /rules, /hosts, /ca.pem";

/// Commands by subject, as the program's help lists them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start", &["serve", "init", "demo"]),
    ("Send", &["send", "message", "campaign", "template"]),
    ("Audience", &["app", "topic", "segment", "user", "cap", "import", "export"]),
    ("Delivery", &["watch", "metrics", "explain", "dead-letters", "policy", "webhook"]),
    ("Access", &["key", "vapid", "admin", "audit", "keys", "master-key"]),
    ("Operate", &["doctor", "health", "log-level", "migrate", "backup", "restore", "held", "postgres"]),
    ("Tools", &["mcp", "simulate-gateway", "openapi", "completions", "man"]),
];

/// Lists the program's commands by subject instead of in one list.
pub(super) fn grouped(program: Command) -> Command {
    let mut list = String::new();
    for (subject, names) in GROUPS {
        list.push_str(&format!("{subject}:\n"));
        for name in names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            list.push_str(&format!("  {name:<17} {}\n", about.map(ToString::to_string).unwrap_or_default()));
        }
        list.push('\n');
    }
    let list = list.trim_end().to_owned();
    program.before_help(list).help_template(
        "{about}\n\n{usage-heading} {usage}\n\n{before-help}`bellwire help <COMMAND>` explains a command.\n\nOptions:\n{options}{after-help}",
    )
}

#[cfg(test)]
#[path = "../../tests/unit/cli/help.rs"]
mod tests;
