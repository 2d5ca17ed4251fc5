//! Output files that are whole or not there, whatever stands at their destination.
//!
//! | destination                | what happens                                                                        |
//! |----------------------------|-------------------------------------------------------------------------------------|
//! | `-`                        | standard output                                                                     |
//! | device, FIFO, socket       | written to, never replaced                                                          |
//! | symbolic link              | what it points to is written; the link stays                                        |
//! | file, or nothing           | a file without a name is written in the same directory and takes the name when whole |
//!
//! A file that is replaced keeps its permissions and owner; a new one gets what the umask leaves. Where the system has no
//! unnamed files (`O_TMPFILE`), the file has a hidden name until it is whole, and [`clean_up_on_signals`] removes it.

use std::fs::{File, Metadata};
use std::io::{BufWriter, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// Writes a file through `fill`. When anything fails (unwritable directory, full disk) the destination is untouched
/// and the error names it.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    write_large(path, 0, fill)
}

/// As [`write()`], of about `bytes` bytes: room for them is reserved first, so that a disk without it shows at once, and a file
/// gets its room as a whole. Where all of it was reserved, nothing waits for the disk when the file takes the place of another one.
pub fn write_large(path: &Path, bytes: u64, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    write_unnamed(path, bytes, fill).map_err(|e| named(path, e))
}

/// Fails when [`write()`] would, as far as that can be told without writing.
pub fn check(path: &Path) -> Result<()> {
    destination(path).and_then(|d| d.check()).map_err(|e| named(path, e))
}

fn named(path: &Path, e: Error) -> Error {
    Error::new(e.kind(), format!("cannot write {}: {e}", path.display()))
}

fn write_unnamed(path: &Path, bytes: u64, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    match destination(path)? {
        Destination::Stdout => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            fill(&mut out)?;
            out.flush()
        }
        Destination::Special(path) => {
            let mut out = BufWriter::new(File::options().write(true).open(path)?);
            fill(&mut out)?;
            out.flush()
        }
        Destination::File(path, old) => {
            let new = New::create(directory(&path))?;
            reserve(new.file(), bytes)?;
            let mut out = BufWriter::new(new.file());
            fill(&mut out)?;
            out.flush()?;
            drop(out);
            give_back(new.file(), bytes)?;
            new.name(&path, old.as_ref())
        }
    }
}

/// Files of so many bytes have room reserved.
const WORTH_IT: u64 = 1 << 20;

/// Gives room back that was reserved and not needed.
fn give_back(file: &File, reserved: u64) -> Result<()> {
    let written = file.metadata()?.len();
    if reserved >= WORTH_IT && reserved > written { file.set_len(written) } else { Ok(()) }
}

/// Reserves room on the disk, where the file system can; the file's size stays.
#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> Result<()> {
    use std::os::fd::AsRawFd;
    if bytes < WORTH_IT {
        return Ok(());
    }
    let bytes = libc::off_t::try_from(bytes).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
    // SAFETY: an open file.
    if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, bytes) } == 0 {
        return Ok(());
    }
    match Error::last_os_error() {
        e if matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => Err(e),
        // It cannot, or was interrupted: writing tells.
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> Result<()> {
    Ok(())
}

/// What stands at a path, links followed.
enum Destination {
    Stdout,
    Special(PathBuf),
    File(PathBuf, Option<Metadata>),
}

fn destination(path: &Path) -> Result<Destination> {
    if path == Path::new("-") {
        return Ok(Destination::Stdout);
    }
    let mut path = path.to_path_buf();
    // Links are followed by hand: the last one may point to nothing yet.
    for _ in 0..40 {
        match std::fs::symlink_metadata(&path) {
            Ok(m) if m.is_symlink() => {
                let to = std::fs::read_link(&path)?;
                // /proc/self/fd/N of a pipe is a link to no path.
                if !to.exists() && path.exists() {
                    return Ok(Destination::Special(path));
                }
                path = directory(&path).join(to);
            }
            Ok(m) if m.is_dir() => return Err(Error::new(ErrorKind::IsADirectory, "it is a directory")),
            Ok(m) if m.is_file() => return Ok(Destination::File(path, Some(m))),
            Ok(_) => return Ok(Destination::Special(path)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Destination::File(path, None)),
            Err(e) => return Err(e),
        }
    }
    Err(Error::other("too many symbolic links"))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

impl Destination {
    fn check(&self) -> Result<()> {
        match self {
            Destination::Stdout => Ok(()),
            Destination::Special(path) => writable(path),
            Destination::File(path, old) => {
                let dir = directory(path);
                if path.file_name().is_none() {
                    return Err(Error::new(ErrorKind::InvalidInput, "it is not the name of a file"));
                }
                if !std::fs::metadata(dir)?.is_dir() {
                    return Err(Error::new(ErrorKind::NotADirectory, format!("{} is not a directory", dir.display())));
                }
                writable(dir)?;
                if old.is_some() { writable(path) } else { Ok(()) }
            }
        }
    }
}

/// Fails when this process may not write there.
#[cfg(unix)]
fn writable(path: &Path) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a path that ends with a zero.
    if unsafe { libc::access(path.as_ptr(), libc::W_OK) } == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(not(unix))]
fn writable(path: &Path) -> Result<()> {
    if std::fs::metadata(path)?.permissions().readonly() {
        return Err(Error::new(ErrorKind::PermissionDenied, "it is read-only"));
    }
    Ok(())
}

/// A file on its way.
enum New {
    /// It has no name, and vanishes with the process.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// It has a hidden name.
    Hidden(tempfile::NamedTempFile, pending::Guard),
}

impl New {
    fn create(dir: &Path) -> Result<New> {
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::OpenOptionsExt;
            let unnamed = File::options().write(true).mode(0o666).custom_flags(libc::O_TMPFILE).open(dir);
            // File systems without them say so in several ways; what is wrong with the directory shows again below.
            if let Ok(file) = unnamed {
                return Ok(New::Unnamed(file));
            }
        }
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        // What is wrong with the directory, in the words for it: those for the file tell its hidden name.
        std::fs::metadata(dir)?;
        let file = builder.tempfile_in(dir).map_err(|e| Error::from(e.kind()))?;
        let guard = pending::Guard::new(file.path());
        Ok(New::Hidden(file, guard))
    }

    fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            New::Unnamed(f) => f,
            New::Hidden(f, _) => f.as_file(),
        }
    }

    /// Gives the file its name, in place of what has it.
    fn name(self, path: &Path, old: Option<&Metadata>) -> Result<()> {
        if let Some(old) = old {
            keep_access(self.file(), old)?;
        }
        match self {
            #[cfg(target_os = "linux")]
            New::Unnamed(file) => link(&file, path),
            New::Hidden(file, _guard) => file.persist(path).map(drop).map_err(|e| e.error),
        }
    }
}

/// Gives a new file the owner and permissions of the old one. The owner can only be kept by root, which is no failure.
#[cfg(unix)]
fn keep_access(new: &File, old: &Metadata) -> Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let _ = fchown(new, Some(old.uid()), Some(old.gid()));
    new.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep_access(new: &File, old: &Metadata) -> Result<()> {
    new.set_permissions(old.permissions())
}

/// Links an unnamed file. A link cannot replace a file, a rename can: so, where there is one, the new file gets a hidden
/// name first, with signals blocked in between.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> Result<()> {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let link = |to: &Path| -> Result<()> {
        let to = CString::new(to.as_os_str().as_bytes())?;
        // SAFETY: both are paths that end with a zero.
        let r = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        if r == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    };
    match link(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let _blocked = Blocked::new();
    let mut number = 0u32;
    let hidden = loop {
        let name = directory(path).join(format!(".barewave-{}-{number}", std::process::id()));
        match link(&name) {
            Ok(()) => break name,
            Err(e) if e.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(e) => return Err(e),
        }
    };
    std::fs::rename(&hidden, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&hidden);
    })
}

/// Signals are blocked in this thread while it lives.
#[cfg(target_os = "linux")]
struct Blocked(libc::sigset_t);

#[cfg(target_os = "linux")]
impl Blocked {
    fn new() -> Blocked {
        // SAFETY: both sets are filled before they are read.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Blocked(before)
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled when the signals were blocked.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}

/// Lets interrupts (Ctrl-C, kill, a closed terminal) end the process only after unfinished files with hidden names are
/// removed. For programs; a library does not change what signals do.
pub fn clean_up_on_signals() {
    pending::install();
}

/// Hidden names that a signal has to remove.
#[cfg(unix)]
mod pending {
    use std::ffi::{CString, c_char, c_int};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    static NAMES: [AtomicPtr<c_char>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

    /// Keeps a name in the list while it lives.
    pub struct Guard(Option<usize>);

    impl Guard {
        pub fn new(path: &Path) -> Guard {
            let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Guard(None) };
            let name = name.into_raw();
            let free = |a: &AtomicPtr<c_char>| {
                a.compare_exchange(null_mut(), name, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            let at = NAMES.iter().position(free);
            if at.is_none() {
                // SAFETY: it was made of a string just now and is nowhere else.
                drop(unsafe { CString::from_raw(name) });
            }
            Guard(at)
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            if let Some(i) = self.0 {
                // The string is not freed: a handler may be reading it.
                NAMES[i].store(null_mut(), Ordering::Release);
            }
        }
    }

    extern "C" fn handler(signal: c_int) {
        for name in &NAMES {
            let name = name.load(Ordering::Acquire);
            if !name.is_null() {
                // SAFETY: a string that ends with a zero and is never freed; unlink may be called in handlers.
                unsafe { libc::unlink(name) };
            }
        }
        // SAFETY: the default action ends the process as if there had been no handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }

    pub fn install() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let handler: extern "C" fn(c_int) = handler;
            // SAFETY: the handler calls nothing but what handlers may. A signal that is ignored (nohup) stays ignored.
            unsafe {
                if libc::signal(signal, handler as usize) == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
        }
    }
}

#[cfg(not(unix))]
mod pending {
    use std::path::Path;

    pub struct Guard;

    impl Guard {
        pub fn new(_: &Path) -> Guard {
            Guard
        }
    }

    pub fn install() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        write(&path, |w| w.write_all(b"first")).unwrap();
        let e = write(&path, |w| {
            w.write_all(b"half")?;
            // Nothing is to be seen before the file is whole.
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            Err(Error::other("disk full"))
        });
        assert!(e.unwrap_err().to_string().contains("disk full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let e = write(&dir.path().join("none/out"), |_| Ok(())).unwrap_err().to_string();
        assert!(e.contains("none/out") && !e.contains("none/.tmp"), "{e}");
    }

    #[test]
    fn room_is_reserved_and_the_size_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        write_large(&path, 3 << 20, |w| w.write_all(b"less than was said")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"less than was said");
        // More than any disk has: nothing is written, if the file system can tell.
        let too_much = write_large(&path, 1 << 60, |w| w.write_all(b"new"));
        let left: &[u8] = if too_much.is_err() { b"less than was said" } else { b"new" };
        assert_eq!(std::fs::read(&path).unwrap(), left);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, link, dangling) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("dangling"));
        std::fs::write(&file, b"old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("new", &dangling).unwrap();
        write(&link, |w| w.write_all(b"new")).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        write(&dangling, |w| w.write_all(b"through")).unwrap();
        assert!(std::fs::symlink_metadata(&dangling).unwrap().is_symlink());
        assert_eq!(std::fs::read(dir.path().join("new")).unwrap(), b"through");
        std::os::unix::fs::symlink("round", dir.path().join("round")).unwrap();
        assert!(write(&dir.path().join("round"), |_| Ok(())).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
    }

    #[cfg(unix)]
    #[test]
    fn special_files_are_written_to() {
        use std::os::unix::fs::FileTypeExt;
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::read(fifo).unwrap()
        });
        write(&fifo, |w| w.write_all(b"passed on")).unwrap();
        assert_eq!(reader.join().unwrap(), b"passed on");
        assert!(std::fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), |w| w.write_all(b"gone")).unwrap();
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        if Path::new("/dev/full").exists() {
            let e = write(Path::new("/dev/full"), |w| w.write_all(b"no room")).unwrap_err();
            assert!(e.to_string().contains("/dev/full"), "{e}");
        }
    }

    #[test]
    fn mistakes_show_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        check(Path::new("-")).unwrap();
        check(&dir.path().join("new")).unwrap();
        assert!(check(dir.path()).unwrap_err().to_string().contains("directory"));
        assert!(check(&dir.path().join("none/new")).unwrap_err().to_string().contains("none/new"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
