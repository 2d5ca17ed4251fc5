//! Processes that fork after they used a device.
//!
//! A child has the memory of its parent but none of its threads: streams would never move on, and locks that another
//! thread held stay locked. AMD's driver does not work in such a child either. Every call there fails, before it touches
//! anything, and says so once. A child of a process that has not used a device yet is a process like any other.

use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// True in a child that cannot use the devices of its parent.
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// From now on a fork makes a child without devices.
#[cfg(unix)]
pub fn watch() {
    extern "C" fn child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores a flag.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

#[cfg(not(unix))]
pub fn watch() {}

/// Tells the user, once. Without the locks of standard error, which a thread of the parent may hold.
pub fn tell(name: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let line = format!(
        "barewave: {name} in a child of fork: devices that the parent used cannot be used here; start a new process \
         (exec, or the spawn method of Python's multiprocessing)\n"
    );
    #[cfg(unix)]
    // SAFETY: writes bytes of the string.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
    }
    #[cfg(not(unix))]
    drop(line);
}
