//! The commands of the operation guides, run as they are written, and the commands that they print.
//!
//! Each block runs in a directory of its own, below which the guide's absolute paths are moved. A block that would change this machine, or
//! needs a tool that is missing, is left out; the reason is printed.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::backups::AGE_IDENTITY;
use crate::support::citus::{self, cluster};
use crate::support::guide_pages::{commands, pages};
use crate::support::{TempDir, TestDatabase};

/// Directories that the guides name.
const DIRECTORIES: [&str; 5] = ["/backups", "/safe", "/etc/bellwire", "/var/lib/bellwire", "/var/tmp"];
/// Commands that would change this machine, or take minutes.
const LEFT_OUT: [(&str, &str); 11] = [
    ("sudo", "changes this machine"),
    ("systemctl", "changes this machine"),
    ("sysctl", "changes this machine"),
    ("make", "builds for minutes"),
    ("cargo", "builds for minutes"),
    ("scripts/install-deps", "changes this machine"),
    ("scripts/bench", "measures for minutes"),
    ("docker", "changes this machine"),
    ("kubectl", "changes a cluster"),
    ("pg_rewind", "needs two machines"),
    ("psql", "changes another database"),
];
/// Runs `bellwire` until it ends, but a server only until it is up.
const BELLWIRE: &str = r#"#!/bin/sh
case "$1 $2" in "serve --print-"*) exec "$REAL" "$@";; esac
[ "$1" = serve ] || exec "$REAL" "$@"
said=$(mktemp -u)
mkfifo "$said"
"$REAL" "$@" >"$said" 2>&1 &
server=$!
up=1
while read -r line; do
    echo "$line" >&2
    case $line in *"Bellwire is up"*) up=0; kill -TERM "$server";; esac
done <"$said"
wait "$server" && exit "$up"
"#;
/// Runs a block with the variables that earlier blocks exported.
const KEEPING_VARIABLES: [&str; 2] =
    ["[ ! -e \"$HOME/.variables\" ] || . \"$HOME/.variables\"\n", "\nexport -p >\"$HOME/.variables\"\n"];
/// Stands in for the machine that backups are kept on.
const SSH: &str = "#!/bin/sh\nshift\nexec sh -c \"$*\"\n";
/// Stands in for a store of keys.
const VAULT: &str = "#!/bin/sh\necho BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n";
/// Runs a block beside a server that is up.
const BESIDE_A_SERVER: &str = r#"
OPERATOR=$(bellwire key create --operator --name guide --json | sed 's/.*"secret": *"\([^"]*\)".*/\1/')
mkfifo said
"$REAL" serve --listen 127.0.0.1:8787 >said 2>&1 &
server=$!
exec 3<said
while read -r line <&3; do case $line in *"Bellwire is up"*) break;; esac; done
"#;

/// A place in which blocks run.
struct Sandbox(TempDir);

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(TempDir::new());
        DIRECTORIES.iter().for_each(|directory| fs::create_dir_all(sandbox.path(directory)).expect("a directory"));
        fs::create_dir(sandbox.path("/bin")).expect("a directory");
        for (name, script) in [("bellwire", BELLWIRE), ("ssh", SSH), ("vault", VAULT)] {
            let path = sandbox.path("/bin").join(name);
            fs::write(&path, script).expect("a file");
            fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
        }
        fs::write(sandbox.path("/key.txt"), AGE_IDENTITY).expect("a file");
        let recipient = "age1zwlyl6h27gzv0lfntr7fcqrjrzqazap8sy5zylkxwneh7llf0dksu37mwt\n";
        fs::write(sandbox.path("/recipients.txt"), recipient).expect("a file");
        sandbox.succeeds("bellwire init shop --origin https://shop.example");
        sandbox
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// A script with the guide's absolute paths below this directory.
    fn moved(&self, script: &str) -> String {
        let below = |script: String, directory: &&str| {
            script.replace(&format!("{directory}/"), &format!("{}/", self.path(directory).display()))
        };
        DIRECTORIES.iter().fold(script.to_owned(), below)
    }

    fn run(&self, script: &str, more: &[(&str, String)]) -> Output {
        let mut command = Command::new("/bin/sh");
        let path = format!("{}:/usr/sbin:/usr/bin:/bin", self.path("/bin").display());
        command.env_clear().env("PATH", path).env("HOME", self.0.path()).current_dir(self.0.path());
        command.env("REAL", env!("CARGO_BIN_EXE_bellwire")).env("BELLWIRE_LISTEN", "127.0.0.1:0");
        command.env("BELLWIRE_DATA_DIR", self.path("/var/lib/bellwire")).envs(more.iter().map(|(k, v)| (*k, v)));
        command.args(["-e", "-c", &self.moved(script)]).stdin(Stdio::null()).output().expect("a shell")
    }

    #[track_caller]
    fn succeeds(&self, script: &str) -> String {
        let output = self.run(script, &[]);
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// Whether a program is installed.
fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/bin"].iter().any(|directory| Path::new(directory).join(program).exists())
}

/// Why a command cannot run here. `None`: it can.
fn obstacle(words: &[String]) -> Option<String> {
    let program = words[0].as_str();
    if let Some((_, why)) = LEFT_OUT.iter().find(|(name, _)| *name == program) {
        return Some(format!("{program} {why}"));
    }
    // A path is what output is redirected to.
    let ours = ["bellwire", "ssh", "vault", "export", "unset", "cd", "echo"];
    if !ours.contains(&program) && !program.starts_with('/') && !is_installed(program) {
        return Some(format!("{program} is not installed"));
    }
    if words.iter().any(|word| word == "--acme-domain") {
        return Some("certificates by ACME need a public name".to_owned());
    }
    if words.iter().any(|word| word == "--distribute") {
        return Some("bellwire migrate --distribute needs Citus".to_owned());
    }
    if words.iter().any(|word| word.contains('…')) {
        return Some("an id is shortened".to_owned());
    }
    let verb: Vec<&str> = words.iter().skip(1).map(String::as_str).take(2).collect();
    match verb[..] {
        ["doctor", ..] if program == "bellwire" && !words.iter().any(|word| word == "--offline") => {
            return Some("bellwire doctor asks push services over the network".to_owned());
        }
        ["watch" | "simulate-gateway", ..] if program == "bellwire" => {
            return Some(format!("bellwire {} runs until it is stopped", verb[0]));
        }
        ["postgres", "upgrade"] => return Some("bellwire postgres upgrade needs a newer Postgres".to_owned()),
        _ => {}
    }
    // Ports that the command names.
    let addresses = words.iter().filter_map(|word| word.trim_start_matches("http://").split('/').next());
    let taken = addresses.filter(|word| word.starts_with("0.0.0.0:") || word.starts_with("127.0.0.1:"));
    let mut taken = taken.filter(|address| TcpListener::bind(address).is_err());
    taken.next().map(|address| format!("{address} cannot be opened"))
}

/// Brings about what a block starts from.
fn prepare(sandbox: &Sandbox, block: &str) {
    if block.contains("--tls-cert") {
        sandbox.succeeds(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=push.example.com \
             -keyout /etc/bellwire/privkey.pem -out /etc/bellwire/fullchain.pem",
        );
    }
    if block.contains("bellwire restore") {
        // The disk is lost.
        let lost =
            "cp /var/lib/bellwire/master.key /safe/master.key && rm -rf /var/lib/bellwire/* && cp /backups/*.age .";
        sandbox.succeeds(lost);
    }
}

/// Runs a block as it is written. Returns why it failed, or why it was left out.
fn run(sandbox: &Sandbox, block: &str, more: &[(&str, String)]) -> Result<(), String> {
    prepare(sandbox, block);
    let beside = block.contains("127.0.0.1:8787");
    let script = match beside {
        true => format!("{BESIDE_A_SERVER}{block}\nkill $server\ncat <&3 >/dev/null\nwait $server\n"),
        false => block.to_owned(),
    };
    let [before, behind] = KEEPING_VARIABLES;
    let output = sandbox.run(&format!("{before}{script}{behind}"), more);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn blocks_of_operation_guides_run_as_written() {
    let (mut faults, mut ran) = (Vec::new(), BTreeMap::new());
    for page in pages().iter().filter(|page| page.path.starts_with("docs/operate/")) {
        let blocks: Vec<&str> = page.shell().collect();
        if blocks.is_empty() {
            continue;
        }
        let sandbox = Sandbox::new();
        for block in blocks {
            let first = block.lines().next().unwrap_or_default().trim();
            if let Some(why) = commands(block).iter().find_map(|words| obstacle(words)) {
                eprintln!("{}: left out, {why}: {first}", page.path);
                continue;
            }
            *ran.entry(page.path.clone()).or_insert(0) += 1;
            let failed = run(&sandbox, block, &[]).err();
            faults.extend(failed.map(|said| format!("{}:\n{block}{said}", page.path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let at_least = |page: &str, n| assert!(ran.get(page).is_some_and(|ran| *ran >= n), "{page}: {ran:?}");
    at_least("docs/operate/backup.md", 5);
    at_least("docs/operate/dead-letters.md", 1);
    at_least("docs/operate/networks.md", 2);
    at_least("docs/operate/push-services.md", 3);
    at_least("docs/operate/watch.md", 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_citus_guide_run_as_written() {
    let Some(cluster) = cluster() else {
        eprintln!("docs/operate/citus.md: left out, {} names no coordinator", citus::VARIABLE);
        return;
    };
    let database = TestDatabase::undistributed(cluster, 2).await;
    let pages = pages();
    let page = pages.iter().find(|page| page.path == "docs/operate/citus.md").expect("it is there");
    let block = page.shell().find(|block| block.contains("migrate --distribute")).expect("the page has it").to_owned();
    let url = [
        ("BELLWIRE_DATABASE_URL", database.url()),
        ("BELLWIRE_MASTER_KEY", crate::support::app::MASTER_KEY.to_owned()),
    ];
    let done = tokio::task::spawn_blocking(move || run(&Sandbox::new(), &block, &url)).await.expect("no panic");
    done.unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn printed_commands_run_as_printed() {
    let sandbox = Sandbox::new();
    sandbox.succeeds("bellwire backup --output /backups/one");
    fs::create_dir(sandbox.path("/other")).expect("a directory");
    sandbox.succeeds("cp /var/lib/bellwire/master.key other/master.key");
    let restored = format!("bellwire restore --data-dir {} /backups/one 2>&1", sandbox.path("/other").display());
    let said = sandbox.succeeds(&restored);
    let printed = said.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_whole = |command: &String| {
        command.contains("bellwire")
            && command.split(' ').all(|word| word.starts_with('-') || word != word.to_uppercase())
    };
    let printed: Vec<String> = printed.filter(is_whole).collect();
    assert!(printed.len() >= 3, "{said}");
    for command in printed {
        // Not by a setting that the reader does not see.
        let elsewhere = [("BELLWIRE_DATA_DIR", "/nonexistent".to_owned())];
        let output = sandbox.run(&command, &elsewhere);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
