//! How well measured rows tell of each other: what no model that looks at sizes and parameters can be expected to beat.
//!
//! Of each row the nearest one is looked for that the same kernel computed in the same tuning run: all parameters are the same, and
//! rows, columns, depth and batch differ least (as logarithms). Where the model is as wrong about a row as about the nearest one, something
//! that varies slowly with the size is missing in it; where the two differ, the rest is noise, or something as erratic as noise. So
//! a row is predicted by the model times the nearest row's measured over modelled time ([`nearest`]), and the error of that stands beside the model's own.

use crate::chip::Chip;
use crate::validate::{Bucket, Campaigns, Row, campaign, campaign_key, clocks, quantile, usual};
use std::collections::BTreeMap;

/// Errors by chip, type and bucket.
pub type ByGroup = BTreeMap<(String, String, Bucket), (f64, f64)>;

/// Logarithms of a row's size.
fn place(row: &Row) -> [f64; 4] {
    row.gemm.size().map(|x| x.max(1.0).ln())
}

/// What names a kernel within a tuning run.
fn kernel(row: &Row) -> Vec<u64> {
    let g = &row.gemm;
    let matrix = g.matrix.unwrap_or_default();
    let numbers =
        [g.tile.0, g.tile.1, g.depth, g.threads.0, g.threads.1, g.threads.2, g.split, g.prefetch, g.store_width];
    let bits = |x: &f64| x.to_bits();
    numbers.iter().chain(&matrix).map(bits).chain([u64::from(g.local_prefetch)]).collect()
}

/// Median and ninth decile of the errors that the nearest row makes about each of `judged`, by chip, type and bucket; rows in
/// `others` may be the nearest one too. Rows whose kernel nobody else has are left out.
pub fn nearest(judged: &[Row], others: &[Row], known: &Campaigns) -> ByGroup {
    let mut chips: BTreeMap<&str, Chip> = BTreeMap::new();
    let mut kernels: BTreeMap<_, Vec<(&Row, bool, [f64; 4], f64)>> = BTreeMap::new();
    for (row, is_judged) in judged.iter().map(|r| (r, true)).chain(others.iter().map(|r| (r, false))) {
        let Some(own) = Chip::of(row.target) else { continue };
        let chip = chips.entry(&row.chip).or_insert(own);
        let (measured, modelled) = clocks(row, chip, campaign(known, row).unwrap_or_else(|| usual(chip)));
        let entry = (row, is_judged, place(row), measured / modelled);
        kernels.entry((campaign_key(row), kernel(row))).or_default().push(entry);
    }
    let mut errors: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for rows in kernels.values() {
        for (i, (row, _, at, ratio)) in rows.iter().enumerate().filter(|(_, r)| r.1) {
            let apart = |other: &[f64; 4]| at.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            let beside = rows.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, r)| (apart(&r.2), r.3));
            if let Some((_, theirs)) = beside.min_by(|a, b| a.0.total_cmp(&b.0)) {
                let group = (row.chip.clone(), row.dtype.clone(), row.bucket());
                errors.entry(group).or_default().push((theirs / ratio - 1.0).abs());
            }
        }
    }
    let summed = errors.into_iter().map(|(group, mut e)| {
        e.sort_by(f64::total_cmp);
        (group, (quantile(&e, 0.5), quantile(&e, 0.9)))
    });
    summed.collect()
}

/// Rows of a chip and type that contradict each other, or what their table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contradictions {
    /// Pairs of rows of one file that differ in depth alone; of several depths neighbouring ones.
    pub pairs: usize,
    /// Of these, in how many the deeper product took less time, by a tenth or more.
    pub deeper_is_quicker: usize,
    /// Rows in percent of the peak with up to two tiles per compute unit.
    pub few_tiles: usize,
    /// Of these, how many were quicker, by a twentieth or more, than the busiest of so many compute units multiplies its tiles at the peak:
    /// the device had others than the table says.
    pub too_quick: usize,
}

impl Contradictions {
    /// More than a hundredth of the rows, or of the pairs.
    pub fn many(&self) -> bool {
        self.deeper_is_quicker * 100 > self.pairs || self.too_quick * 100 > self.few_tiles
    }
}

/// Rows that contradict each other or their table, by chip and type.
pub fn contradictions<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeMap<(String, String), Contradictions> {
    let mut sizes: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    let mut out: BTreeMap<_, Contradictions> = BTreeMap::new();
    for row in rows {
        if row.percent && row.bucket() != Bucket::Over2 {
            let found = out.entry((row.chip.clone(), row.dtype.clone())).or_default();
            found.few_tiles += 1;
            found.too_quick += usize::from(row.measured < 0.95 * row.gemm.least(row.target, row.cus));
        }
        let mut file = campaign_key(row);
        file[6].clear();
        let [m, n, k, batch] = row.gemm.size();
        sizes.entry((file, [m, n, batch].map(f64::to_bits))).or_default().push((k, row.measured));
    }
    for ((file, _), mut rows) in sizes {
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [chip, dtype, ..] = file;
        let found = out.entry((chip, dtype)).or_default();
        for pair in rows.windows(2).filter(|p| p[1].0 > p[0].0) {
            found.pairs += 1;
            found.deeper_is_quicker += usize::from(pair[1].1 < 0.9 * pair[0].1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::rocblas;

    const HEADER: &str =
        "gfx,layout,dtype,out,compute,M,N,B,K,value,unit,MT0,MT1,DU,MI,WG,TT,GSU,LSU,PGR,PLR,VW,GRVW\n";

    fn row(n: u32, k: u32, gflops: f64) -> String {
        format!(
            "gfx900,NN,f32,f32,,1000,{n},1,{k},{gflops},gflops,64,64,16,[],\"[16, 16, 1]\",\"[4, 4]\",1,1,true,true,4,4\n"
        )
    }

    fn rows(lines: &[String]) -> Vec<Row> {
        rocblas(&format!("{HEADER}{}", lines.concat())).unwrap().0
    }

    #[test]
    fn the_nearest_row_of_the_same_kernel_predicts() {
        let near = rows(&[row(1000, 999, 5000.0), row(1001, 999, 5000.0), row(4000, 999, 9000.0)]);
        let (judged, others) = near.split_at(1);
        let found = nearest(judged, others, &Campaigns::new());
        let (median, _) = found.values().next().copied().unwrap();
        assert!(found.len() == 1 && median < 0.02, "{found:?}");
        // The far one alone is a worse prophet; nobody is none.
        let found = nearest(judged, &others[1..], &Campaigns::new());
        assert!(found.values().all(|e| e.0 > 0.1) && found.len() == 1, "{found:?}");
        assert!(nearest(judged, &[], &Campaigns::new()).is_empty());
    }

    #[test]
    fn a_deeper_product_that_is_quicker_contradicts() {
        // 1000 deep in 0.4 ms, 2000 deep in 0.8 ms, 3000 deep in 0.3 ms.
        let found =
            contradictions(&rows(&[row(1000, 1000, 5000.0), row(1000, 2000, 5000.0), row(1000, 3000, 20000.0)]));
        let found: Vec<Contradictions> = found.into_values().collect();
        assert_eq!((found[0].pairs, found[0].deeper_is_quicker, found[0].many()), (2, 1, true));
    }

    #[test]
    fn more_tiles_than_compute_units_cannot_be_done_at_once() {
        // 456 tiles: twice as many as 228 compute units have, but 304 need two rounds for them, which is 75% of the peak at most.
        let line = |percent: f64| {
            let cells = "256,256,32,\"[32, 32, 8, 1]\",\"[64, 4, 1]\",\"[4, 4]\",1,1,2,5,4,4";
            format!("gfx942,NT,f16,f16,f32,6144,4864,1,8192,{percent},pct,{cells}\n")
        };
        let found = contradictions(&rows(&[line(89.15), line(73.0)]));
        let found: Vec<Contradictions> = found.into_values().collect();
        assert_eq!((found[0].few_tiles, found[0].too_quick), (2, 1));
    }
}
