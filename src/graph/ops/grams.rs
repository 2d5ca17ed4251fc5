//! TfIdfVectorizer: how often each n-gram of integers or strings (that is, of their codes) occurs in a row.
//!
//! One element of the result is one n-gram: a loop over the places where it may start, for each distance between its members,
//! compares the row with it.

use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Val};
use crate::graph::fused::Access;
use crate::graph::infer::Inference;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// Loops are written out for no more lengths and distances than this.
const MOST_LOOPS: usize = 256;

/// A pool of n-grams.
struct Pool {
    /// Shortest and longest that count.
    lengths: (usize, usize),
    /// Most members left out between two.
    skips: usize,
    /// For each element of the result its n-gram, empty where there is none, and its weight.
    grams: Vec<(Vec<i64>, f64)>,
    /// Numbers of occurrences, weights of those that occur, or their product.
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Count,
    Weight,
    Both,
}

impl Pool {
    fn read<'m>(cx: &impl Ask<'m>) -> Res<Pool> {
        let mode = match cx.text("mode", "TF")? {
            "TF" => Mode::Count,
            "IDF" => Mode::Weight,
            "TFIDF" => Mode::Both,
            other => return Err(Reason::attribute("mode", format!("is `{other}`; TF, IDF and TFIDF are supported"))),
        };
        let small = |name: &str| {
            let n = usize::try_from(cx.int(name, 0)?).ok().filter(|n| *n <= MOST_LOOPS);
            n.ok_or_else(|| Reason::attribute(name, "is negative or too large"))
        };
        let lengths = (small("min_gram_length")?, small("max_gram_length")?);
        let skips = small("max_skip_count")?;
        if lengths.0 == 0 || lengths.0 > lengths.1 || (lengths.1 + 1 - lengths.0) * (skips + 1) > MOST_LOOPS {
            return Err(Reason::attribute("max_gram_length", "and the other limits make no sense or are too large"));
        }
        let list = |name: &str| cx.ints(name)?.ok_or_else(|| Reason::attribute(name, "is missing"));
        let pool = match (cx.attribute("pool_strings"), cx.dtype(cx.input(0)?)) {
            (Some(Attribute::Texts(list)), DType::Str) => super::source::texts(&[list.len()], list)?.to_i64(),
            (_, DType::Str) => return Err(Reason::attribute("pool_strings", "is missing")),
            _ => list("pool_int64s")?,
        };
        let (starts, indexes) = (list("ngram_counts")?, list("ngram_indexes")?);
        let weights = match cx.attribute("weights") {
            Some(Attribute::Floats(w)) => w.iter().map(|w| f64::from(*w)).collect(),
            _ => vec![1.0; indexes.len()],
        };
        let count = indexes.iter().max().map_or(0, |n| n.saturating_add(1));
        let count = usize::try_from(count).ok().filter(|n| *n <= 1 << 24);
        let count = count.ok_or_else(|| Reason::attribute("ngram_indexes", "has an entry that is too large"))?;
        let mut grams = vec![(Vec::new(), 0.0); count];
        let mut given = indexes.iter().zip(weights);
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(pool.len() as i64);
            let part = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(s, e)| pool.get(s..e));
            let part = part.ok_or_else(|| Reason::attribute("ngram_counts", "reaches out of the pool"))?;
            for (gram, (at, weight)) in part.chunks_exact(i + 1).zip(&mut given) {
                let slot = usize::try_from(*at).ok().and_then(|at| grams.get_mut(at));
                let slot = slot.ok_or_else(|| Reason::attribute("ngram_indexes", "has a negative entry"))?;
                *slot = (gram.to_vec(), weight);
            }
        }
        Ok(Pool { lengths, skips, grams, mode })
    }
}

pub(super) fn vectorizer(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (pool, out) = (Pool::read(cx)?, cx.result(0));
    let columns = cx.shape(x).last().copied().unwrap_or(0);
    let rows: usize = out.iter().product::<usize>() / pool.grams.len().max(1);
    let longest = pool.lengths.1;
    let (mut members, mut lengths, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for (gram, weight) in &pool.grams {
        let member = |k: usize| gram.get(k).copied().unwrap_or(0);
        members.extend((0..longest).map(member));
        lengths.push(gram.len() as i64);
        weights.push(*weight);
    }
    let t = cx.dtype(x);
    if t == DType::I32 && members.iter().any(|m| i32::try_from(*m).is_err()) {
        return Err(Reason::attribute("pool_int64s", "has an entry beyond 32 bits"));
    }
    let n = pool.grams.len();
    let tables = [
        HostTensor::from_ints(t, &[n, longest], &members),
        HostTensor::from_i64(&[n], &lengths),
        HostTensor::from_f64(DType::F32, &[n], &weights),
    ];
    let mut operands = vec![cx.operand_if(x, View::is_dense)];
    for t in tables {
        let view = View::dense(t.shape());
        operands.push(Access::new(cx.add_const("n-grams".into(), t), view));
    }
    let y = cx.program(operands, &[rows, n], |c| {
        let (row, j) = (c.coord(0), c.coord(1));
        let length = c.load_int(1 + 1, j);
        let zero = c.int(0);
        let found = c.var(zero);
        for own in pool.lengths.0..=longest {
            let wanted = c.int(own as i64);
            let right = c.eq(length, wanted);
            // A single member has no distances.
            for distance in 1..=if own == 1 { 1 } else { pool.skips + 1 } {
                let reach = (own - 1) * distance;
                c.repeat(columns.saturating_sub(reach), |c, start| {
                    let mut hit: Val = right;
                    for k in 0..own {
                        let at = c.plus(start, (k * distance) as i64);
                        let at = c.place(&[row, at], &[rows, columns]);
                        let have = c.load(0, at);
                        let base = c.times(j, longest as i64);
                        let at = c.plus(base, k as i64);
                        let want = c.load(1, at);
                        let same = c.eq(have, want);
                        hit = c.and(hit, same);
                    }
                    let one = c.cast(hit, DType::I32);
                    let old = c.get(found);
                    let new = c.add(old, one);
                    c.set(found, new);
                });
            }
        }
        let found = c.get(found);
        let count = c.cast(found, DType::F32);
        let weight = c.load(3, j);
        match pool.mode {
            Mode::Count => count,
            Mode::Both => c.binary(Binary::Mul, count, weight),
            Mode::Weight => {
                let none = c.constant(DType::F32, 0.0);
                let occurs = c.lt(none, count);
                c.select(occurs, weight, none)
            }
        }
    });
    cx.set(0, y.reshaped(&out));
    Ok(())
}

// ---- rules ----

pub(super) fn of_vectorizer(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if !matches!(cx.dtype(x), DType::I32 | DType::I64 | DType::Str) {
        return Err(Reason::Type(format!("data of type {}; i32, i64 and strings are supported", cx.dtype(x))));
    }
    let n = Dim::from(Pool::read(cx)?.grams.len());
    let dims = match cx.dims(x) {
        [_] => vec![n],
        [rows, _] => vec![rows.clone(), n],
        other => return Err(Reason::Shape(format!("data of shape {}; rows of words are needed", described(other)))),
    };
    cx.give(0, DType::F32, dims)
}
