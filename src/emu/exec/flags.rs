//! Flags of memory accesses (`Access::flags`).

use barewave_isa::action::{Address, Memory, Part};

/// Sub-dword loads extend the sign.
pub const SIGNED: u16 = 1;
/// Only the low half of the destination is written.
pub const D16: u16 = 2;
/// The upper half of a register is loaded or stored.
pub const D16_HI: u16 = 4;
/// An atomic returns the old value.
pub const RETURN: u16 = 8;
/// The address operand has 64 bits.
pub const ADDR64: u16 = 16;
/// Buffer: an offset comes from the address operand.
pub const OFFEN: u16 = 32;
/// Buffer: an index comes from the address operand.
pub const IDXEN: u16 = 64;
/// The address grows by 4 bytes from lane to lane.
pub const ADDTID: u16 = 128;
/// Write access (stores and atomics), for faults.
pub const STORE: u16 = 256;
/// A load that goes to LDS.
pub const TO_LDS: u16 = 512;
/// M0 has 18 bits of an address in LDS, where others have 16.
pub const FAR_LDS: u16 = 1024;

/// Flags of an access.
pub fn of(m: &Memory) -> u16 {
    let on = |on: bool, bit: u16| if on { bit } else { 0 };
    let part = match m.part {
        Part::Whole => 0,
        Part::Low => D16,
        Part::High => D16_HI,
    };
    on(m.signed, SIGNED) | part | on(m.address == Address::ThreadId, ADDTID) | on(m.writes(), STORE)
}
