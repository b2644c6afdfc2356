//! Settings of the embedded Postgres. They are on its command line at each start, so that an upgrade of Bellwire changes old
//! clusters, too.

/// Durability in a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Committed transactions survive.
    #[default]
    Full,
    /// Nothing survives: for tests, which need no restarts.
    Fast,
}

/// Settings of every cluster.
const COMMON: &[&str] = &[
    // Only this machine's Bellwire connects to it, over a socket in a directory without access for other users.
    "listen_addresses=",
    "port=5432",
    "unix_socket_permissions=0700",
    "timezone=UTC",
    "log_timezone=UTC",
    // Rows hold secrets, sealed or hashed, and people's ids: neither statements nor "failing row contains" are logged.
    "log_error_verbosity=terse",
    "log_min_error_statement=panic",
    "log_checkpoints=off",
    // Statements take a millisecond: compiling them or starting parallel workers would cost more than it gains.
    "jit=off",
    "max_parallel_workers_per_gather=0",
    // A system call for each statement, to rename the process for `ps`.
    "update_process_title=off",
    "random_page_cost=1.1",
    "max_logical_replication_workers=0",
    // An embedded Postgres has no replicas: less to write. Backups are made with pg_dump; operators who need archived
    // WAL use a Postgres of their own.
    "wal_level=minimal",
    "max_wal_senders=0",
];

const FULL: &[&str] = &[
    "synchronous_commit=on",
    // Processes of one Bellwire use some 40; the rest is for psql, pg_dump, and another Bellwire during an upgrade.
    "max_connections=120",
    // Each checkpoint makes every page that is changed after it go to the log in full: rare ones are cheap.
    "max_wal_size=2GB",
    "min_wal_size=256MB",
    "checkpoint_timeout=15min",
    "checkpoint_completion_target=0.9",
    "autovacuum_vacuum_cost_limit=2000",
];

/// Interval of autovacuum without another component that sets it. Queue, batches and cursors change within seconds, and would
/// bloat in a minute.
const UNPACED: &str = "autovacuum_naptime=5s";

const FAST: &[&str] = &[
    "fsync=off",
    "full_page_writes=off",
    // Many tests at once, each with pools of its own.
    "max_connections=400",
    "shared_buffers=128MB",
    "max_wal_size=1GB",
    // Checkpoints and vacuum by the clock would only disturb what tests measure.
    "checkpoint_timeout=1h",
    "autovacuum_naptime=1min",
];

/// Returns the settings as `name=value` for a machine with this memory, without those that are set while Postgres runs.
pub(super) fn settings(durability: Durability, is_paced: bool, memory_mib: u32) -> Vec<String> {
    let mut all: Vec<String> = COMMON.iter().copied().map(str::to_owned).collect();
    match durability {
        Durability::Full => {
            all.extend(FULL.iter().copied().map(str::to_owned));
            all.extend((!is_paced).then(|| UNPACED.to_owned()));
            all.extend(by_memory(memory_mib));
        }
        Durability::Fast => all.extend(FAST.iter().copied().map(str::to_owned)),
    }
    all
}

/// Returns the memory settings. With 2 GiB or more, shared buffers hold the indexes of a million subscriptions and all hot tables, and the
/// operating system caches the remaining tables. On smaller machines they take an eighth, which leaves room for all connections and the
/// server.
fn by_memory(memory_mib: u32) -> [String; 4] {
    let share = |part: u32, least: u32, most: u32| (memory_mib / part).clamp(least, most);
    [
        format!("shared_buffers={}MB", share(8, 24, 256)),
        format!("effective_cache_size={}MB", share(2, 128, 1_024)),
        format!("maintenance_work_mem={}MB", share(16, 16, 128)),
        format!("wal_buffers={}MB", share(128, 2, 16)),
    ]
}

#[cfg(test)]
#[path = "../../../tests/crates/postgres/unit/settings.rs"]
mod tests;
