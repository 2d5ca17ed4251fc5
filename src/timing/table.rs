//! Tables of measured times: comma-separated values with a header, and what cells of them say.

use csv::{Position, ReaderBuilder, StringRecord};

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
        line: u64,
        /// Cells it has.
        cells: usize,
        /// Cells of the header.
        header: usize,
    },
    /// What the reader of comma-separated values says of it.
    #[error("the table cannot be read: {0}")]
    Csv(#[from] csv::Error),
    /// A cell is not a number.
    #[error("line {line}, column {column}: '{text}' is not a number")]
    Number {
        /// Number of the line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A cell is no number of rows or steps.
    #[error("line {line}, column {column}: '{text}' is no extent (from 1 to 10^12)")]
    Extent {
        /// Number of the line, from 1.
        line: u64,
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

/// A table of comma-separated values with a header; cells may be quoted, and lines that begin with `#` are comments.
pub struct Table<'a> {
    header: StringRecord,
    text: &'a str,
    reader: csv::Reader<&'a [u8]>,
}

/// A line of a [`Table`].
pub struct Line {
    header: StringRecord,
    /// Number of the line, from 1.
    pub number: u64,
    cells: StringRecord,
}

impl<'a> Table<'a> {
    /// Reads the header; `needed` are columns that must be there.
    pub fn new(text: &'a str, needed: &[&'static str]) -> Result<Table<'a>, TableError> {
        let mut reader = ReaderBuilder::new().comment(Some(b'#')).flexible(true).from_reader(text.as_bytes());
        let header = reader.headers()?.clone();
        if header.is_empty() {
            return Err(TableError::Empty);
        }
        for n in needed {
            if !header.iter().any(|h| h == *n) {
                return Err(TableError::NoColumn(n, header.iter().collect::<Vec<_>>().join(", ")));
            }
        }
        Ok(Table { header, text, reader })
    }

    /// Its lines.
    pub fn lines(self) -> impl Iterator<Item = Result<Line, TableError>> + 'a {
        let Table { header, text, reader } = self;
        // A record's position is that of the comments and empty lines in front of it.
        let number = move |at: &Position| {
            let behind = text.get(at.byte() as usize..).unwrap_or("");
            at.line() + behind.lines().take_while(|l| l.is_empty() || l.starts_with('#')).count() as u64
        };
        reader.into_records().map(move |cells| {
            let cells = cells?;
            let number = cells.position().map_or(0, number);
            if cells.len() != header.len() {
                return Err(TableError::Cells { line: number, cells: cells.len(), header: header.len() });
            }
            Ok(Line { header: header.clone(), number, cells })
        })
    }
}

impl Line {
    /// The text of a column; empty for one that the table does not have.
    pub fn text(&self, column: &str) -> &str {
        self.header.iter().position(|h| h == column).and_then(|i| self.cells.get(i)).unwrap_or("")
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# measured\nname,n\r\n\n\"a, b\",1\n# more\n\nc,[2\nd,e,f\n";

    #[test]
    fn lines_have_their_numbers() {
        let lines: Vec<_> = Table::new(TEXT, &["n"]).unwrap().lines().collect();
        let [Ok(a), Ok(c), Err(TableError::Cells { line: 8, cells: 3, header: 2 })] = &lines[..] else {
            panic!("{:?}", lines.iter().map(|l| l.as_ref().map(|l| l.number)).collect::<Vec<_>>())
        };
        assert_eq!((a.number, a.text("name"), a.number("n", 0.0).unwrap()), (4, "a, b", 1.0));
        let wrong = c.extent("n", 1.0).unwrap_err().to_string();
        assert_eq!(wrong, "line 7, column n: '[2' is not a number");
        assert!(matches!(Table::new("# nothing\n\n", &[]).map(|_| ()), Err(TableError::Empty)));
        assert!(matches!(Table::new(TEXT, &["m"]).map(|_| ()), Err(TableError::NoColumn("m", _))));
    }
}
