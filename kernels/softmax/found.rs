//! What is found of lines that are not held in one pass over them, where there would be two.

use super::{Walk, exponential};
use crate::kernels::error::Res;
use crate::kernels::lines::Chunk;
use crate::kernels::{Writer, lanes};
use crate::mir::{Gen, Part, Type};

impl Walk<'_> {
    /// Maximum and sum of exponentials of what is not held, in one pass: what a workitem has summed is scaled down where a round has a larger element.
    pub fn exponentials(&mut self, w: &mut Writer, least: f64) -> Res<[Part; 2]> {
        let (cx, float) = (self.cx, self.float);
        let [largest, sum] = [least, 0.0].map(|start| float.held(&mut w.b, start));
        self.rounds(w, "exponentials", f64::NEG_INFINITY, |w, all| {
            let max = all.iter().fold(largest, |max, x| float.op(&mut w.b, Gen::Max, max, *x));
            let less = float.op(&mut w.b, Gen::Sub, largest, max);
            let scale = float.exp(&mut w.b, less);
            let mut list = vec![float.op(&mut w.b, Gen::Mul, sum, scale)];
            for x in all {
                let less = float.op(&mut w.b, Gen::Sub, *x, max);
                list.push(exponential(cx, float, w, less));
            }
            w.b.copy_into(largest, max);
            let total = list.into_iter().reduce(|x, y| float.op(&mut w.b, Gen::Add, x, y));
            w.b.copy_into(sum, total.unwrap_or(sum));
        })?;
        Ok([largest, sum])
    }

    /// Mean of a line that is not all held, and the sum of squares around it, in one pass: each workitem's, around its first element, put together as those of pieces are.
    pub fn moments(&mut self, w: &mut Writer) -> Res<[Part; 2]> {
        let float = self.float;
        let member = self.lines.in_turn(w);
        let first = match member {
            Some(member) => w.b.mul(member, self.lines.together()),
            None => w.b.scalar(0),
        };
        let chunk = Chunk { first, ahead: 0, inside: None };
        let loaded = self.loaded(w, &chunk, 0)?;
        let first = self.made(w, &loaded)?[0];
        let sums = [self.partial(w, 0.0), self.partial(w, 0.0)];
        self.pass(w, "moments", 0.0, |w, c, e, x| {
            let mut d = float.op(&mut w.b, Gen::Sub, x, first);
            if let Some(mask) = c.inside {
                let zero = float.constant(&mut w.b, 0.0);
                d = float.select(&mut w.b, mask, d, zero);
            }
            float.update(&mut w.b, Gen::Add, sums[0][e], d);
            float.fma_into(&mut w.b, sums[1][e], d, d);
            x
        })?;
        let merge = lanes::by(Gen::Add, float.0);
        let mut own = Vec::new();
        for list in sums {
            own.extend(lanes::folded(w, list.into_iter().map(|p| vec![p]).collect(), &merge)?);
        }
        // Some have a chunk more than others.
        let (together, team) = (self.lines.together(), self.lines.team());
        let (chunks, rest) =
            (self.lines.shape.length as u32 / together / team, self.lines.shape.length as u32 / together % team);
        let mut of = |chunks: u32| [1.0, -1.0].map(|e| float.held(&mut w.b, f64::from(chunks * together).powf(e)));
        let ([mut count, mut share], more) = (of(chunks), of(chunks + 1));
        if let Some(member) = member.filter(|_| rest > 0) {
            let has_more = w.b.op(Gen::CmpGt.of(Type::U32), &[rest.into(), member.into()]);
            [count, share] = [(more[0], count), (more[1], share)].map(|(x, y)| w.b.select(has_more, x, y));
        }
        let apart = float.op(&mut w.b, Gen::Mul, own[0], share);
        let mean = float.op(&mut w.b, Gen::Add, first, apart);
        let sum = float.op(&mut w.b, Gen::Mul, mean, count);
        let total = self.combine(w, vec![sum], Gen::Add)?;
        let scale = float.constant(&mut w.b, 1.0 / self.lines.shape.length as f64);
        let all = float.op(&mut w.b, Gen::Mul, total, scale);
        // Σ (x - mean)² = Σ (x - first)² - n (own mean - first)² + n (own mean - mean)²
        let less = float.op(&mut w.b, Gen::Mul, own[0], apart);
        let squares = float.op(&mut w.b, Gen::Sub, own[1], less);
        let apart = float.op(&mut w.b, Gen::Sub, mean, all);
        let weighted = float.op(&mut w.b, Gen::Mul, apart, count);
        let none = float.constant(&mut w.b, 0.0);
        let squares = float.op(&mut w.b, Gen::Max, squares, none);
        let squares = float.fma(&mut w.b, weighted, apart, squares);
        Ok([all, self.combine(w, vec![squares], Gen::Add)?])
    }
}
