//! Numbers and register names appended to text without the formatting machinery: names of single registers and small
//! numbers are whole strings in a table.

use crate::{Half, Reg, RegFile, Regs};

/// Bytes that one name takes in [`Names`].
const WIDTH: usize = 5;

/// `v0`, `s17`, `255`: all names that a prefix and a number make, one behind the other, and how long each is.
struct Names<const N: usize> {
    text: &'static str,
    lens: [u8; N],
}

/// The names of a prefix (0: none) and the numbers below `N`, each filled up with blanks.
const fn bytes<const N: usize, const BYTES: usize>(prefix: u8) -> ([u8; BYTES], [u8; N]) {
    let (mut out, mut lens) = ([b' '; BYTES], [0; N]);
    let mut n = 0;
    while n < N {
        let mut len = 0;
        if prefix != 0 {
            out[n * WIDTH] = prefix;
            len = 1;
        }
        let mut unit = 1;
        while unit * 10 <= n {
            unit *= 10;
        }
        while unit > 0 {
            out[n * WIDTH + len] = b'0' + (n / unit % 10) as u8;
            len += 1;
            unit /= 10;
        }
        lens[n] = len as u8;
        n += 1;
    }
    (out, lens)
}

const fn utf8(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("digits are text"),
    }
}

macro_rules! names {
    ($name:ident, $prefix:expr, $n:expr) => {
        static $name: Names<$n> = {
            const MADE: ([u8; $n * WIDTH], [u8; $n]) = bytes($prefix);
            static BYTES: [u8; $n * WIDTH] = MADE.0;
            Names { text: utf8(&BYTES), lens: MADE.1 }
        };
    };
}

names!(NUMBERS, 0, 1024);
names!(VGPRS, b'v', 1024);
names!(AGPRS, b'a', 256);
names!(SGPRS, b's', 128);

impl<const N: usize> Names<N> {
    #[inline]
    fn get(&self, n: usize) -> Option<&'static str> {
        self.text.get(n * WIDTH..n * WIDTH + usize::from(*self.lens.get(n)?))
    }
}

/// Appends a decimal number.
#[inline]
pub(crate) fn dec(v: u64, out: &mut String) {
    match NUMBERS.get(v as usize) {
        Some(text) => out.push_str(text),
        None => {
            dec(v / 1000, out);
            let rest = v % 1000;
            out.push((b'0' + (rest / 100) as u8) as char);
            out.push((b'0' + (rest / 10 % 10) as u8) as char);
            out.push((b'0' + (rest % 10) as u8) as char);
        }
    }
}

/// Appends a signed decimal number.
pub(crate) fn signed(v: i64, out: &mut String) {
    if v < 0 {
        out.push('-');
    }
    dec(v.unsigned_abs(), out);
}

/// Appends `0x..`.
#[inline]
pub(crate) fn hex(v: u64, out: &mut String) {
    let mut buffer = [0u8; 18];
    let mut at = buffer.len();
    let mut v = v;
    loop {
        at -= 1;
        buffer[at] = b"0123456789abcdef"[(v & 15) as usize];
        v >>= 4;
        if v == 0 {
            break;
        }
    }
    at -= 2;
    buffer[at] = b'0';
    buffer[at + 1] = b'x';
    out.push_str(std::str::from_utf8(&buffer[at..]).unwrap_or("?"));
}

/// Appends `-0x..` or `0x..`.
pub(crate) fn signed_hex(v: i64, out: &mut String) {
    if v < 0 {
        out.push('-');
    }
    hex(v.unsigned_abs(), out);
}

/// Appends a register or a run of registers as LLVM prints them; false for a special one.
#[inline]
pub(crate) fn register(r: Regs, out: &mut String) -> bool {
    let n = usize::from(r.first.index());
    let (name, prefix) = match r.first.file() {
        RegFile::Vgpr => (VGPRS.get(n), "v["),
        RegFile::Agpr => (AGPRS.get(n), "a["),
        RegFile::Sgpr => (SGPRS.get(n), "s["),
        RegFile::Ttmp => (None, "ttmp["),
        RegFile::Special => return false,
    };
    if r.dwords != 1 {
        out.push_str(prefix);
        dec(n as u64, out);
        out.push(':');
        dec((n + usize::from(r.dwords)).saturating_sub(1) as u64, out);
        out.push(']');
    } else if let Some(name) = name {
        out.push_str(name);
    } else {
        out.push_str(&prefix[..prefix.len() - 1]);
        dec(n as u64, out);
    }
    match r.half {
        Half::Full => {}
        Half::Lo => out.push_str(".l"),
        Half::Hi => out.push_str(".h"),
    }
    true
}

/// Appends any register.
pub(crate) fn any_register(r: Regs, out: &mut String) {
    if r.first == Reg::SCC {
        out.push_str("src_scc");
    } else if !register(r, out) {
        out.push_str(crate::reg::special_name(r.first, r.dwords));
    }
}

/// Appends ` name:[a,b,..]`, a digit for each of `n` bits.
pub(crate) fn bits(head: &str, n: usize, v: u64, out: &mut String) {
    out.push_str(head);
    for i in 0..n {
        out.push_str(match (i, v >> i & 1) {
            (0, 0) => "0",
            (0, _) => "1",
            (_, 0) => ",0",
            _ => ",1",
        });
    }
}
