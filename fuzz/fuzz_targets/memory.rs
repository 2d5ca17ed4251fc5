//! Device memory against a model of it: allocations never overlap, ranges outside of memory are refused, what was written
//! reads back. Each operation is a byte of kind and two numbers.
#![no_main]

use barewave::emu::EmuDevice;
use barewave_isa::Target;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const CAPACITY: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let device = EmuDevice::with_memory(Target::GFX942, CAPACITY).unwrap();
    // Start to size and the byte that it was last filled with.
    let mut model: BTreeMap<u64, (u64, Option<u8>)> = BTreeMap::new();
    for op in data.chunks_exact(10) {
        let number = |at: usize| u32::from_le_bytes(op[at..at + 4].try_into().unwrap()) as u64;
        let (a, b) = (number(1), number(5));
        let chosen = model.keys().nth(a as usize % model.len().max(1)).copied();
        match op[0] % 6 {
            0 => {
                // Small sizes are likely, any size is possible.
                let size = if op[9] & 1 == 0 { a % 5000 } else { a << (b % 32) };
                if let Ok(at) = device.alloc(size) {
                    assert!(at % 256 == 0 && size <= CAPACITY);
                    assert!(model.iter().all(|(&s, &(n, _))| at + size.max(1) <= s || s + n.max(1) <= at));
                    model.insert(at, (size, None));
                }
            }
            1 => {
                if let Some(at) = chosen {
                    device.free(at).unwrap();
                    assert!(device.free(at).is_err());
                    model.remove(&at);
                }
            }
            2 => {
                if let Some(at) = chosen {
                    let (size, byte) = model.get_mut(&at).unwrap();
                    device.fill(at, op[9], *size).unwrap();
                    *byte = Some(op[9]);
                }
            }
            3 => {
                if let Some((at, (size, Some(byte)))) = chosen.and_then(|at| model.get_key_value(&at)) {
                    let mut out = vec![!byte; *size as usize];
                    device.read(*at, &mut out).unwrap();
                    assert!(out.iter().all(|x| x == byte));
                }
            }
            4 => {
                // Anywhere: refused, or inside of memory.
                let at = a.wrapping_mul(b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let _ = device.read(at, &mut [0; 64]);
                let _ = device.free(at | 1);
                assert!(device.fill(at, 0, u64::MAX).is_err());
                let _ = device.allocation_of(at);
            }
            _ => {
                if let Some(at) = chosen {
                    let (size, _) = model[&at];
                    let inside = b % size.max(1);
                    assert_eq!(device.allocation_of(at + inside), (size > 0).then_some((at, size)));
                    assert!(device.read(at, &mut vec![0; 2 * CAPACITY as usize]).is_err());
                }
            }
        }
    }
});
