//! Several lines that a team takes one after the other, and the order in which workgroups take lines: those of several images side by side, where what is the same for all images is read again while caches have it.

use super::Writer;
use super::choice::Machine;
use super::lines::{ENOUGH, Lines, MOST};
use crate::mir::Part;
use barewave_isa::Target;

/// Lines that a team takes one after the other in straight code at most, and chunks of them.
const ABREAST: u32 = 8;
const STRAIGHT: u32 = 16;

/// What waves should move, over what memory moves while one begins.
const MARGIN: f64 = 1.6;

impl Lines {
    /// Lets each team take several short lines, of so many bytes each with their results, where waves would otherwise begin more
    /// slowly than memory feeds them. [`Lines::turn`] goes on to the next. So many other operands are held with each.
    pub fn abreast(&mut self, target: Target, bytes: usize, beside: u32) {
        let machine = Machine::of(target);
        let lines = |turns: u32| (target.info().wave_size / self.team * turns) as usize;
        let fed = |turns: u32| (lines(turns) * bytes) as f64 >= MARGIN * machine.memory * machine.dispatch;
        let per_group = |turns: u32| (self.workgroup / self.team * turns) as usize;
        let fits = |turns: u32| {
            turns <= ABREAST
                && turns * self.chunks <= STRAIGHT
                && turns * self.chunks * self.shape.together * self.shape.dwords * (1 + beside) <= MOST
                && self.shape.count / per_group(turns) >= ENOUGH * target.cus() as usize
                && self.shape.has_room(per_group(turns), target)
        };
        let short = self.is_held() && self.columns.is_none() && self.team <= target.info().wave_size;
        while short && !fed(self.turns) && fits(2 * self.turns) {
            self.turns *= 2;
        }
    }

    /// Lets workgroups that follow each other take the same lines of so many images, one behind the other in memory, where an image's are whole workgroups' work.
    pub fn side_by_side(&mut self, images: usize) {
        let each = (self.workgroup() / self.team() * self.turns()) as usize;
        if self.of_group.is_some() && (self.shape.count / images).is_multiple_of(each) {
            self.shape.images = Some(images);
        }
    }

    /// Number of the workgroup whose lines these are.
    pub fn group(&self, w: &mut Writer) -> Part {
        let group = w.b.workgroup_id(0);
        let Some(images) = self.shape.images else { return group };
        let (part, image) = w.b.divmod(group, images as u32);
        w.b.mad(image, self.grid()[0] / images as u32, part)
    }
}
