//! Tables of measured times: comma-separated values with a header, and what cells of them say.

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The header lacks a column.
    #[error("the table has no column '{0}'; its columns are: {1}")]
    NoColumn(&'static str, String),
    /// A line has not as many cells as the header.
    #[error("line {line}: {cells} cells, the header has {header}")]
    Cells {
        /// Number of the line, from 1.
        line: usize,
        /// Cells it has.
        cells: usize,
        /// Cells of the header.
        header: usize,
    },
    /// A cell is not a number.
    #[error("line {line}, column {column}: '{text}' is not a number")]
    Number {
        /// Number of the line, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A cell is no number of rows or steps.
    #[error("line {line}, column {column}: '{text}' is no extent (from 1 to 10^12)")]
    Extent {
        /// Number of the line, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// Nothing in it.
    #[error("the table is empty")]
    Empty,
}

/// Extents are less.
const LONGEST: f64 = 1e12;

/// A table of comma-separated values with a header; cells may be quoted.
pub struct Table<'a> {
    header: Vec<String>,
    lines: Vec<(usize, &'a str)>,
}

/// A line of a [`Table`].
pub struct Line<'t> {
    header: &'t [String],
    /// Number of the line, from 1.
    pub number: usize,
    cells: Vec<String>,
}

/// The cells of a line.
fn cells(line: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    for c in line.trim_end_matches('\r').chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => {
                if let Some(last) = out.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    out
}

impl<'a> Table<'a> {
    /// Reads the header; `needed` are columns that must be there.
    pub fn new(text: &'a str, needed: &[&'static str]) -> Result<Table<'a>, TableError> {
        let mut lines =
            text.lines().enumerate().map(|(n, l)| (n + 1, l)).filter(|l| !l.1.is_empty() && !l.1.starts_with('#'));
        let header = cells(lines.next().ok_or(TableError::Empty)?.1);
        for n in needed {
            if !header.iter().any(|h| h == n) {
                return Err(TableError::NoColumn(n, header.join(", ")));
            }
        }
        Ok(Table { header, lines: lines.collect() })
    }

    /// Its lines.
    pub fn lines(&self) -> impl Iterator<Item = Result<Line<'_>, TableError>> {
        self.lines.iter().map(|&(number, text)| {
            let cells = cells(text);
            if cells.len() != self.header.len() {
                return Err(TableError::Cells { line: number, cells: cells.len(), header: self.header.len() });
            }
            Ok(Line { header: &self.header, number, cells })
        })
    }
}

impl Line<'_> {
    /// The text of a column; empty for one that the table does not have.
    pub fn text(&self, column: &str) -> &str {
        self.header.iter().position(|h| h == column).map_or("", |i| &self.cells[i])
    }
    /// A number; `default` where the cell is empty.
    pub fn number(&self, column: &'static str, default: f64) -> Result<f64, TableError> {
        match self.text(column) {
            "" => Ok(default),
            "true" => Ok(1.0),
            "false" => Ok(0.0),
            t => {
                let number = t.parse().ok().filter(|x: &f64| x.is_finite());
                number.ok_or_else(|| TableError::Number { line: self.number, column, text: t.to_string() })
            }
        }
    }
    /// A number of rows, steps and the like: at least one.
    pub fn extent(&self, column: &'static str, default: f64) -> Result<f64, TableError> {
        let number = self.number(column, default)?;
        let text = || self.text(column).to_string();
        let fits = (1.0..LONGEST).contains(&number);
        if fits { Ok(number) } else { Err(TableError::Extent { line: self.number, column, text: text() }) }
    }
    /// A list such as `[16, 16, 1]`; names of anchors (`*id010 ...`) are not numbers.
    pub fn list(&self, column: &str) -> Vec<f64> {
        let text = self.text(column);
        if text.starts_with(['*', '&']) && !text.contains('[') {
            return Vec::new();
        }
        let inner = text.split_once('[').map_or("", |t| t.1);
        inner.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|n| n.parse().ok()).collect()
    }
}
