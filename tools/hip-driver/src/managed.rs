//! Advice about memory that host and devices share, and where it was last asked to be. There is one memory: advice moves
//! nothing, and is kept for who asks.

use crate::api::{INVALID, Result, get, put};
use crate::memory::{Kind, check, find};
use crate::shared_memory::PAGE;
use crate::state::{self, lock, size};
use crate::types::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

/// The host as a place.
const HOST: c_int = -1;
/// `hipMemRangeAttributeCoherencyMode`.
const COHERENCY: c_uint = 100;
/// No place.
const NOWHERE: c_int = -2;

/// What was advised for some pages.
#[derive(Clone, PartialEq)]
struct Advice {
    read_mostly: bool,
    preferred: c_int,
    accessed_by: BTreeSet<c_int>,
    prefetched: c_int,
    /// 0 fine grain, 1 coarse grain.
    coarse: c_uint,
}

const NONE: Advice =
    Advice { read_mostly: false, preferred: NOWHERE, accessed_by: BTreeSet::new(), prefetched: NOWHERE, coarse: 0 };

/// By the start of an allocation: advice from an offset on, up to the next one.
static ADVICE: Mutex<BTreeMap<u64, BTreeMap<u64, Advice>>> = Mutex::new(BTreeMap::new());

/// An allocation goes away.
pub fn freed(start: u64) {
    lock(&ADVICE).remove(&start);
}

/// Calls a function with the advice for each part of a range, in whole pages; parts get borders of their own.
fn with(p: *const c_void, bytes: usize, mut f: impl FnMut(&mut Advice) -> Result) -> Result {
    if p.is_null() || bytes == 0 {
        return Err(INVALID);
    }
    check(p as u64, size(bytes)?)?;
    let a = find(p as u64).filter(|a| a.kind == Kind::Managed).ok_or(INVALID)?;
    let from = (p as u64 - a.start) / PAGE * PAGE;
    let to = (p as u64 - a.start + bytes as u64).next_multiple_of(PAGE);
    let mut all = lock(&ADVICE);
    let parts = all.entry(a.start).or_insert_with(|| BTreeMap::from([(0, NONE)]));
    for border in [from, to] {
        let before = parts.range(..=border).next_back().map_or(NONE, |(_, v)| v.clone());
        parts.entry(border).or_insert(before);
    }
    parts.range_mut(from..to).try_for_each(|(_, v)| f(v))
}

/// What was advised for a whole range; where its pages differ, what nobody advised.
fn advised(p: *const c_void, bytes: usize) -> Result<Advice> {
    let mut seen: Option<Advice> = None;
    with(p, bytes, |a| {
        let s = seen.get_or_insert_with(|| a.clone());
        s.read_mostly &= a.read_mostly;
        s.accessed_by.retain(|d| a.accessed_by.contains(d));
        s.coarse &= a.coarse;
        for (whole, part) in [(&mut s.preferred, a.preferred), (&mut s.prefetched, a.prefetched)] {
            *whole = if *whole == part { part } else { NOWHERE };
        }
        Ok(())
    })?;
    seen.ok_or(INVALID)
}

/// Checks a place: a device or the host.
fn place(device: c_int) -> Result<c_int> {
    if device != HOST {
        state::device(device)?;
    }
    Ok(device)
}

/// Writes an attribute: 1 read mostly, 2 preferred location, 3 devices that access it, 4 where it was last prefetched to,
/// 100 coherency.
unsafe fn attribute(data: *mut c_void, bytes: usize, which: c_uint, a: &Advice) -> Result {
    let room = data.cast::<c_int>();
    if data.is_null() || bytes == 0 || !bytes.is_multiple_of(4) || which != 3 && bytes != 4 {
        return Err(INVALID);
    }
    // SAFETY: the caller's word: so many bytes are there.
    unsafe {
        match which {
            1 => put(room, c_int::from(a.read_mostly)),
            2 => put(room, a.preferred),
            3 => {
                let mut list = a.accessed_by.iter().copied();
                (0..bytes / 4).try_for_each(|i| put(room.add(i), list.next().unwrap_or(NOWHERE)))
            }
            4 => put(room, a.prefetched),
            COHERENCY => put(data.cast(), a.coarse),
            _ => Err(INVALID),
        }
    }
}

hip! {
    fn hipMemAdvise(p: *const c_void, bytes: usize, advice: c_uint, device: c_int) {
        // Whether it is mostly read is no matter of a device.
        let device = if matches!(advice, 1 | 2) { HOST } else { place(device)? };
        with(p, bytes, |a| {
            match advice {
                1 => a.read_mostly = true,
                2 => a.read_mostly = false,
                3 => a.preferred = device,
                4 => a.preferred = NOWHERE,
                5 => drop(a.accessed_by.insert(device)),
                6 => drop(a.accessed_by.remove(&device)),
                100 => a.coarse = 1,
                101 => a.coarse = 0,
                _ => return Err(INVALID),
            }
            Ok(())
        })
    }
    fn hipMemAdvise_v2(p: *const c_void, bytes: usize, advice: c_uint, location: hipMemLocation) {
        // 1 is a device, others are the host's memories.
        let device = if location.kind == 1 { location.id } else { HOST };
        match hipMemAdvise(p, bytes, advice, device) {
            0 => Ok(()),
            e => crate::api::err(e),
        }
    }
    fn hipMemPrefetchAsync(p: *const c_void, bytes: usize, device: c_int, stream: hipStream_t) {
        state::stream(stream)?;
        if p.is_null() || bytes == 0 {
            return Err(INVALID);
        }
        let to = place(device)?;
        with(p, bytes, |a| {
            a.prefetched = to;
            Ok(())
        })
    }
    fn hipMemPrefetchAsync_v2(p: *const c_void, bytes: usize, location: hipMemLocation, flags: c_uint,
        stream: hipStream_t) {
        state::stream(stream)?;
        let to = place(if location.kind == 1 { location.id } else { HOST })?;
        if flags != 0 {
            return Err(INVALID);
        }
        with(p, bytes, |a| {
            a.prefetched = to;
            Ok(())
        })
    }
    fn hipMemRangeGetAttribute(data: *mut c_void, data_bytes: usize, which: c_uint, p: *const c_void, bytes: usize) {
        // Memory of a device is coarse grained, that of the host is not.
        if let (COHERENCY, Some(a)) = (which, find(p as u64).filter(|a| a.kind != Kind::Managed)) {
            let coarse = c_uint::from(a.kind == Kind::Device);
            return attribute(data, data_bytes, which, &Advice { coarse, ..NONE });
        }
        attribute(data, data_bytes, which, &advised(p, bytes)?)
    }
    fn hipMemRangeGetAttributes(data: *mut *mut c_void, data_bytes: *mut usize, which: *mut c_uint, count: usize,
        p: *const c_void, bytes: usize) {
        if data.is_null() || data_bytes.is_null() || which.is_null() || count == 0 {
            return Err(INVALID);
        }
        let a = advised(p, bytes)?;
        (0..count).try_for_each(|i| attribute(get(data.add(i))?, get(data_bytes.add(i))?, get(which.add(i))?, &a))
    }
}
