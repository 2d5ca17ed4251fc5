//! What a run made: written to files, compared, and reported as text or JSON.

use super::cycles::{self, Launched};
use super::inputs::Outputs;
use super::run::{Args, split};
use super::terminal::shortened;
use super::{Failure, Result};
use barewave::runtime::{Device, RunReport};
use barewave::tensor::{Comparison, HostTensor, ImageOptions, Wanted, compare, format_top, top_k};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// When a model was compiled.
pub enum Compiling {
    /// Before it ran, in so many milliseconds; `None`: ahead of time.
    Before(Option<f64>),
    /// In stages, between which it ran; with compiling all took so many milliseconds.
    Between(f64),
}

/// What a run made.
pub struct Made<'a> {
    pub results: Vec<HostTensor>,
    pub report: RunReport,
    /// Names, types and shapes of the results.
    pub makes: Vec<Wanted>,
    /// Each launch by the cycle model, where it was asked.
    pub modelled: Vec<Launched>,
    /// The model's.
    pub metadata: &'a BTreeMap<String, String>,
}

/// What is reported besides.
struct Found<'f> {
    compiling: Compiling,
    device: Arc<dyn Device>,
    /// The largest elements of the first output.
    best: Vec<(usize, f64)>,
    labels: Vec<String>,
    written: Vec<(&'f Path, String)>,
    compared: Vec<(usize, Comparison)>,
}

impl Made<'_> {
    /// Writes, compares and reports as the arguments say.
    ///
    /// # Errors
    /// When a file cannot be written or an output differs from what is expected.
    #[allow(clippy::too_many_arguments)]
    pub fn finish(
        self,
        args: &Args,
        labels: &[String],
        device: Arc<dyn Device>,
        compiling: Compiling,
        outputs: Outputs,
        expected: Vec<(usize, HostTensor)>,
        images: &ImageOptions,
    ) -> Result {
        let compared = expected
            .iter()
            .map(|(i, want)| Ok((*i, compare(&self.results[*i], want, args.rtol, args.atol).map_err(Failure::new)?)))
            .collect::<Result<Vec<(usize, Comparison)>>>()?;
        let known = self.metadata.get("labels");
        let k = args.top.unwrap_or(if labels.is_empty() && known.is_none() { 0 } else { 3 });
        let labels = if labels.is_empty() { known.map(|l| split(l)).unwrap_or_default() } else { labels.to_vec() };
        let best = self.results.first().map(|first| top_k(first, k)).unwrap_or_default();
        let written = outputs.write(&self.makes, &self.results, images)?;
        let failed = compared.iter().filter(|(_, c)| !c.passes()).count();
        let found = Found { compiling, device, best, labels, written, compared };
        if args.json {
            println!("{:#}", self.json(&found));
        } else {
            self.print(args, &found);
        }
        if failed > 0 { Err(Failure::new(format!("{failed} outputs differ from what was expected"))) } else { Ok(()) }
    }

    fn json(&self, found: &Found<'_>) -> Value {
        let top = |(i, value): &(usize, f64)| json!({ "index": i, "value": value, "label": found.labels.get(*i) });
        let launches: Vec<Value> = self
            .report
            .per_launch
            .iter()
            .enumerate()
            .map(|(i, l)| {
                let modelled = self.modelled.get(i).and_then(|m| m.modelled.as_ref().ok()).map(cycles::json);
                json!({
                    "kernel": l.kernel, "operators": l.step, "milliseconds": l.time.as_secs_f64() * 1e3,
                    "instructions": l.instructions, "modelled": modelled,
                })
            })
            .collect();
        let written = |(file, what): &(&Path, String)| json!({ "file": file, "outputs": what });
        let expected = |(i, c): &(usize, Comparison)| {
            json!({
                "output": self.makes[*i].name, "passes": c.passes(), "max_error": c.max_error, "at": c.worst,
                "relative_error": c.relative(), "outside": c.outside, "elements": c.count,
            })
        };
        let output = |w: &Wanted| json!({ "name": w.name, "type": w.dtype.name(), "shape": w.shape });
        let (compile_ms, staged_ms) = match found.compiling {
            Compiling::Before(ms) => (ms, None),
            Compiling::Between(ms) => (None, Some(ms)),
        };
        let info = found.device.info();
        json!({
            "device": info.name, "target": info.target.info().name, "compile_ms": compile_ms, "staged_ms": staged_ms,
            "run_ms": self.report.time.as_secs_f64() * 1e3, "kernels": self.report.launches,
            "instructions": self.report.instructions, "launches": launches,
            "outputs": self.makes.iter().map(output).collect::<Vec<_>>(),
            "top": found.best.iter().map(top).collect::<Vec<_>>(),
            "written": found.written.iter().map(written).collect::<Vec<_>>(),
            "expected": found.compared.iter().map(expected).collect::<Vec<_>>(),
        })
    }

    fn print(&self, args: &Args, found: &Found<'_>) {
        let ms = self.report.time.as_secs_f64() * 1e3;
        let counted = self.report.instructions.map_or(String::new(), |n| format!(", {n} wave instructions"));
        match found.compiling {
            Compiling::Before(Some(ms)) => println!("compile  {ms:.1} ms"),
            Compiling::Before(None) => println!("compile  none (ahead of time)"),
            Compiling::Between(_) => {}
        }
        let staged = match found.compiling {
            Compiling::Between(whole) => format!(", in stages; {whole:.1} ms with compiling"),
            Compiling::Before(_) => String::new(),
        };
        println!("run      {ms:.1} ms, {} kernels{counted}{staged}", self.report.launches);
        let listed = if args.timing { &self.report.per_launch[..] } else { &[] };
        for (i, l) in listed.iter().enumerate() {
            let ms = l.time.as_secs_f64() * 1e3;
            let counted = l.instructions.map_or(String::new(), |n| format!("{n:12} instructions"));
            let on_chip = match self.modelled.get(i).map(|m| &m.modelled) {
                Some(Ok(m)) => {
                    format!("  modelled {:8.1} us {:7}{}", m.microseconds, m.bound.name(), cycles::note(m))
                }
                Some(Err(_)) => "  not modelled".into(),
                None => String::new(),
            };
            println!("  {ms:9.3} ms {counted}{on_chip}  {:16} {}", l.kernel, shortened(&l.step));
        }
        if let Some(path) = &args.profile {
            println!("profile  {}", path.display());
        }
        if !found.best.is_empty() {
            println!("top {}:", found.best.len());
            print!("{}", format_top(&found.best, &found.labels));
        }
        for (file, what) in &found.written {
            println!("wrote    {} ({what})", file.display());
        }
        for (i, c) in &found.compared {
            println!("{} {c}", shortened(&self.makes[*i].name));
        }
    }
}
