//! Parts of the pages that `run --profile` and `compile --report` write: one file each, with inline SVG and nothing else.

use barewave::output;
use barewave::runtime::plan::{Plan, Region};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Text in a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The first characters of a text.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// Writes a page, whole or not at all.
pub fn save(path: &Path, title: &str, body: &str) -> super::Result {
    let title = escape(title);
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>{STYLE}</head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    );
    Ok(output::write(path, |w| std::io::Write::write_all(w, text.as_bytes()))?)
}

const STYLE: &str = "<style>body{font:14px sans-serif;margin:2em;max-width:1100px}table{border-collapse:collapse}\
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}td.text,td:first-child,th:first-child{text-align:left}\
pre,.scroll{background:#f6f6f6;overflow:auto;max-height:40em}pre{padding:1em;font-size:12px}svg{background:#fafafa}\
svg.wide{width:100%}svg text{font-size:11px}.roof,.line{fill:none;stroke:#333;stroke-width:2}.edge{fill:none;stroke:#999}\
.limit{stroke:#999;stroke-dasharray:4}circle{fill:#c33;opacity:.7}.node rect{stroke:#555}.small{fill:#555}</style>";

/// Things side by side, as wide as they take long; the mouse over one tells its name.
pub fn timeline(id: &str, parts: &[(&str, f64)]) -> String {
    let total: f64 = parts.iter().map(|l| l.1).sum::<f64>().max(1e-9);
    let mut out = format!(
        "<svg class=\"wide\" id=\"{id}\" viewBox=\"0 0 1000 60\" preserveAspectRatio=\"none\" style=\"height:60px\">"
    );
    let mut at = 0.0;
    for (i, (name, us)) in parts.iter().enumerate() {
        let width = 1000.0 * us / total;
        let hue = (i * 47) % 360;
        let _ = write!(
            out,
            "<rect x=\"{at:.2}\" y=\"5\" width=\"{:.2}\" height=\"50\" fill=\"hsl({hue},60%,65%)\"><title>{} {us:.1} us</title></rect>",
            width.max(0.2),
            escape(name)
        );
        at += width;
    }
    out + "</svg>"
}

/// A plan that ran, with what each of its launches took.
pub struct Ran<'p, 't> {
    pub plan: &'p Plan,
    /// Microseconds.
    pub us: &'t [f64],
}

/// Bytes of intermediate tensors that hold something, launch by launch; each as wide as it takes long.
pub fn memory(ran: &[Ran]) -> String {
    const W: f64 = 1000.0;
    const H: f64 = 160.0;
    let most = |bytes: &dyn Fn(&Plan) -> u64| ran.iter().map(|r| bytes(r.plan)).max().unwrap_or(0);
    let arena = most(&|p| p.arena_bytes);
    let total: f64 = ran.iter().flat_map(|r| r.us).sum::<f64>().max(1e-9);
    let y = |bytes: u64| H - 20.0 - (H - 40.0) * bytes as f64 / arena.max(1) as f64;
    let mib = |b: u64| b as f64 / f64::from(1 << 20);
    let mut out = format!(
        "<h2>Memory</h2><p>Intermediate tensors: {:.3} MiB at most, in an arena of {:.3} MiB ({:.3} MiB without reuse); \
         weights {:.3} MiB.</p><svg class=\"wide\" id=\"memory\" viewBox=\"0 0 {W} {H}\">",
        mib(most(&|p| p.launches.iter().map(|l| l.live_bytes).max().unwrap_or(0))),
        mib(arena),
        mib(most(&|p| p.sum_bytes)),
        mib(most(&|p| p.weights_bytes))
    );
    let mut at = 0.0;
    for (l, us) in ran.iter().flat_map(|r| r.plan.launches.iter().zip(r.us)) {
        let width = W * us / total;
        let (top, title) =
            (y(l.live_bytes), escape(&format!("{}: {:.3} MiB, {}", l.kernel, mib(l.live_bytes), l.step)));
        let _ = write!(
            out,
            "<rect x=\"{at:.2}\" y=\"{top:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"#69c\"><title>{title}</title></rect>",
            width.max(0.2),
            (H - 20.0 - top).max(0.5)
        );
        at += width;
    }
    let top = y(arena);
    let _ = write!(
        out,
        "<line class=\"limit\" x1=\"0\" x2=\"{W}\" y1=\"{top:.1}\" y2=\"{top:.1}\"/><text x=\"4\" y=\"{:.1}\">arena, {:.3} MiB</text></svg>",
        top - 4.0,
        mib(arena)
    );
    out
}

const NODE_W: f64 = 240.0;
const NODE_H: f64 = 36.0;
const GAP_X: f64 = 16.0;
const GAP_Y: f64 = 28.0;

/// A node of the drawing.
struct Node {
    text: [String; 2],
    title: String,
    /// Share of the longest launch; none for inputs and outputs.
    share: Option<f64>,
    from: Vec<usize>,
    layer: usize,
    x: f64,
}

/// The launches of a model as a graph from its inputs to its outputs, each with its operators and time.
pub fn graph(plan: &Plan, us: &[f64]) -> String {
    let mut nodes = nodes(plan, us);
    for i in 0..nodes.len() {
        nodes[i].layer = nodes[i].from.iter().map(|f| nodes[*f].layer + 1).max().unwrap_or(0);
    }
    let mut layers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    nodes.iter().enumerate().for_each(|(i, n)| layers.entry(n.layer).or_default().push(i));
    let most = layers.values().map(Vec::len).max().unwrap_or(1) as f64;
    let width = most * (NODE_W + GAP_X) + GAP_X;
    for members in layers.values_mut() {
        // below what they read, as far as there is room
        let wish = |n: &Node| n.from.iter().map(|f| nodes[*f].x).sum::<f64>() / n.from.len().max(1) as f64;
        let mut wished: Vec<(f64, usize)> = members.iter().map(|i| (wish(&nodes[*i]), *i)).collect();
        wished.sort_by(|a, b| a.0.total_cmp(&b.0));
        let left = (width - wished.len() as f64 * (NODE_W + GAP_X) + GAP_X) / 2.0;
        for (place, (_, i)) in wished.into_iter().enumerate() {
            nodes[i].x = left + place as f64 * (NODE_W + GAP_X);
        }
    }
    let height = layers.len() as f64 * (NODE_H + GAP_Y) + GAP_Y;
    let top = |n: &Node| GAP_Y / 2.0 + n.layer as f64 * (NODE_H + GAP_Y);
    let mut out = format!("<div class=\"scroll\"><svg class=\"graph\" width=\"{width:.0}\" height=\"{height:.0}\">");
    for n in &nodes {
        for from in n.from.iter().map(|f| &nodes[*f]) {
            let (x1, y1, x2, y2) = (from.x + NODE_W / 2.0, top(from) + NODE_H, n.x + NODE_W / 2.0, top(n));
            let middle = (y1 + y2) / 2.0;
            let _ = write!(
                out,
                "<path class=\"edge\" d=\"M{x1:.0} {y1:.0}C{x1:.0} {middle:.0} {x2:.0} {middle:.0} {x2:.0} {y2:.0}\"/>"
            );
        }
    }
    for n in &nodes {
        let (x, y) = (n.x, top(n));
        let (fill, round) = match n.share {
            Some(share) => (format!("hsl(20,90%,{:.0}%)", 96.0 - 40.0 * share), 3),
            None => ("#def".into(), 18),
        };
        let _ = write!(
            out,
            "<g class=\"node\"><title>{}</title><rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{NODE_W}\" height=\"{NODE_H}\" rx=\"{round}\" \
             fill=\"{fill}\"/><text x=\"{:.0}\" y=\"{:.0}\">{}</text><text class=\"small\" x=\"{:.0}\" y=\"{:.0}\">{}</text></g>",
            escape(&n.title),
            x + 8.0,
            y + 15.0,
            escape(&n.text[0]),
            x + 8.0,
            y + 29.0,
            escape(&n.text[1])
        );
    }
    out + "</svg></div>"
}

/// Inputs, launches in order, outputs: each behind what it comes from.
fn nodes(plan: &Plan, us: &[f64]) -> Vec<Node> {
    let longest = us.iter().copied().fold(1e-9, f64::max);
    let port = |name: &str, what: String, from: Vec<usize>| Node {
        text: [shortened(name, 36), what],
        title: name.to_string(),
        share: None,
        from,
        layer: 0,
        x: 0.0,
    };
    let mut nodes: Vec<Node> = plan.inputs.iter().map(|p| port(&p.name, p.described(), Vec::new())).collect();
    let inputs = nodes.len();
    for (i, l) in plan.launches.iter().enumerate() {
        let us = us.get(i).copied().unwrap_or(0.0);
        let given = l.args.iter().filter_map(|a| if let Region::Input(k) = a.region { Some(k) } else { None });
        let mut from: Vec<usize> = given.chain(l.after.iter().map(|a| *a as usize + inputs)).collect();
        // A file may say anything.
        from.retain(|f| *f < inputs + i);
        from.sort_unstable();
        from.dedup();
        nodes.push(Node {
            text: [shortened(&l.step, 36), format!("{}  {us:.1} us", shortened(&l.kernel, 24))],
            title: format!("{}: {us:.1} us, {}", l.kernel, l.step),
            share: Some(us / longest),
            from,
            layer: 0,
            x: 0.0,
        });
    }
    for (k, p) in plan.outputs.iter().enumerate() {
        let writes = |l: &barewave::runtime::plan::Launch| l.args.iter().any(|a| a.region == Region::Output(k));
        let from = plan.launches.iter().rposition(writes).map(|l| l + inputs);
        nodes.push(port(&p.name, p.described(), from.into_iter().collect()));
    }
    nodes
}
