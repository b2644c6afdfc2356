//! Unit tests of `src/cli/help.rs`, which includes them.

use clap::CommandFactory as _;

use super::*;
use crate::cli::Cli;

#[test]
fn each_command_is_in_one_group() {
    let program = Cli::command();
    let mut known: Vec<&str> =
        program.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    known.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, known);
}

#[test]
fn help_fits_a_terminal() {
    let help = super::grouped(Cli::command()).render_help().to_string();
    assert!(help.contains("\nOperate:\n  doctor ") && help.contains("--json"), "{help}");
    for line in help.lines() {
        assert!(line.chars().count() <= 90, "{line}");
    }
}
