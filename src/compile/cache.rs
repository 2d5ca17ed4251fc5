//! The kernel cache: compiled kernels by the content they were made from.
//!
//! The key of a step is everything its code depends on, as text ([`crate::kernels::key`]), with the target and the
//! fingerprint of the compiler's own sources. What was compiled once is found again by other steps, shapes and models in
//! the same process, and, with a folder, by other processes.
//!
//! A file of the folder is named by the key's hash and holds the key itself too, so that neither a collision nor a
//! damaged file is taken for the right one; whatever cannot be read counts as absent and is written anew. Files are
//! written under a temporary name and renamed, so processes that share a folder see whole files or none. The folder is made
//! of 256 folders of equal shares; when one grows beyond its share the files that were unused for the longest time go.
//! So a look at what there is costs the same however many kernels are kept, next to nothing for each that is written.

use super::kernel::KernelCode;
use barewave_isa::Target;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::xxh3_128;

/// Fingerprint of the sources that decide what code is generated.
const COMPILER: &str = env!("BAREWAVE_SOURCES");

/// Bytes that a cache folder may take by default.
pub const DEFAULT_BYTES: u64 = 512 << 20;

/// Kernels kept in memory at most; beyond that the memory cache starts anew.
const MOST_IN_MEMORY: usize = 1 << 14;

/// Launches of several kernels that are kept, each of up to some 100 KB; beyond that they start anew.
const MOST_LINKED: usize = 1 << 8;

/// The kernels of one step, shared.
pub type StepCode = Arc<Vec<KernelCode>>;

/// How often the cache helped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Steps found in memory.
    pub memory: usize,
    /// Steps found in the folder.
    pub disk: usize,
    /// Steps that had to be compiled.
    pub compiled: usize,
}

/// Folders that files are spread over, by the first byte of their names.
const PARTS: u64 = 256;

/// After one write of so many, by the kernel's hash, the part that it went to is looked through.
const TRIM_EVERY: u128 = 32;

/// Bytes that file systems hand out at once.
const BLOCK: u64 = 4096;

/// A kernel cache. Share one between compilers (in an [`Arc`]) to share their kernels.
#[derive(Debug, Default)]
pub struct KernelCache {
    memory: Mutex<FxHashMap<u128, StepCode>>,
    /// Launches of several kernels.
    linked: Mutex<FxHashMap<u128, Option<StepCode>>>,
    folder: Option<PathBuf>,
    most_bytes: u64,
    found: [AtomicUsize; 3],
}

/// A file of the folder.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    key: &'a str,
    kernels: Vec<KernelCode>,
}

impl KernelCache {
    /// A cache in memory only.
    pub fn in_memory() -> KernelCache {
        KernelCache::default()
    }

    /// A cache with a folder, which need not exist, of at most `most_bytes` and what a few thousand kernels take.
    pub fn in_folder(folder: impl Into<PathBuf>, most_bytes: u64) -> KernelCache {
        KernelCache { folder: Some(folder.into()), most_bytes, ..KernelCache::default() }
    }

    /// The user's cache as the environment asks for it: `BAREWAVE_CACHE` names a folder or says `off` (memory only);
    /// otherwise `barewave` in `XDG_CACHE_HOME`, or in `.cache` of the home folder. Memory only where there is no home.
    pub fn of_user() -> KernelCache {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let folder = match set("BAREWAVE_CACHE") {
            Some(v) if v == "off" => None,
            Some(v) => Some(PathBuf::from(v)),
            None => set("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
                .or_else(|| std::env::home_dir().filter(|p| p.is_absolute()).map(|h| h.join(".cache")))
                .map(|p| p.join("barewave")),
        };
        folder.map_or_else(KernelCache::in_memory, |f| KernelCache::in_folder(f.join("kernels"), DEFAULT_BYTES))
    }

    /// The folder, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// How often it helped since it was made.
    pub fn stats(&self) -> CacheStats {
        let [memory, disk, compiled] = [0, 1, 2].map(|i| self.found[i].load(Ordering::Relaxed));
        CacheStats { memory, disk, compiled }
    }

    /// The kernels for a step key (see [`crate::kernels::key`]), compiled by `make` when they are not there.
    pub fn get_or_compile<E>(
        &self,
        target: Target,
        step: &str,
        make: impl FnOnce() -> Result<Vec<KernelCode>, E>,
    ) -> Result<StepCode, E> {
        let key = format!("{COMPILER}|{}|{step}", target.name());
        let hash = xxh3_128(key.as_bytes());
        let count = |i: usize| self.found[i].fetch_add(1, Ordering::Relaxed);
        if let Some(found) = self.memory().get(&hash) {
            count(0);
            return Ok(found.clone());
        }
        let path = self.folder.as_ref().map(|f| file_of(f, hash));
        let code = match path.as_deref().and_then(|p| read(p, &key)) {
            Some(kernels) => {
                count(1);
                Arc::new(kernels)
            }
            None => {
                count(2);
                let kernels = make()?;
                if let Some(p) = &path {
                    // A cache that cannot be written (no space, no permission) is no reason to fail.
                    if write(p, &key, &kernels).is_ok() && hash.is_multiple_of(TRIM_EVERY) {
                        p.parent().iter().for_each(|part| trim(part, self.most_bytes / PARTS));
                    }
                }
                Arc::new(kernels)
            }
        };
        let mut memory = self.memory();
        if memory.len() >= MOST_IN_MEMORY {
            memory.clear();
        }
        memory.insert(hash, code.clone());
        Ok(code)
    }

    /// The kernel of a launch of several kernels, nothing where these cannot be one. It is kept in memory only: making it takes about as long as reading it.
    pub(super) fn get_or_link(
        &self,
        target: Target,
        parts: &str,
        make: impl FnOnce() -> Option<KernelCode>,
    ) -> Option<StepCode> {
        let hash = xxh3_128(format!("{}|{parts}", target.name()).as_bytes());
        let known = || self.linked.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(found) = known().get(&hash) {
            return found.clone();
        }
        let code = make().map(|k| Arc::new(vec![k]));
        let mut linked = known();
        if linked.len() >= MOST_LINKED {
            linked.clear();
        }
        linked.insert(hash, code.clone());
        code
    }

    fn memory(&self) -> MutexGuard<'_, FxHashMap<u128, StepCode>> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Brings a part of the folder under three quarters of its share when it is beyond it.
fn trim(part: &Path, share: u64) {
    let mut files = Vec::new();
    let mut total = 0;
    for entry in list(part) {
        if let Ok(m) = entry.metadata()
            && m.is_file()
        {
            let bytes = m.len().next_multiple_of(BLOCK);
            total += bytes;
            files.push((m.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), bytes));
        }
    }
    if total <= share {
        return;
    }
    files.sort();
    for (_, path, bytes) in files {
        if total <= share / 4 * 3 {
            break;
        }
        if std::fs::remove_file(path).is_ok() {
            total -= bytes;
        }
    }
}

fn list(folder: &Path) -> Vec<std::fs::DirEntry> {
    std::fs::read_dir(folder).map(|d| d.flatten().collect()).unwrap_or_default()
}

fn file_of(folder: &Path, hash: u128) -> PathBuf {
    let name = format!("{hash:032x}");
    folder.join(&name[..2]).join(name)
}

/// The kernels of a file that holds this key. Its time of change tells when it was last used, to the day.
fn read(path: &Path, key: &str) -> Option<Vec<KernelCode>> {
    let bytes = std::fs::read(path).ok()?;
    let (sum, data) = bytes.split_first_chunk()?;
    if xxh3_128(data) != u128::from_le_bytes(*sum) {
        return None;
    }
    let entry: Entry = rmp_serde::from_slice(data).ok().filter(|e: &Entry| e.key == key)?;
    let file = std::fs::File::open(path).ok()?;
    let age = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
    if age > Duration::from_secs(24 * 3600) {
        // Opened for reading only: some systems refuse, and the file merely looks older than it is.
        let _ = file.set_modified(SystemTime::now());
    }
    Some(entry.kernels)
}

fn write(path: &Path, key: &str, kernels: &[KernelCode]) -> std::io::Result<()> {
    let folder = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(folder)?;
    let data = rmp_serde::to_vec(&Entry { key, kernels: kernels.to_vec() }).map_err(std::io::Error::other)?;
    let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(folder)?;
    file.write_all(&xxh3_128(&data).to_le_bytes())?;
    file.write_all(&data)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A kernel of nothing.
    pub fn code(byte: u8) -> Vec<KernelCode> {
        vec![KernelCode {
            code: vec![byte; 1000],
            instructions: 250,
            executed: 250,
            vgprs: 1,
            agprs: 0,
            sgprs: 2,
            spills: 0,
            lds_bytes: 0,
            scratch_bytes: 0,
            kernarg_bytes: 8,
            workgroup_size: 64,
            waves_per_simd: 8,
            wants_scratch_resource: false,
            wants_kernarg: true,
            wants_workgroup_id: [true, false, false],
            grid: [1, 2, 3],
            args: vec![crate::kernels::Arg::Output],
            blobs: vec![crate::kernels::Blob::Data(vec![1, 2, 3])],
            workspace: 0,
            counters: 0,
            sharing: [1; 3],
            rounds: 1,
            chain: Vec::new(),
            flops: 7,
        }]
    }

    fn get(cache: &KernelCache, step: &str, byte: u8) -> StepCode {
        cache.get_or_compile(Target::GFX942, step, || Ok::<_, ()>(code(byte))).unwrap()
    }

    #[test]
    fn kernels_are_found_in_memory_and_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = KernelCache::in_folder(dir.path(), DEFAULT_BYTES);
        assert_eq!(*get(&first, "a", 1), code(1));
        assert_eq!(*get(&first, "a", 9), code(1));
        assert_eq!(first.stats(), CacheStats { memory: 1, disk: 0, compiled: 1 });
        let second = KernelCache::in_folder(dir.path(), DEFAULT_BYTES);
        assert_eq!(*get(&second, "a", 9), code(1));
        assert_eq!(*get(&second, "b", 2), code(2));
        assert_eq!(second.stats(), CacheStats { memory: 0, disk: 1, compiled: 1 });
        let other = second.get_or_compile(Target::GFX906, "a", || Ok::<_, ()>(code(3))).unwrap();
        assert_eq!(*other, code(3), "another target has other code");
    }

    #[test]
    fn a_folder_stays_bounded_however_long_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = KernelCache::in_folder(dir.path(), PARTS * 4 * BLOCK);
        let files = || list(dir.path()).into_iter().flat_map(|d| list(&d.path())).count();
        let mut kept = Vec::new();
        for i in 0..24_000 {
            get(&cache, &format!("step {i}"), 7);
            if i % 8000 == 7999 {
                kept.push(files());
            }
        }
        // Each part has room for four files; 32 come between two looks in the mean.
        assert!(kept.iter().all(|n| *n < PARTS as usize * (4 + 64)) && kept[2] < 12_000, "{kept:?}");
    }

    #[test]
    fn what_was_used_last_stays() {
        let dir = tempfile::tempdir().unwrap();
        for age in 0..8u64 {
            let path = dir.path().join(age.to_string());
            std::fs::write(&path, [0; 100]).unwrap();
            let file = std::fs::File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
        }
        trim(dir.path(), 8 * BLOCK);
        assert_eq!(list(dir.path()).len(), 8, "as many as there is room for");
        trim(dir.path(), 4 * BLOCK);
        let mut left: Vec<_> = list(dir.path()).iter().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["0", "1", "2"]);
    }

    #[test]
    fn damaged_and_foreign_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        get(&KernelCache::in_folder(dir.path(), DEFAULT_BYTES), "a", 1);
        let folder = list(dir.path()).remove(0).path();
        let file = list(&folder).remove(0).path();
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&whole[..whole.len() / 2], &[], &flipped] {
            std::fs::write(&file, damaged).unwrap();
            let cache = KernelCache::in_folder(dir.path(), DEFAULT_BYTES);
            assert_eq!(*get(&cache, "a", 2), code(2));
            assert_eq!(*get(&KernelCache::in_folder(dir.path(), DEFAULT_BYTES), "a", 9), code(2));
        }
        // A file under another key's name.
        std::fs::write(&file, &whole).unwrap();
        let moved = file_of(dir.path(), xxh3_128(format!("{COMPILER}|gfx942|z").as_bytes()));
        std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
        std::fs::rename(&file, &moved).unwrap();
        assert_eq!(*get(&KernelCache::in_folder(dir.path(), DEFAULT_BYTES), "z", 5), code(5));
    }

    #[test]
    fn the_folder_need_not_be_writable() {
        let cache = KernelCache::in_folder("/dev/null/none", DEFAULT_BYTES);
        assert_eq!(*get(&cache, "a", 1), code(1));
    }
}
