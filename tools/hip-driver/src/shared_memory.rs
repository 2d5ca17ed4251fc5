//! Memory of the system below the API: address ranges, and memory without an address that can be mapped in several
//! places and processes (memfd). Linux only; elsewhere everything here fails as not supported.

use crate::api::{Code, Result};
use barewave_emu::hip::code::*;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Memory without an address. Dropping it closes this reference to it.
#[derive(Debug)]
pub struct Physical {
    fd: i32,
    /// Bytes.
    pub size: u64,
    /// The system's number of it, the same in every process; no other memory has it, at the same time or later.
    pub serial: u64,
}

#[cfg(target_os = "linux")]
mod system {
    use super::*;

    fn failed() -> Code {
        Code(match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSPC) => hipErrorOutOfMemory,
            Some(libc::ENOENT | libc::ESRCH | libc::EBADF) => hipErrorInvalidValue,
            _ => hipErrorOperatingSystem,
        })
    }

    impl Physical {
        /// Zeros.
        pub fn new(size: u64) -> Result<Physical> {
            // SAFETY: a new descriptor, which is owned from here on.
            let fd = unsafe { libc::memfd_create(c"barewave".as_ptr(), libc::MFD_CLOEXEC) };
            if fd < 0 {
                return Err(failed());
            }
            let p = Physical { fd, size: 0, serial: 0 };
            // SAFETY: as above.
            if unsafe { libc::ftruncate(fd, size as i64) } != 0 { Err(failed()) } else { p.known() }
        }

        /// That behind a descriptor of this or another process, which stays as it is.
        pub fn open(pid: u32, fd: i32) -> Result<Physical> {
            let path =
                std::ffi::CString::new(format!("/proc/{pid}/fd/{fd}")).map_err(|_| Code(hipErrorInvalidValue))?;
            // SAFETY: as above.
            let own = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
            if own < 0 {
                return Err(failed());
            }
            Physical { fd: own, size: 0, serial: 0 }.known()
        }

        /// With the size and the number that the system says.
        fn known(mut self) -> Result<Physical> {
            // SAFETY: fills the structure.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                if libc::fstat(self.fd, &mut stat) != 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
                    return Err(Code(hipErrorInvalidValue));
                }
                (self.size, self.serial) = (stat.st_size as u64, stat.st_ino);
            }
            Ok(self)
        }

        /// A descriptor that the caller owns.
        pub fn export(&self) -> Result<i32> {
            // SAFETY: a new descriptor.
            let fd = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3) };
            if fd < 0 { Err(failed()) } else { Ok(fd) }
        }

        /// The descriptor in this process.
        pub fn fd(&self) -> i32 {
            self.fd
        }

        /// Maps it, at a place of a range that is ours or anywhere.
        ///
        /// # Safety
        /// Nothing that is needed is mapped at `at`.
        pub unsafe fn map(&self, at: Option<u64>, size: u64, offset: u64) -> Result<u64> {
            let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
            // SAFETY: the caller's promise.
            let p = unsafe {
                let (place, access) = (at.unwrap_or(0) as *mut libc::c_void, libc::PROT_READ | libc::PROT_WRITE);
                libc::mmap(place, size as usize, access, libc::MAP_SHARED | fixed, self.fd, offset as i64)
            };
            if p == libc::MAP_FAILED { Err(failed()) } else { Ok(p as u64) }
        }
    }

    impl Drop for Physical {
        fn drop(&mut self) {
            // SAFETY: owned.
            unsafe { libc::close(self.fd) };
        }
    }

    /// Reserves a range that nobody can access.
    pub fn reserve(size: u64, align: u64, wish: u64) -> Result<u64> {
        let align = align.max(PAGE);
        let all = size.checked_add(align).ok_or(Code(hipErrorOutOfMemory))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping; what is cut off belongs to it.
        unsafe {
            if wish != 0 && wish.is_multiple_of(align) {
                let place = wish as *mut libc::c_void;
                let p = libc::mmap(place, size as usize, libc::PROT_NONE, flags | libc::MAP_FIXED_NOREPLACE, -1, 0);
                if p as u64 == wish {
                    return Ok(wish);
                }
                if p != libc::MAP_FAILED {
                    libc::munmap(p, size as usize);
                }
            }
            let p = libc::mmap(std::ptr::null_mut(), all as usize, libc::PROT_NONE, flags, -1, 0);
            if p == libc::MAP_FAILED {
                return Err(failed());
            }
            let (start, end) = (p as u64, p as u64 + all);
            let at = start.next_multiple_of(align);
            if at > start {
                libc::munmap(p, (at - start) as usize);
            }
            if end > at + size {
                libc::munmap((at + size) as *mut libc::c_void, (end - at - size) as usize);
            }
            Ok(at)
        }
    }

    /// Takes away what is mapped in a part of a reserved range.
    ///
    /// # Safety
    /// The range is reserved and not in use.
    pub unsafe fn close(at: u64, size: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the caller's promise.
        unsafe { libc::mmap(at as *mut libc::c_void, size as usize, libc::PROT_NONE, flags, -1, 0) };
    }

    /// Gives a range back.
    ///
    /// # Safety
    /// It is not in use.
    pub unsafe fn unmap(at: u64, size: u64) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(at as *mut libc::c_void, size as usize) };
    }

    /// Makes a range private memory again, with the bytes that are in it.
    ///
    /// # Safety
    /// The range consists of whole pages of ours and nobody else is using it now.
    pub unsafe fn make_private(at: u64, size: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = std::slice::from_raw_parts(at as *const u8, size as usize).to_vec();
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let p = libc::mmap(at as *mut libc::c_void, size as usize, access, flags, -1, 0);
            if p != libc::MAP_FAILED {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    const NONE: Code = Code(hipErrorNotSupported);

    #[allow(missing_docs, clippy::missing_safety_doc)]
    impl Physical {
        pub fn new(_: u64) -> Result<Physical> {
            Err(NONE)
        }
        pub fn open(_: u32, _: i32) -> Result<Physical> {
            Err(NONE)
        }
        pub fn export(&self) -> Result<i32> {
            Err(NONE)
        }
        pub fn fd(&self) -> i32 {
            self.fd
        }
        pub unsafe fn map(&self, _: Option<u64>, _: u64, _: u64) -> Result<u64> {
            Err(NONE)
        }
    }
    pub fn reserve(_: u64, _: u64, _: u64) -> Result<u64> {
        Err(NONE)
    }
    pub unsafe fn close(_: u64, _: u64) {}
    pub unsafe fn unmap(_: u64, _: u64) {}
    pub unsafe fn make_private(_: u64, _: u64) {}
}

pub use system::{close, make_private, reserve, unmap};
