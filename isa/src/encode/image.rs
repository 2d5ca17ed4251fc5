//! How many registers data and address of an image instruction take, and where the registers of an address sit.
//!
//! Data: a register for each set bit of `dmask` (four for gathers), half as many with packed `d16`, one more with `tfe`.
//! Address: what the row says it consists of (`build/image.rs`), with coordinates and derivatives as the dimension has
//! them; `a16` puts two components into a register. Combinations that the hardware has no form for fall back to the
//! smallest form, as LLVM's disassembler does.

use crate::model::table::{Image, Kind, Operand as Field, Role};
use crate::{ModName, Operand, Raw, Reg, Regs};
use smallvec::SmallVec;

/// Coordinates and derivatives of a dimension, in its encoding's order: 1D, 2D, 3D, cube, arrays, multisample.
const DIMENSIONS: [(u8, u8); 8] = [(1, 2), (2, 4), (3, 6), (3, 4), (2, 2), (3, 4), (3, 4), (4, 4)];

/// Registers of an image operand.
pub(crate) type Addresses = SmallVec<[Operand; 5]>;

impl Image {
    /// Registers of data.
    pub fn data_dwords(&self, modifier: impl Fn(ModName) -> u64) -> u8 {
        let lanes = if self.gather { 4 } else { (modifier(ModName::Dmask) & 15).count_ones().max(1) as u8 };
        let lanes = if self.packed && modifier(ModName::D16) == 1 { lanes.div_ceil(2) } else { lanes };
        lanes + modifier(ModName::Tfe) as u8
    }

    /// Registers of the address.
    pub fn addr_dwords(&self, dim: u64, a16: bool) -> u8 {
        let (coords, gradients) = DIMENSIONS[dim as usize & 7];
        let components = if self.coords { coords } else { 0 } + u8::from(self.lod);
        let components = if a16 { components.div_ceil(2) } else { components };
        let gradients = match self.gradients {
            0 => 0,
            1 => gradients,
            _ => (gradients / 2).next_multiple_of(2),
        };
        self.extra + components + gradients
    }

    /// The size of the run of registers that holds so many.
    pub fn run(&self, dwords: u8) -> u8 {
        if self.slots == 0 && dwords > 12 { 16 } else { dwords }
    }
}

impl Raw {
    /// First register of part `i` of the address.
    fn address(&self, image: &Image, i: usize) -> u16 {
        let place = image.places.get(i).map_or(0, |&p| usize::from(p));
        self.bytes().get(place).copied().map_or(0, u16::from)
    }

    /// Registers of data and address.
    pub(crate) fn image_sizes(&self) -> (u8, u8) {
        let shape = self.shape();
        let Some(image) = shape.image else { return (1, 1) };
        let value = |name| {
            let find = |o: &&&Field| o.role == Role::Mod && o.modifier == name;
            shape.operands.iter().find(find).map(|o| o.get(self.bits()))
        };
        let data = image.data_dwords(|m| value(m).unwrap_or(0));
        let smallest = (
            image.datas.first().copied().unwrap_or(1),
            if image.slots > 0 { image.slots } else { image.addrs.first().copied().unwrap_or(1) },
        );
        let addr = match value(ModName::Dim) {
            Some(dim) => image.run(image.addr_dwords(dim, value(ModName::A16) == Some(1))),
            None => smallest.1,
        };
        let align = u64::from(self.target().info().vgpr_tuple_align);
        let fits = |o: &Field, dwords: u8| {
            let n = o.get(self.bits()) & 255;
            n + u64::from(dwords) <= 256 && (dwords == 1 || n.is_multiple_of(align))
        };
        let data_fits = shape
            .operands
            .iter()
            .find(|o| matches!(o.kind, Kind::ImageData | Kind::ImageDataAcc))
            .is_none_or(|o| data == smallest.0 || fits(o, data));
        let addr_fits = shape.operands.iter().all(|o| match o.kind {
            Kind::ImageAddr => addr == smallest.1 || fits(o, addr),
            Kind::ImageList if addr > image.slots => {
                let last = usize::from(image.slots - 1);
                image.partial && self.address(image, last) + u16::from(addr - image.slots) < 256
            }
            _ => true,
        });
        if data_fits && addr_fits && image.datas.contains(&data) && image.addrs.contains(&addr) {
            (data, addr)
        } else {
            smallest
        }
    }

    /// The operands of an address that is given register by register.
    pub(crate) fn image_list(&self) -> Addresses {
        let Some(image) = self.shape().image else { return Addresses::new() };
        let slots = usize::from(image.slots);
        let part = |i: usize, dwords: u8| Operand::Regs(Regs::new(Reg::v(self.address(image, i)), dwords));
        if !image.rays.is_empty() {
            return image.rays.iter().enumerate().map(|(i, &n)| part(i, n)).collect();
        }
        let n = usize::from(self.image_sizes().1);
        (0..n.min(slots)).map(|i| part(i, if i + 1 == slots { (n - i) as u8 } else { 1 })).collect()
    }
}
