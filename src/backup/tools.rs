//! Calls of `pg_dump` and `pg_restore`.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use percent_encoding::percent_decode_str;
use sqlx::postgres::PgConnectOptions;
use url::form_urlencoded;

use bellwire_store::connections::tls;
use bellwire_store::operations::backups::NOT_BACKED_UP;
use bellwire_store::operations::schema::SCHEMA;

/// Niceness of the programs, so that deliveries have priority.
const NICENESS: i32 = 10;
/// Maximum octets of standard error in an error.
const SAID_MAX: u64 = 4_000;

/// Environment variables with which libpq connects. There is no `Debug`, because they include the password.
#[derive(Clone)]
pub(super) struct LibpqEnvironment(Vec<(&'static str, String)>);

impl LibpqEnvironment {
    /// Reads the options, and from `url` what the options do not expose.
    pub(super) fn new(options: &PgConnectOptions, url: Option<&str>) -> Self {
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => options.get_host().trim_matches(['[', ']']).to_owned(),
        };
        let mut variables = vec![
            ("PGHOST", host),
            ("PGPORT", options.get_port().to_string()),
            ("PGUSER", options.get_username().to_owned()),
            ("PGDATABASE", options.get_database().unwrap_or(options.get_username()).to_owned()),
            ("PGSSLMODE", tls::mode_name(options.get_ssl_mode()).to_owned()),
        ];
        variables.extend(url.into_iter().flat_map(only_in_url));
        Self(variables)
    }
}

fn only_in_url(url: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if let Some((_, password)) = user.split_once(':') {
        found.push(("PGPASSWORD", percent_decode_str(password).decode_utf8_lossy().into_owned()));
    }
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let variable = match &*name {
            "password" => "PGPASSWORD",
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => "PGSSLROOTCERT",
            "sslcert" | "ssl-cert" => "PGSSLCERT",
            "sslkey" | "ssl-key" => "PGSSLKEY",
            _ => continue,
        };
        found.push((variable, value.into_owned()));
    }
    found
}

/// A running program of Postgres.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    /// Reads standard error, because a full pipe would block the program.
    said: JoinHandle<String>,
}

impl Running {
    fn start(
        program: PathBuf, name: &'static str, place: &LibpqEnvironment, arguments: &[&str], stdin: Stdio,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        // The environment of the server may contain the master key, and `PG…` variables would change the connection.
        // The password file of libpq is kept, because the server uses it as well.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
        for kept in ["HOME", "PGPASSFILE", "PGPASSWORD"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.envs(place.0.iter().cloned()).args(arguments);
        let stdout = if name == "pg_dump" { Stdio::piped() } else { Stdio::null() };
        let mut child = command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        be_modest(&child);
        let stderr = child.stderr.take();
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            let Some(mut stderr) = stderr else { return String::new() };
            // An incomplete message is enough.
            let _ = (&mut stderr).take(SAID_MAX).read_to_end(&mut said);
            let _ = io::copy(&mut stderr, &mut io::sink());
            String::from_utf8_lossy(&said).trim().to_owned()
        });
        Ok(Self { name, child, said })
    }

    /// Waits for the exit. A failure becomes an error with the standard error of the program.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        let said = self.said.join().unwrap_or_default();
        if !status.success() {
            bail!("{} failed ({status}): {said}", self.name);
        }
        Ok(())
    }

    /// Kills the program. A restore is one transaction and leaves nothing.
    pub(super) fn kill(mut self) {
        // Fails if the program has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lowers the priority of the program. Without the right to do so, it runs with the priority of this process.
fn be_modest(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let _ = rustix::process::setpriority_process(pid, NICENESS);
}

pub(super) fn dump(pg_dump: PathBuf, place: &LibpqEnvironment) -> anyhow::Result<(Running, ChildStdout)> {
    let schema = format!("--schema={SCHEMA}");
    let left_out: Vec<_> = NOT_BACKED_UP.iter().map(|table| format!("--exclude-table-data={SCHEMA}.{table}")).collect();
    // Most of the data is sealed and incompressible, so the fastest level is enough.
    let mut arguments =
        vec!["--format=custom", "--compress=1", "--no-owner", "--no-privileges", "--no-password", &schema];
    arguments.extend(left_out.iter().map(String::as_str));
    let mut running = Running::start(pg_dump, "pg_dump", place, &arguments, Stdio::null())?;
    let archive = running.child.stdout.take().context("pg_dump has no output")?;
    Ok((running, archive))
}

/// Starts a restore in one transaction. The schema must exist, without objects of the same names.
pub(super) fn restore(pg_restore: PathBuf, place: &LibpqEnvironment) -> anyhow::Result<(Running, ChildStdin)> {
    let (schema, database) = (format!("--schema={SCHEMA}"), format!("--dbname={}", place.database()));
    let arguments = [
        "--single-transaction",
        "--exit-on-error",
        "--no-owner",
        "--no-privileges",
        "--no-password",
        &schema,
        &database,
    ];
    let mut running = Running::start(pg_restore, "pg_restore", place, &arguments, Stdio::piped())?;
    let archive = running.child.stdin.take().context("pg_restore has no input")?;
    Ok((running, archive))
}

impl LibpqEnvironment {
    fn database(&self) -> &str {
        self.0.iter().find(|(name, _)| *name == "PGDATABASE").map_or("", |(_, value)| value)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/backup/tools.rs"]
mod tests;
