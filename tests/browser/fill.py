"""Rows for a daemon that has worked for a year: put into its database while it is stopped.

    fill_jobs(daemon, like, count)    finished jobs after the pattern of one that was really run
    fill_steps(daemon, job_id, count) a curve of so many steps for a job that has ended
"""

import contextlib
import json
import math
import sqlite3

STATES = ("succeeded", "succeeded", "succeeded", "failed", "cancelled")


@contextlib.contextmanager
def opened(daemon):
    assert daemon.process is None, "the daemon is stopped first"
    connection = sqlite3.connect(daemon.folder / "state/needled.db")
    with contextlib.closing(connection), connection:
        yield connection


def columns_of(connection):
    return [row[1] for row in connection.execute("PRAGMA table_info(jobs)") if row[1] != "seq"]


def fill_jobs(daemon, like, count):
    """Job n is called run-<n>, each fifth has failed and each fifth was cancelled; run-0 is the oldest."""
    with opened(daemon) as connection:
        names = columns_of(connection)
        pattern = dict(zip(names, connection.execute(
            f"SELECT {', '.join(names)} FROM jobs WHERE id = ?", (like,)).fetchone()))
        for n in range(count):
            state = STATES[n % len(STATES)]
            ended = pattern["finished_unix_s"] - 600 * (count - n)
            row = {**pattern, "id": f"ftjob-filled{n:018d}", "suffix": f"run-{n}", "state": state,
                   "created_unix_s": ended - 90, "started_unix_s": ended - 60, "finished_unix_s": ended,
                   "last_train_loss": 2 + math.sin(n), "idempotency_key": None, "result_file": "",
                   "last_event_number": 0, "position": -count + n,
                   "fine_tuned_model": "" if state != "succeeded" else f"ft:mini:local:run-{n}:{n:08d}"}
            if state == "failed":
                row.update(error_code="invalid_data", error_message="line 7: the field 'answers' is missing")
            connection.execute(f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                               [row[name] for name in names])


def loss_of(step, count):
    return 0.4 + 6 * math.exp(-8 * step / count) + 0.15 * math.sin(step * 12.9898) * math.cos(step * 0.0041)


def fill_steps(daemon, job_id, count):
    with opened(daemon) as connection:
        connection.execute("DELETE FROM events WHERE job_id = ?", (job_id,))
        start, = connection.execute("SELECT started_unix_s FROM jobs WHERE id = ?", (job_id,)).fetchone()

        def events():
            for step in range(1, count + 1):
                data = {"step": step, "total_steps": count, "epoch": 1, "train_loss": loss_of(step, count),
                        "train_mean_token_accuracy": min(0.97, step / count + 0.3), "tokens": 900,
                        "learning_rate": 1e-4 * (1 - step / count), "grad_norm": 1 + 0.4 * math.sin(step / 7),
                        "trained_tokens": 300 * step, "tokens_per_second": 9000 + step % 700,
                        "time": start + step / 5, "memory_used_bytes": 2_000_000_000 + step % 1000 * 100_000}
                yield (job_id, step, start + step // 5, 0, "metrics", f"Step {step}/{count}", json.dumps(data))
            data = {"step": count, "epoch": 1, "full_valid_loss": 0.62, "full_valid_mean_token_accuracy": 0.93}
            yield job_id, count + 1, start + count // 5, 0, "validation", "full validation loss=0.6200", json.dumps(data)
            yield (job_id, count + 2, start + count // 5, 0, "done", "The job has ended: succeeded",
                   json.dumps({"status": "succeeded"}))

        connection.executemany("INSERT INTO events (job_id, number, created_unix_s, level, type, message, data_json)"
                               " VALUES (?, ?, ?, ?, ?, ?, ?)", events())
        connection.execute("UPDATE jobs SET total_steps = ?, completed_steps = ?, last_event_number = ?,"
                           " last_train_loss = ?, finished_unix_s = started_unix_s + ? WHERE id = ?",
                           (count, count, count + 2, loss_of(count, count), count // 5, job_id))


def rename(daemon, job_id, name):
    """A name that no create would take."""
    with opened(daemon) as connection:
        connection.execute("UPDATE jobs SET suffix = ? WHERE id = ?", (name, job_id))
