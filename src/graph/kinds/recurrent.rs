//! Recurrent layers: LSTM, GRU and RNN as one kind.
//!
//! What the inputs contribute is computed before, for all steps at once; a step here adds the product of a state vector with
//! the recurrent matrix and updates the states by expressions. The loop over the steps is the kernels' affair.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, evaluate};
use crate::graph::rules::Broken;
use std::fmt;

/// A part of a step: products with one vector, then updates of vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The vector (states first, then temporaries) that is multiplied with the recurrent matrix.
    pub source: usize,
    /// First gate and number of gates whose products are computed.
    pub gates: (usize, usize),
    /// Vectors and what they become, unit by unit. Operands of the expressions, all of the same unit: what the inputs
    /// contribute to each gate, the product of each gate so far, the vectors before the phase, the parameters, and the
    /// results of earlier updates of this phase.
    pub updates: Vec<(usize, Expr)>,
}

/// `O` is `[steps + states, directions, batch, hidden]`: state 0 after each step (at the step's own place; 0 behind the end of
/// a sequence), then all states at the end.
///
/// Operands, all dense: what the inputs contribute `[steps, batch, directions, gates, hidden]`; the recurrent matrices
/// `[directions, hidden, gates, hidden]`; initial states `[states, directions, batch, hidden]`; parameters
/// `[parameters, directions, hidden]` (when there are any); lengths of the sequences `[batch]` as `i32` (when they differ).
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// Steps of the longest sequence.
    pub steps: usize,
    /// Sequences.
    pub batch: usize,
    /// Units.
    pub hidden: usize,
    /// Gates of a unit.
    pub gates: usize,
    /// Vectors that live from step to step; the first is the layer's output.
    pub states: usize,
    /// Vectors that live within a step.
    pub temporaries: usize,
    /// Parameters of a unit.
    pub parameters: usize,
    /// For each direction: whether it goes from the last step to the first.
    pub reverse: Vec<bool>,
    /// Sequences have lengths of their own.
    pub lengths: bool,
    /// What a step does.
    pub phases: Vec<Phase>,
}

impl Recurrent {
    /// Vectors of a step.
    pub fn vectors(&self) -> usize {
        self.states + self.temporaries
    }

    fn dims(&self) -> [usize; 4] {
        [self.steps + self.states, self.reverse.len(), self.batch, self.hidden]
    }
}

impl Kind for Recurrent {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn operands(&self) -> usize {
        3 + usize::from(self.parameters > 0) + usize::from(self.lengths)
    }

    fn infer(&self, operands: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        let (d, h, g) = (self.reverse.len(), self.hidden, self.gates);
        let sizes = [self.steps * self.batch * d * g * h, d * h * g * h, self.states * d * self.batch * h];
        for (i, n) in sizes.into_iter().enumerate() {
            if operands[i].1.iter().product::<usize>() != n {
                return Err(Broken::Fit(format!("operand {i} has not {n} elements")));
            }
        }
        Ok(Some(Inferred::new(operands[0].0, &self.dims())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        if step.inputs[..self.operands()].iter().any(|a| !a.view.is_dense()) {
            return Err(Broken::Layout("an operand of a recurrent layer is not dense"));
        }
        Ok(())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let operand = |i: usize| -> Result<&[f64], Error> {
            let from = at.view(i).offset as usize;
            Ok(&at.floats(i)?[from..])
        };
        let (x, r, initial) = (operand(0)?, operand(1)?, operand(2)?);
        let parameters = if self.parameters > 0 { operand(3)? } else { &[] };
        let (directions, h, g) = (self.reverse.len(), self.hidden, self.gates);
        let mut out = vec![0.0; self.dims().iter().product()];
        let place = |row: usize, d: usize, b: usize| ((row * directions + d) * self.batch + b) * h;
        let mut cells = Vec::new();
        for (d, reverse) in self.reverse.iter().enumerate() {
            for b in 0..self.batch {
                let length = match self.lengths {
                    true => {
                        let i = self.operands() - 1;
                        at.data(i).get(at.view(i).offset as usize + b).as_i64().clamp(0, self.steps as i64) as usize
                    }
                    false => self.steps,
                };
                let mut vectors = vec![vec![0.0; h]; self.vectors()];
                for s in 0..self.states {
                    vectors[s].copy_from_slice(&initial[place(s, d, b)..][..h]);
                }
                for t in 0..length {
                    let row = if *reverse { length - 1 - t } else { t };
                    let inputs = &x[((row * self.batch + b) * directions + d) * g * h..][..g * h];
                    let mut products = vec![0.0; g * h];
                    for phase in &self.phases {
                        for (k, v) in vectors[phase.source].iter().enumerate() {
                            let line = &r[(d * h + k) * g * h..][..g * h];
                            for i in phase.gates.0 * h..(phase.gates.0 + phase.gates.1) * h {
                                products[i] += v * line[i];
                            }
                        }
                        let mut results: Vec<Vec<f64>> = Vec::new();
                        for (_, expr) in &phase.updates {
                            let values = (0..h).map(|j| {
                                let input = |i: u32| {
                                    let i = i as usize;
                                    let vectors_at = 2 * g;
                                    let parameters_at = vectors_at + self.vectors();
                                    let results_at = parameters_at + self.parameters;
                                    Scalar::Float(match i {
                                        _ if i < g => inputs[i * h + j],
                                        _ if i < vectors_at => products[(i - g) * h + j],
                                        _ if i < parameters_at => vectors[i - vectors_at][j],
                                        _ if i < results_at => {
                                            parameters[((i - parameters_at) * directions + d) * h + j]
                                        }
                                        _ => results[i - results_at][j],
                                    })
                                };
                                evaluate(expr, None, &mut cells, input).as_f64()
                            });
                            let values = values.collect();
                            results.push(values);
                        }
                        for ((to, _), values) in phase.updates.iter().zip(results) {
                            vectors[*to] = values;
                        }
                    }
                    out[place(row, d, b)..][..h].copy_from_slice(&vectors[0]);
                }
                for s in 0..self.states {
                    out[place(self.steps + s, d, b)..][..h].copy_from_slice(&vectors[s]);
                }
            }
        }
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {
        // All four dimensions have a meaning.
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} steps of {} units with {} gates", self.steps, self.hidden, self.gates)
    }
}
