//! Numbers and register names appended to text without the formatting machinery: names of single registers and small
//! numbers are whole strings in a table.

use crate::{Half, Reg, RegFile, Regs};

/// `v0`, `s17`, `255`: all names that a prefix and a number below `N` give, in one string each.
struct Names<const N: usize> {
    bytes: [[u8; 8]; N],
    lens: [u8; N],
}

const fn names<const N: usize>(prefix: &str) -> Names<N> {
    let p = prefix.as_bytes();
    let mut out = Names { bytes: [[0; 8]; N], lens: [0; N] };
    let mut n = 0;
    while n < N {
        let mut len = 0;
        while len < p.len() {
            out.bytes[n][len] = p[len];
            len += 1;
        }
        let mut unit = 1;
        while unit * 10 <= n {
            unit *= 10;
        }
        while unit > 0 {
            out.bytes[n][len] = b'0' + (n / unit % 10) as u8;
            len += 1;
            unit /= 10;
        }
        out.lens[n] = len as u8;
        n += 1;
    }
    out
}

impl<const N: usize> Names<N> {
    #[inline]
    fn get(&self, n: usize) -> Option<&str> {
        let bytes = self.bytes.get(n)?.get(..usize::from(*self.lens.get(n)?))?;
        std::str::from_utf8(bytes).ok()
    }
}

static NUMBERS: Names<1024> = names("");
static VGPRS: Names<1024> = names("v");
static AGPRS: Names<256> = names("a");
static SGPRS: Names<128> = names("s");

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
