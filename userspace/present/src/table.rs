//! Tables: columns that line up on a terminal, or Markdown. A [`crate::Page`] shows the same ones.
//!
//! Model: a header and rows of cells. The first columns hold text and stand to the left, the others hold numbers and
//! stand to the right; two spaces are between columns.

use std::fmt;

/// Rows of cells under a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Columns of text.
    pub(crate) text: usize,
    widths: &'static [usize],
    indent: usize,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    /// Whether a page has it stand out.
    pub(crate) flagged: bool,
}

impl Table {
    /// A table with a header only; its first `text` columns hold text. An empty header is not shown.
    #[must_use]
    pub fn new(text: usize, header: &[&str]) -> Self {
        Self {
            header: header.iter().map(ToString::to_string).collect(),
            text,
            ..Self::default()
        }
    }

    /// On a terminal: columns that are at least so wide, for a table that is shown again and again and must not move.
    #[must_use]
    pub fn widths(mut self, least: &'static [usize]) -> Self {
        self.widths = least;
        self
    }

    /// On a terminal: so many spaces before each line.
    #[must_use]
    pub fn indent(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.push(cells, false);
    }

    /// Adds a row that stands out on a page if it is `flagged`: what a reader must not overlook.
    pub fn push(&mut self, cells: Vec<String>, flagged: bool) {
        self.rows.push(Row { cells, flagged });
    }

    /// Whether there is nothing but the header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = |column| if column < self.text { "---" } else { "---:" };
        let rules: Vec<&str> = (0..self.header.len()).map(rule).collect();
        let head = format!("{}|{}|\n", line(&self.header), rules.join("|"));
        self.rows.iter().fold(head, |text, row| text + &line(&row.cells))
    }

    /// All lines, the header first.
    fn lines(&self) -> impl Iterator<Item = &[String]> {
        let header = Some(self.header.as_slice()).filter(|header| !header.is_empty());
        header
            .into_iter()
            .chain(self.rows.iter().map(|row| row.cells.as_slice()))
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.lines().filter_map(|line| line.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.widths.get(column).copied().unwrap_or(0))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.lines().map(<[String]>::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        for cells in self.lines() {
            let padded = cells.iter().zip(&widths).enumerate();
            let padded: Vec<String> = padded
                .map(|(column, (cell, &width))| {
                    if column < self.text {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            writeln!(
                f,
                "{:indent$}{}",
                "",
                padded.join("  ").trim_end(),
                indent = self.indent
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(1, &["name", "time, us"]);
        table.row(vec!["a".into(), "1".into()]);
        table.push(vec!["länger".into(), "12.5".into()], true);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            table().to_string(),
            "name    time, us\na              1\nlänger      12.5\n"
        );
        assert_eq!(
            table().widths(&[8]).indent(2).to_string(),
            "  name      time, us\n  a                1\n  länger        12.5\n"
        );
    }

    #[test]
    fn nothing_stands_at_the_end_of_a_line() {
        let mut table = Table::new(0, &[]);
        table.row(vec!["1".into(), "x".into()]);
        table.row(vec!["22".into(), String::new()]);
        assert_eq!(table.to_string(), " 1  x\n22\n");
    }

    #[test]
    fn markdown_has_the_same_cells() {
        assert_eq!(
            table().markdown(),
            "| name | time, us |\n|---|---:|\n| a | 1 |\n| länger | 12.5 |\n"
        );
    }
}
