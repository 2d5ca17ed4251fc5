//! The order in which workgroups take lines: those of several images side by side, where what is the same for all images is read again while caches have it.

use super::Writer;
use super::lines::Lines;
use crate::mir::Part;

impl Lines {
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
