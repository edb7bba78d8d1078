//! Store backend in a file on this machine.
//!
//! Owns the file's format. `private_file` opens it. Does not decide when to write (`writer.rs`).
//! Invariant: an unreadable file is set aside. It is never overwritten, and never prevents the
//! start.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{
    Database, Error, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, TableError,
};

use crate::store::session_count::SessionCount;
use crate::store::{RowChange, StoreBackend, StoreError, StoreTable, StoredState};
use moongate_platform::private_file;

/// Format version of the rows. Rows of another version are not read.
const FORMAT: u64 = 1;
/// Maximum bytes of the file held in memory. The file is read once, and written in small parts.
const CACHE_BYTES: usize = 1024 * 1024;

const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

fn definition(table: StoreTable) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

/// Open database file.
pub(super) struct EmbeddedStore {
    database: Database,
    path: PathBuf,
    run: u64,
    contents: Option<StoredState>,
    session_count: SessionCount,
}

impl EmbeddedStore {
    /// Opens or creates the file. An unreadable file makes room for a new one.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        match try_open(path) {
            Err(StoreError::Corrupt(why)) => {
                let aside = set_aside(path)?;
                let shown = path.display();
                let aside = aside.display();
                // Their clients get a 404 each, and initialize again. One line reports them all.
                let sessions_lost = SessionCount::for_store(path).read();
                let sessions_lost =
                    sessions_lost.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
                tracing::warn!(
                    sessions_lost,
                    "the state in {shown} cannot be read ({why}); it was moved to {aside}, and a \
                     new one starts"
                );
                try_open(path)
            }
            opened => opened,
        }
    }
}

fn try_open(path: &Path) -> Result<EmbeddedStore, StoreError> {
    let file = private_file::open(path)
        .map_err(|e| StoreError::Unusable(format!("{}: {e}", path.display())))?;
    // The library panics on damage that it does not expect.
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_, Error> {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(FileBackend::new(file)?)?;
        let contents = read(&database)?;
        Ok((database, contents))
    }));
    let (database, contents) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return Err(store_error(path, error)),
        Err(_) => {
            return Err(StoreError::Corrupt("its pages are inconsistent".to_owned()));
        }
    };
    let contents = contents
        .ok_or_else(|| StoreError::Corrupt("it was written by another version".to_owned()))?;
    let run = contents.run;
    let session_count = SessionCount::for_store(path);
    Ok(EmbeddedStore {
        database,
        path: path.to_owned(),
        run,
        contents: Some(contents),
        session_count,
    })
}

fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let mut aside = path.as_os_str().to_owned();
    // Replaces an older file that was set aside: only the last one is useful.
    aside.push(".broken");
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside)
        .map_err(|e| StoreError::Unusable(format!("{}: {e}", path.display())))?;
    Ok(aside)
}

fn store_error(path: &Path, error: Error) -> StoreError {
    match error {
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => StoreError::Locked,
        // The library reports a file that is not its own in this way.
        Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
            StoreError::Corrupt(e.to_string())
        }
        Error::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            StoreError::Corrupt("it is cut off".to_owned())
        }
        Error::Io(e) => StoreError::Unusable(format!("{}: {e}", path.display())),
        Error::PreviousIo | Error::DatabaseClosed => {
            StoreError::Unusable(format!("{}: an earlier write failed", path.display()))
        }
        other => StoreError::Corrupt(other.to_string()),
    }
}

/// Reads all rows. Returns `None` for another format. Waits for no write, since each start would
/// take longer.
fn read(database: &Database) -> Result<Option<StoredState>, Error> {
    let transaction = database.begin_read()?;
    let mut contents = StoredState::default();
    let (format, run) = match transaction.open_table(ABOUT) {
        Ok(about) => (
            about.get("format")?.map(|value| value.value()),
            about.get("run")?.map(|value| value.value()),
        ),
        Err(TableError::TableDoesNotExist(_)) => (None, None),
        Err(error) => return Err(error.into()),
    };
    // A file without any format is new: nothing was written yet.
    if format.is_some_and(|format| format != FORMAT) {
        return Ok(None);
    }
    // The clock gives a new number even if a process ends before it has written. The stored number
    // helps if the clock goes back.
    contents.run = u64::try_from(jiff::Timestamp::now().as_millisecond())
        .unwrap_or_default()
        .max(run.unwrap_or(0) + 1);
    for table in StoreTable::ALL {
        let rows = match transaction.open_table(definition(table)) {
            Ok(rows) => rows,
            Err(TableError::TableDoesNotExist(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        for row in rows.iter()? {
            let (key, value) = row?;
            // Copied, so that no page of the file stays in memory behind a row.
            let key = Bytes::copy_from_slice(key.value());
            let value = Bytes::copy_from_slice(value.value());
            contents.rows[table as usize].push((key, value));
        }
    }
    Ok(Some(contents))
}

/// Starts a transaction after which the file opens without a repair, however the process ends.
fn write(database: &Database) -> Result<redb::WriteTransaction, Error> {
    let mut transaction = database.begin_write()?;
    // Without quick repair, redb reads the whole file after a crash.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

impl EmbeddedStore {
    /// Writes the changes, and returns the number of stored sessions.
    fn write_rows(&self, changes: &[RowChange]) -> Result<u64, Error> {
        let mut sessions = 0;
        let transaction = write(&self.database)?;
        {
            let mut about = transaction.open_table(ABOUT)?;
            about.insert("format", FORMAT)?;
            about.insert("run", self.run)?;
        }
        // All tables in one transaction: a session and its rows at servers are written together or
        // not at all.
        for table in StoreTable::ALL {
            let mut rows = transaction.open_table(definition(table))?;
            for ((_, key), value) in changes.iter().filter(|((of, _), _)| *of == table) {
                match value {
                    Some(value) => drop(rows.insert(&key[..], &value[..])?),
                    None => drop(rows.remove(&key[..])?),
                }
            }
            if table == StoreTable::Sessions {
                sessions = rows.len()?;
            }
        }
        transaction.commit()?;
        Ok(sessions)
    }
}

impl StoreBackend for EmbeddedStore {
    fn load(&mut self) -> Result<StoredState, StoreError> {
        Ok(self.contents.take().unwrap_or_default())
    }

    fn write(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        let sessions = self
            .write_rows(changes)
            .map_err(|error| store_error(&self.path, error))?;
        self.session_count.write(sessions);
        Ok(())
    }
}
