//! Products whose depth is shared among workgroups: each leaves the sums of its part in the step's workspace, and a second
//! kernel adds the parts, always in the same order, applies the step's expression and stores the result.
//!
//! The workspace holds `[part, batch.., row, column]`, in the type that products are summed in; rows begin at multiples of four
//! elements, so that they are stored 16 bytes at a time.

use super::address::{self, Offset};
use super::choice::{Extents, Split};
use super::error::{Reason, Res};
use super::gemm::{self, Sums, Walk};
use super::tile::Tile;
use super::values::Value;
use super::{Arg, Cx, Kernel, MAX_TENSOR_BYTES, Writer, epilogue, pointwise, reduce};
use crate::graph::expr::{Binary, Expr};
use crate::graph::fused::{Access, FusedGraph, Role, Step, Tensor};
use crate::graph::view::View;
use crate::mir::{Builder, Gen, Part, Type};
use crate::tensor::DType;

/// The part of the depth that a workgroup sums.
#[derive(Clone, Copy)]
pub(super) struct DepthPart {
    /// How the depth is shared.
    pub split: Split,
    /// Its number; `None` where it is all.
    number: Option<Part>,
    /// Its first k.
    pub first: Option<Part>,
}

impl DepthPart {
    /// All of a depth, read in tiles that together are so deep; any other depth is guarded.
    pub fn whole(depth: u32) -> DepthPart {
        DepthPart { split: Split { count: 1, chunk: depth }, number: None, first: None }
    }

    /// The k that lies `k` behind the beginning of the part.
    pub fn absolute(&self, b: &mut Builder, k: Part) -> Part {
        match self.first {
            Some(first) => b.add(k, first),
            None => k,
        }
    }
}

/// The workgroup's number in z without its part, and the part.
pub(super) fn part(w: &mut Writer, split: &Split) -> (Part, DepthPart) {
    let z = w.b.workgroup_id(2);
    if split.count == 1 {
        return (z, DepthPart { split: *split, number: None, first: None });
    }
    let (z, number) = w.b.divmod(z, split.count);
    let first = w.b.mul(number, split.chunk);
    (z, DepthPart { split: *split, number: Some(number), first: Some(first) })
}

/// A product in registers.
pub(super) struct Product<'a> {
    pub tile: &'a Tile,
    pub sums: &'a Sums,
    /// How the result is walked.
    pub walk: Walk,
    /// First row and column of the workgroup.
    pub first: (Part, Part),
    pub extents: Extents,
}

/// Stores a product and ends its kernel; adds the kernel for the parts of the depth where it is shared. `outer` gives an access's
/// offset from everything but rows and columns.
pub(super) fn store(
    mut w: Writer,
    cx: &Cx,
    p: &Product,
    part: DepthPart,
    mut outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<Vec<Kernel>> {
    let (e, tile) = (&p.extents, p.tile);
    let tiles = |extent: usize, of: u32| extent.div_ceil(of as usize) as u32;
    let grid = [tiles(e.n, tile.n), tiles(e.m, tile.m), e.batches as u32 * part.split.count];
    let flops = 2 * (e.batches * e.m * e.n * e.k) as u64;
    let Some(number) = part.number else {
        gemm::store(&mut w, cx, tile, p.sums, &p.walk, p.first, outer)?;
        return Ok(vec![w.finish(grid, flops)]);
    };
    let parts = Parts::new(cx, tile, &p.walk, part.split.count)?;
    let m_dim = p.walk.m_dim;
    let walk = Walk { m_dim, rows: p.walk.rows, n_dims: m_dim + 1..m_dim + 2 };
    let own = Cx { graph: &parts.graph, step: &parts.graph.steps[0], ..*cx };
    gemm::store(&mut w, &own, tile, p.sums, &walk, p.first, |w, view, size| {
        let at = outer(w, view, size);
        let start = w.b.mul(number, parts.bytes as u32);
        address::add(&mut w.b, at, Offset { reg: Some(start), imm: 0 })
    })?;
    let mut sums = w.finish(grid, flops);
    sums.args.iter_mut().filter(|a| **a == Arg::Output).for_each(|a| *a = Arg::Workspace);
    sums.workspace = parts.all();
    Ok(vec![sums, parts.add(cx)?])
}

/// What workgroups leave of a result: a graph of one step that stores it.
struct Parts {
    graph: FusedGraph,
    dtype: DType,
    count: u32,
    /// Bytes of one part.
    bytes: usize,
    /// The coordinates of the step's own result in a part.
    view: View,
}

impl Parts {
    fn new(cx: &Cx, tile: &Tile, walk: &Walk, count: u32) -> Res<Parts> {
        let dtype = match tile.types.accumulate {
            Type::F64 => DType::F64,
            Type::I32 => DType::I32,
            Type::U32 => DType::U32,
            Type::I64 => DType::I64,
            Type::U64 => DType::U64,
            _ => DType::F32,
        };
        let out = &cx.step.output.view;
        let columns: usize = out.dims[walk.n_dims.clone()].iter().product();
        let pitch = columns.next_multiple_of(4);
        let stored = [&out.dims[..=walk.m_dim], &[pitch]].concat();
        let rows = View::dense(&stored);
        // The result's own columns, of which there may be several dimensions, within a row.
        let own = View::dense(&out.dims[walk.n_dims.clone()]);
        let strides = [&rows.strides[..=walk.m_dim], &own.strides[..]].concat();
        let view = View { offset: 0, dims: out.dims.clone(), strides };
        let bytes = rows.len() * dtype.size();
        let name = cx.graph.tensor(cx.step.output.tensor).name.clone();
        if bytes * count as usize >= MAX_TENSOR_BYTES {
            return Err(Reason::TooLarge { name, bytes: bytes * count as usize });
        }
        let mut graph = FusedGraph::default();
        let inputs = cx.step.inputs[..2]
            .iter()
            .map(|a| Access { tensor: graph.add_tensor(cx.graph.tensor(a.tensor).clone()), ..a.clone() });
        let inputs = inputs.collect();
        let shape = [&[count as usize], &stored[..]].concat();
        let tensor = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Intermediate });
        let (name, kind) = (cx.step.name.clone(), cx.step.kind.clone());
        let output = Access::new(tensor, rows);
        graph.steps.push(Step { name, kind, inputs, expr: Expr::acc(dtype), output });
        Ok(Parts { graph, dtype, count, bytes, view })
    }

    /// Bytes of all parts.
    fn all(&self) -> usize {
        self.bytes * self.count as usize
    }

    /// The kernel that adds the parts: a workitem for each element of the result.
    fn add(&self, cx: &Cx) -> Res<Kernel> {
        let out = &cx.step.output.view;
        let count = out.len();
        let fills = count >= 256 * cx.target.info().cus as usize;
        let size = if fills { 256 } else { 64 };
        let mut w = cx.kernel(size);
        let index = pointwise::linear_index(&mut w.b);
        let inside = (!count.is_multiple_of(size as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), index.into()]));
        let coords = address::coordinates(&mut w.b, index, &out.dims);
        let buf = w.workspace(self.all());
        let guarded = |w: &mut Writer, at: Offset| match inside {
            None => at,
            Some(mask) => {
                let v = at.vector(&mut w.b);
                Offset { reg: Some(w.b.guard(mask, v)), imm: at.imm }
            }
        };
        let at = address::offset(&mut w.b, &self.view, self.dtype.size(), &coords);
        let at = guarded(&mut w, at).vector(&mut w.b);
        let read = |w: &mut Writer, i: u32| {
            let start = w.b.scalar(i * self.bytes as u32);
            w.b.load(buf, self.dtype.size() as u8 / 4, at, start, 0)
        };
        let loaded: Vec<Part> = (0..self.count).map(|i| read(&mut w, i)).collect();
        let mut sum = loaded[0];
        for x in &loaded[1..] {
            sum = reduce::apply(&mut w, self.dtype, Binary::Add, sum, Value::of(self.dtype, *x))?;
        }
        let t = cx.dtype(Arg::Input(0));
        epilogue::finish(&mut w, cx, Value::of(t, sum), |w, arg| {
            let view = match arg {
                Arg::Input(i) => &cx.step.inputs[i].view,
                _ => out,
            };
            let at = address::offset(&mut w.b, view, cx.dtype(arg).size(), &coords);
            Ok(if arg == Arg::Output { guarded(w, at) } else { at })
        })?;
        let kernel = w.finish([(count as u32).div_ceil(size), 1, 1], 0);
        Ok(Kernel { workspace: self.all(), ..kernel })
    }
}
