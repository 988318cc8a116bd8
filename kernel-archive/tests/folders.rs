//! Folders that cannot be used, and the order in which entries go.

use kernel_archive::{ArchiveError, Cache, Key, file};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("tilewright-folders-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(number: u8) -> Key {
    Key([number; 32])
}

/// Sets when an entry was used last, in hours from now.
fn set_used(cache: &Cache, number: u8, hours: i64) {
    let span = Duration::from_secs(hours.unsigned_abs() * 3600);
    let time = if hours < 0 { SystemTime::now() - span } else { SystemTime::now() + span };
    let file = fs::File::options().append(true).open(cache.path(key(number))).expect("a file");
    file.set_modified(time).expect("a time");
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let folder = Folder::new("order");
    let cache = Cache::open(&folder.0, 10_000).expect("a folder");
    for number in 0..8 {
        cache.put(key(number), &[number; 1000]).expect("written");
        set_used(&cache, number, -100 + i64::from(number));
    }
    assert_eq!(cache.get(key(0)), Some(vec![0; 1000]), "a use makes it young");
    for number in 8..12 {
        cache.put(key(number), &[number; 1000]).expect("written");
    }
    cache.shrink().expect("a folder");
    let left: Vec<u8> = (0..12).filter(|number| cache.path(key(*number)).exists()).collect();
    assert_eq!(left, [0, 6, 7, 8, 9, 10, 11], "1112 bytes each, down to 8000");
    cache.put(key(12), &[0; 20_000]).expect("no error");
    assert!(!cache.path(key(12)).exists(), "larger than everything may be");
}

/// A clock that was wrong makes no entry stay for ever.
#[test]
fn times_in_the_future_are_set_right() {
    let folder = Folder::new("clock");
    let cache = Cache::open(&folder.0, 10_000).expect("a folder");
    cache.put(key(1), b"one").expect("written");
    for hours in [1000, -1000] {
        set_used(&cache, 1, hours);
        assert!(cache.get(key(1)).is_some());
        let used = fs::metadata(cache.path(key(1))).and_then(|about| about.modified()).expect("a time");
        let off = SystemTime::now().duration_since(used).unwrap_or_else(|error| error.duration());
        assert!(off < Duration::from_secs(60), "{hours}");
    }
}

#[test]
fn unfinished_files_go_when_they_are_old() {
    let folder = Folder::new("unfinished");
    let cache = Cache::open(&folder.0, 10_000).expect("a folder");
    let [old, new] = ["old", "new"].map(|name| folder.0.join(format!(".{name}.{}", file::UNFINISHED)));
    for path in [&old, &new] {
        fs::write(path, "half of").expect("written");
    }
    let hours = SystemTime::now() - Duration::from_secs(7200);
    fs::File::options().append(true).open(&old).and_then(|file| file.set_modified(hours)).expect("a time");
    cache.put(key(1), b"one").expect("written");
    assert!(!old.exists() && new.exists());
}

#[test]
fn a_folder_that_is_removed_is_made_again() {
    let folder = Folder::new("removed");
    let cache = Cache::open(&folder.0, 10_000).expect("a folder");
    fs::remove_dir_all(&folder.0).expect("removed");
    assert_eq!(cache.get(key(1)), None);
    cache.put(key(1), b"one").expect("written");
    assert_eq!(cache.get(key(1)), Some(b"one".to_vec()));
}

#[test]
fn folders_that_are_none_are_errors() {
    let folder = Folder::new("none");
    fs::create_dir_all(&folder.0).expect("a folder");
    let file = folder.0.join("file");
    fs::write(&file, "a file").expect("written");
    assert!(Cache::open(&file, 1).is_err() && Cache::open(&file.join("below"), 1).is_err());
}

#[cfg(unix)]
#[test]
fn folders_that_others_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("everybody");
    let cache = Cache::open(&folder.0, 1000).expect("a folder");
    let mode = fs::metadata(cache.folder()).expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "its owner's alone");
    for (mode, problem) in [(0o1777, "everybody may write it"), (0o770, "its group may write it")] {
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).expect("allowed");
        let error = Cache::open(&folder.0, 1000).expect_err("refused").to_string();
        assert!(error.contains(problem), "{error}");
    }
    // Who may give a folder away is root, to whom nobody else's is good enough.
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).expect("allowed");
    if std::os::unix::fs::chown(&folder.0, Some(1), None).is_ok() {
        let error = Cache::open(&folder.0, 1000).expect_err("refused").to_string();
        assert!(error.contains("it belongs to another user"), "{error}");
    }
}

/// Links are replaced, not followed.
#[cfg(unix)]
#[test]
fn links_are_not_followed_when_writing() {
    let folder = Folder::new("links");
    let cache = Cache::open(&folder.0, 1000).expect("a folder");
    let precious = folder.0.join("precious");
    fs::write(&precious, "precious").expect("written");
    std::os::unix::fs::symlink(&precious, cache.path(key(1))).expect("a link");
    assert_eq!(cache.get(key(1)), None);
    cache.put(key(1), b"one").expect("written");
    assert_eq!((cache.get(key(1)), fs::read(&precious).ok()), (Some(b"one".to_vec()), Some(b"precious".to_vec())));
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let folder = Folder::new("full");
    fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("kernels.twa");
    fs::write(&path, "old").expect("written");
    // A folder cannot be replaced by a file, so the last step fails; in a folder that is not there, the first.
    let below = folder.0.join("folder");
    fs::create_dir_all(below.join("not empty")).expect("a folder");
    assert!(file::replace(&below, b"new").is_err());
    assert!(file::replace(&folder.0.join("nowhere/file"), b"new").is_err());
    let update = file::update(&path, |_| Err::<Option<Vec<u8>>, _>(std::io::Error::other("no")));
    assert!(update.is_err());
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("old"));
    let left = fs::read_dir(&folder.0).expect("a folder").flatten();
    let unfinished = left.filter(|entry| entry.path().extension().is_some_and(|it| it == file::UNFINISHED)).count();
    assert_eq!(unfinished, 0);
}

#[test]
fn updates_come_one_after_the_other() {
    let folder = Folder::new("updates");
    fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("count");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let updated = file::update::<std::io::Error>(&path, |old| {
                        let count = old.map_or(0, |old| String::from_utf8_lossy(old).parse().expect("a number"));
                        Ok(Some(format!("{}", count + 1u32).into_bytes()))
                    });
                    updated.expect("updated");
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("160"));
    assert_eq!(kernel_archive::read(b"160"), Err(ArchiveError::NoArchive));
}
