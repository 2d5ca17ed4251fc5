//! Compiling ahead of the run.
//!
//! A decode loop gives its model a cache that is one token longer at each step: every run has new shapes, and which ones
//! come next is plain from those that came before. When the extents of all inputs have grown by the same twice, a thread of
//! its own compiles for the shapes that come if they do so again, while the device works. A foresight that was wrong costs
//! processor time and nothing else: what nobody asks for is dropped.

use crate::compile::{self, Compiled};
use std::thread::{self, JoinHandle};

/// Extents of all inputs, in the model's order.
pub(super) type Extents = Vec<Vec<usize>>;

/// What came, and what is made for what may come.
#[derive(Default)]
pub(super) struct Ahead {
    /// The last extents that the model was compiled for, and those before them.
    seen: Option<(Extents, Option<Extents>)>,
    coming: Option<Coming>,
    /// Extents alone do not decide how this model looks.
    needs_values: bool,
    foreseen: usize,
}

struct Coming {
    extents: Extents,
    made: JoinHandle<Result<Compiled, compile::Error>>,
}

impl Ahead {
    /// How often what came had been foreseen.
    pub fn foreseen(&self) -> usize {
        self.foreseen
    }

    /// The model for these extents, if that was made; waits while it is being made.
    pub fn take(&mut self, extents: &Extents) -> Option<Compiled> {
        let coming = self.coming.take_if(|c| c.extents == *extents)?;
        match coming.made.join() {
            Ok(Ok(compiled)) => {
                self.foreseen += 1;
                Some(compiled)
            }
            // Whoever compiles it now finds out why.
            _ => {
                self.needs_values = true;
                None
            }
        }
    }

    /// The model was compiled for these extents: has `compile` make it for those that come next, if that is plain.
    pub fn saw<F>(&mut self, extents: Extents, compile: impl FnOnce(Extents) -> F)
    where
        F: FnOnce() -> Result<Compiled, compile::Error> + Send + 'static,
    {
        let before = self.seen.take();
        let next = before.as_ref().and_then(|(b, a)| following(a.as_ref()?, b, &extents));
        self.seen = Some((extents, before.map(|(last, _)| last)));
        self.coming = match next {
            Some(next) if !self.needs_values => {
                let made = thread::Builder::new().name("ahead".into()).spawn(compile(next.clone()));
                made.ok().map(|made| Coming { extents: next, made })
            }
            _ => None,
        };
    }
}

/// What comes after three of a row whose members are equally far apart.
fn following(a: &Extents, b: &Extents, c: &Extents) -> Option<Extents> {
    let ranks = |e: &Extents| e.iter().map(Vec::len).collect::<Vec<_>>();
    if b == c || ranks(a) != ranks(b) || ranks(b) != ranks(c) {
        return None;
    }
    let next = |((a, b), c): ((&usize, &usize), &usize)| {
        // Equal steps: a + c is twice b, and what comes next is c + (b - a).
        (a.checked_add(*c)? == b.checked_mul(2)?).then(|| c.checked_add(*b)?.checked_sub(*a)).flatten()
    };
    let all = a.iter().zip(b).zip(c);
    all.map(|((a, b), c)| a.iter().zip(b).zip(c).map(next).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_even_steps_are_followed() {
        let e = |past: usize, total: usize| vec![vec![1, 4, past, 16], vec![1, total], vec![]];
        assert_eq!(following(&e(3, 4), &e(4, 5), &e(5, 6)), Some(e(6, 7)));
        assert_eq!(following(&e(9, 4), &e(6, 4), &e(3, 4)), Some(e(0, 4)));
        assert_eq!(following(&e(3, 4), &e(4, 5), &e(6, 6)), None, "not the same step");
        assert_eq!(following(&e(2, 4), &e(1, 4), &e(0, 4)), None, "below zero");
        assert_eq!(following(&e(3, 4), &e(3, 4), &e(3, 4)), None, "no step");
        assert_eq!(following(&vec![vec![1]], &vec![vec![1, 1]], &vec![vec![1, 1]]), None, "another rank");
    }
}
