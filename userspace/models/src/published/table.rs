//! Reader of the embedded tables: a citation line, a header, rows of cells.

/// A published table.
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// One of its rows.
pub(super) struct Row<'table> {
    table: &'table Table,
    cells: &'table [&'static str],
}

impl Table {
    /// Parses an embedded table; its cells hold no quotes.
    pub(super) fn new(text: &'static str) -> Self {
        let mut lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| line.split(',').collect::<Vec<_>>());
        Self {
            header: lines.next().unwrap_or_default(),
            rows: lines.collect(),
        }
    }

    /// Its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
    }

    /// The first row whose `column` holds `value`.
    pub(super) fn find(&self, column: &str, value: &str) -> Option<Row<'_>> {
        self.rows().find(|row| row.text(column) == value)
    }
}

impl Row<'_> {
    /// A cell; empty if there is no such column.
    pub(super) fn text(&self, column: &str) -> &'static str {
        self.table
            .header
            .iter()
            .position(|name| *name == column)
            .and_then(|index| self.cells.get(index))
            .copied()
            .unwrap_or_default()
    }

    /// A cell as a number; `None` if it is empty.
    pub(super) fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    /// One unit of the last printed digit of a cell.
    pub(super) fn last_digit(&self, column: &str) -> f64 {
        let decimals = self
            .text(column)
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len());
        10_f64.powi(-i32::try_from(decimals).unwrap_or(i32::MAX))
    }
}
