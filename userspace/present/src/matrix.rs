//! A communication balance as a picture: from one (row) to the other (column), the darker the more, as in
//! Martin 1999, figure 3.1.

use std::fmt::Write as _;

use crate::{
    compact,
    markup::{LIGHT, Theme, both, escaped},
};

/// Side of a cell.
const CELL: usize = 44;
/// Least room for the names.
const MARGIN: usize = 40;
/// Width of a letter of them.
const LETTER: usize = 7;

/// The picture as an SVG document. `matrix[from][to]` is a count, and has a row and a column for each of the `names`.
#[must_use]
pub fn svg(title: &str, names: &[String], matrix: &[Vec<u64>]) -> String {
    let most = matrix.iter().flatten().copied().max().unwrap_or(0).max(1);
    let names: Vec<String> = names.iter().map(|name| escaped(name)).collect();
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    let margin = MARGIN.max(LETTER * longest + 12);
    let side = margin + CELL * matrix.len() + 10;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<style>{colors}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"></rect>\n",
        width = side.max(220),
        height = side,
        title = escaped(title),
        colors = both(colors),
    );
    let middle = |index: usize| margin + CELL * index + CELL / 2;
    for (from, row) in matrix.iter().enumerate() {
        let name = &names[from];
        let at = middle(from);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>\
             <text x=\"{at}\" y=\"{top}\" text-anchor=\"middle\">{short}</text>",
            x = margin - 8,
            y = at + 4,
            top = margin - 8,
            // Columns have less room than rows; programs' names end with what tells them apart.
            short = name.rsplit('.').next().unwrap_or(name),
        );
        for (to, count) in row.iter().enumerate() {
            let opacity = 0.75 * *count as f64 / most as f64;
            let (x, y) = (margin + CELL * to, margin + CELL * from);
            let other = &names[to];
            let _ = writeln!(
                svg,
                "<rect class=\"cell\" x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill-opacity=\"{opacity:.3}\">\
                 <title>{name} to {other}: {count}</title></rect>"
            );
            if from != to {
                let _ = writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
                    middle(to),
                    at + 4,
                    compact(*count as f64, 2)
                );
            }
        }
    }
    svg + "</svg>\n"
}

fn colors(theme: &Theme) -> String {
    let Theme { page, ink, faint, .. } = theme;
    // The counts are legible on it in both themes.
    let cell = LIGHT.series[0];
    format!(".page{{fill:{page}}}text{{fill:{ink}}}.cell{{fill:{cell};stroke:{faint}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_balanced() {
        let names = ["h1", "a<b.2"].map(String::from);
        let svg = svg("a < b", &names, &[vec![0, 12_345], vec![7, 0]]);
        assert!(svg.contains(">12k</text>") && svg.contains("a&lt;b.2 to h1: 7<"));
        for tag in ["svg", "text", "rect", "title", "style"] {
            let opened = svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, svg.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
