//! Operands that tell places: what a program loads of them decides where it loads of others. A kernel that is modelled without data needs numbers in
//! them that spread its loads as data would.
//!
//! Which operands these are follows from where values go, variables included. Between which numbers their elements lie nobody says (sampling grids
//! are from -1 to 1, regions count pixels, indices elements), so it is tried: one element of the result is computed again and again with operands drawn at
//! random from ranges that grow by powers of eight, and the smallest range is taken that has it load from nearly as many different places as any. Places
//! outside of an operand count for nothing.

use super::expr::{Scalar, operands};
use super::kinds::program::{Program, Read, Source, Statement};
use crate::tensor::{DType, SplitMix64};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// How often an element of the result is computed for a range, and statements of all of these; statements of an element that is computed at all.
const LEAST: usize = 4;
const MOST: usize = 16;
const STATEMENTS: usize = 768;
const LONGEST: usize = 2048;

/// Exponents of the ranges: from 1 to 2^12.
const RANGES: [u32; 5] = [0, 3, 6, 9, 12];

/// A range has nearly as many places as another one.
const NEARLY: f64 = 0.9;

/// The operands of a program that tell places, and the extents of the numbers that spread them, for a result and operands of these dimensions.
pub(crate) fn extents(program: &Program, dims: &[usize], lengths: &[usize]) -> Vec<(usize, u64)> {
    let told = told(program);
    let mut out: Vec<(usize, u64)> = told.iter().map(|i| (*i, 1)).collect();
    let weight = weight(&program.body);
    if out.is_empty() || weight > LONGEST {
        return out;
    }
    let samples = (STATEMENTS / weight.max(1)).clamp(LEAST, MOST);
    let coords: Vec<usize> = dims.iter().map(|d| d / 2).collect();
    for i in 0..out.len() {
        let places: Vec<usize> = RANGES
            .iter()
            .map(|r| {
                out[i].1 = 1 << r;
                let types = program.operand_types();
                let mut drawn = Drawn { types, lengths, extents: &out, draw: 0, seen: RefCell::default() };
                for n in 0..samples as u64 {
                    drawn.draw = SplitMix64(n).next_u64();
                    program.element(&coords, &drawn);
                }
                drawn.seen.into_inner().len()
            })
            .collect();
        let most = places.iter().copied().max().unwrap_or(0) as f64;
        let first = places.iter().position(|n| *n as f64 >= NEARLY * most).unwrap_or(0);
        out[i].1 = 1 << RANGES[first];
    }
    out
}

/// Statements that an element takes, loops of an unknown number of rounds once.
fn weight(body: &[Statement]) -> usize {
    let of = |s: &Statement| match s {
        Statement::Let(_) | Statement::Set(..) => 1,
        Statement::Repeat { count, body, .. } => (*count as usize).saturating_mul(weight(body)),
        // As long as data wants.
        Statement::While { .. } => LONGEST + 1,
    };
    body.iter().map(of).fold(0, usize::saturating_add)
}

/// Operands whose elements go into places.
fn told(program: &Program) -> BTreeSet<usize> {
    fn sets(body: &[Statement], out: &mut Vec<(usize, usize)>) {
        for s in body {
            match s {
                Statement::Let(_) => {}
                Statement::Set(var, v) => out.push((var.0 as usize, v.index())),
                Statement::Repeat { body, .. } | Statement::While { body, .. } => sets(body, out),
            }
        }
    }
    let mut assigned = Vec::new();
    sets(&program.body, &mut assigned);
    let mut values: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); program.values.len()];
    let mut vars: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); program.vars.len()];
    let mut out = BTreeSet::new();
    loop {
        let before = (values.clone(), vars.clone());
        for (v, (source, _)) in program.values.iter().enumerate() {
            let mut from = BTreeSet::new();
            match *source {
                Source::Coordinate(_) | Source::Round => {}
                Source::Load { operand, at, .. } => {
                    out.extend(values[at.index()].iter().copied());
                    from.extend(values[at.index()].iter().copied());
                    from.insert(operand);
                }
                Source::Get(var) => from.extend(vars[var.0 as usize].iter().copied()),
                Source::Quotient(a, _) | Source::Remainder(a, _) => from.extend(values[a.index()].iter().copied()),
                Source::Operation(op) => operands(op).for_each(|a| from.extend(values[a.index()].iter().copied())),
            }
            values[v].extend(from);
        }
        for &(var, v) in &assigned {
            let from = values[v].clone();
            vars[var].extend(from);
        }
        if before == (values.clone(), vars.clone()) {
            return out;
        }
    }
}

/// Operands whose elements are drawn; what is loaded of them is noted.
struct Drawn<'a> {
    types: Vec<Option<DType>>,
    lengths: &'a [usize],
    extents: &'a [(usize, u64)],
    draw: u64,
    seen: RefCell<BTreeSet<(usize, i64)>>,
}

impl Read for Drawn<'_> {
    fn read(&self, operand: usize, at: i64) -> Option<Scalar> {
        if !(0..*self.lengths.get(operand)? as i64).contains(&at) {
            return None;
        }
        self.seen.borrow_mut().insert((operand, at));
        let dtype = (*self.types.get(operand)?)?;
        let extent = self.extents.iter().find(|e| e.0 == operand).map_or(1, |e| e.1);
        Some(Scalar::of(dtype, SplitMix64::drawn(self.draw.wrapping_add(at as u64), dtype, extent)))
    }
}
