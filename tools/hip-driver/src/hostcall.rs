//! What running kernels ask the host for: printf, assert's message, memory for the device-side malloc.
//!
//! A kernel that wants something takes a packet from a stack of free ones, writes what each lane asks for, pushes the
//! packet on a second stack and waits until a bit in its header is cleared. Both stacks are intrusive lists of indices
//! with a tag in the upper bits, which the device counts up against the ABA problem. The threads that run a launch look
//! at the second stack between the turns of their workgroups (`Hostcall::attend`), so that no thread of its own is
//! needed, and what the lanes of a launch print comes in the order in which the emulator runs them.
//!
//! Layouts: `__ockl_hostcall_internal`, `__ockl_hsa_signal_add` and `__ockl_dm_init_v1` of AMD's device libraries.

use crate::api::{Result, log};
use crate::memory;
use crate::printf;
use crate::state::{Device, lock};
use barewave_emu::Services;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Packets of a device: more than waves can be running.
const PACKETS: u64 = 1 << 16;
/// Bytes of a packet's header: next, lanes, service, control.
const HEADER: u64 = 24;
/// Bytes of a packet's payload: 8 numbers for each of 64 lanes.
const PAYLOAD: u64 = 64 * 64;
/// The buffer: headers, payloads, doorbell, free stack, ready stack, mask of the index. Behind it, the doorbell: a signal
/// whose mailbox is null, so that kernels only count it up.
const READY: u64 = 32;
const DOORBELL: u64 = 64;
const HEADERS: u64 = 128;
const PAYLOADS: u64 = (HEADERS + PACKETS * HEADER).next_multiple_of(4096);
/// State of the device-side allocator, zero at first: it asks for slabs when it needs them.
const HEAP: u64 = 128 << 10;

/// Services by their number.
const PRINTF: u32 = 2;
const MEMORY: u32 = 3;

/// The requests of a device's kernels.
pub struct Hostcall {
    device: i32,
    buffer: u64,
    /// Messages that come in several packets, by number.
    messages: Mutex<BTreeMap<u64, Vec<u64>>>,
    next_message: AtomicU64,
}

impl Hostcall {
    /// The services of a device for a launch.
    pub fn services(device: &Device) -> Result<Services> {
        let emu = &device.emu;
        let none = |_| crate::api::Code(barewave_emu::hip::code::hipErrorOutOfMemory);
        let buffer = emu.alloc(PAYLOADS + PACKETS * PAYLOAD).map_err(none)?;
        let heap = emu.alloc(HEAP).map_err(none)?;
        emu.fill(heap, 0, HEAP).map_err(none)?;
        // Every packet is free: each names the next, the first one ends the list. A tag of 1 tells packet 0 from the end.
        let mut bytes = vec![0u8; (HEADERS + PACKETS * HEADER) as usize];
        let mut put = |at: u64, v: u64| bytes[at as usize..at as usize + 8].copy_from_slice(&v.to_le_bytes());
        put(0, buffer + HEADERS);
        put(8, buffer + PAYLOADS);
        put(16, buffer + DOORBELL);
        put(24, PACKETS - 1);
        put(40, PACKETS - 1);
        for i in 1..PACKETS {
            put(HEADERS + i * HEADER, if i == 1 { PACKETS } else { i - 1 });
        }
        emu.write(buffer, &bytes).map_err(none)?;
        emu.assume_written(buffer, PAYLOADS + PACKETS * PAYLOAD);
        let calls = Arc::new(Hostcall {
            device: device.ordinal,
            buffer,
            messages: Mutex::default(),
            next_message: AtomicU64::new(0),
        });
        let attend: Arc<dyn Fn() + Send + Sync> = Arc::new(move || calls.attend());
        Ok(Services { hostcall_buffer: buffer, heap, attend: Some(attend), ..Services::default() })
    }

    /// Answers the requests that are there.
    fn attend(&self) {
        // SAFETY: the buffer is device memory of a unified address space, and never freed; kernels access these words
        // atomically too.
        let word = |at: u64| unsafe { AtomicU64::from_ptr((self.buffer + at) as *mut u64) };
        if word(READY).load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut packet = word(READY).swap(0, Ordering::Acquire);
        // Whatever a kernel has written over the buffer, nothing here leads out of it, or on for ever.
        for _ in 0..PACKETS {
            if packet == 0 {
                return;
            }
            let index = packet & (PACKETS - 1);
            let header = HEADERS + index * HEADER;
            packet = word(header).load(Ordering::Relaxed);
            let lanes = word(header + 8).load(Ordering::Relaxed);
            let tail = word(header + 16).load(Ordering::Relaxed);
            for lane in (0..64).filter(|l| lanes >> l & 1 != 0) {
                let place = (self.buffer + PAYLOADS + index * PAYLOAD + lane * 64) as *mut [u64; 8];
                // SAFETY: a slot of the buffer, which the wave does not touch until its packet is answered.
                unsafe { place.write(self.answer(tail as u32, place.read())) };
            }
            // SAFETY: as above; the upper half of the last word of a header.
            let control = unsafe { AtomicU32::from_ptr((self.buffer + header + 20) as *mut u32) };
            control.fetch_and(!1, Ordering::Release);
        }
    }

    fn answer(&self, service: u32, mut slot: [u64; 8]) -> [u64; 8] {
        match service {
            PRINTF => self.message(&mut slot),
            MEMORY if slot[0] != 0 => {
                if memory::release(slot[0]).is_err() {
                    log(&format!("a kernel frees {:#x}, which is no memory", slot[0]));
                }
            }
            MEMORY => slot[0] = memory::allocate_pages(self.device, slot[1]).unwrap_or(0),
            other => {
                log(&format!("a kernel asks for service {other} of the host, which there is not"));
                slot[0] = 0;
            }
        }
        slot
    }

    /// A piece of a message. The first number says whether it begins (bit 0) or ends (bit 1) one, how many of the other
    /// numbers count (bits 5 to 7) and, in later pieces, which message it is (from bit 8 on).
    fn message(&self, slot: &mut [u64; 8]) {
        let (begins, ends, count) = (slot[0] & 1 != 0, slot[0] & 2 != 0, (slot[0] >> 5 & 7) as usize);
        let id = if begins { self.next_message.fetch_add(1, Ordering::Relaxed) } else { slot[0] >> 8 };
        let mut messages = lock(&self.messages);
        if begins {
            messages.insert(id, Vec::new());
        }
        // A kernel that lies gets nothing printed.
        let Some(data) = messages.get_mut(&id) else { return };
        data.extend(&slot[1..1 + count]);
        slot[0] = slot[0] & 0xfe | id << 8;
        if ends && let Some(data) = messages.remove(&id) {
            drop(messages);
            slot[0] = print(&data) as u64;
        }
    }
}

/// Prints a message: a number whose bit 0 means stderr, the format, the arguments. Gives what C's printf does.
fn print(data: &[u64]) -> i64 {
    let Some((&control, rest)) = data.split_first() else { return -1 };
    let (format, used) = printf::string(rest);
    let text = printf::format(&format, &rest[used..]);
    let n = text.len() as i64;
    if control > 1 || !printf::write_out(&text, control == 1) { -1 } else { n }
}
