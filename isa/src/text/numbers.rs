//! Numbers and register names appended to text without the formatting machinery: names of single registers and small
//! numbers are whole strings in a table.

use crate::{Half, Reg, RegFile, Regs};

/// Bytes that one name takes in [`Names`].
const WIDTH: usize = 8;

/// `v0`, `s17`, `255`, `v[16:`: all names that a number makes with what stands around it, one behind the other and filled
/// up with blanks, and how long each is.
struct Names<const N: usize> {
    text: &'static str,
    lens: [u8; N],
}

/// The names of the numbers below `N` between `before` and `after`.
const fn bytes<const N: usize, const BYTES: usize>(before: &[u8], after: &[u8]) -> ([u8; BYTES], [u8; N]) {
    let (mut out, mut lens) = ([b' '; BYTES], [0; N]);
    let mut n = 0;
    while n < N {
        let mut len = 0;
        while len < before.len() {
            out[n * WIDTH + len] = before[len];
            len += 1;
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
        let mut k = 0;
        while k < after.len() {
            out[n * WIDTH + len] = after[k];
            len += 1;
            k += 1;
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
    ($name:ident, $before:literal, $after:literal, $n:expr) => {
        static $name: Names<$n> = {
            const MADE: ([u8; $n * WIDTH], [u8; $n]) = bytes($before, $after);
            static BYTES: [u8; $n * WIDTH] = MADE.0;
            Names { text: utf8(&BYTES), lens: MADE.1 }
        };
    };
}

names!(NUMBERS, b"", b"", 1024);
names!(VGPRS, b"v", b"", 1024);
names!(AGPRS, b"a", b"", 256);
names!(SGPRS, b"s", b"", 128);
// the two parts of `v[16:17]`
names!(VGPR_RUNS, b"v[", b":", 1024);
names!(AGPR_RUNS, b"a[", b":", 256);
names!(SGPR_RUNS, b"s[", b":", 128);
names!(ENDS, b"", b"]", 1024);

impl<const N: usize> Names<N> {
    /// Appends a name; false when the number has none. All its room is copied and then cut, because copies of a known
    /// size need no call.
    #[inline]
    fn push(&self, n: usize, out: &mut String) -> bool {
        let (Some(name), Some(&len)) = (self.text.get(n * WIDTH..n * WIDTH + WIDTH), self.lens.get(n)) else {
            return false;
        };
        let end = out.len() + usize::from(len);
        out.push_str(name);
        out.truncate(end);
        true
    }
}

/// Appends a decimal number.
#[inline]
pub(crate) fn dec(v: u64, out: &mut String) {
    if !NUMBERS.push(usize::try_from(v).unwrap_or(usize::MAX), out) {
        long_dec(v, out);
    }
}

fn long_dec(v: u64, out: &mut String) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut v = v;
    while v > 0 {
        at -= 1;
        buffer[at] = b'0' + (v % 10) as u8;
        v /= 10;
    }
    out.push_str(std::str::from_utf8(&buffer[at..]).unwrap_or("?"));
}

/// Appends a signed decimal number.
#[inline]
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

/// Appends `v7` or `v[4:7]`.
#[inline]
pub(crate) fn vgprs(first: usize, dwords: u8, out: &mut String) -> bool {
    run(&VGPRS, &VGPR_RUNS, first, dwords, out)
}

/// Appends `s7` or `s[4:7]`.
#[inline]
pub(crate) fn sgprs(first: usize, dwords: u8, out: &mut String) -> bool {
    run(&SGPRS, &SGPR_RUNS, first, dwords, out)
}

#[inline]
fn run<const N: usize>(one: &Names<N>, many: &Names<N>, first: usize, dwords: u8, out: &mut String) -> bool {
    if dwords == 1 {
        return one.push(first, out);
    }
    many.push(first, out) && ENDS.push((first + usize::from(dwords)).saturating_sub(1), out)
}

/// Appends a register or a run of registers as LLVM prints them; false for a special one.
#[inline]
pub(crate) fn register(r: Regs, out: &mut String) -> bool {
    let n = usize::from(r.first.index());
    let _ = match r.first.file() {
        RegFile::Vgpr => vgprs(n, r.dwords, out),
        RegFile::Agpr => run(&AGPRS, &AGPR_RUNS, n, r.dwords, out),
        RegFile::Sgpr => sgprs(n, r.dwords, out),
        RegFile::Ttmp => {
            out.push_str("ttmp");
            if r.dwords == 1 {
                NUMBERS.push(n, out)
            } else {
                out.push('[');
                dec(n as u64, out);
                out.push(':');
                ENDS.push((n + usize::from(r.dwords)).saturating_sub(1), out)
            }
        }
        RegFile::Special => return false,
    };
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
        out.push_str(crate::model::reg::special_name(r.first, r.dwords));
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
