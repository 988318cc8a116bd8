//! Damages archives and files of the cache, and sees what is believed of them.
//!
//! ```text
//! cargo run --release -p tilewright-inspect --example damage -- 10000
//! ```
//!
//! compiles kernels into an archive, with machine code where there is a ptxas, and damages it so often: bits flip, bytes are
//! cut off, zeroed, repeated, exchanged, or come from elsewhere. A reader of what remains must find each variant as it was,
//! or nothing; a cache must find what was written, or nothing, and be right again when it is filled. A second set has its
//! checksums made anew over the damage, as nobody but an attacker does: there the entry may be another one, but reading it is
//! no panic and takes no lot of memory. Whatever is wrong ends the program with an error. `results/damage.txt` is what a run
//! found.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::process::ExitCode;

#[path = "../../kernel-runtime/src/tune/random.rs"]
mod random;

use kernel_archive::{Cache, Entry, Key, Machine, Reader, container, entry};
use random::Random;
use tilewright::archive::{ArchiveBuilder, Ptxas};
use tilewright::launch::Target;
use tilewright::prelude::*;

#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

#[kernel]
pub fn gather<const BLOCK: usize>(x: Ptr<f32>, at: Ptr<i32>, out: PtrMut<f32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + load(at + offsets, mask = mask), mask = mask), mask = mask);
}

#[kernel]
pub fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<T, { [BM, BN] }>,
    k: i32,
) {
    let (i, j) = (program_id(0) * BM, program_id(1) * BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
    }
    c.store([i, j], acc as T);
}

/// What is damaged: an archive of several variants.
fn sample() -> Result<(Vec<u8>, bool), Error> {
    let targets = [Target::sm_80(), Target::sm_90a()];
    let mut archive = ArchiveBuilder::new();
    let ptxas = Ptxas::find();
    let has_code = ptxas.is_ok();
    if let Ok(ptxas) = ptxas {
        archive.machine_code(ptxas);
    }
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>(), &targets)?;
    archive.add(AddConsts { BLOCK: 256 }.request::<f16>(), &targets)?;
    archive.add(GatherConsts { BLOCK: 256 }.request(), &targets)?;
    archive.add(MatmulConsts { BM: 128, BN: 128, BK: 64 }.request::<f16>(), &targets)?;
    Ok((archive.to_bytes(), has_code))
}

/// Damages bytes, one to four times.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let length = bytes.len();
        let (at, other) = (random.below(length), random.below(length));
        let span = 1 + random.below(64.min(length));
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at.max(1)),
            2 => bytes[at..(at + span).min(length)].fill(0),
            3 => bytes.extend_from_within(at..(at + span).min(length)),
            4 => bytes.swap(at, other),
            5 => (at..(at + span).min(length)).for_each(|at| bytes[at] = random.next() as u8),
            _ => drop(bytes.drain(at..(at + span).min(length - 1).max(at))),
        }
    }
}

/// What was seen.
#[derive(Default)]
struct Seen {
    unchanged: usize,
    refused: usize,
    variants_kept: usize,
    variants_lost: usize,
    misses: usize,
    hits: usize,
    read_without_checksums: usize,
    wrong: Vec<String>,
}

/// What a reader finds in a damaged archive must be what was written.
fn read_archive(damaged: &[u8], known: &HashMap<Key, Entry>, seen: &mut Seen) {
    let Ok(reader) = Reader::new(damaged) else {
        seen.refused += 1;
        if kernel_archive::read(damaged).is_ok() {
            seen.wrong.push("an archive is refused, and read all the same".to_string());
        }
        return;
    };
    for (key, expected) in known {
        match reader.get(*key).ok().flatten().map(entry::decode) {
            Some(Ok(found)) if found == *expected => seen.variants_kept += 1,
            Some(found) => {
                seen.wrong.push(format!("{key} is {:?}", found.map(|found| found.head.identity.to_string())))
            }
            None => seen.variants_lost += 1,
        }
    }
}

/// A damaged file of the cache is a miss, and is right again when it was written again.
fn read_cache(cache: &Cache, (key, bytes): (Key, &[u8]), random: &mut Random, seen: &mut Seen) {
    let Ok(()) = cache.put(key, bytes) else {
        return seen.wrong.push("a file of the cache cannot be written".to_string());
    };
    let Ok(whole) = std::fs::read(cache.path(key)) else { return seen.wrong.push("a file is gone".to_string()) };
    let mut file = whole.clone();
    damage(&mut file, random);
    if std::fs::write(cache.path(key), &file).is_err() {
        return seen.wrong.push("a file of the cache cannot be damaged".to_string());
    }
    match cache.get(key) {
        None if file != whole => seen.misses += 1,
        Some(found) if file == whole && found == bytes => seen.hits += 1,
        found => seen.wrong.push(format!("{key}: {:?} bytes of {}", found.map(|it| it.len()), bytes.len())),
    }
    if cache.put(key, bytes).is_err() || cache.get(key).as_deref() != Some(bytes) {
        seen.wrong.push(format!("{key} cannot be kept any more"));
    }
}

/// Entries whose checksums fit the damage: an error, or an entry, and no panic.
fn read_without_checksums(bytes: &[u8], machine: &[u8], random: &mut Random, seen: &mut Seen) {
    let (mut bytes, mut machine) = (bytes.to_vec(), machine.to_vec());
    damage(&mut bytes, random);
    damage(&mut machine, random);
    match catch_unwind(|| (entry::decode(&bytes).is_ok(), Machine::decode(&machine).is_ok())) {
        Ok((is_entry, is_machine)) => seen.read_without_checksums += usize::from(is_entry) + usize::from(is_machine),
        Err(_) => seen.wrong.push("reading an entry panics".to_string()),
    }
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let (archive, has_code) = sample().expect("the kernels compile: the tests say so");
    let entries = kernel_archive::read(&archive).expect("an archive");
    let known: HashMap<Key, Entry> = entries.iter().map(|it| (it.head.identity.key(""), it.clone())).collect();
    let encoded: Vec<(Key, Vec<u8>)> = known.iter().map(|(key, entry)| (*key, entry::encode(entry))).collect();
    let machine = entries.iter().flat_map(|entry| &entry.machine).next().map(Machine::encode).unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("tilewright-damage-{}", std::process::id()));
    let cache = Cache::open(&folder, 1 << 30).expect("a folder for temporary files");
    let (mut seen, mut random) = (Seen::default(), Random::new(11));
    for round in 0..rounds {
        let mut damaged = archive.clone();
        damage(&mut damaged, &mut random);
        seen.unchanged += usize::from(damaged == archive);
        read_archive(&damaged, &known, &mut seen);
        let (key, bytes) = &encoded[round % encoded.len()];
        read_cache(&cache, (*key, bytes), &mut random, &mut seen);
        if !machine.is_empty() {
            read_cache(&cache, (Machine::key("", 90, "a driver"), &machine), &mut random, &mut seen);
            read_without_checksums(bytes, &machine, &mut random, &mut seen);
        }
        // The same bytes with an index that fits them are an archive again.
        let cut = container::write(&[(*key, &bytes[..random.below(bytes.len())])]);
        if kernel_archive::read(&cut).is_ok() {
            seen.wrong.push("half of an entry is read as one".to_string());
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    println!(
        "{rounds} damaged archives of {} variants, {} bytes, machine code: {has_code}",
        known.len(),
        archive.len()
    );
    println!("the damage changed nothing: {}, refused as a whole: {}", seen.unchanged, seen.refused);
    println!("variants of the others: {} as they were, {} missing", seen.variants_kept, seen.variants_lost);
    println!("files of the cache: {} misses, {} hits of files that the damage left alone", seen.misses, seen.hits);
    println!("entries that can be read behind checksums that fit the damage: {}", seen.read_without_checksums);
    println!("wrong: {}", seen.wrong.len());
    seen.wrong.iter().take(10).for_each(|wrong| println!("  {wrong}"));
    if seen.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
