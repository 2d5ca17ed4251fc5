//! Fourier transforms of a few elements in a workitem's registers.

use crate::kernels::float::Float;
use crate::mir::{Builder, Opnd, Part};
use rustc_hash::FxHashMap;
use std::f64::consts::PI;

/// A complex number; parts that are not there are 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    re: Option<Part>,
    im: Option<Part>,
}

impl From<[Option<Part>; 2]> for Number {
    fn from([re, im]: [Option<Part>; 2]) -> Number {
        Number { re, im }
    }
}

impl Number {
    /// Nothing.
    pub const ZERO: Number = Number { re: None, im: None };

    /// A real number, or one with an imaginary part.
    pub fn of(re: Part, im: Option<Part>) -> Number {
        Number { re: Some(re), im }
    }

    /// True where it is known to be 0.
    pub fn is_zero(&self) -> bool {
        self.re.is_none() && self.im.is_none()
    }

    /// Its real (0) or imaginary part (1) in a register.
    pub fn part(&self, b: &mut Builder, float: Float, part: usize) -> Part {
        [self.re, self.im][part].unwrap_or_else(|| float.held(b, 0.0))
    }

    /// Times `-i`, or `i`.
    fn turned(self, arithmetic: &Butterfly, b: &mut Builder, forward: bool) -> Number {
        let minus = |b: &mut Builder, x: Option<Part>| x.map(|x| arithmetic.float.neg(b, x));
        match forward {
            true => Number { re: self.im, im: minus(b, self.re) },
            false => Number { re: minus(b, self.im), im: self.re },
        }
    }
}

/// Arithmetic of complex numbers in one type.
pub(super) struct Butterfly {
    float: Float,
    inverse: bool,
    /// Constants in registers, by their bits.
    constants: FxHashMap<u64, Opnd>,
}

impl Butterfly {
    pub fn new(float: Float, inverse: bool) -> Butterfly {
        Butterfly { float, inverse, constants: FxHashMap::default() }
    }

    /// A constant that instructions read: those of 64 bits are in scalar registers.
    fn constant(&mut self, b: &mut Builder, x: f64) -> Opnd {
        if !self.float.is_double() {
            return (x as f32).into();
        }
        let bits = x.to_bits();
        *self.constants.entry(bits).or_insert_with(|| {
            let pair = b.s(2);
            b.copy_into(pair.dword(0), bits as u32);
            b.copy_into(pair.dword(1), (bits >> 32) as u32);
            pair.into()
        })
    }

    fn sum(&self, b: &mut Builder, x: Option<Part>, y: Option<Part>) -> Option<Part> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.float.add(b, x, y)),
            (x, y) => x.or(y),
        }
    }

    fn difference(&self, b: &mut Builder, x: Option<Part>, y: Option<Part>) -> Option<Part> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.float.sub(b, x, y)),
            (None, Some(y)) => Some(self.float.neg(b, y)),
            (x, None) => x,
        }
    }

    fn add(&self, b: &mut Builder, x: Number, y: Number) -> Number {
        Number { re: self.sum(b, x.re, y.re), im: self.sum(b, x.im, y.im) }
    }

    fn sub(&self, b: &mut Builder, x: Number, y: Number) -> Number {
        Number { re: self.difference(b, x.re, y.re), im: self.difference(b, x.im, y.im) }
    }

    /// `z + x * c`.
    fn add_times(&self, b: &mut Builder, z: Option<Part>, x: Option<Part>, c: Opnd) -> Option<Part> {
        match (z, x) {
            (z, None) => z,
            (None, Some(x)) => Some(self.float.mul(b, c, x)),
            (Some(z), Some(x)) => Some(self.float.fma(b, x, c, z)),
        }
    }

    /// `x * y` for a root `y`, both parts of which are operands; `minus` is `-y`'s imaginary part, where that is a constant.
    fn product(&self, b: &mut Builder, x: Number, (re, im): (Opnd, Opnd), minus: Option<Opnd>) -> Number {
        let scaled = |b: &mut Builder, x: Option<Part>, c: Opnd| x.map(|x| self.float.mul(b, c, x));
        let im_of = scaled(b, x.re, im);
        let own_im = self.add_times(b, im_of, x.im, re);
        let own_re = match (x.re, x.im, minus) {
            (_, Some(_), Some(minus)) => {
                let other = scaled(b, x.im, minus);
                self.add_times(b, other, x.re, re)
            }
            (Some(a), Some(c), None) => {
                let other = self.float.mul(b, im, c);
                Some(self.float.product_less(b, a, re, other))
            }
            (None, Some(c), None) => {
                let other = self.float.mul(b, im, c);
                Some(self.float.neg(b, other))
            }
            (a, None, _) => scaled(b, a, re),
        };
        Number { re: own_re, im: own_im }
    }

    /// The product of two numbers.
    pub fn times(&self, b: &mut Builder, x: Number, y: Number) -> Number {
        let (re, im) = (y.part(b, self.float, 0), y.part(b, self.float, 1));
        self.product(b, x, (re.into(), im.into()), None)
    }

    /// Element `j` times the `j`-th power of a root.
    pub fn turn(&self, b: &mut Builder, x: &mut [Number], root: Number) {
        let mut powers = vec![None, Some(root)];
        for j in 2..x.len() {
            let (Some(y), Some(z)) = (powers[j / 2], powers[j - j / 2]) else { continue };
            powers.push(Some(self.times(b, y, z)));
        }
        for (x, power) in x.iter_mut().zip(powers) {
            if let Some(y) = power {
                *x = self.times(b, *x, y);
            }
        }
    }

    /// A number times the `k`-th of `n` roots of unity.
    fn times_root(&mut self, b: &mut Builder, x: Number, k: usize, n: usize) -> Number {
        let k = k % n;
        match (4 * k / n, (4 * k).is_multiple_of(n)) {
            (0, true) => x,
            (1, true) => x.turned(self, b, !self.inverse),
            (3, true) => x.turned(self, b, self.inverse),
            (_, whole) => {
                let (sin, cos) = if whole { (0.0, -1.0) } else { (2.0 * PI * (k as f64 / n as f64)).sin_cos() };
                let sin = if self.inverse { sin } else { -sin };
                let [re, im, minus] = [cos, sin, -sin].map(|c| self.constant(b, c));
                self.product(b, x, (re, im), Some(minus))
            }
        }
    }

    /// The transform of some elements, in order.
    pub fn transform(&mut self, b: &mut Builder, x: &[Number]) -> Vec<Number> {
        let n = x.len();
        match n {
            0 | 1 => x.to_vec(),
            2 => vec![self.add(b, x[0], x[1]), self.sub(b, x[0], x[1])],
            4 => {
                let (even, odd) = (self.transform(b, &[x[0], x[2]]), self.transform(b, &[x[1], x[3]]));
                let turned = odd[1].turned(self, b, !self.inverse);
                let (low, high) = (self.transform(b, &[even[0], odd[0]]), self.transform(b, &[even[1], turned]));
                vec![low[0], high[0], low[1], high[1]]
            }
            _ => match [4, 2, 3, 5, 7, 11, 13].into_iter().find(|r| n.is_multiple_of(*r) && *r < n) {
                Some(first) => self.in_two(b, x, first),
                None => self.odd(b, x),
            },
        }
    }

    /// Transforms of `first` elements that lie apart, and transforms of what these are.
    fn in_two(&mut self, b: &mut Builder, x: &[Number], first: usize) -> Vec<Number> {
        let (n, second) = (x.len(), x.len() / first);
        let mut inner: Vec<Vec<Number>> = (0..second)
            .map(|j| {
                let some: Vec<Number> = x.iter().skip(j).step_by(second).copied().collect();
                self.transform(b, &some)
            })
            .collect();
        for (j, some) in inner.iter_mut().enumerate() {
            for (k, x) in some.iter_mut().enumerate() {
                *x = self.times_root(b, *x, j * k, n);
            }
        }
        let mut out = vec![Number::ZERO; n];
        for k in 0..first {
            let some: Vec<Number> = inner.iter().map(|x| x[k]).collect();
            for (q, y) in self.transform(b, &some).into_iter().enumerate() {
                out[k + first * q] = y;
            }
        }
        out
    }

    /// The transform of a number of elements that is odd: pairs of these have the same cosines, and sines of opposite signs.
    fn odd(&mut self, b: &mut Builder, x: &[Number]) -> Vec<Number> {
        let (n, half) = (x.len(), x.len() / 2);
        let pairs: Vec<(Number, Number)> =
            (1..=half).map(|m| (self.add(b, x[m], x[n - m]), self.sub(b, x[m], x[n - m]))).collect();
        let mut out = vec![Number::ZERO; n];
        out[0] = pairs.iter().fold(x[0], |sum, (plus, _)| self.add(b, sum, *plus));
        for k in 1..=half {
            let (mut even, mut odd) = (x[0], Number::ZERO);
            for (m, (plus, minus)) in (1..).zip(&pairs) {
                let (sin, cos) = (2.0 * PI * ((k * m % n) as f64 / n as f64)).sin_cos();
                let (sin, cos) = (self.constant(b, sin), self.constant(b, cos));
                even.re = self.add_times(b, even.re, plus.re, cos);
                even.im = self.add_times(b, even.im, plus.im, cos);
                odd.re = self.add_times(b, odd.re, minus.re, sin);
                odd.im = self.add_times(b, odd.im, minus.im, sin);
            }
            let turned = odd.turned(self, b, !self.inverse);
            out[k] = self.add(b, even, turned);
            out[n - k] = self.sub(b, even, turned);
        }
        out
    }
}
