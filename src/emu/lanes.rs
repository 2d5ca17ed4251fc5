//! Lane kernels: one scalar function per instruction, run over all lanes of a wave with the host's vectors.
//!
//! A kernel is written once, as a function of one lane's values. The [`kernel!`](crate::lanes) macro wraps it into
//! a loop over chunks of 16 lanes and compiles that loop with the host's vector instructions. x86-64 without AVX2 goes from
//! lane to lane instead ([`APART`]): a vector copy for it would be a third of the emulator, for hosts of 2012. Which copy
//! runs is decided when a program is decoded, by [`Host::detect`].
//!
//! A chunk's or a lane's sources are read before its results are stored, so a destination may be a source.

/// Lanes of a chunk: one AVX-512 register of 32-bit values.
pub const CHUNK: usize = 16;

/// Operands of one kernel call. All pointers are to 32-bit rows of a wave's register file or of scratch space.
pub struct LaneArgs<'a> {
    /// Destination row.
    pub dst: *mut u32,
    /// Source rows.
    pub src: [*const u32; 3],
    /// Lanes to store.
    pub mask: u64,
    /// How rows are laid out.
    pub rows: &'a Rows,
    /// One lane after the other, in a few instructions of code. Known to the compiler wherever a kernel is.
    pub apart: bool,
}

/// Whether [`Host::Portable`] goes from lane to lane: elsewhere it has the vectors that every host has.
pub const APART: bool = cfg!(target_arch = "x86_64");

/// Layout of the rows that a kernel works on. The 64-bit value of a lane is split over two rows, `hi` elements apart.
pub struct Rows {
    /// Distance from the destination's low to its high row, in elements.
    pub dst_hi: usize,
    /// Elements from chunk to chunk: `CHUNK` for registers, 0 for one chunk that serves all.
    pub stride: [usize; 3],
    /// Distance from a source's low to its high row, in elements.
    pub src_hi: [usize; 3],
    /// One bit per lane read by carry and select instructions.
    pub carry: u64,
    /// Chunks in the wave: 2 or 4.
    pub chunks: usize,
}

impl Rows {
    /// All operands are registers of a wave with `lanes` lanes.
    pub const fn registers(lanes: usize) -> Rows {
        Rows { dst_hi: lanes, stride: [CHUNK; 3], src_hi: [lanes; 3], carry: 0, chunks: lanes / CHUNK }
    }
}

/// A compiled kernel: destination, sources, lanes to store, layout (what [`LaneArgs`] holds, but in the host's
/// registers). Compares return their lane mask, carry instructions their carry out, others 0.
pub type LaneFn = unsafe fn(*mut u32, *const u32, *const u32, *const u32, u64, &Rows) -> u64;

/// How a value's bits are read by modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ty {
    /// Not a value (no such operand).
    #[default]
    None,
    /// 32 bits or fewer, integer.
    B32,
    /// 16 bits, integer.
    B16,
    /// 64 bits, integer.
    B64,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// IEEE half in the low 16 bits.
    F16,
    /// Upper half of a single, in the low 16 bits.
    Bf16,
    /// Two halves.
    PkF16,
    /// Two bf16.
    PkBf16,
    /// Two 16-bit integers.
    Pk16,
    /// Two singles.
    PkF32,
}

impl Ty {
    /// Dwords a lane's value takes.
    #[inline]
    pub const fn dwords(self) -> usize {
        match self {
            Ty::None => 0,
            Ty::B64 | Ty::F64 | Ty::PkF32 => 2,
            _ => 1,
        }
    }
    /// Single 16-bit value, which `op_sel` can take from the upper half.
    pub fn is_16(self) -> bool {
        matches!(self, Ty::B16 | Ty::F16 | Ty::Bf16)
    }
    /// Two values that `op_sel` and `op_sel_hi` choose separately.
    pub fn is_packed(self) -> bool {
        matches!(self, Ty::PkF16 | Ty::PkBf16 | Ty::Pk16 | Ty::PkF32)
    }
    /// Floating point of any width.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64 | Ty::F16 | Ty::Bf16 | Ty::PkF16 | Ty::PkBf16 | Ty::PkF32)
    }
}

/// IEEE half as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct F16(pub u16);
/// bf16 as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bf16(pub u16);
/// Two 16-bit values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pk<T>(pub T, pub T);
/// Absent operand.
#[derive(Clone, Copy, Default)]
pub struct No;

/// A lane's value.
pub trait Lane: Copy {
    /// For modifiers.
    const TY: Ty;
    /// From the low and high dword.
    fn get(lo: u32, hi: u32) -> Self;
    /// To the low and high dword.
    fn put(self) -> (u32, u32);
}

macro_rules! lane {
    ($t:ty, $ty:ident, |$lo:ident, $hi:ident| $get:expr, |$v:ident| $put:expr) => {
        impl Lane for $t {
            const TY: Ty = Ty::$ty;
            #[inline(always)]
            fn get($lo: u32, $hi: u32) -> Self {
                $get
            }
            #[inline(always)]
            fn put(self) -> (u32, u32) {
                let $v = self;
                $put
            }
        }
    };
}

lane!(No, None, |_l, _h| No, |_v| (0, 0));
lane!(u32, B32, |l, _h| l, |v| (v, 0));
lane!(i32, B32, |l, _h| l as i32, |v| (v as u32, 0));
lane!(f32, F32, |l, _h| f32::from_bits(l), |v| (v.to_bits(), 0));
lane!(u16, B16, |l, _h| l as u16, |v| (v as u32, 0));
lane!(i16, B16, |l, _h| l as i16, |v| (v as u16 as u32, 0));
lane!(F16, F16, |l, _h| F16(l as u16), |v| (v.0 as u32, 0));
lane!(Bf16, Bf16, |l, _h| Bf16(l as u16), |v| (v.0 as u32, 0));
lane!(u64, B64, |l, h| l as u64 | (h as u64) << 32, |v| (v as u32, (v >> 32) as u32));
lane!(i64, B64, |l, h| (l as u64 | (h as u64) << 32) as i64, |v| (v as u32, (v >> 32) as u32));
lane!(f64, F64, |l, h| f64::from_bits(l as u64 | (h as u64) << 32), |v| {
    let b = v.to_bits();
    (b as u32, (b >> 32) as u32)
});
lane!(Pk<F16>, PkF16, |l, _h| Pk(F16(l as u16), F16((l >> 16) as u16)), |v| (v.0.0 as u32 | (v.1.0 as u32) << 16, 0));
lane!(Pk<Bf16>, PkBf16, |l, _h| Pk(Bf16(l as u16), Bf16((l >> 16) as u16)), |v| (
    v.0.0 as u32 | (v.1.0 as u32) << 16,
    0
));
lane!(Pk<u16>, Pk16, |l, _h| Pk(l as u16, (l >> 16) as u16), |v| (v.0 as u32 | (v.1 as u32) << 16, 0));
lane!(Pk<i16>, Pk16, |l, _h| Pk(l as i16, (l >> 16) as i16), |v| (v.0 as u16 as u32 | (v.1 as u16 as u32) << 16, 0));
lane!(Pk<f32>, PkF32, |l, h| Pk(f32::from_bits(l), f32::from_bits(h)), |v| (v.0.to_bits(), v.1.to_bits()));

type Row = [u32; CHUNK];

/// Low and high halves of source `n` in chunk `c`.
#[inline(always)]
unsafe fn load<T: Lane>(a: &LaneArgs, n: usize, c: usize) -> (Row, Row) {
    if T::TY.dwords() == 0 {
        return ([0; CHUNK], [0; CHUNK]);
    }
    // SAFETY: the caller of a kernel passes rows that hold `chunks` chunks.
    unsafe {
        let p = a.src[n].add(c * a.rows.stride[n]);
        let lo = *(p as *const Row);
        let hi = if T::TY.dwords() == 2 { *(p.add(a.rows.src_hi[n]) as *const Row) } else { [0; CHUNK] };
        (lo, hi)
    }
}

/// Source `n` of lane `l`.
#[inline(always)]
unsafe fn lane<T: Lane>(a: &LaneArgs, n: usize, l: usize) -> T {
    if T::TY.dwords() == 0 {
        return T::get(0, 0);
    }
    // SAFETY: as `load`.
    unsafe {
        let p = a.src[n].add(l / CHUNK * a.rows.stride[n] + l % CHUNK);
        T::get(*p, if T::TY.dwords() == 2 { *p.add(a.rows.src_hi[n]) } else { 0 })
    }
}

/// Stores the result of lane `l`.
#[inline(always)]
unsafe fn put<T: Lane>(a: &LaneArgs, l: usize, v: T) {
    let (lo, hi) = v.put();
    // SAFETY: as `load`.
    unsafe {
        *a.dst.add(l) = lo;
        if T::TY.dwords() == 2 {
            *a.dst.add(a.rows.dst_hi + l) = hi;
        }
    }
}

/// Asks `f` for a bit of each lane in the mask.
#[inline(always)]
fn each(a: &LaneArgs, mut f: impl FnMut(usize) -> bool) -> u64 {
    let mut rest = a.mask & (!0 >> (64 - CHUNK * a.rows.chunks));
    let mut out = 0;
    while rest != 0 {
        let l = rest.trailing_zeros();
        rest &= rest - 1;
        out |= u64::from(f(l as usize)) << l;
    }
    out
}

/// Stores the lanes of a row whose mask bit is set.
#[inline(always)]
unsafe fn store(p: *mut u32, row: &Row, mask: u32) {
    // SAFETY: as `load`.
    unsafe {
        if mask == 0xffff {
            *(p as *mut Row) = *row;
        } else {
            let mut out = *(p as *const Row);
            for i in 0..CHUNK {
                out[i] = if mask & (1 << i) != 0 { row[i] } else { out[i] };
            }
            *(p as *mut Row) = out;
        }
    }
}

/// Runs `f` over all lanes, storing its results.
///
/// # Safety
/// The rows of `a` must hold `a.rows.chunks` chunks.
#[inline(always)]
pub unsafe fn map<A: Lane, B: Lane, C: Lane, D: Lane>(a: &LaneArgs, f: impl Fn(A, B, C) -> D) -> u64 {
    if a.apart {
        return each(a, |l| {
            // SAFETY: promised by the caller.
            unsafe { put(a, l, f(lane(a, 0, l), lane(a, 1, l), lane(a, 2, l))) };
            false
        });
    }
    for c in 0..a.rows.chunks {
        let mask = (a.mask >> (c * CHUNK)) as u32 & 0xffff;
        // SAFETY: promised by the caller.
        unsafe {
            let (x, xh) = load::<A>(a, 0, c);
            let (y, yh) = load::<B>(a, 1, c);
            let (z, zh) = load::<C>(a, 2, c);
            let mut lo = [0; CHUNK];
            let mut hi = [0; CHUNK];
            for i in 0..CHUNK {
                (lo[i], hi[i]) = f(A::get(x[i], xh[i]), B::get(y[i], yh[i]), C::get(z[i], zh[i])).put();
            }
            let p = a.dst.add(c * CHUNK);
            store(p, &lo, mask);
            if D::TY.dwords() == 2 {
                store(p.add(a.rows.dst_hi), &hi, mask);
            }
        }
    }
    0
}

/// Runs a predicate over all lanes and returns its bits; lanes outside of the mask give 0.
///
/// # Safety
/// As [`map`].
#[inline(always)]
pub unsafe fn test<A: Lane, B: Lane>(a: &LaneArgs, f: impl Fn(A, B) -> bool) -> u64 {
    if a.apart {
        // SAFETY: promised by the caller.
        return each(a, |l| unsafe { f(lane(a, 0, l), lane(a, 1, l)) });
    }
    let mut out = 0u64;
    for c in 0..a.rows.chunks {
        // SAFETY: promised by the caller.
        let ((x, xh), (y, yh)) = unsafe { (load::<A>(a, 0, c), load::<B>(a, 1, c)) };
        let mut bits = 0u32;
        for i in 0..CHUNK {
            bits |= (f(A::get(x[i], xh[i]), B::get(y[i], yh[i])) as u32) << i;
        }
        out |= (bits as u64) << (c * CHUNK);
    }
    out & a.mask
}

/// Runs `f` with a bit per lane in and a bit per lane out.
///
/// # Safety
/// As [`map`].
#[inline(always)]
pub unsafe fn carry<A: Lane, B: Lane, C: Lane, D: Lane>(a: &LaneArgs, f: impl Fn(A, B, C, bool) -> (D, bool)) -> u64 {
    if a.apart {
        // SAFETY: promised by the caller.
        return each(a, |l| unsafe {
            let (v, bit) = f(lane(a, 0, l), lane(a, 1, l), lane(a, 2, l), a.rows.carry >> l & 1 == 1);
            put(a, l, v);
            bit
        });
    }
    let mut out = 0u64;
    for c in 0..a.rows.chunks {
        let mask = (a.mask >> (c * CHUNK)) as u32 & 0xffff;
        let bits_in = (a.rows.carry >> (c * CHUNK)) as u32;
        // SAFETY: promised by the caller.
        unsafe {
            let (x, xh) = load::<A>(a, 0, c);
            let (y, yh) = load::<B>(a, 1, c);
            let (z, zh) = load::<C>(a, 2, c);
            let mut lo = [0; CHUNK];
            let mut hi = [0; CHUNK];
            let mut bits = 0u32;
            for i in 0..CHUNK {
                let (v, b) = f(A::get(x[i], xh[i]), B::get(y[i], yh[i]), C::get(z[i], zh[i]), bits_in & (1 << i) != 0);
                (lo[i], hi[i]) = v.put();
                bits |= (b as u32) << i;
            }
            out |= (bits as u64) << (c * CHUNK);
            let p = a.dst.add(c * CHUNK);
            store(p, &lo, mask);
            if D::TY.dwords() == 2 {
                store(p.add(a.rows.dst_hi), &hi, mask);
            }
        }
    }
    out & a.mask
}

/// The instruction sets a kernel is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// What the build's target guarantees (SSE2 on x86-64, NEON on aarch64).
    Portable,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

/// BAREWAVE_HOST names nothing that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("BAREWAVE_HOST={0}: portable, avx2 and avx512 are known")]
pub struct UnknownHost(pub String);

impl Host {
    /// The best that this machine has, or what BAREWAVE_HOST names (`portable`, `avx2`, `avx512`) when it has that too.
    pub fn detect() -> Host {
        let best = Host::best();
        // A name that makes no sense is refused where devices are made.
        Host::asked().ok().flatten().map_or(best, |named| best.min(named))
    }

    /// What BAREWAVE_HOST names.
    pub fn asked() -> Result<Option<Host>, UnknownHost> {
        let Some(text) = std::env::var_os("BAREWAVE_HOST").filter(|t| !t.is_empty()) else { return Ok(None) };
        match text.to_str() {
            Some("portable") => Ok(Some(Host::Portable)),
            Some("avx2") => Ok(Some(Host::Avx2)),
            Some("avx512") => Ok(Some(Host::Avx512)),
            _ => Err(UnknownHost(text.to_string_lossy().into_owned())),
        }
    }

    fn best() -> Host {
        #[cfg(target_arch = "x86_64")]
        {
            let fma = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            if fma
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512vl")
            {
                return Host::Avx512;
            }
            if fma {
                return Host::Avx2;
            }
        }
        Host::Portable
    }
}

/// One kernel compiled for every instruction set.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// By [`Host`] number.
    pub by_host: [LaneFn; 3],
}

impl Kernel {
    /// The copy for a host.
    pub fn on(&self, host: Host) -> LaneFn {
        self.by_host[host as usize]
    }
}

/// Compiles a loop for every host: `kernel!(|a| unsafe { map::<f32, f32, No, f32>(a, |x, y, _| x + y) })` becomes a
/// [`Kernel`]: lane by lane where the host has no AVX2, and its own copy of the loop where it has.
macro_rules! kernel {
    (|$a:ident| $body:expr) => {{
        use $crate::lanes::{APART, Kernel, LaneArgs, Rows};
        /// # Safety
        /// The rows must hold `rows.chunks` chunks.
        #[inline(always)]
        unsafe fn body<const SINGLY: bool>(
            dst: *mut u32,
            x: *const u32,
            y: *const u32,
            z: *const u32,
            mask: u64,
            rows: &Rows,
        ) -> u64 {
            let $a = &LaneArgs { dst, src: [x, y, z], mask, rows, apart: SINGLY };
            $body
        }
        // on the vectors of AVX-512 these gain nothing that a third copy would be worth
        $crate::lanes::on_two_hosts!(
            (body::<APART>, body::<false>)
            (dst: *mut u32, x: *const u32, y: *const u32, z: *const u32, mask: u64, rows: &Rows) -> u64
        );
        Kernel { by_host: [portable, avx2, avx2] }
    }};
}
pub(crate) use kernel;

/// Compiles an unsafe function once for every [`Host`]: `on_hosts!(f(x: u32) -> u64)` defines `portable`, `avx2` and
/// `avx512`, which call `f` and differ in the instructions that they may use. `f` should be `#[inline(always)]`. Off
/// x86-64 the three are the same function.
macro_rules! on_hosts {
    ($f:ident($($x:ident: $t:ty),*) -> $r:ty) => {
        $crate::lanes::on_two_hosts!(($f, $f)($($x: $t),*) -> $r);
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512cd,avx512vl")]
        unsafe fn avx512($($x: $t),*) -> $r {
            // SAFETY: passed on.
            unsafe { $f($($x),*) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        use portable as avx512;
    };
}
pub(crate) use on_hosts;

/// The same without `avx512`, of one function for hosts without AVX2 and one for those that have it.
macro_rules! on_two_hosts {
    (($portable:expr, $vectors:expr)($($x:ident: $t:ty),*) -> $r:ty) => {
        unsafe fn portable($($x: $t),*) -> $r {
            // SAFETY: passed on.
            unsafe { $portable($($x),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn avx2($($x: $t),*) -> $r {
            // SAFETY: passed on.
            unsafe { $vectors($($x),*) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        use portable as avx2;
    };
}
pub(crate) use on_two_hosts;
