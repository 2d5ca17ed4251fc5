//! Weights that alone are quantised: `DequantizeLinear` of a constant matrix that `MatMul`, `Gemm` or `Gather` reads, directly or
//! transposed.
//!
//! Such a reader becomes `MatMulNBits` or `GatherBlockQuantized`, which both read numbers of 2, 4 or 8 bits packed along the
//! matrix's columns for the product's, with a scale for each block of them, and widen what they read on the fly. Numbers with a
//! sign move up by half of their range, and their zero points with them. Floats of 4 and 8 bits keep their codes
//! (`barewave:MatMulFloats`), with scales of any type of float, of which F8E8M0 has a byte for each. One scale for a matrix or for a column is that of all
//! its blocks. What has no such form (scales that differ along a product's columns, depths that no block divides) is left as
//! it is: the matrix is widened where it is read.

use super::pairs::Known;
use super::{Attribute, Body, Node};
use crate::tensor::small::{SmallFloat, Special};
use crate::tensor::{DType, HostTensor};
use rayon::prelude::*;
use std::collections::HashMap;

/// Numbers are packed once for each way in which they are read.
#[derive(Default)]
pub(super) struct Packings<'g>(HashMap<(&'g str, bool), Option<Packing>>);

/// A matrix of `rows` by `depth` numbers.
#[derive(Clone)]
struct Packing {
    rows: usize,
    depth: usize,
    bits: usize,
    /// Neighbours in a row that share a scale.
    block: usize,
    /// The type of the numbers, if they are floats.
    float: Option<DType>,
    /// Bytes, or floats of 8 bits, `[rows, blocks, block * bits / 8]`.
    numbers: HostTensor,
    /// `[rows, blocks]`.
    scales: HostTensor,
    /// Bytes `[rows, blocks * bits / 8 rounded up]`; none where all are the middle of the range.
    zeros: Option<HostTensor>,
}

/// A dequantised constant as its node has it.
struct Dequantised<'g> {
    numbers: &'g HostTensor,
    scales: &'g HostTensor,
    zeros: Option<&'g HostTensor>,
    /// The dimension that has a scale for each slice or, where it is not zero, for each `block` slices; of no meaning where there is
    /// but one scale.
    axis: usize,
    block: usize,
}

/// The nodes that stand for an operator that reads dequantised weights.
pub(super) fn reader<'g>(node: &'g Node, known: &Known<'g>, packings: &mut Packings<'g>) -> Option<Vec<Node>> {
    if !node.domain.is_empty() || !matches!(node.op.as_str(), "MatMul" | "Gemm" | "Gather") {
        return None;
    }
    let mut b = Body::new(node);
    let gathers = node.op == "Gather";
    let plain = b.int("transA", 0) == 0 && b.float("alpha", 1.0) == 1.0 && b.float("beta", 1.0) == 1.0;
    if gathers && b.int("axis", 0) != 0 || !plain {
        return None;
    }
    let mut flipped = gathers || node.op == "Gemm" && b.int("transB", 0) != 0;
    let mut weights = node.inputs.get(usize::from(!gathers))?.as_str();
    if let Some(turn) = known.made_by(weights, "Transpose") {
        let perm = turn.attributes.get("perm");
        if perm.is_some_and(|p| *p != Attribute::Ints(vec![1, 0])) {
            return None;
        }
        flipped = !flipped;
        weights = turn.inputs.first()?.as_str();
    }
    let source = known.made_by(weights, "DequantizeLinear")?;
    // Products of floats of 8 bits that have one scale or one for each column are for instructions that multiply them as they are.
    let narrow = |w: &Dequantised<'_>| {
        let widens = |op| known.made_by(b.input(0), op).is_some();
        w.block == 0 && w.numbers.dtype().bits() == 8 && w.is_float() && (widens("DequantizeLinear") || widens("Cast"))
    };
    let packing = packings.0.entry((source.outputs.first()?.as_str(), flipped));
    let packing = packing.or_insert_with(|| {
        let read = Dequantised::read(source, known).filter(|w| !(narrow(w) || gathers && w.is_float()))?;
        pack(&read, flipped)
    });
    let packing = packing.clone()?;
    let (numbers, scales) = (b.constant(packing.numbers.clone()), b.constant(packing.scales.clone()));
    let zeros = packing.zeros.clone().map_or(String::new(), |z| b.constant(z));
    let size = |n: usize| Attribute::Int(n as i64);
    let mut attributes = vec![("block_size", size(packing.block))];
    attributes.push(match packing.float {
        Some(float) => ("float", Attribute::Int(float.to_onnx().into())),
        None => ("bits", size(packing.bits)),
    });
    let y = if gathers {
        let index = b.input(1).to_string();
        attributes.extend([("gather_axis", size(0)), ("quantize_axis", size(1))]);
        let flat = HostTensor::reshaped(&packing.numbers, &[packing.rows, packing.depth * packing.bits / 8]).ok()?;
        let numbers = b.constant(flat);
        b.with("com.microsoft:GatherBlockQuantized", &[&numbers, &index, &scales, &zeros], &attributes)
    } else {
        let x = b.input(0).to_string();
        attributes.extend([("K", size(packing.depth)), ("N", size(packing.rows))]);
        let op = if packing.float.is_some() { "barewave:MatMulFloats" } else { "com.microsoft:MatMulNBits" };
        let y = b.with(op, &[&x, &numbers, &scales, &zeros], &attributes);
        if b.has(2) {
            let bias = b.input(2).to_string();
            b.op("Add", &[&y, &bias])
        } else {
            y
        }
    };
    b.set(0, &y);
    Some(b.nodes)
}

impl<'g> Dequantised<'g> {
    fn is_float(&self) -> bool {
        self.numbers.dtype().is_small_float()
    }

    /// A matrix of integers, or of floats, of at most 8 bits with constant scales and zero points; `None` for any other value.
    fn read(node: &Node, known: &Known<'g>) -> Option<Dequantised<'g>> {
        let input = |i: usize| node.inputs.get(i).map_or("", String::as_str);
        let int = |name: &str, default: i64| match node.attributes.get(name) {
            Some(Attribute::Int(v)) => *v,
            _ => default,
        };
        let (numbers, scales) = (known.constant(input(0))?, known.constant(input(1))?);
        let zeros = if input(2).is_empty() { None } else { Some(known.constant(input(2))?) };
        let whole = matches!(numbers.dtype(), DType::I8 | DType::U8 | DType::I4 | DType::U4 | DType::I2 | DType::U2);
        let float = SmallFloat::of(numbers.dtype()).is_some_and(SmallFloat::fits_halves);
        let powers = scales.dtype() == DType::F8E8M0;
        let scaled = matches!(scales.dtype(), DType::F32 | DType::F16 | DType::BF16) || float && powers;
        // Powers of two are no type of results: the product's is that of what the weights are widened to.
        let same = |to: i64| to == i64::from(scales.dtype().to_onnx()) && !powers || (to == 0) != powers;
        let axis = int("axis", 1);
        let axis = usize::try_from(if axis < 0 { axis + 2 } else { axis }).ok()?;
        let block = usize::try_from(int("block_size", 0)).ok()?;
        let fits = numbers.shape().len() == 2 && axis < 2 && !numbers.is_empty() && same(int("output_dtype", 0));
        let zeros_fit = zeros.is_none_or(|z| z.dtype() == numbers.dtype() && z.shape() == scales.shape());
        // Floats that have a zero point have 0.
        let no_zeros = !float || zeros.is_none_or(|z| z.bytes().iter().all(|b| *b == 0));
        ((whole || float) && scaled && fits && zeros_fit && no_zeros).then_some(Dequantised {
            numbers,
            scales,
            zeros,
            axis,
            block,
        })
    }
}

/// Packs a matrix whose rows (`flipped`) or columns are read; `None` where it has no scale for each block of them.
fn pack(w: &Dequantised<'_>, flipped: bool) -> Option<Packing> {
    let (bits, dtype) = (w.numbers.dtype().bits(), w.numbers.dtype());
    let float = w.is_float().then_some(dtype);
    // Of NaN nothing is left when codes are moved to where wider floats have them.
    let nan = float.and_then(SmallFloat::of).filter(|f| f.special != Special::Ieee);
    let is_nan = |code: &u8| nan.is_some_and(|f| f.decode(*code).is_nan());
    if nan.is_some() && bits == 8 && w.numbers.bytes().par_iter().any(is_nan) {
        return None;
    }
    let (along, across) = if flipped { (1, 0) } else { (0, 1) };
    let (depth, rows) = (w.numbers.shape()[along], w.numbers.shape()[across]);
    let (single, blocked) = (w.scales.len() == 1 && w.block == 0, w.block > 0);
    let block = if blocked { w.block } else { 1 << depth.trailing_zeros() };
    // 16 bytes of numbers have one scale at most, or scales that divide them. A last block of floats may be a part of one.
    let whole = depth % (128 / bits) == 0 && depth % block == 0;
    if !whole && (!blocked || float.is_none()) {
        return None;
    }
    let blocks = depth.div_ceil(block);
    let mut shape = [rows; 2];
    shape[along] = blocks;
    let fits = match (single, blocked) {
        (true, _) => true,
        (_, false) => w.axis == across && w.scales.shape() == [rows],
        (_, true) => w.axis == along && w.scales.shape() == shape,
    };
    if !fits || !block.is_power_of_two() || block < 16 {
        return None;
    }
    // Where the scale or zero point of a row's block lies.
    let at = |row: usize, b: usize| match (single, blocked) {
        (true, _) => 0,
        (_, false) => row,
        (_, true) if flipped => row * blocks + b,
        (_, true) => b * rows + row,
    };
    let size = w.scales.dtype().size();
    let of = w.scales.bytes();
    let each = (0..rows).flat_map(|row| (0..blocks).map(move |b| (row, b)));
    let scales: Vec<u8> = each.flat_map(|(row, b)| of[at(row, b) * size..][..size].iter().copied()).collect();
    let moved = if dtype.is_signed_int() { 1u8 << (bits - 1) } else { 0 };
    let middle = 1u8 << (bits - 1);
    let zero = |row: usize, b: usize| w.zeros.map_or(0, |z| z.bytes()[at(row, b)]).wrapping_add(moved) & mask(bits);
    let around_middle = float.is_some() || (0..rows).all(|row| (0..blocks).all(|b| zero(row, b) == middle));
    let zero_bytes = (blocks * bits).div_ceil(8);
    let zeros = (!around_middle).then(|| {
        let mut bytes = vec![0u8; rows * zero_bytes];
        for (row, out) in bytes.chunks_exact_mut(zero_bytes).enumerate() {
            (0..blocks).for_each(|b| put(out, b, bits, zero(row, b)));
        }
        HostTensor::new(DType::U8, &[rows, zero_bytes], bytes)
    });
    let shape = [rows, blocks, block * bits / 8];
    let of = if bits == 8 { float.unwrap_or(DType::U8) } else { DType::U8 };
    let numbers = match flipped && dtype == of && whole {
        true => w.numbers.reshaped(&shape),
        _ => HostTensor::new(of, &shape, packed_rows(w.numbers, flipped, moved, shape[1] * shape[2])),
    };
    let scales = HostTensor::new(w.scales.dtype(), &[rows, blocks], scales).ok()?;
    Some(Packing { rows, depth, bits, block, float, numbers: numbers.ok()?, scales, zeros: zeros.transpose().ok()? })
}

fn mask(bits: usize) -> u8 {
    u8::MAX >> (8 - bits)
}

/// Sets number `i` of a packed row, which was zero.
fn put(row: &mut [u8], i: usize, bits: usize, value: u8) {
    let each = 8 / bits;
    row[i / each] |= value << (i % each * bits);
}

/// The rows (`flipped`) or columns of a matrix of a number in a byte, `moved` and packed, so many bytes apart.
fn packed_rows(matrix: &HostTensor, flipped: bool, moved: u8, pitch: usize) -> Vec<u8> {
    // Columns that are packed together: a cache line of each row is read at once.
    const STRIP: usize = 64;
    let bits = matrix.dtype().bits();
    let (height, width) = (matrix.shape()[0], matrix.shape()[1]);
    let (bytes, number) = (&matrix.bytes()[..], |b: u8| b.wrapping_add(moved) & mask(bits));
    let rows = if flipped { height } else { width };
    let mut out = vec![0u8; rows * pitch];
    if flipped {
        out.par_chunks_exact_mut(pitch).zip(bytes.par_chunks_exact(width)).for_each(|(out, row)| {
            row.iter().enumerate().for_each(|(k, b)| put(out, k, bits, number(*b)));
        });
    } else {
        out.par_chunks_mut(pitch * STRIP).enumerate().for_each(|(strip, out)| {
            for k in 0..height {
                let row = &bytes[k * width..][..width][strip * STRIP..];
                out.chunks_exact_mut(pitch).zip(row).for_each(|(out, b)| put(out, k, bits, number(*b)));
            }
        });
    }
    out
}
