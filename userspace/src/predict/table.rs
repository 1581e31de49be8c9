//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::io::{self, Write};

/// A table under construction.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of text, which stand to the left.
    text: usize,
}

impl Table {
    /// A table with these headings; the first `text` columns hold text.
    pub(crate) fn new(text: usize, header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()],
            text,
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it, columns two spaces apart.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let padding = " ".repeat(width - cell.chars().count());
                if column < self.text {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Prints it as Markdown.
    pub(super) fn print_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        for (index, row) in self.rows.iter().enumerate() {
            writeln!(out, "| {} |", row.join(" | "))?;
            if index == 0 {
                let rule = |column| if column < self.text { "---" } else { "---:" };
                let rules: Vec<&str> = (0..row.len()).map(rule).collect();
                writeln!(out, "|{}|", rules.join("|"))?;
            }
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect()
    }
}

/// A number as people read it: six significant digits, no trailing zeros.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..=14).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let text = format!("{value:.*}", usize::try_from(5 - magnitude).unwrap_or(0));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A number that may not be there.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.76, "7.76"),
            (1234567.0, "1234567"),
            (0.000123456789, "0.000123457"),
            (-2.5, "-2.5"),
            (447979.84865, "447980"),
            (1e-9, "1.00000e-9"),
            (99.99999999, "100"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(1, &["name", "time, us"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "12.5".into()]);
        let mut plain = Vec::new();
        table.print(&mut plain).unwrap();
        assert_eq!(
            String::from_utf8(plain).unwrap(),
            "name    time, us\na              1\nlonger      12.5\n"
        );
        let mut markdown = Vec::new();
        table.print_markdown(&mut markdown).unwrap();
        assert_eq!(
            String::from_utf8(markdown).unwrap(),
            "| name | time, us |\n|---|---:|\n| a | 1 |\n| longer | 12.5 |\n"
        );
    }
}
