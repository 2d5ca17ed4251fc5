//! Where instructions are in the code of a program: what a wave asks of the code that it runs.

use barewave_isa::Raw;

/// Instructions by address.
pub struct Code {
    /// Device address of the first byte.
    pub base: u64,
    /// What the operations were decoded from, in order of address.
    pub raws: Vec<Option<Raw>>,
    /// Operation that starts at each dword, or `u32::MAX`.
    pub index: Vec<u32>,
}

impl Code {
    /// Operation at a device address.
    pub fn index_of(&self, addr: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.base).filter(|o| o % 4 == 0)?;
        self.index.get(usize::try_from(offset / 4).ok()?).copied().filter(|&i| i != u32::MAX).map(|i| i as usize)
    }

    /// True when the instruction at a device address ends the program.
    pub fn ends_at(&self, addr: u64) -> bool {
        self.index_of(addr).and_then(|i| self.raws.get(i)?.as_ref()).is_some_and(|r| r.mnemonic() == "s_endpgm")
    }

    /// Mnemonic of the instruction at a byte offset.
    pub fn name_at(&self, pc: u32) -> String {
        self.raw_at(pc).map_or(String::from("?"), |r| r.mnemonic().to_owned())
    }

    /// Text of the instruction at a byte offset, empty when there is none.
    pub fn text_at(&self, pc: u32) -> String {
        self.raw_at(pc).map_or(String::new(), |r| r.to_string())
    }

    fn raw_at(&self, pc: u32) -> Option<Raw> {
        let i = *self.index.get(pc as usize / 4)?;
        *self.raws.get(i as usize)?
    }
}
