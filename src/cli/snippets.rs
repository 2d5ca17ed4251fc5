//! Mistakes in assembly as pictures of the lines they are in, with every place that has to do with them.

use super::terminal::{has_colours, made_visible};
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use barewave_isa::AsmError;
use std::ops::Range;

/// A line of the source with something marked in it.
struct Marked {
    line: usize,
    text: String,
    span: Range<usize>,
    label: String,
}

/// What is at columns `column..end` (from 1) of a line (from 1), without control characters.
fn marked(lines: &[&str], line: usize, column: usize, end: usize, label: &str) -> Marked {
    let text = lines.get(line.wrapping_sub(1)).copied().unwrap_or("");
    let at = |column: usize| {
        let column = column.saturating_sub(1).min(text.len());
        (0..=column).rev().find(|c| text.is_char_boundary(*c)).unwrap_or(0)
    };
    let (from, to) = (at(column), at(end.max(column)));
    let before = made_visible(&text[..from]);
    let inside = made_visible(&text[from..to]);
    let span = before.len()..before.len() + inside.len();
    let text = before + &inside + &made_visible(&text[to..]);
    Marked { line, text, span, label: made_visible(label) }
}

/// Draws all mistakes of a source.
pub fn render(name: &str, source: &str, errors: &[AsmError]) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let name = made_visible(name);
    let renderer = if has_colours() { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for e in errors {
        let message = made_visible(&e.message);
        let primary = marked(&lines, e.line, e.column, e.end, "");
        let related: Vec<Marked> =
            e.related.iter().map(|r| marked(&lines, r.line, r.column, r.end, &r.message)).collect();
        let snippet = |m: &'_ Marked, kind: AnnotationKind| {
            let annotation = kind.span(m.span.clone());
            let annotation = if m.label.is_empty() { annotation } else { annotation.label(m.label.clone()) };
            Snippet::source(m.text.clone()).line_start(m.line).path(name.clone()).annotation(annotation)
        };
        let mut group: Group = Level::ERROR.primary_title(message).element(snippet(&primary, AnnotationKind::Primary));
        for r in &related {
            group = group.element(snippet(r, AnnotationKind::Context));
        }
        out += &renderer.render(&[group]);
        out.push('\n');
    }
    if errors.len() > 1 {
        out += &format!("{} errors\n", errors.len());
    }
    out
}
