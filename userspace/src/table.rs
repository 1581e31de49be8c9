//! Tables for the terminal: columns that line up, numbers to the right.

/// Rows of cells under a header.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a header only.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(ToString::to_string).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    line.push_str(&format!("{cell:width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with four significant digits, or a dash for what does not exist.
#[must_use]
pub fn number(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        None => "-".into(),
        Some(0.0) => "0".into(),
        Some(value) => {
            let digits = 3 - value.abs().log10().floor() as i32;
            format!("{value:.*}", digits.clamp(0, 6) as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["a", "long", "c"]);
        table.row(vec!["name".into(), "1".into(), "22".into()]);
        assert_eq!(table.to_string(), "a     long   c\nname     1  22\n");
    }

    #[test]
    fn four_significant_digits() {
        assert_eq!(
            [1234.56, 12.3456, 0.012_345].map(number),
            ["1235", "12.35", "0.01235"]
        );
        assert_eq!((number(None), number(0.0)), ("-".into(), "0".into()));
    }
}
