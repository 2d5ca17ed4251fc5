//! Pools of planes that a workgroup has in LDS: whole ones, or rows of one with those that their windows reach into.
//!
//! What a workgroup reads is one piece of memory, and so is what it writes: both are moved by wide accesses, wherever rows begin in lines of memory, and each
//! element comes from second-level caches once. Between them a workitem combines neighbours of a row, or all of it, and of rows below each other, as
//! others do from memory.

use super::{PoolOp, Pooling, Share, Source, is_busy, last, rows};
use crate::graph::fused::Window;
use crate::kernels::address::{self, Offset};
use crate::kernels::choice::Machine;
use crate::kernels::direct::Weights;
use crate::kernels::error::Res;
use crate::kernels::lines::ENOUGH;
use crate::kernels::pointwise::WORKGROUP;
use crate::kernels::runs::{self, Run};
use crate::kernels::values::{self, Value};
use crate::kernels::{Arg, Cx, Kernel, Writer, epilogue};
use crate::mir::{Gen, Part, Type};

/// Workgroups at least that LDS of a compute unit has room for, also of those that multiply.
const RESIDENT: u32 = 3;
const RESIDENT_OF_WEIGHTS: u32 = 2;

/// Bytes by which LDS is given out, at most.
const GIVEN: u32 = 512;

/// Neighbours of a row, and rows, that a workitem computes at most; columns of rows, rows, and elements that it reads.
const WIDTH: usize = 16;
const BELOW: usize = 8;
const COLUMNS: usize = 48;
const ROWS: usize = 32;
const READ: usize = 160;

/// Times that a workitem computes such, and planes of a workgroup, at most.
const TURNS: usize = 4;
const PLANES: usize = 256;

/// Instructions of a workitem beside those for its elements; of these for a row that it reads, and for what a place's average is divided by.
const BEGUN: usize = 45;
const OF_A_ROW: usize = 4;
const FACTOR: usize = 25;

/// What instructions count beside what takes longest: of ways that memory bounds alike the one with fewest is taken. What they take more of a workgroup that is
/// alone on its compute unit.
const BESIDE: f64 = 0.1;
const ALONE: f64 = 0.8;

/// Bytes of an access of LDS for elements.
const WORD: usize = 4;

/// See the module's documentation.
pub(super) struct Planes {
    share: Share,
    /// Whole planes of a workgroup, or one of which it has a part.
    planes: usize,
    /// Workgroups of a plane, and rows of results of each.
    parts: usize,
    rows: usize,
    /// Rows that they are read from, of a plane's.
    read: usize,
    /// Neighbours of a row of results are written to LDS by words.
    words: bool,
}

/// Bytes of a row of what is pooled, and of results.
fn row_bytes(cx: &Cx) -> [usize; 2] {
    [Arg::Input(0), Arg::Output].map(|arg| last(&cx.view(arg).dims) * cx.dtype(arg).size())
}

/// Divisors of a number, up to a limit.
fn divisors(n: usize, most: usize) -> impl Iterator<Item = usize> {
    (1..=n.min(most)).filter(move |d| n.is_multiple_of(*d))
}

impl Planes {
    /// How the step is computed this way, where it is sooner so; and clocks that all workgroups take, about.
    pub fn of(pooling: &Pooling) -> Option<(f64, Planes)> {
        let (cx, window) = (pooling.cx, pooling.window);
        let (x, out) = (&cx.step.inputs[0], &cx.step.output);
        let sizes = [Arg::Input(0), Arg::Output].map(|arg| cx.dtype(arg).size());
        let known = |arg: Arg| cx.dtype(arg).bits() == 8 * cx.dtype(arg).size() && cx.dtype(arg).size() <= WORD;
        let whole = |(a, size): (&crate::graph::fused::Access, usize)| {
            let words = |elements: usize| (elements * size).is_multiple_of(WORD);
            a.is_plain()
                && a.view.is_dense()
                && words(a.view.len())
                && a.view.offset >= 0
                && words(a.view.offset as usize)
        };
        let fits = window.kernel.len() == 2
            && known(Arg::Input(0))
            && known(Arg::Output)
            && [x, out].into_iter().zip(sizes).all(whole)
            && (pooling.weights || epilogue::operands(cx).is_empty());
        if !fits || !pays(pooling) {
            return None;
        }
        let [read, written] = row_bytes(cx);
        let [planes, height, width] = [out.view.dims[0] * out.view.dims[1], out.view.dims[2], out.view.dims[3]];
        let lds = cx.target.info().lds_bytes / if pooling.weights { RESIDENT_OF_WEIGHTS } else { RESIDENT };
        let fits = |found: &Planes| found.lds(cx, window) <= lds;
        let mut best: Option<(f64, Planes)> = None;
        for (wide, below) in divisors(width, WIDTH).flat_map(|w| divisors(height, BELOW).map(move |b| (w, b))) {
            let shared = Planes::share(cx, window, wide, below).filter(|(share, _)| pooling.holds(share));
            let Some((share, words)) = shared else { continue };
            let work = share.work(pooling, words);
            let parts = divisors(height / below, height).filter(|p| *p == 1 || read.is_multiple_of(WORD));
            for parts in parts.filter(|p| *p == 1 || written.is_multiple_of(WORD)) {
                let rows = height / parts;
                let reached = (rows - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilations[0] + 1;
                let of = |planes| {
                    let read = if parts == 1 { x.view.dims[2] } else { reached.min(x.view.dims[2]) };
                    Planes { share, planes, parts, rows, read, words }
                };
                for count in 1..=if parts == 1 { PLANES.min(planes) } else { 1 } {
                    let found = of(count);
                    let turns = found.units(cx).div_ceil(WORKGROUP as usize);
                    let aligned = found.bytes(cx).iter().all(|n| n.is_multiple_of(WORD));
                    let groups = planes.div_ceil(count) * parts;
                    let enough = groups >= ENOUGH / 2 * cx.target.cus() as usize;
                    if turns > TURNS || !fits(&found) || !enough {
                        break;
                    }
                    let cost = found.clocks(cx, window, work.map(|n| (turns * n) as f64)) / (count * rows) as f64;
                    if aligned && best.as_ref().is_none_or(|b| cost < b.0) {
                        best = Some((cost, found));
                    }
                }
            }
        }
        best.map(|(of_row, found)| (of_row * (planes * height) as f64, found))
    }

    /// Clocks of a workgroup whose workitems have so many instructions, and accesses of LDS, where the others of the chip are as many.
    fn clocks(&self, cx: &Cx, window: &Window, [instructions, accesses]: [f64; 2]) -> f64 {
        let (machine, info) = (Machine::of(cx.target), cx.target.info());
        let waves = f64::from(WORKGROUP / info.wave_size);
        let simds = f64::from(cx.target.cus() * info.simds);
        // The fewer workgroups are there, the more a wave waits alone.
        let resident = f64::from(info.lds_bytes / self.lds(cx, window)).max(1.0);
        let computed = waves * instructions * machine.issue / simds * (1.0 + ALONE / resident);
        let bytes: usize = self.bytes(cx).iter().sum();
        let exchanged = (accesses * f64::from(WORKGROUP) * WORD as f64 + bytes as f64) / machine.lds / simds;
        let begun = waves * machine.dispatch;
        computed.max(exchanged).max(begun).max(bytes as f64 / machine.memory) + BESIDE * (computed + exchanged + begun)
    }

    /// What a workitem computes; and whether its results go to LDS by words.
    fn share(cx: &Cx, window: &Window, width: usize, below: usize) -> Option<(Share, bool)> {
        let (x, out) = (cx.view(Arg::Input(0)), cx.view(Arg::Output));
        let sizes = [Arg::Input(0), Arg::Output].map(|arg| cx.dtype(arg).size());
        let (step, pad) = (window.strides[1], window.pads[1]);
        let reach = (window.kernel[1] - 1) * window.dilations[1] + 1;
        let whole = width == out.dims[3];
        let even = |n: usize, row: usize, size: usize| {
            (row * size).is_multiple_of(WORD) && (whole || (n * size).is_multiple_of(WORD))
        };
        let grain = if even(width * step, x.dims[3], sizes[0]) { (WORD / sizes[0]).max(1) } else { 1 };
        let around = [pad, reach.saturating_sub(step + pad)].map(|n| n.next_multiple_of(grain));
        let share = Share { width, below, stack: 0, grain, around };
        let overlaps = window.dilations[0] == 1 && window.kernel[0] > window.strides[0];
        let read = rows(window, below, 0)[0];
        let columns = share.columns(window);
        let fits = (below == 1 || overlaps) && read <= ROWS && columns * below <= COLUMNS && columns * read <= READ;
        let words = even(width, out.dims[3], sizes[1]) && (width * sizes[1]).is_multiple_of(WORD);
        fits.then_some((share, words))
    }

    /// Units of a workgroup: what workitems compute.
    fn units(&self, cx: &Cx) -> usize {
        self.dims(cx).iter().product()
    }

    /// Planes, rows of units, and units of a row.
    fn dims(&self, cx: &Cx) -> [usize; 3] {
        [self.planes, self.rows / self.share.below, cx.view(Arg::Output).dims[3] / self.share.width]
    }

    /// Bytes that a workgroup reads and writes.
    fn bytes(&self, cx: &Cx) -> [usize; 2] {
        let [read, written] = row_bytes(cx);
        [self.planes * self.read * read, self.planes * self.rows * written]
    }

    /// Bytes of an access of memory, which all such pieces of an operand are made of.
    fn unit(&self, cx: &Cx, arg: Arg) -> u32 {
        let (view, size) = (cx.view(arg), cx.dtype(arg).size());
        let piece = self.bytes(cx)[usize::from(arg == Arg::Output)];
        let row = row_bytes(cx)[usize::from(arg == Arg::Output)];
        let row = if self.parts > 1 { row } else { 0 };
        runs::widest(16, &[piece, view.len() * size, view.offset as usize * size, row])
    }

    /// The workgroup's piece of an operand, which begins there.
    fn run(&self, cx: &Cx, arg: Arg, from: Part) -> Run {
        let (view, size) = (cx.view(arg), cx.dtype(arg).size());
        let (bytes, all) = (self.bytes(cx)[usize::from(arg == Arg::Output)] as u32, (view.len() * size) as u32);
        let ends = (self.parts == 1 && !all.is_multiple_of(bytes)).then_some(all);
        let start = (view.offset as usize * size) as u32;
        Run { unit: self.unit(cx, arg), bytes, items: WORKGROUP, from, start, ends }
    }

    /// Bytes of LDS from what is read on that are loaded: also a row of zeros, of lanes that have nothing else to load.
    fn filled(&self, cx: &Cx, window: &Window) -> u32 {
        self.bytes(cx)[0] as u32 + self.zeros(cx, window)[1]
    }

    /// Bytes of LDS of what is read with zeros behind it, and of results: also of those that workitems behind the last unit would have. What lanes load
    /// behind the zeros lies there before results do.
    fn rooms(&self, cx: &Cx, window: &Window) -> [u32; 2] {
        let [_, written] = row_bytes(cx);
        let [planes, down, across] = self.dims(cx);
        let all = self.units(cx).next_multiple_of(WORKGROUP as usize).div_ceil(down * across).max(planes);
        let filled = self.filled(cx, window);
        let read = filled.next_multiple_of(WORKGROUP * self.unit(cx, Arg::Input(0)));
        let room = (all * self.rows * written) as u32;
        let filled = filled.next_multiple_of(16);
        [filled, room.max(read.saturating_sub(filled)).next_multiple_of(16)]
    }

    /// Bytes in front of a row's first element that may be read, and of a row of zeros with these.
    fn zeros(&self, cx: &Cx, window: &Window) -> [u32; 2] {
        let size = cx.dtype(Arg::Input(0)).size();
        [self.share.around[0], self.share.columns(window)].map(|n| ((n * size) as u32).next_multiple_of(16))
    }

    /// Bytes of LDS.
    fn lds(&self, cx: &Cx, window: &Window) -> u32 {
        let all = self.zeros(cx, window)[0] + self.rooms(cx, window).iter().sum::<u32>();
        all.next_multiple_of(GIVEN)
    }

    /// The kernel.
    pub fn lower(&self, pooling: &Pooling) -> Res<Vec<Kernel>> {
        let cx = pooling.cx;
        let (x, out) = (cx.view(Arg::Input(0)), cx.view(Arg::Output));
        let (planes, [read, written]) = (out.dims[0] * out.dims[1], row_bytes(cx));
        let mut w = cx.kernel(WORKGROUP);
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let (plane, part) = match self.parts {
            1 => (w.b.mul(group, self.planes as u32), None),
            parts => {
                let (plane, part) = w.b.divmod(group, parts as u32);
                (plane, Some(part))
            }
        };
        // The part's first row of results, and the first that is read, of the plane's.
        let row = part.map(|part| w.b.mul(part, self.rows as u32));
        let top = row.map(|row| {
            let at = w.b.mul(row, pooling.window.strides[0] as u32);
            let at = w.b.sub(at, pooling.window.pads[0] as u32);
            let at = w.b.generic(Gen::Max.of(Type::I32), &[at.into(), 0u32.into()]);
            w.b.generic(Gen::Min.of(Type::I32), &[at.into(), ((x.dims[2] - self.read) as u32).into()])
        });
        let of_plane = |w: &mut Writer, rows: usize, bytes: usize, row: Option<Part>| {
            let at = w.b.mul(plane, (rows * bytes) as u32);
            row.map_or(at, |row| w.b.mad(row, bytes as u32, at))
        };
        let from = of_plane(&mut w, x.dims[2], read, top);
        let to = of_plane(&mut w, out.dims[2], written, row);
        let [front, _] = self.zeros(cx, pooling.window);
        let rooms = self.rooms(cx, pooling.window);
        let base = w.b.lds(front + rooms[0]) + front;
        let results = w.b.lds(rooms[1]);
        // As far behind the row's beginning as elements are in front of an offset.
        let before = (self.share.around[0] * cx.dtype(Arg::Input(0)).size()) as u32;
        let none = w.b.to_vector(self.bytes(cx)[0] as u32 + before);
        // Of one plane weights are the same for all.
        let taps = pooling.window.kernel.iter().product();
        let of_group = if pooling.weights && self.planes == 1 {
            let (_, channel) = w.b.divmod(plane, out.dims[1] as u32);
            Weights::new(&mut w, cx, channel, taps)?.load(&mut w, 0, 1)
        } else {
            Vec::new()
        };
        let run = self.run(cx, Arg::Input(0), from);
        let buf = w.buffer(cx, Arg::Input(0))?;
        let loaded = run.load(&mut w, buf, self.filled(cx, pooling.window));
        run.fill(&mut w, loaded, base);
        w.b.barrier();
        let [_, down, across] = self.dims(cx);
        let units = self.units(cx) as u32;
        for turn in 0..units.div_ceil(WORKGROUP) {
            let index = if turn > 0 { w.b.add(item, turn * WORKGROUP) } else { item };
            let all = [(units.next_multiple_of(WORKGROUP) as usize).div_ceil(down * across), down, across];
            let at = address::coordinates_of_item(&mut w.b, index, &all);
            let scaled = |w: &mut Writer, x: Option<Part>, by: usize| x.map(|x| w.b.mul(x, by as u32));
            let (own, beside) = (scaled(&mut w, at[1], self.share.below), scaled(&mut w, at[2], self.share.width));
            let absolute = match (row, own) {
                (Some(row), Some(own)) => Some(w.b.add(own, row)),
                (Some(row), None) => Some(w.b.to_vector(row)),
                (None, own) => own,
            };
            let mut number = at[0];
            if let Some(n) = number.filter(|_| (turn + 1) * WORKGROUP > units) {
                let last = w.b.to_vector(self.planes as u32 - 1);
                number = Some(w.b.op(Gen::Min.of(Type::U32), &[n.into(), last.into()]));
            }
            // What is told by channels, and its elements.
            let (mut coords, mut weights) = ([None, None, absolute, beside], &of_group);
            let of_lane;
            if pooling.weights {
                let plane = number.map_or(plane, |n| w.b.add(n, plane));
                let (image, channel) = w.b.divmod(plane, out.dims[1] as u32);
                (coords[0], coords[1]) = (Some(image), Some(channel));
                if self.planes > 1 {
                    of_lane = Weights::new(&mut w, cx, channel, taps)?.load(&mut w, 0, 1);
                    weights = &of_lane;
                }
            }
            let first = match number {
                Some(n) => w.b.mul(n, (self.read * read) as u32),
                None => w.b.to_vector(0u32),
            };
            let first = match top {
                Some(top) => {
                    let above = w.b.mul(top, read as u32);
                    w.b.sub(first, above)
                }
                None => first,
            };
            let source = Source::Lds { first, base, none };
            let combined = match pooling.weights {
                true => pooling.convolved(&mut w, &self.share, &coords, source, weights)?,
                false => pooling.rows(&mut w, &self.share, &coords, source)?,
            };
            let shares = pooling.shares(&mut w, &coords, [self.share.width, self.share.below], 2);
            let size = cx.dtype(Arg::Output).size();
            let sums = [(at[0], self.rows * written), (own, written), (beside, size)];
            let to = sums.into_iter().filter_map(|(x, by)| Some((x?, by))).fold(None, |sum, (x, by)| {
                Some(match sum {
                    Some(sum) => w.b.mad(x, by as u32, sum),
                    None => w.b.mul(x, by as u32),
                })
            });
            let to = to.unwrap_or_else(|| w.b.to_vector(0u32));
            for (r, combined) in combined.into_iter().enumerate() {
                let mut own = coords;
                if let Some(first) = coords[2].filter(|_| r > 0) {
                    own[2] = Some(w.b.add(first, r as u32));
                } else if r > 0 {
                    own[2] = Some(w.b.to_vector(r as u32));
                }
                let list = pooling.results(&mut w, &own, combined, &shares, (2, r))?;
                self.leave(&mut w, cx, &list, to, results + (r * written) as u32);
            }
        }
        w.b.barrier();
        let buf = w.buffer(cx, Arg::Output)?;
        self.run(cx, Arg::Output, to).empty(&mut w, buf, results);
        let groups = planes.div_ceil(self.planes) * self.parts;
        let flops = if pooling.weights { 2 } else { 1 } * out.len() * taps;
        Ok(vec![w.finish([groups as u32, 1, 1], flops as u64)])
    }

    /// Leaves neighbours of a row of results in LDS.
    fn leave(&self, w: &mut Writer, cx: &Cx, list: &[Value], at: Part, base: u32) {
        let t = cx.dtype(Arg::Output);
        let each = if self.words { WORD / t.size() } else { 1 };
        for (i, some) in list.chunks(each).enumerate() {
            let ahead = base + (i * each * t.size()) as u32;
            match (t.size(), some) {
                (2, [one]) => {
                    let half = values::narrowed(&mut w.b, t, *one);
                    w.b.lds_write_half(at, half, false, ahead);
                }
                (1, [one]) => {
                    let byte = values::narrowed(&mut w.b, t, *one);
                    w.b.lds_write_byte(at, byte, ahead);
                }
                _ => {
                    let word = values::together(&mut w.b, t, some);
                    w.b.lds_write(at, word, ahead);
                }
            }
        }
    }
}

impl Share {
    /// Instructions of a workitem that has its rows in LDS and leaves results there, about; and its accesses of LDS.
    fn work(&self, pooling: &Pooling, words: bool) -> [usize; 2] {
        let (cx, window) = (pooling.cx, pooling.window);
        let [wide, high] = [3, 2].map(|d| cx.view(Arg::Output).dims[d]);
        let sizes = [Arg::Input(0), Arg::Output].map(|arg| cx.dtype(arg).size());
        let [whole, all] = [self.width == wide, self.below == high];
        let (columns, read) = (self.columns(window), rows(window, self.below, 0)[0]);
        let columns = if whole { columns.min(cx.view(Arg::Input(0)).dims[3]) } else { columns };
        let results = self.width * self.below;
        let loads = columns.div_ceil(self.grain) * read;
        let leaves = if words { (results * sizes[1]).div_ceil(WORD) } else { results };
        let converted = [(sizes[0], columns * read), (sizes[1], results)].into_iter().filter(|c| c.0 < WORD);
        let converted: usize = converted.map(|c| c.1).sum();
        // What lies outside is chosen from.
        let edges = if whole { 0 } else { self.around.iter().map(|n| n.div_ceil(self.grain)).sum::<usize>() * read };
        let combined = match pooling.weights {
            true => pooling.multiplied(self) + results * (epilogue::clocks(cx) / Machine::of(cx.target).issue) as usize,
            false => columns * self.below * (window.kernel[0] - 1) + results * (window.kernel[1] - 1),
        };
        let (factors, scaled) = match pooling.pool {
            PoolOp::Max | PoolOp::Sum => (0, 0),
            _ => (if whole { 0 } else { self.width.min(2) } + if all { 0 } else { self.below.min(2) }, 2 * results),
        };
        let rest = loads + leaves + converted + edges + combined + factors * FACTOR + scaled;
        // Neighbours in a wave that read every so many-th bank take turns.
        let [from, to] = row_bytes(cx);
        let [down, along] = [window.strides[0] * self.below * from, window.strides[1] * self.width * sizes[0]];
        let turns =
            |bytes: usize| if bytes.is_multiple_of(WORD) { 1 << (bytes / WORD).trailing_zeros().min(5) } else { 1 };
        let apart = if whole { [down, self.below * to] } else { [along, self.width * sizes[1]] };
        let [loaded, left] = apart.map(turns);
        [BEGUN + read * OF_A_ROW + rest, loads * loaded + leaves * left]
    }
}

/// Whether windows share elements that are narrow, of which a word of LDS has several wherever rows begin, or take instructions for their averages, too; or so much
/// that second-level caches would take longer than memory.
fn pays(pooling: &Pooling) -> bool {
    let (cx, window) = (pooling.cx, pooling.window);
    let shared: f64 = window.kernel.iter().zip(&window.strides).map(|(k, s)| *k as f64 / *s as f64).product();
    let again = window.kernel[0] as f64 / window.strides[0] as f64;
    let dear = cx.dtype(Arg::Input(0)).size() < WORD || pooling.pool != PoolOp::Max;
    shared > 1.0 && (pooling.weights || dear || is_busy(cx, again + 1.0))
}

impl Pooling<'_> {
    /// Neighbours from LDS: as many as a word has, or one.
    pub(super) fn load_from_lds(&self, w: &mut Writer, at: Offset, count: usize) -> Vec<Value> {
        let t = self.cx.dtype(Arg::Input(0));
        let reg = at.vector(&mut w.b);
        let raw = match count * t.size() {
            1 => w.b.lds_read_byte(reg, at.imm),
            2 => w.b.lds_read_half(reg, at.imm),
            _ => w.b.lds_read(1, reg, at.imm),
        };
        (0..count as u32).map(|e| values::element(&mut w.b, t, raw, e)).collect()
    }
}
