//! Files mapped into memory: models and weights are used where they lie, without a copy.
//!
//! A file that is shortened while it is mapped has pages without content, and touching one ends the process with SIGBUS.
//! [`explain_lost_files`] lets it end with a message that names the file.

use bytes::Bytes;
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

/// Maps a file into memory; what is not a file (a pipe) is read to its end. An empty file gives no bytes.
pub fn map_file(path: &Path) -> io::Result<Bytes> {
    map(File::open(path)?, path, false)
}

/// Maps a file that a model names: never waits for somebody to write to a pipe.
pub fn map_regular_file(path: &Path) -> io::Result<Bytes> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK);
    }
    map(options.open(path)?, path, true)
}

/// Bytes that are read of what is not a file: a device may never end.
const MOST_OF_A_STREAM: u64 = 1 << 30;

/// Reads a file to its end; a pipe or a device to a limit.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    match file.metadata()?.is_file() {
        true => std::fs::read(path),
        false => read_stream(file),
    }
}

/// The same for text.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_file(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not text"))
}

/// Reads what is not a file to its end, or fails when that does not come.
pub fn read_stream(from: impl Read) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(MOST_OF_A_STREAM + 1).read_to_end(&mut all)?;
    if all.len() as u64 > MOST_OF_A_STREAM {
        return Err(Error::other("it is not a file, and more than 1 GiB comes from it: write that to a file"));
    }
    Ok(all)
}

fn map(file: File, path: &Path, regular_only: bool) -> io::Result<Bytes> {
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a directory"));
    }
    if !meta.is_file() {
        if regular_only {
            return Err(Error::other("it is not a file"));
        }
        return Ok(read_stream(file)?.into());
    }
    if meta.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is private and read-only. Whoever shortens the file while it is in use makes the system end
    // the process on the next access; that is the price of not copying weights, and the same as for a shared library.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    lost::remember(&map, path);
    Ok(Bytes::from_owner(Held::new(map, file)))
}

/// Tells the system that bytes of a mapped file are not needed for now: their pages leave the process's memory and come again when
/// they are touched. Other bytes stay.
pub(crate) fn release(bytes: &[u8]) {
    held::release(bytes);
}

/// Brings bytes of a mapped file into the process's memory at once, which is quicker than page by page when they are touched. Other
/// bytes are there.
pub(crate) fn bring(bytes: &[u8]) {
    held::bring(bytes);
}

/// True for bytes of a mapped file that are many enough to be read from it.
pub(crate) fn is_of_file(bytes: &[u8]) -> bool {
    held::file_of(bytes).is_some()
}

/// Copies bytes to memory of their size. Those of a mapped file are read from it: to have its pages in the process's memory, and out of it again,
/// costs more than the copy.
pub(crate) fn copy(bytes: &[u8], to: &mut [u8]) {
    let read = held::file_of(bytes).is_some_and(|(file, at)| held::read(&file, at, to));
    if !read {
        // Of a file that became shorter this tells so.
        to.copy_from_slice(bytes);
    }
}

/// Hands out bytes: those of a mapped file `size` at a time in `buffer`, which grows to that, others as they lie in memory.
pub(crate) fn pieces<E>(
    bytes: &[u8],
    size: usize,
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if !is_of_file(bytes) {
        return take(bytes);
    }
    buffer.resize(buffer.len().max(size.min(bytes.len())), 0);
    bytes.chunks(size).try_for_each(|piece| {
        let out = &mut buffer[..piece.len()];
        copy(piece, out);
        take(out)
    })
}

/// A mapped file, which is known as long as it is mapped.
struct Held(memmap2::Mmap);

impl Held {
    fn new(map: memmap2::Mmap, file: File) -> Held {
        held::add(&map, file);
        Held(map)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        held::remove(&self.0);
    }
}

/// Zeroed memory that becomes [`Bytes`]. Large ones are mapped, with large pages where the system has them: filling a
/// hundred megabytes page by page costs as much as the compiler itself.
pub(crate) enum Zeroed {
    Small(Vec<u8>),
    Mapped(memmap2::MmapMut),
}

/// Bytes of a large page.
const LARGE: usize = 2 << 20;

/// So many bytes of it.
pub(crate) fn zeroed(bytes: usize) -> Zeroed {
    match memmap2::MmapMut::map_anon(bytes) {
        Ok(map) if bytes >= LARGE => {
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            Zeroed::Mapped(map)
        }
        _ => Zeroed::Small(vec![0; bytes]),
    }
}

impl Zeroed {
    /// The bytes, which stay as they are from now on.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Zeroed::Small(v) => v.into(),
            Zeroed::Mapped(map) => Bytes::from_owner(map),
        }
    }
}

/// Memory that is filled and lent as [`Bytes`], over and over.
#[derive(Default)]
pub(crate) struct Room(Option<Arc<Zeroed>>);

/// So many bytes of a room.
struct Lent(Arc<Zeroed>, usize);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Room {
    /// One with memory for so many bytes, in whole large pages.
    pub(crate) fn of(bytes: usize) -> Room {
        Room((bytes > 0).then(|| Arc::new(zeroed(bytes.next_multiple_of(LARGE)))))
    }

    /// `len` bytes as `fill` writes them: what is there before may be anything. While some are lent, others are in other memory.
    pub(crate) fn lend(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        let free = |all: Arc<Zeroed>| Arc::try_unwrap(all).ok().filter(|all| all.len() >= len);
        let mut all = self.0.take().and_then(free).unwrap_or_else(|| zeroed(len));
        fill(&mut all[..len]);
        let all = Arc::new(all);
        self.0 = Some(all.clone());
        Bytes::from_owner(Lent(all, len))
    }
}

impl std::ops::Deref for Zeroed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Zeroed::Small(v) => v,
            Zeroed::Mapped(map) => map,
        }
    }
}

impl std::ops::DerefMut for Zeroed {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Zeroed::Small(v) => v,
            Zeroed::Mapped(map) => map,
        }
    }
}

#[cfg(target_os = "linux")]
mod held {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    /// Sizes of the files that are mapped, and some of them, by their addresses.
    static ALL: Mutex<BTreeMap<usize, (usize, Option<Arc<File>>)>> = Mutex::new(BTreeMap::new());

    /// Files that stay open: a process may have a thousand or so, and a model as many.
    const OPEN: usize = 64;

    /// Fewer bytes are worth no call of the system.
    const MANY: usize = 1 << 15;

    fn all() -> MutexGuard<'static, BTreeMap<usize, (usize, Option<Arc<File>>)>> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(map: &[u8], file: File) {
        let mut all = all();
        let file = (all.len() < OPEN).then(|| Arc::new(file));
        all.insert(map.as_ptr() as usize, (map.len(), file));
    }

    /// The mapped file that many bytes are of, and where they are in it; nothing where it is not open any more.
    pub fn file_of(bytes: &[u8]) -> Option<(Arc<File>, u64)> {
        if bytes.len() < MANY {
            return None;
        }
        let (all, start) = (all(), bytes.as_ptr() as usize);
        let (at, (len, file)) = all.range(..=start).next_back()?;
        let file = file.as_ref().filter(|_| start + bytes.len() <= at + len)?;
        Some((file.clone(), (start - at) as u64))
    }

    /// Reads a file from some byte on; false where that fails.
    pub fn read(file: &File, at: u64, to: &mut [u8]) -> bool {
        file.read_exact_at(to, at).is_ok()
    }

    pub fn remove(map: &[u8]) {
        all().remove(&(map.as_ptr() as usize));
    }

    pub fn release(bytes: &[u8]) {
        advise(bytes, libc::MADV_DONTNEED);
    }

    pub fn bring(bytes: &[u8]) {
        advise(bytes, libc::MADV_POPULATE_READ);
    }

    /// Tells the system about the whole pages of bytes of a mapped file. Where it does not know the advice nothing happens.
    fn advise(bytes: &[u8], what: libc::c_int) {
        const PAGE: usize = 1 << 16;
        let all = all();
        let (start, end) = (bytes.as_ptr() as usize, bytes.as_ptr() as usize + bytes.len());
        let inside = all.range(..=start).next_back().is_some_and(|(at, (len, _))| end <= at + len);
        let (from, to) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if inside && from < to {
            // SAFETY: whole pages of a private, read-only mapping of a file, which nobody unmaps while the list is locked; what they
            // hold is the file's when they are touched again, and neither advice changes that.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, what) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod held {
    use std::fs::File;
    use std::sync::Arc;

    pub fn add(_: &[u8], _: File) {}

    pub fn file_of(_: &[u8]) -> Option<(Arc<File>, u64)> {
        None
    }

    pub fn read(_: &File, _: u64, _: &mut [u8]) -> bool {
        false
    }

    pub fn remove(_: &[u8]) {}

    pub fn release(_: &[u8]) {}

    pub fn bring(_: &[u8]) {}
}

/// Lets the process end with a message, exit status 1, when a mapped file was shortened. For programs; a library does not
/// change what signals do.
pub fn explain_lost_files() {
    lost::install();
}

#[cfg(unix)]
mod lost {
    use std::ffi::{CString, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    /// Start, size and name of the files mapped last.
    struct Place(AtomicUsize, AtomicUsize, AtomicPtr<c_char>);

    static PLACES: [Place; 64] =
        [const { Place(AtomicUsize::new(0), AtomicUsize::new(0), AtomicPtr::new(null_mut())) }; 64];
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    pub fn remember(bytes: &[u8], path: &Path) {
        // The name is kept for ever: a handler may read it at any time.
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
        let place = &PLACES[NEXT.fetch_add(1, Ordering::Relaxed) % PLACES.len()];
        place.1.store(0, Ordering::Release);
        place.2.store(name.into_raw(), Ordering::Release);
        place.0.store(bytes.as_ptr() as usize, Ordering::Release);
        place.1.store(bytes.len(), Ordering::Release);
    }

    extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        let say = |text: *const c_char| {
            // SAFETY: a string that ends with a zero and is never freed; write may be called in handlers.
            unsafe { libc::write(2, text.cast(), libc::strlen(text)) };
        };
        // SAFETY: the system passes the address that was touched.
        let at = unsafe { (*info).si_addr() } as usize;
        let hit = PLACES.iter().find(|p| {
            let (start, len) = (p.0.load(Ordering::Acquire), p.1.load(Ordering::Acquire));
            at.wrapping_sub(start) < len
        });
        if let Some(place) = hit {
            say(c"error: ".as_ptr());
            say(place.2.load(Ordering::Acquire));
            say(c" became shorter while it was read: something else writes to it\n".as_ptr());
            // SAFETY: ends the process at once, as handlers may.
            unsafe { libc::_exit(1) };
        }
        // Somebody else's mistake: as if there had been no handler.
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }

    pub fn install() {
        // SAFETY: the handler calls nothing but what handlers may; the structure is filled.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handler;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, null_mut());
        }
    }
}

#[cfg(not(unix))]
mod lost {
    pub fn remember(_: &[u8], _: &std::path::Path) {}

    pub fn install() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, HostTensor};

    #[test]
    fn released_bytes_come_again_and_others_stay() {
        let path = std::env::temp_dir().join(format!("barewave_released_{}", std::process::id()));
        let bytes: Vec<u8> = (0..700_001).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let map = map_file(&path).unwrap();
        let own = bytes.clone();
        for part in [0..700_001, 13..600_000, 5..9, 200_000..500_000] {
            release(&map[part.clone()]);
            release(&own[part]);
            assert!(map[..] == bytes && own == bytes);
        }
        drop(map);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn bytes_of_files_and_others_are_copied_and_handed_out() {
        let path = std::env::temp_dir().join(format!("barewave_copied_{}", std::process::id()));
        let bytes: Vec<u8> = (0..300_001).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let map = map_file(&path).unwrap();
        let part = |from: usize| HostTensor::new(DType::U8, &[3, 90_001], map.slice(from..from + 270_003)).unwrap();
        let joined = HostTensor::joined(vec![part(7), part(20)], 1).unwrap();
        for row in 0..3 {
            let (own, at) = (&joined.bytes()[row * 180_002..], row * 90_001);
            assert!(own[..90_001] == bytes[at + 7..][..90_001] && own[90_001..180_002] == bytes[at + 20..][..90_001]);
        }
        for part in [0..300_001, 13..200_000, 5..9, 200_000..200_000] {
            for all in [&map[part.clone()], &bytes[part.clone()]] {
                let (mut to, mut handed, mut buffer) = (vec![0xaa; part.len()], Vec::new(), vec![1]);
                copy(all, &mut to);
                pieces(all, 70_000, &mut buffer, |some| {
                    handed.extend_from_slice(some);
                    Ok::<_, ()>(())
                })
                .unwrap();
                assert!(to == bytes[part.clone()] && handed == to, "{part:?}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_lent_stays_and_what_came_back_is_lent_again() {
        let mut room = Room::default();
        let first = room.lend(100, |out| out.fill(1));
        let second = room.lend(50, |out| out.fill(2));
        assert!(first == [1; 100][..] && second == [2; 50][..]);
        let at = second.as_ptr();
        drop((first, second));
        let third = room.lend(30, |out| out.fill(3));
        assert!(third.as_ptr() == at && third == [3; 30][..]);
    }
}
