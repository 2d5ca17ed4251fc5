//! Beside the tile that the compiler chooses by its estimate: what the full model says of the best candidates.

use crate::Result;
use crate::cycles;
use barewave::graph::fused::FusedGraph;
use barewave::kernels::{Candidate, EQUAL_SHARES, Product, Tuned, Tuning, Way, candidates};
use barewave::{Compiler, Model, Shapes};
use barewave_isa::Target;
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::sync::Arc;

/// A product's candidates by the full model.
pub struct Search {
    product: Product,
    /// Each with the clocks of all launches; the one that the compiler chooses first.
    tried: Vec<(Candidate, f64)>,
}

impl Search {
    /// Models a shape with each of the `most` best candidates for its first product. Nothing where it has none, or is sooner computed line by line.
    pub fn of(target: Target, model: &Model, graph: &FusedGraph, most: usize) -> Result<Option<Search>> {
        let considered = graph.steps.iter().find_map(|s| candidates(graph, s, target, &Tuning::default()));
        let Some(considered) = considered.filter(|c| !c.by_lines) else { return Ok(None) };
        let mut tried = Vec::new();
        for candidate in considered.candidates.into_iter().take(most) {
            let mut tuning = Tuning::default();
            tuning.insert(considered.product.clone(), Tuned::from(&candidate));
            let options = barewave::Options { tuning: Arc::new(tuning), ..barewave::Options::default() };
            // What the estimate knows of a product does not tell all of its ways: equal shares have no rests.
            let Ok(compiled) = Compiler::new(target, options).compile(model, &Shapes::default()) else { continue };
            let launches = cycles::plan(&compiled, 0)?;
            if launches.iter().all(|l| l.modelled.is_ok()) {
                let clocks = launches.iter().filter_map(|l| l.modelled.as_ref().ok()).map(|m| m.clocks);
                tried.push((candidate, clocks.sum()));
            }
        }
        Ok((!tried.is_empty()).then_some(Search { product: considered.product, tried }))
    }

    fn best(&self) -> &(Candidate, f64) {
        self.tried.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(&self.tried[0])
    }

    /// Clocks of what is chosen over those of the best.
    fn regret(&self) -> f64 {
        self.tried[0].1 / self.best().1
    }

    /// Puts the best into a tuning, where it is not what is chosen anyway.
    pub fn tune(&self, tuning: &mut Tuning) {
        if self.regret() > 1.0 {
            tuning.insert(self.product.clone(), Tuned::from(&self.best().0));
        }
    }

    /// Machine-readable.
    pub fn json(&self) -> Value {
        let tried = self.tried.iter().map(
            |(c, clocks)| json!({ "tile": c.tile, "parts": c.parts, "way": c.way.word(), "estimate": c.clocks.round(), "cycles": clocks.round() }),
        );
        json!({ "tried": tried.collect::<Vec<_>>(), "chosen_over_best": self.regret() })
    }
}

/// `64x64x16` and how often the depth is shared.
pub fn name(c: &Candidate) -> String {
    let [m, n, k] = c.tile;
    let parts = match c.parts {
        EQUAL_SHARES => ", equal shares".into(),
        1 => String::new(),
        parts => format!(", depth in {parts} parts"),
    };
    let way = match c.way {
        Way::Rounds => "",
        Way::Winograd => ", Winograd",
        Way::Slices => ", waves share the depth",
        Way::Columns => ", columns of all rows",
    };
    format!("{m}x{n}x{k}{parts}{way}")
}

/// Prints what was found for each shape, and how good estimate and choice are altogether.
pub fn print(all: &[(&str, &Search)]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["shape", "chosen", "cycles", "best tried", "cycles", "chosen / best", "tried"]);
    for (shape, s) in all {
        let ((chosen, clocks), (best, least)) = (&s.tried[0], s.best());
        table.add_row([
            shape.to_string(),
            name(chosen),
            format!("{clocks:.0}"),
            name(best),
            format!("{least:.0}"),
            format!("{:.3}", s.regret()),
            s.tried.len().to_string(),
        ]);
    }
    println!("\n{table}");
    let regrets: Vec<f64> = all.iter().map(|(_, s)| s.regret()).collect();
    let mut errors: Vec<f64> =
        all.iter().flat_map(|(_, s)| &s.tried).map(|(c, clocks)| c.clocks / clocks - 1.0).collect();
    errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    if let (Some(middle), false) = (errors.get(errors.len() / 2), regrets.is_empty()) {
        let mean = (regrets.iter().map(|r| r.ln()).sum::<f64>() / regrets.len() as f64).exp();
        let within = regrets.iter().filter(|r| **r <= 1.05).count();
        println!(
            "the choice over the best of what was tried: {mean:.3} (geometric mean), within 5% for {within} of {}; the estimate \
             differs from the full model by {:.0}% (median of {} kernels)",
            regrets.len(),
            100.0 * middle.abs(),
            errors.len()
        );
    }
}
