//! Extents that may not be known before a model runs.
//!
//! A [`Dim`] is a number or a polynomial over named run-time sizes, kept in one normal form: a sum of products of atoms,
//! sorted, like terms added up. An atom is a size, or the rounded-down quotient, the larger or the smaller of two
//! dimensions. So `N * C / N` is `C` and `(seq + past) - past` is `seq`, and two dimensions that are written equal are equal
//! for all sizes.

use super::error::Reason;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

/// An extent, or a number that a shape is made of: a constant, or an expression over named run-time sizes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dim {
    /// A constant.
    Known(i64),
    /// An expression that is not constant.
    Open(Arc<Sum>),
}

/// A sum of products of [`Atom`]s with their factors; the product of no atoms is the constant part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sum(BTreeMap<Vec<Atom>, i64>);

/// What products are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A run-time size, by name.
    Size(Arc<str>),
    /// The first by the second, rounded down.
    Quotient(Dim, Dim),
    /// The larger.
    Max(Dim, Dim),
    /// The smaller.
    Min(Dim, Dim),
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Known(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<Atom> for Dim {
    fn from(atom: Atom) -> Dim {
        Dim::Open(Arc::new(Sum(BTreeMap::from([(vec![atom], 1)]))))
    }
}

impl Dim {
    /// A run-time size.
    pub fn size(name: &str) -> Dim {
        Atom::Size(name.into()).into()
    }

    /// The constant, where it is one that an extent can be.
    pub fn known(&self) -> Option<usize> {
        match self {
            Dim::Known(n) => usize::try_from(*n).ok(),
            Dim::Open(_) => None,
        }
    }

    /// True when it is this number for all sizes.
    pub fn is(&self, n: i64) -> bool {
        *self == Dim::Known(n)
    }

    /// True when the two have different values, whatever the sizes are.
    pub fn differs(&self, other: &Dim) -> bool {
        matches!(self - other, Dim::Known(n) if n != 0)
    }

    /// True when it cannot be the other: the two differ, or the other is negative, as no size is.
    pub(crate) fn is_never(&self, other: &Dim) -> bool {
        self.differs(other) || matches!(other, Dim::Known(..0)) && self.is_count()
    }

    /// True when it is plain that it is not negative for any sizes.
    fn is_count(&self) -> bool {
        let atom = |a: &Atom| match a {
            Atom::Size(_) => true,
            Atom::Quotient(a, b) | Atom::Min(a, b) => a.is_count() && b.is_count(),
            Atom::Max(a, b) => a.is_count() || b.is_count(),
        };
        match self {
            Dim::Known(n) => *n >= 0,
            Dim::Open(sum) => sum.0.iter().all(|(atoms, n)| *n > 0 && atoms.iter().all(atom)),
        }
    }

    fn terms(&self) -> Sum {
        match self {
            Dim::Known(0) => Sum::default(),
            Dim::Known(n) => Sum(BTreeMap::from([(Vec::new(), *n)])),
            Dim::Open(s) => (**s).clone(),
        }
    }

    fn of(mut sum: Sum) -> Dim {
        sum.0.retain(|_, n| *n != 0);
        match sum.0.first_key_value() {
            None => Dim::Known(0),
            Some((atoms, n)) if atoms.is_empty() && sum.0.len() == 1 => Dim::Known(*n),
            Some(_) => Dim::Open(Arc::new(sum)),
        }
    }

    /// The quotient, where it is one for all sizes without a rest: each term is divided by the divisor's only one, or the
    /// dividend is a multiple of the divisor.
    fn exact(&self, by: &Dim) -> Option<Dim> {
        let (terms, divisor) = (self.terms(), by.terms());
        let (atoms, factor) = divisor.0.first_key_value()?;
        if divisor.0.len() > 1 {
            let times = terms.0.get(atoms)?.checked_div(*factor)?;
            return (by * &Dim::Known(times) == *self).then_some(Dim::Known(times));
        }
        let mut out = Sum::default();
        for (product, n) in &terms.0 {
            let mut rest = product.clone();
            for atom in atoms {
                rest.remove(rest.iter().position(|a| a == atom)?);
            }
            if n.checked_rem(*factor)? != 0 {
                return None;
            }
            out.0.insert(rest, n / factor);
        }
        Some(Dim::of(out))
    }

    /// The quotient, rounded down. The divisor is not zero.
    pub fn quotient(&self, by: &Dim) -> Dim {
        match (self, by) {
            (Dim::Known(a), Dim::Known(b)) => Dim::Known(a.checked_div_euclid(*b).unwrap_or(0)),
            _ => self.exact(by).unwrap_or_else(|| Atom::Quotient(self.clone(), by.clone()).into()),
        }
    }

    /// The quotient, rounded up. The divisor is positive.
    pub fn quotient_up(&self, by: &Dim) -> Dim {
        match self.exact(by) {
            Some(exact) => exact,
            None => (&(self + by) - &Dim::Known(1)).quotient(by),
        }
    }

    /// The larger of two.
    pub fn larger(&self, other: &Dim) -> Dim {
        match self - other {
            Dim::Known(n) => if n >= 0 { self } else { other }.clone(),
            Dim::Open(_) => Atom::Max(self.min_of(other), self.max_of(other)).into(),
        }
    }

    /// The smaller of two.
    pub fn smaller(&self, other: &Dim) -> Dim {
        match self - other {
            Dim::Known(n) => if n <= 0 { self } else { other }.clone(),
            Dim::Open(_) => Atom::Min(self.min_of(other), self.max_of(other)).into(),
        }
    }

    // The operands of what commutes have one order.
    fn min_of(&self, other: &Dim) -> Dim {
        std::cmp::Ord::min(self, other).clone()
    }
    fn max_of(&self, other: &Dim) -> Dim {
        std::cmp::Ord::max(self, other).clone()
    }

    /// The sizes that it depends on.
    pub fn sizes(&self) -> BTreeSet<String> {
        let Dim::Open(sum) = self else { return BTreeSet::new() };
        let of = |atom: &Atom| match atom {
            Atom::Size(name) => BTreeSet::from([name.to_string()]),
            Atom::Quotient(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => &a.sizes() | &b.sizes(),
        };
        sum.0.keys().flatten().flat_map(of).collect()
    }

    /// The same with a size replaced by what it is.
    pub(crate) fn with(&self, name: &str, value: &Dim) -> Dim {
        let Dim::Open(sum) = self else { return self.clone() };
        let atom = |a: &Atom| match a {
            Atom::Size(own) if **own == *name => value.clone(),
            Atom::Size(_) => a.clone().into(),
            Atom::Quotient(a, b) => a.with(name, value).quotient(&b.with(name, value)),
            Atom::Max(a, b) => a.with(name, value).larger(&b.with(name, value)),
            Atom::Min(a, b) => a.with(name, value).smaller(&b.with(name, value)),
        };
        let term = |(atoms, n): (&Vec<Atom>, &i64)| atoms.iter().fold(Dim::Known(*n), |p, a| &p * &atom(a));
        sum.0.iter().map(term).fold(Dim::Known(0), |sum, t| &sum + &t)
    }

    /// One of the sizes in it, and what that is where the whole is zero: where possible a preferred one, then one that is not
    /// negative for any sizes.
    pub(crate) fn root(&self, preferred: impl Fn(&str) -> bool) -> Option<(String, Dim)> {
        let Dim::Open(sum) = self else { return None };
        let roots = sum.0.iter().filter_map(|(atoms, n)| {
            let [Atom::Size(name)] = &atoms[..] else { return None };
            let rest = &(&Dim::size(name) * &Dim::Known(*n)) - self;
            let value = rest.exact(&Dim::Known(*n))?;
            (!value.sizes().contains(&**name)).then(|| (name.to_string(), value))
        });
        roots.min_by_key(|(name, value)| (!preferred(name), value.terms().0.values().any(|n| *n < 0)))
    }

    /// Its value for given sizes; saturates.
    pub fn at(&self, size: &dyn Fn(&str) -> i64) -> i64 {
        let sum = match self {
            Dim::Known(n) => return *n,
            Dim::Open(sum) => sum,
        };
        let atom = |a: &Atom| match a {
            Atom::Size(name) => size(name),
            Atom::Quotient(a, b) => a.at(size).checked_div_euclid(b.at(size)).unwrap_or(0),
            Atom::Max(a, b) => a.at(size).max(b.at(size)),
            Atom::Min(a, b) => a.at(size).min(b.at(size)),
        };
        let term = |(atoms, n): (&Vec<Atom>, &i64)| atoms.iter().fold(*n, |p, a| p.saturating_mul(atom(a)));
        sum.0.iter().map(term).fold(0, i64::saturating_add)
    }
}

impl Add for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return Dim::Known(a.saturating_add(*b));
        }
        let mut sum = self.terms();
        for (atoms, n) in other.terms().0 {
            let entry = sum.0.entry(atoms).or_insert(0);
            *entry = entry.saturating_add(n);
        }
        Dim::of(sum)
    }
}

impl Sub for &Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        self + &(other * &Dim::Known(-1))
    }
}

impl Mul for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return Dim::Known(a.saturating_mul(*b));
        }
        let (left, right) = (self.terms(), other.terms());
        let mut out = Sum::default();
        for (p, a) in &left.0 {
            for (q, b) in &right.0 {
                let mut atoms: Vec<Atom> = p.iter().chain(q).cloned().collect();
                atoms.sort();
                let entry = out.0.entry(atoms).or_insert(0);
                *entry = entry.saturating_add(a.saturating_mul(*b));
            }
        }
        Dim::of(out)
    }
}

/// How many elements there are.
pub fn product(dims: &[Dim]) -> Dim {
    dims.iter().fold(Dim::Known(1), |p, d| &p * d)
}

/// The dimensions that all of these broadcast to, or why they do not. Where sizes decide whether a dimension is 1, the result
/// is the larger.
pub(crate) fn broadcast_dims<'a>(shapes: impl Iterator<Item = &'a [Dim]> + Clone) -> Result<Vec<Dim>, Reason> {
    let rank = shapes.clone().map(<[Dim]>::len).max().unwrap_or(0);
    let mut out = vec![Dim::Known(1); rank];
    for shape in shapes.clone() {
        for (o, d) in out[rank - shape.len()..].iter_mut().zip(shape) {
            match (&*o, d) {
                (a, b) if a == b || b.is(1) => {}
                (a, b) if a.is(1) => *o = b.clone(),
                (Dim::Known(_), Dim::Known(_)) => {
                    let list: Vec<String> = shapes.map(described).collect();
                    return Err(Reason::Shape(format!("shapes {} do not broadcast", list.join(" and "))));
                }
                (Dim::Known(_), _) => {}
                (_, Dim::Known(_)) => *o = d.clone(),
                (a, b) => *o = a.larger(b),
            }
        }
    }
    Ok(out)
}

/// Extents that these shapes have at the same place, and that are equal unless one of them is 1.
pub(crate) fn aligned<'a>(shapes: impl Iterator<Item = &'a [Dim]>) -> Vec<(Dim, Dim)> {
    let mut first: Vec<&Dim> = Vec::new();
    let mut pairs = Vec::new();
    for shape in shapes {
        for (i, d) in shape.iter().rev().enumerate() {
            match first.get_mut(i) {
                None => first.push(d),
                Some(known) if known.is(1) => *known = d,
                Some(known) if d.is(1) || d == *known => {}
                Some(known) => pairs.push((known.clone(), d.clone())),
            }
        }
    }
    pairs
}

/// Dimensions as text.
pub(crate) fn described(dims: &[Dim]) -> String {
    let list: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", list.join(", "))
}

/// The constants, where all are.
pub fn known(dims: &[Dim]) -> Option<Vec<usize>> {
    dims.iter().map(Dim::known).collect()
}

impl fmt::Display for Dim {
    /// As people write it: `2*N*C+1`, `floor((H-1)/2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = match self {
            Dim::Known(n) => return write!(f, "{n}"),
            Dim::Open(sum) => sum,
        };
        // The constant part stands last.
        let (constant, rest): (Vec<_>, Vec<_>) = sum.0.iter().partition(|(atoms, _)| atoms.is_empty());
        for (i, (atoms, n)) in rest.into_iter().chain(constant).enumerate() {
            if i > 0 && *n >= 0 {
                write!(f, "+")?;
            }
            if atoms.is_empty() {
                write!(f, "{n}")?;
                continue;
            }
            match n {
                1 => {}
                -1 => write!(f, "-")?,
                n => write!(f, "{n}*")?,
            }
            let words: Vec<String> = atoms.iter().map(Atom::to_string).collect();
            write!(f, "{}", words.join("*"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |d: &Dim| {
            let text = d.to_string();
            if text.contains(['+', '-', '*']) { format!("({text})") } else { text }
        };
        match self {
            Atom::Size(name) => write!(f, "{name}"),
            Atom::Quotient(a, b) => write!(f, "floor({}/{})", part(a), part(b)),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(v: i64) -> Dim {
        Dim::Known(v)
    }

    #[test]
    fn equal_expressions_have_one_form() {
        let (s, p, c) = (Dim::size("seq"), Dim::size("past"), Dim::size("C"));
        assert_eq!(&(&s + &p) - &p, s);
        assert_eq!(product(&[s.clone(), n(4), c.clone()]).quotient(&product(&[c.clone(), s.clone()])), n(4));
        assert_eq!((&(&s * &n(6)) + &n(3)).quotient(&n(3)), &(&s * &n(2)) + &n(1));
        assert_eq!(&(&s + &n(1)) * &(&s - &n(1)), &(&s * &s) - &n(1));
        assert_eq!((&(&s + &p) * &n(3)).quotient(&(&s + &p)), n(3));
        assert_eq!(s.larger(&p), p.larger(&s));
        assert_eq!((&s + &n(1)).larger(&s), &s + &n(1));
        assert_eq!(&s - &s, n(0));
        assert!(s.differs(&(&s + &n(1))) && !s.differs(&p));
    }

    #[test]
    fn values_and_texts_follow_the_form() {
        let (s, p) = (Dim::size("seq"), Dim::size("past"));
        let half = (&s + &n(1)).quotient(&n(2));
        assert_eq!(half.to_string(), "floor((seq+1)/2)");
        assert_eq!((&(&s * &n(-2)) + &p).to_string(), "past-2*seq");
        assert_eq!(n(7).quotient_up(&n(2)), n(4));
        assert_eq!(s.quotient_up(&n(2)), half);
        let size = |name: &str| if name == "seq" { 7 } else { 3 };
        assert_eq!(half.at(&size), 4);
        assert_eq!((&s * &p).larger(&n(20)).at(&size), 21);
        assert_eq!((&s * &p).smaller(&n(20)).at(&size), 20);
        assert_eq!(Dim::Known(i64::MAX).at(&size), i64::MAX);
        assert_eq!(&Dim::Known(i64::MAX) * &n(2), n(i64::MAX));
    }
}
