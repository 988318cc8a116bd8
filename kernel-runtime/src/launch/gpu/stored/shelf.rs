//! The cache on disk, and the archive that is recorded. Neither ever makes a launch fail: what goes wrong is logged once,
//! and then there is no cache; that a launch is not recorded is said on the standard error once, too.

use super::{Wanted, maker};
use crate::settings;
use kernel_archive::{Cache, Entry, Identity, Key, container, entry, file};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, Once, OnceLock, PoisonError};

/// The cache of this process, if it has one.
pub(super) fn cache() -> Option<&'static Cache> {
    static CACHE: OnceLock<Option<Cache>> = OnceLock::new();
    CACHE.get_or_init(open).as_ref()
}

fn open() -> Option<Cache> {
    let setting = settings::cache().map_err(|error| error.to_string());
    let opened = setting.and_then(|setting| match setting {
        Some((folder, limit)) => {
            let problem = |error: io::Error| format!("{}: {error}", folder.display());
            Cache::open(&folder, limit).map(Some).map_err(problem)
        }
        None => Ok(None),
    });
    opened.unwrap_or_else(|problem| {
        log::warn!(
            "compiled kernels are not kept on disk: {problem}; set {} to another folder, or to `off`",
            settings::CACHE_VARIABLE
        );
        None
    })
}

/// The variant for a launch, if the cache has it.
pub(super) fn find(wanted: &Wanted<'_>) -> Option<Entry> {
    find_in(cache()?, wanted)
}

pub(super) fn find_in(cache: &Cache, wanted: &Wanted<'_>) -> Option<Entry> {
    let maker = maker()?;
    wanted.find(|identity| {
        let entry = entry::decode(&cache.get(identity.key(&maker.compiler))?).ok()?;
        // The key is a hash of both.
        (entry.head.identity == *identity && entry.head.maker == maker).then_some(entry)
    })
}

/// Whether somebody wants what is compiled.
pub(super) fn is_wanted() -> bool {
    cache().is_some() || recording().is_some()
}

/// Keeps a variant that was compiled.
pub(super) fn keep(entry: impl FnOnce() -> Option<Entry>) {
    let Some(entry) = entry() else { return };
    if let Some(cache) = cache() {
        keep_in(cache, &entry);
    }
    record(|| Some(entry));
}

pub(super) fn keep_in(cache: &Cache, entry: &Entry) {
    put(cache, entry.head.identity.key(&entry.head.maker.compiler), &entry::encode(entry));
}

/// Keeps bytes, unless that has failed before.
pub(super) fn put(cache: &Cache, key: Key, bytes: &[u8]) {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = cache.put(key, bytes)
        && !FAILED.swap(true, Ordering::Relaxed)
    {
        log::warn!("compiled kernels are not kept on disk any more: {}: {error}", cache.folder().display());
    }
}

/// The archive to record into.
fn recording() -> Option<&'static Path> {
    static FILE: LazyLock<Option<PathBuf>> = LazyLock::new(settings::record);
    FILE.as_deref()
}

/// Adds a variant to the archive that is recorded, if one is.
pub(super) fn record(entry: impl FnOnce() -> Option<Entry>) {
    static RECORDED: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);
    let Some(path) = recording() else { return };
    let Some(entry) = entry() else { return };
    if !RECORDED.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.head.identity.clone()) {
        return;
    }
    if let Err(error) = record_to(path, &entry) {
        // Somebody asked for it, and would else find out when the archive is missed; programs need not show what is logged.
        static SAID: Once = Once::new();
        let (kernel, variable) = (&entry.head.identity.kernel, settings::RECORD_VARIABLE);
        SAID.call_once(|| eprintln!("{variable}: kernel `{kernel}` is not recorded in {}: {error}", path.display()));
        log::warn!("kernel `{kernel}` is not recorded in {}: {error}", path.display());
    }
}

/// Adds a variant to an archive that other processes may add to. What this version of Tilewright cannot use is dropped, and
/// a variant that another compiler has made is replaced; what is no archive is left alone.
pub(super) fn record_to(path: &Path, entry: &Entry) -> io::Result<()> {
    file::update(path, |old| {
        let reader = match old.map(container::Reader::new) {
            None => None,
            Some(Ok(reader)) => Some(reader),
            Some(Err(kernel_archive::ArchiveError::NoArchive)) if old.is_some_and(|old| !old.is_empty()) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "this file is no archive of compiled kernels",
                ));
            }
            Some(Err(_)) => None,
        };
        let mut entries: Vec<(Key, Vec<u8>)> = Vec::new();
        for index in 0..reader.map_or(0, |reader| reader.len()) {
            let kept = reader.and_then(|reader| Some((reader.key(index)?, reader.entry(index).ok()?)));
            let Some((key, bytes)) = kept else { continue };
            match entry::decode_head(bytes) {
                Ok(head) if head.identity == entry.head.identity && head.maker == entry.head.maker => return Ok(None),
                Ok(head) if head.maker.runtime == entry.head.maker.runtime => entries.push((key, bytes.to_vec())),
                Ok(_) | Err(_) => {}
            }
        }
        entries.push((entry.head.identity.key(""), entry::encode(entry)));
        // Of two with one key, the last is written.
        let borrowed: Vec<(Key, &[u8])> = entries.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
        Ok(Some(container::write(&borrowed)))
    })
}
