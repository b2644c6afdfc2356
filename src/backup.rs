//! Backup and restore of the whole database by `pg_dump` and `pg_restore`, with the embedded Postgres or another one. [`file`]
//! defines the format, [`age`] encrypts it, and [`restoring`] settles a restored database.

mod age;
mod file;
mod paced;
mod tools;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::task::spawn_blocking;
use uuid::Uuid;

pub(crate) use age::{Identity, Recipient};
use file::{Backup, BackupFileError, Manifest};
use paced::Paced;
use tools::{LibpqEnvironment, Running};

use crate::config::Config;
use crate::progress::{Progress, Unit};
use crate::server::context;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_postgres::{Binaries, Embedded};
use bellwire_store::connections::engine;
use bellwire_store::keys::data_keys;
use bellwire_store::operations::backups::{self, BackupKind};
use bellwire_store::operations::restoring::{self, RestoreSource, Settled};
use bellwire_store::operations::schema::{self, Contents, SCHEMA};
use bellwire_store::{self as store, Beside, SchemaError};
use bellwire_vault::Vault;

/// Bytes of the write buffer.
const BUFFER: usize = 1 << 20;
/// Connections to the database: one to read, and one to record.
const CONNECTIONS: u32 = 2;

/// An open database and its options. `postgres` is set if it is the embedded one.
struct OpenDatabase {
    postgres: Option<Arc<Embedded>>,
    options: PgConnectOptions,
    place: LibpqEnvironment,
}

impl OpenDatabase {
    async fn new(config: &Config) -> anyhow::Result<Self> {
        let (postgres, options) = context::database(config).await?;
        let place = LibpqEnvironment::new(&options, config.database_url.as_ref().map(|url| url.expose()));
        Ok(Self { postgres, options, place })
    }

    async fn close(self) {
        if let Some(postgres) = self.postgres
            && let Err(panic) = spawn_blocking(move || postgres.stop()).await
        {
            tracing::error!(%panic, "Postgres was not stopped");
        }
    }
}

/// Finds `pg_dump` and `pg_restore` for a server of this major version.
async fn tools(config: &Config, major: u32) -> anyhow::Result<Binaries> {
    let options = config.postgres_options();
    let found = spawn_blocking(move || {
        Binaries::find_tools(options.binaries.as_deref(), options.search_path.as_deref(), major)
    });
    Ok(found.await??)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BackupRecord {
    pub id: Uuid,
    /// Start of the backup. Later changes are not in it.
    pub began_at: Timestamp,
    /// Size of the backup in bytes.
    pub octets: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum BackupTarget {
    /// A new file that only its owner can read. Its name ends in `.part` until it is complete.
    File(PathBuf),
    Stdout,
}

#[derive(Debug, Clone)]
pub(crate) struct BackupOutput {
    pub to: BackupTarget,
    /// Recipients of the encryption. Empty: not encrypted.
    pub recipients: Vec<Recipient>,
    /// Maximum bytes per second.
    pub max_rate: Option<NonZeroU64>,
    /// Whether progress is hidden.
    pub is_quiet: bool,
}

/// Makes a backup while servers are running.
pub(crate) async fn make(config: &Config, output: BackupOutput) -> anyhow::Result<BackupRecord> {
    let opened = OpenDatabase::new(config).await?;
    let made = make_of(config, &opened, output).await;
    opened.close().await;
    made
}

async fn make_of(config: &Config, opened: &OpenDatabase, output: BackupOutput) -> anyhow::Result<BackupRecord> {
    let migration = match schema::inspect(&opened.options).await? {
        Contents::Ours(applied) => applied.last().map_or(0, |last| last.version),
        Contents::Nothing | Contents::Others(_) => {
            bail!("there is nothing to back up: the database holds no tables of Bellwire's")
        }
    };
    let pool = store::connect(opened.options.clone(), CONNECTIONS).await?;
    if engine::is_distributed() {
        bail!("the database is distributed by Citus: back up its whole cluster, by its own means")
    }
    let made = dump(config, opened, &pool, migration, output).await;
    pool.close().await;
    made
}

async fn dump(
    config: &Config, opened: &OpenDatabase, pool: &PgPool, migration: i64, output: BackupOutput,
) -> anyhow::Result<BackupRecord> {
    let clock = Clock::system();
    clock.follow(store::database_now(pool).await?);
    let data_keys = data_keys::wrapped(pool).await?;
    let vault = data_keys::open_wrapped(&data_keys, &config.master_key_source()).await?;
    let postgres = store::operations::setup::settings(pool).await?.version_number;
    let tools = tools(config, major(postgres)).await?;
    let (id, began_at) = (clock.uuid(), clock.now());
    // Before an upgrade the schema may be older than the table of backups.
    let is_recorded = store::check_schema(&opened.options).await.is_ok();
    if is_recorded {
        backups::begin(pool, id, BackupKind::Dump, began_at).await?;
    }
    let program = env!("CARGO_PKG_VERSION").to_owned();
    let manifest = Manifest { id, began_at, program, migration, postgres, pg_dump: tools.major, data_keys };
    let place = opened.place.clone();
    // About as large as the backup before.
    let total = if is_recorded { backups::last_octets(pool).await? } else { None };
    let progress = Progress::begin("backup", Unit::Bytes, total, output.is_quiet);
    let written = spawn_blocking(move || write(&output, &manifest, &vault, &tools, &place, &progress));
    let octets = written.await??;
    if is_recorded {
        backups::complete(pool, id, Some(octets), clock.now()).await?;
    }
    Ok(BackupRecord { id, began_at, octets })
}

fn major(version_number: i32) -> u32 {
    u32::try_from(version_number).unwrap_or(0) / 10_000
}

/// Writes a backup to its output and returns its octets.
fn write(
    output: &BackupOutput, manifest: &Manifest, vault: &Vault, tools: &Binaries, place: &LibpqEnvironment,
    progress: &Progress,
) -> anyhow::Result<u64> {
    let BackupOutput { to, recipients, max_rate, .. } = output;
    let BackupTarget::File(path) = to else {
        let mut out = Paced::new(BufWriter::with_capacity(BUFFER, io::stdout().lock()), *max_rate);
        write_to(&mut progress.counting(&mut out), recipients, manifest, vault, tools, place)?;
        return Ok(out.octets());
    };
    let (part, file) = new_file(path)?;
    let mut out = Paced::new(BufWriter::with_capacity(BUFFER, file), *max_rate);
    let written =
        write_to(&mut progress.counting(&mut out), recipients, manifest, vault, tools, place).and_then(|()| {
            out.get_ref().get_ref().sync_all()?;
            fs::rename(&part, path).with_context(|| format!("cannot create {}", path.display()))?;
            let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(File::open(above)?.sync_all()?)
        });
    if let Err(error) = written {
        let _ = fs::remove_file(&part); // an incomplete file is useless
        return Err(error);
    }
    Ok(out.octets())
}

/// Creates the `.part` file, and removes one of an interrupted backup. Fails if the final file exists.
fn new_file(path: &Path) -> anyhow::Result<(PathBuf, File)> {
    if path.exists() {
        bail!("{} exists already: name another file, or remove it", path.display());
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    if part.exists() {
        fs::remove_file(&part).with_context(|| format!("cannot remove {}", part.display()))?; // of an interrupted backup
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let failed = || {
        format!("cannot create {}; its directory must exist, and this user must be able to write to it", path.display())
    };
    Ok((part, file.with_context(failed)?))
}

fn write_to(
    to: &mut impl Write, recipients: &[Recipient], manifest: &Manifest, vault: &Vault, tools: &Binaries,
    place: &LibpqEnvironment,
) -> anyhow::Result<()> {
    let (dump, archive) = self::tools::dump(tools.program("pg_dump"), place)?;
    let mut dump = Some(dump);
    let end = || dump.take().map_or(Ok(()), Running::end).map_err(|error| io::Error::other(format!("{error:#}")));
    let written = file::write(to, recipients, manifest, vault.backup_mac(), archive, end);
    if let Some(dump) = dump {
        dump.kill();
    }
    written.context("the backup was not made")
}

/// Records a backup that was made by other means just now.
pub(crate) async fn note(config: &Config) -> anyhow::Result<BackupRecord> {
    let opened = OpenDatabase::new(config).await?;
    let noted = async {
        store::check_schema(&opened.options).await?;
        let pool = store::connect(opened.options.clone(), CONNECTIONS).await?;
        let clock = Clock::system();
        clock.follow(store::database_now(&pool).await?);
        let (id, began_at) = (clock.uuid(), clock.now());
        backups::begin(&pool, id, BackupKind::Other, began_at).await?;
        backups::complete(&pool, id, None, began_at).await?;
        pool.close().await;
        Ok(BackupRecord { id, began_at, octets: 0 })
    };
    let noted = noted.await;
    opened.close().await;
    noted
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// Whether pending messages and campaigns continue without an operator.
    pub resume_pending: bool,
    /// Whether the tables of a database with Bellwire's data are replaced.
    pub replace: bool,
    /// Whether progress is hidden.
    pub is_quiet: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Restored {
    /// Id of the backup. Null if another tool restored it.
    pub backup: Option<Uuid>,
    /// Time from which data are missing.
    pub backed_up_at: Timestamp,
    /// Whether pending messages and campaigns are held back.
    pub held_back: bool,
    pub pending: Settled,
}

/// Restores a backup. Reads the file once to verify it before any write, then a second time to restore it.
pub(crate) async fn restore(
    config: &Config, path: PathBuf, identities: Vec<Identity>, how: How,
) -> anyhow::Result<Restored> {
    let identities = Arc::new(identities);
    let (manifest, vault) = prove(config, path.clone(), identities.clone(), how.is_quiet).await?;
    let opened = OpenDatabase::new(config).await?;
    let file = BackupFile { path, identities, manifest, vault };
    let restored = restore_into(config, &opened, file, how).await;
    opened.close().await;
    restored
}

/// A backup file that has been verified.
struct BackupFile {
    path: PathBuf,
    identities: Arc<Vec<Identity>>,
    manifest: Manifest,
    vault: Vault,
}

/// Verifies a file to its end. Fails unless it is a complete backup of this or an earlier version, made with the current master
/// key.
async fn prove(
    config: &Config, path: PathBuf, identities: Arc<Vec<Identity>>, is_quiet: bool,
) -> anyhow::Result<(Manifest, Vault)> {
    let (at, by) = (path.clone(), identities.clone());
    let manifest = spawn_blocking(move || Backup::open(&at, &by).map(|backup| backup.manifest)).await?;
    let manifest = manifest.with_context(|| path.display().to_string())?;
    if manifest.migration > schema::newest() {
        bail!(
            "the backup is of Bellwire {} with migration {}, which this program does not contain: restore it with the program that \
             made it",
            manifest.program,
            manifest.migration
        );
    }
    let source = config.master_key_source();
    let vault = data_keys::open_wrapped(&manifest.data_keys, &source)
        .await
        .context("the backup cannot be used with this master key: put the one back that the database had then")?;
    let mac = vault.backup_mac();
    let proven = spawn_blocking(move || {
        let progress = Progress::begin("verify", Unit::Bytes, octets_of(&path), is_quiet);
        Backup::open(&path, &identities)?.copy(mac, &mut progress.counting(io::sink()))
    });
    proven.await??;
    Ok((manifest, vault))
}

async fn restore_into(config: &Config, opened: &OpenDatabase, file: BackupFile, how: How) -> anyhow::Result<Restored> {
    let server = refuse_unfit(config, opened, &file.manifest, how).await?;
    let tools = tools(config, server.max(file.manifest.pg_dump)).await?;
    let mut connection = schema::connect_once(&opened.options, SCHEMA).await?;
    restoring::begin(&mut connection).await?;
    let place = opened.place.clone();
    let origin = RestoreSource {
        backup: Some(file.manifest.id),
        backed_up_at: file.manifest.began_at,
        resume_pending: how.resume_pending,
    };
    let filled = spawn_blocking(move || fill(&file, &tools, &place, how.is_quiet)).await?;
    if let Err(error) = filled {
        restoring::undo(&mut connection).await.context("what was there before could not be put back: run it again")?;
        return Err(error);
    }
    let settled = settle(&opened.options, origin).await?;
    restoring::forget_replaced(&mut connection).await?;
    Ok(settled)
}

/// Fails if the database cannot or must not receive the backup. Returns the major version of its server.
async fn refuse_unfit(config: &Config, opened: &OpenDatabase, manifest: &Manifest, how: How) -> anyhow::Result<u32> {
    match schema::inspect(&opened.options).await {
        Ok(Contents::Ours(applied)) if !applied.is_empty() && !how.replace => bail!(
            "the database holds Bellwire's tables already: name an empty one, or --replace what is there (the embedded Postgres: \
             or another --data-dir)"
        ),
        Ok(Contents::Others(table)) if config.database_may_be_anothers() => bail!(
            "the database of DATABASE_URL belongs to another application: it has tables, such as {table}. Set \
             BELLWIRE_DATABASE_URL to where the backup is to go"
        ),
        Ok(Contents::Ours(_)) => schema::refuse_beside_any_worker(&opened.options).await?,
        Ok(_) | Err(SchemaError::Restoring) => {} // an interrupted restore starts again
        Err(error) => return Err(error.into()),
    }
    let pool = store::connect(opened.options.clone(), 1).await?;
    let server = store::operations::setup::settings(&pool).await?.version_number;
    pool.close().await;
    if major(server) < major(manifest.postgres) {
        bail!(
            "the backup is of Postgres {}, and this database runs {}, which is older: restore it into {0} or newer",
            major(manifest.postgres),
            major(server)
        );
    }
    Ok(major(server))
}

/// Returns the size of a backup file, which is little more than its archive.
fn octets_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

/// Copies the archive to `pg_restore`.
fn fill(file: &BackupFile, tools: &Binaries, place: &LibpqEnvironment, is_quiet: bool) -> anyhow::Result<()> {
    let progress = Progress::begin("restore", Unit::Bytes, octets_of(&file.path), is_quiet);
    let (restore, mut archive) = self::tools::restore(tools.program("pg_restore"), place)?;
    let copied = Backup::open(&file.path, &file.identities)
        .and_then(|backup| backup.copy(file.vault.backup_mac(), &mut progress.counting(&mut archive)));
    match copied {
        Ok(_) => {
            drop(archive);
            restore.end()
        }
        // `pg_restore` ended early; its exit status has the reason.
        Err(BackupFileError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => restore.end(),
        Err(error) => {
            restore.kill();
            Err(error).context("the file has changed since it was checked")
        }
    }
}

/// Migrates the schema and settles pending work.
async fn settle(options: &PgConnectOptions, origin: RestoreSource) -> anyhow::Result<Restored> {
    store::migrate(options, Beside::Force).await?;
    let mut connection = schema::connect_once(options, SCHEMA).await?;
    let clock = Clock::system();
    clock.follow(store::database_now(&mut connection).await?);
    let pending = restoring::settle(&mut connection, origin, clock.now()).await?;
    let RestoreSource { backup, backed_up_at, resume_pending } = origin;
    Ok(Restored { backup, backed_up_at, held_back: !resume_pending, pending })
}

/// Settles pending work in a database that another tool restored, such as pgBackRest or a disk snapshot. `since`: start
/// of the time whose events are missing; `None`: the last heartbeat or backup in the database.
pub(crate) async fn settle_in_place(
    config: &Config, since: Option<Timestamp>, resume_pending: bool,
) -> anyhow::Result<Restored> {
    let opened = OpenDatabase::new(config).await?;
    let settled = async {
        data_keys::check(&mut schema::connect_once(&opened.options, SCHEMA).await?, &config.master_key_source())
            .await?;
        schema::refuse_beside_any_worker(&opened.options).await?;
        let mut connection = schema::connect_once(&opened.options, SCHEMA).await?;
        let Some(backed_up_at) = since.or(restoring::last_sign(&mut connection).await?) else {
            bail!(
                "--since is missing: the database records neither a worker's heartbeat nor a backup that would date it"
            );
        };
        settle(&opened.options, RestoreSource { backup: None, backed_up_at, resume_pending }).await
    };
    let settled = settled.await;
    opened.close().await;
    settled
}
