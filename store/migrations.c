#include "store/migrations.h"

/* Lists are ordered by (created_unix_s, seq); seq is never reused, so a cursor stays exact. */
static const char version_1[] =
    "CREATE TABLE files ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " filename TEXT NOT NULL,"
    " purpose TEXT NOT NULL,"
    " size_bytes INTEGER NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " sha256 TEXT NOT NULL,"
    " line_count INTEGER NOT NULL,"
    " example_count INTEGER NOT NULL,"
    " report_json TEXT);"
    "CREATE INDEX files_by_time ON files (created_unix_s, seq);"

    "CREATE TABLE jobs ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " state TEXT NOT NULL CHECK (state IN ('validating_files', 'queued', 'running', 'paused',"
    "  'succeeded', 'failed', 'cancelled')),"
    " base_model TEXT NOT NULL,"
    " training_file TEXT NOT NULL,"
    " validation_file TEXT NOT NULL,"
    " suffix TEXT NOT NULL,"
    " seed INTEGER NOT NULL,"
    " device_wanted TEXT NOT NULL,"
    " device_used TEXT NOT NULL,"
    " numerics TEXT NOT NULL,"
    " hyperparameters_json TEXT,"
    " metadata_json TEXT,"
    " plan_json TEXT,"
    " warnings_json TEXT,"
    " state_reason TEXT NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " started_unix_s INTEGER NOT NULL,"
    " finished_unix_s INTEGER NOT NULL,"
    " total_steps INTEGER NOT NULL,"
    " completed_steps INTEGER NOT NULL,"
    " trained_tokens INTEGER NOT NULL,"
    " last_train_loss REAL,"
    " fine_tuned_model TEXT NOT NULL,"
    " error_code TEXT NOT NULL,"
    " error_param TEXT NOT NULL,"
    " error_message TEXT NOT NULL,"
    " error_lines_json TEXT,"
    " attempt_count INTEGER NOT NULL,"
    " fault_count INTEGER NOT NULL DEFAULT 0,"
    " last_event_number INTEGER NOT NULL DEFAULT 0,"
    " priority REAL NOT NULL DEFAULT 0,"
    " position REAL,"
    " idempotency_key TEXT UNIQUE);"
    "CREATE INDEX jobs_by_time ON jobs (created_unix_s, seq);"
    "CREATE INDEX jobs_by_state ON jobs (state, priority DESC, seq);"

    "CREATE TABLE events ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,"
    " number INTEGER NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 2),"
    " type TEXT NOT NULL,"
    " message TEXT NOT NULL,"
    " data_json TEXT,"
    " UNIQUE (job_id, number));"

    "CREATE TABLE models ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " base_model TEXT NOT NULL,"
    " job_id TEXT NOT NULL,"
    " artifact TEXT NOT NULL,"
    " size_bytes INTEGER NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " sha256 TEXT NOT NULL,"
    " device TEXT NOT NULL,"
    " numerics TEXT NOT NULL,"
    " step INTEGER NOT NULL,"
    " valid_loss REAL);"
    "CREATE INDEX models_by_time ON models (created_unix_s, seq);"

    "CREATE TABLE checkpoints ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,"
    " model_id TEXT NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " step INTEGER NOT NULL,"
    " train_loss REAL,"
    " train_accuracy REAL,"
    " valid_loss REAL,"
    " valid_accuracy REAL,"
    " UNIQUE (job_id, step));";

/* Who owns what, uploads in three calls, sweeps, webhooks. An owner is a key's id, "" the operator. A
 * secret is kept as its SHA-256, but for those that we ourselves sign with. */
static const char version_2[] =
    "ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE files ADD COLUMN expires_unix_s INTEGER NOT NULL DEFAULT 0;" /* 0: never */
    "CREATE INDEX files_by_expiry ON files (expires_unix_s) WHERE expires_unix_s > 0;"

    "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE jobs ADD COLUMN request_json TEXT;" /* the create body, as it was accepted */
    "ALTER TABLE jobs ADD COLUMN request_sha256 TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE jobs ADD COLUMN inputs_json TEXT;" /* several files of a kind: their ids */
    "ALTER TABLE jobs ADD COLUMN max_depth INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN parent_model TEXT NOT NULL DEFAULT '';" /* goes on from it */
    "ALTER TABLE jobs ADD COLUMN result_file TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE jobs ADD COLUMN sweep_id TEXT NOT NULL DEFAULT '';"
    "UPDATE jobs SET position = seq;" /* as each new one */
    "DROP INDEX jobs_by_state;"
    "CREATE INDEX jobs_by_state ON jobs (state, priority DESC, position);"
    "CREATE INDEX jobs_in_line ON jobs (priority DESC, position)"
    "  WHERE state IN ('validating_files', 'queued');"
    "CREATE INDEX jobs_by_sweep ON jobs (sweep_id) WHERE sweep_id != '';"
    "CREATE INDEX jobs_by_request ON jobs (request_sha256, created_unix_s);"
    "CREATE INDEX jobs_by_owner ON jobs (owner, state);"
    "CREATE INDEX jobs_by_parent ON jobs (parent_model) WHERE parent_model != '';"
    "CREATE INDEX jobs_by_result ON jobs (result_file) WHERE result_file != '';"

    "ALTER TABLE models ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE models ADD COLUMN parent_model TEXT NOT NULL DEFAULT '';"

    "CREATE TABLE reservations ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL,"
    " filename TEXT NOT NULL,"
    " size_bytes INTEGER NOT NULL," /* announced */
    " created_unix_s INTEGER NOT NULL,"
    " expires_unix_s INTEGER NOT NULL,"
    " lifetime_s INTEGER NOT NULL," /* of the file to be; 0: for ever */
    " state TEXT NOT NULL CHECK (state IN ('open', 'stored', 'completed')),"
    " sha256 TEXT NOT NULL DEFAULT ''," /* of the stored bytes */
    " line_count INTEGER NOT NULL DEFAULT 0,"
    " example_count INTEGER NOT NULL DEFAULT 0,"
    " file_id TEXT NOT NULL DEFAULT '',"
    " report_json TEXT);"
    "CREATE INDEX reservations_by_expiry ON reservations (expires_unix_s);"
    "CREATE INDEX reservations_by_owner ON reservations (owner, state);"
    "CREATE INDEX files_by_owner ON files (owner);"

    "CREATE TABLE keys ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " name TEXT NOT NULL,"
    " scope TEXT NOT NULL CHECK (scope IN ('read', 'submit', 'admin')),"
    " secret_sha256 TEXT NOT NULL UNIQUE,"
    " hint TEXT NOT NULL,"                   /* its last characters, to tell keys apart */
    " jobs_max INTEGER NOT NULL DEFAULT 0,"  /* unfinished ones; 0: no limit */
    " bytes_max INTEGER NOT NULL DEFAULT 0," /* stored files; 0: no limit */
    " created_unix_s INTEGER NOT NULL,"
    " last_used_unix_s INTEGER NOT NULL DEFAULT 0,"
    " revoked_unix_s INTEGER NOT NULL DEFAULT 0);"

    "CREATE TABLE sweeps ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL,"
    " request_json TEXT NOT NULL,"
    " varied_json TEXT NOT NULL," /* {name: [values]} of what differs */
    " created_unix_s INTEGER NOT NULL);"

    "CREATE TABLE webhooks ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL,"
    " all_jobs INTEGER NOT NULL," /* else those of its owner */
    " name TEXT NOT NULL,"
    " url TEXT NOT NULL,"
    " types TEXT NOT NULL," /* each between commas */
    " secret TEXT NOT NULL,"
    " old_secret TEXT NOT NULL DEFAULT '',"
    " old_secret_until_unix_s INTEGER NOT NULL DEFAULT 0,"
    " enabled INTEGER NOT NULL DEFAULT 1,"
    " created_unix_s INTEGER NOT NULL,"
    " updated_unix_s INTEGER NOT NULL);"
    "CREATE INDEX webhooks_by_owner ON webhooks (owner);"
    "CREATE TABLE deliveries ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,"
    " event_id TEXT NOT NULL,"
    " body TEXT NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " next_unix_s INTEGER NOT NULL," /* 0: done or given up */
    " attempt_count INTEGER NOT NULL DEFAULT 0,"
    " last_status INTEGER NOT NULL DEFAULT 0," /* HTTP; 0: none came */
    " last_error TEXT NOT NULL DEFAULT '');"
    "CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, seq);"
    "CREATE INDEX deliveries_due ON deliveries (webhook_id, next_unix_s) WHERE next_unix_s > 0;"

    "CREATE TABLE rates (" /* what training came to last, for estimates */
    " device TEXT NOT NULL,"
    " base_model TEXT NOT NULL,"
    " setting TEXT NOT NULL," /* numerics, precision, rank */
    " tokens_per_second REAL NOT NULL,"
    " measured_unix_s INTEGER NOT NULL,"
    " PRIMARY KEY (device, base_model, setting));"

    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);";

/* Where deleted records stood in their lists, for whoever pages on from one; and to how many metrics a
 * finished job was thinned; how runs fared that did not end in order. */
static const char version_3[] =
    "CREATE TABLE gone ("
    " list TEXT NOT NULL," /* the table it was in */
    " id TEXT NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " seq INTEGER NOT NULL,"
    " gone_unix_s INTEGER NOT NULL,"
    " PRIMARY KEY (list, id)) WITHOUT ROWID;"
    "CREATE INDEX gone_by_time ON gone (gone_unix_s);"
    "CREATE TRIGGER files_gone AFTER DELETE ON files BEGIN INSERT OR REPLACE INTO gone VALUES"
    " ('files', old.id, old.created_unix_s, old.seq, unixepoch()); END;"
    "CREATE TRIGGER jobs_gone AFTER DELETE ON jobs BEGIN INSERT OR REPLACE INTO gone VALUES"
    " ('jobs', old.id, old.created_unix_s, old.seq, unixepoch()); END;"
    "CREATE TRIGGER checkpoints_gone AFTER DELETE ON checkpoints BEGIN INSERT OR REPLACE INTO gone"
    " VALUES ('checkpoints', old.id, old.created_unix_s, old.seq, unixepoch()); END;"
    "CREATE TRIGGER webhooks_gone AFTER DELETE ON webhooks BEGIN INSERT OR REPLACE INTO gone VALUES"
    " ('webhooks', old.id, old.created_unix_s, old.seq, unixepoch()); END;"

    "ALTER TABLE jobs ADD COLUMN metrics_max INTEGER NOT NULL DEFAULT 0;" /* 0: not thinned */
    "CREATE TABLE removed (" /* by retention: why an id is not there any more */
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " reason TEXT NOT NULL,"
    " removed_unix_s INTEGER NOT NULL);"
    "CREATE INDEX models_by_job ON models (job_id, step);"
    "CREATE INDEX models_by_artifact ON models (artifact);" /* asked for each file at the start */

    "CREATE INDEX jobs_to_thin ON jobs (metrics_max, finished_unix_s) WHERE result_file != '';"

    "CREATE TABLE attempts (" /* deaths of the daemon, and the newest resume checkpoint */
    " job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,"
    " is_reading INTEGER NOT NULL DEFAULT 0,"
    " death_count INTEGER NOT NULL DEFAULT 0,"
    " death_step INTEGER NOT NULL DEFAULT 0,"
    " kept_step INTEGER NOT NULL DEFAULT 0,"
    " kept_unix_s INTEGER NOT NULL DEFAULT 0,"
    " kept_bytes INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX attempts_reading ON attempts (job_id) WHERE is_reading;"
    "CREATE INDEX attempts_of_suspects ON attempts (job_id) WHERE death_count > 0;"

    "CREATE TABLE sessions ("
    " token_sha256 TEXT PRIMARY KEY,"
    " owner TEXT NOT NULL,"
    " key_sha256 TEXT NOT NULL,"
    " expires_unix_s INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX sessions_by_end ON sessions (expires_unix_s);";

const char *const migrations[MIGRATION_COUNT] = {version_1, version_2, version_3};
