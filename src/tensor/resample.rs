//! Resizing of pictures by linear interpolation, to the bit as Pillow's `resize(size, BILINEAR)` has it.
//!
//! An output pixel is the weighted sum of those whose centres are less than one pixel of the coarser grid away from its own: when shrinking the
//! filter grows with the factor, so that every pixel counts. Weights are integers with 22 fractional bits, and each axis rounds to 8 bits.

/// Fractional bits of a weight: what 32 bits leave beside a pixel's 8 and 2 of headroom.
const FRACTION: u32 = 22;

/// What an output pixel is made of: the first input pixel, and the weights of it and those that follow.
struct Window {
    first: usize,
    weights: Vec<i32>,
}

/// The windows of `to` pixels in a line of `from`.
fn windows(from: usize, to: usize) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let window = |i: usize| {
        let center = (i as f64 + 0.5) * scale;
        let first = (center - reach + 0.5).max(0.0) as usize;
        let end = ((center + reach + 0.5) as usize).min(from);
        let weight = |p: usize| (1.0 - ((p as f64 - center + 0.5) / reach).abs()).max(0.0);
        let all: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = all.iter().sum();
        let fixed = |w: &f64| (w / sum * f64::from(1 << FRACTION) + 0.5) as i32;
        Window { first, weights: all.iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

/// Bytes of dimensions `[outer, from, inner]` as those of `[outer, to, inner]`.
pub(super) fn along_axis(data: &[u8], outer: usize, from: usize, inner: usize, to: usize) -> Vec<u8> {
    if from == to {
        return data.to_vec();
    }
    if data.is_empty() {
        return vec![0; outer * to * inner];
    }
    let windows = windows(from, to);
    let mut out = Vec::with_capacity(outer * to * inner);
    let mut sums = vec![0; inner];
    for block in data.chunks_exact(from * inner) {
        for Window { first, weights } in &windows {
            sums.fill(1 << (FRACTION - 1));
            for (weight, pixels) in weights.iter().zip(block[first * inner..].chunks_exact(inner)) {
                sums.iter_mut().zip(pixels).for_each(|(sum, x)| *sum += weight * i32::from(*x));
            }
            out.extend(sums.iter().map(|sum| (sum >> FRACTION).clamp(0, 255) as u8));
        }
    }
    out
}
